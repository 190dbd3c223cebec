#!/usr/bin/env bash
# Benchmark of ppo.py with its plots; run it again to go on where it stopped. Flags go to the
# runner, see docs/benchmarks.md: --workers 4. Flags that solve more environments: presets.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo.py --no-cuda" \
    --env-ids CartPole-v1 Acrobot-v1 MountainCar-v0 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo \
    --plot docs/results "$@"
