"""Stable-Baselines3's PPO, with the hyperparameters of a script or its own: what speed.py runs.

    uv run --no-project --with-requirements benchmark/requirements/sb3.txt \\
        benchmark/speed_sb3.py --script ppo.py --env-id CartPole-v1 --steps 100000

Without --script it has its own hyperparameters, on Atari games (PongNoFrameskip-v4) with its own
wrappers, a stack of four frames and its network for images. Trains on the CPU and prints the
environment steps per second of its training loop: "SPS: 6000.0". With --runs-dir it writes the
return of each episode as the scripts do, for TensorBoard.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ale_py
import gymnasium
import torch
import tyro
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize
from torch.utils.tensorboard import SummaryWriter

gymnasium.register_envs(ale_py)


@dataclass(frozen=True)
class Hyperparameters:
    """What differs between the scripts that have a counterpart; the rest stands in `make_model`."""

    num_envs: int
    num_steps: int  # of each environment in a rollout
    minibatch_size: int  # steps
    update_epochs: int
    learning_rate: float  # of the first update; annealed to 0
    ent_coef: float
    normalize: bool  # observations and rewards, by running statistics


COUNTERPARTS = {
    "ppo.py": Hyperparameters(
        num_envs=4,
        num_steps=128,
        minibatch_size=128,
        update_epochs=4,
        learning_rate=2.5e-4,
        ent_coef=0.01,
        normalize=False,
    ),
    "ppo_continuous_action.py": Hyperparameters(
        num_envs=1,
        num_steps=2048,
        minibatch_size=64,
        update_epochs=10,
        learning_rate=3e-4,
        ent_coef=0.0,
        normalize=True,
    ),
}


@dataclass
class Args:
    env_id: str  # environment
    steps: int  # environment steps, rounded up to whole rollouts
    script: Literal["ppo.py", "ppo_continuous_action.py"] | None = None  # hyperparameters; or SB3's
    runs_dir: Path | None = None  # folder to write episodes to
    threads: int = 1  # CPU threads
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


def make_envs(env_id: str, seed: int, given: Hyperparameters) -> VecEnv:
    """The environments of a run."""
    envs = make_vec_env(env_id, given.num_envs, seed=seed)
    if not given.normalize:
        return envs
    return VecNormalize(envs, clip_obs=10.0, clip_reward=10.0, gamma=0.99)


def make_model(envs: VecEnv, seed: int, given: Hyperparameters) -> PPO:
    """An agent that has learned nothing yet."""
    return PPO(
        "MlpPolicy",
        envs,
        learning_rate=lambda remaining: remaining * given.learning_rate,
        n_steps=given.num_steps,
        batch_size=given.minibatch_size,
        n_epochs=given.update_epochs,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        clip_range_vf=0.2,
        ent_coef=given.ent_coef,
        vf_coef=0.25,  # 0.5 in the scripts, whose value loss has a factor of one half
        max_grad_norm=0.5,
        seed=seed,
        device="cpu",
    )


def make_default_envs(env_id: str, seed: int) -> VecEnv:
    """One environment, which is SB3's default; of Atari games a stack of four frames."""
    if "NoFrameskip" in env_id:
        return VecFrameStack(make_atari_env(env_id, seed=seed), n_stack=4)
    return make_vec_env(env_id, seed=seed)


def make_default_model(envs: VecEnv, seed: int) -> PPO:
    """An agent with SB3's own hyperparameters that has learned nothing yet."""
    images = len(envs.observation_space.shape or ()) == 3
    return PPO("CnnPolicy" if images else "MlpPolicy", envs, seed=seed, device="cpu")


def main() -> None:
    """Train and print the speed."""
    args = tyro.cli(Args, description=__doc__)
    torch.set_num_threads(args.threads)
    if args.script is None:
        envs = make_default_envs(args.env_id, args.seed)
        model = make_default_model(envs, args.seed)
    else:
        given = COUNTERPARTS[args.script]
        envs = make_envs(args.env_id, args.seed, given)
        model = make_model(envs, args.seed, given)
    log = None if args.runs_dir is None else EpisodeLog(args.runs_dir / "sb3")
    start = time.monotonic()
    model.learn(args.steps, callback=log)
    print("SPS:", model.num_timesteps / (time.monotonic() - start))
    envs.close()


if __name__ == "__main__":
    main()
