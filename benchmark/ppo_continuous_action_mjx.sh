#!/usr/bin/env bash
# Benchmark of ppo_continuous_action_mjx.py with its plots; run it again to go on where it stopped.
# Flags go to the runner, see docs/benchmarks.md: --num-seeds 1. Meant for a GPU; the first two
# tasks are learned on a CPU, too. The others have to walk, hop and balance.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_continuous_action_mjx.py" \
    --env-ids CartpoleBalance CheetahRun CartpoleSwingup WalkerWalk WalkerRun HopperStand \
        FingerSpin HumanoidStand \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_continuous_action_mjx \
    --plot docs/results "$@"
