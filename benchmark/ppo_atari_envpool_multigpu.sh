#!/usr/bin/env bash
# Benchmark of ppo_atari_envpool_multigpu.py with its plots; run it again to go on where it stopped.
# Flags go to the runner, see docs/benchmarks.md: --launcher slurm. Two processes of four
# environments; 10M steps take hours on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run --extra envpool torchrun --standalone --nnodes=1 --nproc_per_node=2 \
        ppo/ppo_atari_envpool_multigpu.py --local-num-envs 4" \
    --env-ids Pong-v5 BeamRider-v5 Breakout-v5 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari_envpool_multigpu \
    --plot docs/results "$@"
