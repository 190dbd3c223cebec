#!/usr/bin/env bash
# Flags with which ppo.py learns CartPole-v1 and Acrobot-v1 faster, checked with fresh seeds, see
# docs/search.md; run it again to go on where it stopped. Flags go to tune.py: --workers 4.
set -euo pipefail
cd "$(dirname "$0")/.."

uv run benchmark/tune.py \
    --command "uv run ppo/ppo.py --no-cuda --total-timesteps 100000 --eval-episodes 0" \
    --target-scores CartPole-v1=0:500 Acrobot-v1=-500:0 --score curve \
    --space learning-rate=log:3e-4:1e-2 num-steps=32,64,128 gae-lambda=0.8:1.0 \
        ent-coef=log:1e-4:0.03 \
    --trials 12 --num-seeds 1 --workers 2 --check-seeds 5 --study runs/tune/ppo \
    --plot docs/results "$@"
