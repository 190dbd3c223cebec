# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["filelock>=3.16", "gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1",
#     "numpy>=2", "tensorboard>=2.19", "torch>=2.11", "tqdm>=4.66", "tyro>=0.9.20",
#     "wandb>=0.30",
#     "gymnasium[mujoco]>=1.4,<2", "mujoco<4", "shimmy[dm-control]>=2; python_version<'3.13'"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for vector observations and continuous actions: MuJoCo, Box2D, dm_control.

    uv run ppo/ppo_continuous_action.py                                  learns HalfCheetah-v5
    uv run ppo/ppo_continuous_action.py --env-id dm_control/cartpole-balance-v0 --seed 2

Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo.py
Details: core 1-13, continuous 1-9, aux 3
Deviations: truncated episodes bootstrapped; statistics once per rollout, where baselines updates
them at every step
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.distributions import Normal
from torch.nn.utils import clip_grad_norm_


@dataclass
class Args:
    # the task
    env_id: str = "HalfCheetah-v5"  # environment: Box or Dict observations, Box actions
    total_timesteps: int = 1_000_000  # environment steps in all
    num_envs: int = 1  # environments stepped side by side
    seed: int = 1  # of the network, the sampled actions and the environments
    # the algorithm
    num_steps: int = 2048  # steps per environment in each rollout; usually 32 to 2048
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
    rpo_alpha: float = 0.0  # Robust Policy Optimization, arxiv.org/abs/2212.07536; usually 0.5
    # the machine
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps; auto is CUDA if available
    torch_deterministic: bool = True  # deterministic cuDNN algorithms
    torch_threads: int = 1  # CPU threads of torch; one is fastest for small networks
    async_envs: bool = False  # a worker process for each environment: for slow simulators
    compile: bool = False  # compile the update: half a minute at the start, then faster
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


def make_envs(args: Args, videos: Path) -> gym.vector.VectorEnv:
    """A vector of `num_envs` environments; with --capture-video the first is filmed to `videos`."""

    def make_env(film: bool) -> gym.Env:
        if args.env_id.startswith("dm_control/"):
            import shimmy

            gym.register_envs(shimmy)
        options = {"render_mode": "rgb_array"} if film else {}
        env = gym.make(args.env_id, **options)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        if film:
            env = Film(env, str(videos), lambda n: n % args.video_every == 0)
        env = gym.wrappers.FlattenObservation(env)
        if isinstance(env.action_space, gym.spaces.Box):  # others are for check_envs to refuse
            env = gym.wrappers.ClipAction(env)  # [continuous-5] action clipping for the environment
        # Copied: some simulators reuse one array, so a reset would overwrite the last observation.
        return gym.wrappers.TransformObservation(env, np.copy, None)

    env_fns = [partial(make_env, args.capture_video and i == 0) for i in range(args.num_envs)]
    in_workers = args.async_envs and len(env_fns) > 1  # a single one needs no worker
    vector_env = gym.vector.AsyncVectorEnv if in_workers else gym.vector.SyncVectorEnv
    # "SameStep": the step that ends an episode returns the first observation of the next one; the
    # last one is in infos["final_obs"]. copy=False: each step overwrites the array it returned.
    return vector_env(env_fns, autoreset_mode="SameStep", copy=False)  # [core-1] vectorized


def layer_init(layer: Any, std: float = np.sqrt(2)) -> Any:
    """Initializes a layer: orthogonal weights scaled by std, biases of 0."""
    nn.init.orthogonal_(layer.weight, std)  # [core-2] orthogonal initialization
    nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int, outputs: int, std: float) -> nn.Sequential:
    """Two hidden layers of 64 units; std scales the weights of the last one."""
    return nn.Sequential(
        nn.Flatten(),
        layer_init(nn.Linear(inputs, 64)),
        nn.Tanh(),
        layer_init(nn.Linear(64, 64)),
        nn.Tanh(),
        layer_init(nn.Linear(64, outputs), std),
    )


def merge_stats(stats: Tensor, x: Tensor) -> None:
    """Merges rows of x, (rows, size), into stats, (3, size): count, mean, standard deviation.

    The pooled variance is the mean of both variances, weighted by size, plus a term for the
    distance between the means (Chan, Golub and LeVeque, 1979).
    """
    count = stats[0] + len(x)
    share = len(x) / count
    delta = x.mean(0) - stats[1]
    mean_of_variances = torch.lerp(stats[2] ** 2, x.var(0, correction=0), share)
    variance = mean_of_variances + share * (1 - share) * delta**2
    stats.copy_(torch.stack([count, stats[1] + share * delta, variance.sqrt()]))


class Agent(nn.Module):
    """Policy and value function; x: observations, (batch, *shape of one)."""

    def __init__(self, envs: gym.vector.VectorEnv):
        super().__init__()
        obs_size = int(np.prod(envs.single_observation_space.shape))
        self.critic = mlp(obs_size, 1, std=1.0)  # [core-13] separate MLPs for policy and value
        shape = envs.single_action_space.shape
        self.actor = mlp(obs_size, int(np.prod(shape)), std=0.01)  # [continuous-4] separate MLPs
        self.actor_logstd = nn.Parameter(torch.zeros(shape))  # [continuous-2] state-independent
        stats = torch.tensor([[0.0], [0.0], [1.0]])  # count, mean, std; part of every checkpoint
        self.obs_stats = nn.Buffer(stats.repeat(1, obs_size))
        self.return_stats = nn.Buffer(stats)

    def normalize(self, x: Tensor) -> Tensor:  # (batch, obs_size)
        """Observations, shifted and scaled by the statistics so far."""
        _, mean, std = self.obs_stats
        x = (x - mean) / std.clamp(min=1e-4)  # [continuous-6] observation normalization
        return x.clamp(-10, 10)  # [continuous-7] observation clipping

    def get_value(self, x: Tensor) -> Tensor:  # (batch,)
        return self.critic(self.normalize(x)).squeeze(-1)

    def get_action(self, x: Tensor, greedy: bool = False) -> Tensor:  # (batch, *shape)
        """Sampled actions; the most probable ones if greedy."""
        mean = self.actor(self.normalize(x)).view(-1, *self.actor_logstd.shape)
        if greedy:
            return mean
        # With Normal's own sample() the script would be 12 % slower.
        return mean + self.actor_logstd.exp() * torch.randn_like(mean)

    def get_logprob_entropy_value(self, x: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        """Log-probability of each action, the policy's entropy and the value: (batch,) each."""
        normalized = self.normalize(x)
        mean = self.actor(normalized).view(action.shape)
        std = self.actor_logstd.exp()
        policy = Normal(mean, std, validate_args=False)  # [continuous-1] normal distribution
        logprob = policy.log_prob(action).view(len(x), -1).sum(-1)  # [continuous-3] independent
        entropy = policy.entropy().view(len(x), -1).sum(-1)
        return logprob, entropy, self.critic(normalized).squeeze(-1)


def compute_gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    args: Args,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and returns: equation 16 of arxiv.org/abs/1506.02438.

    All arrays are (num_steps, num_envs). rewards, terminated, truncated: what step t returned.
    values, next_values: of the observations before and after step t.
    """
    # After termination nothing follows; after truncation next_values has the last observation's.
    deltas = rewards + args.gamma * next_values * ~terminated - values
    done = terminated | truncated
    advantages = np.zeros_like(rewards)
    lastgaelam = np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        lastgaelam = deltas[t] + args.gamma * args.gae_lambda * ~done[t] * lastgaelam
        advantages[t] = lastgaelam  # [core-5] generalized advantage estimation
    return advantages, advantages + values


def ppo_loss(
    newlogprob: Tensor, entropy: Tensor, newvalue: Tensor, mb: dict[str, Tensor], args: Args
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of a minibatch and statistics: equations 7 and 9 of arxiv.org/abs/1707.06347.

    newlogprob, entropy, newvalue: (minibatch_size,), from the network that is being trained.
    mb: logprobs, values, advantages, returns: (minibatch_size,), from the rollout.
    """
    logratio = newlogprob - mb["logprobs"]
    ratio = logratio.exp()  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:  # [core-7] advantage normalization, in each minibatch
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clipped_ratio = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
    # The minimum: no gain from moving the ratio further out, but a gradient to move it back.
    surrogate = torch.min(ratio * advantages, clipped_ratio * advantages)
    pg_loss = -surrogate.mean()  # [core-8] clipped surrogate objective
    v_error = (newvalue - mb["returns"]) ** 2
    if args.clip_vloss:  # [core-9] value function loss clipping
        v_change = (newvalue - mb["values"]).clamp(-args.clip_coef, args.clip_coef)
        v_error = torch.max(v_error, (mb["values"] + v_change - mb["returns"]) ** 2)
    v_loss = 0.5 * v_error.mean()
    entropy_loss = entropy.mean()
    loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss  # [core-10] overall loss
    with torch.no_grad():
        stats = {  # [core-12] debug variables
            "losses/policy_loss": pg_loss.detach(),
            "losses/value_loss": v_loss.detach(),
            "losses/entropy": entropy_loss.detach(),
            "losses/old_approx_kl": -logratio.mean(),
            "losses/approx_kl": (ratio - 1 - logratio).mean(),  # joschu.net/blog/kl-approx.html
            "losses/clipfrac": ((ratio - 1).abs() > args.clip_coef).float().mean(),
        }
    return loss, stats


def compute_gradient(
    agent: Agent, batch: dict[str, Tensor], mb_inds: Tensor, args: Args
) -> dict[str, Tensor]:
    """Leaves the clipped gradient of a minibatch in the agent's parameters; returns statistics."""
    mb = {name: x[mb_inds] for name, x in batch.items()}
    if args.rpo_alpha:  # noise on an action changes its log-probability as noise on the mean does
        # So the ratio does not start at 1, and KL divergence and clip fraction are high.
        mb["actions"] += torch.empty_like(mb["actions"]).uniform_(-args.rpo_alpha, args.rpo_alpha)
    newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(mb["obs"], mb["actions"])
    loss, stats = ppo_loss(newlogprob, entropy, newvalue, mb, args)
    loss.backward()
    params = agent.parameters()
    grad_norm = clip_grad_norm_(params, args.max_grad_norm)  # [core-11] global gradient clipping
    return {**stats, "losses/grad_norm": grad_norm}


@torch.no_grad()
def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, np.ndarray]:
    """Plays `eval_episodes` whole episodes; returns results by name, (episodes,) each."""
    envs = make_envs(replace(args, num_envs=1), videos)
    device = next(agent.parameters()).device
    next_obs, _ = envs.reset(seed=args.seed + 1_000_000)
    returns: list[float] = []
    while len(returns) < args.eval_episodes:
        obs = torch.as_tensor(next_obs, dtype=torch.float32, device=device)
        action = agent.get_action(obs, greedy)
        next_obs, _, _, _, infos = envs.step(action.cpu().numpy())
        if "episode" in infos.get("final_info", {}):
            returns.append(infos["final_info"]["episode"]["r"][0])
    envs.close()
    return {"episodic_return": np.array(returns)}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: none); returns the exit code."""
    # ------ setup ------
    device = setup_torch(args)
    global_step = checkpoint.get("global_step", 0)
    torch.manual_seed(args.seed + global_step)  # a resumed run must not repeat its beginning
    envs = make_envs(args, run_dir / f"videos/from-step-{global_step}")
    agent = Agent(envs).to(device)
    optimizer = optim.Adam(
        agent.parameters(),
        lr=args.learning_rate,
        eps=1e-5,  # [core-3] Adam epsilon
        fused=True,  # one pass over all weights: faster
    )
    if checkpoint:
        agent.load_state_dict(checkpoint["agent"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        optimizer.param_groups[0]["lr"] = args.learning_rate  # --learning-rate may have changed
    run = Run(args, run_dir, checkpoint)
    gradient = compiled(compute_gradient, device) if args.compile else compute_gradient

    # ------ storage: row t holds what happened at step t ------
    shape = (args.num_steps, args.num_envs)
    obs_shape = envs.single_observation_space.shape
    action_shape = envs.single_action_space.shape
    obs = torch.zeros((*shape, *obs_shape), device=device)
    actions = torch.zeros((*shape, *action_shape), device=device)
    rewards = np.zeros(shape, np.float32)
    discounted = np.zeros(shape, np.float32)  # an episode's rewards so far, discounted by age
    terminated = np.zeros(shape, bool)  # the episode ended
    truncated = np.zeros(shape, bool)  # a time limit cut the episode off
    final_values = np.zeros(shape, np.float32)  # values of the last observations, where truncated

    # ------ training ------
    next_obs, _ = envs.reset(seed=args.seed + global_step)
    discounted_return = np.zeros(args.num_envs, np.float32)  # of each episode under way
    for iteration in range(global_step // args.batch_size + 1, args.num_iterations + 1):
        if args.anneal_lr:  # [core-4] learning rate annealing
            remaining = 1 - (iteration - 1) / args.num_iterations
            optimizer.param_groups[0]["lr"] = remaining * args.learning_rate

        # ------ rollout: act in the environments and store what happens ------
        with torch.inference_mode():
            for step in range(args.num_steps):
                obs[step] = torch.from_numpy(next_obs)
                action = agent.get_action(obs[step])
                actions[step] = action
                result = envs.step(action.cpu().numpy())
                next_obs, rewards[step], terminated[step], truncated[step], infos = result
                if truncated[step].any():  # [deviation] truncated episodes bootstrapped
                    # Their next_obs is already the first observation of the next episode.
                    final_rows = np.stack(infos["final_obs"][truncated[step]])
                    final_obs = torch.as_tensor(final_rows, dtype=obs.dtype, device=device)
                    final_values[step, truncated[step]] = agent.get_value(final_obs).cpu()
                global_step += args.num_envs
                run.log_episodes(infos, global_step)

        # ------ advantages: how much better than predicted did things turn out? ------
        # The weights are still those that acted, so these are the old policy's log-probabilities
        # and values. One pass over the whole rollout is faster than one at each step.
        x = obs.flatten(0, 1)
        if iteration == 1:  # the rollout acted on raw observations; the update sees normalized ones
            merge_stats(agent.obs_stats, x)
        flat_actions = actions.flatten(0, 1)
        with torch.no_grad():
            logprobs, _, flat_values = agent.get_logprob_entropy_value(x, flat_actions)
            last_obs = torch.as_tensor(next_obs, dtype=obs.dtype, device=device)
            last_values = agent.get_value(last_obs)
        all_values = torch.cat([flat_values, last_values]).view(-1, args.num_envs).cpu().numpy()
        values = all_values[:-1]
        next_values = np.where(truncated, final_values, all_values[1:])
        done = terminated | truncated
        for t in range(args.num_steps):
            discounted[t] = rewards[t] + args.gamma * discounted_return
            discounted_return = discounted[t] * ~done[t]
        merge_stats(agent.return_stats, torch.from_numpy(discounted).view(-1, 1).to(device))
        rewards /= max(agent.return_stats[2].item(), 1e-4)  # [continuous-8] reward scaling
        rewards.clip(-10, 10, out=rewards)  # [continuous-9] reward clipping
        advantages, returns = compute_gae(rewards, values, next_values, terminated, truncated, args)
        batch = {
            "obs": obs.flatten(0, 1),
            "actions": flat_actions,
            "logprobs": logprobs,
            "values": flat_values,
            "advantages": torch.from_numpy(advantages).flatten().to(device),
            "returns": torch.from_numpy(returns).flatten().to(device),
        }

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        stats = []
        for _epoch in range(args.update_epochs):
            shuffled = torch.randperm(args.batch_size, device=device)
            for mb_inds in shuffled.chunk(args.num_minibatches):  # [core-6] mini-batch updates
                optimizer.zero_grad()
                stats.append(gradient(agent, batch, mb_inds, args))
                optimizer.step()
            if args.target_kl is not None and stats[-1]["losses/approx_kl"] > args.target_kl:
                break  # [aux-3] early stopping on KL
        if iteration > 1:  # only after the update, which concerns the policy that acted
            merge_stats(agent.obs_stats, x)  # [deviation] statistics once per rollout

        if not agent.obs_stats.isfinite().all():  # clamped, inf does not show in the losses
            refuse(f"step {global_step}: an observation is not finite", exit_code=1)

        # ------ log ------
        explained_variance = 1 - (returns - values).var() / (returns.var() + 1e-8)
        run.log(stats, explained_variance, optimizer, global_step)
        run.save(agent, optimizer, iteration)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    envs.close()
    if not run.exit_code:
        run.finish(evaluate(agent, args, run_dir / f"videos/evaluation-{global_step}"))
    return run.exit_code


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    # Before MuJoCo loads Mesa: this imports Triton, which crashes if it is loaded later.
    from torch import _dynamo  # noqa: F401

    if args.env_id.startswith("dm_control/") and sys.version_info >= (3, 13):
        refuse("dm_control needs Python 3.11 or 3.12: uv run --python 3.12 ...")
    envs = make_envs(replace(args, num_envs=1, capture_video=False), Path())
    check_spaces(args, envs, gym.spaces.Box, gym.spaces.Box)
    envs.close()
    if not np.issubdtype(envs.single_action_space.dtype, np.floating):
        refuse(f"{args.env_id} acts in a Box of whole numbers: make a MultiDiscrete of it")
    if not args.rpo_alpha >= 0:
        refuse("--rpo-alpha starts at 0")
    if args.capture_video and "mujoco" in sys.modules:  # the environment is one of MuJoCo's
        import mujoco

        try:
            mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>")).close()
        except (mujoco.FatalError, AttributeError, RuntimeError):  # depends on what is missing
            refuse("--capture-video: without a screen, put MUJOCO_GL=egl before the command")


# ====== plumbing: the same in every PyTorch script; nothing below changes what is learned ======
# Imported here, so that the imports at the top are only those of the algorithm.
import json
import logging
import multiprocessing
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
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

SCRIPT = Path(__file__)
SCRIPT_FOR = {  # by type of the action space
    "Box": "ppo_continuous_action.py",
    "Discrete": "ppo.py",
    "MultiDiscrete": "ppo_multidiscrete.py",
}
LONGEST_FILM = 5_000  # frames; a film is in memory until it is written
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; `kill` and batch systems


class Run:
    """Metrics, checkpoints and progress of a run: in its folder and on the terminal.

    writes: whether this process writes them; of several that train together only one does.
    exit_code: of the program; not 0 once `save` has seen Ctrl-C or SIGTERM.
    """

    def __init__(self, args: Args, folder: Path, checkpoint: dict[str, Any], writes: bool = True):
        self.args = args
        self.folder = folder
        self.writes = writes
        self.step = checkpoint.get("global_step", 0)  # as of the last `log`
        self.total_steps = args.num_iterations * args.batch_size
        self.recent = checkpoint.get("recent", [])  # return and length of the last 100 episodes
        self.episodes: list[tuple[int, str, float, int]] = []  # new: step, player, return, length
        self.first_log: tuple[float, int] | None = None  # time and step that speed is counted from
        self.last_line = time.perf_counter()  # when progress was last printed, without a terminal
        self.signal_exit_code = 0  # of the signal that has come, if any
        self.exit_code = 0  # the same, once `save` has seen it
        self.all_saved = self.step >= self.total_steps  # training is over, and saved
        signal.signal(signal.SIGINT, self.on_signal)
        signal.signal(signal.SIGTERM, self.on_signal)
        hold_signals(())
        if not writes:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(folder / ".lock")  # held until the process ends
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            refuse(f"{folder}: another process is writing this run")
        describe_run(args, folder / f"resumed_at_{self.step}" if checkpoint else folder)
        print(f"run folder: {folder}")
        num_envs = args.batch_size // args.num_steps  # of all processes
        print(f"{num_envs} environments, device {setup_torch(args)}", flush=True)
        if args.track:
            start_wandb(args, folder)
        for name in ("agent.pt", "diverged"):  # they mark a run that is over
            (folder / name).unlink(missing_ok=True)
        # Purges what was logged after the checkpoint: it will be logged again.
        self.writer: Any = SummaryWriter(str(folder), purge_step=self.step + 1)
        rows = [f"| {name} | {value} |" for name, value in asdict(args).items()]
        table = "\n".join(["| flag | value |", "|---|---|", *rows])
        self.writer.add_text("hyperparameters", table, self.step)
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

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Writes all metrics in one event, which is faster than an add_scalar for each."""
        values = [Summary.Value(tag=name, simple_value=x) for name, x in metrics.items()]
        self.writer.file_writer.add_summary(Summary(value=values), step)

    def log_episodes(self, infos: dict[str, Any], step: int, players: int = 1) -> None:
        """Collects the episodes that ended in a step.

        players: of each game; row i belongs to player i % players.
        """
        final_info = infos.get("final_info", {})
        if "_episode" not in final_info:
            return
        returns = final_info["episode"]["r"]
        lengths = final_info["episode"]["l"]
        for i in np.flatnonzero(final_info["_episode"]):
            player = f"-player{i % players}" if players > 1 else ""  # ends the metrics' names
            self.episodes.append((step, player, float(returns[i]), int(lengths[i])))

    def log(
        self, stats: list[dict[str, Tensor]], explained_variance: float, optimizer: Any, step: int
    ) -> None:
        """Writes the means of an iteration's statistics and the episodes that ended in it.

        Ends the program with exit code 1 if a mean is not finite; the last checkpoint stays.
        """
        self.step = step
        metrics = {name: torch.stack([s[name] for s in stats]).mean().item() for name in stats[0]}
        diverged = not np.isfinite(list(metrics.values())).all()
        if self.writes:
            metrics["losses/explained_variance"] = explained_variance
            metrics["charts/learning_rate"] = optimizer.param_groups[0]["lr"]
            self.write_episodes()
            self.show_progress(metrics)
            self.write(metrics, step)
        if self.writes and diverged:
            self.writer.close()
            (self.folder / "diverged").touch()
        if diverged:
            refuse(f"diverged at step {step}: {metrics}", exit_code=1)
        self.episodes = []  # written, or gathered by the process that writes

    def write_episodes(self) -> None:
        """Writes the new episodes, each at the step that it ended in, and uploads new films."""
        for end, player, episodic_return, length in self.episodes:
            metrics = {"charts/episodic_return": episodic_return, "charts/episodic_length": length}
            self.write({name + player: x for name, x in metrics.items()}, end)
            self.recent.append([episodic_return, length])
        self.recent = self.recent[-100:]
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

    def save(self, agent: Agent, optimizer: Any, iteration: int) -> bool:
        """Saves a checkpoint every --checkpoint-every iterations, at the end, and before a stop.

        Returns whether it did.
        """
        self.exit_code = self.signal_exit_code
        last = iteration == self.args.num_iterations
        every = self.args.checkpoint_every or self.args.num_iterations
        if not self.writes or not (last or self.exit_code or iteration % every == 0):
            self.all_saved = last  # by the process that writes
            return False
        state = {
            "script": SCRIPT.name,
            "args": asdict(self.args),
            "agent": agent.state_dict(),
            "optimizer": optimizer.state_dict(),
            "global_step": self.step,
            "recent": self.recent,
        }
        # Write, then rename: a kill at any instant leaves a complete checkpoint.
        aside = self.folder / "checkpoint.tmp"
        torch.save(state, aside)
        self.writer.flush()
        os.replace(aside, self.folder / "checkpoint.pt")
        self.all_saved = last
        if last or self.exit_code:
            self.progress.close()
        if self.exit_code:
            print(f"saved; to continue: --resume {self.folder}", file=sys.stderr)
        elif last and self.args.eval_episodes:
            print(f"evaluation: {self.args.eval_episodes} episodes", flush=True)
        return True

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
    device = setup_torch(args)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    versions = {package.name: package.version for package in metadata.distributions()}
    about = {
        "script": SCRIPT.name,
        "argv": sys.argv[1:],
        "args": asdict(args),
        "versions": {"python": sys.version, **versions},
        "hardware": f"{os.cpu_count()} CPUs, {device} {gpu}".strip(),
        "processes": args.batch_size // (args.num_envs * args.num_steps),
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
        state = torch.load(file, map_location="cpu", weights_only=True)
        script = state["script"]
        if script == SCRIPT.name:
            state["args"] = Args(**state["args"])
    except Exception as error:  # torch raises many types for a damaged or foreign file
        refuse(f"{file} is not a checkpoint that can be used here: {error!r:.150}")
    if script != SCRIPT.name:
        refuse(f"{file} is not a checkpoint that can be used here: it is one of {script}")
    return state


def setup_torch(args: Args) -> torch.device:
    """Sets threads and determinism; returns the device that --device and --cuda choose."""
    torch.set_num_threads(args.torch_threads)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    torch.backends.cudnn.benchmark = not args.torch_deterministic  # measures which is fastest
    if args.device != "auto":
        return torch.device(args.device)
    return torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")


def compiled(function: Any, device: torch.device) -> Any:
    """torch.compile, the backward pass included, as far as it can be traced."""
    torch._dynamo.config.trace_autograd_ops = True
    # Where the CUDA toolkit is installed without a GPU, torch warns of it.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    # A wrapper in C++ saves time between kernels; on a GPU it would need the CUDA toolkit.
    return torch.compile(function, options={"cpp_wrapper": device.type == "cpu"})


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


class Film(gym.wrappers.RecordVideo):
    """Films whole episodes; of a long one the first LONGEST_FILM frames."""

    def step(self, action: Any) -> Any:
        """Steps the environment; ends a film that has LONGEST_FILM frames."""
        result = super().step(action)
        if len(self.recorded_frames) >= LONGEST_FILM:
            self.stop_recording()
        return result

    def stop_recording(self) -> None:
        """Writes the film."""
        with signals_wait():
            super().stop_recording()

    def close(self) -> None:
        """Discards the unfinished episode, which an evaluation does not count."""
        self.recording = False
        self.recorded_frames.clear()
        super().close()


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
    at_least_1 = ["num_envs", "num_minibatches", "num_steps", "torch_threads", "update_epochs"]
    bounds = {name: (0.0, np.inf) for name in [*at_least_0, "max_grad_norm"]}
    bounds |= {name: (1, np.inf) for name in [*at_least_1, "video_every"]}
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
        torch.zeros(1, device=setup_torch(args))
    except (AssertionError, RuntimeError) as error:
        refuse(f"--device {args.device}: {error}"[:300])
    try:
        check_envs(args)
    except gym.error.DependencyNotInstalled as error:
        refuse(f"--env-id {args.env_id}: {error}")
    except gym.error.Error as error:
        if args.env_id.split(":")[-1] in gym.registry:  # it exists: the mistake is in make_envs
            raise
        refuse(f"--env-id {args.env_id}: {error}")


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
    # Signals wait until Run handles them. Workers of --async-envs inherit this; main ends them.
    hold_signals(STOP_SIGNALS)
    try:
        return train(args, Path(args.resume) if args.resume else new_folder, checkpoint)
    finally:
        # After an error the workers live on: they block SIGTERM, and Python waits for them.
        for worker in multiprocessing.active_children():
            worker.kill()


if __name__ == "__main__":
    sys.exit(main())
