#!/usr/bin/env bash
# Benchmark of ppo_pettingzoo_ma_atari.py; run it again to go on where it stopped. Flags go to the
# runner: --workers 4. The three games are those of the published lengths; 20M steps take a day on a
# CPU. Then five checkpoints of each run play all others of the same game.
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=runs/benchmark/ppo_pettingzoo_ma_atari
uv run benchmark/run.py \
    --command "uv run ppo/ppo_pettingzoo_ma_atari.py --keep-checkpoints" \
    --env-ids pong_v3 surround_v2 tennis_v3 --num-seeds 3 --runs-dir "$runs" "$@"

[[ " $* " == *" --dry-run "* ]] && exit
uv run benchmark/plot.py --runs-dir "$runs" --out docs/results --name ppo_pettingzoo_ma_atari

for game in pong_v3 surround_v2 tennis_v3; do
    compgen -G "$runs/${game}__*" >/dev/null || continue # another selection: --env-ids pong_v3
    uv run ppo/league.py "$runs/$game"__* --checkpoints 5 --out "$runs/league_$game"
done
