#!/usr/bin/env bash
# Benchmark of ppo_gymnax.py with its plots; run it again to go on where it stopped. Flags go to the
# runner, see docs/benchmarks.md: --num-seeds 2. On two CPU cores the first two environments take a
# minute; 10M steps of a MinAtar game take much longer.
set -euo pipefail
cd "$(dirname "$0")/.."

MINATAR="--total-timesteps 10000000 --num-envs 64 --num-minibatches 8 --learning-rate 1e-3"
uv run benchmark/run.py \
    --command "uv run ppo/ppo_gymnax.py" \
    --env-ids CartPole-v1 Acrobot-v1 Breakout-MinAtar Asterix-MinAtar Freeway-MinAtar \
        SpaceInvaders-MinAtar Seaquest-MinAtar \
    --env-flags "Breakout-MinAtar=$MINATAR" "Asterix-MinAtar=$MINATAR" \
        "Freeway-MinAtar=$MINATAR" "SpaceInvaders-MinAtar=$MINATAR" "Seaquest-MinAtar=$MINATAR" \
    --num-seeds 5 --runs-dir runs/benchmark/ppo_gymnax \
    --plot docs/results "$@"
