#!/usr/bin/env bash
# Benchmark of ppo_pettingzoo_ma_atari.py with its plots; run it again to go on where it stopped.
# Flags go to the runner, see docs/benchmarks.md: --workers 4. The games are those of the published
# lengths; 20M steps of one take half a day on two cores. Then let five checkpoints of each run play
# all others of its game:
#   runs=runs/benchmark/ppo_pettingzoo_ma_atari
#   uv run ppo/league.py $runs/pong_v3__* --checkpoints 5 --out $runs/league_pong_v3
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_pettingzoo_ma_atari.py --keep-checkpoints" \
    --env-ids pong_v3 surround_v2 tennis_v3 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_pettingzoo_ma_atari \
    --plot docs/results "$@"
