# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1", "numpy>=2",
#     "tensorboard>=2.19", "tqdm>=4.66", "tyro>=0.9.20", "wandb>=0.30",
#     "envpool>=1.2", "flax>=0.12", "jax>=0.10", "optax>=0.2.8"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for Atari games in EnvPool, in JAX; slow without a GPU: use ppo_atari_envpool.py on a CPU.

    uv run ppo/ppo_atari_envpool_xla_jax.py                       learns Breakout; 10M steps
    uv run ppo/ppo_atari_envpool_xla_jax.py --env-id Pong-v5 --seed 2 --capture-video
Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool.py
Details: core 1-12, atari 1-9, aux 3 (atari-8 replaces core-13)
Deviations: truncated episodes bootstrapped, reset steps learned from (docs/episode-ends.md).
"""

import os
from dataclasses import dataclass, replace
from difflib import get_close_matches
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

# That this process may use.
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(unsafe_hash=True)  # so that jax.jit can take it as a static argument
class Args:
    # the task
    env_id: str = "Breakout-v5"  # game, as EnvPool calls it
    total_timesteps: int = 10_000_000  # environment steps in all, of four frames each
    num_envs: int = 8  # environments stepped side by side
    seed: int = 1  # of the network, the sampled actions and the environments
    # the algorithm
    num_steps: int = 128  # steps per environment in each rollout
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # advantage estimates from one-step TD (0) to Monte Carlo (1)
    num_minibatches: int = 4  # minibatches that a rollout is cut into
    update_epochs: int = 4  # passes over each rollout; usually 3 to 10
    learning_rate: float = 2.5e-4  # Adam's step size; usually 1e-4 to 1e-3
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.1  # the policy's ratio is clipped to 1 ± this; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the value function's update at clip_coef, too
    ent_coef: float = 0.01  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # gradients are scaled down to this norm
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA where there is one
    torch_deterministic: bool = True  # deterministic algorithms on CUDA; the name is CleanRL's
    env_threads: int = CPUS  # CPU threads that step the games
    bf16: bool = False  # convolutions in bfloat16: faster where the hardware has it, less exact
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: this command's unfinished one
    checkpoint_every: int = 100  # iterations between checkpoints; 0: only at the end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film the first environment
    video_every: int = 100  # with --capture-video, film every n-th episode
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "ppo"  # Weights & Biases project
    wandb_entity: str | None = None  # Weights & Biases user or team
    batch_size = property(lambda self: self.num_envs * self.num_steps)
    num_iterations = property(lambda self: self.total_timesteps // self.batch_size)


class EnvPool:
    """EnvPool's games, stepped inside compiled functions; reports, and films, whole games.

    What changes from step to step is passed in and out: where the pool is, and scores so far.
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
        """The state after the step, observations and rows of what came of it: (num_envs,) each."""
        handle, answer = self.xla_step(state["handle"], actions)
        obs, rewards, terminated, truncated, infos = answer
        score = state["score"] + infos["reward"]  # not clipped
        over = infos["terminated"].astype(bool) | truncated  # `terminated` is the end of a life
        rows = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
        rows |= {"over": over, "score": score, "length": infos["elapsed_step"]}
        if self.args.capture_video:  # between this step and the next one: that needs its result
            handle = io_callback(self.film, handle, handle, over[0])
        return {"handle": handle, "score": jnp.where(over, 0, score)}, obs, rows

    def film(self, handle: Array, over: Array) -> Array:
        """Takes a frame of the first environment's game, and writes the film if it is over."""
        if self.games % self.args.video_every == 0 and len(self.frames) < LONGEST_FILM:
            self.frames += [*self.pool.render(0)]
        if over and self.frames:
            folder = str(self.videos)
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


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    if sys.platform != "linux":
        refuse("EnvPool has compiled steps on Linux alone, see ppo_atari_envpool.py")
    known = envpool.list_all_envs()
    if args.env_id not in known:
        asked = args.env_id.removeprefix("ALE/").replace("NoFrameskip-v4", "-v5")  # Gymnasium's
        near = get_close_matches(asked, known, cutoff=0.0)
        refuse(f"EnvPool has no {args.env_id}; it has {', '.join(near)} and others")
    envs = make_envs(replace(args, num_envs=1, capture_video=False), Path())
    check_spaces(args, envs, gym.spaces.Box, gym.spaces.Discrete)
    if envs.single_observation_space.shape != (4, 84, 84):
        refuse(f"{args.env_id} is not an Atari game, see ppo.py")
    if args.env_threads < 1:
        refuse("--env-threads starts at 1")


def layer_init(layer: Any, rngs: nnx.Rngs, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    orthogonal, constant = nnx.initializers.orthogonal(std), nnx.initializers.constant(bias_const)
    layer.kernel[...] = orthogonal(rngs(), layer.kernel.shape)  # [core-2] orthogonal initialization
    layer.bias[...] = constant(rngs(), layer.bias.shape)
    return layer


def flatten(images: Array) -> Array:  # (batch, height, width, channels) to (batch, -1)
    return images.reshape(len(images), -1)


class Agent(nnx.Module):
    """Policy and value function. Both take x, the output of `features`.

    An agent is never changed but replaced by another one, as JAX wants it.
    """

    def __init__(self, envs: EnvPool, rngs: nnx.Rngs, bf16: bool = False):
        options = {"dtype": jnp.bfloat16 if bf16 else jnp.float32, "rngs": rngs}
        conv: Any = partial(nnx.Conv, padding="VALID", **options)
        self.network = nnx.Sequential(  # [atari-8] shared Nature-CNN
            layer_init(conv(4, 32, kernel_size=(8, 8), strides=4), rngs),
            nnx.relu,
            layer_init(conv(32, 64, kernel_size=(4, 4), strides=2), rngs),
            nnx.relu,
            layer_init(conv(64, 64, kernel_size=(3, 3)), rngs),
            nnx.relu,
            flatten,
            layer_init(nnx.Linear(64 * 7 * 7, 512, **options), rngs),
            nnx.relu,
        )
        self.critic = layer_init(nnx.Linear(512, 1, rngs=rngs), rngs, std=1.0)
        num_actions = int(envs.single_action_space.n)
        self.actor = layer_init(nnx.Linear(512, num_actions, rngs=rngs), rngs, std=0.01)

    def features(self, obs: Array) -> Array:  # (batch, 4, 84, 84) to x, (batch, 512)
        images = obs.transpose(0, 2, 3, 1) / 255.0  # [atari-9] scale to [0, 1]
        return self.network(images).astype(jnp.float32)

    def get_value(self, x: Array) -> Array:  # (batch,)
        return self.critic(x).squeeze(-1)

    def get_action(self, x: Array, key: Array, greedy: bool = False) -> Array:  # (batch,)
        """Sampled actions; the most probable ones if greedy."""
        logits = self.actor(x)
        # Gumbel-max trick: the argmax of logits + Gumbel noise is a sample of softmax(logits).
        gumbel = jax.random.gumbel(key, logits.shape)
        return (logits if greedy else logits + gumbel).argmax(-1).astype(jnp.int32)

    def get_logprob_entropy_value(self, x: Array, action: Array) -> tuple[Array, ...]:
        """Log-probability of each action, the policy's entropy and the value: (batch,) each."""
        logprobs = jax.nn.log_softmax(self.actor(x))  # of every action: (batch, number of actions)
        chosen = jnp.arange(logprobs.shape[-1]) == action[:, None]
        logprob = (logprobs * chosen).sum(-1)  # taken by index, its gradient on a GPU would be slow
        entropy = -(jnp.exp(logprobs) * logprobs).sum(-1)
        return logprob, entropy, self.get_value(x)


@jax.jit  # one step: to compile all of them at once would take longer than all the rest
def gae_step(lastgaelam: Array, deltas: Array, discounts: Array, t: int) -> Array:
    return deltas[t] + discounts[t] * lastgaelam


def compute_gae(
    rewards: Array, values: Array, terminated: Array, truncated: Array, args: Args
) -> tuple[Array, Array]:
    """Advantages and returns, (num_steps, num_envs): equation 16 of arxiv.org/abs/1506.02438.

    rewards, terminated, truncated: (num_steps, num_envs), what the environments answered at step t.
    values: (num_steps + 1, num_envs), of the observations before each step and after the last one.
    """
    # At a truncation values[1:] has the last observation's value: the reset comes one step later.
    next_values = values[1:] * ~terminated  # [deviation] truncated episodes bootstrapped
    deltas = rewards + args.gamma * next_values - values[:-1]
    goes_on = ~(terminated | truncated)
    discounts = args.gamma * args.gae_lambda * goes_on
    backwards: list[Array] = []  # from the last row to the first one
    lastgaelam = jnp.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        lastgaelam = gae_step(lastgaelam, deltas, discounts, t)
        backwards.append(lastgaelam)  # [core-5] generalized advantage estimation
    advantages = jnp.stack(backwards[::-1])
    return advantages, advantages + values[:-1]


def ppo_loss(
    newlogprob: Array, entropy: Array, newvalue: Array, mb: dict[str, Array], args: Args
) -> tuple[Array, dict[str, Array]]:
    """Loss of a minibatch and statistics: equations 7 and 9 of arxiv.org/abs/1707.06347.

    newlogprob, entropy, newvalue: (minibatch_size,), from the network that is being trained.
    mb: logprobs, values, advantages, returns, valid: (minibatch_size,), from the rollout.
    """
    count = mb["valid"].sum().clip(min=1)
    weight = mb["valid"] / count  # weight @ x is the mean of x over valid rows
    logratio = newlogprob - mb["logprobs"]
    ratio = jnp.exp(logratio)  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:  # in each minibatch
        centered = advantages - weight @ advantages
        variance = (weight @ centered**2) * count / (count - 1).clip(min=1)  # unbiased
        std = jnp.sqrt(variance)
        advantages = centered / (std + 1e-8)  # [core-7] advantage normalization
    clipped_ratio = ratio.clip(1 - args.clip_coef, 1 + args.clip_coef)
    gain = jnp.minimum(ratio * advantages, clipped_ratio * advantages)
    pg_loss = -(weight @ gain)  # [core-8] clipped surrogate objective
    v_error = (newvalue - mb["returns"]) ** 2
    if args.clip_vloss:
        v_change = (newvalue - mb["values"]).clip(-args.clip_coef, args.clip_coef)
        v_clipped_error = (mb["values"] + v_change - mb["returns"]) ** 2
        v_error = jnp.maximum(v_error, v_clipped_error)  # [core-9] value function loss clipping
    v_loss = 0.5 * (weight @ v_error)
    entropy_loss = weight @ entropy
    loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss  # [core-10] overall loss
    stats = {  # [core-12] debug variables
        "losses/policy_loss": pg_loss,
        "losses/value_loss": v_loss,
        "losses/entropy": entropy_loss,
        "losses/old_approx_kl": weight @ -logratio,
        "losses/approx_kl": weight @ (ratio - 1 - logratio),  # joschu.net/blog/kl-approx.html
        "losses/clipfrac": weight @ (jnp.abs(ratio - 1) > args.clip_coef),
    }
    return loss, stats


def backward(agent: Agent, batch: dict, mb_inds: Array, args: Args) -> tuple[Agent, dict]:
    """The clipped gradient of a minibatch, shaped like the agent, and statistics."""
    mb = {name: rows[mb_inds] for name, rows in batch.items()}

    def loss_of(agent: Agent) -> tuple[Array, dict[str, Array]]:
        x = agent.features(mb["obs"])
        newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(x, mb["actions"])
        return ppo_loss(newlogprob, entropy, newvalue, mb, args)

    gradient, stats = jax.grad(loss_of, has_aux=True)(agent)
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(args.max_grad_norm / (norm + 1e-6), 1.0)
    gradient = jax.tree.map(lambda g: g * scale, gradient)  # [core-11] global gradient clipping
    return gradient, {**stats, "losses/grad_norm": norm}


# static: a constant for the compiler, not an array.
@partial(jax.jit, static_argnames="envs")
def act(
    envs: EnvPool, agent: Agent, state: dict, obs: Array, key: Array
) -> tuple[dict, Array, dict[str, Array]]:
    """A step of all environments: their state, the next observations and what is to be stored."""
    x = agent.features(obs)
    action = agent.get_action(x, key)
    state, next_obs, row = envs.step(state, action)
    return state, next_obs, {"obs": obs, "features": x, "actions": action, **row}


def rollout(
    envs: EnvPool, agent: Agent, state: dict, obs: Array, key: Array, args: Args
) -> tuple[dict, Array, dict[str, Array]]:
    """Acts for num_steps: the environments' state, the next observations, rows of what happened.

    Row t of the rows, (num_steps, num_envs, ...), is what was seen and done at step t and what came
    of it.
    """
    rows = []
    for step in range(args.num_steps):
        state, obs, row = act(envs, agent, state, obs, jax.random.fold_in(key, step))
        rows.append(row)
    return state, obs, {name: jnp.stack([row[name] for row in rows]) for name in rows[0]}


@jax.jit
def get_logprobs_values(
    agent: Agent, rows: dict[str, Array], next_obs: Array
) -> tuple[Array, Array]:
    """Of a rollout: log-probabilities (num_steps, num_envs), values (num_steps + 1, num_envs)."""
    num_steps, num_envs = rows["actions"].shape
    x = rows["features"].reshape(num_steps * num_envs, -1)
    logprobs, _, value = agent.get_logprob_entropy_value(x, rows["actions"].ravel())
    next_value = agent.get_value(agent.features(next_obs))
    values = jnp.concatenate([value, next_value]).reshape(-1, num_envs)
    return logprobs.reshape(num_steps, num_envs), values


# donate: the old learner's memory becomes the new one's, and nobody may use the old one again.
@partial(jax.jit, static_argnames=("optimizer", "args"), donate_argnames="learner")
def gradient_step(
    learner: dict, batch: dict, mb_inds: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The learner after a minibatch (the agent and Adam's moments), and statistics."""
    gradient, stats = backward(learner["agent"], batch, mb_inds, args)
    # The step that Adam would take with a learning rate of 1.
    direction, moments = optimizer.update(gradient, learner["moments"])
    agent = jax.tree.map(lambda p, d: p - learning_rate * d, learner["agent"], direction)
    return {"agent": agent, "moments": moments}, stats


def update_ppo(
    learner: dict, batch: dict, key: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The learner after a few epochs of gradient steps on a rollout, and means of statistics."""
    stats = []
    for epoch in range(args.update_epochs):
        epoch_key = jax.random.fold_in(key, args.num_steps + epoch)  # rollout had those before
        shuffled = jax.random.permutation(epoch_key, args.batch_size)
        for mb_inds in jnp.split(shuffled, args.num_minibatches):  # [core-6] mini-batch updates
            learner, stat = gradient_step(learner, batch, mb_inds, learning_rate, optimizer, args)
            stats.append(stat)
        if args.target_kl is not None and stats[-1]["losses/approx_kl"] > args.target_kl:
            break  # [aux-3] early stopping on KL
    return learner, {name: jnp.stack([stat[name] for stat in stats]).mean() for name in stats[0]}


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, Any]:
    """Plays `eval_episodes` whole episodes; returns results by name, (episodes,) each."""
    envs = make_envs(replace(args, num_envs=1), videos)
    state, obs = envs.reset(seed=args.seed + 1_000_000)

    @jax.jit
    def play(agent: Agent, state: dict, obs: Array, step: int) -> tuple[dict, Array, dict]:
        key = jax.random.fold_in(jax.random.key(args.seed + 1_000_000), step)
        return envs.step(state, agent.get_action(agent.features(obs), key, greedy))

    returns: list[float] = []
    step = 0
    while len(returns) < args.eval_episodes:
        state, obs, row = play(agent, state, obs, step)
        returns += np.asarray(row["score"])[np.asarray(row["over"])].tolist()
        step += 1
    envs.close()
    return {"episodic_return": np.array(returns)}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: there is none); the exit code."""
    # ------ setup ------
    setup_jax(args)
    envs = make_envs(args, video_folder(run_dir))
    # Two keys: Flax derives the weights' keys by fold_in, as the loop below derives its own.
    weights_key, train_key = jax.random.split(jax.random.key(args.seed))
    agent = jax.jit(lambda: Agent(envs, nnx.Rngs(weights_key), args.bf16))()
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    learner = {"agent": agent, "moments": optimizer.init(agent)}
    if checkpoint:
        learner = {name: with_arrays(learner[name], checkpoint[name]) for name in learner}
    iterations_done = checkpoint.get("iteration", 0)
    global_step = checkpoint.get("global_step", 0)
    run = Run(args, run_dir, checkpoint)
    save_if_due(run, learner, iterations_done, global_step)

    # ------ storage: the rows of a rollout come from `rollout` ------
    state, next_obs = envs.reset(seed=args.seed + global_step)
    for iteration in range(iterations_done + 1, args.num_iterations + 1):
        remaining = 1 - (iteration - 1) / args.num_iterations if args.anneal_lr else 1.0
        learning_rate = remaining * args.learning_rate  # [core-4] annealing
        key = jax.random.fold_in(train_key, iteration)

        # ------ rollout: act in the environments and store what happens ------
        state, next_obs, rows = rollout(envs, learner["agent"], state, next_obs, key, args)
        global_step += args.batch_size

        # ------ advantages: how much better than expected was each action? ------
        logprobs, values = get_logprobs_values(learner["agent"], rows, next_obs)
        rewards, terminated, truncated = rows["rewards"], rows["terminated"], rows["truncated"]
        # Reset steps are learned from, too: after a lost life EnvPool's stack still shows frames of
        # the life before, and without them Breakout was learned more slowly (docs/episode-ends.md).
        valid = jnp.ones_like(terminated)
        advantages, returns = compute_gae(rewards, values, terminated, truncated, args)
        batch = {"obs": rows["obs"], "actions": rows["actions"], "logprobs": logprobs}
        batch["values"] = values[:-1]
        batch["advantages"] = advantages
        batch["returns"] = returns
        batch["valid"] = valid
        batch = {name: x.reshape(args.batch_size, *x.shape[2:]) for name, x in batch.items()}

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        learner, stats = update_ppo(learner, batch, key, learning_rate, optimizer, args)

        # ------ log ------
        advantages, returns, valid = jax.device_get((advantages, returns, valid))
        unexplained = advantages[valid].var()  # advantages are returns - values
        explained_variance = 1 - unexplained / (returns[valid].var() + 1e-8)
        run.log_episodes(rows, global_step)
        run.log(stats, explained_variance, learning_rate, global_step)
        save_if_due(run, learner, iteration, global_step)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    envs.close()
    if not run.exit_code:
        videos = run.start_evaluation()
        run.finish(evaluate(learner["agent"], args, videos) if args.eval_episodes else {})
    return run.exit_code


# ====== plumbing: the same lines in every script; nothing below changes what is learned ======
# Imported here, so that the imports above are those of the variant.
import errno
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from importlib import metadata
from typing import NoReturn

import flax
import tyro
from flax import serialization
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer import event_file_writer
from tqdm import tqdm

SCRIPT = Path(__file__)
SCRIPT_FOR = {  # by space of actions
    "Discrete": "ppo.py",
    "Box": "ppo_continuous_action.py",
    "MultiDiscrete": "ppo_multidiscrete.py",
}
# Modules whose version may matter to a score, and their packages; args.json has those in use.
SIMULATORS = {
    "ale_py": "ale-py",
    "envpool": "envpool",
    "gymnax": "gymnax",
    "mujoco": "mujoco",
    "mujoco.mjx": "mujoco-mjx",
    "mujoco_playground": "playground",
    "pettingzoo": "pettingzoo",
    "procgen": "procgen-mirror",
}
# Flags about the machine; a resumed run does not keep them, it may go on on another one.
MACHINE_FLAGS = ("cuda", "device", "env_threads")
# Flags about what is kept of a run; they change nothing in what is learned.
RUN_FLAGS = (
    "runs_dir",
    "resume",
    "checkpoint_every",
    "log_every",
    "eval_episodes",
    "capture_video",
    "video_every",
    "track",
    "wandb_project_name",
    "wandb_entity",
)
# Error numbers: no space on the device, and, on Unix, a quota that is used up.
DISK_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
LONGEST_FILM = 5_000  # frames; all of a film are in memory until it is written
MOST_POINTS = 50  # that one `log` writes of episodes; where more have ended, some share a point
PROGRESS_LINE = "{percentage:3.0f}%  {n_fmt} steps  {rate_fmt}  {remaining} left{postfix}"


class ProgressLines(tqdm):
    """Progress as plain lines, for pipes and log files."""

    @staticmethod
    def status_printer(file: Any) -> Any:
        """Returns the function that shows the progress."""
        return say


class Run:
    """Metrics and progress of a run, in its folder, on the terminal and in Weights & Biases.

    exit_code: other than 0 if Ctrl-C or SIGTERM had come when `log` was called last.
    """

    def __init__(self, args: Args, folder: Path, checkpoint: dict[str, Any]):
        self.args = args
        self.folder = folder
        self.exit_code = 0
        self.signal_exit_code = 0  # of the signal that came, if any
        self.evaluating = False
        self.step = checkpoint.get("global_step", 0)  # as of the last `log`
        self.recent = checkpoint.get("recent", [])  # return and length of the last 100 episodes
        self.episodes: list[tuple[int, float, float]] = []  # new: step, return, length
        self.saved_iteration = checkpoint.get("iteration", -1)  # of the last checkpoint
        self.total_steps = args.num_iterations * args.batch_size
        self.first_log: tuple[float, int] | None = None  # time and step that speed is counted from
        self.steps_per_second = 0.0
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.on_signal)
        if not checkpoint:
            describe_run(args, folder)
        lock(folder)
        if checkpoint:  # flags, the script, versions and the machine may be others now
            warn_if_edited(folder)
            describe_run(args, folder / f"resumed_at_{self.step}")
        (folder / "agent.pt").unlink(missing_ok=True)  # it marks a run that is finished
        say(f"run folder: {folder}")
        if self.step >= self.total_steps:
            say(f"all {self.step:,} steps are done; a larger --total-timesteps goes on")
        if args.track:
            start_wandb(args, folder)
        self.writer: Any = event_file_writer.EventFileWriter(str(folder))
        # What was logged after the checkpoint is purged: it will be logged again.
        self.add_event(self.step + 1, session_log=SessionLog(status=SessionLog.START))
        self.write_flags()
        self.films = set(folder.glob("videos/*/*.mp4"))  # already there
        on_terminal = sys.stdout.isatty()
        self.progress = (tqdm if on_terminal else ProgressLines)(
            total=self.total_steps,
            initial=self.step,
            unit=" steps",
            unit_scale=True,
            file=sys.stdout,
            dynamic_ncols=True,
            mininterval=0.2 if on_terminal else 10,
            bar_format=None if on_terminal else PROGRESS_LINE,
        )

    def on_signal(self, signum: int, _frame: object) -> None:
        """Lets the iteration end; the same signal once more has its usual effect, at once."""
        self.signal_exit_code = 128 + signum
        signal.signal(signum, signal.SIG_DFL)
        if self.evaluating:  # everything is saved
            sys.exit(self.signal_exit_code)
        with suppress(BrokenPipeError):  # Ctrl-C has ended `tee`, too, in `2>&1 | tee log`
            print("\nstopping after this iteration; once more to stop at once", file=sys.stderr)

    def write_flags(self) -> None:
        """Writes the flags as a table, which TensorBoard shows under Text."""
        rows = [f"| {name} | {value} |" for name, value in asdict(self.args).items()]
        table = "\n".join(["| flag | value |", "|---|---|", *rows])
        self.add_event(self.step, summary=text_pb("hyperparameters/text_summary", table))

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Writes all metrics in one event."""
        values = [Summary.Value(tag=name, simple_value=x) for name, x in metrics.items()]
        self.add_event(step, summary=Summary(value=values))

    def write_histogram(self, name: str, x: Any, step: int) -> None:
        """Writes how the values of x, (n,), are distributed."""
        # Thirty bins, with a margin: NumPy finds none where values differ by rounding alone.
        margin = 1e-6 * (1 + np.abs(x).max())
        bins = np.linspace(x.min() - margin, x.max() + margin, 31)
        counts, limits = np.histogram(x, bins)
        histogram = HistogramProto(
            min=x.min(),
            max=x.max(),
            num=len(x),
            sum=x.sum(),
            sum_squares=x @ x,
            bucket_limit=limits,
            bucket=[0, *counts],  # limits[0] is the end of what is below it
        )
        self.add_event(step, summary=Summary(value=[Summary.Value(tag=name, histo=histogram)]))

    def add_event(self, step: int, **content: Any) -> None:
        """Hands an event to TensorBoard's writer."""
        self.writer.add_event(Event(wall_time=time.time(), step=step, **content))

    def log_episodes(self, rows: dict[str, Array], step: int) -> None:
        """Collects the episodes that ended in a rollout, whose last step is `step`."""
        over = np.asarray(rows["over"])  # (num_steps, num_envs), as those below
        returns = np.asarray(rows["score"])[over]
        lengths = np.asarray(rows["length"])[over]
        t, _ = np.nonzero(over)
        ends = step - over.size + (t + 1) * over.shape[1]
        self.episodes += zip(ends.tolist(), returns.tolist(), lengths.tolist(), strict=True)

    def log(
        self, stats: dict[str, Array], explained_variance: float, learning_rate: float, step: int
    ) -> None:
        """Writes the means of an iteration's statistics and the episodes that ended in it.

        Ends the program with exit code 1 if a mean is not finite; the last checkpoint stays.
        """
        self.exit_code = self.signal_exit_code
        self.step = step
        metrics = {name: float(mean) for name, mean in jax.device_get(stats).items()}
        if not np.isfinite(list(metrics.values())).all():
            refuse(f"diverged at step {step}: {metrics}", exit_code=1)
        metrics["losses/explained_variance"] = explained_variance
        metrics["charts/learning_rate"] = learning_rate
        now = time.perf_counter()
        if self.first_log is None:
            self.first_log = (now, step)  # the first iteration, which may compile, is left out
        else:
            first_time, first_step = self.first_log
            self.steps_per_second = (step - first_step) / (now - first_time)
            metrics["charts/SPS"] = self.steps_per_second
        if self.episodes:  # two metrics that CleanRL's scripts in JAX have
            _, mean_return, mean_length = np.mean(self.episodes, axis=0).tolist()
            metrics["charts/avg_episodic_return"] = mean_return
            metrics["charts/avg_episodic_length"] = mean_length
        self.write_episodes(step)
        self.write(metrics, step)
        if self.recent:
            recent_return, recent_length = np.mean(self.recent, axis=0)
            recent = f"return {recent_return:.1f}, length {recent_length:.0f}"
            self.progress.set_postfix_str(recent, refresh=False)
        if not self.signal_exit_code:  # else the reader may be gone, and nothing is saved yet
            self.progress.update(step - self.progress.n)
        if self.args.track:
            self.upload_films()

    def write_episodes(self, step: int) -> None:
        """Writes the new episodes, each at the step that it ended in; the means of neighbors, if
        they are many.
        """
        if not self.episodes:
            return
        episodes = np.array(self.episodes)  # (number, 3)
        for part in np.array_split(episodes, min(len(episodes), MOST_POINTS)):
            end = int(part[-1, 0])
            _, mean_return, mean_length = part.mean(0).tolist()
            point = {"charts/episodic_return": mean_return, "charts/episodic_length": mean_length}
            self.write(point | {"charts/episodes": len(part)}, end)
        self.write_histogram("charts/episodic_returns", episodes[:, 1], step)
        self.recent = (self.recent + episodes[:, 1:].tolist())[-100:]
        self.episodes = []

    def upload_films(self) -> None:
        """Sends the films that are new to Weights & Biases."""
        import wandb

        films = set(self.folder.glob("videos/*/*.mp4"))
        for film in films - self.films:
            wandb.log({"videos": wandb.Video(str(film), format="mp4")})
        self.films = films

    def start_evaluation(self) -> Path:
        """Says what comes; from here on a signal ends the program at once.

        Returns a folder for the evaluation's films.
        """
        self.evaluating = True
        if self.signal_exit_code:  # it came after the last `log`
            sys.exit(self.signal_exit_code)
        self.progress.close()
        speed = f", {self.steps_per_second:,.0f} steps/s" if self.steps_per_second else ""
        say(f"{self.step:,} steps{speed}")
        if self.args.eval_episodes:
            say(f"evaluation (--eval-episodes {self.args.eval_episodes}) ...")
            if not self.recent:
                say("no episode ended in training; if none ever ends, Ctrl-C: all is saved")
        return video_folder(self.folder, "evaluation-")

    def finish(self, results: dict[str, Any]) -> None:
        """Writes the evaluation, (episodes,) results by name, and marks the run as finished."""
        for name, x in results.items():
            if len(x):
                self.write({f"eval/{name}": x.mean()}, self.step)
                shown = name.removeprefix("episodic_")
                say(f"evaluation: {shown} {x.mean():.1f} ± {x.std():.1f}")
        if self.args.track:
            self.upload_films()
        self.writer.close()
        # Renamed when it is whole: agent.pt says that the run is finished.
        aside = self.folder / "agent.tmp"
        shutil.copy(self.folder / "checkpoint.pt", aside)
        os.replace(aside, self.folder / "agent.pt")


def say(line: str) -> None:
    """Prints a line; ends the program if nobody reads on, as in `python ppo.py | head -1`."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        # The interpreter prints what is left when it ends: to nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + 13)  # 13: SIGPIPE


def lock(folder: Path) -> None:
    """Keeps a run folder for this process until it ends; refuses one that another process has."""
    try:
        import fcntl

        descriptor = os.open(folder / "args.json", os.O_RDWR)  # stays open, and with it the lock
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        refuse(f"{folder}: another process is writing this run")
    except (ImportError, OSError):  # Windows, or a file system without locks
        pass


def version_of(package: str) -> str:
    """Version of an installed package; a question mark where it came from elsewhere."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"


def describe_run(args: Args, folder: Path) -> None:
    """Writes what is needed to do the run again: the script, flags, versions, hardware."""
    device = setup_jax(args)
    simulators = [name for name in SIMULATORS if name in sys.modules]
    modules = [gym, np, jax, flax, optax]
    versions = {module.__name__: module.__version__ for module in modules}
    versions |= {name: version_of(SIMULATORS[name]) for name in simulators}
    about = {
        "script": SCRIPT.name,
        "argv": sys.argv[1:],
        "args": asdict(args),
        "versions": versions | {"python": sys.version},
        "hardware": f"{os.cpu_count()} CPUs, {device.device_kind}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SCRIPT, folder / SCRIPT.name)  # not its mode: it may be read-only
    (folder / "args.json").write_text(json.dumps(about, indent=1))


def warn_if_edited(folder: Path) -> None:
    """Says so if the run that is resumed was begun by another version of the script."""
    copy = folder / SCRIPT.name
    if copy.exists() and copy.read_bytes() != SCRIPT.read_bytes():
        print(f"{SCRIPT.name}: another version began this run, {copy}", file=sys.stderr)


def start_wandb(args: Args, folder: Path) -> None:
    """Sends to Weights & Biases what TensorBoard gets, and how the run was made."""
    import wandb

    folder = folder.resolve()
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
    for name in ("args.json", Path(__file__).name):  # flags, versions, hardware; the script
        wandb.save(folder / name, base_path=folder, policy="now")


def save_if_due(run: Run, learner: dict[str, Any], iteration: int, step: int) -> bool:
    """Saves a checkpoint at the start, every so many iterations, at the end, and before a stop.

    Returns whether it did.
    """
    last = run.args.num_iterations
    every = run.args.checkpoint_every or last
    passed = iteration // every > run.saved_iteration // every  # a multiple, perhaps by some more
    if not (passed or iteration == last or run.exit_code):
        return False
    save(run, learner, iteration, step)
    run.saved_iteration = iteration
    if run.exit_code:
        say(f"saved; --resume {run.folder} goes on")
    return True


def save(
    run: Run,
    learner: dict[str, Any],
    iteration: int,
    step: int,
    name: str = "checkpoint.pt",
    **flags: Any,
) -> None:
    """Writes a checkpoint into the run's folder; `flags` are those in which it is not the run's."""
    state = {
        "script": SCRIPT.name,
        "args": asdict(run.args) | flags,
        **{part: named(tree) for part, tree in jax.device_get(learner).items()},
        "iteration": iteration,
        "global_step": step,
        "recent": run.recent,
    }
    # Written aside and renamed: a kill at any instant leaves a whole checkpoint.
    aside = run.folder / "checkpoint.tmp"
    aside.write_bytes(serialization.msgpack_serialize(state))
    run.writer.flush()
    os.replace(aside, run.folder / name)


def load_checkpoint(file: Path) -> dict[str, Any]:
    """What save_if_due wrote; ends the program if it is something else. Executes nothing of it."""
    if not file.is_file():
        refuse(f"there is no {file}; what can be resumed is a run folder")
    try:
        state = serialization.msgpack_restore(file.read_bytes())
        state["args"] = Args(**state["args"])
        script = state["script"]
    except Exception as error:  # whatever Flax makes of a damaged file or somebody else's
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
    wanted = {name: array.shape for name, array in named(tree).items()}
    if wanted != {name: array.shape for name, array in arrays.items()}:
        raise ValueError("the arrays are those of another network")
    leaves = [jnp.array(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def setup_jax(args: Args) -> jax.Device:
    """Sets determinism and the default device: the one that is meant by --device and --cuda."""
    flag = "--xla_gpu_exclude_nondeterministic_ops=true"  # which leaves autotuning on
    if args.torch_deterministic and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    if args.device == "cpu" or (args.device == "auto" and not args.cuda):
        jax.config.update("jax_platforms", "cpu")
    auto = "cuda" if args.cuda and jax.default_backend() == "gpu" else "cpu"
    kind, _, number = (auto if args.device == "auto" else args.device).partition(":")
    device = jax.devices(kind)[int(number or 0)]
    jax.config.update("jax_default_device", device)
    return device


def video_folder(run_dir: Path, kind: str = "") -> Path:
    """A new one each time, whose name begins with `kind`: a resumed run keeps its films."""
    return run_dir / "videos" / time.strftime(f"{kind}%Y%m%d-%H%M%S")


def refuse(message: str, exit_code: int = 2) -> NoReturn:
    """Ends the program with one line: for input that is known not to work."""
    print(f"{SCRIPT.name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(exit_code)


def report_thread(failure: Any) -> None:
    """Prints what ended a thread, but for a full disk: main gets that error, too, and tells it."""
    if getattr(failure.exc_value, "errno", None) not in DISK_FULL:
        threading.__excepthook__(failure)


def check_spaces(args: Args, envs: Any, observations: type, actions: type) -> None:
    """Refuses environments with spaces of other types, and names the script that is for them."""
    action_space = envs.single_action_space
    obs_space = envs.single_observation_space
    if not isinstance(action_space, actions):
        script = SCRIPT_FOR.get(type(action_space).__name__, "docs/index.md")
        refuse(f"{args.env_id} acts in {action_space}, see {script}")
    if not isinstance(obs_space, observations):
        refuse(f"{args.env_id} shows {obs_space}, this script needs a {observations.__name__}")
    if args.capture_video and "rgb_array" not in envs.metadata.get("render_modes", []):
        refuse(f"--capture-video: {args.env_id} cannot render rgb_array")


def check_device(args: Args) -> None:
    """Refuses a device that is not there; others are set up before anything asks JAX for one."""
    try:
        setup_jax(args)
    except (IndexError, RuntimeError, ValueError) as error:  # no such device
        refuse(f"--device {args.device}: {error}"[:300])


def check(args: Args) -> None:
    """Refuses flags that cannot work; nothing has been written yet."""
    at_least = {
        "learning_rate": 1e-9,
        "clip_coef": 1e-9,
        "max_grad_norm": 1e-9,
        "gamma": 0,
        "gae_lambda": 0,
        "seed": 0,
        "checkpoint_every": 0,
        "eval_episodes": 0,
        "num_envs": 1,
        "num_steps": 1,
        "num_minibatches": 1,
        "update_epochs": 1,
        "video_every": 1,
    }
    for name, bound in at_least.items():
        if not getattr(args, name) >= bound:  # so that NaN is refused, too
            refuse(f"--{name.replace('_', '-')} starts at {bound}")
    for name in ("ent_coef", "vf_coef", "target_kl"):
        value = getattr(args, name)
        if value is not None and np.isnan(value):
            refuse(f"--{name.replace('_', '-')} is not a number")
    if args.target_kl is not None and args.target_kl <= 0:
        refuse("--target-kl must be above 0")
    if args.seed >= 2**31:  # others are made of it by addition, and some libraries have 32 bits
        refuse("--seed must be below 2**31")
    if max(args.gamma, args.gae_lambda) > 1:
        refuse("--gamma and --gae-lambda must be at most 1")
    if args.num_envs * args.num_steps % args.num_minibatches:
        refuse("--num-minibatches must divide --num-envs x --num-steps")
    if args.norm_adv and args.batch_size == args.num_minibatches:
        refuse("--norm-adv needs two rows in a minibatch: normalized, a single advantage is 0")
    if args.num_iterations < 1:
        refuse(f"--total-timesteps is below one batch, {args.batch_size}")
    if len(args.exp_name) > 100:
        refuse("--exp-name has more than 100 characters, too many for the name of a folder")
    flag, folder = ("--resume", args.resume) if args.resume else ("--runs-dir", args.runs_dir)
    existing = Path(folder).absolute()
    while not os.path.exists(existing):  # Path.exists fails in folders that one may not enter
        existing = existing.parent
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        refuse(f"{flag} {folder}: {existing} is not a folder that can be written to")
    check_device(args)
    try:
        check_envs(args)
    except gym.error.Error as error:  # among others, that there is no such environment
        refuse(f"--env-id {args.env_id}: {error}"[:300])
    except ModuleNotFoundError as error:
        missing = str(error).split(". ")[0]  # Gymnasium adds sentences of its own
        advice = f"`uv run {SCRIPT.name}` installs what it needs, PYTHONPATH finds your own modules"
        refuse(f"--env-id {args.env_id}: {missing}; {advice}")
    except ImportError as error:
        raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if "gymnasium" not in raised_in.parts:  # a mistake in the user's own module
            raise
        refuse(f"--env-id {args.env_id}: {error}"[:300])
    if args.track and os.getenv("WANDB_MODE") not in ("offline", "disabled"):
        import wandb

        if not wandb.login(prompt=False):
            refuse("--track: run `uv run wandb login`, or set WANDB_MODE=offline")


def what_is_learned(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags, as in args.json, without those of RUN_FLAGS and MACHINE_FLAGS."""
    as_in_json = json.loads(json.dumps(flags))
    left_out = (*RUN_FLAGS, *MACHINE_FLAGS)
    return {name: value for name, value in as_in_json.items() if name not in left_out}


def unfinished_run(args: Args) -> str | None:
    """Folder of the last run that was started with these flags and is not finished, if any."""
    wanted = what_is_learned(asdict(args))
    for file in sorted(Path(args.runs_dir).glob("*/args.json"), reverse=True):
        try:
            about = json.loads(file.read_text())
            same = about["script"] == SCRIPT.name and what_is_learned(about["args"]) == wanted
        except (ValueError, KeyError, TypeError):
            continue  # cut off, or not of a run
        names = os.listdir(file.parent)
        if same and "checkpoint.pt" in names and "agent.pt" not in names:
            return str(file.parent)
    return None


def resumed(args: Args, checkpoint: dict[str, Any]) -> Args:
    """The run's own flags, and over them those of the command line and of the machine at hand."""
    before = checkpoint["args"]
    kept = {name: getattr(args, name) for name in MACHINE_FLAGS if hasattr(args, name)}
    folder = args.resume  # which --resume auto has found
    args = replace(tyro.cli(Args, default=replace(before, **kept)), resume=folder)
    if args.env_id != before.env_id:
        refuse(f"--resume keeps the run's --env-id, {before.env_id}")
    if args.batch_size * checkpoint["iteration"] != checkpoint["global_step"]:
        refuse("--resume keeps the run's --num-envs x --num-steps")
    return args


def main() -> int:
    """Reads and checks the flags, and trains; returns the exit code."""
    args = tyro.cli(Args, description=__doc__.splitlines()[0])
    args.runs_dir = os.path.expanduser(args.runs_dir)  # shells leave the ~ in --runs-dir=~/runs
    checkpoint: dict[str, Any] = {}
    if args.resume == "":  # say a shell's variable that is not set
        refuse("--resume needs a run folder, or auto")
    if args.resume == "auto":
        args.resume = unfinished_run(args)
        if not args.resume:
            say(f"no unfinished run with these flags in {args.runs_dir}: a new one")
    if args.resume:
        args.resume = os.path.expanduser(args.resume)
        checkpoint = load_checkpoint(Path(args.resume) / "checkpoint.pt")
        args = resumed(args, checkpoint)
    check(args)
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{datetime.now():%Y%m%d-%H%M%S-%f}"
    folder = Path(args.runs_dir) / name.replace("/", "-").replace(":", "-")
    if args.resume:
        folder = Path(args.resume)
    threading.excepthook = report_thread  # TensorBoard writes in a thread of its own
    try:
        return train(args, folder, checkpoint)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        refuse(f"the disk is full; when there is space, --resume {folder} goes on", exit_code=1)


if __name__ == "__main__":
    sys.exit(main())
