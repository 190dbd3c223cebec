#!/usr/bin/env bash
# Benchmark of ppo_procgen.py with its plots; run it again to go on where it stopped. Flags go to
# the runner, see docs/benchmarks.md: --workers 4. The games are those of the published scores; 25M
# steps of one take more than a day on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_procgen.py" \
    --env-ids starpilot bossfight bigfish \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_procgen \
    --plot docs/results "$@"
