# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["filelock>=3.16", "gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1",
#     "numpy>=2", "tensorboard>=2.19", "tqdm>=4.66", "tyro>=0.9.20", "wandb>=0.30",
#     "flax>=0.12", "jax>=0.10", "optax>=0.2.8", "mujoco>=3.3", "playground>=0.2"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for thousands of robots at once: MuJoCo Playground's tasks, simulated on the device, in JAX.

    uv run ppo/ppo_continuous_action_mjx.py                       learns CheetahRun; 10M steps
    uv run ppo/ppo_continuous_action_mjx.py --env-id CartpoleBalance --seed 2 --capture-video

Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool_xla_jax_scan.py
Details: core 1-13, continuous 1-9, aux 3
Deviations: truncated episodes bootstrapped,
    statistics once per rollout, where baselines updates them at every step
"""

import subprocess
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from flax import nnx
from gymnasium.utils.save_video import save_video
from jax import Array
from jax.scipy.stats import norm
from mujoco_playground import dm_control_suite, locomotion, manipulation, registry

# MJX's solver takes plain products, which GPUs would compute with TF32's ten bits: training failed
# with them on an RTX 4080 (google-deepmind/mujoco_playground#86).
jax.config.update("jax_default_matmul_precision", "highest")


def has_cuda() -> bool:
    """Whether JAX has a CUDA device; starts JAX."""
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


@dataclass(unsafe_hash=True)  # so that jax.jit can take it as a static argument
class Args:
    # the task
    env_id: str = "CheetahRun"  # task of MuJoCo Playground, or module:task
    total_timesteps: int = 10_000_000  # environment steps in all
    num_envs: int = 0  # robots simulated side by side; 0: 2048 on a GPU, 64 elsewhere
    seed: int = 1  # of the network, the sampled actions and the environments
    # the algorithm
    num_steps: int = 32  # steps per environment in each rollout
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # advantage estimates from one-step TD (0) to Monte Carlo (1)
    num_minibatches: int = 32  # minibatches that a rollout is cut into
    update_epochs: int = 10  # passes over each rollout; usually 3 to 10
    learning_rate: float = 3e-4  # Adam's step size; usually 1e-4 to 1e-3
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.2  # the policy's ratio is clipped to 1 ± this; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the change of the value at clip_coef as well
    ent_coef: float = 0.0  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # gradients are scaled down to this norm
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA where there is one
    torch_deterministic: bool = False  # deterministic, slow algorithms on CUDA; CleanRL's name
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: this command's unfinished one
    checkpoint_every: int = 100  # iterations between checkpoints; 0: only at the end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film the first robot
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

    def __post_init__(self) -> None:
        if self.num_envs == 0:
            use_cuda = self.device.startswith("cuda") or (self.device == "auto" and self.cuda)
            self.num_envs = 2048 if use_cuda and has_cuda() else 64


def name_of_task(args: Args) -> str:
    """The name in `name` or `module:name`; the module, which registers its task, is imported."""
    module, _, name = args.env_id.rpartition(":")
    if module:
        import_module(module)
    return name


POSE = ("qpos", "mocap_pos", "mocap_quat")  # what a picture shows


def where_rows(mask: Array, yes: Array, no: Array) -> Array:  # (rows, ...)
    """Row by row: that of `yes` where the mask, (rows,), is true, else that of `no`."""
    return jnp.where(mask.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)


# Robots' positions, velocities, forces and rewards are smaller: beyond it, a simulation blows up.
LARGEST = 1e5


def plausible(x: Array) -> Array:
    """Zeros in place of NaN and of what is beyond LARGEST.

    Such numbers come from simulations that blow up. A single row of 1e20 would make the
    statistics of observations or rewards useless for good: their deviation would be infinite.
    """
    return jnp.where(jnp.abs(x) <= LARGEST, x, 0)


class Playground:
    """Robots of MuJoCo Playground, simulated inside compiled functions; reports whole episodes.

    Their state is passed in and out: compiled functions must not change anything. The step that
    ends an episode returns the first observation of the next one, and beside it the last one.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, args: Args, videos: Path):
        self.args = args
        self.videos = videos
        self.episodes = 0  # that the first robot has ended
        self.poses: list[Any] = []  # of its episode so far
        name = name_of_task(args)
        # The physics in JAX, which every device has; Playground's other one, Warp, needs CUDA.
        self.task = registry.load(name, config_overrides={"impl": "jax"})
        self.time_limit = registry.get_default_config(name).episode_length  # steps
        start = jax.eval_shape(self.task.reset, jax.random.PRNGKey(0))  # shapes and types
        obs_shape = jax.eval_shape(self.observe, start).shape
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, obs_shape)
        self.single_action_space = gym.spaces.Box(-1, 1, (self.task.action_size,))

    def observe(self, robots: Any) -> Array:
        """What the policy may see; some tasks show the critic more, which is not used here."""
        obs = robots.obs["state"] if isinstance(robots.obs, dict) else robots.obs
        return plausible(obs)

    def reset(self, key: Array, stagger: bool = False) -> tuple[dict[str, Any], Array]:
        """State, and observations, (num_envs, size).

        stagger: the first episodes end at random times, so that the robots are never all at the
        same part of an episode; these episodes are not reported.
        """
        num_envs = self.args.num_envs
        start_key, length_key = jax.random.split(key)
        # Playground's tasks want keys of the old kind.
        keys = jax.random.split(jax.random.key_data(start_key), num_envs)
        robots = jax.vmap(self.task.reset)(keys)  # [core-1] vectorized
        # Some tasks return weakly typed numbers, for which the rollout would be compiled twice.
        robots = jax.tree.map(lambda x: x.astype(x.dtype), robots)
        length = jnp.zeros(num_envs, int)
        if stagger:
            length = jax.random.randint(length_key, (num_envs,), 0, self.time_limit)
        # A start may take as long as hundreds of steps. As in Brax, robots go back to their first.
        state = {"robots": robots, "first": robots, "length": length, "whole": length == 0}
        state["score"] = jnp.zeros(num_envs)
        return state, self.observe(robots)

    def step(self, state: dict[str, Any], actions: Array) -> tuple[dict, Array, dict[str, Array]]:
        """State after the step, observations, (num_envs, size), and what came of it by name.

        actions: (num_envs, size). What came of it: (num_envs,) each, but for "final_obs",
        (num_envs, size), the observation that the step led to, before any reset, and poses.
        """
        clipped = actions.clip(-1, 1)  # [continuous-5] action clipping for the environment
        robots = jax.vmap(self.task.step)(state["robots"], clipped)
        robots = jax.tree.map(lambda x: x.astype(x.dtype), robots)
        rewards = plausible(robots.reward)
        score = state["score"] + rewards
        length = state["length"] + 1
        motion = jnp.hstack([robots.data.qpos, robots.data.qvel])
        blown_up = ~jnp.isfinite(motion).all(1)  # not all tasks end then by themselves
        terminated = robots.done.astype(bool) | blown_up
        truncated = length >= self.time_limit
        done = terminated | truncated
        outcome = {
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "final_obs": self.observe(robots),
            "over": done & state["whole"],
            "score": score,
            "length": length,
        }
        if self.args.capture_video:
            outcome |= {name: getattr(robots.data, name) for name in POSE}
        robots = jax.tree.map(partial(where_rows, done), state["first"], robots)
        state = {
            "robots": robots,
            "first": state["first"],
            "length": jnp.where(done, 0, length),
            "whole": state["whole"] | done,
            "score": jnp.where(done, 0, score),
        }
        return state, self.observe(robots), outcome

    def film(self, rows: dict[str, Array], robot: int = 0) -> None:
        """Goes on with the film of a robot; writes it at the end of its episode.

        rows: "over" and poses, (steps, num_envs, ...).
        """
        over, *poses = jax.device_get([rows[name][:, robot] for name in ("over", *POSE)])
        for *pose, ends in zip(*poses, over, strict=True):
            self.poses.append(pose)
            if ends and self.episodes % self.args.video_every == 0:
                self.write_film(str(self.videos), self.poses)
            if ends:
                self.episodes += 1
                self.poses = []

    def write_film(self, folder: str, poses: list[Any]) -> None:
        """Writes a film of the poses, with about 30 pictures for each second of them."""
        model = self.task.mj_model
        data = mujoco.MjData(model)
        every = max(1, round(1 / 30 / self.task.dt))  # steps from picture to picture
        frames = []
        with mujoco.Renderer(model) as renderer:
            for pose in poses[: LONGEST_FILM * every : every]:
                for name, x in zip(POSE, pose, strict=True):
                    setattr(data, name, x)
                mujoco.mj_forward(model, data)
                renderer.update_scene(data, camera=0 if model.ncam else -1)
                frames.append(renderer.render())
        fps = 1 / (every * self.task.dt)
        save_video(frames, folder, lambda _: True, fps=fps, episode_index=self.episodes)


def make_envs(args: Args, videos: Path) -> Playground:
    """`num_envs` robots; with --capture-video the first one is filmed to `videos`."""
    return Playground(args, videos)


def layer_init(layer: Any, rngs: nnx.Rngs, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    """The layer, with orthogonal weights of that scale and constant biases."""
    orthogonal = nnx.initializers.orthogonal(std)
    layer.kernel[...] = orthogonal(rngs(), layer.kernel.shape)  # [core-2] orthogonal initialization
    layer.bias[...] = jnp.full(layer.bias.shape, bias_const)
    return layer


def mlp(inputs: int, outputs: int, std: float, rngs: nnx.Rngs) -> nnx.Sequential:
    """Two hidden layers of 64 units; std scales the weights of the last one."""
    return nnx.Sequential(
        layer_init(nnx.Linear(inputs, 64, rngs=rngs), rngs),
        nnx.tanh,
        layer_init(nnx.Linear(64, 64, rngs=rngs), rngs),
        nnx.tanh,
        layer_init(nnx.Linear(64, outputs, rngs=rngs), rngs, std),
    )


@jax.jit
def merge_stats(stats: Array, x: Array) -> Array:
    """Stats, (3, size): count, mean, standard deviation, with rows of x, (rows, size), merged in.

    The variance of two sets together is the mean of theirs, weighted by their sizes, and what the
    distance of their means adds (Chan, Golub and LeVeque, 1979).
    """
    count = stats[0] + len(x)
    share = len(x) / count
    delta = x.mean(0) - stats[1]
    before = stats[2] ** 2
    change = x.var(0) - before
    # As torch.lerp: two shares that are rounded add up to less than 1, which would shrink it.
    variance = jnp.where(share < 0.5, before + share * change, x.var(0) - (1 - share) * change)
    variance += share * (1 - share) * delta**2
    return jnp.stack([count, stats[1] + share * delta, jnp.sqrt(variance)])


class Agent(nnx.Module):
    """Policy and value function; x: what `features` returns."""

    def __init__(self, envs: Playground, rngs: nnx.Rngs):
        obs_size = int(np.prod(envs.single_observation_space.shape))
        self.critic = mlp(obs_size, 1, 1.0, rngs)  # [core-13] separate MLPs for policy and value
        num_actions = int(np.prod(envs.single_action_space.shape))
        self.actor = mlp(obs_size, num_actions, 0.01, rngs)  # [continuous-4] separate MLPs
        self.actor_logstd = nnx.Param(jnp.zeros(num_actions))  # [continuous-2] state-independent
        stats = jnp.array([[0.0], [0.0], [1.0]])  # count, mean, std; part of every checkpoint
        self.obs_stats = nnx.Variable(jnp.tile(stats, obs_size))
        self.return_stats = nnx.Variable(stats)

    def features(self, obs: Array) -> Array:  # (batch, obs_size)
        """Observations, shifted and scaled by the statistics of earlier rollouts."""
        _, mean, std = jax.lax.stop_gradient(self.obs_stats[...])
        x = (obs - mean) / std.clip(min=1e-4)  # [continuous-6] observation normalization
        return x.clip(-10, 10)  # [continuous-7] observation clipping

    def get_value(self, x: Array) -> Array:  # (batch,)
        return self.critic(x).squeeze(-1)

    def get_action(self, x: Array, key: Array, greedy: bool = False) -> Array:  # (batch, size)
        """Sampled actions; the most probable ones if greedy."""
        mean = self.actor(x)
        if greedy:
            return mean
        return mean + jnp.exp(self.actor_logstd[...]) * jax.random.normal(key, mean.shape)

    def get_logprob_entropy_value(self, x: Array, action: Array) -> tuple[Array, ...]:
        """Log-probability of each action, the policy's entropy and the value: (batch,) each."""
        logstd = self.actor_logstd[...]
        std = jnp.exp(logstd)
        logprobs = norm.logpdf(action, self.actor(x), std)  # [continuous-1] normal distribution
        logprob = logprobs.sum(-1)  # [continuous-3] independent components
        entropy = (logstd + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum()
        return logprob, jnp.full(len(x), entropy), self.get_value(x)


@partial(jax.jit, static_argnames="args")
def discounted_sums(rewards: Array, done: Array, before: Array, args: Args) -> tuple[Array, Array]:
    """Of each episode's rewards up to each step; and the sums that the next rollout goes on with.

    rewards, done, the sums: (num_steps, num_envs). before, what is handed on: (num_envs,).
    """

    def add(discounted_return: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, done = row
        discounted = reward + args.gamma * discounted_return
        return discounted * ~done, discounted

    after, sums = jax.lax.scan(add, before, (rewards, done))
    return sums, after


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
    envs: Playground, agent: Agent, state: dict, obs: Array, key: Array, step: Any
) -> tuple[dict, Array, dict[str, Array]]:
    """A step of all environments: their state, the next observations and the transition."""
    x = agent.features(obs)
    action = agent.get_action(x, jax.random.fold_in(key, step))
    state, next_obs, outcome = envs.step(state, action)
    return state, next_obs, {"obs": obs, "features": x, "actions": action, **outcome}


@partial(jax.jit, static_argnames=("envs", "args"))
def rollout(
    envs: Playground, agent: Agent, state: dict, obs: Array, key: Array, args: Args
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
def get_logprobs_values(agent: Agent, trajectory: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Log-probabilities and values before and after each step: (num_steps, num_envs) each."""
    num_steps, num_envs, _ = trajectory["actions"].shape
    rows = num_steps * num_envs
    flat = {name: trajectory[name].reshape(rows, -1) for name in ("obs", "actions", "final_obs")}
    x = agent.features(flat["obs"])
    logprobs, _, values = agent.get_logprob_entropy_value(x, flat["actions"])
    # Of what each step led to, also where the next row is already of another episode.
    final_x = agent.features(flat["final_obs"])
    next_values = agent.get_value(final_x)  # [deviation] truncated episodes bootstrapped
    shape = (num_steps, num_envs)
    return logprobs.reshape(shape), values.reshape(shape), next_values.reshape(shape)


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

    def one_minibatch(train_state: dict, mb_inds: Array) -> tuple[dict, dict[str, Array]]:
        return gradient_step(train_state, batch, mb_inds, learning_rate, optimizer, args)

    def one_epoch(carry: tuple[dict, Array], epoch_key: Array) -> tuple[tuple, tuple]:
        train_state, stopped = carry
        shuffled = jax.random.permutation(epoch_key, args.batch_size)
        minibatches = shuffled.reshape(args.num_minibatches, -1)  # [core-6] mini-batch updates
        updated, stats = jax.lax.scan(one_minibatch, train_state, minibatches)
        counts = ~stopped  # a scan cannot be left: what comes after the stop is thrown away
        if args.target_kl is not None:
            keep_if_stopped = partial(jnp.where, stopped)
            updated = jax.tree.map(keep_if_stopped, train_state, updated)
            kl = stats["losses/approx_kl"][-1]
            stopped |= kl > args.target_kl  # [aux-3] early stopping on KL
        return (updated, stopped), (stats, counts)

    epoch_keys = jax.random.split(key, args.update_epochs)
    begin = (train_state, jnp.array(False))
    (train_state, _), (stats, counts) = jax.lax.scan(one_epoch, begin, epoch_keys)
    return train_state, {name: x.mean(1).mean(where=counts) for name, x in stats.items()}


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, np.ndarray]:
    """Plays `eval_episodes` whole episodes; returns results by name, (episodes,) each."""
    if not args.eval_episodes:
        return {"episodic_return": np.zeros(0)}
    # All episodes side by side, each robot's first: none that is short is counted more often.
    envs = make_envs(replace(args, num_envs=args.eval_episodes), videos)
    env_key, act_key = jax.random.split(jax.random.key(args.seed + 1_000_000))

    @jax.jit
    def play(agent: Agent) -> dict[str, Array]:
        def one_step(carry: tuple[dict, Array], step: Array) -> tuple[tuple, dict[str, Array]]:
            state, obs = carry
            key = jax.random.fold_in(act_key, step)
            action = agent.get_action(agent.features(obs), key, greedy)
            state, obs, outcome = envs.step(state, action)
            return (state, obs), outcome

        return jax.lax.scan(one_step, envs.reset(env_key), jnp.arange(envs.time_limit))[1]

    rows = jax.device_get(play(agent))
    ends = rows["over"].argmax(0)
    if args.capture_video:
        for robot, end in enumerate(ends):
            envs.film({name: x[: end + 1] for name, x in rows.items()}, robot)
    return {"episodic_return": rows["score"][ends, np.arange(args.eval_episodes)]}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: there is none); the exit code."""
    # ------ setup ------
    setup_jax(args)
    global_step = checkpoint.get("global_step", 0)
    envs = make_envs(args, run_dir / f"videos/from-step-{global_step}")
    # split and fold_in make the same keys of a key, so that none is given to both of them.
    weights_key, env_key, train_key = jax.random.split(jax.random.key(args.seed), 3)
    agent = jax.jit(lambda: Agent(envs, nnx.Rngs(weights_key)))()
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    train_state = {"agent": agent, "opt_state": optimizer.init(agent)}
    if checkpoint:
        train_state = restored(train_state, checkpoint)
    run = Run(args, run_dir, checkpoint)

    # ------ training ------
    env_key = jax.random.fold_in(env_key, global_step)
    state, next_obs = jax.jit(partial(envs.reset, stagger=True))(env_key)
    discounted_return = jnp.zeros(args.num_envs)  # of each episode under way
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
        if args.capture_video:
            envs.film(trajectory)

        # ------ advantages: how much better than predicted did things turn out? ------
        # The weights are still those that acted, so these are the old policy's log-probabilities
        # and values.
        obs = trajectory["obs"].reshape(args.batch_size, -1)
        if iteration == 1:  # there are no statistics yet, and the first update needs some
            agent.obs_stats[...] = merge_stats(agent.obs_stats[...], obs)
        logprobs, values, next_values = get_logprobs_values(agent, trajectory)
        names = ("rewards", "terminated", "truncated")
        rewards, terminated, truncated = [trajectory[name] for name in names]
        sums, discounted_return = discounted_sums(
            rewards, terminated | truncated, discounted_return, args
        )
        return_stats = merge_stats(agent.return_stats[...], sums.reshape(-1, 1))
        agent.return_stats[...] = return_stats
        rewards = rewards / return_stats[2].clip(min=1e-4)  # [continuous-8] reward scaling
        rewards = rewards.clip(-10, 10)  # [continuous-9] reward clipping
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
        agent = train_state["agent"]
        if iteration > 1:  # not before the update: other statistics make it another policy
            obs_stats = merge_stats(agent.obs_stats[...], obs)
            agent.obs_stats[...] = obs_stats  # [deviation] statistics once per rollout

        # ------ log ------
        # Advantages are returns - values.
        explained_variance = float(1 - advantages.var() / (returns.var() + 1e-8))
        run.log(jax.device_get(stats), explained_variance, learning_rate, global_step)
        run.save(train_state, iteration)
        if run.stopped():  # Ctrl-C or SIGTERM
            break
    if not run.stopped():
        agent = train_state["agent"]
        run.finish(evaluate(agent, args, run_dir / f"videos/evaluation-{global_step}"))
    return run.exit_code


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    name = name_of_task(args)
    known = (*dm_control_suite.ALL_ENVS, *locomotion.ALL_ENVS, *manipulation.ALL_ENVS)
    if name not in known:
        refuse(f"MuJoCo Playground has no {name}; it has {', '.join(known)}")
    if name in ("ReacherEasy", "ReacherHard") and not hasattr(mujoco.MjSpec, "find_body"):
        refuse(f"MuJoCo {mujoco.__version__} no longer has what Playground's {name} calls")
    try:
        envs = make_envs(replace(args, num_envs=1, capture_video=False), Path())
    except (OSError, subprocess.CalledProcessError) as error:
        if name in dm_control_suite.ALL_ENVS:  # nothing has to be fetched for it: a mistake in it
            raise
        refuse(f"{name} needs the robots of MuJoCo Menagerie, which git could not get: {error}")
    check_spaces(args, envs, gym.spaces.Box, gym.spaces.Box)
    if args.capture_video:
        try:
            mujoco.Renderer(envs.task.mj_model).close()
        except mujoco.FatalError:
            refuse("--capture-video: without a screen, put MUJOCO_GL=egl before the command")


# ====== plumbing: the same lines in every script; nothing below changes what is learned ======
# Imported here, so that the imports above are those of the variant.
import json
import os
import re
import shutil
import signal
import sys
import time
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
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tqdm import tqdm

SCRIPT = Path(__file__)
SCRIPT_FOR = {  # by type of the action space
    "Box": "ppo_continuous_action.py",
    "Discrete": "ppo.py",
    "MultiDiscrete": "ppo_multidiscrete.py",
}
LONGEST_FILM = 5_000  # frames; a film is in memory until it is written
MOST_POINTS = 50  # that a `log` writes of episodes; where more have ended, several share a point


class Run:
    """Metrics, checkpoints and progress of a run: in its folder and on the terminal.

    exit_code: what the program ends with; other than 0 after Ctrl-C or SIGTERM.
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
        self.last_line = time.perf_counter()  # when progress was last printed, off a terminal
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
        (folder / "agent.pt").unlink(missing_ok=True)  # it marks a run that is finished
        print(f"run folder: {folder}")
        print(f"{args.num_envs} environments, device {setup_jax(args).device_kind}", flush=True)
        if args.track:
            start_wandb(args, folder)
        # What was logged after the checkpoint is purged: it will be logged again.
        self.writer: Any = EventFileWriter(str(folder))
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
        """Lets the iteration end; the same signal once more has its usual effect, at once."""
        self.signal_exit_code = 128 + signum
        signal.signal(signum, signal.SIG_DFL)
        if self.all_saved:
            sys.exit(self.signal_exit_code)
        print("\nstopping after this iteration; once more to stop at once", file=sys.stderr)

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
        over = self.step == self.total_steps
        if self.progress.disable and (over or now - self.last_line >= 10):
            self.last_line = now
            speed = f"{metrics.get('charts/SPS', 0):,.0f} steps/s"
            print(f"{self.step:,} of {self.total_steps:,} steps, {speed}, {recent}", flush=True)

    def upload_films(self) -> None:
        """Sends the films that are new to Weights & Biases."""
        import wandb

        films = set(self.folder.glob("videos/*/*.mp4"))
        for film in sorted(films - self.uploaded):
            wandb.log({"videos": wandb.Video(str(film), format="mp4")})
        self.uploaded = films

    def save(self, train_state: dict[str, Any], iteration: int) -> None:
        """Saves a checkpoint every so many iterations, at the end, and before a stop."""
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
        # Written aside and renamed: a kill at any instant leaves a whole checkpoint.
        aside = self.folder / "checkpoint.tmp"
        aside.write_bytes(serialization.msgpack_serialize(state))
        self.writer.flush()
        os.replace(aside, self.folder / "checkpoint.pt")
        self.all_saved = last
        if self.exit_code:
            print(f"saved; --resume {self.folder} goes on", flush=True)

    def stopped(self) -> bool:
        """Whether Ctrl-C or SIGTERM had come when `save` was called last."""
        return self.exit_code != 0

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
    """Writes what is needed to do the run again: the script, flags, versions, hardware."""
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
    shutil.copyfile(SCRIPT, folder / SCRIPT.name)
    aside = folder / "args.tmp"
    aside.write_text(json.dumps(about, indent=1))
    os.replace(aside, folder / "args.json")


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
    for name in ("args.json", SCRIPT.name):
        wandb.save(folder / name, base_path=folder, policy="now")


def load_checkpoint(file: Path) -> dict[str, Any]:
    """What `Run.save` wrote; ends the program if it is something else. Executes nothing of it."""
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
    """Sets determinism and the device that is meant by --device and --cuda; returns the device."""
    flag = "--xla_gpu_exclude_nondeterministic_ops=true"
    if args.torch_deterministic and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    kind, _, number = args.device.partition(":")
    if kind == "cpu" or (kind == "auto" and not args.cuda):
        jax.config.update("jax_platforms", "cpu")
    if number:  # the only one that JAX sees: some libraries always take the first
        jax.config.update("jax_cuda_visible_devices", number)
    device = jax.devices(None if kind == "auto" else kind)[0]
    jax.config.update("jax_default_device", device)
    return device


def refuse(message: str, exit_code: int = 2) -> NoReturn:
    """Ends the program with one line: for input that is known not to work."""
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
    """Refuses flags that cannot work; nothing has been written yet."""
    at_least_0 = [
        "checkpoint_every",
        "clip_coef",
        "eval_episodes",
        "learning_rate",
        "max_grad_norm",
    ]
    at_least_1 = ["num_envs", "num_minibatches", "num_steps", "update_epochs", "video_every"]
    bounds = {name: (0.0, np.inf) for name in at_least_0}
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
    module = args.env_id.rpartition(":")[0]
    try:
        check_envs(args)
    except ModuleNotFoundError as error:
        if error.name != module:  # another import than --env-id's
            raise
        refuse(f"--env-id {args.env_id}: {error}")
    if args.track and os.getenv("WANDB_MODE") not in ("offline", "disabled"):
        import wandb

        if not wandb.login(prompt=False):
            refuse("--track: run `uv run wandb login`, or set WANDB_MODE=offline")


def run_to_resume(args: Args) -> str | None:
    """For --resume auto: the last run of the same command by the same script, if there is one.

    Ends the program with exit code 0 if that run is finished.
    """
    auto = ("--resume", "auto", "--resume=auto")
    command = [word for word in sys.argv[1:] if word not in auto]
    for file in sorted(Path(args.runs_dir).glob("*/args.json"), reverse=True):
        about = json.loads(file.read_text())
        folder = file.parent
        if about["script"] != SCRIPT.name:
            continue
        if [word for word in about["argv"] if word not in auto] != command:
            continue
        if (folder / SCRIPT.name).read_bytes() != SCRIPT.read_bytes():
            print(f"{folder} is of another version of {SCRIPT.name}: a new run begins")
            return None
        if (folder / "agent.pt").exists():
            print(f"{folder} is finished")
            sys.exit(0)
        if (folder / "checkpoint.pt").exists():
            return str(folder)
    print(f"no run of this command in {args.runs_dir} has a checkpoint: a new run begins")
    return None


def resumed_args(args: Args, words: list[str], trained: Args) -> Args:
    """The flags that a run was trained with, overridden by those of the command line."""
    resumed = tyro.cli(Args, args=words, default=trained)
    resumed.resume = args.resume  # the folder that auto stands for
    if resumed.env_id != trained.env_id:
        refuse(f"--resume: the run's --env-id is {trained.env_id}")
    if resumed.anneal_lr and resumed.total_timesteps > trained.total_timesteps:
        print("more --total-timesteps: the learning rate goes up, and is annealed to 0 once more")
    return resumed


def main() -> int:
    """Reads and checks the flags, and trains; returns the exit code."""
    # Whole numbers may be written as 1e6, which int() refuses.
    is_power = re.compile(r"\d+e\d+").fullmatch
    words = [str(int(float(word))) if is_power(word) else word for word in sys.argv[1:]]
    if "--lr" in words:
        refuse("--lr is called --learning-rate here")
    args = tyro.cli(Args, args=words, description=__doc__.splitlines()[0])
    args.runs_dir = os.path.expanduser(args.runs_dir)  # shells leave the ~ in --runs-dir=~/runs
    checkpoint: dict[str, Any] = {}
    if args.resume == "auto":
        args.resume = run_to_resume(args)
    if args.resume:
        checkpoint = load_checkpoint(Path(args.resume) / "checkpoint.pt")
        args = resumed_args(args, words, checkpoint["args"])
    check(args)
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{datetime.now():%Y%m%d-%H%M%S-%f}"
    new_folder = Path(args.runs_dir) / re.sub("[/:]", "-", name)
    return train(args, Path(args.resume) if args.resume else new_folder, checkpoint)


if __name__ == "__main__":
    sys.exit(main())
