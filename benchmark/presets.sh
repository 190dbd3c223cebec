#!/usr/bin/env bash
# Flags for environments that the defaults do not solve, of ppo.py or ppo_continuous_action.py;
# docs/presets.md shows the scores. Run it again to go on where it stopped. Flags go to the runner,
# see docs/benchmarks.md:
#   benchmark/presets.sh ppo --workers 4
#   benchmark/presets.sh ppo_continuous_action --env-ids BipedalWalker-v3
set -euo pipefail
cd "$(dirname "$0")/.."

script=${1-}
shift || true
if [[ $script == ppo ]]; then
    uv run benchmark/run.py \
        --command "uv run ppo/ppo.py --no-cuda" \
        --env-ids LunarLander-v3 MountainCar-v0 \
        --env-flags "LunarLander-v3=--total-timesteps 1000000 --num-envs 16 --num-steps 1024 \
            --num-minibatches 256 --gamma 0.999 --gae-lambda 0.98 --learning-rate 3e-4 \
            --ent-coef 0 --no-clip-vloss" \
            "MountainCar-v0=--total-timesteps 1000000 --num-envs 64 --num-steps 16 \
            --gae-lambda 0.98 --learning-rate 3e-3 --ent-coef 0.03 --max-grad-norm 100 \
            --no-clip-vloss" \
        --num-seeds 5 --runs-dir runs/benchmark/presets/ppo \
        --plot docs/results/presets "$@"
elif [[ $script == ppo_continuous_action ]]; then
    uv run benchmark/run.py \
        --command "uv run ppo/ppo_continuous_action.py --no-cuda --compile" \
        --env-ids LunarLanderContinuous-v3 BipedalWalker-v3 \
        --env-flags "LunarLanderContinuous-v3=--total-timesteps 1000000 --num-envs 16 \
            --num-steps 512 --num-minibatches 128 --gamma 0.999 --gae-lambda 0.98" \
            "BipedalWalker-v3=--total-timesteps 1500000 --num-envs 8 --num-steps 512 \
            --num-minibatches 64" \
        --num-seeds 3 --runs-dir runs/benchmark/presets/ppo_continuous_action \
        --plot docs/results/presets "$@"
else
    echo "error: the first word must be ppo or ppo_continuous_action" >&2
    exit 2
fi
