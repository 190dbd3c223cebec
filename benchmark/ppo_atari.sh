#!/usr/bin/env bash
# Benchmark of ppo_atari.py; run it again to go on where it stopped. Flags go to the runner:
# --workers 4. The three games are those of the published scores; 10M steps take hours on a CPU.
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py --command "uv run ppo/ppo_atari.py" \
    --env-ids PongNoFrameskip-v4 BeamRiderNoFrameskip-v4 BreakoutNoFrameskip-v4 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari "$@"

[[ " $* " == *" --dry-run "* ]] && exit
uv run benchmark/plot.py --runs-dir runs/benchmark/ppo_atari --out docs/results --name ppo_atari
