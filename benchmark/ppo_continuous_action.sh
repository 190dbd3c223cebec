#!/usr/bin/env bash
# Benchmark of ppo_continuous_action.py with its plots; run it again to go on where it stopped.
# Flags go to the runner, see docs/benchmarks.md: --workers 4. The v4 ids are those of the published
# scores.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_continuous_action.py --no-cuda --compile" \
    --env-ids HalfCheetah-v4 Hopper-v4 Walker2d-v4 InvertedPendulum-v4 Humanoid-v4 Pusher-v5 \
        dm_control/acrobot-swingup-v0 dm_control/acrobot-swingup_sparse-v0 \
        dm_control/ball_in_cup-catch-v0 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_continuous_action \
    --plot docs/results "$@"
