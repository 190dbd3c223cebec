#!/usr/bin/env bash
# Benchmark of ppo.py; run it again to go on where it stopped. Flags go to the runner: --workers 4
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py --command "uv run ppo/ppo.py --no-cuda" \
    --env-ids CartPole-v1 Acrobot-v1 MountainCar-v0 --num-seeds 3 --runs-dir runs/benchmark/ppo "$@"

# LunarLander needs a longer horizon and more data for each update than the defaults give.
[[ " $* " == *" --env-ids "* ]] ||
    uv run benchmark/run.py --command "uv run ppo/ppo.py --no-cuda --total-timesteps 1000000 \
        --gamma 0.999 --gae-lambda 0.98 --learning-rate 1e-3 --num-envs 16 --num-steps 256 \
        --num-minibatches 16" --env-ids LunarLander-v3 --num-seeds 3 --runs-dir runs/benchmark/ppo "$@"

[[ " $* " == *" --dry-run "* ]] && exit
uv run benchmark/plot.py --runs-dir runs/benchmark/ppo --out docs/results --name ppo
