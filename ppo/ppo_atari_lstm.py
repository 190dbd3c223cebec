# /// script
# requires-python = ">=3.11"
# dependencies = ["gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1", "numpy>=2",
#     "tensorboard>=2.19", "torch>=2.11", "tyro>=0.9.20", "wandb>=0.21",
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
import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import ale_py
import cv2
import gymnasium as gym
import numpy as np
import torch
import tyro
from numpy.typing import NDArray as Array
from tensorboard.compat.proto.summary_pb2 import Summary
from torch import Tensor, nn, optim
from torch.utils.tensorboard import SummaryWriter


@dataclass
class Args:
    env_id: str = "BreakoutNoFrameskip-v4"  # game, also as ALE/Breakout-v5
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
    torch_deterministic: bool = True  # deterministic cuDNN algorithms
    cuda: bool = True  # let --device auto choose CUDA
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps; auto is CUDA where there is one
    torch_threads: int = torch.get_num_threads()  # CPU threads of torch; heeds OMP_NUM_THREADS
    async_envs: bool = False  # a worker process for each environment: for slow simulators
    compile: bool = False  # compile the update: half a minute at the start, then faster
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


class StartWith(gym.Wrapper):
    """Begins each game with one of some lists of actions, and anew if that ends the game."""

    def __init__(self, env: gym.Env, starts: list[list[int]]):
        super().__init__(env)
        self.starts = starts

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        for action in self.starts[self.unwrapped.np_random.integers(len(self.starts))]:
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(**kwargs)
        return obs, info


class EpisodicLife(gym.Wrapper):
    """Ends an episode with each life; its reset goes on with the game, unless that is over."""

    lives, over = 0, True

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.over, lives, self.lives = terminated or truncated, self.lives, info["lives"]
        return obs, reward, terminated or 0 < self.lives < lives, truncated, info

    def reset(self, **kwargs: Any) -> Any:
        if not self.over:
            obs, _, _, _, info = self.step(0)
        if self.over:
            obs, info = self.env.reset(**kwargs)
        self.lives = info["lives"]
        return obs, info


def warp(frame: Array) -> Array:  # (210, 160, 3) to (84, 84)
    gray = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    return cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA)


def make_envs(args: Args, videos: Path) -> gym.vector.VectorEnv:
    """A vector of `num_envs` environments; with --capture-video the first is filmed to `videos`."""

    def make_env(film: bool) -> gym.Env:
        if parent_process():  # in a worker: Ctrl-C is for the main process alone
            os.setpgrp()
        gym.register_envs(ale_py)
        env = gym.make(args.env_id, frameskip=1, **({"render_mode": "rgb_array"} if film else {}))
        env = gym.wrappers.RecordEpisodeStatistics(env)
        if film:
            env = gym.wrappers.RecordVideo(env, str(videos), lambda n: n % args.video_every == 0)
        env = StartWith(env, [[0] * n for n in range(1, 31)])  # [atari-1] NoopReset
        env = gym.wrappers.MaxAndSkipObservation(env, skip=4)  # [atari-2] MaxAndSkip
        env = EpisodicLife(env)  # [atari-3] EpisodicLife
        if "FIRE" in env.unwrapped.get_action_meanings():
            env = StartWith(env, [[1, 2]])  # [atari-4] FireReset
        images = gym.spaces.Box(0, 255, (84, 84), np.uint8)
        env = gym.wrappers.TransformObservation(env, warp, images)  # [atari-5] WarpFrame
        env = gym.wrappers.TransformReward(env, np.sign)  # [atari-6] ClipReward
        return gym.wrappers.FrameStackObservation(env, 1)  # what came before is in the LSTM

    env_fns = [lambda i=i: make_env(args.capture_video and i == 0) for i in range(args.num_envs)]
    vector_env = gym.vector.AsyncVectorEnv if args.async_envs else gym.vector.SyncVectorEnv
    # "NextStep": the step after an episode's end ignores its action and resets the environment.
    return vector_env(env_fns, autoreset_mode="NextStep", copy=False)  # [core-1] vectorized


def layer_init(layer: Any, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    nn.init.orthogonal_(layer.weight, std)  # [core-2] orthogonal initialization
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs: gym.vector.VectorEnv, bf16: bool = False):
        super().__init__()
        self.bf16 = bf16
        self.network = nn.Sequential(  # [atari-8] shared Nature-CNN
            *(layer_init(nn.Conv2d(1, 32, kernel_size=8, stride=4)), nn.ReLU()),
            *(layer_init(nn.Conv2d(32, 64, kernel_size=4, stride=2)), nn.ReLU()),
            *(layer_init(nn.Conv2d(64, 64, kernel_size=3)), nn.ReLU(), nn.Flatten()),
            *(layer_init(nn.Linear(64 * 7 * 7, 512)), nn.ReLU()),
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
        cuts = [t for t in range(1, len(starts)) if starts[t].any()]
        outputs = []
        for begin, end in pairwise([0, *cuts, len(starts)]):
            state = state * goes_on[begin]  # [lstm-3] reset states
            output, last = self.lstm(x[begin:end], tuple(state[:, None]))
            state = torch.cat(last)
            outputs.append(output)
        return torch.cat(outputs).flatten(0, 1), state

    def get_value(self, x: Tensor) -> Tensor:  # (batch,)
        return self.critic(x).squeeze(-1)

    def get_action(self, x: Tensor, greedy: bool = False) -> Tensor:  # sampled or most probable
        logits = self.actor(x)
        gumbel = -torch.empty_like(logits).exponential_().log()  # makes the largest sum a sample
        return (logits if greedy else logits + gumbel).argmax(-1)

    def get_logprob_entropy_value(self, x: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        """Log-probability of each action (batch,), the policy's entropy and the value: (batch,)."""
        logprobs = self.actor(x).log_softmax(-1)  # of every action: (batch, number of actions)
        logprob = logprobs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
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
    goes_on = ~(terminated | truncated)
    advantages, lastgaelam = np.zeros_like(rewards), np.zeros_like(rewards[0])
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
    count = mb["valid"].sum().clamp(min=1)
    weight = mb["valid"] / count  # weight @ x is the mean of x, reset steps left out
    logratio = newlogprob - mb["logprobs"]
    ratio = logratio.exp()  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:
        centered = advantages - weight @ advantages
        std = (weight @ centered**2 * count / (count - 1).clamp(min=1)).sqrt()
        advantages = centered / (std + 1e-8)  # [core-7] advantage normalization, per minibatch
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


def backward(agent: Agent, batch: dict, mb_inds: Tensor, args: Args) -> dict[str, Tensor]:
    mb = {name: rows[mb_inds] for name, rows in batch.items()}
    starts = mb["starts"].view(args.num_steps, -1)
    first = mb["states"][: starts.shape[1]].transpose(0, 1).contiguous()  # as cuDNN wants it
    x, _ = agent.features(mb["obs"], first, starts)  # [lstm-5] reconstruct states in training
    newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(x, mb["actions"])
    loss, stats = ppo_loss(newlogprob, entropy, newvalue, mb, args)
    loss.backward()  # leaves the gradient in the agent's parameters
    norm = torch.cat([p.grad.flatten() for p in agent.parameters() if p.grad is not None]).norm()
    nn.utils.clip_grads_with_norm_(agent.parameters(), args.max_grad_norm, norm)  # [core-11] global
    return {**stats, "losses/grad_norm": norm}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start (checkpoint is {}) or on; returns the exit code."""
    # ------ setup ------
    device = setup_torch(args)
    envs = make_envs(args, run_dir / time.strftime("videos/%Y%m%d-%H%M%S"))
    agent = Agent(envs, args.bf16).to(memory_format=torch.channels_last).to(device)  # faster
    optimizer = optim.Adam(agent.parameters(), eps=1e-5, fused=True)  # [core-3] Adam epsilon
    log = Logger(args, run_dir, agent, optimizer, checkpoint)
    compute_gradient = compiled(backward) if args.compile else backward

    # ------ storage: row t holds what was seen and done at step t and what came of it ------
    global_step, (next_obs, _) = log.global_step, envs.reset(seed=args.seed + log.global_step)
    obs = torch.from_numpy(np.stack([next_obs] * args.num_steps)).to(device)
    actions = torch.from_numpy(np.stack([envs.action_space.sample()] * args.num_steps)).to(device)
    rewards = np.zeros((args.num_steps, args.num_envs), np.float32)
    terminated, truncated = np.zeros((2, *rewards.shape), bool)  # by the task itself, by a limit
    last_done = np.zeros((1, args.num_envs), bool)  # before the first step of the rollout
    features = torch.zeros(args.num_steps, args.num_envs, 128, device=device)
    state = torch.zeros(2, args.num_envs, 128, device=device)  # [lstm-2] zero initial states
    states = torch.zeros(args.num_steps, args.num_envs, 2, 128, device=device)  # before each step
    starts = torch.zeros(args.num_steps + 1, args.num_envs, dtype=torch.bool)
    first_row = torch.arange(args.num_steps)[:, None] * args.num_envs  # of each step, in a batch
    resets = np.zeros(args.num_envs, bool)  # is the next step a reset step? Then one starts behind
    for iteration in range(log.iteration + 1, args.num_iterations + 1):
        remaining = 1 - (iteration - 1) / args.num_iterations if args.anneal_lr else 1.0
        optimizer.param_groups[0]["lr"] = remaining * args.learning_rate  # [core-4] annealing

        # ------ rollout: act in the environments and store what happens ------
        with torch.inference_mode():
            for step in range(args.num_steps):
                obs[step] = torch.from_numpy(next_obs)
                states[step] = state.transpose(0, 1)
                features[step], state = agent.features(obs[step], state, starts[step : step + 1])
                actions[step] = action = agent.get_action(features[step])
                result = envs.step(action.cpu().numpy())
                next_obs, rewards[step], terminated[step], truncated[step], infos = result
                starts[step + 1] = torch.from_numpy(resets)
                resets = terminated[step] | truncated[step]
                global_step += args.num_envs
                log.episodes(infos, global_step)

        # ------ advantages: how much better than expected was each action? ------
        with torch.no_grad():
            x = features.flatten(0, 1)
            logprobs, _, value = agent.get_logprob_entropy_value(x, actions.flatten(0, 1))
            last_obs = torch.from_numpy(next_obs).to(device)
            next_value = agent.get_value(agent.features(last_obs, state, starts[-1:])[0])
        values = torch.cat([value, next_value]).view(-1, args.num_envs).cpu().numpy()
        done = np.vstack([last_done, terminated | truncated])
        valid, last_done = ~done[:-1], done[-1:]  # [deviation] reset steps left out
        advantages, returns = compute_gae(rewards, values, terminated, truncated, args)
        batch = {"obs": obs.flatten(0, 1), "actions": actions.flatten(0, 1), "logprobs": logprobs}
        batch |= {"states": states.flatten(0, 1), "starts": starts[:-1].flatten()}
        rows = {"values": values[:-1], "advantages": advantages, "returns": returns, "valid": valid}
        batch |= {k: torch.from_numpy(v).flatten().to(device) for k, v in rows.items()}

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        stats = []
        for _epoch in range(args.update_epochs):
            shuffled = torch.randperm(args.num_envs)
            for env_inds in shuffled.chunk(args.num_minibatches):  # [core-6] mini-batch updates
                mb_inds = (first_row + env_inds).flatten()  # [lstm-4] sequential rollouts
                optimizer.zero_grad()
                stats.append(compute_gradient(agent, batch, mb_inds, args))
                optimizer.step()
            if args.target_kl is not None and stats[-1]["losses/approx_kl"] > args.target_kl:
                break  # [aux-3] early stopping on KL

        starts[0] = starts[-1]

        # ------ log ------
        log.scalars(stats, 1 - advantages[valid].var() / (returns[valid].var() + 1e-8), global_step)
        if log.checkpoint(iteration, global_step):
            break
    envs.close()
    return log.finish(global_step)


# ====== plumbing: nothing below changes what is learned ======
class Logger:  # everything about the run folder: metrics, progress, checkpoints, Ctrl-C
    def __init__(self, args: Args, run_dir: Path, agent: Agent, optimizer: Any, saved: dict):
        self.args, self.run_dir, self.agent, self.optimizer = args, run_dir, agent, optimizer
        self.iteration, self.global_step = saved.get("iteration", 0), saved.get("global_step", 0)
        self.recent: list[float] = saved.get("recent", [])  # returns of the last 100 episodes
        self.ended: list[tuple[int, float, int]] = []  # step, return, length of new episodes
        self.clock: tuple[float, int] | None = None  # time and step that speed is counted from
        self.printed, self.exit_code, self.films = 0.0, 0, set(run_dir.glob("videos/*/*.mp4"))
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.on_signal)
        if saved:
            (run_dir / "agent.pt").unlink(missing_ok=True)
            agent.load_state_dict(saved["agent"])
            optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["rng"][0])
            torch.cuda.set_rng_state_all(saved["rng"][1 : 1 + torch.cuda.device_count()])
        self.wandb: Any = __import__("wandb") if args.track else None
        if self.wandb:
            ids = {"id": (run := run_dir.resolve()).name, "name": run.name, "dir": run.parent}
            ids |= {"project": args.wandb_project_name, "entity": args.wandb_entity}
            self.wandb.init(config=asdict(args), sync_tensorboard=True, resume="allow", **ids)
        print(f"run folder: {run_dir}", flush=True)
        # What was logged after the checkpoint is purged: it will be logged again.
        self.writer: Any = SummaryWriter(str(run_dir), purge_step=self.global_step + 1)
        self.checkpoint(self.iteration, self.global_step)

    def on_signal(self, signum: int, _frame: object) -> None:
        self.exit_code = 128 + signum
        signal.signal(signum, signal.SIG_DFL)
        print("\nstopping after this iteration; once more to stop at once", file=sys.stderr)

    def write(self, values: dict[str, float], step: int) -> None:
        summary = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.writer.file_writer.add_summary(Summary(value=summary), step)

    def episodes(self, infos: dict[str, Any], step: int) -> None:
        for i in np.flatnonzero(infos["_episode"]) if "_episode" in infos else ():
            self.ended.append((step, infos["episode"]["r"][i], infos["episode"]["l"][i]))

    def scalars(self, stats: list, explained_variance: float, step: int) -> None:
        values = {k: torch.stack([s[k] for s in stats]).mean().item() for k in stats[0]}
        good = np.isfinite([*values.values(), *(p.sum().item() for p in self.agent.parameters())])
        fail_if(not good.all(), f"diverged at step {step}: {values}", exit_code=1)
        values["losses/explained_variance"] = explained_variance
        values["charts/learning_rate"] = self.optimizer.param_groups[0]["lr"]
        now = time.monotonic()
        self.clock = self.clock or (now, step)  # the first iteration, which compiles, is left out
        sps = (step - self.clock[1]) / max(now - self.clock[0], 1e-9)
        for when, score, length in self.ended:
            self.write({"charts/episodic_return": score, "charts/episodic_length": length}, when)
        if self.ended:
            returns = [float(score) for _, score, _ in self.ended]
            self.writer.add_histogram("charts/episodic_returns", np.array(returns), step, bins=30)
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

    def checkpoint(self, iteration: int, step: int) -> bool:  # saves if due; is it time to stop?
        stop, last = self.exit_code != 0, self.args.num_iterations
        due = iteration == last or iteration % (self.args.checkpoint_every or last) == 0
        if stop or due:
            state: dict[str, Any] = {"script": Path(__file__).name, "args": asdict(self.args)}
            state |= {"agent": self.agent.state_dict(), "optimizer": self.optimizer.state_dict()}
            gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
            state |= {"rng": [torch.get_rng_state(), *gpus]}
            state |= {"iteration": iteration, "global_step": step, "recent": self.recent}
            torch.save(state, self.run_dir / "checkpoint.tmp")  # aside, so that a kill at any
            self.writer.flush()
            os.replace(self.run_dir / "checkpoint.tmp", self.run_dir / "checkpoint.pt")  # instant
        return stop

    def finish(self, step: int) -> int:  # evaluates and keeps the agent; returns the exit code
        if not self.exit_code:
            returns = evaluate(self.agent, self.args, self.run_dir / "videos/evaluation")
            if len(returns):
                self.write({"eval/episodic_return": returns.mean()}, step)
                print(f"\nevaluation: return {returns.mean():.1f} ± {returns.std():.1f}")
            shutil.copy(self.run_dir / "checkpoint.pt", self.run_dir / "agent.pt")
            self.writer.close()
        return self.exit_code


def setup_torch(args: Args) -> torch.device:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(args.seed)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    torch.set_num_threads(args.torch_threads)
    if sys.platform == "linux":  # freed memory is kept: fresh pages cost as much as convolutions
        for option, value in ((-4, 0), (-1, -1)):  # M_MMAP_MAX, M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(option, value)
    auto = "cuda" if args.cuda and torch.cuda.is_available() else "cpu"
    return torch.device(auto if args.device == "auto" else args.device)


def compiled(function: Any) -> Any:
    torch._dynamo.config.trace_autograd_ops = True  # loss.backward() becomes part of the graph
    cpu = not torch.cuda.is_initialized()  # on a GPU the wrapper would need the CUDA toolkit
    return torch.compile(function, options={"cpp_wrapper": cpu})


@torch.no_grad()
def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> Array:
    """Plays `eval_episodes` whole episodes, filmed with --capture-video; returns their returns."""
    envs, device = make_envs(replace(args, num_envs=1), videos), next(agent.parameters()).device
    obs, returns = envs.reset(seed=args.seed + 1_000_000)[0], list[float]()
    state, (start, reset) = torch.zeros(2, 1, 128, device=device), np.zeros((2, 1), bool)
    while len(returns) < args.eval_episodes:
        seen = torch.from_numpy(obs).to(device)
        x, state = agent.features(seen, state, torch.from_numpy(start)[None])
        obs, _, terminated, truncated, infos = envs.step(agent.get_action(x, greedy).cpu().numpy())
        start, reset = reset, terminated | truncated
        returns += infos["episode"]["r"].tolist() if "episode" in infos else []
    envs.close()
    return np.array(returns)


def load(file: Path) -> dict[str, Any]:  # executes nothing that is in the file
    try:
        assert file.read_bytes()[:2] == b"PK", "not an archive of torch.save"
        state = torch.load(file, map_location="cpu", weights_only=True)
        state["args"] = Args(**state["args"])
        assert state["script"] == Path(__file__).name, f"written by {state['script']}"
    except Exception as error:
        fail_if(True, f"{file} is not a checkpoint that can be used here: {error!r:.70}")
    return state


def check(args: Args) -> None:  # what cannot work ends in one line; nothing has been written yet
    bounds = dict.fromkeys(("learning_rate", "clip_coef", "max_grad_norm"), 1e-9)
    bounds |= dict.fromkeys(("seed", "checkpoint_every", "eval_episodes", "gamma", "gae_lambda"), 0)
    ones = "num_envs num_steps num_minibatches update_epochs torch_threads video_every"
    for name, least in (bounds | dict.fromkeys(ones.split(), 1)).items():
        fail_if(not getattr(args, name) >= least, f"--{name.replace('_', '-')} starts at {least}")
    fail_if(max(args.gamma, args.gae_lambda) > 1, "--gamma and --gae-lambda must be at most 1")
    fail_if(args.batch_size % args.num_minibatches, "--num-minibatches must divide the batch size")
    fail_if(args.num_envs % args.num_minibatches, "--num-minibatches must divide --num-envs")
    fail_if(args.num_iterations < 1, f"--total-timesteps is below one batch, {args.batch_size}")
    fail_if(args.compile and not shutil.which("g++"), "--compile needs g++: apt install g++")
    try:
        os.listdir(next(filter(Path.exists, (Path(args.runs_dir) / "run").absolute().parents)))
        other = "ale_py" not in str(gym.spec(args.env_id).entry_point)
        fail_if(other, f"{args.env_id} is not an Atari game, see ppo.py")
        envs = make_envs(replace(args, num_envs=1, async_envs=False, capture_video=False), Path())
        torch.from_numpy(np.zeros(1, envs.single_observation_space.dtype)).to(setup_torch(args))
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
    fits = isinstance(obs, gym.spaces.Box) and not np.any(getattr(action, "start", 0))
    fail_if(not fits, f"{who} has {obs}, {action}: needs a Box, and actions that start at 0")


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
        versions = {m.__name__: m.__version__ for m in (gym, np, torch)} | {"python": sys.version}
        about |= {"versions": versions, "hardware": f"{os.cpu_count()} CPUs, {setup_torch(args)}"}
        (run_dir / "args.json").write_text(json.dumps(about, indent=1))
    sys.exit(train(args, run_dir, checkpoint))
