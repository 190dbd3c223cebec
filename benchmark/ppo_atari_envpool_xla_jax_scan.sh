#!/usr/bin/env bash
# Benchmark of ppo_atari_envpool_xla_jax_scan.py with its plots; run it again to go on where it
# stopped. Flags go to the runner, see docs/benchmarks.md: --num-seeds 1. The games are those of the
# published scores; 10M steps of one take a day or more without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_atari_envpool_xla_jax_scan.py --no-clip-vloss" \
    --env-ids Pong-v5 BeamRider-v5 Breakout-v5 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_atari_envpool_xla_jax_scan \
    --plot docs/results "$@"
