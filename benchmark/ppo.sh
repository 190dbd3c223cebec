#!/usr/bin/env bash
# Benchmark of ppo.py with its plots; run it again to go on where it stopped. Flags go to the
# runner, see docs/runs.md: --workers 4. LunarLander needs a longer horizon and more data for each
# update than the defaults give.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo.py --no-cuda" \
    --env-ids CartPole-v1 Acrobot-v1 MountainCar-v0 LunarLander-v3 \
    --env-flags "LunarLander-v3=--total-timesteps 1000000 --gamma 0.999 --gae-lambda 0.98 \
        --learning-rate 1e-3 --num-envs 16 --num-steps 256 --num-minibatches 16" \
    --num-seeds 3 --runs-dir runs/benchmark/ppo \
    --plot docs/results "$@"
