# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorboard>=2.19", "tyro>=0.9.20"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Steps per second and memory of ppo.py as its work grows: environments, rollout, network.

    uv run benchmark/scaling.py --out docs/results/scaling.csv
    uv run benchmark/scaling.py --knobs width --rounds 1

Three knobs are turned, one at a time: --num-envs, --num-steps, and the width of the hidden layers,
which is no flag: it is measured with copies of ppo.py in which `mlp` has another number in place of
64. All else is as by default, so four minibatches grow with the rollout. Every round runs each
setting once. Speed and memory are measured as in speed.py; charts.py draws the figure. Exit codes:
0 done, 1 a run failed, 2 bad input.
"""

import csv
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import speed
import tyro

SCRIPT = speed.PPO / "ppo.py"
Knob = Literal["num_envs", "num_steps", "width"]
VALUES: dict[Knob, tuple[int, ...]] = {
    "num_envs": (1, 4, 16, 64, 256),
    "num_steps": (8, 32, 128, 512, 2048),
    "width": (16, 64, 256, 1024),
}
DEFAULTS: dict[Knob, int] = {"num_envs": 4, "num_steps": 128, "width": 64}
ITERATIONS = 6  # at least; the first one does not count
COLUMNS = ("knob", "value", "round", "steps_per_second", "memory_mib")


@dataclass
class Args:
    knobs: tuple[Knob, ...] = ("num_envs", "num_steps", "width")  # what to turn
    env_id: str = "CartPole-v1"  # environment
    steps: int = 10_000  # environment steps of each run, and six rollouts at least
    rounds: int = 3  # how often each setting is run
    threads: int = 1  # CPU threads of torch
    python: Path | None = None  # interpreter for ppo.py; by default uv runs it
    out: Path | None = None  # CSV file to write


@dataclass(frozen=True)
class Row:
    """One run."""

    knob: Knob
    value: int
    round: int
    steps_per_second: float
    memory: float  # peak of the resident size, MiB

    def cells(self) -> list[str]:
        """What the file says of it."""
        measured = (f"{self.steps_per_second:.0f}", f"{self.memory:.0f}")
        return [self.knob, str(self.value), str(self.round), *measured]


def with_width(source: str, width: int) -> str:
    """ppo.py with hidden layers of another width: each 64 in `mlp` is replaced.

    Raises ValueError if there is no such function, or no 64 in it.
    """
    begin = source.index("def mlp(")
    end = source.index("\n\n\n", begin)
    edited, count = re.subn(r"\b64\b", str(width), source[begin:end])
    if not count:
        raise ValueError("mlp has no layers of 64 units")
    return source[:begin] + edited + source[end:]


def contender(args: Args, knob: Knob, value: int, folder: Path) -> speed.Contender:
    """The script with a knob turned; an edited copy is written to `folder`."""
    setting = {**DEFAULTS, knob: value}
    rollout = setting["num_envs"] * setting["num_steps"]
    script = SCRIPT
    if knob == "width":
        script = folder / SCRIPT.name
        script.write_text(with_width(SCRIPT.read_text(), value))
    start = ["uv", "run"] if args.python is None else [speed.interpreter(args.python)]
    flags = {
        "--env-id": args.env_id,
        "--total-timesteps": str(max(args.steps, ITERATIONS * rollout)),
        "--num-envs": str(setting["num_envs"]),
        "--num-steps": str(setting["num_steps"]),
        "--torch-threads": str(args.threads),
        "--eval-episodes": "0",
    }
    words = [word for pair in flags.items() for word in pair]
    command = [*start, str(script), "--no-cuda", *words]
    return speed.Contender(f"{knob} {value}", command, speed.OUR_SPEED)


def measure(args: Args) -> list[Row]:
    """Every setting, once in each round."""
    settings = [(knob, value) for knob in args.knobs for value in VALUES[knob]]
    rows = []
    for number in range(1, args.rounds + 1):
        for knob, value in settings:
            with tempfile.TemporaryDirectory() as folder:
                turned = contender(args, knob, value, Path(folder))
                found = speed.measure(turned, folder, args.threads)
            rows.append(Row(knob, value, number, found.speed, found.memory))
            print(
                f"round {number} of {args.rounds}: {turned.name:16} "
                f"{found.speed:8,.0f} steps/s {found.memory:6,.0f} MiB",
                flush=True,
            )
    return rows


def main() -> None:
    """Measures, and writes the file."""
    args = tyro.cli(Args, description=(__doc__ or "").splitlines()[0])
    if args.rounds < 1 or args.steps < 1 or not args.knobs:
        print("error: --rounds, --steps and --knobs must be at least 1", file=sys.stderr)
        sys.exit(2)
    if args.out is not None and not args.out.absolute().parent.is_dir():
        print(f"error: --out: there is no folder {args.out.parent}", file=sys.stderr)
        sys.exit(2)
    rows = measure(args)
    if args.out is not None:
        with open(args.out, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(row.cells() for row in rows)


if __name__ == "__main__":
    main()
