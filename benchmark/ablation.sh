#!/usr/bin/env bash
# What each implementation detail is worth: trains ppo.py or ppo_continuous_action.py without one of
# them at a time, and draws the differences. Run it again to go on where it stopped. Flags go to the
# runner, see docs/benchmarks.md. With some of the details, results go elsewhere:
#   benchmark/ablation.sh ppo --workers 4
#   benchmark/ablation.sh ppo --env-ids CartPole-v1 --details core-3 core-7 --plot results
# Flags are those of benchmark/ppo.sh and benchmark/ppo_continuous_action.sh. LunarLander has flags of
# its own, not those of its preset.
set -euo pipefail
cd "$(dirname "$0")/.."

script=${1-}
shift || true
if [[ $script == ppo ]]; then
    uv run benchmark/ablation.py \
        --command "uv run ppo/ppo.py --no-cuda --eval-episodes 0" \
        --env-ids CartPole-v1 Acrobot-v1 LunarLander-v3 \
        --env-flags "LunarLander-v3=--total-timesteps 1000000 --gamma 0.999 --gae-lambda 0.98 \
            --learning-rate 1e-3 --num-envs 16 --num-steps 256 --num-minibatches 16" \
        --num-seeds 5 --runs-dir runs/benchmark/ablation/ppo \
        --plot docs/results "$@"
elif [[ $script == ppo_continuous_action ]]; then
    uv run benchmark/ablation.py \
        --command "uv run ppo/ppo_continuous_action.py --no-cuda --compile --eval-episodes 0 \
            --total-timesteps 500000" \
        --env-ids HalfCheetah-v4 Hopper-v4 Walker2d-v4 \
        --details continuous deviation \
        --num-seeds 3 --runs-dir runs/benchmark/ablation/ppo_continuous_action \
        --plot docs/results "$@"
else
    echo "error: the first word must be ppo or ppo_continuous_action" >&2
    exit 2
fi
