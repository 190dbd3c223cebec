# /// script
# requires-python = ">=3.11"
# dependencies = ["gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1", "numpy>=2",
#     "tensorboard>=2.19", "torch>=2.11", "tyro>=0.9.20", "wandb>=0.21",
#     "envpool>=1.2"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""PPO for Atari games in EnvPool on several GPUs, or machines: each process does its share.

    uv run --extra envpool torchrun --standalone --nproc_per_node=2 \
        ppo/ppo_atari_envpool_multigpu.py
    uv run ppo/ppo_atari_envpool_multigpu.py --env-id Pong-v5     one process
Tags like [core-3]: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
Parent: ppo_atari_envpool.py
Details: core 1-12, atari 1-9, aux 2-3 (atari-8 replaces core-13)
Deviations: truncated episodes bootstrapped, reset steps left out (docs/episode-ends.md).
"""

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import envpool
import gymnasium as gym
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported after the group is made, it keeps the group's threads
import tyro
from gymnasium.utils.save_video import save_video
from numpy.typing import NDArray as Array
from tensorboard.compat.proto.summary_pb2 import Summary
from torch import Tensor, nn, optim
from torch.utils.tensorboard import SummaryWriter

RANK = int(os.environ.get("RANK", 0))  # number of this process; torchrun sets all four
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))  # processes in all
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))  # number among those of this machine
LOCAL_WORLD_SIZE = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # processes of this machine


@dataclass
class Args:
    env_id: str = "Breakout-v5"  # game, as EnvPool calls it
    total_timesteps: int = 10_000_000  # environment steps in all
    learning_rate: float = 2.5e-4  # Adam's step size; usually 1e-4 to 1e-3
    num_envs: Annotated[int, tyro.conf.arg(aliases=["--local-num-envs"])] = 8  # of each process
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
    device_ids: tuple[int, ...] = ()  # CUDA devices of a machine's processes; default: 0 1 2 ...
    backend: Literal["auto", "gloo", "nccl"] = "auto"  # auto is NCCL if no GPU has two processes
    timeout: int = 300  # seconds that a process waits for the others before it gives up
    torch_threads: int = max((os.cpu_count() or 1) // LOCAL_WORLD_SIZE, 1)  # of each process
    env_threads: int = max((os.cpu_count() or 1) // LOCAL_WORLD_SIZE, 1)  # of each process's games
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
    batch_size = property(lambda self: self.num_envs * self.num_steps * WORLD_SIZE)
    num_iterations = property(lambda self: self.total_timesteps // self.batch_size)


class EnvPool:
    """EnvPool behind the interface of Gymnasium's vectors; reports, and films, whole games.

    The step that follows the end of a life ignores its action and resets: EnvPool has no other way.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, args: Args, videos: Path):
        self.args, self.videos, self.games, self.frames = args, videos, 0, list[Array]()
        self.pool: Any = None
        spec = envpool.make_spec(args.env_id)
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, args.num_envs)

    def reset(self, seed: int) -> tuple[Array, dict[str, Any]]:
        self.score = np.zeros(self.args.num_envs)
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
        return self.pool.reset()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        obs, rewards, terminated, truncated, infos = self.pool.step(actions.astype(np.int32))
        self.score += infos["reward"]  # not clipped
        if self.args.capture_video and self.games % self.args.video_every == 0:
            self.frames += [*self.pool.render(0)]
        over = infos["terminated"].astype(bool) | truncated  # `terminated` is the end of a life
        statistics = {"r": self.score, "l": infos["elapsed_step"]}
        self.score = np.where(over, 0, self.score)
        if over[0] and self.frames:
            always = {"episode_trigger": lambda n: True, "episode_index": self.games}
            save_video(self.frames, str(self.videos), fps=15, **always)
        if over[0]:
            self.games, self.frames = self.games + 1, []
        infos = {"episode": statistics, "_episode": over} if over.any() else {}
        return obs, rewards, terminated, truncated, infos

    def close(self) -> None:
        if self.pool:
            self.pool.close()


def make_envs(args: Args, videos: Path) -> EnvPool:
    """`num_envs` games; with --capture-video the first one is filmed to `videos`."""
    return EnvPool(args, videos)


def layer_init(layer: Any, std: float = np.sqrt(2), bias_const: float = 0.0) -> Any:
    nn.init.orthogonal_(layer.weight, std)  # [core-2] orthogonal initialization
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs: EnvPool, bf16: bool = False):
        super().__init__()
        self.bf16 = bf16
        self.network = nn.Sequential(  # [atari-8] shared Nature-CNN
            *(layer_init(nn.Conv2d(4, 32, kernel_size=8, stride=4)), nn.ReLU()),
            *(layer_init(nn.Conv2d(32, 64, kernel_size=4, stride=2)), nn.ReLU()),
            *(layer_init(nn.Conv2d(64, 64, kernel_size=3)), nn.ReLU(), nn.Flatten()),
            *(layer_init(nn.Linear(64 * 7 * 7, 512)), nn.ReLU()),
        )
        self.critic = layer_init(nn.Linear(512, 1), std=1.0)
        self.actor = layer_init(nn.Linear(512, envs.single_action_space.n), std=0.01)

    def features(self, obs: Tensor) -> Tensor:  # (batch, 4, 84, 84) to x, (batch, 512)
        images = obs.to(memory_format=torch.channels_last) / 255.0  # [atari-9] scale to [0, 1]
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bf16):
            return self.network(images).float()

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


def total(x: Tensor) -> Tensor:
    """The sum of what x is in each process; x becomes it."""
    if WORLD_SIZE > 1:
        dist.all_reduce(x)
    return x


def ppo_loss(
    newlogprob: Tensor, entropy: Tensor, newvalue: Tensor, mb: dict[str, Tensor], args: Args
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of a minibatch and statistics: equations 7 and 9 of arxiv.org/abs/1707.06347.

    newlogprob, entropy, newvalue: (minibatch_size,), from the network that is being trained.
    mb: logprobs, values, advantages, returns, valid: (minibatch_size,), from the rollout.
    """
    count = total(mb["valid"].sum()).clamp(min=1)  # of the minibatches of all processes
    weight = mb["valid"] / count  # weight @ x is the mean of x, reset steps left out
    logratio = newlogprob - mb["logprobs"]
    ratio = logratio.exp()  # 1 until the first gradient step on a rollout
    advantages = mb["advantages"]
    if args.norm_adv:
        centered = advantages - total(weight @ advantages)
        std = (total(weight @ centered**2) * count / (count - 1).clamp(min=1)).sqrt()
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


def add_up(agent: Agent, stats: dict[str, Tensor]) -> None:
    """Adds up the processes' shares of the gradient and of the statistics, in one message."""
    shares = [*(p.grad for p in agent.parameters() if p.grad is not None), *stats.values()]
    sums = total(torch.cat([share.flatten() for share in shares]))
    for share, part in zip(shares, sums.split([share.numel() for share in shares]), strict=True):
        share.copy_(part.view_as(share))


def backward(agent: Agent, batch: dict, mb_inds: Tensor, args: Args) -> dict[str, Tensor]:
    mb = {name: rows[mb_inds] for name, rows in batch.items()}
    x = agent.features(mb["obs"])
    newlogprob, entropy, newvalue = agent.get_logprob_entropy_value(x, mb["actions"])
    loss, stats = ppo_loss(newlogprob, entropy, newvalue, mb, args)
    loss.backward()  # leaves the gradient in the agent's parameters
    add_up(agent, stats)  # [aux-2] parallelized gradient update
    norm = torch.cat([p.grad.flatten() for p in agent.parameters() if p.grad is not None]).norm()
    nn.utils.clip_grads_with_norm_(agent.parameters(), args.max_grad_norm, norm)  # [core-11] global
    return {**stats, "losses/grad_norm": norm}


def train(args: Args, run_dir: Path, checkpoint: dict[str, Any]) -> int:
    """Trains in `run_dir`, from the start (checkpoint is {}) or on; returns the exit code."""
    # ------ setup ------
    args = replace(args, seed=args.seed + RANK * args.num_envs)  # other games, other actions
    args = replace(args, capture_video=args.capture_video and RANK == 0)
    device = setup_torch(args)
    envs = make_envs(args, run_dir / time.strftime("videos/%Y%m%d-%H%M%S"))
    agent = Agent(envs, args.bf16).to(memory_format=torch.channels_last).to(device)  # faster
    optimizer = optim.Adam(agent.parameters(), eps=1e-5, fused=True)  # [core-3] Adam epsilon
    log = Logger(args, run_dir, agent, optimizer, checkpoint)
    for weight in agent.state_dict().values() if WORLD_SIZE > 1 else ():
        dist.broadcast(weight, 0)
    if RANK > 0 and checkpoint:  # whose random numbers are those of the first process
        torch.manual_seed(args.seed + log.global_step)
    compute_gradient = compiled(backward) if args.compile else backward

    # ------ storage: row t holds what was seen and done at step t and what came of it ------
    global_step, (next_obs, _) = log.global_step, envs.reset(seed=args.seed + log.global_step)
    obs = torch.from_numpy(np.stack([next_obs] * args.num_steps)).to(device)
    actions = torch.from_numpy(np.stack([envs.action_space.sample()] * args.num_steps)).to(device)
    rewards = np.zeros((args.num_steps, args.num_envs), np.float32)
    terminated, truncated = np.zeros((2, *rewards.shape), bool)  # by the task itself, by a limit
    last_done = np.zeros((1, args.num_envs), bool)  # before the first step of the rollout
    features = torch.zeros(args.num_steps, args.num_envs, 512, device=device)
    for iteration in range(log.iteration + 1, args.num_iterations + 1):
        remaining = 1 - (iteration - 1) / args.num_iterations if args.anneal_lr else 1.0
        optimizer.param_groups[0]["lr"] = remaining * args.learning_rate  # [core-4] annealing

        # ------ rollout: act in the environments and store what happens ------
        with torch.inference_mode():
            for step in range(args.num_steps):
                obs[step] = torch.from_numpy(next_obs)
                features[step] = agent.features(obs[step])
                actions[step] = action = agent.get_action(features[step])
                result = envs.step(action.cpu().numpy())
                next_obs, rewards[step], terminated[step], truncated[step], infos = result
                global_step += args.num_envs * WORLD_SIZE
                log.episodes(infos, global_step)

        # ------ advantages: how much better than expected was each action? ------
        with torch.no_grad():
            x = features.flatten(0, 1)
            logprobs, _, value = agent.get_logprob_entropy_value(x, actions.flatten(0, 1))
            next_value = agent.get_value(agent.features(torch.from_numpy(next_obs).to(device)))
        values = torch.cat([value, next_value]).view(-1, args.num_envs).cpu().numpy()
        done = np.vstack([last_done, terminated | truncated])
        valid, last_done = ~done[:-1], done[-1:]  # [deviation] reset steps left out
        advantages, returns = compute_gae(rewards, values, terminated, truncated, args)
        batch = {"obs": obs.flatten(0, 1), "actions": actions.flatten(0, 1), "logprobs": logprobs}
        rows = {"values": values[:-1], "advantages": advantages, "returns": returns, "valid": valid}
        batch |= {k: torch.from_numpy(v).flatten().to(device) for k, v in rows.items()}

        # ------ update: a few epochs of gradient steps on minibatches of the rollout ------
        stats = []
        for _epoch in range(args.update_epochs):
            shuffled = torch.randperm(args.batch_size // WORLD_SIZE, device=device)
            for mb_inds in shuffled.chunk(args.num_minibatches):  # [core-6] mini-batch updates
                optimizer.zero_grad()
                stats.append(compute_gradient(agent, batch, mb_inds, args))
                optimizer.step()
            if args.target_kl is not None and stats[-1]["losses/approx_kl"] > args.target_kl:
                break  # [aux-3] early stopping on KL

        # ------ log ------
        errors, targets = log.agree(advantages[valid], returns[valid])
        log.scalars(stats, 1 - errors.var() / (targets.var() + 1e-8), global_step)
        if log.checkpoint(iteration, global_step):
            break
    envs.close()
    gather()  # who leaves earlier, stopped, makes torchrun end a process that still saves
    if WORLD_SIZE > 1:
        dist.destroy_process_group()
    return log.finish(global_step)


# ====== plumbing: nothing below changes what is learned ======
class Logger:  # everything about the run folder: metrics, progress, checkpoints, Ctrl-C
    def __init__(self, args: Args, run_dir: Path, agent: Agent, optimizer: Any, saved: dict):
        self.enabled = os.environ.get("RANK", "0") == "0"  # torchrun's; others log nothing
        self.args, self.run_dir, self.agent, self.optimizer = args, run_dir, agent, optimizer
        self.iteration, self.global_step = saved.get("iteration", 0), saved.get("global_step", 0)
        self.recent: list[float] = saved.get("recent", [])  # returns of the last 100 episodes
        self.ended: list[tuple[int, float, int]] = []  # step, return, length of new episodes
        self.clock: tuple[float, int] | None = None  # time and step that speed is counted from
        self.printed, self.exit_code, self.films = 0.0, 0, set(run_dir.glob("videos/*/*.mp4"))
        self.asked = 0  # to stop, by a signal to this process; exit_code is agreed upon
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.on_signal)
        if saved:
            (run_dir / "agent.pt").unlink(missing_ok=True)
            agent.load_state_dict(saved["agent"])
            optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["rng"][0])
            torch.cuda.set_rng_state_all(saved["rng"][1 : 1 + torch.cuda.device_count()])
        self.wandb: Any = __import__("wandb") if self.enabled and args.track else None
        if self.wandb:
            ids = {"id": (run := run_dir.resolve()).name, "name": run.name, "dir": run.parent}
            ids |= {"project": args.wandb_project_name, "entity": args.wandb_entity}
            self.wandb.init(config=asdict(args), sync_tensorboard=True, resume="allow", **ids)
        if self.enabled:  # what was logged after the checkpoint is purged: it will be logged again
            print(f"run folder: {run_dir}", flush=True)
            self.writer: Any = SummaryWriter(str(run_dir), purge_step=self.global_step + 1)
            self.checkpoint(self.iteration, self.global_step)

    def on_signal(self, signum: int, _frame: object) -> None:
        self.asked = 128 + signum
        signal.signal(signum, signal.SIG_DFL)
        print("\nstopping after this iteration; once more to stop at once", file=sys.stderr)

    def write(self, values: dict[str, float], step: int) -> None:
        summary = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.writer.file_writer.add_summary(Summary(value=summary), step)

    def episodes(self, infos: dict[str, Any], step: int) -> None:
        for i in np.flatnonzero(infos["_episode"]) if "_episode" in infos else ():
            self.ended.append((step, infos["episode"]["r"][i], infos["episode"]["l"][i]))

    def agree(self, *arrays: Array) -> list[Array]:  # among all processes, in every iteration
        ended, asked, *everyone = gather(self.ended, self.asked, *arrays)
        self.ended = sorted(e for part in ended for e in part) if self.enabled else []
        self.exit_code = max(asked)
        return [np.concatenate(parts) for parts in everyone]

    def scalars(self, stats: list, explained_variance: float, step: int) -> None:
        values = {k: torch.stack([s[k] for s in stats]).mean().item() for k in stats[0]}
        good = np.isfinite([*values.values(), *(p.sum().item() for p in self.agent.parameters())])
        fail_if(not good.all(), f"diverged at step {step}: {values}", exit_code=1)
        values["losses/explained_variance"] = explained_variance
        values["charts/learning_rate"] = self.optimizer.param_groups[0]["lr"]
        now = time.monotonic()
        self.clock = self.clock or (now, step)  # the first iteration, which compiles, is left out
        sps = (step - self.clock[1]) / max(now - self.clock[0], 1e-9)
        if not self.enabled:
            return
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
        if self.enabled and (stop or due):
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
        if self.enabled and not self.exit_code:
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
    if gpus(args):  # one of them is this process's
        return torch.device("cuda", gpus(args)[LOCAL_RANK % len(gpus(args))])
    return torch.device(auto if args.device == "auto" else args.device)


def gpus(args: Args) -> list[int]:  # that this machine's processes take in turn
    cuda = args.device == "cuda" or (args.cuda and args.device == "auto")
    cuda = cuda and torch.cuda.is_available()  # there may be a GPU, and no driver for it
    return [*(args.device_ids or range(torch.cuda.device_count()))] if cuda else []


def backend(args: Args) -> str:  # for tensors in memory and on a GPU; NCCL has no two on one
    alone = len(set(gpus(args))) >= LOCAL_WORLD_SIZE
    return "cpu:gloo,cuda:nccl" if alone and args.backend != "gloo" else "gloo"


def gather(*mine: Any) -> list[tuple]:  # for each argument: what it is in every process
    everyone: list[Any] = [mine]
    if WORLD_SIZE > 1:
        everyone *= WORLD_SIZE
        dist.all_gather_object(everyone, mine)
    return list(zip(*everyone, strict=True))


def from_first(function: Any, *args: Any) -> Any:  # called in the first process only
    return gather(function(*args) if RANK == 0 else None)[0][0]


def earlier_run(args: Args) -> str | None:
    """Folder of the run that torchrun, or SLURM, has started before with this very command line."""
    own = {"torchrun": os.environ.get("TORCHELASTIC_RUN_ID", ""), "argv": sys.argv[1:]}
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if again or own["torchrun"] not in ("", "none"):  # names the launch
        for file in sorted(Path(args.runs_dir).glob("*/args.json"), reverse=True):
            names = os.listdir(file.parent)
            unfinished = "checkpoint.pt" in names and (again or "agent.pt" not in names)
            with contextlib.suppress(ValueError, TypeError):  # cut off, or not of a run
                about = json.loads(file.read_text())
                if about == about | own and unfinished:
                    return str(file.parent)
    return None


def compiled(function: Any) -> Any:
    torch._dynamo.config.trace_autograd_ops = True  # loss.backward() becomes part of the graph
    cpu = not torch.cuda.is_initialized()  # on a GPU the wrapper would need the CUDA toolkit
    return torch.compile(function, options={"cpp_wrapper": cpu})


@torch.no_grad()
def evaluate(agent: Agent, args: Args, videos: Path, greedy: bool = False) -> Array:
    """Plays `eval_episodes` whole episodes, filmed with --capture-video; returns their returns."""
    envs, device = make_envs(replace(args, num_envs=1), videos), next(agent.parameters()).device
    obs, returns = envs.reset(seed=args.seed + 1_000_000)[0], list[float]()
    while len(returns) < args.eval_episodes:
        action = agent.get_action(agent.features(torch.from_numpy(obs).to(device)), greedy)
        obs, _, _, _, infos = envs.step(action.cpu().numpy())
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
    ones = "num_envs num_steps num_minibatches update_epochs torch_threads env_threads video_every"
    ones += " timeout"
    for name, least in (bounds | dict.fromkeys(ones.split(), 1)).items():
        fail_if(not getattr(args, name) >= least, f"--{name.replace('_', '-')} starts at {least}")
    fail_if(max(args.gamma, args.gae_lambda) > 1, "--gamma and --gae-lambda must be at most 1")
    rows = args.num_envs * args.num_steps
    fail_if(rows % args.num_minibatches, "--num-minibatches must divide the batch of each process")
    fail_if(args.num_iterations < 1, f"--total-timesteps is below one batch, {args.batch_size}")
    fail_if(args.compile and not shutil.which("g++"), "--compile needs g++: apt install g++")
    try:
        shared = args.backend == "nccl" and backend(args) == "gloo"
        fail_if(shared, "--backend nccl needs a GPU for each process")
        fail_if(args.device_ids and not gpus(args), f"--device-ids: not for --device {args.device}")
        os.listdir(next(filter(Path.exists, (Path(args.runs_dir) / "run").absolute().parents)))
        near = ", ".join(get_close_matches(args.env_id, envpool.list_all_envs()))
        fail_if(args.env_id not in envpool.list_all_envs(), f"no {args.env_id}; there is {near}")
        envs = make_envs(replace(args, num_envs=1, capture_video=False), Path())
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
    fail_if(obs.shape != (4, 84, 84), f"{who} is not an Atari game, see ppo.py")


def fail_if(problem: object, message: str, exit_code: int = 2) -> None:
    if problem:
        print(f"{Path(__file__).name}: {' '.join(message.split())}", file=sys.stderr)
        sys.exit(exit_code)


if __name__ == "__main__":
    args, checkpoint = tyro.cli(Args, description=__doc__.splitlines()[0]), {}
    if WORLD_SIZE > 1:
        dist.init_process_group(backend(args), timeout=timedelta(seconds=max(args.timeout, 1)))
    args.resume = args.resume or from_first(earlier_run, args)
    if args.resume:
        checkpoint = from_first(load, Path(args.resume) / "checkpoint.pt")
        launch = ("resume", "device", "device_ids", "cuda", "backend", "timeout")  # made the group
        now = {name: getattr(args, name) for name in launch}
        args = tyro.cli(Args, default=replace(old := checkpoint["args"], **now))
        changed = (args.env_id, args.batch_size) != (old.env_id, old.batch_size)
        fail_if(changed, "--resume keeps the run's --env-id, and its --num-envs x --num-steps")
        others = args.batch_size * checkpoint["iteration"] != checkpoint["global_step"]
        fail_if(others, f"--resume keeps the number of processes, which was not {WORLD_SIZE}")
    check(args)
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{datetime.now():%Y%m%d-%H%M%S-%f}"
    run_dir = Path(args.resume or Path(args.runs_dir) / name.replace("/", "-").replace(":", "-"))
    if RANK == 0 and not args.resume:
        run_dir.mkdir(parents=True)
        shutil.copy(__file__, run_dir)
        about = {"script": Path(__file__).name, "argv": sys.argv[1:], "args": asdict(args)}
        versions = {m.__name__: m.__version__ for m in (gym, np, torch)} | {"python": sys.version}
        about |= {"versions": versions, "hardware": f"{os.cpu_count()} CPUs, {setup_torch(args)}"}
        own = os.environ.get("TORCHELASTIC_RUN_ID", "")
        about |= {"torchrun": own, "processes": str(WORLD_SIZE)}
        (run_dir / "args.json").write_text(json.dumps(about, indent=1))
    sys.exit(train(args, run_dir, checkpoint))
