#!/usr/bin/env bash
# What each implementation detail is worth: trains ppo.py and ppo_continuous_action.py without one
# of them at a time, and draws the differences. Run it again to go on where it stopped. A first word
# chooses one of the two; flags go to the runner, see docs/benchmarks.md. With some of the details,
# results go elsewhere:
#   benchmark/ablation.sh --workers 4
#   benchmark/ablation.sh ppo --env-ids CartPole-v1 --details core-3 core-7 --plot results
# Flags are those of benchmark/ppo.sh and benchmark/ppo_continuous_action.sh. LunarLander has flags of
# its own, not those of its preset.
set -euo pipefail
cd "$(dirname "$0")/.."

only=""
if [[ $# -gt 0 && $1 != -* ]]; then
    only=$1
    shift
fi
case "$only" in
    "" | ppo | ppo_continuous_action) ;;
    *) echo "error: $only is neither ppo nor ppo_continuous_action" >&2; exit 2 ;;
esac

if [[ $only != ppo_continuous_action ]]; then
    uv run benchmark/ablation.py \
        --command "uv run ppo/ppo.py --no-cuda --eval-episodes 0" \
        --env-ids CartPole-v1 Acrobot-v1 LunarLander-v3 \
        --env-flags "LunarLander-v3=--total-timesteps 1000000 --gamma 0.999 --gae-lambda 0.98 \
            --learning-rate 1e-3 --num-envs 16 --num-steps 256 --num-minibatches 16" \
        --num-seeds 5 --runs-dir runs/benchmark/ablation/ppo \
        --plot docs/results "$@"
fi

if [[ $only != ppo ]]; then
    uv run benchmark/ablation.py \
        --command "uv run ppo/ppo_continuous_action.py --no-cuda --compile --eval-episodes 0 \
            --total-timesteps 500000" \
        --env-ids HalfCheetah-v4 Hopper-v4 Walker2d-v4 \
        --details continuous deviation \
        --num-seeds 3 --runs-dir runs/benchmark/ablation/ppo_continuous_action \
        --plot docs/results "$@"
fi
