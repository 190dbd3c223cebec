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
    uv run --with "jax[cuda12]" ppo/ppo_continuous_action_mjx.py --num-envs 2048       on a GPU

Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool_xla_jax_scan.py
Details: core 1-13, continuous 1-9, aux 3
Deviations: truncated episodes bootstrapped; statistics once per rollout, where baselines updates
them at every step
"""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from flax import nnx
from gymnasium.utils.save_video import save_video
from jax import Array
from jax.scipy.stats import norm
from mujoco_playground import State, dm_control_suite, locomotion, manipulation, registry


@dataclass(unsafe_hash=True)  # so that jax.jit can take it as a static argument
class Args:
    # the task
    env_id: str = "CheetahRun"  # task of MuJoCo Playground, or module:task
    total_timesteps: int = 10_000_000  # environment steps in all
    num_envs: int = 64  # robots simulated side by side; a GPU needs thousands to be busy
    seed: int = 1  # of the network, the sampled actions and the environments
    # the algorithm
    num_steps: int = 32  # steps per environment in each rollout; usually 32 to 2048
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # from one-step errors (0) to whole returns (1); usually 0.9 to 1
    num_minibatches: int = 32  # minibatches that a rollout is cut into; usually 4 to 32
    update_epochs: int = 10  # passes over each rollout; usually 3 to 10
    learning_rate: float = 3e-4  # Adam's step size; usually 1e-4 to 1e-3
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.2  # the policy's ratio is clipped to 1 ± this; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the change of the value at clip_coef as well
    ent_coef: float = 0.0  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # larger gradients are scaled down to this norm; usually 0.5 to 1
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA if jax[cuda12] is installed
    torch_deterministic: bool = False  # deterministic algorithms on CUDA: very slow simulation
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: the unfinished run of this command
    checkpoint_every: int = 100  # iterations between checkpoints; 0: only at the end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film episodes of the trained agent
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


def task_name(args: Args) -> str:
    """The task in `task` or `module:task`; the module, which registers it, is imported."""
    module, _, name = args.env_id.rpartition(":")
    if module:
        import_module(module)
    return name


def plausible(x: Array) -> Array:
    """Zeros in place of NaN and of numbers beyond 1e5, which a simulation that blows up has.

    A single 1e20 would make the normalization useless for good: its deviation would be infinite.
    """
    return jnp.where(jnp.abs(x) <= 1e5, x, 0)


def strongly_typed(x: Any) -> Array:
    """A task's numbers with a definite type; otherwise the rollout would be compiled twice."""
    return jnp.asarray(x, jnp.result_type(x))


class Playground:
    """One robot in a task of MuJoCo Playground, as pure functions; jax.vmap runs many robots.

    Matrix products are in full float32. On NVIDIA GPUs since Ampere JAX's default is TF32, with
    10 bits of mantissa, with which training has failed (mujoco_playground's issue 86).
    """

    def __init__(self, args: Args, videos: Path):
        self.args = args
        self.videos = videos
        name = task_name(args)
        config = registry.get_default_config(name)
        # MuJoCo's physics in JAX runs on every device; Playground's default, Warp, does not.
        overrides = {"impl": "jax"} if "impl" in config else {}
        self.task = registry.load(name, config_overrides=overrides)
        self.time_limit = config.episode_length  # steps
        self.obs_size = jax.eval_shape(self.reset, jax.random.key(0))[1].size
        self.action_size = self.task.action_size

    def observe(self, robot: State) -> Array:  # (obs_size,)
        """What the policy may see; some tasks show the critic more, which is not used here."""
        return plausible(robot.obs["state"] if isinstance(robot.obs, dict) else robot.obs)

    def reset(self, key: Array) -> tuple[dict[str, Any], Array]:
        """The state of a robot at a start drawn at random, and its observation."""
        with jax.default_matmul_precision("highest"):
            robot = self.task.reset(jax.random.key_data(key))  # tasks want keys of the old kind
        robot = jax.tree.map(strongly_typed, robot)
        state = {
            "robot": robot,
            "first": robot,  # what each episode begins with
            "limit": jnp.int32(self.time_limit),  # steps after which the episode is truncated
            "length": jnp.int32(0),
            "score": jnp.float32(0),
            "discounted_return": jnp.float32(0),
        }
        return state, self.observe(robot)

    def step(self, state: dict[str, Any], action: Array) -> tuple[dict, Array, dict[str, Any]]:
        """The state after a step, its observation, and the transition.

        If the step ended an episode, both are of the next one's beginning; "next_obs" of the
        transition is the last observation.
        """
        clipped = action.clip(-1, 1)  # [continuous-5] action clipping for the environment
        with jax.default_matmul_precision("highest"):
            robot = self.task.step(state["robot"], clipped)
        robot = jax.tree.map(strongly_typed, robot)
        reward = plausible(robot.reward)
        discounted_return = reward + self.args.gamma * state["discounted_return"]
        length = state["length"] + 1
        score = state["score"] + reward
        motion = jnp.concatenate([robot.data.qpos, robot.data.qvel])
        blown_up = ~jnp.isfinite(motion).all()  # not all tasks end then by themselves
        terminated = robot.done.astype(bool) | blown_up
        truncated = length == state["limit"]
        done = terminated | truncated
        transition = {
            "next_obs": self.observe(robot),
            "rewards": reward,
            "discounted_returns": discounted_return,
            "terminated": terminated,
            "truncated": truncated,
            "over": done & (state["limit"] == self.time_limit),  # episodes to be reported
            "score": score,
            "length": length,
            # What a film shows.
            "poses": (robot.data.qpos, robot.data.mocap_pos, robot.data.mocap_quat),
        }
        # A new start may take as long as hundreds of steps to compute, so a robot goes back to its
        # first one, as with Playground's wrapper for Brax.
        first = state["first"]
        data = jax.tree.map(partial(jnp.where, done), first.data, robot.data)
        obs = jax.tree.map(partial(jnp.where, done), first.obs, robot.obs)
        # `info` goes on, as there. After a blow-up it may hold NaN; then it goes back as well.
        info = jax.tree.map(partial(jnp.where, blown_up), first.info, robot.info)
        if "_steps" in info:  # tasks that count the steps of an episode must begin again, too
            info = info | {"_steps": jnp.where(done, 0, info["_steps"])}
        state = {
            "robot": robot.replace(data=data, obs=obs, info=info, done=jnp.zeros_like(robot.done)),
            "first": state["first"],
            "limit": jnp.where(done, self.time_limit, state["limit"]),
            "length": jnp.where(done, 0, length),
            "score": jnp.where(done, 0, score),
            "discounted_return": jnp.where(done, 0, discounted_return),
        }
        return state, self.observe(state["robot"]), transition

    def film(self, episode: int, poses: list[Any]) -> None:
        """Films an episode, with about 30 pictures per second; poses: those of a transition."""
        model = self.task.mj_model
        data = mujoco.MjData(model)
        stride = max(1, round(1 / 30 / self.task.dt))  # steps from picture to picture
        frames = []
        with mujoco.Renderer(model) as renderer:
            for pose in poses[::stride]:
                data.qpos, data.mocap_pos, data.mocap_quat = pose
                mujoco.mj_forward(model, data)
                renderer.update_scene(data, camera=0 if model.ncam else -1)
                frames.append(renderer.render())
        fps = 1 / (stride * self.task.dt)
        save_video(frames, str(self.videos), lambda _: True, fps=fps, episode_index=episode)


def make_envs(args: Args, videos: Path) -> Playground:
    """The task; jax.vmap runs `num_envs` robots of it. Films go to `videos`."""
    return Playground(args, videos)


def mlp(inputs: int, outputs: int, std: float, rngs: nnx.Rngs) -> nnx.Sequential:
    """Two hidden layers of 64 units; std scales the weights of the last one; biases are 0."""
    orthogonal = nnx.initializers.orthogonal  # [core-2] orthogonal initialization
    return nnx.Sequential(
        nnx.Linear(inputs, 64, kernel_init=orthogonal(np.sqrt(2)), rngs=rngs),
        nnx.tanh,
        nnx.Linear(64, 64, kernel_init=orthogonal(np.sqrt(2)), rngs=rngs),
        nnx.tanh,
        nnx.Linear(64, outputs, kernel_init=orthogonal(std), rngs=rngs),
    )


@jax.jit
def merge_stats(stats: Array, x: Array) -> Array:
    """Merges x, (..., size), into stats, (3, size): count, mean, standard deviation.

    The pooled variance is the mean of both variances, weighted by size, plus a term for the
    distance between the means (Chan, Golub and LeVeque, 1979).
    """
    x = x.reshape(-1, stats.shape[1])
    count = stats[0] + len(x)
    share = len(x) / count
    delta = x.mean(0) - stats[1]
    mean_of_variances = (1 - share) * stats[2] ** 2 + share * x.var(0)
    variance = mean_of_variances + share * (1 - share) * delta**2
    return jnp.stack([count, stats[1] + share * delta, jnp.sqrt(variance)])


class Agent(nnx.Module):
    """Policy and value function; x: observations, (..., obs_size)."""

    def __init__(self, envs: Playground, rngs: nnx.Rngs):
        obs_size, action_size = envs.obs_size, envs.action_size
        self.critic = mlp(obs_size, 1, 1.0, rngs)  # [core-13] separate MLPs for policy and value
        self.actor = mlp(obs_size, action_size, 0.01, rngs)  # [continuous-4] separate MLPs
        self.actor_logstd = nnx.Param(jnp.zeros(action_size))  # [continuous-2] state-independent
        stats = jnp.array([[0.0], [0.0], [1.0]])  # count, mean, std; part of every checkpoint
        self.obs_stats = nnx.Variable(jnp.tile(stats, obs_size))
        self.return_stats = nnx.Variable(stats)

    def normalize(self, x: Array) -> Array:  # (..., obs_size)
        """Observations, shifted and scaled by the statistics so far."""
        _, mean, std = jax.lax.stop_gradient(self.obs_stats[...])
        x = (x - mean) / std.clip(min=1e-4)  # [continuous-6] observation normalization
        return x.clip(-10, 10)  # [continuous-7] observation clipping

    def get_value(self, x: Array) -> Array:  # (...,)
        return self.critic(self.normalize(x)).squeeze(-1)

    def get_action(self, x: Array, key: Array, greedy: bool = False) -> Array:  # (..., size)
        """Sampled actions; the most probable ones if greedy."""
        mean = self.actor(self.normalize(x))
        if greedy:
            return mean
        return mean + jnp.exp(self.actor_logstd[...]) * jax.random.normal(key, mean.shape)

    def get_logprob_entropy_value(self, x: Array, action: Array) -> tuple[Array, ...]:
        """Log-probability of each action, the policy's entropy and the value: (...,) each."""
        normalized = self.normalize(x)
        mean = self.actor(normalized)
        logstd = self.actor_logstd[...]
        std = jnp.exp(logstd)
        logprobs = norm.logpdf(action, mean, std)  # [continuous-1] normal distribution
        logprob = logprobs.sum(-1)  # [continuous-3] independent components
        entropy = (logstd + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum()
        return logprob, jnp.full_like(logprob, entropy), self.critic(normalized).squeeze(-1)


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
        newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(mb["obs"], mb["actions"])
        return ppo_loss(newlogprob, entropy, newvalue, mb, args)

    gradient, stats = jax.grad(loss_of, has_aux=True)(agent)
    grad_norm = optax.tree.norm(gradient)
    scale = jnp.minimum(args.max_grad_norm / (grad_norm + 1e-6), 1.0)
    gradient = jax.tree.map(lambda g: g * scale, gradient)  # [core-11] global gradient clipping
    return gradient, {**stats, "losses/grad_norm": grad_norm}


@partial(jax.jit, static_argnames=("envs", "steps", "greedy"))
def rollout(
    envs: Playground, agent: Agent, runner_state: tuple, key: Array, steps: int, greedy: bool
) -> tuple[tuple, dict[str, Any]]:
    """Acts for some steps: the runner_state after them, and the trajectory.

    runner_state: state and observation of each robot. trajectory: row t of its arrays,
    (steps, num_envs, ...), has what happened at step t.
    """

    def env_step(runner_state: tuple, key: Array) -> tuple[tuple, dict[str, Any]]:
        state, obs = runner_state
        action = agent.get_action(obs, key, greedy)
        state, next_obs, transition = jax.vmap(envs.step)(state, action)  # [core-1] vectorized
        return (state, next_obs), {"obs": obs, "actions": action, **transition}

    return jax.lax.scan(env_step, runner_state, jax.random.split(key, steps))


# donate: the memory of the old train_state becomes the new one's; the old one cannot be used again.
@partial(jax.jit, static_argnames=("optimizer", "args"), donate_argnames="train_state")
def update_ppo(
    train_state: dict, batch: dict, key: Array, learning_rate: float, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The train_state after a few epochs of gradient steps on a rollout; means of statistics.

    train_state: agent and opt_state. batch: arrays of (num_steps, num_envs, ...).
    """
    batch = {name: x.reshape(args.batch_size, *x.shape[2:]) for name, x in batch.items()}

    def update_minibatch(train_state: dict, mb_inds: Array) -> tuple[dict, dict[str, Array]]:
        gradient, stats = compute_gradient(train_state["agent"], batch, mb_inds, args)
        # The step that Adam would take with a learning rate of 1.
        direction, opt_state = optimizer.update(gradient, train_state["opt_state"])
        agent = jax.tree.map(lambda p, d: p - learning_rate * d, train_state["agent"], direction)
        return {"agent": agent, "opt_state": opt_state}, stats

    def update_epoch(carry: tuple[dict, Array], epoch_key: Array) -> tuple[tuple, tuple]:
        train_state, stopped = carry
        shuffled = jax.random.permutation(epoch_key, args.batch_size)
        minibatches = shuffled.reshape(args.num_minibatches, -1)  # [core-6] mini-batch updates
        updated, stats = jax.lax.scan(update_minibatch, train_state, minibatches)
        counts = ~stopped  # a scan cannot stop early: what comes after the stop is discarded
        if args.target_kl is not None:
            keep_if_stopped = partial(jnp.where, stopped)
            updated = jax.tree.map(keep_if_stopped, train_state, updated)
            kl = stats["losses/approx_kl"][-1]
            stopped |= kl > args.target_kl  # [aux-3] early stopping on KL
        return (updated, stopped), (stats, counts)

    epoch_keys = jax.random.split(key, args.update_epochs)
    begin = (train_state, jnp.array(False))
    (train_state, _), (stats, counts) = jax.lax.scan(update_epoch, begin, epoch_keys)
    return train_state, {name: x.mean(1).mean(where=counts) for name, x in stats.items()}


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, np.ndarray]:
    """Plays `eval_episodes` whole episodes; returns results by name, (episodes,) each."""
    if args.eval_episodes == 0:
        return {"episodic_return": np.zeros(0)}
    envs = make_envs(args, videos)
    reset_key, act_key = jax.random.split(jax.random.key(args.seed + 1_000_000))
    runner_state = jax.jit(jax.vmap(envs.reset))(jax.random.split(reset_key, args.eval_episodes))
    _, trajectory = rollout(envs, agent, runner_state, act_key, envs.time_limit, greedy)
    # Each robot's first episode counts: otherwise short episodes would count more often.
    ends = np.argmax(trajectory["over"], axis=0)
    if args.capture_video:
        for episode in range(0, args.eval_episodes, args.video_every):
            poses = [np.asarray(x[: ends[episode] + 1, episode]) for x in trajectory["poses"]]
            envs.film(episode, list(zip(*poses, strict=True)))
    return {"episodic_return": np.asarray(trajectory["score"])[ends, np.arange(len(ends))]}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: none); returns the exit code."""
    # ------ setup ------
    setup_jax(args)
    global_step = checkpoint.get("global_step", 0)
    envs = make_envs(args, run_dir)
    # split and fold_in derive the same keys from a key, so no key is given to both.
    weights_key, env_key, train_key = jax.random.split(jax.random.key(args.seed), 3)
    agent = jax.jit(lambda: Agent(envs, nnx.Rngs(weights_key)))()
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    train_state = {"agent": agent, "opt_state": optimizer.init(agent)}
    if checkpoint:
        train_state = restored(train_state, checkpoint)
    run = Run(args, run_dir, checkpoint)
    evaluate_actions = jax.jit(Agent.get_logprob_entropy_value)
    get_value = jax.jit(Agent.get_value)

    # ------ training ------
    part_key = jax.random.fold_in(env_key, global_step // args.batch_size)
    reset_key, limit_key = jax.random.split(part_key)
    state, obs = jax.jit(jax.vmap(envs.reset))(jax.random.split(reset_key, args.num_envs))
    # First episodes are cut at random lengths and not reported. Otherwise, where no robot falls,
    # all would stay at the same step, and each rollout would show a small part of an episode.
    limits = jax.random.randint(limit_key, (args.num_envs,), 1, envs.time_limit + 1)
    runner_state = (state | {"limit": limits}, obs)
    for iteration in range(global_step // args.batch_size + 1, args.num_iterations + 1):
        learning_rate = args.learning_rate
        if args.anneal_lr:  # [core-4] learning rate annealing
            learning_rate *= 1 - (iteration - 1) / args.num_iterations
        rollout_key, update_key = jax.random.split(jax.random.fold_in(train_key, iteration))

        # ------ rollout: act in the environments and store what happens ------
        agent = train_state["agent"]
        runner_state, trajectory = rollout(
            envs, agent, runner_state, rollout_key, args.num_steps, greedy=False
        )
        global_step += args.batch_size
        run.log_episodes(trajectory, global_step)

        # ------ advantages: how much better than predicted did things turn out? ------
        # The weights are still those that acted, so these are the old policy's log-probabilities
        # and values. One pass over the whole rollout is faster than one at each step.
        obs, actions = trajectory["obs"], trajectory["actions"]
        terminated, truncated = trajectory["terminated"], trajectory["truncated"]
        if iteration == 1:  # the rollout acted on raw observations; the update sees normalized ones
            agent.obs_stats[...] = merge_stats(agent.obs_stats[...], obs)
        logprobs, _, values = evaluate_actions(agent, obs, actions)
        next_obs = trajectory["next_obs"]  # [deviation] truncated episodes bootstrapped
        next_values = get_value(agent, next_obs)
        discounted_returns = trajectory["discounted_returns"]
        agent.return_stats[...] = merge_stats(agent.return_stats[...], discounted_returns)
        std = agent.return_stats[2].clip(min=1e-4)
        rewards = trajectory["rewards"] / std  # [continuous-8] reward scaling
        rewards = rewards.clip(-10, 10)  # [continuous-9] reward clipping
        advantages, returns = compute_gae(rewards, values, next_values, terminated, truncated, args)
        batch = {
            "obs": obs,
            "actions": actions,
            "logprobs": logprobs,
            "values": values,
            "advantages": advantages,
            "returns": returns,
        }

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        train_state, stats = update_ppo(
            train_state, batch, update_key, learning_rate, optimizer, args
        )
        if iteration > 1:  # only after the update, which concerns the policy that acted
            agent = train_state["agent"]
            obs_stats = merge_stats(agent.obs_stats[...], obs)
            agent.obs_stats[...] = obs_stats  # [deviation] statistics once per rollout

        # ------ log ------
        # Advantages are returns - values.
        explained_variance = float(1 - advantages.var() / (returns.var() + 1e-8))
        run.log(jax.device_get(stats), explained_variance, learning_rate, global_step)
        run.save(train_state, iteration)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    if not run.exit_code:
        videos = run_dir / f"videos/evaluation-{global_step}"
        run.finish(evaluate(train_state["agent"], args, videos))
    return run.exit_code


def check_envs(args: Args) -> None:
    """Refuses a task that Playground does not have, and films without a screen."""
    name = task_name(args)
    known = (*dm_control_suite.ALL_ENVS, *locomotion.ALL_ENVS, *manipulation.ALL_ENVS)
    if name not in known:
        refuse(f"MuJoCo Playground has no {name}; it has {', '.join(known)}")
    envs = make_envs(args, Path())
    if args.capture_video:
        try:
            mujoco.Renderer(envs.task.mj_model).close()
        except (mujoco.FatalError, AttributeError, RuntimeError):  # depends on what is missing
            refuse("--capture-video: without a screen, put MUJOCO_GL=egl before the command")


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
