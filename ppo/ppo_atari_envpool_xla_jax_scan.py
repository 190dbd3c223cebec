# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["filelock>=3.16", "gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1",
#     "numpy>=2", "tensorboard>=2.19", "tqdm>=4.66", "tyro>=0.9.20", "wandb>=0.30",
#     "envpool>=1.2", "flax>=0.12", "jax>=0.10", "optax>=0.2.8"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for Atari games in EnvPool, in JAX, loops compiled with jax.lax.scan; slow without a GPU.

    uv run ppo/ppo_atari_envpool_xla_jax_scan.py                  learns Breakout; 10M steps
    uv run ppo/ppo_atari_envpool_xla_jax_scan.py --env-id Pong-v5 --seed 2 --capture-video
    uv run --with "jax[cuda12]" ppo/ppo_atari_envpool_xla_jax_scan.py   on a GPU

Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool_xla_jax.py
Details: core 1-12, atari 1-9, aux 3 (atari-8 replaces core-13)
Deviations: truncated episodes bootstrapped, reset steps learned from
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import envpool
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from gymnasium.utils.save_video import save_video
from jax import Array
from jax.experimental import io_callback

# CPUs that this process may use.
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(unsafe_hash=True)  # so that jax.jit can take it as a static argument
class Args:
    # the task
    env_id: str = "Breakout-v5"  # game, as EnvPool calls it
    total_timesteps: int = 10_000_000  # environment steps in all, of four frames each
    num_envs: int = 8  # environments stepped side by side
    seed: int = 1  # of the network, the sampled actions and the environments
    # the algorithm
    num_steps: int = 128  # steps per environment in each rollout; usually 32 to 2048
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # from one-step errors (0) to whole returns (1); usually 0.9 to 1
    num_minibatches: int = 4  # minibatches that a rollout is cut into; usually 4 to 32
    update_epochs: int = 4  # passes over each rollout; usually 3 to 10
    learning_rate: float = 2.5e-4  # Adam's step size; usually 1e-4 to 1e-3
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.1  # the policy's ratio is clipped to 1 ± this; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the change of the value at clip_coef as well
    ent_coef: float = 0.01  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # larger gradients are scaled down to this norm; usually 0.5 to 1
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA if jax[cuda12] is installed
    torch_deterministic: bool = True  # deterministic algorithms on CUDA; the name is CleanRL's
    env_threads: int = CPUS  # CPU threads that step the games
    bf16: bool = False  # the CNN in bfloat16: faster where the hardware has it, less exact
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: the unfinished run of this command
    checkpoint_every: int = 100  # iterations between checkpoints; 0: only at the end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film the first environment
    video_every: int = 100  # with --capture-video, film every n-th episode
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "ppo"  # Weights & Biases project
    wandb_entity: str | None = None  # Weights & Biases user or team

    @property
    def batch_size(self) -> int:
        """Steps in a rollout, of all environments."""
        return self.num_envs * self.num_steps

    @property
    def num_iterations(self) -> int:
        """Rollouts, each followed by an update."""
        return self.total_timesteps // self.batch_size


class EnvPool:
    """EnvPool's games, stepped inside compiled functions; reports, and films, whole games.

    Its state, EnvPool's handle and the scores so far, is passed in and out: what compiled
    functions stored in `self` would be lost.
    The step that follows the end of a life ignores its action and resets: EnvPool has no other way.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, args: Args, videos: Path):
        self.args = args
        self.videos = videos
        self.games = 0  # that the first environment has played to the end
        self.frames: list[Any] = []  # of its game, if that is filmed
        self.pool: Any = None
        spec = envpool.make_spec(args.env_id)
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space

    def reset(self, seed: int) -> tuple[dict[str, Array], Array]:  # state, observations
        self.pool = envpool.make(  # takes the seed, which its reset() would ignore
            self.args.env_id,
            env_type="gymnasium",
            num_envs=self.args.num_envs,  # [core-1] vectorized
            num_threads=min(self.args.env_threads, self.args.num_envs),
            seed=seed % 2**31,
            noop_max=30,  # [atari-1] NoopReset
            frame_skip=4,  # [atari-2] MaxAndSkip
            episodic_life=True,  # [atari-3] EpisodicLife
            use_fire_reset=True,  # [atari-4] FireReset
            img_height=84,  # [atari-5] WarpFrame
            reward_clip=True,  # [atari-6] ClipReward
            stack_num=4,  # [atari-7] FrameStack
            render_mode="rgb_array",
        )
        handle, _, _, self.xla_step = self.pool.xla()
        state = {"handle": jnp.array(handle), "score": jnp.zeros(self.args.num_envs)}
        return state, jnp.array(self.pool.reset()[0])

    def step(self, state: dict[str, Array], actions: Array) -> tuple[dict, Array, dict[str, Array]]:
        """The state after the step, observations, and what came of it by name, (num_envs,) each."""
        handle, result = self.xla_step(state["handle"], actions)
        obs, rewards, terminated, truncated, infos = result
        score = state["score"] + infos["reward"]  # not clipped
        over = infos["terminated"].astype(bool) | truncated  # `terminated` is the end of a life
        outcome = {
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "over": over,
            "score": score,
            "length": infos["elapsed_step"],
        }
        if self.args.capture_video:  # before the next step, which needs this handle
            handle = io_callback(self.film, handle, handle, over[0])
        return {"handle": handle, "score": jnp.where(over, 0, score)}, obs, outcome

    def film(self, handle: Array, over: Array) -> Array:
        """Takes a frame of the first environment's game, and writes the film if it is over."""
        if self.games % self.args.video_every == 0 and len(self.frames) < LONGEST_FILM:
            self.frames += [*self.pool.render(0)]
        if over and self.frames:
            folder = str(self.videos)
            with signals_wait():
                save_video(self.frames, folder, lambda _: True, fps=15, episode_index=self.games)
        if over:
            self.games += 1
            self.frames = []
        return handle

    def close(self) -> None:
        if self.pool:
            self.pool.close()


def make_envs(args: Args, videos: Path) -> EnvPool:
    """`num_envs` games; with --capture-video the first one is filmed to `videos`."""
    return EnvPool(args, videos)


def flatten(images: Array) -> Array:  # (batch, height, width, channels) to (batch, -1)
    return images.reshape(len(images), -1)


class Agent(nnx.Module):
    """Policy and value function; x: what `features` returns."""

    def __init__(self, envs: EnvPool, rngs: nnx.Rngs, bf16: bool = False):
        orthogonal = nnx.initializers.orthogonal  # [core-2] orthogonal initialization
        dtype = jnp.bfloat16 if bf16 else jnp.float32
        options: Any = {"kernel_init": orthogonal(np.sqrt(2)), "dtype": dtype, "rngs": rngs}
        conv: Any = partial(nnx.Conv, padding="VALID", **options)
        self.network = nnx.Sequential(  # [atari-8] shared Nature-CNN
            conv(4, 32, kernel_size=(8, 8), strides=4),
            nnx.relu,
            conv(32, 64, kernel_size=(4, 4), strides=2),
            nnx.relu,
            conv(64, 64, kernel_size=(3, 3)),
            nnx.relu,
            flatten,
            nnx.Linear(64 * 7 * 7, 512, **options),
            nnx.relu,
        )
        self.critic = nnx.Linear(512, 1, kernel_init=orthogonal(1.0), rngs=rngs)
        num_actions = int(envs.single_action_space.n)
        self.actor = nnx.Linear(512, num_actions, kernel_init=orthogonal(0.01), rngs=rngs)

    def features(self, obs: Array) -> Array:
        """The network's output, (batch, 512), for images, (batch, 4, 84, 84)."""
        images = obs.transpose(0, 2, 3, 1) / 255.0  # [atari-9] scale to [0, 1]
        return self.network(images).astype(jnp.float32)

    def get_value(self, x: Array) -> Array:  # (batch,)
        return self.critic(x).squeeze(-1)

    def get_action(self, x: Array, key: Array, greedy: bool = False) -> Array:  # (batch,)
        """Sampled actions; the most probable ones if greedy."""
        logits = self.actor(x)
        action = logits.argmax(-1) if greedy else jax.random.categorical(key, logits)
        return action.astype(jnp.int32)

    def get_logprob_entropy_value(self, x: Array, action: Array) -> tuple[Array, ...]:
        """Log-probability of each action, the policy's entropy and the value: (batch,) each."""
        logprobs = jax.nn.log_softmax(self.actor(x))  # of every action: (batch, number of actions)
        chosen = jax.nn.one_hot(action, logprobs.shape[-1])
        logprob = (logprobs * chosen).sum(-1)  # a gradient through indices is slow on GPUs
        entropy = -(jnp.exp(logprobs) * logprobs).sum(-1)
        return logprob, entropy, self.get_value(x)


@partial(jax.jit, static_argnames="args")
def compute_gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    args: Args,
) -> tuple[Array, Array]:
    """Advantages and returns: equation 16 of arxiv.org/abs/1506.02438.

    All arrays are (num_steps, num_envs). rewards, terminated, truncated: what step t returned.
    values, next_values: of the observations before and after step t.
    """
    # After termination nothing follows; after truncation next_values has the last observation's.
    deltas = rewards + args.gamma * next_values * ~terminated - values
    done = terminated | truncated

    def gae_step(lastgaelam: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, done = row
        lastgaelam = delta + args.gamma * args.gae_lambda * ~done * lastgaelam
        return lastgaelam, lastgaelam  # for the row before, and as a row of the advantages

    last_row = jnp.zeros_like(rewards[0])
    _, advantages = jax.lax.scan(gae_step, last_row, (deltas, done), reverse=True)
    return advantages, advantages + values  # [core-5] generalized advantage estimation


def ppo_loss(
    newlogprob: Array, entropy: Array, newvalue: Array, mb: dict[str, Array], args: Args
) -> tuple[Array, dict[str, Array]]:
    """Loss of a minibatch and statistics: equations 7 and 9 of arxiv.org/abs/1707.06347.

    newlogprob, entropy, newvalue: (minibatch_size,), from the network that is being trained.
    mb: logprobs, values, advantages, returns: (minibatch_size,), from the rollout.
    """
    logratio = newlogprob - mb["logprobs"]
    ratio = jnp.exp(logratio)  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:  # [core-7] advantage normalization, in each minibatch
        advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    clipped_ratio = ratio.clip(1 - args.clip_coef, 1 + args.clip_coef)
    # The minimum: no gain from moving the ratio further out, but a gradient to move it back.
    surrogate = jnp.minimum(ratio * advantages, clipped_ratio * advantages)
    pg_loss = -surrogate.mean()  # [core-8] clipped surrogate objective
    v_error = (newvalue - mb["returns"]) ** 2
    if args.clip_vloss:  # [core-9] value function loss clipping
        v_change = (newvalue - mb["values"]).clip(-args.clip_coef, args.clip_coef)
        v_error = jnp.maximum(v_error, (mb["values"] + v_change - mb["returns"]) ** 2)
    v_loss = 0.5 * v_error.mean()
    entropy_loss = entropy.mean()
    loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss  # [core-10] overall loss
    stats = {  # [core-12] debug variables
        "losses/policy_loss": pg_loss,
        "losses/value_loss": v_loss,
        "losses/entropy": entropy_loss,
        "losses/old_approx_kl": -logratio.mean(),
        "losses/approx_kl": (ratio - 1 - logratio).mean(),  # joschu.net/blog/kl-approx.html
        "losses/clipfrac": (jnp.abs(ratio - 1) > args.clip_coef).mean(),
    }
    return loss, stats


def compute_gradient(
    agent: Agent, batch: dict[str, Array], mb_inds: Array, args: Args
) -> tuple[Agent, dict[str, Array]]:
    """The clipped gradient of a minibatch, shaped like the agent, and statistics."""
    mb = {name: x[mb_inds] for name, x in batch.items()}

    def loss_of(agent: Agent) -> tuple[Array, dict[str, Array]]:
        x = agent.features(mb["obs"])
        newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(x, mb["actions"])
        return ppo_loss(newlogprob, entropy, newvalue, mb, args)

    gradient, stats = jax.grad(loss_of, has_aux=True)(agent)
    grad_norm = optax.tree.norm(gradient)
    scale = jnp.minimum(args.max_grad_norm / (grad_norm + 1e-6), 1.0)
    gradient = jax.tree.map(lambda g: g * scale, gradient)  # [core-11] global gradient clipping
    return gradient, {**stats, "losses/grad_norm": grad_norm}


def act(
    envs: EnvPool, agent: Agent, state: dict, obs: Array, key: Array, step: Any
) -> tuple[dict, Array, dict[str, Array]]:
    """A step of all environments: their state, the next observations and the transition."""
    x = agent.features(obs)
    action = agent.get_action(x, jax.random.fold_in(key, step))
    state, next_obs, outcome = envs.step(state, action)
    return state, next_obs, {"obs": obs, "features": x, "actions": action, **outcome}


@partial(jax.jit, static_argnames=("envs", "args"))
def rollout(
    envs: EnvPool, agent: Agent, state: dict, obs: Array, key: Array, args: Args
) -> tuple[dict, Array, dict[str, Array]]:
    """Acts for num_steps: the environments' state, the next observations, the trajectory.

    Row t of the trajectory, (num_steps, num_envs, ...), is what was seen and done at step t and
    what came of it.
    """

    def one_step(carry: tuple[dict, Array], step: Array) -> tuple[tuple, dict[str, Array]]:
        state, obs, transition = act(envs, agent, *carry, key, step)
        return (state, obs), transition

    (state, obs), trajectory = jax.lax.scan(one_step, (state, obs), jnp.arange(args.num_steps))
    return state, obs, trajectory


@jax.jit
def get_logprobs_values(
    agent: Agent, trajectory: dict[str, Array], next_obs: Array
) -> tuple[Array, Array]:
    """Of a rollout: log-probabilities, (num_steps, num_envs), values, (num_steps + 1, num_envs)."""
    num_steps, num_envs = trajectory["actions"].shape
    x = trajectory["features"].reshape(num_steps * num_envs, -1)
    logprobs, _, values = agent.get_logprob_entropy_value(x, trajectory["actions"].ravel())
    last_values = agent.get_value(agent.features(next_obs))
    all_values = jnp.concatenate([values, last_values]).reshape(-1, num_envs)
    return logprobs.reshape(num_steps, num_envs), all_values


def gradient_step(
    train_state: dict, batch: dict, mb_inds: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The train_state (agent, opt_state) after a minibatch, and statistics."""
    gradient, stats = compute_gradient(train_state["agent"], batch, mb_inds, args)
    # The step that Adam would take with a learning rate of 1.
    direction, opt_state = optimizer.update(gradient, train_state["opt_state"])
    agent = jax.tree.map(lambda p, d: p - learning_rate * d, train_state["agent"], direction)
    return {"agent": agent, "opt_state": opt_state}, stats


# donate: the memory of the old train_state becomes the new one's; the old one cannot be used again.
@partial(jax.jit, static_argnames=("optimizer", "args"), donate_argnames="train_state")
def update_ppo(
    train_state: dict, batch: dict, key: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The train_state after a few epochs of gradient steps on a rollout; means of statistics."""
    # Inside loops, XLA's gradients of convolutions are slow on CPUs: 0 unrolls the loops there.
    unroll = 0 if jax.default_backend() == "cpu" else 1

    def one_minibatch(train_state: dict, mb_inds: Array) -> tuple[dict, dict[str, Array]]:
        return gradient_step(train_state, batch, mb_inds, learning_rate, optimizer, args)

    def one_epoch(carry: tuple[dict, Array], epoch_key: Array) -> tuple[tuple, tuple]:
        train_state, stopped = carry
        shuffled = jax.random.permutation(epoch_key, args.batch_size)
        minibatches = shuffled.reshape(args.num_minibatches, -1)  # [core-6] mini-batch updates
        updated, stats = jax.lax.scan(one_minibatch, train_state, minibatches, unroll=unroll)
        counts = ~stopped  # a scan cannot stop early: what comes after the stop is discarded
        if args.target_kl is not None:
            keep_if_stopped = partial(jnp.where, stopped)
            updated = jax.tree.map(keep_if_stopped, train_state, updated)
            kl = stats["losses/approx_kl"][-1]
            stopped |= kl > args.target_kl  # [aux-3] early stopping on KL
        return (updated, stopped), (stats, counts)

    epoch_keys = jax.random.split(key, args.update_epochs)
    begin = (train_state, jnp.array(False))
    (train_state, _), (stats, counts) = jax.lax.scan(one_epoch, begin, epoch_keys, unroll=unroll)
    return train_state, {name: x.mean(1).mean(where=counts) for name, x in stats.items()}


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, np.ndarray]:
    """Plays `eval_episodes` whole episodes; returns results by name, (episodes,) each."""
    envs = make_envs(replace(args, num_envs=1), videos)
    state, obs = envs.reset(seed=args.seed + 1_000_000)
    key = jax.random.key(args.seed + 1_000_000)

    @jax.jit
    def play(agent: Agent, state: dict, obs: Array, step: int) -> tuple[dict, Array, dict]:
        action = agent.get_action(agent.features(obs), jax.random.fold_in(key, step), greedy)
        return envs.step(state, action)

    returns: list[float] = []
    step = 0
    while len(returns) < args.eval_episodes:
        state, obs, outcome = play(agent, state, obs, step)
        if outcome["over"][0]:
            returns.append(float(outcome["score"][0]))
        step += 1
    envs.close()
    return {"episodic_return": np.array(returns)}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: none); returns the exit code."""
    # ------ setup ------
    setup_jax(args)
    global_step = checkpoint.get("global_step", 0)
    envs = make_envs(args, run_dir / f"videos/from-step-{global_step}")
    # Flax and the loop both derive keys by fold_in: from one key, both would get the same ones.
    weights_key, train_key = jax.random.split(jax.random.key(args.seed))
    agent = jax.jit(lambda: Agent(envs, nnx.Rngs(weights_key), args.bf16))()
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    train_state = {"agent": agent, "opt_state": optimizer.init(agent)}
    if checkpoint:
        train_state = restored(train_state, checkpoint)
    run = Run(args, run_dir, checkpoint)

    # ------ training ------
    state, next_obs = envs.reset(seed=args.seed + global_step)
    for iteration in range(global_step // args.batch_size + 1, args.num_iterations + 1):
        learning_rate = args.learning_rate
        if args.anneal_lr:  # [core-4] learning rate annealing
            learning_rate *= 1 - (iteration - 1) / args.num_iterations
        rollout_key, update_key = jax.random.split(jax.random.fold_in(train_key, iteration))

        # ------ rollout: act in the environments and store what happens ------
        agent = train_state["agent"]
        state, next_obs, trajectory = rollout(envs, agent, state, next_obs, rollout_key, args)
        global_step += args.batch_size
        run.log_episodes(trajectory, global_step)

        # ------ advantages: how much better than predicted did things turn out? ------
        # The weights are still those that acted, so these are the old policy's log-probabilities
        # and values. One pass over the whole rollout is faster than one at each step.
        logprobs, all_values = get_logprobs_values(agent, trajectory, next_obs)
        values = all_values[:-1]
        # An episode's last step returns its last observation: the reset comes one step later.
        next_values = all_values[1:]  # [deviation] truncated episodes bootstrapped
        names = ("rewards", "terminated", "truncated")
        rewards, terminated, truncated = [trajectory[name] for name in names]
        advantages, returns = compute_gae(rewards, values, next_values, terminated, truncated, args)
        batch = {
            "obs": trajectory["obs"],
            "actions": trajectory["actions"],
            "logprobs": logprobs,
            "values": values,
            "advantages": advantages,
            "returns": returns,
        }
        batch = {name: x.reshape(args.batch_size, *x.shape[2:]) for name, x in batch.items()}

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        train_state, stats = update_ppo(
            train_state, batch, update_key, learning_rate, optimizer, args
        )

        # ------ log ------
        # Advantages are returns - values.
        explained_variance = float(1 - advantages.var() / (returns.var() + 1e-8))
        run.log(jax.device_get(stats), explained_variance, learning_rate, global_step)
        run.save(train_state, iteration)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    envs.close()
    if not run.exit_code:
        agent = train_state["agent"]
        run.finish(evaluate(agent, args, run_dir / f"videos/evaluation-{global_step}"))
    return run.exit_code


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    if sys.platform != "linux":
        refuse("EnvPool has compiled steps on Linux alone, see ppo_atari_envpool.py")
    if args.env_id not in envpool.list_all_envs():
        refuse(f"EnvPool has no {args.env_id}; its games have names like Breakout-v5")
    envs = make_envs(args, Path())
    check_spaces(args, envs, gym.spaces.Box, gym.spaces.Discrete)
    if envs.single_observation_space.shape != (4, 84, 84):
        refuse(f"{args.env_id} is not an Atari game, see ppo.py")
    if args.env_threads < 1:
        refuse("--env-threads must be at least 1")


# ====== plumbing: the same in every JAX script; nothing below changes what is learned ======
# Imported here, so that the imports at the top are only those of the algorithm.
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from importlib import metadata
from typing import NoReturn

import tyro
from filelock import FileLock, Timeout
from flax import serialization
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer import event_file_writer
from tqdm import tqdm

SCRIPT = Path(__file__)
SCRIPT_FOR = {  # by type of the action space
    "Box": "ppo_continuous_action.py",
    "Discrete": "ppo.py",
    "MultiDiscrete": "ppo_multidiscrete.py",
}
LONGEST_FILM = 5_000  # frames; a film is in memory until it is written
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; `kill` and batch systems
MOST_POINTS = 50  # of episodes in one log; where more have ended, several share a point


class Run:
    """Metrics, checkpoints and progress of a run: in its folder and on the terminal.

    exit_code: of the program; not 0 once `save` has seen Ctrl-C or SIGTERM.
    """

    def __init__(self, args: Args, folder: Path, checkpoint: dict[str, Any]):
        self.args = args
        self.folder = folder
        self.step = checkpoint.get("global_step", 0)  # as of the last `log`
        self.total_steps = args.num_iterations * args.batch_size
        self.recent = checkpoint.get("recent", [])  # return and length of the last 100 episodes
        self.episodes: list[tuple[int, float, int]] = []  # new: step, return, length
        self.saved_iteration = self.step // args.batch_size  # of the last checkpoint
        self.first_log: tuple[float, int] | None = None  # time and step that speed is counted from
        self.last_line = time.perf_counter()  # when progress was last printed, without a terminal
        self.signal_exit_code = 0  # of the signal that has come, if any
        self.exit_code = 0  # the same, once `save` has seen it
        self.all_saved = self.step >= self.total_steps  # training is over, and saved
        signal.signal(signal.SIGINT, self.on_signal)
        signal.signal(signal.SIGTERM, self.on_signal)
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(folder / ".lock")  # held until the process ends
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            refuse(f"{folder}: another process is writing this run")
        describe_run(args, folder / f"resumed_at_{self.step}" if checkpoint else folder)
        print(f"run folder: {folder}")
        print(f"{args.num_envs} environments, device {setup_jax(args).device_kind}", flush=True)
        if args.track:
            start_wandb(args, folder)
        for name in ("agent.pt", "diverged"):  # they mark a run that is over
            (folder / name).unlink(missing_ok=True)
        # Not imported by name: wandb.init replaces this class in its module with its own.
        self.writer: Any = event_file_writer.EventFileWriter(str(folder))
        # Purges what was logged after the checkpoint: it will be logged again.
        self.add_event(self.step + 1, session_log=SessionLog(status=SessionLog.START))
        rows = [f"| {name} | {value} |" for name, value in asdict(args).items()]
        table = "\n".join(["| flag | value |", "|---|---|", *rows])
        self.add_event(self.step, summary=text_pb("hyperparameters/text_summary", table))
        self.uploaded = set(folder.glob("videos/*/*.mp4"))
        self.progress = tqdm(
            total=self.total_steps,
            initial=self.step,
            unit=" steps",
            unit_scale=True,
            dynamic_ncols=True,
            file=sys.stdout,
            disable=not sys.stdout.isatty(),
        )

    def on_signal(self, signum: int, _frame: object) -> None:
        """Lets the iteration end; another Ctrl-C ends the program at once."""
        self.signal_exit_code = 128 + signum
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # SIGTERM may come twice: SLURM sends it to all processes, `uv run` and torchrun pass it on.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.all_saved:
            sys.exit(self.signal_exit_code)
        with suppress(BrokenPipeError):  # Ctrl-C has ended `tee` as well
            print("\nstopping after this iteration; another Ctrl-C stops at once", file=sys.stderr)

    def add_event(self, step: int, **content: Any) -> None:
        """Hands an event to TensorBoard's writer."""
        self.writer.add_event(Event(wall_time=time.time(), step=step, **content))

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Writes all metrics in one event."""
        values = [Summary.Value(tag=name, simple_value=x) for name, x in metrics.items()]
        self.add_event(step, summary=Summary(value=values))

    def log_episodes(self, transitions: dict[str, Any], step: int) -> None:
        """Collects the episodes that ended in a rollout, whose last step is `step`.

        transitions: "over", whether a game has ended, "score" and "length" of the games that have:
        (num_steps, num_envs) each.
        """
        over = np.asarray(transitions["over"])
        returns = np.asarray(transitions["score"])[over]
        lengths = np.asarray(transitions["length"])[over]
        t, _ = np.nonzero(over)
        ends = step - over.size + (t + 1) * over.shape[1]
        self.episodes += zip(ends.tolist(), returns.tolist(), lengths.tolist(), strict=True)

    def log(
        self, stats: dict[str, Any], explained_variance: float, learning_rate: float, step: int
    ) -> None:
        """Writes an iteration's statistics and the episodes that ended in it.

        Ends the program with exit code 1 if a statistic is not finite; the last checkpoint stays.
        """
        self.step = step
        metrics = {name: float(mean) for name, mean in stats.items()}
        diverged = not np.isfinite(list(metrics.values())).all()
        metrics["losses/explained_variance"] = explained_variance
        metrics["charts/learning_rate"] = learning_rate
        if self.episodes:  # two metrics that CleanRL's scripts in JAX have
            _, mean_return, mean_length = np.mean(self.episodes, axis=0).tolist()
            metrics["charts/avg_episodic_return"] = mean_return
            metrics["charts/avg_episodic_length"] = mean_length
        self.write_episodes()
        self.show_progress(metrics)
        self.write(metrics, step)
        if diverged:
            self.writer.close()
            (self.folder / "diverged").touch()
            refuse(f"diverged at step {step}: {metrics}", exit_code=1)

    def write_episodes(self) -> None:
        """Writes the new episodes, each at the step that it ended in, and uploads new films.

        Where they are many, a point is the mean of some that ended one after another.
        """
        episodes = np.array(self.episodes).reshape(-1, 3)
        parts = min(len(episodes), MOST_POINTS)
        for part in np.array_split(episodes, parts) if parts else []:
            _, mean_return, mean_length = part.mean(0).tolist()
            point = {"charts/episodic_return": mean_return, "charts/episodic_length": mean_length}
            self.write(point | {"charts/episodes": len(part)}, int(part[-1, 0]))
        self.recent = (self.recent + episodes[:, 1:].tolist())[-100:]
        self.episodes = []
        if self.args.track:
            self.upload_films()

    def show_progress(self, metrics: dict[str, float]) -> None:
        """Adds the speed to the metrics; shows it with the mean return of recent episodes."""
        now = time.perf_counter()
        if self.first_log is None:
            self.first_log = (now, self.step)  # the first iteration, which may compile, is left out
        else:
            first_time, first_step = self.first_log
            metrics["charts/SPS"] = (self.step - first_step) / (now - first_time)
        recent = ""
        if self.recent:
            recent_return, recent_length = np.mean(self.recent, axis=0)
            recent = f"return {recent_return:.1f}, length {recent_length:.0f}"
        self.progress.set_postfix_str(recent, refresh=False)
        self.progress.update(self.step - self.progress.n)
        due = self.step >= self.total_steps or now - self.last_line >= 10
        if self.progress.disable and due and not self.signal_exit_code:
            self.last_line = now
            line = f"{self.step:,} of {self.total_steps:,} steps"
            if "charts/SPS" in metrics:
                line += f", {metrics['charts/SPS']:,.0f} steps/s"
            if recent:
                line += f", {recent}"
            print(line, flush=True)

    def upload_films(self) -> None:
        """Sends the films that are new to Weights & Biases."""
        import wandb

        films = set(self.folder.glob("videos/*/*.mp4"))
        for film in sorted(films - self.uploaded):
            wandb.log({"videos": wandb.Video(str(film), format="mp4")})
        self.uploaded = films

    def save(self, train_state: dict[str, Any], iteration: int) -> None:
        """Saves a checkpoint every --checkpoint-every iterations, at the end, and before a stop."""
        self.exit_code = self.signal_exit_code
        last = iteration == self.args.num_iterations
        every = self.args.checkpoint_every or self.args.num_iterations
        if not (last or self.exit_code or iteration - self.saved_iteration >= every):
            return
        self.saved_iteration = iteration
        state = {
            "script": SCRIPT.name,
            "args": asdict(self.args),
            "train_state": {
                name: named(part) for name, part in jax.device_get(train_state).items()
            },
            "global_step": self.step,
            "recent": self.recent,
        }
        # Write, then rename: a kill at any instant leaves a complete checkpoint.
        aside = self.folder / "checkpoint.tmp"
        aside.write_bytes(serialization.msgpack_serialize(state))
        self.writer.flush()
        os.replace(aside, self.folder / "checkpoint.pt")
        self.all_saved = last
        if last or self.exit_code:
            self.progress.close()
        if self.exit_code:
            print(f"saved; to continue: --resume {self.folder}", file=sys.stderr)
        elif last and self.args.eval_episodes:
            print(f"evaluation: {self.args.eval_episodes} episodes", flush=True)

    def finish(self, results: dict[str, np.ndarray]) -> None:
        """Writes an evaluation, (episodes,) results by name, and marks the run as finished."""
        self.progress.close()
        for name, x in results.items():
            if len(x):
                self.write({f"eval/{name}": x.mean()}, self.step)
                print(f"evaluation: {name} {x.mean():.1f} ± {x.std():.1f} over {len(x)} episodes")
        if self.args.track:
            self.upload_films()
        self.writer.close()
        # Renamed when it is whole: agent.pt says that the run is finished.
        aside = self.folder / "agent.tmp"
        shutil.copy(self.folder / "checkpoint.pt", aside)
        os.replace(aside, self.folder / "agent.pt")


def describe_run(args: Args, folder: Path) -> None:
    """Writes what is needed to repeat the run: the script, flags, versions, hardware."""
    device = setup_jax(args)
    versions = {package.name: package.version for package in metadata.distributions()}
    about = {
        "script": SCRIPT.name,
        "argv": sys.argv[1:],
        "args": asdict(args),
        "versions": {"python": sys.version, **versions},
        "hardware": f"{os.cpu_count()} CPUs, {device.device_kind}",
    }
    folder.mkdir(exist_ok=True)
    aside = folder / "args.tmp"
    aside.write_text(json.dumps(about, indent=1))
    os.replace(aside, folder / "args.json")
    shutil.copyfile(SCRIPT, folder / SCRIPT.name)  # --resume auto finds the run by it


def start_wandb(args: Args, folder: Path) -> None:
    """Sends to Weights & Biases what TensorBoard gets, and how the run was made."""
    import wandb

    folder = folder.resolve()  # with --resume . it has no name
    wandb.init(
        project=args.wandb_project_name,
        entity=args.wandb_entity,
        id=folder.name,
        name=folder.name,
        dir=folder.parent,
        config=asdict(args),
        sync_tensorboard=True,
        resume="allow",
    )
    for name in ("args.json", SCRIPT.name):
        wandb.save(folder / name, base_path=folder, policy="now")


def load_checkpoint(file: Path) -> dict[str, Any]:
    """What `Run.save` wrote; ends the program if it is something else. Runs no code from it."""
    try:
        state = serialization.msgpack_restore(file.read_bytes())
        script = state["script"]
        if script == SCRIPT.name:
            state["args"] = Args(**state["args"])
    except Exception as error:  # Flax raises many types for a damaged or foreign file
        refuse(f"{file} is not a checkpoint that can be used here: {error!r:.150}")
    if script != SCRIPT.name:
        refuse(f"{file} is not a checkpoint that can be used here: it is one of {script}")
    return state


def named(tree: Any) -> dict[str, Any]:
    """All arrays in a tree, by their path."""
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def with_arrays(tree: Any, arrays: dict[str, Any]) -> Any:
    """The tree with these arrays in place of its own; ValueError if they do not fit."""
    wanted = {name: leaf.shape for name, leaf in named(tree).items()}
    if wanted != {name: array.shape for name, array in arrays.items()}:
        raise ValueError("the arrays of the checkpoint have other names or shapes")
    leaves = [jnp.array(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def restored(train_state: dict[str, Any], checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The train_state with the arrays of a checkpoint."""
    saved = checkpoint["train_state"]
    return {name: with_arrays(part, saved[name]) for name, part in train_state.items()}


def setup_jax(args: Args) -> jax.Device:
    """Sets determinism and the device that --device and --cuda choose; returns the device."""
    flag = "--xla_gpu_exclude_nondeterministic_ops=true"
    if args.torch_deterministic and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    kind, _, number = args.device.partition(":")
    if kind == "cpu" or (kind == "auto" and not args.cuda):
        jax.config.update("jax_platforms", "cpu")
    # JAX takes memory on all GPUs that it sees, and some libraries always use the first.
    jax.config.update("jax_cuda_visible_devices", number or "0")
    device = jax.devices(None if kind == "auto" else kind)[0]
    jax.config.update("jax_default_device", device)
    return device


def hold_signals(held: Iterable[int]) -> Iterable[int]:
    """Blocks only these signals, and returns those that were blocked before.

    Programs that are started meanwhile inherit this.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        return ()
    return signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait while a film is written: ffmpeg would get them as well, and die."""
    before = hold_signals(STOP_SIGNALS)
    try:
        yield
    finally:
        hold_signals(before)


def refuse(message: str, exit_code: int = 2) -> NoReturn:
    """Ends the program with one line on stderr in place of a traceback."""
    print(f"{SCRIPT.name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(exit_code)


def check_spaces(args: Args, envs: Any, observations: type, actions: type) -> None:
    """Refuses environments with spaces of other types, and names the script that is for them."""
    action_space = envs.single_action_space
    obs_space = envs.single_observation_space
    if not isinstance(action_space, actions):
        script = SCRIPT_FOR.get(type(action_space).__name__, "no script here")
        refuse(f"{args.env_id} has the action space {action_space}: {script} is for it")
    if np.any(getattr(action_space, "start", 0)):
        refuse(f"{args.env_id} has the action space {action_space}, which must start at 0")
    if not isinstance(obs_space, observations):
        needed = observations.__name__
        refuse(f"{args.env_id} has the observation space {obs_space}, which must be a {needed}")
    if args.capture_video and "rgb_array" not in envs.metadata.get("render_modes", []):
        refuse(f"--capture-video: {args.env_id} cannot render rgb_array")


def check(args: Args) -> None:
    """Refuses flags that cannot work, before anything is written."""
    at_least_0 = ["checkpoint_every", "clip_coef", "eval_episodes", "learning_rate"]
    at_least_1 = ["num_envs", "num_minibatches", "num_steps", "update_epochs", "video_every"]
    bounds = {name: (0.0, np.inf) for name in [*at_least_0, "max_grad_norm"]}
    bounds |= {name: (1, np.inf) for name in at_least_1}
    bounds |= {"gae_lambda": (0, 1), "gamma": (0, 1)}
    bounds |= {"seed": (0, 2**31 - 1)}  # derived seeds add to it; some simulators take 32 bits
    for name, (low, high) in bounds.items():
        if not low <= getattr(args, name) <= high:
            refuse(f"--{name.replace('_', '-')} must be from {low} to {high}")
    if args.num_envs * args.num_steps % args.num_minibatches:
        refuse("--num-minibatches must divide --num-envs x --num-steps")
    if args.norm_adv and args.batch_size == args.num_minibatches:
        refuse("--norm-adv needs two rows in a minibatch: normalized, a single advantage is 0")
    if args.num_iterations < 1:
        refuse(f"--total-timesteps must be at least one batch, {args.batch_size}")
    try:
        setup_jax(args)
    except (AssertionError, RuntimeError) as error:
        refuse(f"--device {args.device}: {error}"[:300])
    check_envs(args)


def run_to_resume(args: Args) -> str | None:
    """For --resume auto: the last run of the same command by the same script, if there is one.

    Ends the program with exit code 0 if that run is finished, with 1 if it has diverged.
    """
    auto = ("--resume", "auto", "--resume=auto")
    command = [word for word in sys.argv[1:] if word not in auto]
    for file in sorted(Path(args.runs_dir).glob("*/args.json"), reverse=True):
        folder = file.parent
        copy = folder / SCRIPT.name
        if not copy.exists() or copy.read_bytes() != SCRIPT.read_bytes():
            continue
        about = json.loads(file.read_text())
        if [word for word in about["argv"] if word not in auto] != command:
            continue
        if (folder / "agent.pt").exists():
            print(f"{folder} is finished")
            sys.exit(0)
        if (folder / "checkpoint.pt").exists():
            if (folder / "diverged").exists():  # resumed, it would draw other random numbers
                refuse(f"{folder} has diverged; to go on: --resume {folder}", exit_code=1)
            return str(folder)
    print(f"{args.runs_dir} has no checkpoint of this command and script: a new run begins")
    return None


def resumed_args(args: Args, trained: Args) -> Args:
    """The flags that a run was trained with, overridden by those of the command line."""
    resumed = tyro.cli(Args, default=trained)
    resumed.resume = args.resume  # the folder that auto stands for
    if resumed.env_id != trained.env_id:
        refuse(f"--resume: the run's --env-id is {trained.env_id}")
    if resumed.anneal_lr and resumed.total_timesteps > trained.total_timesteps:
        print("more --total-timesteps: the learning rate goes up, and is annealed to 0 again")
    return resumed


def main() -> int:
    """Reads and checks the flags, and trains; returns the exit code."""
    args = tyro.cli(Args, description=__doc__.splitlines()[0])
    args.runs_dir = os.path.expanduser(args.runs_dir)  # shells leave the ~ in --runs-dir=~/runs
    checkpoint: dict[str, Any] = {}
    if args.resume == "auto":
        args.resume = run_to_resume(args)
    if args.resume:
        checkpoint = load_checkpoint(Path(args.resume) / "checkpoint.pt")
        args = resumed_args(args, checkpoint["args"])
    check(args)
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{datetime.now():%Y%m%d-%H%M%S-%f}"
    new_folder = Path(args.runs_dir) / re.sub("[/:;,#?']", "-", name)  # W&B wants none of these
    return train(args, Path(args.resume) if args.resume else new_folder, checkpoint)


if __name__ == "__main__":
    sys.exit(main())
