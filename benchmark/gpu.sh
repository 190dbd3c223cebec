#!/usr/bin/env bash
# What to run once on a machine with a GPU, see docs/benchmarks.md; flags go to gpu.py.
#
#     benchmark/gpu.sh check                       does every script train there?
#     benchmark/gpu.sh speed --cleanrl ~/cleanrl   how fast?
#
# PYTHON names an interpreter that has the packages, and CUDA. Without it uv installs them; without
# uv it is python3.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${PYTHON:-}" ] || ! command -v uv >/dev/null; then
    exec "${PYTHON:-python3}" benchmark/gpu.py "$@"
fi
extras=()
for extra in atari dm_control envpool gymnax jax mjx mujoco pettingzoo; do
    extras+=(--extra "$extra")
done
if [ "$(uname -sm)" = "Linux x86_64" ]; then # it has wheels for nothing else
    extras+=(--extra procgen)
fi
if command -v java >/dev/null; then
    extras+=(--extra microrts)
fi
if command -v nvidia-smi >/dev/null; then
    extras+=(--with "jax[cuda12]")
fi
exec uv run "${extras[@]}" python benchmark/gpu.py "$@"
