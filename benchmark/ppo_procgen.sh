#!/usr/bin/env bash
# Benchmark of ppo_procgen.py; run it again to go on where it stopped. Flags go to the runner:
# --workers 4. The three games are those of the published scores; 25M steps take more than a day on
# a CPU.
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py --command "uv run ppo/ppo_procgen.py" \
    --env-ids starpilot bossfight bigfish \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_procgen "$@"

[[ " $* " == *" --dry-run "* ]] && exit
uv run benchmark/plot.py --runs-dir runs/benchmark/ppo_procgen --out docs/results --name ppo_procgen
