# /// script
# requires-python = ">=3.11"
# dependencies = ["gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1", "numpy>=2",
#     "tensorboard>=2.19", "tyro>=0.9.20", "wandb>=0.21",
#     "envpool>=1.2", "flax>=0.12", "jax>=0.10", "optax>=0.2.8"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for Atari games in EnvPool, in JAX, each iteration compiled as a whole; slow without a GPU.

    uv run ppo/ppo_atari_envpool_xla_jax_scan.py                  learns Breakout; 10M steps
    uv run ppo/ppo_atari_envpool_xla_jax_scan.py --env-id Pong-v5 --seed 2 --capture-video
Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool_xla_jax.py
Details: core 1-12, atari 1-9, aux 3 (atari-8 replaces core-13)
Deviations: truncated episodes bootstrapped, reset steps left out (docs/episode-ends.md).
"""

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import envpool
import flax
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import nnx, serialization
from gymnasium.utils.save_video import save_video
from jax import Array
from jax.experimental import io_callback
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.summary.writer import event_file_writer


@dataclass
class Args:
    env_id: str = "Breakout-v5"  # game, as EnvPool calls it
    total_timesteps: int = 10_000_000  # environment steps in all
    learning_rate: float = 2.5e-4  # Adam's step size; usually 1e-4 to 1e-3
    num_envs: int = 8  # environments stepped side by side
    num_steps: int = 128  # steps per environment in each rollout
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # advantage estimates from one-step TD (0) to Monte Carlo (1)
    num_minibatches: int = 4  # minibatches that a rollout is cut into
    update_epochs: int = 4  # passes over each rollout; usually 3 to 10
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.1  # how far an update may move the policy; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the value function's update, too
    ent_coef: float = 0.01  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # gradients are scaled down to this norm
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    seed: int = 1  # of the network, the sampled actions and the environments
    torch_deterministic: bool = True  # deterministic algorithms on CUDA; the name is CleanRL's
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA where there is one
    env_threads: int = os.cpu_count() or 1  # CPU threads that step the games
    bf16: bool = False  # convolutions in bfloat16: faster where the hardware has it, less exact
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue; flags given beside it override its own
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
        self.args, self.videos, self.games, self.frames = args, videos, 0, list[Any]()
        self.pool: Any = None
        spec = envpool.make_spec(args.env_id)
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space

    def reset(self, seed: int) -> tuple[dict[str, Array], Array]:  # state, observations
        self.pool = envpool.make(  # takes the seed, which its reset() would ignore
            *(self.args.env_id, "gymnasium"),
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
        if self.games % self.args.video_every == 0:
            self.frames += [*self.pool.render(0)]
        if over and self.frames:
            always = {"episode_trigger": lambda n: True, "episode_index": self.games}
            save_video(self.frames, str(self.videos), fps=15, **always)
        if over:
            self.games, self.frames = self.games + 1, []
        return handle

    def close(self) -> None:
        if self.pool:
            self.pool.close()


def make_envs(args: Args, videos: Path) -> EnvPool:
    """`num_envs` games; with --capture-video the first one is filmed to `videos`."""
    return EnvPool(args, videos)


def layer_init(layer: Any, rngs: nnx.Rngs, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    orthogonal, constant = nnx.initializers.orthogonal(std), nnx.initializers.constant(bias_const)
    layer.kernel[...] = orthogonal(rngs(), layer.kernel.shape)  # [core-2] orthogonal initialization
    layer.bias[...] = constant(rngs(), layer.bias.shape)
    return layer


def flatten(images: Array) -> Array:  # (batch, height, width, channels) to (batch, -1)
    return images.reshape(len(images), -1)


class Agent(nnx.Module):  # never changed, but replaced by another one: as JAX wants it
    def __init__(self, envs: EnvPool, rngs: nnx.Rngs, bf16: bool = False):
        dtype = {"dtype": jnp.bfloat16 if bf16 else jnp.float32, "rngs": rngs}
        conv: Any = partial(nnx.Conv, padding="VALID", **dtype)
        self.network = nnx.Sequential(  # [atari-8] shared Nature-CNN
            *(layer_init(conv(4, 32, kernel_size=(8, 8), strides=4), rngs), nnx.relu),
            *(layer_init(conv(32, 64, kernel_size=(4, 4), strides=2), rngs), nnx.relu),
            *(layer_init(conv(64, 64, kernel_size=(3, 3)), rngs), nnx.relu, flatten),
            *(layer_init(nnx.Linear(64 * 7 * 7, 512, **dtype), rngs), nnx.relu),
        )
        self.critic = layer_init(nnx.Linear(512, 1, rngs=rngs), rngs, std=1.0)
        num_actions = int(envs.single_action_space.n)
        self.actor = layer_init(nnx.Linear(512, num_actions, rngs=rngs), rngs, std=0.01)

    def features(self, obs: Array) -> Array:  # (batch, 4, 84, 84) to x, (batch, 512)
        images = obs.transpose(0, 2, 3, 1) / 255.0  # [atari-9] scale to [0, 1]
        return self.network(images).astype(jnp.float32)

    def get_value(self, x: Array) -> Array:  # (batch,)
        return self.critic(x).squeeze(-1)

    def get_action(self, x: Array, key: Array, greedy: bool = False) -> Array:  # or most probable
        logits = self.actor(x)
        gumbel = jax.random.gumbel(key, logits.shape)  # makes the largest sum a sample
        return (logits if greedy else logits + gumbel).argmax(-1).astype(jnp.int32)

    def get_logprob_entropy_value(self, x: Array, action: Array) -> tuple[Array, ...]:
        """Log-probability of each action (batch,), the policy's entropy and the value: (batch,)."""
        logprobs = jax.nn.log_softmax(self.actor(x))  # of every action: (batch, number of actions)
        chosen = jnp.arange(logprobs.shape[-1]) == action[:, None]
        logprob = (logprobs * chosen).sum(-1)  # taken by index, its gradient on a GPU would be slow
        entropy = -(jnp.exp(logprobs) * logprobs).sum(-1)
        return logprob, entropy, self.get_value(x)


def compute_gae(
    rewards: Array, values: Array, terminated: Array, truncated: Array, args: Args
) -> tuple[Array, Array]:
    """Advantages and returns, (num_steps, num_envs): equation 16 of arxiv.org/abs/1506.02438.

    rewards, terminated, truncated: (num_steps, num_envs), what the environments answered at step t.
    values: (num_steps + 1, num_envs), of the observations before each step and after the last one.
    """
    # Where resets come one step late, values[1:] at an episode's end is still of that episode.
    next_values = values[1:] * ~terminated  # [deviation] truncated episodes bootstrapped
    deltas = rewards + args.gamma * next_values - values[:-1]
    discounts = args.gamma * args.gae_lambda * ~(terminated | truncated)

    def gae_step(lastgaelam: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, discount = now
        lastgaelam = delta + discount * lastgaelam
        return lastgaelam, lastgaelam

    steps = (jnp.zeros_like(rewards[0]), (deltas, discounts))
    advantages = jax.lax.scan(gae_step, *steps, reverse=True)[1]  # [core-5] generalized advantage
    return advantages, advantages + values[:-1]


def ppo_loss(
    newlogprob: Array, entropy: Array, newvalue: Array, mb: dict[str, Array], args: Args
) -> tuple[Array, dict[str, Array]]:
    """Loss of a minibatch and statistics: equations 7 and 9 of arxiv.org/abs/1707.06347.

    newlogprob, entropy, newvalue: (minibatch_size,), from the network that is being trained.
    mb: logprobs, values, advantages, returns, valid: (minibatch_size,), from the rollout.
    """
    count = mb["valid"].sum().clip(min=1)
    weight = mb["valid"] / count  # weight @ x is the mean of x, reset steps left out
    logratio = newlogprob - mb["logprobs"]
    ratio = jnp.exp(logratio)  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:
        centered = advantages - weight @ advantages
        std = jnp.sqrt(weight @ centered**2 * count / (count - 1).clip(min=1))
        advantages = centered / (std + 1e-8)  # [core-7] advantage normalization, per minibatch
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
    mb = {name: rows[mb_inds] for name, rows in batch.items()}

    def loss_of(agent: Agent) -> tuple[Array, dict[str, Array]]:
        x = agent.features(mb["obs"])
        newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(x, mb["actions"])
        return ppo_loss(newlogprob, entropy, newvalue, mb, args)

    gradient, stats = jax.grad(loss_of, has_aux=True)(agent)  # shaped like the agent
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(args.max_grad_norm / (norm + 1e-6), 1.0)
    gradient = jax.tree.map(lambda g: g * scale, gradient)  # [core-11] global gradient clipping
    return gradient, {**stats, "losses/grad_norm": norm}


def act(
    envs: EnvPool, agent: Agent, state: dict, obs: Array, key: Array
) -> tuple[dict, Array, dict[str, Array]]:
    """A step of all environments: their state, the next observations and what is to be stored."""
    x = agent.features(obs)
    action = agent.get_action(x, key)
    state, next_obs, row = envs.step(state, action)
    return state, next_obs, {"obs": obs, "features": x, "actions": action, **row}


def assess(agent: Agent, rows: dict[str, Array], next_obs: Array) -> tuple[Array, Array]:
    """Of a rollout: log-probabilities (num_steps, num_envs), values (num_steps + 1, num_envs)."""
    num_steps, num_envs = rows["actions"].shape
    x = rows["features"].reshape(num_steps * num_envs, -1)
    logprobs, _, value = agent.get_logprob_entropy_value(x, rows["actions"].ravel())
    next_value = agent.get_value(agent.features(next_obs))
    values = jnp.concatenate([value, next_value]).reshape(-1, num_envs)
    return logprobs.reshape(num_steps, num_envs), values


def update(
    learner: dict, batch: dict, mb_inds: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """One gradient step: the learner after it (the agent and Adam's moments), and statistics."""
    gradient, stats = backward(learner["agent"], batch, mb_inds, args)
    direction, moments = optimizer.update(gradient, learner["moments"])
    agent = jax.tree.map(lambda p, d: p - learning_rate * d, learner["agent"], direction)
    return {"agent": agent, "moments": moments}, {**stats, "charts/learning_rate": learning_rate}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start (checkpoint is {}) or on; returns the exit code."""
    # ------ setup ------
    # Gradients of convolutions are slow in XLA's loops on CPUs: no loop is made of them there.
    unroll = setup_jax(args).platform == "cpu"
    envs = make_envs(args, run_dir / time.strftime("videos/%Y%m%d-%H%M%S"))
    agent = jax.jit(lambda: Agent(envs, nnx.Rngs(args.seed), args.bf16))()
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    log = Logger(args, run_dir, {"agent": agent, "moments": optimizer.init(agent)}, checkpoint)

    # ------ storage: row t holds what was seen and done at step t and what came of it ------
    global_step, (state, next_obs) = log.global_step, envs.reset(seed=args.seed + log.global_step)
    last_done = jnp.zeros((1, args.num_envs), bool)  # before the first step of the rollout
    carried = (log.learner, state, next_obs, last_done)

    @partial(jax.jit, donate_argnums=0)  # the memory of what is carried holds the result
    def iterate(carried: tuple, iteration: int, learning_rate: float) -> tuple[tuple, tuple]:
        learner, state, next_obs, last_done = carried
        key = jax.random.fold_in(jax.random.key(args.seed), iteration)

        # ------ rollout: act in the environments and store what happens ------
        def one_step(state_and_obs: tuple, step: Array) -> tuple[tuple, dict[str, Array]]:
            (state, obs), step_key = state_and_obs, jax.random.fold_in(key, step)
            state, next_obs, row = act(envs, learner["agent"], state, obs, step_key)
            return (state, next_obs), row

        steps = jnp.arange(args.num_steps)
        (state, next_obs), rows = jax.lax.scan(one_step, (state, next_obs), steps)

        # ------ advantages: how much better than expected was each action? ------
        logprobs, values = assess(learner["agent"], rows, next_obs)
        rewards, terminated, truncated = rows["rewards"], rows["terminated"], rows["truncated"]
        done = jnp.vstack([last_done, terminated | truncated])
        valid, last_done = ~done[:-1], done[-1:]  # [deviation] reset steps left out
        advantages, returns = compute_gae(rewards, values, terminated, truncated, args)
        batch = {"obs": rows["obs"], "actions": rows["actions"], "logprobs": logprobs}
        batch |= {"values": values[:-1], "valid": valid}
        batch |= {"advantages": advantages, "returns": returns}
        batch = {k: v.reshape(args.batch_size, *v.shape[2:]) for k, v in batch.items()}

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        def one_minibatch(learner: dict, mb_inds: Array) -> tuple[dict, dict[str, Array]]:
            return update(learner, batch, mb_inds, learning_rate, optimizer, args)

        def one_epoch(learner_and_stopped: tuple, epoch: Array) -> tuple[tuple, tuple]:
            learner, stopped = learner_and_stopped
            epoch_key = jax.random.fold_in(key, args.num_steps + epoch)
            shuffled = jax.random.permutation(epoch_key, args.batch_size)
            minibatches = shuffled.reshape(args.num_minibatches, -1)  # [core-6] mini-batch updates
            learned, stats = jax.lax.scan(one_minibatch, learner, minibatches, unroll=unroll)
            kl, ran = stats["losses/approx_kl"][-1], ~stopped
            if args.target_kl is not None:
                learned = jax.tree.map(partial(jnp.where, stopped), learner, learned)
                stopped |= kl > args.target_kl  # [aux-3] early stopping on KL
            return (learned, stopped), (stats, ran)

        epochs = jnp.arange(args.update_epochs)
        begin = (learner, jnp.array(False))
        (learner, _), (stats, ran) = jax.lax.scan(one_epoch, begin, epochs, unroll=unroll)
        ended = {name: rows[name] for name in ("over", "score", "length")}
        told = (stats, ran, ended, advantages, returns, valid)
        return (learner, state, next_obs, last_done), told

    for iteration in range(log.iteration + 1, args.num_iterations + 1):
        remaining = 1 - (iteration - 1) / args.num_iterations if args.anneal_lr else 1.0
        learning_rate = remaining * args.learning_rate  # [core-4] annealing
        carried, told = iterate(carried, iteration, learning_rate)
        global_step += args.batch_size

        # ------ log ------
        stats, ran, ended, advantages, returns, valid = jax.device_get(told)
        stats = [{name: values[ran] for name, values in stats.items()}]
        log.episodes(ended, global_step)
        log.scalars(stats, 1 - advantages[valid].var() / (returns[valid].var() + 1e-8), global_step)
        if log.checkpoint(iteration, global_step, carried[0]):
            break
    envs.close()
    return log.finish(global_step, carried[0])


# ====== plumbing: nothing below changes what is learned ======
class Logger:  # everything about the run folder: metrics, progress, checkpoints, Ctrl-C
    def __init__(self, args: Args, run_dir: Path, learner: dict[str, Any], saved: dict):
        self.args, self.run_dir, self.learner = args, run_dir, learner
        self.iteration, self.global_step = saved.get("iteration", 0), saved.get("global_step", 0)
        self.recent: list[float] = saved.get("recent", [])  # returns of the last 100 episodes
        self.ended: list[tuple[int, float, int]] = []  # step, return, length of new episodes
        self.clock: tuple[float, int] | None = None  # time and step that speed is counted from
        self.printed, self.exit_code, self.films = 0.0, 0, set(run_dir.glob("videos/*/*.mp4"))
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.on_signal)
        if saved:
            (run_dir / "agent.pt").unlink(missing_ok=True)
            self.learner = {k: with_arrays(tree, saved[k]) for k, tree in learner.items()}
        self.wandb: Any = __import__("wandb") if args.track else None
        if self.wandb:
            ids = {"id": (run := run_dir.resolve()).name, "name": run.name, "dir": run.parent}
            ids |= {"project": args.wandb_project_name, "entity": args.wandb_entity}
            self.wandb.init(config=asdict(args), sync_tensorboard=True, resume="allow", **ids)
        print(f"run folder: {run_dir}")
        self.writer: Any = event_file_writer.EventFileWriter(str(run_dir))
        # What was logged after the checkpoint is purged: it will be logged again.
        self.add_event(self.global_step + 1, session_log=SessionLog(status=SessionLog.START))
        self.checkpoint(self.iteration, self.global_step, self.learner)
        self.compiling: float | None = 0.0  # seconds; None when the first iteration has ended
        jax.monitoring.register_event_duration_secs_listener(self.on_duration)
        print("compiling... ", end="", flush=True)

    def on_signal(self, signum: int, _frame: object) -> None:
        self.exit_code = 128 + signum
        signal.signal(signum, signal.SIG_DFL)
        print("\nstopping after this iteration; once more to stop at once", file=sys.stderr)

    def on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if self.compiling is not None and event.startswith("/jax/core/compile/"):
            self.compiling += duration_secs

    def add_event(self, step: int, **content: Any) -> None:
        self.writer.add_event(Event(wall_time=time.time(), step=step, **content))

    def write(self, values: dict[str, float], step: int) -> None:
        summary = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.add_event(step, summary=Summary(value=summary))

    def episodes(self, rows: dict[str, Array], step: int) -> None:
        over, score, length = (np.asarray(rows[name]) for name in ("over", "score", "length"))
        for t, i in np.argwhere(over):
            when = step - over.size + int(t + 1) * over.shape[1]
            self.ended.append((when, float(score[t, i]), int(length[t, i])))

    def scalars(self, stats: list, explained_variance: float, step: int) -> None:
        stats = jax.device_get(stats)
        values = {k: float(np.mean(np.hstack([s[k] for s in stats]))) for k in stats[0]}
        good = np.isfinite([*values.values()])  # the gradients' norm is among them
        fail_if(not good.all(), f"diverged at step {step}: {values}", exit_code=1)
        if self.compiling is not None:
            print(f"{self.compiling:.1f} s", flush=True)
            self.compiling = None
        values["losses/explained_variance"] = explained_variance
        now = time.monotonic()
        self.clock = self.clock or (now, step)  # the first iteration, which compiles, is left out
        sps = (step - self.clock[1]) / max(now - self.clock[0], 1e-9)
        for when, score, length in self.ended:
            self.write({"charts/episodic_return": score, "charts/episodic_length": length}, when)
        if self.ended:
            returns = [float(score) for _, score, _ in self.ended]
            values["charts/avg_episodic_return"] = float(np.mean(returns))
            values["charts/avg_episodic_length"] = float(np.mean([e[2] for e in self.ended]))
            self.histogram("charts/episodic_returns", np.array(returns), step)
            self.recent, self.ended = (self.recent + returns)[-100:], []
        self.write(values | ({"charts/SPS": sps} if sps else {}), step)
        for film in set(self.run_dir.glob("videos/*/*.mp4")) - self.films if self.wandb else ():
            self.films.add(film)
            self.wandb.log({"videos": self.wandb.Video(str(film), format="mp4")})
        total, live = self.args.num_iterations * self.args.batch_size, sys.stdout.isatty()
        if sps and (step == total or now - self.printed > (0.2 if live else 10)):
            self.printed, left = now, (total - step) / sps / 60
            line = f"{step / total:4.0%}  step {step:,}  {sps:,.0f} steps/s  {left:.1f} min left"
            line += f"  return {np.mean(self.recent or [np.nan]):.1f}"
            print(f"\r{line}\x1b[K" if live else line, end="" if live else "\n", flush=True)

    def histogram(self, tag: str, data: Any, step: int) -> None:
        counts, limits = np.histogram(data, bins=30)
        ends = {"min": data.min(), "max": data.max(), "num": len(data), "sum": data.sum()}
        bins = {"bucket_limit": limits, "bucket": [0, *counts]}  # limits[0] ends what is below it
        histo = HistogramProto(**ends, sum_squares=data @ data, **bins)
        self.add_event(step, summary=Summary(value=[Summary.Value(tag=tag, histo=histo)]))

    def checkpoint(self, iteration: int, step: int, learner: dict) -> bool:
        """Saves if it is due; is it time to stop?"""
        stop, last = self.exit_code != 0, self.args.num_iterations
        due = iteration == last or iteration % (self.args.checkpoint_every or last) == 0
        if stop or due:
            state: dict[str, Any] = {"script": Path(__file__).name, "args": asdict(self.args)}
            state |= {k: named(tree) for k, tree in jax.device_get(learner).items()}
            state |= {"iteration": iteration, "global_step": step, "recent": self.recent}
            data = serialization.msgpack_serialize(state)
            (self.run_dir / "checkpoint.tmp").write_bytes(data)  # aside, so that a kill at any
            self.writer.flush()
            os.replace(self.run_dir / "checkpoint.tmp", self.run_dir / "checkpoint.pt")  # instant
        return stop

    def finish(self, step: int, learner: dict) -> int:
        """Evaluates and keeps the agent; returns the exit code."""
        if not self.exit_code:
            returns = evaluate(learner["agent"], self.args, self.run_dir / "videos/evaluation")
            if len(returns):
                self.write({"eval/episodic_return": returns.mean()}, step)
                print(f"\nevaluation: return {returns.mean():.1f} ± {returns.std():.1f}")
            shutil.copy(self.run_dir / "checkpoint.pt", self.run_dir / "agent.pt")
            self.writer.close()
        return self.exit_code


def setup_jax(args: Args) -> jax.Device:
    flag = "--xla_gpu_deterministic_ops=true"
    if args.torch_deterministic and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    if args.device == "cpu" or (args.device == "auto" and not args.cuda):
        jax.config.update("jax_platforms", "cpu")
    auto = "cuda" if args.cuda and jax.default_backend() == "gpu" else "cpu"
    kind, _, number = (auto if args.device == "auto" else args.device).partition(":")
    device = jax.devices(kind)[int(number or 0)]
    jax.config.update("jax_default_device", device)
    return device


def named(tree: Any) -> dict[str, Any]:  # all arrays in it
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def with_arrays(tree: Any, arrays: dict[str, Any]) -> Any:
    """The tree with these arrays in place of its own; ValueError if they do not fit."""
    wanted, found = ({k: v.shape for k, v in a.items()} for a in (named(tree), arrays))
    if wanted != found:
        raise ValueError("the arrays are those of another network")
    leaves = [jnp.array(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> Any:
    """Plays `eval_episodes` whole episodes, filmed with --capture-video; returns their returns."""
    envs, returns, step = make_envs(replace(args, num_envs=1), videos), list[float](), 0
    state, obs = envs.reset(seed=args.seed + 1_000_000)

    @jax.jit
    def play(agent: Agent, state: dict, obs: Array, step: int) -> tuple[dict, Array, dict]:
        key = jax.random.fold_in(jax.random.key(args.seed + 1_000_000), step)
        return envs.step(state, agent.get_action(agent.features(obs), key, greedy))

    while len(returns) < args.eval_episodes:
        state, obs, row = play(agent, state, obs, step)
        returns += np.asarray(row["score"])[np.asarray(row["over"])].tolist()
        step += 1
    envs.close()
    return np.array(returns)


def load(file: Path) -> dict[str, Any]:  # executes nothing that is in the file
    try:
        state = serialization.msgpack_restore(file.read_bytes())
        state["args"] = Args(**state["args"])
        assert state["script"] == Path(__file__).name, f"written by {state['script']}"
    except Exception as error:
        fail_if(True, f"{file} is not a checkpoint that can be used here: {error!r:.70}")
    return state


def check(args: Args) -> None:  # what cannot work ends in one line; nothing has been written yet
    bounds = dict.fromkeys(("learning_rate", "clip_coef", "max_grad_norm"), 1e-9)
    bounds |= dict.fromkeys(("seed", "checkpoint_every", "eval_episodes", "gamma", "gae_lambda"), 0)
    ones = "num_envs num_steps num_minibatches update_epochs env_threads video_every"
    for name, least in (bounds | dict.fromkeys(ones.split(), 1)).items():
        fail_if(not getattr(args, name) >= least, f"--{name.replace('_', '-')} starts at {least}")
    fail_if(args.seed >= 2**32, "--seed must be below 2**32: JAX uses 32 bits of it")
    fail_if(max(args.gamma, args.gae_lambda) > 1, "--gamma and --gae-lambda must be at most 1")
    fail_if(args.batch_size % args.num_minibatches, "--num-minibatches must divide the batch size")
    fail_if(args.num_iterations < 1, f"--total-timesteps is below one batch, {args.batch_size}")
    try:
        setup_jax(args)
        os.listdir(next(filter(Path.exists, (Path(args.runs_dir) / "run").absolute().parents)))
        near = ", ".join(get_close_matches(args.env_id, envpool.list_all_envs()))
        fail_if(args.env_id not in envpool.list_all_envs(), f"no {args.env_id}; there is {near}")
        envs = make_envs(replace(args, num_envs=1, capture_video=False), Path())
        blind = args.capture_video and "rgb_array" not in envs.metadata.get("render_modes", [])
        online = args.track and os.getenv("WANDB_MODE") not in ("offline", "disabled")
        fail_if(online and not __import__("wandb").login(prompt=False), "--track: run wandb login")
    except Exception as error:
        fail_if(True, f"{args.env_id}, --device {args.device}: {error}"[:300])
    fail_if(blind, f"--capture-video: {args.env_id} cannot render rgb_array")
    action, obs, who = envs.single_action_space, envs.single_observation_space, args.env_id
    scripts = {"Discrete": "ppo.py", "Box": "ppo_continuous_action.py"}
    script = scripts.get(type(action).__name__, "ppo_multidiscrete.py")
    fail_if(script != "ppo.py", f"{who} acts in {action}, see {script}")
    fail_if(obs.shape != (4, 84, 84), f"{who} is not an Atari game, see ppo.py")


def fail_if(problem: object, message: str, exit_code: int = 2) -> None:
    if problem:
        print(f"{Path(__file__).name}: {' '.join(message.split())}", file=sys.stderr)
        sys.exit(exit_code)


if __name__ == "__main__":
    args, checkpoint = tyro.cli(Args, description=__doc__.splitlines()[0]), {}
    if args.resume:
        checkpoint = load(Path(args.resume) / "checkpoint.pt")
        args = tyro.cli(Args, default=replace(old := checkpoint["args"], resume=args.resume))
        changed = (args.env_id, args.batch_size) != (old.env_id, old.batch_size)
        fail_if(changed, "--resume keeps the run's --env-id, and its --num-envs x --num-steps")
    check(args)
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{datetime.now():%Y%m%d-%H%M%S-%f}"
    run_dir = Path(args.resume or Path(args.runs_dir) / name.replace("/", "-").replace(":", "-"))
    if not args.resume:
        run_dir.mkdir(parents=True)
        shutil.copy(__file__, run_dir)
        about = {"script": Path(__file__).name, "argv": sys.argv[1:], "args": asdict(args)}
        versions = {m.__name__: m.__version__ for m in (gym, np, jax, flax, optax)}
        about |= {"versions": versions | {"python": sys.version}}
        about |= {"hardware": f"{os.cpu_count()} CPUs, {setup_jax(args)}"}
        (run_dir / "args.json").write_text(json.dumps(about, indent=1))
    sys.exit(train(args, run_dir, checkpoint))
