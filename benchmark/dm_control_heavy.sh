#!/usr/bin/env bash
# The 23 heavier tasks of dm_control with ppo_continuous_action.py, one seed each; run it
# again to go on where it stopped. Needs libEGL, for quadruped-escape, but no screen.
# Flags go to the runner, see docs/benchmarks.md: --workers 4
set -euo pipefail
cd "$(dirname "$0")/.."

export MUJOCO_GL="${MUJOCO_GL-egl}"
uv run benchmark/run.py \
    --command "uv run ppo/ppo_continuous_action.py --no-cuda --compile" \
    --env-ids \
        dm_control/swimmer-swimmer6-v0 dm_control/swimmer-swimmer15-v0 \
        dm_control/quadruped-walk-v0 dm_control/quadruped-run-v0 \
        dm_control/quadruped-escape-v0 dm_control/quadruped-fetch-v0 \
        dm_control/manipulator-bring_ball-v0 dm_control/manipulator-bring_peg-v0 \
        dm_control/manipulator-insert_ball-v0 dm_control/manipulator-insert_peg-v0 \
        dm_control/stacker-stack_2-v0 dm_control/stacker-stack_4-v0 \
        dm_control/humanoid-stand-v0 dm_control/humanoid-walk-v0 \
        dm_control/humanoid-run-v0 dm_control/humanoid-run_pure_state-v0 \
        dm_control/humanoid_CMU-stand-v0 dm_control/humanoid_CMU-run-v0 \
        dm_control/dog-stand-v0 dm_control/dog-walk-v0 dm_control/dog-trot-v0 \
        dm_control/dog-run-v0 dm_control/dog-fetch-v0 \
    --num-seeds 1 --runs-dir runs/benchmark/dm_control_heavy \
    --plot docs/results --suite ppo_continuous_action_dm_control_heavy "$@"
