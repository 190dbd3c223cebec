#!/usr/bin/env bash
# Benchmark of ppo_multidiscrete.py, without and with masks; run it again to go on where it stopped.
# Flags go to the runner: --workers 2. Needs Java: apt install default-jre-headless
# Writes docs/results; docs/runs.md says how to run a selection of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

for script in ppo_multidiscrete ppo_multidiscrete_mask; do
    uv run benchmark/run.py \
        --command "uv run ppo/$script.py --no-cuda --num-envs 8 --total-timesteps 300000" \
        --env-ids MicrortsMining4x4F9-v0 --num-seeds 2 --runs-dir "runs/benchmark/$script" "$@"
    [[ " $* " == *" --dry-run "* ]] ||
        uv run benchmark/plot.py --runs-dir "runs/benchmark/$script" --out docs/results --name "$script"
done
