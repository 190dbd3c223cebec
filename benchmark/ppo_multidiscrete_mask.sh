#!/usr/bin/env bash
# Benchmark of ppo_multidiscrete_mask.py with its plots; run it again to go on where it stopped.
# Flags go to the runner, see docs/benchmarks.md: --workers 2. Needs Java: apt install
# default-jre-headless
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/run.py \
    --command "uv run ppo/ppo_multidiscrete_mask.py --no-cuda" \
    --env-ids MicrortsMining4x4F9-v0 \
    --num-seeds 3 --runs-dir runs/benchmark/ppo_multidiscrete_mask \
    --plot docs/results "$@"
