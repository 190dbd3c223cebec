#!/usr/bin/env bash
# Benchmark of ppo_atari_multigpu.py; run it again to go on where it stopped. Flags go to the runner:
# --launcher slurm. Two processes of four environments, as in the published runs; 10M steps take
# hours on a CPU.
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

train="uv run --extra atari torchrun --standalone --nnodes=1 --nproc_per_node=2"
uv run benchmark/run.py --command "$train ppo/ppo_atari_multigpu.py --local-num-envs 4" \
    --env-ids PongNoFrameskip-v4 BeamRiderNoFrameskip-v4 BreakoutNoFrameskip-v4 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari_multigpu "$@"

[[ " $* " == *" --dry-run "* ]] && exit
uv run benchmark/plot.py --runs-dir runs/benchmark/ppo_atari_multigpu --out docs/results \
    --name ppo_atari_multigpu
