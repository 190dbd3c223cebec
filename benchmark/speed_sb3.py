"""Stable-Baselines3's PPO, with the hyperparameters of a script or its own: what speed.py runs.

    uv run --no-project --with-requirements benchmark/requirements/sb3.txt \\
        benchmark/speed_sb3.py --script ppo.py --env-id CartPole-v1 --steps 100000

Without --script it has its own hyperparameters, on Atari games (PongNoFrameskip-v4) with its own
wrappers, a stack of four frames and its network for images. With --runs-dir it writes the return of
each episode as the scripts do, for TensorBoard.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ale_py
import gymnasium
import torch
import tyro
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize
from torch.utils.tensorboard import SummaryWriter

gymnasium.register_envs(ale_py)


# Arguments of SB3's PPO in which the scripts that have a counterpart differ.
COUNTERPARTS: dict[str, dict[str, Any]] = {
    "ppo.py": {"n_steps": 128, "batch_size": 128, "n_epochs": 4, "ent_coef": 0.01},
    "ppo_continuous_action.py": {
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "ent_coef": 0.0,
    },
}


@dataclass
class Args:
    env_id: str  # environment
    steps: int  # environment steps, rounded up to whole rollouts
    script: Literal["ppo.py", "ppo_continuous_action.py"] | None = None  # hyperparameters; or SB3's
    runs_dir: Path | None = None  # folder to write episodes to
    threads: int = 1  # CPU threads
    device: str = "cpu"  # where it is trained: cpu, cuda
    seed: int = 1  # of the environments, the weights and the sampling


class EpisodeLog(BaseCallback):
    """Writes the return of each episode that ends in training."""

    def __init__(self, folder: Path):
        super().__init__()
        self.writer = SummaryWriter(str(folder))

    def _on_step(self) -> bool:
        """Called after each step of the environments; training goes on."""
        for info in self.locals["infos"]:
            if "episode" in info:
                episodic_return = info["episode"]["r"]
                self.writer.add_scalar(
                    "charts/episodic_return", episodic_return, self.num_timesteps
                )
        return True


def make_counterpart(script: str, args: Args) -> PPO:
    """An agent with the hyperparameters of a script that has learned nothing yet."""
    if script == "ppo.py":
        envs, learning_rate = make_vec_env(args.env_id, 4, seed=args.seed), 2.5e-4
    else:
        envs, learning_rate = make_vec_env(args.env_id, 1, seed=args.seed), 3e-4
        envs = VecNormalize(envs, clip_obs=10.0, clip_reward=10.0, gamma=0.99)
    return PPO(
        "MlpPolicy",
        envs,
        learning_rate=lambda remaining: remaining * learning_rate,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        clip_range_vf=0.2,
        vf_coef=0.25,  # 0.5 in the scripts, whose value loss has a factor of one half
        max_grad_norm=0.5,
        seed=args.seed,
        device=args.device,
        **COUNTERPARTS[script],
    )


def make_default(args: Args) -> PPO:
    """One with SB3's own: one environment, of Atari games a stack of four frames."""
    options: dict[str, Any] = {"seed": args.seed, "device": args.device}
    if "NoFrameskip" in args.env_id:
        envs = VecFrameStack(make_atari_env(args.env_id, seed=args.seed), n_stack=4)
        return PPO("CnnPolicy", envs, **options)
    return PPO("MlpPolicy", make_vec_env(args.env_id, seed=args.seed), **options)


def main() -> None:
    """Train."""
    args = tyro.cli(Args, description=__doc__)
    torch.set_num_threads(args.threads)
    model = make_counterpart(args.script, args) if args.script else make_default(args)
    log = None if args.runs_dir is None else EpisodeLog(args.runs_dir / "sb3")
    model.learn(args.steps, callback=log)


if __name__ == "__main__":
    main()
