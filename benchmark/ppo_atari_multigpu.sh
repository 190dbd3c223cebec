#!/usr/bin/env bash
# Benchmark of ppo_atari_multigpu.py with its plots; run it again to go on where it stopped. Flags
# go to the runner, see docs/benchmarks.md: --launcher slurm. Two processes of four environments, as
# in the published runs; 10M steps take hours on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run --extra atari torchrun --standalone --nnodes=1 --nproc_per_node=2 \
        ppo/ppo_atari_multigpu.py --local-num-envs 4" \
    --env-ids PongNoFrameskip-v4 BeamRiderNoFrameskip-v4 BreakoutNoFrameskip-v4 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari_multigpu \
    --plot docs/results "$@"
