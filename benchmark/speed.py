# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "gymnasium[box2d,classic-control]>=1.4,<2", "numpy>=2", "stable-baselines3>=2.7",
#     "torch>=2.11", "tyro>=0.9.20",
# ]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Steps per second and memory of ppo.py beside CleanRL's ppo.py and SB3's PPO, in turn.

    uv run benchmark/speed.py --out docs/results/speed.md
    uv run benchmark/speed.py --cleanrl ~/cleanrl --cleanrl-python ~/cleanrl/.venv/bin/python

All train CartPole-v1 with CleanRL's hyperparameters on the CPU, on one thread. Every round runs
each of them once, one after the other, so that a machine whose speed drifts slows all of them
alike; the ratios are formed within a round, and their median and range over the rounds is reported.
Speed is what each prints itself: environment steps over the time of its training loop, without
start-up (and without ppo.py's first iteration, in which --compile compiles). Memory is the peak
resident size of the process; most of it are torch's libraries, and less of them in torch's CPU
builds. CleanRL is a clone of its repository, run by an interpreter with its own pins (Python 3.10:
torch==2.4.1 gymnasium==0.29.1 tensorboard tyro numpy<2 wandb); it is left out if --cleanrl is not
given. SB3 runs in this program's environment.
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
import time, gymnasium, torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
torch.set_num_threads(1)
model = PPO(
    "MlpPolicy", make_vec_env("CartPole-v1", 4, seed=1), learning_rate=lambda left: left * 2.5e-4,
    n_steps=128, batch_size=128, n_epochs=4, gamma=0.99, gae_lambda=0.95, clip_range=0.2,
    clip_range_vf=0.2, ent_coef=0.01, vf_coef=0.5, max_grad_norm=0.5, seed=1, device="cpu",
)
start = time.monotonic()
model.learn({steps})
print("SPS:", model.num_timesteps / (time.monotonic() - start))
"""


@dataclass
class Args:
    steps: int = 200_000  # environment steps of each run
    rounds: int = 5  # how often each is run
    ppo: Path = Path(__file__).resolve().parents[1] / "ppo" / "ppo.py"  # the script to measure
    python: Path = Path(sys.executable)  # interpreter for the script and for SB3
    ppo_python: Path | None = None  # interpreter for the script; by default uv runs it
    cleanrl: Path | None = None  # clone of CleanRL
    cleanrl_python: Path = Path("python3.10")  # interpreter with CleanRL's pins
    sb3: bool = True  # measure SB3, too
    out: Path | None = None  # Markdown file to write the table to


@dataclass(frozen=True)
class Contender:
    """Something that trains, and how to read its speed (steps per second) off what it prints."""

    name: str
    command: list[str]
    pattern: str


def fail(message: str) -> NoReturn:
    print(f"{Path(__file__).name}: {message}", file=sys.stderr)
    sys.exit(2)


def contenders(args: Args) -> list[Contender]:
    """Who takes part; the first one is what the others are compared with."""
    own = [str(args.ppo_python), str(args.ppo)] if args.ppo_python else ["uv", "run", str(args.ppo)]
    own += ["--no-cuda", "--eval-episodes", "0", "--total-timesteps", str(args.steps)]
    listed = [
        Contender("ppo.py", own, r"([\d,]+) steps/s"),
        Contender("ppo.py --compile", [*own, "--compile"], r"([\d,]+) steps/s"),
    ]
    if args.cleanrl is not None:
        script = args.cleanrl.expanduser().resolve() / "cleanrl" / "ppo.py"
        if not script.is_file():
            fail(f"there is no {script}")
        command = [str(args.cleanrl_python.expanduser()), str(script), "--no-cuda"]
        command += ["--total-timesteps", str(args.steps)]
        listed.append(Contender("CleanRL ppo.py", command, r"SPS: (\d+)"))
    if args.sb3:
        program = SB3.replace("{steps}", str(args.steps))
        listed.append(Contender("SB3 PPO", [str(args.python), "-c", program], r"SPS: ([\d.]+)"))
    return listed


def measure(contender: Contender, folder: str) -> tuple[float, float]:
    """Runs the contender once in `folder`: its steps per second and its peak memory in MiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
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


def table(results: dict[str, list[tuple[float, float]]]) -> str:
    """Markdown: speed, memory, and how many times as fast ppo.py is, median (range) of rounds."""
    own, compiled = (
        [speed for speed, _ in results[name]] for name in ("ppo.py", "ppo.py --compile")
    )
    lines = [
        "| | steps per second | peak memory, MiB | ppo.py is faster | with --compile |",
        "|---|---|---|---|---|",
    ]
    for name, rounds in results.items():
        speeds, memory = [speed for speed, _ in rounds], [size for _, size in rounds]
        ratios = [
            spread([a / b for a, b in zip(o, speeds, strict=True)], 2) for o in (own, compiled)
        ]
        faster = [f"{ratio} times" for ratio in ratios] if "ppo.py" not in name[:6] else ["", ""]
        cells = [name, spread(speeds, 0), spread(memory, 0), *faster]
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
                speed, memory = measure(contender, folder)
                results[contender.name].append((speed, memory))
                print(
                    f"round {number + 1} of {args.rounds}: {contender.name:18} "
                    f"{speed:8,.0f} steps/s {memory:6,.0f} MiB",
                    flush=True,
                )
    print(f"\n{table(results)}")
    if args.out is not None:
        note = (
            f"CartPole-v1, {args.steps:,} steps, {args.rounds} rounds in turn on {os.cpu_count()} "
            "CPU cores, one thread: median (lowest to highest). "
            "Command: `uv run benchmark/speed.py`."
        )
        args.out.write_text(f"{table(results)}\n\n{note}\n")


if __name__ == "__main__":
    main()
