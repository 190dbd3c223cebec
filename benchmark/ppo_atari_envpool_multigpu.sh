#!/usr/bin/env bash
# Benchmark of ppo_atari_envpool_multigpu.py; run it again to go on where it stopped. Flags go to the
# runner: --launcher slurm. Two processes of four environments each; 10M steps take hours on a CPU.
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

train="uv run --extra envpool torchrun --standalone --nnodes=1 --nproc_per_node=2"
uv run benchmark/run.py --command "$train ppo/ppo_atari_envpool_multigpu.py --local-num-envs 4" \
    --env-ids Pong-v5 BeamRider-v5 Breakout-v5 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari_envpool_multigpu "$@"

[[ " $* " == *" --dry-run "* ]] && exit
uv run benchmark/plot.py --runs-dir runs/benchmark/ppo_atari_envpool_multigpu --out docs/results \
    --name ppo_atari_envpool_multigpu
