#!/usr/bin/env bash
# 22 light tasks of dm_control with ppo_continuous_action.py, and one picture of them all; run it
# again to go on where it stopped. Flags go to the runner, see docs/benchmarks.md: --workers 4
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_continuous_action.py --no-cuda --compile" \
    --env-ids \
        dm_control/cartpole-balance-v0 dm_control/cartpole-balance_sparse-v0 \
        dm_control/cartpole-swingup-v0 dm_control/cartpole-swingup_sparse-v0 \
        dm_control/cartpole-two_poles-v0 dm_control/cartpole-three_poles-v0 \
        dm_control/finger-spin-v0 dm_control/finger-turn_easy-v0 dm_control/finger-turn_hard-v0 \
        dm_control/walker-stand-v0 dm_control/walker-walk-v0 dm_control/walker-run-v0 \
        dm_control/hopper-stand-v0 dm_control/hopper-hop-v0 \
        dm_control/reacher-easy-v0 dm_control/reacher-hard-v0 \
        dm_control/point_mass-easy-v0 dm_control/point_mass-hard-v0 \
        dm_control/fish-upright-v0 dm_control/fish-swim-v0 \
        dm_control/cheetah-run-v0 dm_control/pendulum-swingup-v0 \
    --num-seeds 3 --runs-dir runs/benchmark/dm_control \
    --plot docs/results --suite ppo_continuous_action_dm_control "$@"
