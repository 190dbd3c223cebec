# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1", "numpy>=2",
#     "tensorboard>=2.19", "torch>=2.11", "tqdm>=4.66", "tyro>=0.9.20", "wandb>=0.30",
#     "ale-py>=0.12", "opencv-python>=4.10"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for Atari games with a memory: an LSTM that sees one frame at a time.

    uv run ppo/ppo_atari_lstm.py                                  learns Breakout; 10M steps
    uv run ppo/ppo_atari_lstm.py --env-id ALE/Pong-v5 --seed 2 --capture-video
Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari.py
Details: core 1-12, atari 1-6, 8-9, lstm 1-5, aux 3 (atari-8 replaces core-13; one frame)
Deviations: truncated episodes bootstrapped, reset steps left out (docs/episode-ends.md).
"""

import ctypes
import os
import random
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

# Set before torch is imported: its threads wait for each other spinning, and where other programs
# want the CPUs, too, all of them crawl; after so many turns they sleep.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import ale_py
import cv2
import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray as Array
from torch import Tensor, nn, optim
from torch.nn.utils import clip_grads_with_norm_


@dataclass
class Args:
    # the task
    env_id: str = "BreakoutNoFrameskip-v4"  # game, also as ALE/Breakout-v5
    total_timesteps: int = 10_000_000  # environment steps in all, of four frames each
    num_envs: int = 8  # environments stepped side by side
    seed: int = 1  # of the network, the sampled actions and the environments
    # the algorithm
    num_steps: int = 128  # steps per environment in each rollout
    gamma: float = 0.99  # discount factor; usually 0.9 to 0.999
    gae_lambda: float = 0.95  # advantage estimates from one-step TD (0) to Monte Carlo (1)
    num_minibatches: int = 4  # groups of environments that a rollout is cut into
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
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps; auto is CUDA where there is one
    torch_deterministic: bool = True  # deterministic cuDNN algorithms
    torch_threads: int = torch.get_num_threads()  # CPU threads of torch; heeds OMP_NUM_THREADS
    async_envs: bool = False  # a worker process for each environment: for slow simulators
    compile: bool = False  # compile the update: half a minute at the start, then faster
    bf16: bool = False  # convolutions in bfloat16: faster where the hardware has it, less exact
    # the run
    exp_name: str = Path(__file__).stem  # part of the run folder's name
    runs_dir: str = "runs"  # where run folders are created
    resume: str | None = None  # run folder to continue, or auto: this command's unfinished one
    checkpoint_every: int = 100  # iterations between checkpoints; 0: only at start and end
    eval_episodes: int = 10  # episodes played by the trained agent
    capture_video: bool = False  # film the first environment
    video_every: int = 100  # with --capture-video, film every n-th episode
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "ppo"  # Weights & Biases project
    wandb_entity: str | None = None  # Weights & Biases user or team
    batch_size = property(lambda self: self.num_envs * self.num_steps)
    num_iterations = property(lambda self: self.total_timesteps // self.batch_size)


class NoopReset(gym.Wrapper):
    """Begins each game with 1 to 30 steps of doing nothing, so that games differ."""

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        for _ in range(self.unwrapped.np_random.integers(1, 31)):
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                obs, info = self.env.reset(**kwargs)
        return obs, info


class FireReset(gym.Wrapper):
    """Begins each life with FIRE, without which some games do not start, and the next button."""

    def reset(self, **kwargs: Any) -> Any:
        self.env.reset(**kwargs)
        for action in (1, 2):
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(**kwargs)
        return obs, info


class EpisodicLife(gym.Wrapper):
    """Ends an episode with each life; its reset goes on with the game, unless that is over."""

    lives = 0
    game_over = True

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.game_over = terminated or truncated
        life_lost = 0 < info["lives"] < self.lives
        self.lives = info["lives"]
        return obs, reward, terminated or life_lost, truncated, info

    def reset(self, **kwargs: Any) -> Any:
        if not self.game_over:
            obs, _, _, _, info = self.step(0)
        if self.game_over:  # before, or by this step
            obs, info = self.env.reset(**kwargs)
        self.lives = info["lives"]
        return obs, info


def warp(frame: Array) -> Array:  # (210, 160, 3) to (84, 84)
    gray = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    return cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA)


def make_envs(args: Args, videos: Path) -> gym.vector.VectorEnv:
    """A vector of `num_envs` environments; with --capture-video the first is filmed to `videos`."""

    def make_env(film: bool) -> gym.Env:
        gym.register_envs(ale_py)
        options = {"render_mode": "rgb_array"} if film else {}
        env = gym.make(args.env_id, frameskip=1, **options)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        if film:
            env = Film(env, str(videos), lambda n: n % args.video_every == 0)
        env = NoopReset(env)  # [atari-1] NoopReset
        env = gym.wrappers.MaxAndSkipObservation(env, skip=4)  # [atari-2] MaxAndSkip
        env = EpisodicLife(env)  # [atari-3] EpisodicLife
        if "FIRE" in env.unwrapped.get_action_meanings():
            env = FireReset(env)  # [atari-4] FireReset
        images = gym.spaces.Box(0, 255, (84, 84), np.uint8)
        env = gym.wrappers.TransformObservation(env, warp, images)  # [atari-5] WarpFrame
        env = gym.wrappers.TransformReward(env, np.sign)  # [atari-6] ClipReward
        return gym.wrappers.FrameStackObservation(env, 1)  # what came before is in the LSTM

    env_fns = [lambda i=i: make_env(args.capture_video and i == 0) for i in range(args.num_envs)]
    vector_env = gym.vector.AsyncVectorEnv if args.async_envs else gym.vector.SyncVectorEnv
    with signals_ignored(args.async_envs):  # by workers: Ctrl-C is for the main process alone
        # "NextStep": the step after an episode's end ignores its action and resets the environment.
        # copy=False: next_obs is one array that each step overwrites; to keep it, copy it.
        return vector_env(env_fns, autoreset_mode="NextStep", copy=False)  # [core-1] vectorized


def check_envs(args: Args) -> None:
    """Refuses an environment that is for another script, and flags that do not fit."""
    if "ale_py" not in str(gym.spec(args.env_id).entry_point):
        refuse(f"{args.env_id} is not an Atari game, see ppo.py")
    envs = make_envs(replace(args, num_envs=1, async_envs=False, capture_video=False), Path())
    check_spaces(args, envs, gym.spaces.Box, gym.spaces.Discrete)
    if envs.envs[0].unwrapped.get_action_meanings()[0] != "NOOP":
        refuse(f"{args.env_id} has no button that does nothing, which NoopReset needs")
    envs.close()
    if args.num_envs % args.num_minibatches:
        refuse("--num-minibatches must divide --num-envs: minibatches are whole environments")


def layer_init(layer: Any, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    """The layer, with orthogonal weights of that scale and constant biases."""
    nn.init.orthogonal_(layer.weight, std)  # [core-2] orthogonal initialization
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    """Policy and value function. Both take x, the output of `features`."""

    def __init__(self, envs: gym.vector.VectorEnv, bf16: bool = False):
        super().__init__()
        self.bf16 = bf16
        self.network = nn.Sequential(  # [atari-8] shared Nature-CNN
            layer_init(nn.Conv2d(1, 32, kernel_size=8, stride=4)),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, kernel_size=4, stride=2)),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, kernel_size=3)),
            nn.ReLU(),
            nn.Flatten(),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        self.lstm = nn.LSTM(512, 128)
        for name, parameter in self.lstm.named_parameters():
            init = nn.init.zeros_ if "bias" in name else nn.init.orthogonal_
            init(parameter)  # [lstm-1] LSTM layer initialization
        self.critic = layer_init(nn.Linear(128, 1), std=1.0)
        self.actor = layer_init(nn.Linear(128, envs.single_action_space.n), std=0.01)

    def features(self, obs: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """What the LSTM makes of some steps of some environments, and its state after them.

        obs: (steps * envs, 1, 84, 84), row by row in time order; the result: (steps * envs, 128).
        state: (2, envs, 128), hidden and cell state before the first step and after the last one.
        starts: (steps, envs), on the CPU: is the observation the first one of an episode?
        """
        images = obs.to(memory_format=torch.channels_last) / 255.0  # [atari-9] scale to [0, 1]
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bf16):
            x = self.network(images).float().view(*starts.shape, 512)
        goes_on = (~starts).to(x.device)[..., None]
        # The LSTM runs in stretches, each from one step where some episode starts to the next one.
        cuts = (starts[1:].any(1).nonzero().flatten() + 1).tolist()
        outputs = []
        for begin, end in pairwise([0, *cuts, len(starts)]):
            state = state * goes_on[begin]  # [lstm-3] reset states
            output, last = self.lstm(x[begin:end], tuple(state[:, None]))
            state = torch.cat(last)
            outputs.append(output)
        return torch.cat(outputs).flatten(0, 1), state

    def get_value(self, x: Tensor) -> Tensor:  # (batch,)
        return self.critic(x).squeeze(-1)

    def get_action(self, x: Tensor, greedy: bool = False) -> Tensor:  # (batch,)
        """Sampled actions; the most probable ones if greedy."""
        logits = self.actor(x)
        # Gumbel-max trick: the argmax of logits + Gumbel noise is a sample of softmax(logits), in a
        # tenth of the time of torch's Categorical. Gumbel noise is -log of an exponential sample.
        gumbel = -torch.empty_like(logits).exponential_().log()
        return (logits if greedy else logits + gumbel).argmax(-1)

    def get_logprob_entropy_value(self, x: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        """Log-probability of each action, the policy's entropy and the value: (batch,) each."""
        logprobs = self.actor(x).log_softmax(-1)  # of every action: (batch, number of actions)
        logprob = logprobs.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprob, entropy, self.get_value(x)


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
    advantages = np.zeros_like(rewards)
    lastgaelam = np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        lastgaelam = deltas[t] + args.gamma * args.gae_lambda * lastgaelam * goes_on[t]
        advantages[t] = lastgaelam  # [core-5] generalized advantage estimation
    return advantages, advantages + values[:-1]


def ppo_loss(
    newlogprob: Tensor, entropy: Tensor, newvalue: Tensor, mb: dict[str, Tensor], args: Args
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of a minibatch and statistics: equations 7 and 9 of arxiv.org/abs/1707.06347.

    newlogprob, entropy, newvalue: (minibatch_size,), from the network that is being trained.
    mb: logprobs, values, advantages, returns, valid: (minibatch_size,), from the rollout.
    """
    count = mb["valid"].sum().clamp(min=1)  # there may be none
    weight = mb["valid"] / count  # weight @ x is the mean of x over valid rows
    logratio = newlogprob - mb["logprobs"]
    ratio = logratio.exp()  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:  # in each minibatch
        centered = advantages - weight @ advantages
        variance = (weight @ centered**2) * count / (count - 1).clamp(min=1)  # unbiased
        advantages = centered / (variance.sqrt() + 1e-8)  # [core-7] advantage normalization
    clipped_ratio = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
    gain = torch.min(ratio * advantages, clipped_ratio * advantages)
    pg_loss = -(weight @ gain)  # [core-8] clipped surrogate objective
    v_error = (newvalue - mb["returns"]) ** 2
    if args.clip_vloss:
        v_change = (newvalue - mb["values"]).clamp(-args.clip_coef, args.clip_coef)
        v_clipped_error = (mb["values"] + v_change - mb["returns"]) ** 2
        v_error = torch.max(v_error, v_clipped_error)  # [core-9] value function loss clipping
    v_loss = 0.5 * (weight @ v_error)
    entropy_loss = weight @ entropy
    loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss  # [core-10] overall loss
    with torch.no_grad():
        stats = {  # [core-12] debug variables
            "losses/policy_loss": pg_loss.detach(),
            "losses/value_loss": v_loss.detach(),
            "losses/entropy": entropy_loss.detach(),
            "losses/old_approx_kl": weight @ -logratio,
            "losses/approx_kl": weight @ (ratio - 1 - logratio),  # joschu.net/blog/kl-approx.html
            "losses/clipfrac": weight @ ((ratio - 1).abs() > args.clip_coef).float(),
        }
    return loss, stats


def backward(
    agent: Agent, batch: dict, mb_inds: Tensor, state: Tensor, args: Args
) -> dict[str, Tensor]:
    """Leaves the clipped gradient of a minibatch in the agent's parameters; returns statistics."""
    starts = batch["starts"][mb_inds].view(args.num_steps, -1)
    mb_inds = mb_inds.to(batch["obs"].device)  # once, not for each of the tensors below
    mb = {name: rows[mb_inds] for name, rows in batch.items() if name != "starts"}
    x, _ = agent.features(mb["obs"], state, starts)  # [lstm-5] reconstruct states in training
    newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(x, mb["actions"])
    loss, stats = ppo_loss(newlogprob, entropy, newvalue, mb, args)
    loss.backward()
    # As clip_grad_norm_ does, but with one norm of all numbers, not one of each layer's: faster.
    norm = torch.cat([p.grad.flatten() for p in agent.parameters() if p.grad is not None]).norm()
    params = agent.parameters()
    clip_grads_with_norm_(params, args.max_grad_norm, norm)  # [core-11] global gradient clipping
    return {**stats, "losses/grad_norm": norm}


@torch.no_grad()
def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> dict[str, Array]:
    """Plays `eval_episodes` whole episodes; returns results by name, (episodes,) each."""
    envs = make_envs(replace(args, num_envs=1), videos)
    device = next(agent.parameters()).device
    obs, _ = envs.reset(seed=args.seed + 1_000_000)
    state = torch.zeros(2, 1, 128, device=device)
    start = np.zeros((1, 1), bool)  # as in `train`: is the frame the first of an episode?
    reset = np.zeros((1, 1), bool)  # does the next step only reset?
    returns: list[float] = []
    while len(returns) < args.eval_episodes:
        frame = torch.from_numpy(obs).to(device)
        x, state = agent.features(frame, state, torch.from_numpy(start))
        action = agent.get_action(x, greedy)
        obs, _, terminated, truncated, infos = envs.step(action.cpu().numpy())
        start = reset
        reset = (terminated | truncated)[None]
        if "episode" in infos:
            returns.append(infos["episode"]["r"][0])
    envs.close()
    return {"episodic_return": np.array(returns)}


def keep_memory() -> None:
    """Makes glibc keep freed memory: fresh pages cost as much time as the convolutions."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no mappings of their own for large blocks
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: nothing goes back to the system


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start or a checkpoint ({}: there is none); the exit code."""
    # ------ setup ------
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    keep_memory()
    device = setup_torch(args)
    envs = make_envs(args, video_folder(run_dir))
    # channels_last: the order of memory in which convolutions are fastest.
    agent = Agent(envs, args.bf16).to(memory_format=torch.channels_last).to(device)
    optimizer = optim.Adam(agent.parameters(), eps=1e-5, fused=True)  # [core-3] Adam epsilon
    if checkpoint:
        agent.load_state_dict(checkpoint["agent"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        set_random_states(checkpoint["rng"])
    iterations_done = checkpoint.get("iteration", 0)
    global_step = checkpoint.get("global_step", 0)
    run = Run(args, run_dir, checkpoint)
    save_if_due(run, agent, optimizer, iterations_done, global_step)
    compute_gradient = compiled(backward, device) if args.compile else backward

    # ------ storage: row t holds what was seen and done at step t and what came of it ------
    shape = (args.num_steps, args.num_envs)  # the first dimensions of all arrays below
    obs = torch.from_numpy(zeros_of(envs.single_observation_space, shape)).to(device)
    features = torch.zeros(*shape, 128, device=device)  # kept: the network is what takes the time
    starts = torch.zeros(shape, dtype=torch.bool)  # is the observation the first of an episode?
    first_row = torch.arange(args.num_steps)[:, None] * args.num_envs  # of each step, in a batch
    actions = torch.from_numpy(zeros_of(envs.single_action_space, shape)).to(device)
    rewards = np.zeros(shape, np.float32)
    terminated = np.zeros(shape, bool)  # the episode is over
    truncated = np.zeros(shape, bool)  # a time limit cut it off
    next_obs, _ = envs.reset(seed=args.seed + global_step)  # once resumed: other episodes
    state = torch.zeros(2, args.num_envs, 128, device=device)  # [lstm-2] zero initial states
    # Is next_obs the first of an episode, so that the state must become 0? (Now it is 0 anyway.)
    start = np.zeros(args.num_envs, bool)
    reset = np.zeros(args.num_envs, bool)  # does the next step only reset? Then start comes next
    last_done = np.zeros((1, args.num_envs), bool)  # before the first step of the rollout
    for iteration in range(iterations_done + 1, args.num_iterations + 1):
        remaining = 1 - (iteration - 1) / args.num_iterations if args.anneal_lr else 1.0
        optimizer.param_groups[0]["lr"] = remaining * args.learning_rate  # [core-4] annealing

        # ------ rollout: act in the environments and store what happens ------
        initial_state = state
        with torch.inference_mode():
            for step in range(args.num_steps):
                obs[step] = torch.from_numpy(next_obs)
                starts[step] = torch.from_numpy(start)
                features[step], state = agent.features(obs[step], state, starts[step : step + 1])
                action = agent.get_action(features[step])
                actions[step] = action
                result = envs.step(action.cpu().numpy())
                next_obs, rewards[step], terminated[step], truncated[step], infos = result
                start = reset
                reset = terminated[step] | truncated[step]
                global_step += args.num_envs
                run.log_episodes(infos, global_step)

        # ------ advantages: how much better than expected was each action? ------
        # One pass of the heads for the whole rollout takes less time than one at each step.
        with torch.no_grad():
            x = features.flatten(0, 1)
            logprobs, _, value = agent.get_logprob_entropy_value(x, actions.flatten(0, 1))
            last_frame = torch.from_numpy(next_obs).to(device)
            last_x, _ = agent.features(last_frame, state, torch.from_numpy(start)[None])
            next_value = agent.get_value(last_x)
        values = torch.cat([value, next_value]).view(-1, args.num_envs).cpu().numpy()
        # A row whose predecessor ended an episode is the reset step: nobody executed its action.
        done = np.vstack([last_done, terminated | truncated])
        valid = ~done[:-1]  # [deviation] reset steps left out
        last_done = done[-1:]
        advantages, returns = compute_gae(rewards, values, terminated, truncated, args)
        batch = {"obs": obs, "actions": actions, "logprobs": logprobs.view(shape)}
        batch["values"] = torch.from_numpy(values[:-1])
        batch["advantages"] = torch.from_numpy(advantages)
        batch["returns"] = torch.from_numpy(returns)
        batch["valid"] = torch.from_numpy(valid)
        batch = {name: rows.to(device).flatten(0, 1) for name, rows in batch.items()}
        batch["starts"] = starts.flatten()  # stays on the CPU

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        stats = []
        for _epoch in range(args.update_epochs):
            shuffled = torch.randperm(args.num_envs)
            for env_inds in shuffled.chunk(args.num_minibatches):  # [core-6] mini-batch updates
                mb_inds = (first_row + env_inds).flatten()  # [lstm-4] sequential rollouts
                optimizer.zero_grad()
                mb_state = initial_state[:, env_inds]
                stats.append(compute_gradient(agent, batch, mb_inds, mb_state, args))
                optimizer.step()
            if args.target_kl is not None and stats[-1]["losses/approx_kl"] > args.target_kl:
                break  # [aux-3] early stopping on KL

        # ------ log ------
        unexplained = advantages[valid].var()  # advantages are returns - values
        explained_variance = 1 - unexplained / (returns[valid].var() + 1e-8)
        run.log(stats, explained_variance, optimizer, global_step)
        save_if_due(run, agent, optimizer, iteration, global_step)
        if run.exit_code:  # Ctrl-C or SIGTERM
            break
    envs.close()
    if not run.exit_code:
        videos = run.start_evaluation()
        run.finish(evaluate(agent, args, videos) if args.eval_episodes else {})
    return run.exit_code


# ====== plumbing: the same lines in every script; nothing below changes what is learned ======
# Imported here, so that the imports above are those of the variant.
import errno
import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from difflib import get_close_matches
from importlib import metadata
from typing import NoReturn

import tyro
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter
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
MACHINE_FLAGS = (
    "cuda",
    "device",
    "torch_threads",
    "env_threads",
    "device_ids",
    "backend",
    "timeout",
)
# Flags about what is kept of a run; they change nothing in what is learned.
RUN_FLAGS = (
    "runs_dir",
    "resume",
    "checkpoint_every",
    "keep_checkpoints",
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
PROGRESS_LINE = "{percentage:3.0f}%  {n_fmt} steps  {rate_fmt}  {remaining} left{postfix}"


class ProgressLines(tqdm):
    """Progress as plain lines, for pipes and log files."""

    @staticmethod
    def status_printer(file: Any) -> Any:
        """Returns the function that shows the progress."""
        return say


class Run:
    """Metrics and progress of a run, in its folder, on the terminal and in Weights & Biases.

    writes: whether this process does so; of several that learn together only one does.
    exit_code: other than 0 if Ctrl-C or SIGTERM had come when `log` was called last.
    """

    def __init__(self, args: Args, folder: Path, checkpoint: dict[str, Any], writes: bool = True):
        self.args = args
        self.folder = folder
        self.writes = writes
        self.exit_code = 0
        self.signal_exit_code = 0  # of the signal that came, if any
        self.evaluating = False
        self.step = checkpoint.get("global_step", 0)  # as of the last `log`
        self.recent = checkpoint.get("recent", [])  # return and length of the last 100 episodes
        self.episodes: list[tuple[int, str, float, int]] = []  # new: step, player, return, length
        self.total_steps = args.num_iterations * args.batch_size
        self.first_log: tuple[float, int] | None = None  # time and step that speed is counted from
        self.steps_per_second = 0.0
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.on_signal)
        if not writes:
            return
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
        # What was logged after the checkpoint is purged: it will be logged again.
        self.writer: Any = SummaryWriter(str(folder), purge_step=self.step + 1)
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
        self.writer.add_text("hyperparameters", table, self.step)

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Writes all metrics in one event, which is faster than an add_scalar for each."""
        values = [Summary.Value(tag=name, simple_value=x) for name, x in metrics.items()]
        self.writer.file_writer.add_summary(Summary(value=values), step)

    def log_episodes(self, infos: dict[str, Any], step: int, players: int = 1) -> None:
        """Collects the episodes that ended in a step.

        players: where there are several, rows are in turn those of the first, the second, ...
        """
        if "_episode" not in infos:
            return
        returns = infos["episode"]["r"]
        lengths = infos["episode"]["l"]
        for i in np.flatnonzero(infos["_episode"]):
            player = f"-player{i % players}" if players > 1 else ""  # ends the metrics' names
            self.episodes.append((step, player, float(returns[i]), int(lengths[i])))

    def log(
        self, stats: list[dict[str, Tensor]], explained_variance: float, optimizer: Any, step: int
    ) -> None:
        """Writes the means of an iteration's statistics and the episodes that ended in it.

        Ends the program with exit code 1 if a mean is not finite; the last checkpoint stays.
        """
        self.exit_code = self.signal_exit_code
        self.step = step
        metrics = {name: torch.stack([s[name] for s in stats]).mean().item() for name in stats[0]}
        if not np.isfinite(list(metrics.values())).all():
            refuse(f"diverged at step {step}: {metrics}", exit_code=1)
        if not self.writes:
            self.episodes = []  # the process that writes has them
            return
        metrics["losses/explained_variance"] = explained_variance
        metrics["charts/learning_rate"] = optimizer.param_groups[0]["lr"]
        now = time.perf_counter()
        if self.first_log is None:
            self.first_log = (now, step)  # the first iteration, which may compile, is left out
        else:
            first_time, first_step = self.first_log
            self.steps_per_second = (step - first_step) / (now - first_time)
            metrics["charts/SPS"] = self.steps_per_second
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
        """Writes the new episodes, each at the step that it ended in."""
        for end, player, episodic_return, length in self.episodes:
            metrics = {"charts/episodic_return": episodic_return, "charts/episodic_length": length}
            self.write({name + player: x for name, x in metrics.items()}, end)
            self.recent.append([episodic_return, length])
        if self.episodes:
            returns = np.array([episodic_return for _, _, episodic_return, _ in self.episodes])
            # Thirty bins, with a margin: NumPy finds none where returns differ by rounding alone.
            margin = 1e-6 * (1 + np.abs(returns).max())
            bins = np.linspace(returns.min() - margin, returns.max() + margin, 31)
            self.writer.add_histogram("charts/episodic_returns", returns, step, bins=bins)
        self.recent = self.recent[-100:]
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

    def finish(self, results: dict[str, Array]) -> None:
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
    device = setup_torch(args)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    simulators = [name for name in SIMULATORS if name in sys.modules]
    modules = [gym, np, torch]
    versions = {module.__name__: module.__version__ for module in modules}
    versions |= {name: version_of(SIMULATORS[name]) for name in simulators}
    about = {
        "script": SCRIPT.name,
        "argv": sys.argv[1:],
        "args": asdict(args),
        "versions": versions | {"python": sys.version},
        "hardware": f"{os.cpu_count()} CPUs, {device} {gpu}".strip(),
        "processes": args.batch_size // (args.num_envs * args.num_steps),
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


@contextmanager
def signals_ignored(wanted: bool) -> Iterator[None]:
    """If wanted: processes that are started meanwhile ignore Ctrl-C and SIGTERM for good."""
    signums = (signal.SIGINT, signal.SIGTERM) if wanted else ()
    handlers = [signal.signal(signum, signal.SIG_IGN) for signum in signums]
    try:
        yield
    finally:
        for signum, handler in zip(signums, handlers, strict=True):
            signal.signal(signum, handler)


def save_if_due(run: Run, agent: Agent, optimizer: Any, iteration: int, step: int) -> bool:
    """Saves a checkpoint at the start, every so many iterations, at the end, and before a stop.

    Returns whether it did.
    """
    last = run.args.num_iterations
    every = run.args.checkpoint_every or last
    due = iteration % every == 0 or iteration == last or run.exit_code
    if not (due and run.writes):
        return False
    if not all(weight.isfinite().all() for weight in agent.state_dict().values()):
        refuse(f"diverged at step {step}: weights that are not finite", exit_code=1)
    state = {
        "script": SCRIPT.name,
        "args": asdict(run.args),
        "agent": agent.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": random_states(),
        "iteration": iteration,
        "global_step": step,
        "recent": run.recent,
    }
    # Written aside and renamed: a kill at any instant leaves a whole checkpoint.
    aside = run.folder / "checkpoint.tmp"
    with open(aside, "wb") as file:
        torch.save(state, file)
    run.writer.flush()
    os.replace(aside, run.folder / "checkpoint.pt")
    if run.exit_code:
        say(f"saved; --resume {run.folder} goes on")
    return True


def load_checkpoint(file: Path) -> dict[str, Any]:
    """What save_if_due wrote; ends the program if it is something else. Executes nothing of it."""
    if not file.is_file():
        refuse(f"there is no {file}; what can be resumed is a run folder")
    try:
        if not zipfile.is_zipfile(file):
            raise ValueError("not an archive of torch.save")
        state = torch.load(file, map_location="cpu", weights_only=True)
        state["args"] = Args(**state["args"])
        script = state["script"]
    except Exception as error:  # whatever torch makes of a damaged file or somebody else's
        refuse(f"{file} is not a checkpoint that can be used here: {error!r:.150}")
    if script != SCRIPT.name:
        refuse(f"{file} is not a checkpoint that can be used here: it is one of {script}")
    return state


def random_states() -> list[Tensor]:
    """State of the CPU's random numbers, then of each GPU's that is in use."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *gpus]


def set_random_states(states: list[Tensor]) -> None:
    """Goes on from what random_states returned; there may be fewer GPUs now."""
    torch.set_rng_state(states[0])
    torch.cuda.set_rng_state_all(states[1 : 1 + torch.cuda.device_count()])


def setup_torch(args: Args) -> torch.device:
    """Sets threads and determinism; returns the device that is meant by --device and --cuda."""
    torch.set_num_threads(args.torch_threads)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    torch.backends.cudnn.benchmark = not args.torch_deterministic  # tries which is the fastest
    if args.device != "auto":
        return torch.device(args.device)
    return torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")


def compiled(function: Any, device: torch.device) -> Any:
    """torch.compile, the backward pass included, as far as it can be traced."""
    torch._dynamo.config.trace_autograd_ops = True
    # Where the CUDA toolkit is installed without a GPU, torch warns of it.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    if device.type == "cuda":  # TensorFloat-32 in matrix products, as cuDNN does in convolutions
        torch.set_float32_matmul_precision("high")
    # A wrapper in C++ saves time between kernels; on a GPU it would need the CUDA toolkit.
    return torch.compile(function, options={"cpp_wrapper": device.type == "cpu"})


def from_zero(env: gym.Env) -> gym.Env:
    """The environment with actions that are counted from 0, also where its own are not."""
    space: Any = env.action_space
    start = getattr(space, "start", 0)
    if not np.any(start):
        return env
    counted = type(space)(space.n if isinstance(space, gym.spaces.Discrete) else space.nvec)
    return gym.wrappers.TransformAction(env, lambda action: action + start, counted)


def zeros_of(space: gym.Space, shape: tuple[int, ...]) -> Array:
    """Zeros for `shape` elements of a space: (*shape, *space.shape), of the space's type."""
    return np.zeros((*shape, *space.shape), space.dtype)


class Film(gym.wrappers.RecordVideo):
    """Films of whole episodes; of a long one the first LONGEST_FILM frames."""

    def __init__(self, env: gym.Env, video_folder: str, episode_trigger: Any):
        with suppress(OSError):
            os.rmdir(video_folder)  # empty: left by the environment that AsyncVectorEnv tries
        super().__init__(env, video_folder, episode_trigger)

    def step(self, action: Any) -> Any:
        """Takes the step and its frame."""
        result = super().step(action)
        if len(self.recorded_frames) >= LONGEST_FILM:
            self.stop_recording()
        return result


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
        needed = f"a {observations.__name__}; docs/howto/own-environment.md helps"
        refuse(f"{args.env_id} shows {obs_space}, this script needs {needed}")
    if args.capture_video and "rgb_array" not in envs.metadata.get("render_modes", []):
        refuse(f"--capture-video: {args.env_id} cannot render rgb_array")
    try:
        torch.from_numpy(zeros_of(obs_space, (1,))).to(setup_torch(args))
    except (AssertionError, RuntimeError, TypeError) as error:  # no such device, or no such type
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
        "torch_threads": 1,
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
    if args.compile and not shutil.which("g++"):
        refuse("--compile needs g++: apt install g++")
    if len(args.exp_name) > 100:
        refuse("--exp-name has more than 100 characters, too many for the name of a folder")
    flag, folder = ("--resume", args.resume) if args.resume else ("--runs-dir", args.runs_dir)
    existing = Path(folder).absolute()
    while not os.path.exists(existing):  # Path.exists fails in folders that one may not enter
        existing = existing.parent
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        refuse(f"{flag} {folder}: {existing} is not a folder that can be written to")
    try:
        check_envs(args)
    except gym.error.DependencyNotInstalled as error:
        refuse(f"--env-id {args.env_id}: {error}; docs/index.md has the script that brings it")
    except gym.error.Error as error:  # there is no such environment, or no such version
        similar = get_close_matches(args.env_id, gym.registry)
        nearest = f"; the nearest: {', '.join(similar)}" if similar else ""
        advice = "docs/index.md has the script for each environment"
        refuse(f"--env-id {args.env_id}: {error}{nearest}; {advice}")
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
        refuse("--resume keeps the run's --num-envs x --num-steps, and its number of processes")
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
    finally:
        # After an error: workers ignore SIGTERM, and Python would wait for them forever.
        for worker in multiprocessing.active_children():
            worker.kill()


if __name__ == "__main__":
    sys.exit(main())
