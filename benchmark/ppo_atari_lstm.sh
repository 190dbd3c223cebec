#!/usr/bin/env bash
# Benchmark of ppo_atari_lstm.py with its plots; run it again to go on where it stopped. Flags go to
# the runner, see docs/benchmarks.md: --workers 4. The games are those of the published scores; 10M
# steps of one take hours on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_atari_lstm.py" \
    --env-ids PongNoFrameskip-v4 BeamRiderNoFrameskip-v4 BreakoutNoFrameskip-v4 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari_lstm \
    --plot docs/results "$@"
