# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["filelock>=3.16", "gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1",
#     "numpy>=2", "tensorboard>=2.19", "tqdm>=4.66", "tyro>=0.9.20", "wandb>=0.30",
#     "flax>=0.12", "gymnax==1.0.1", "imageio-ffmpeg>=0.6", "jax>=0.10", "matplotlib>=3.9",
#     "optax>=0.2.8", "six>=1.16"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# [[tool.uv.dependency-metadata]]  # without Gymnasium before 1.4, which it does not need
# name = "gymnax"
# version = "1.0.1"
# requires-dist = ["flax>=0.12", "jax>=0.10", "matplotlib>=3.9", "seaborn>=0.13"]
# ///
"""PPO for gymnax, all of it compiled: environments, rollout, advantages and update in one function.

    uv run ppo/ppo_gymnax.py                                      learns CartPole-v1; 500k steps
    uv run ppo/ppo_gymnax.py --env-id Breakout-MinAtar --num-envs 64 --num-minibatches 8 \
        --learning-rate 1e-3 --total-timesteps 10000000
    uv run --with "jax[cuda12]" ppo/ppo_gymnax.py                 on a GPU

Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool_xla_jax_scan.py
Details: core 1-13, aux 3
Deviations: truncated episodes bootstrapped
"""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array


@dataclass(unsafe_hash=True)  # so that jax.jit can take it as a static argument
class Args:
    # the task
    env_id: str = "CartPole-v1"  # gymnax's name of the environment; actions must be Discrete
    total_timesteps: int = 500_000  # environment steps of each seed
    num_envs: int = 4  # environments stepped side by side
    seed: int = 1  # of the network, the sampled actions and the environments
    num_seeds: int = 1  # seeds trained together: seed, seed + 1, ...
    # the algorithm
    num_steps: int = 128  # steps per environment in each rollout; usually 32 to 2048
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # from one-step errors (0) to whole returns (1); usually 0.9 to 1
    num_minibatches: int = 4  # minibatches that a rollout is cut into; usually 4 to 32
    update_epochs: int = 4  # passes over each rollout; usually 3 to 10
    learning_rate: float = 2.5e-4  # Adam's step size; usually 1e-4 to 1e-3
    anneal_lr: bool = True  # lower the learning rate linearly, to zero at the end
    norm_adv: bool = True  # normalize the advantages of each minibatch
    clip_coef: float = 0.2  # the policy's ratio is clipped to 1 ± this; usually 0.1 to 0.3
    clip_vloss: bool = True  # clip the change of the value at clip_coef as well
    ent_coef: float = 0.01  # weight of the entropy bonus; usually 0 to 0.01
    vf_coef: float = 0.5  # weight of the value loss; usually 0.5 to 1
    max_grad_norm: float = 0.5  # larger gradients are scaled down to this norm; usually 0.5 to 1
    target_kl: float | None = None  # end an update above this KL divergence; usually 0.01 to 0.03
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1; auto is CUDA if jax[cuda12] is installed
    torch_deterministic: bool = False  # deterministic, slow on CUDA; the name is CleanRL's
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: the unfinished run of this command
    log_every: int = 25_000  # environment steps of a compiled call, after which metrics are written
    checkpoint_every: int = 100  # iterations between checkpoints, or more; 0: only at the end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film episodes of the evaluation, of the first seed
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

    @property
    def iterations_per_call(self) -> int:
        """Iterations per compiled call, spread evenly, so that few run past the last one."""
        longest = min(max(self.log_every // self.batch_size, 1), self.num_iterations)
        calls = math.ceil(self.num_iterations / longest)
        return math.ceil(self.num_iterations / calls)


class Gymnax:
    """gymnax's environments, stepped inside compiled functions; LogWrapper adds up their returns.

    Their state is passed in and out: compiled functions must be pure. The step that ends an
    episode returns the next episode's first observation; "final_obs" is the last of the old one.
    """

    def __init__(self, args: Args, videos: Path):
        import gymnax  # here, because it starts JAX: setup_jax must come first
        from gymnax.wrappers.purerl import LogWrapper

        self.videos = videos
        env, self.params = gymnax.make(args.env_id)
        self.env = LogWrapper(env)
        self.single_observation_space = env.observation_space(self.params)
        self.single_action_space = env.action_space(self.params)

    def reset(self, keys: Array) -> tuple[Any, Array]:
        """State, and observations, (num_envs, *shape); keys: one for each environment."""
        obs, env_state = jax.vmap(self.env.reset)(keys)
        # Some begin with weakly typed numbers, for which everything would be compiled twice.
        return jax.tree.map(lambda x: x.astype(x.dtype), (env_state, obs))

    def step(
        self, env_state: Any, actions: Array, keys: Array
    ) -> tuple[Any, Array, dict[str, Array]]:
        """State after the step, observations, (num_envs, *shape), and a dict of (num_envs,) arrays.

        "final_obs" of the dict, (num_envs, *shape): the observations before any reset. "over":
        this step ended an episode, whose return and length are "score" and "length".
        """
        result = jax.vmap(self.env.step)(keys, env_state, actions)
        obs, env_state, rewards, terminated, truncated, info = result
        outcome = {
            "rewards": rewards.astype(jnp.float32),
            "terminated": terminated,
            "truncated": truncated,
            "final_obs": info["final_observation"],
            "over": info["returned_episode"],
            "score": info["returned_episode_returns"],
            "length": info["returned_episode_lengths"],
        }
        return env_state, obs, outcome

    def visualizer(self, env_states: list[Any]) -> Any:
        """gymnax's Visualizer of these states."""
        from gymnax.visualize import Visualizer

        return Visualizer(self.env, self.params, env_states)

    @property
    def metadata(self) -> dict[str, list[str]]:
        """As Gymnasium's. If gymnax can draw the environment, its visualizer has an `im`."""
        _, env_state = self.env.reset(jax.random.key(0))
        visualizer = self.visualizer([env_state.env_state])  # inside LogWrapper's state
        visualizer.init()
        return {"render_modes": ["rgb_array"] if hasattr(visualizer, "im") else []}

    def film(self, env_states: list[Any], episode: int) -> None:
        """Writes a film of an episode, given as gymnax's states."""
        import matplotlib
        from imageio_ffmpeg import get_ffmpeg_exe

        # Without a screen SDL would print an error for each frame.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        self.videos.mkdir(parents=True, exist_ok=True)
        film = self.videos / f"rl-video-episode-{episode}.mp4"
        with matplotlib.rc_context({"animation.ffmpeg_path": get_ffmpeg_exe()}):
            self.visualizer(env_states[:LONGEST_FILM]).animate(film)


def make_envs(args: Args, videos: Path) -> Gymnax:
    """The environments: as many copies as `reset` and `step` get keys."""
    return Gymnax(args, videos)


def flatten(images: Array) -> Array:  # (batch, height, width, channels) to (batch, -1)
    return images.reshape(len(images), -1)


def patches(images: Array) -> Array:
    """All squares of 3 x 3 pixels: (batch, height - 2, width - 2, 9 * channels).

    A linear layer of them is a 3 x 3 convolution. With nnx.Conv the script trained MinAtar's
    Breakout nine times slower on a CPU.
    """
    height, width = images.shape[1] - 2, images.shape[2] - 2
    squares = [images[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(squares, axis=-1)


def linear(inputs: int, outputs: int, std: float, rngs: nnx.Rngs) -> Any:
    """A layer with orthogonal weights of that scale; biases are 0."""
    orthogonal = nnx.initializers.orthogonal(std)  # [core-2] orthogonal initialization
    return nnx.Linear(inputs, outputs, kernel_init=orthogonal, rngs=rngs)


def mlp(inputs: int, outputs: int, std: float, rngs: nnx.Rngs) -> nnx.Sequential:
    """Two hidden layers of 64 units; std scales the weights of the last one."""
    return nnx.Sequential(
        linear(inputs, 64, np.sqrt(2), rngs),
        nnx.tanh,
        linear(64, 64, np.sqrt(2), rngs),
        nnx.tanh,
        linear(64, outputs, std, rngs),
    )


class Agent(nnx.Module):
    """Policy and value function; x: what `features` returns."""

    def __init__(self, envs: Gymnax, rngs: nnx.Rngs):
        shape = envs.single_observation_space.shape
        num_actions = int(envs.single_action_space.n)
        if len(shape) == 3:  # images, like MinAtar's: the network of its authors
            height, width, channels = shape
            self.network = nnx.Sequential(
                patches,
                linear(9 * channels, 16, np.sqrt(2), rngs),
                nnx.relu,
                flatten,
                linear((height - 2) * (width - 2) * 16, 128, np.sqrt(2), rngs),
                nnx.relu,
            )
            self.critic = linear(128, 1, 1.0, rngs)
            self.actor = linear(128, num_actions, 0.01, rngs)
        else:
            size = int(np.prod(shape))
            self.network = nnx.Sequential(flatten)
            self.critic = mlp(size, 1, 1.0, rngs)  # [core-13] separate MLPs for policy and value
            self.actor = mlp(size, num_actions, 0.01, rngs)

    def features(self, obs: Array) -> Array:
        """What the heads take, (batch, size), for observations, (batch, *shape)."""
        return self.network(obs.astype(jnp.float32))

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


def rollout(
    envs: Gymnax, agent: Agent, env_state: Any, obs: Array, key: Array, args: Args
) -> tuple[Any, Array, dict[str, Array]]:
    """Acts for num_steps: the environments' state, the next observations, the trajectory.

    Row t of the trajectory, (num_steps, num_envs, ...), is what was seen and done at step t and
    what came of it. Where truncated, "final_values" has the values of the last observations.
    """

    def one_step(carry: tuple[Any, Array], keys: Array) -> tuple[tuple, dict[str, Array]]:
        env_state, obs = carry
        x = agent.features(obs)
        action = agent.get_action(x, keys[0])
        # This asks for the actor's outputs a second time; XLA computes them once.
        logprob, _, value = agent.get_logprob_entropy_value(x, action)
        env_state, next_obs, outcome = envs.step(env_state, action, keys[1:])
        # Where truncated, next_obs is already the first observation of the next episode.
        # `cond` skips the network's pass where no step truncates; under vmap it skips nothing.
        final_obs = outcome.pop("final_obs")
        final_value = jax.lax.cond(  # [deviation] truncated episodes bootstrapped
            outcome["truncated"].any(),
            lambda: agent.get_value(agent.features(final_obs)),
            lambda: jnp.zeros_like(value),
        )
        transition = {
            "obs": obs,
            "actions": action,
            "logprobs": logprob,
            "values": value,
            "final_values": final_value,
            **outcome,
        }
        return (env_state, next_obs), transition

    keys = jax.random.split(key, (args.num_steps, 1 + args.num_envs))
    (env_state, obs), trajectory = jax.lax.scan(one_step, (env_state, obs), keys)
    return env_state, obs, trajectory


def update_ppo(
    train_state: dict, batch: dict, key: Array, learning_rate: Any, optimizer: Any, args: Args
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


def train_step(
    envs: Gymnax, runner_state: dict[str, Any], iteration: Array, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The runner_state of one seed after an iteration, and what to log."""
    learning_rate = jnp.float32(args.learning_rate)
    if args.anneal_lr:  # [core-4] learning rate annealing
        learning_rate *= 1 - (iteration - 1) / args.num_iterations
    agent, opt_state = runner_state["agent"], runner_state["opt_state"]
    key, rollout_key, update_key = jax.random.split(runner_state["key"], 3)

    # ------ rollout: act in the environments and store what happens ------
    env_state, obs, trajectory = rollout(
        envs, agent, runner_state["env_state"], runner_state["obs"], rollout_key, args
    )

    # ------ advantages: how much better than predicted did things turn out? ------
    rewards, values = trajectory["rewards"], trajectory["values"]
    terminated, truncated = trajectory["terminated"], trajectory["truncated"]
    last_values = agent.get_value(agent.features(obs))
    next_values = jnp.concatenate([values[1:], last_values[None]])
    next_values = jnp.where(truncated, trajectory["final_values"], next_values)
    advantages, returns = compute_gae(rewards, values, next_values, terminated, truncated, args)
    batch = {**trajectory, "advantages": advantages, "returns": returns}

    # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
    train_state = {"agent": agent, "opt_state": opt_state}
    train_state, stats = update_ppo(train_state, batch, update_key, learning_rate, optimizer, args)

    # Advantages are returns - values.
    stats["losses/explained_variance"] = 1 - advantages.var() / (returns.var() + 1e-8)
    stats["charts/learning_rate"] = learning_rate
    episodes = {name: trajectory[name] for name in ("over", "score", "length")}
    runner_state = {**train_state, "env_state": env_state, "obs": obs, "key": key}
    return runner_state, {"stats": stats, "episodes": episodes}


# donate: the new runner_state takes the memory of the old one, which cannot be used again.
@partial(jax.jit, static_argnames=("envs", "optimizer", "args"), donate_argnames="runner_state")
def train_steps(
    envs: Gymnax, runner_state: dict[str, Any], iterations: Array, optimizer: Any, args: Args
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The runner_state of all seeds after some iterations, and what to log.

    runner_state: arrays of (num_seeds, ...). iterations: their numbers, from 1; those beyond the
    last one change nothing. What to log: arrays of (num_seeds, iterations, ...).
    """

    def one_iteration(runner_state: dict, iteration: Array) -> tuple[dict, dict]:
        after, logged = train_step(envs, runner_state, iteration, optimizer, args)
        beyond = iteration > args.num_iterations
        return jax.tree.map(partial(jnp.where, beyond), runner_state, after), logged

    def one_seed(runner_state: dict) -> tuple[dict, dict]:
        return jax.lax.scan(one_iteration, runner_state, iterations)

    if args.num_seeds == 1 or jax.default_backend() == "cpu":  # batched products are slow there
        return jax.lax.map(one_seed, runner_state)
    return jax.vmap(one_seed)(runner_state)


def make_runner_state(envs: Gymnax, optimizer: Any, args: Args) -> dict[str, Any]:
    """What training starts from: arrays of (num_seeds, ...)."""

    def one_seed(seed: Array) -> dict[str, Any]:
        # Keys of the old kind, which are plain arrays: checkpoints save them.
        weights_key, reset_key, key = jax.random.split(jax.random.PRNGKey(seed), 3)
        agent = Agent(envs, nnx.Rngs(weights_key))
        opt_state = optimizer.init(agent)
        reset_keys = jax.random.split(reset_key, args.num_envs)  # [core-1] vectorized
        env_state, obs = envs.reset(reset_keys)
        return {
            "agent": agent,
            "opt_state": opt_state,
            "env_state": env_state,
            "obs": obs,
            "key": key,
        }

    # Not vmap: on a CPU, batched QR decompositions may wait for each other's threads forever.
    return jax.lax.map(one_seed, args.seed + jnp.arange(args.num_seeds))


def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, np.ndarray]:
    """Plays `eval_episodes` whole episodes with the agent of each seed, all side by side.

    Returns results by name, (num_seeds * eval_episodes,) each; NaN where training has diverged.
    """
    envs = make_envs(args, videos)

    @jax.jit
    @jax.vmap
    def reset(seed: Array) -> tuple[Any, Array, Array]:
        reset_key, key = jax.random.split(jax.random.PRNGKey(seed))
        return *envs.reset(jax.random.split(reset_key, args.eval_episodes)), key

    @jax.jit
    @jax.vmap
    def play(agent: Agent, env_state: Any, obs: Array, key: Array) -> tuple:
        key, act_key, step_key = jax.random.split(key, 3)
        action = agent.get_action(agent.features(obs), act_key, greedy)
        step_keys = jax.random.split(step_key, args.eval_episodes)
        return *envs.step(env_state, action, step_keys), key

    # Each environment's first episode counts: otherwise short ones would count more often.
    returns = np.full((args.num_seeds, args.eval_episodes), np.nan)
    lengths = np.zeros((args.num_seeds, args.eval_episodes), int)  # 0 as long as it is not over
    filmed = []  # gymnax's states, of the first seed
    env_state, obs, key = reset(args.seed + jnp.arange(args.num_seeds) + 1_000_000)
    while not lengths.all():
        if args.capture_video:
            filmed.append(jax.tree.map(lambda x: np.asarray(x[0]), env_state.env_state))
        env_state, obs, outcome, key = play(agent, env_state, obs, key)
        first = np.asarray(outcome["over"]) & (lengths == 0)
        returns[first] = np.asarray(outcome["score"])[first]
        lengths[first] = np.asarray(outcome["length"])[first]
    if args.capture_video:
        for episode in range(0, args.eval_episodes, args.video_every):
            seen = filmed[: lengths[0, episode]]
            envs.film([jax.tree.map(lambda x, i=episode: x[i], each) for each in seen], episode)
    is_finite = [np.isfinite(x).reshape(args.num_seeds, -1).all(1) for x in jax.tree.leaves(agent)]
    returns[~np.all(is_finite, axis=0)] = np.nan
    return {"episodic_return": returns.ravel()}


def log_seeds(run: Any, episodes: dict[str, np.ndarray], step: int) -> None:
    """Logs the mean return and length over seeds, and the lowest and the highest return.

    episodes: "over", "score", "length", (num_seeds, ...) each. Seeds in which no episode has ended
    are left out.
    """
    of_seeds = zip(episodes["over"], episodes["score"], episodes["length"], strict=True)
    means = [
        [score[over].mean(), length[over].mean()] for over, score, length in of_seeds if over.any()
    ]
    if means:
        run.recent = np.array(means).tolist()
        returns, lengths = np.transpose(means)
        point = {
            "charts/episodic_return": returns.mean(),
            "charts/episodic_length": lengths.mean(),
            "charts/episodic_return_min": returns.min(),
            "charts/episodic_return_max": returns.max(),
            "charts/episodes": episodes["over"].sum(),
        }
        run.write(point, step)


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: none); returns the exit code."""
    # ------ setup ------
    setup_jax(args)
    global_step = checkpoint.get("global_step", 0)
    envs = make_envs(args, run_dir / "videos")
    optimizer = optax.scale_by_adam(eps=1e-5)  # [core-3] Adam epsilon
    runner_state = jax.jit(partial(make_runner_state, envs, optimizer, args))()
    if checkpoint:
        runner_state = restored(runner_state, checkpoint)
    run = Run(args, run_dir, checkpoint)

    # ------ training ------
    for first in range(
        global_step // args.batch_size + 1, args.num_iterations + 1, args.iterations_per_call
    ):
        iterations = first + jnp.arange(args.iterations_per_call)
        runner_state, logged = train_steps(envs, runner_state, iterations, optimizer, args)
        count = min(args.iterations_per_call, args.num_iterations + 1 - first)
        global_step += count * args.batch_size

        # ------ log ------
        logged = jax.tree.map(lambda x, count=count: x[:, :count], jax.device_get(logged))
        stats = logged["stats"]
        learning_rate = float(stats.pop("charts/learning_rate")[0, -1])
        stats = {name: x.mean(1) for name, x in stats.items()}  # (num_seeds,)
        finite = np.isfinite([*stats.values()]).all(0)  # the seeds that have not diverged
        counted = finite if finite.any() else ~finite  # if all have diverged, `log` shows how
        means = {name: x[counted].mean() for name, x in stats.items()}
        explained_variance = float(means.pop("losses/explained_variance"))
        if args.num_seeds == 1:
            rows = {name: x.reshape(-1, args.num_envs) for name, x in logged["episodes"].items()}
            run.log_episodes(rows, global_step)
        else:
            log_seeds(run, {name: x[finite] for name, x in logged["episodes"].items()}, global_step)
        run.log(means, explained_variance, learning_rate, global_step)
        run.save(runner_state, first + count - 1)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    if not run.exit_code:
        agent = runner_state["agent"]
        run.finish(evaluate(agent, args, run_dir / f"videos/evaluation-{global_step}"))
    return run.exit_code


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    from gymnax import registered_envs
    from gymnax.environments import spaces

    if args.env_id not in registered_envs:
        refuse(f"gymnax has no {args.env_id}; it has {', '.join(registered_envs)}")
    check_spaces(args, make_envs(args, Path()), spaces.Box, spaces.Discrete)
    if min(args.num_seeds, args.log_every) < 1:
        refuse("--num-seeds and --log-every must be at least 1")


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
