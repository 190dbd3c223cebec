# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1", "numpy>=2",
#     "tensorboard>=2.19", "tqdm>=4.66", "tyro>=0.9.20", "wandb>=0.30",
#     "flax>=0.12", "gymnax==1.0.1", "jax>=0.10", "optax>=0.2.8", "six>=1.16"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# [[tool.uv.dependency-metadata]]  # without Gymnasium before 1.4, which it does not need
# name = "gymnax"
# version = "1.0.1"
# requires-dist = ["flax>=0.12", "jax>=0.10", "matplotlib>=3.9", "seaborn>=0.13"]
# ///
"""PPO for gymnax, all of it compiled: environments, rollout, advantages and update in one function.

    uv run ppo/ppo_gymnax.py                                      learns CartPole-v1; 500k steps
    uv run ppo/ppo_gymnax.py --env-id Breakout-MinAtar --num-envs 64 --num-minibatches 8 \\
        --learning-rate 1e-3 --total-timesteps 10000000
Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool_xla_jax_scan.py
Details: core 1-13, aux 3
Deviations: truncated episodes bootstrapped, same-step resets (docs/episode-ends.md).
"""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from gymnasium.utils.save_video import save_video
from jax import Array


@dataclass(unsafe_hash=True)  # so that jax.jit can take it as a static argument
class Args:
    # the task
    env_id: str = "CartPole-v1"  # environment, as gymnax calls it: Discrete actions
    total_timesteps: int = 500_000  # environment steps in all, of each seed
    num_envs: int = 4  # environments stepped side by side
    seed: int = 1  # of the network, the sampled actions and the environments
    num_seeds: int = 1  # trainings side by side: with this seed, the next one and so on
    # the algorithm
    num_steps: int = 128  # steps per environment in each rollout
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # advantage estimates from one-step TD (0) to Monte Carlo (1)
    num_minibatches: int = 4  # minibatches that a rollout is cut into
    update_epochs: int = 4  # passes over each rollout; usually 3 to 10
    learning_rate: float = 2.5e-4  # Adam's step size; usually 1e-4 to 1e-3
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.2  # the policy's ratio is clipped to 1 ± this; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the value function's update at clip_coef, too
    ent_coef: float = 0.01  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # gradients are scaled down to this norm
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA where there is one
    torch_deterministic: bool = True  # deterministic algorithms on CUDA; the name is CleanRL's
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: this command's unfinished one
    log_every: int = 25_000  # steps between logged points: so many are one compiled call
    checkpoint_every: int = 100  # iterations between checkpoints; 0: only at the end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film the evaluation's first seed
    video_every: int = 100  # with --capture-video, film every n-th episode
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "ppo"  # Weights & Biases project
    wandb_entity: str | None = None  # Weights & Biases user or team
    batch_size = property(lambda self: self.num_envs * self.num_steps)
    num_iterations = property(lambda self: self.total_timesteps // self.batch_size)

    @property
    def iterations_per_call(self) -> int:
        """So many iterations run on the device before anything is logged."""
        return min(max(self.log_every // self.batch_size, 1), self.num_iterations)


class Gymnax:
    """gymnax's environments, stepped inside compiled functions.

    What changes from step to step is passed in and out: where they are, and scores so far. The step
    that ends an episode resets at once: it shows the first observation of the next episode, and
    beside it the last one of this episode.
    """

    def __init__(self, args: Args, videos: Path):
        gymnax = import_gymnax()
        from gymnax.environments.spaces import gymnax_space_to_gym_space

        self.args = args
        self.videos = videos
        self.env, self.params = gymnax.make(args.env_id)
        space_of = gymnax_space_to_gym_space
        self.single_observation_space = space_of(self.env.observation_space(self.params))
        self.single_action_space = space_of(self.env.action_space(self.params))

    def reset(self, key: Array) -> tuple[dict[str, Any], Array]:
        """First states, and observations, (num_envs, *shape)."""
        num_envs = self.args.num_envs
        reset = jax.vmap(self.env.reset, in_axes=(0, None))
        obs, env_state = reset(jax.random.split(key, num_envs), self.params)  # [core-1] vectorized
        return {"env": env_state, "score": jnp.zeros(num_envs), "length": jnp.zeros(num_envs)}, obs

    def step(
        self, state: dict[str, Any], actions: Array, keys: Array
    ) -> tuple[dict[str, Any], Array, dict[str, Array]]:
        """The state after the step, observations, (num_envs, *shape), and rows of what came of it.

        keys: (num_envs,), for the environments' own random numbers. Rows: (num_envs,) each, but for
        `next_obs`, (num_envs, *shape): what the step has led to, of the episode that it belongs to.
        """
        step = jax.vmap(self.env.step, in_axes=(0, 0, 0, None))
        answer = step(keys, state["env"], actions, self.params)
        obs, env_state, rewards, terminated, truncated, info = answer
        over = terminated | truncated
        score = state["score"] + rewards
        length = state["length"] + 1
        rows = {"rewards": rewards.astype(float), "terminated": terminated, "truncated": truncated}
        rows |= {"over": over, "score": score, "length": length}
        rows["next_obs"] = info["final_observation"]  # while obs may be of the next episode
        state = {"env": env_state, "score": jnp.where(over, 0, score)}
        state["length"] = jnp.where(over, 0, length)
        return state, obs, rows

    def visualizer(self) -> Any:
        """gymnax's own; it has no image `im` if it does not know the environment."""
        from gymnax.visualize import Visualizer

        _, env_state = self.env.reset(jax.random.key(0), self.params)
        visualizer = Visualizer(self.env, self.params, [env_state])
        visualizer.init()
        return visualizer

    @property
    def metadata(self) -> dict[str, list[str]]:
        return {"render_modes": ["rgb_array"] if hasattr(self.visualizer(), "im") else []}

    def film(self, episodes: dict[int, list[Any]]) -> None:
        """Writes films of episodes, given by number, each as gymnax's states."""
        visualizer = self.visualizer()
        canvas = visualizer.fig.canvas
        for episode, states in episodes.items():
            visualizer.state_seq = states
            visualizer.ax.clear()
            visualizer.init()  # draws what stays where it is, say the goal of a maze
            frames = []
            for number in range(min(len(states), LONGEST_FILM)):
                visualizer.update(number)
                canvas.draw()
                frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
            save_video(frames, str(self.videos), lambda _: True, fps=15, episode_index=episode)

    def close(self) -> None:
        pass


def make_envs(args: Args, videos: Path) -> Gymnax:
    """`num_envs` environments; films go to `videos`."""
    return Gymnax(args, videos)


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    known = import_gymnax().registered_envs
    if args.env_id not in known:
        near = get_close_matches(args.env_id, known, cutoff=0.0)
        refuse(f"gymnax has no {args.env_id}; it has {', '.join(near)} and others")
    try:
        envs = make_envs(args, Path())
    except OSError as error:  # MNISTBandit-bsuite
        refuse(f"{args.env_id} downloads its data, and could not: {error}")
    if isinstance(envs.single_action_space, gym.spaces.Box) and args.env_id not in gym.registry:
        refuse(f"{args.env_id} has continuous actions, and no script plays those of gymnax")
    check_spaces(args, envs, gym.spaces.Box, gym.spaces.Discrete)
    for name in ("num_seeds", "log_every"):
        if getattr(args, name) < 1:
            refuse(f"--{name.replace('_', '-')} starts at 1")


def layer_init(layer: Any, rngs: nnx.Rngs, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    orthogonal, constant = nnx.initializers.orthogonal(std), nnx.initializers.constant(bias_const)
    layer.kernel[...] = orthogonal(rngs(), layer.kernel.shape)  # [core-2] orthogonal initialization
    layer.bias[...] = constant(rngs(), layer.bias.shape)
    return layer


def flatten(images: Array) -> Array:  # (batch, height, width, channels) to (batch, -1)
    return images.reshape(len(images), -1)


def patches(images: Array) -> Array:  # (batch, h, w, channels) to (batch, h - 2, w - 2, 9 channels)
    """All squares of 3 x 3 pixels. A linear layer of them is a convolution; CPUs have it faster."""
    height, width = images.shape[1] - 2, images.shape[2] - 2
    squares = [images[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(squares, axis=-1)


def mlp(inputs: int, outputs: int, std: float, rngs: nnx.Rngs) -> nnx.Sequential:
    """Two hidden layers of 64 units; std scales the weights of the last one."""
    return nnx.Sequential(
        layer_init(nnx.Linear(inputs, 64, rngs=rngs), rngs),
        nnx.tanh,
        layer_init(nnx.Linear(64, 64, rngs=rngs), rngs),
        nnx.tanh,
        layer_init(nnx.Linear(64, outputs, rngs=rngs), rngs, std),
    )


class Agent(nnx.Module):
    """Policy and value function. Both take x, the output of `features`.

    An agent is never changed but replaced by another one, as JAX wants it.
    """

    def __init__(self, envs: Gymnax, rngs: nnx.Rngs):
        shape = envs.single_observation_space.shape
        num_actions = int(envs.single_action_space.n)
        if len(shape) == 3:  # images, as MinAtar's: its authors' network, shared
            height, width, channels = shape
            pixels = (height - 2) * (width - 2)
            self.network = nnx.Sequential(
                patches,
                layer_init(nnx.Linear(9 * channels, 16, rngs=rngs), rngs),
                nnx.relu,
                flatten,
                layer_init(nnx.Linear(pixels * 16, 128, rngs=rngs), rngs),
                nnx.relu,
            )
            self.critic = layer_init(nnx.Linear(128, 1, rngs=rngs), rngs, std=1.0)
            self.actor = layer_init(nnx.Linear(128, num_actions, rngs=rngs), rngs, std=0.01)
        else:
            self.network = nnx.Sequential(flatten)
            size = int(np.prod(shape))
            self.critic = mlp(size, 1, 1.0, rngs)  # [core-13] separate MLPs for policy and value
            self.actor = mlp(size, num_actions, 0.01, rngs)

    def features(self, obs: Array) -> Array:  # (batch, *shape) to x, (batch, size)
        return self.network(obs.astype(jnp.float32))

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


@partial(jax.jit, static_argnames="args")
def compute_gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    args: Args,
) -> tuple[Array, Array]:
    """Advantages and returns, (num_steps, num_envs): equation 16 of arxiv.org/abs/1506.02438.

    All are (num_steps, num_envs): what the environments answered at step t, and the values of the
    observations before that step and after it. After an episode's end that is its last one.
    """
    next_values = next_values * ~terminated  # [deviation] truncated episodes bootstrapped
    deltas = rewards + args.gamma * next_values - values
    goes_on = ~(terminated | truncated)
    discounts = args.gamma * args.gae_lambda * goes_on

    def gae_step(lastgaelam: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, discount = row
        lastgaelam = delta + discount * lastgaelam  # [core-5] generalized advantage estimation
        return lastgaelam, lastgaelam  # handed on to the row before, and a row of the result

    after_last = jnp.zeros_like(rewards[0])
    # A loop over rows that is compiled once, not row by row.
    _, advantages = jax.lax.scan(gae_step, after_last, (deltas, discounts), reverse=True)
    return advantages, advantages + values


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


def act(
    envs: Gymnax, agent: Agent, state: dict, obs: Array, key: Array, env_keys: Array
) -> tuple[dict, Array, dict[str, Array]]:
    """A step of all environments: their state, the next observations and what is to be stored.

    key: one, for all actions. env_keys: (num_envs,), for the environments.
    """
    x = agent.features(obs)
    action = agent.get_action(x, key)
    state, next_obs, row = envs.step(state, action, env_keys)
    return state, next_obs, {"obs": obs, "features": x, "actions": action, **row}


@partial(jax.jit, static_argnames=("envs", "args"))
def rollout(
    envs: Gymnax, agent: Agent, state: dict, obs: Array, key: Array, args: Args
) -> tuple[dict, Array, dict[str, Array]]:
    """Acts for num_steps: the environments' state, the next observations, rows of what happened.

    Row t of the rows, (num_steps, num_envs, ...), is what was seen and done at step t and what came
    of it.
    """

    def one_step(before: tuple[dict, Array], keys: tuple) -> tuple[tuple, dict[str, Array]]:
        state, obs, row = act(envs, agent, *before, *keys)
        return (state, obs), row

    # All keys are made at once: in the loop each of these small pieces of work would take its time.
    keys = jax.random.split(key, (args.num_steps, 1 + args.num_envs))
    (state, obs), rows = jax.lax.scan(one_step, (state, obs), (keys[:, 0], keys[:, 1:]))
    return state, obs, rows


@jax.jit
def get_logprobs_values(agent: Agent, rows: dict[str, Array]) -> tuple[Array, ...]:
    """Of a rollout: log-probabilities, values before each step and after it, as rows."""
    shape = rows["actions"].shape
    rows = {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}
    x = rows["features"]
    logprobs, _, values = agent.get_logprob_entropy_value(x, rows["actions"])
    next_values = agent.get_value(agent.features(rows["next_obs"]))
    return logprobs.reshape(shape), values.reshape(shape), next_values.reshape(shape)


def gradient_step(
    learner: dict, batch: dict, mb_inds: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The learner after a minibatch (the agent and Adam's moments), and statistics."""
    gradient, stats = backward(learner["agent"], batch, mb_inds, args)
    # The step that Adam would take with a learning rate of 1.
    direction, moments = optimizer.update(gradient, learner["moments"])
    agent = jax.tree.map(lambda p, d: p - learning_rate * d, learner["agent"], direction)
    return {"agent": agent, "moments": moments}, stats


def shuffle(key: Array, rows: int) -> Array:  # (rows,)
    """The numbers below `rows` in random order; jax.random.permutation takes four times as long.

    Random numbers whose last bits are the row's number are sorted: one array instead of pairs. Of
    32 bits those that the number does not need are random. Rows that share them keep their order:
    hardly any of 512 rows, 64 pairs of 8,192, all of a million, which is then less of a shuffle.
    """
    numbers = jnp.arange(rows, dtype=jnp.uint32)
    last_bits = jnp.uint32(2 ** (rows - 1).bit_length() - 1)  # ones, as many as numbers need
    random = jax.random.bits(key, (rows,)) & ~last_bits
    return jnp.sort(random | numbers) & last_bits


@partial(jax.jit, static_argnames=("optimizer", "args"), donate_argnames="learner")
def update_ppo(
    learner: dict, batch: dict, key: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The learner after a few epochs of gradient steps on a rollout, and means of statistics."""

    def one_minibatch(learner: dict, mb_inds: Array) -> tuple[dict, dict[str, Array]]:
        return gradient_step(learner, batch, mb_inds, learning_rate, optimizer, args)

    def one_epoch(before: tuple[dict, Array], epoch: Array) -> tuple[tuple, tuple]:
        learner, stopped = before
        shuffled = shuffle(jax.random.fold_in(key, epoch), args.batch_size)
        minibatches = shuffled.reshape(args.num_minibatches, -1)  # [core-6] mini-batch updates
        learned, stats = jax.lax.scan(one_minibatch, learner, minibatches)
        counts = ~stopped  # a loop cannot be left: what comes after the stop is thrown away
        if args.target_kl is not None:
            learned = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), learner, learned)
            kl = stats["losses/approx_kl"][-1]
            stopped |= kl > args.target_kl  # [aux-3] early stopping on KL
        return (learned, stopped), (stats, counts)

    begin = (learner, jnp.array(False))
    epochs = jnp.arange(args.update_epochs)
    (learner, _), (stats, counts) = jax.lax.scan(one_epoch, begin, epochs)
    means = {name: x.mean(1).mean(where=counts) for name, x in stats.items()}
    return learner, means


def one_iteration(
    envs: Gymnax, now: dict[str, Any], iteration: Array, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `start` gave, one iteration later; and what is to be logged: statistics, episodes."""
    learner = {"agent": now["agent"], "moments": now["moments"]}
    remaining = 1 - (iteration - 1) / args.num_iterations if args.anneal_lr else 1.0
    learning_rate = remaining * args.learning_rate  # [core-4] annealing
    _, _, train_key = keys_of(now["seed"])
    rollout_key, shuffle_key = jax.random.split(jax.random.fold_in(train_key, iteration))

    # Rollout: act in the environments and store what happens.
    state, obs, rows = rollout(envs, now["agent"], now["envs"], now["obs"], rollout_key, args)

    # Advantages: how much better than expected was each action?
    logprobs, values, next_values = get_logprobs_values(now["agent"], rows)
    rewards, terminated, truncated = rows["rewards"], rows["terminated"], rows["truncated"]
    advantages, returns = compute_gae(rewards, values, next_values, terminated, truncated, args)
    batch = {"obs": rows["obs"], "actions": rows["actions"], "logprobs": logprobs}
    batch |= {"values": values, "advantages": advantages, "returns": returns}
    # The loss leaves reset steps out. Resets on the same step leave none: all rows are valid.
    batch["valid"] = jnp.ones_like(rows["over"])
    batch = {name: x.reshape(args.batch_size, *x.shape[2:]) for name, x in batch.items()}

    # Update: a few epochs of gradient steps on minibatches of the rollout.
    learner, stats = update_ppo(learner, batch, shuffle_key, learning_rate, optimizer, args)

    stats["losses/explained_variance"] = 1 - advantages.var() / (returns.var() + 1e-8)
    stats["charts/learning_rate"] = jnp.asarray(learning_rate)
    episodes = {name: rows[name] for name in ("over", "score", "length")}
    logged = {"stats": stats, "episodes": episodes}
    return {**now, **learner, "envs": state, "obs": obs}, logged


@partial(jax.jit, static_argnames=("envs", "optimizer", "args"), donate_argnames="now")
def iterate(
    envs: Gymnax, now: dict[str, Any], iterations_done: int, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The next `iterations_per_call` iterations of every seed, and what is to be logged of them.

    The latter has the shape (num_seeds, iterations_per_call, ...).
    """

    def of_one_seed(now: dict) -> tuple[dict, dict]:
        def step(now: dict, iteration: Array) -> tuple[dict, dict]:
            after, logged = one_iteration(envs, now, iteration, optimizer, args)
            # The last call may go beyond the last iteration: that is thrown away.
            beyond = iteration > args.num_iterations
            return jax.tree.map(partial(jnp.where, beyond), now, after), logged

        first = iterations_done + 1
        return jax.lax.scan(step, now, first + jnp.arange(args.iterations_per_call))

    if jax.default_backend() == "cpu":  # where products of stacks of matrices are slow
        return jax.lax.map(of_one_seed, now)
    return jax.vmap(of_one_seed)(now)


def seeds_of(args: Args) -> Array:  # (num_seeds,)
    return jnp.uint32(args.seed) + jnp.arange(args.num_seeds, dtype=jnp.uint32)


def keys_of(seed: Array) -> Array:  # (3,)
    """Of a training: the keys of its weights, of its first episodes and of its iterations.

    split and fold_in make the same keys of a key, so that none is given to both of them.
    """
    return jax.random.split(jax.random.key(seed), 3)


def make_agents(envs: Gymnax, args: Args) -> Agent:
    """An agent for each seed, as one whose arrays have one more dimension: (num_seeds, ...)."""

    def make_agent(seed: Array) -> Agent:
        weights_key, _, _ = keys_of(seed)
        return Agent(envs, nnx.Rngs(weights_key))

    # Not vmap: on a CPU, batches of QR decompositions may wait for each other's threads forever.
    return jax.lax.map(make_agent, seeds_of(args))


def start(envs: Gymnax, optimizer: Any, args: Args) -> dict[str, Any]:
    """What a training consists of and a checkpoint restores, (num_seeds, ...) everywhere."""
    seeds = seeds_of(args)
    agents = make_agents(envs, args)
    moments = jax.vmap(optimizer.init)(agents)

    def first_episodes(seed: Array) -> tuple[dict[str, Any], Array]:
        _, env_key, _ = keys_of(seed)
        return envs.reset(env_key)

    state, obs = jax.vmap(first_episodes)(seeds)
    now = {"seed": seeds, "agent": agents, "moments": moments, "envs": state, "obs": obs}
    now["means"] = jnp.full((args.num_seeds, 2), jnp.nan)  # for log_seeds: no episode has ended yet
    # Some environments begin with weakly typed numbers, for which all would be compiled twice.
    return jax.tree.map(lambda x: x.astype(x.dtype), now)


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, Any]:
    """Plays `eval_episodes` whole episodes side by side, with the agent of each seed.

    Returns results by name, (num_seeds * eval_episodes,) each.
    """
    envs = make_envs(replace(args, num_envs=max(args.eval_episodes, 1)), videos)
    keys = jax.vmap(jax.random.key)(seeds_of(args) + 1_000_000)
    pairs = jax.vmap(jax.random.split)(keys)  # (num_seeds, 2)
    env_keys, play_keys = pairs[:, 0], pairs[:, 1]
    state, obs = jax.jit(jax.vmap(envs.reset))(env_keys)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, 0, 0, None))
    def play(agent: Agent, state: dict, obs: Array, key: Array, step: int) -> tuple:
        keys = jax.random.split(jax.random.fold_in(key, step), 1 + len(obs))
        action = agent.get_action(agent.features(obs), keys[0], greedy)
        return envs.step(state, action, keys[1:])

    returns = np.zeros((args.num_seeds, args.eval_episodes))
    lengths = np.zeros((args.num_seeds, args.eval_episodes), int)  # 0 as long as it is not over
    step = 0
    seen = []  # states of the environments, for films
    while not lengths.all():
        if args.capture_video:
            seen.append(jax.device_get(state["env"]))
        state, obs, row = play(agent, state, obs, play_keys, step)
        step += 1
        first = np.asarray(row["over"]) & (lengths == 0)
        returns[first] = np.asarray(row["score"])[first]
        lengths[first] = step
    filmed = range(0, args.eval_episodes, args.video_every) if args.capture_video else ()
    films = {}
    for episode in filmed:
        states = seen[: lengths[0, episode]]
        films[episode] = [of_episode(each, episode) for each in states]
    if films:
        envs.film(films)
    return {"episodic_return": returns.ravel()}


def of_episode(states: Any, episode: int) -> Any:
    """The first seed's state of an episode, out of (num_seeds, episodes, ...)."""
    return jax.tree.map(lambda x: x[0, episode], states)


def one_seed(now: dict[str, Any], number: int) -> dict[str, Any]:
    """Out of all seeds, (num_seeds, ...), one as if it alone had been trained: (1, ...)."""
    return jax.tree.map(lambda x: x[number : number + 1], now)


def log_seeds(run: Any, before: Array, episodes: dict[str, np.ndarray], step: int) -> Array:
    """Logs the mean over seeds, the lowest and the highest; returns the mean of each, as `before`.

    before: (num_seeds, 2), return and length, means of the last call in which an episode of that
    seed has ended. In a call without one they count again: all points are of the same seeds.
    episodes: over, score, length: (num_seeds, ...) each, of this call.
    """
    means = np.array(before)
    of_seeds = zip(episodes["over"], episodes["score"], episodes["length"], strict=True)
    for number, (over, score, length) in enumerate(of_seeds):
        if over.any():
            means[number] = score[over].mean(), length[over].mean()
    known = means[~np.isnan(means).any(1)]
    run.recent = known.tolist()  # the terminal shows their mean
    new_returns = episodes["score"][episodes["over"]]
    if len(new_returns) and not np.isnan(means).any():
        returns, lengths = means.T
        point = {
            "charts/episodic_return": returns.mean(),
            "charts/episodic_length": lengths.mean(),
            "charts/episodic_return_min": returns.min(),
            "charts/episodic_return_max": returns.max(),
            "charts/episodes": len(new_returns),
        }
        run.write(point, step)
        run.write_histogram("charts/episodic_returns", new_returns, step)
    return jnp.array(means)


def check_seeds(args: Args, stats: dict[str, np.ndarray], step: int) -> None:
    """Ends the program if trainings have diverged, and names them. stats: (num_seeds, ...) each."""
    finite = [np.isfinite(x.reshape(args.num_seeds, -1)).all(1) for x in stats.values()]
    seeds = np.asarray(seeds_of(args))
    diverged = seeds[~np.all(finite, axis=0)]
    if len(diverged) in (0, args.num_seeds):
        return  # all of them: `Run.log` says so
    others = [f"--seed {seed}" for seed in seeds if seed not in diverged]
    names = ", ".join(map(str, diverged))
    refuse(
        f"seed {names} diverged by step {step}; the others train without it: {', '.join(others)},"
        " each with --num-seeds 1",
        exit_code=1,
    )


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: there is none); the exit code."""
    # ------ setup ------
    setup_jax(args)
    envs = make_envs(args, video_folder(run_dir))
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    # What runs once is not worth optimizing, which takes as long again.
    once = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    now = once(partial(start, envs, optimizer, args))()
    if checkpoint:
        for name in ("num_envs", "num_seeds", "seed"):
            if getattr(args, name) != getattr(checkpoint["args"], name):
                refuse(f"--resume keeps the run's --{name.replace('_', '-')}")
        now = {name: with_arrays(now[name], checkpoint[name]) for name in now}
    iteration = checkpoint.get("iteration", 0)
    global_step = checkpoint.get("global_step", 0)
    run = Run(args, run_dir, checkpoint)
    for file in run_dir.glob("agent-seed*.pt"):  # of the end that this run had before
        file.unlink()
    save_if_due(run, now, iteration, global_step)

    while iteration < args.num_iterations:
        # ------ rollout, advantages, update: `iterations_per_call` times ------
        now, logged = iterate(envs, now, iteration, optimizer, args)
        count = min(args.iterations_per_call, args.num_iterations - iteration)
        iteration += count
        global_step += count * args.batch_size

        # ------ log ------
        logged = jax.device_get(logged)
        stats = {name: x[:, :count] for name, x in logged["stats"].items()}
        episodes = {name: x[:, :count] for name, x in logged["episodes"].items()}
        learning_rate = float(stats.pop("charts/learning_rate")[0, -1])
        explained_variance = float(stats.pop("losses/explained_variance").mean())
        check_seeds(args, stats, global_step)
        means = {name: x.mean() for name, x in stats.items()}
        if args.num_seeds == 1:
            rows = {name: x.reshape(-1, args.num_envs) for name, x in episodes.items()}
            run.log_episodes(rows, global_step)
        else:
            now["means"] = log_seeds(run, now["means"], episodes, global_step)
        run.log(means, explained_variance, learning_rate, global_step)
        save_if_due(run, now, iteration, global_step)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    if not run.exit_code:
        videos = run.start_evaluation()
        if args.num_seeds > 1:
            for number in range(args.num_seeds):  # as if it had been trained alone
                seed = int(now["seed"][number])
                name = f"agent-seed{seed}.pt"
                flags = {"seed": seed, "num_seeds": 1}
                save(run, one_seed(now, number), iteration, global_step, name, **flags)
        run.finish(evaluate(now["agent"], args, videos) if args.eval_episodes else {})
    return run.exit_code


# ------ a quick start: saves a second and changes nothing else ------
class Later(ModuleType):
    """Stands for a module until something of it is used, and imports it then."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def import_gymnax() -> ModuleType:
    """gymnax, which starts JAX: not before setup_jax.

    It imports packages for its pictures, which take six times as long as the rest of it. While it
    is being imported, empty modules stand in their place; they wait for a film.
    """
    for_pictures = {"matplotlib.pyplot", "seaborn"} - sys.modules.keys()
    sys.modules.update({name: Later(name) for name in for_pictures})
    gymnax = import_module("gymnax")
    for name in for_pictures:  # whoever else imports them gets the real ones
        del sys.modules[name]
    return gymnax


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
