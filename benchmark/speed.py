# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "gymnasium[box2d,classic-control]>=1.4,<2", "gymnasium[mujoco]>=1.4,<2", "mujoco<4",
#     "numpy>=2", "stable-baselines3>=2.7", "torch>=2.11", "tyro>=0.9.20",
# ]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Steps per second and memory of a script beside CleanRL's and SB3's PPO, in turn.

    uv run benchmark/speed.py --out docs/results/speed.md
    uv run benchmark/speed.py --script ppo_continuous_action.py --env-id HalfCheetah-v4 \\
        --cleanrl ~/cleanrl --cleanrl-python ~/cleanrl/.venv/bin/python

All train the same environment with CleanRL's hyperparameters on the CPU, on as many threads. Every
round runs each of them once, one after the other, so that a machine whose speed drifts slows all of
them alike; the ratios are formed within a round, and their median and range over the rounds is
reported. Speed is what each prints itself: environment steps over the time of its training loop,
without start-up (and without our first iteration, in which --compile compiles). Memory is the peak
resident size of the process; most of it are torch's libraries, and less of them in torch's CPU
builds. CleanRL is a clone of its repository, run by an interpreter with its own pins (Python 3.10:
torch==2.4.1 gymnasium==0.29.1 tensorboard tyro numpy<2 wandb, mujoco==2.3.3 for MuJoCo, for Atari
ale-py==0.8.1 with the ROM files of a newer one in its roms/, opencv-python==4.7.0.72,
stable-baselines3==2.1.0, shimmy==1.3.0, gym==0.23.1, envpool==0.6.6, procgen==0.10.7); it is left
out if --cleanrl is not given, and so is LeanRL, for which the same interpreter will do. SB3 has a
counterpart of the scripts in SB3_SETTINGS and runs in this program's environment.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import tyro

SB3 = """
import time, torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
torch.set_num_threads({threads})
envs = make_vec_env("{env_id}", {num_envs}, seed=1)
if {normalize}:
    envs = VecNormalize(envs, clip_obs=10.0, clip_reward=10.0, gamma=0.99)
model = PPO(
    "MlpPolicy", envs, {settings}, gamma=0.99, gae_lambda=0.95, clip_range=0.2, clip_range_vf=0.2,
    vf_coef=0.25, max_grad_norm=0.5, seed=1, device="cpu",
)
start = time.monotonic()
model.learn({steps})
print("SPS:", model.num_timesteps / (time.monotonic() - start))
"""
# Environments, normalization, and what differs between the scripts' hyperparameters.
SB3_SETTINGS = {
    "ppo.py": (
        4,
        False,
        "learning_rate=lambda left: left * 2.5e-4, n_steps=128, batch_size=128, n_epochs=4, "
        "ent_coef=0.01",
    ),
    "ppo_continuous_action.py": (
        1,
        True,
        "learning_rate=lambda left: left * 3e-4, n_steps=2048, batch_size=64, n_epochs=10, "
        "ent_coef=0.0",
    ),
}
DEFAULT_ENVS = {"ppo.py": "CartPole-v1", "ppo_continuous_action.py": "HalfCheetah-v4"}


@dataclass
class Args:
    script: str = "ppo.py"  # which of ppo/ to measure; CleanRL's script of that name beside it
    env_id: str | None = None  # environment of all; by default one that the script is known for
    steps: int = 200_000  # environment steps of each run
    rounds: int = 5  # how often each is run
    threads: int = 1  # CPU threads of each
    python: Path = Path(sys.executable)  # interpreter for SB3
    ppo_python: Path | None = None  # interpreter for the script; by default uv runs it
    cleanrl: Path | None = None  # clone of CleanRL
    cleanrl_python: Path = Path("python3.10")  # interpreter with CleanRL's pins
    leanrl: Path | None = None  # clone of LeanRL
    sb3: bool = True  # measure SB3, too, where it has a counterpart
    out: Path | None = None  # Markdown file to write the table to


@dataclass(frozen=True)
class Contender:
    """Something that trains, and how to read its speed (steps per second) off what it prints."""

    name: str
    command: list[str]
    pattern: str
    path: Path | str = ""  # folder to import from, besides that of the script


def fail(message: str) -> NoReturn:
    print(f"{Path(__file__).name}: {message}", file=sys.stderr)
    sys.exit(2)


def variants(args: Args) -> list[list[str]]:
    """Flags that the script is measured with, one set after the other; the first set is empty."""
    script = Path(__file__).resolve().parents[1] / "ppo" / args.script
    has_bf16 = script.is_file() and "bf16: bool" in script.read_text()
    return [[], ["--compile"], *([["--bf16"]] if has_bf16 else [])]


def contenders(args: Args) -> list[Contender]:
    """Who takes part; the first one is what the others are compared with."""
    script = Path(__file__).resolve().parents[1] / "ppo" / args.script
    if not script.is_file():
        fail(f"there is no {script}")
    env_id = args.env_id or DEFAULT_ENVS.get(args.script)
    flags = ["--no-cuda", "--total-timesteps", str(args.steps)]
    flags += ["--env-id", env_id] if env_id else []
    own = [str(args.ppo_python), str(script)] if args.ppo_python else ["uv", "run", str(script)]
    own += [*flags, "--eval-episodes", "0", "--torch-threads", str(args.threads)]
    listed = [
        Contender(
            " ".join([args.script, *variant]), [*own, *variant], r"steps, ([1-9][\d,]*) steps/s"
        )
        for variant in variants(args)
    ]
    peers = [("CleanRL", "cleanrl", args.cleanrl, r"SPS: (\d+)")]
    peers += [("LeanRL", "leanrl", args.leanrl, r"speed: +([\d.]+) sps")]
    for peer, folder, clone, pattern in peers:
        if clone is not None:
            theirs = clone.expanduser().resolve() / folder / args.script
            if not theirs.is_file():
                fail(f"there is no {theirs}")
            command = [str(args.cleanrl_python.expanduser()), str(theirs), *flags]
            listed.append(Contender(f"{peer} {args.script}", command, pattern, clone.expanduser()))
    if args.sb3 and args.script in SB3_SETTINGS:
        num_envs, normalize, settings = SB3_SETTINGS[args.script]
        program = SB3.format(
            threads=args.threads,
            env_id=env_id,
            num_envs=num_envs,
            normalize=normalize,
            settings=settings,
            steps=args.steps,
        )
        listed.append(Contender("SB3 PPO", [str(args.python), "-c", program], r"SPS: ([\d.]+)"))
    return listed


def measure(contender: Contender, folder: str, threads: int) -> tuple[float, float]:
    """Runs the contender once in `folder`: its steps per second and its peak memory in MiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"PYTHONPATH": str(contender.path), "WANDB_MODE": "disabled"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            contender.command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)  # its own peak, and that of its children
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    speeds = re.findall(contender.pattern, text)
    if process.returncode != 0 or not speeds:
        print(text[-3000:], file=sys.stderr)
        print(f"{contender.name} failed, exit code {process.returncode}", file=sys.stderr)
        sys.exit(1)
    return float(speeds[-1].replace(",", "")), usage.ru_maxrss / 1024


def spread(values: list[float], digits: int) -> str:
    """Median and range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def table(results: dict[str, list[tuple[float, float]]], own: int) -> str:
    """Markdown: speed, memory, and how many times as fast ours is, median (range) of rounds.

    results: steps per second and memory of every round; the first `own` of them are ours.
    """
    ours = list(results)[:own]
    header = ["", "steps per second", "peak memory, MiB", f"{ours[0]} is faster"]
    header += [f"with {name.removeprefix(ours[0]).strip()}" for name in ours[1:]]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for name, rounds in results.items():
        cells = [name, *(spread([row[i] for row in rounds], 0) for i in (0, 1))]
        for mine in ours:
            ratios = [a / b for (a, _), (b, _) in zip(results[mine], rounds, strict=True)]
            cells.append("" if name in ours else f"{spread(ratios, 2)} times")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures all contenders in turn and prints the table."""
    args = tyro.cli(Args, description=(__doc__ or "").splitlines()[0])
    if args.rounds < 1 or args.steps < 5_000:
        fail("--rounds must be at least 1 and --steps at least 5000")
    listed = contenders(args)
    results: dict[str, list[tuple[float, float]]] = {contender.name: [] for contender in listed}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            for contender in listed:
                speed, memory = measure(contender, folder, args.threads)
                results[contender.name].append((speed, memory))
                print(
                    f"round {number + 1} of {args.rounds}: {contender.name:36} "
                    f"{speed:8,.0f} steps/s {memory:6,.0f} MiB",
                    flush=True,
                )
    print(f"\n{table(results, len(variants(args)))}")
    if args.out is not None:
        note = (
            f"{args.env_id or DEFAULT_ENVS.get(args.script, 'Default environment')}, "
            f"{args.steps:,} steps, {args.rounds} rounds in turn on {os.cpu_count()} CPU cores, "
            f"threads: {args.threads}; median (lowest to highest). "
            f"Command: `uv run benchmark/speed.py --script {args.script} --steps {args.steps} "
            f"--rounds {args.rounds} --threads {args.threads} "
            f"--cleanrl CLONE --cleanrl-python ITS_PYTHON"
            f"{' --leanrl CLONE' if args.leanrl else ''}`."
        )
        args.out.write_text(f"{table(results, len(variants(args)))}\n\n{note}\n")


if __name__ == "__main__":
    main()
