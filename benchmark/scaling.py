"""Steps per second and memory of ppo.py as its work grows: environments, rollout, network.

    uv run benchmark/scaling.py --out docs/results/scaling.csv
    uv run benchmark/scaling.py --knobs width --rounds 1

Three knobs are turned, one at a time: --num-envs, --num-steps, and the width of the hidden layers,
which is no flag: that is measured with copies of ppo.py in which `mlp` has another number in place
of 64. All else is as by default, so the four minibatches grow with the rollout. Every round runs
each setting once, in a process of its own, on one thread. Seconds are those that the processor
works, so that others on the machine hardly matter; the first iteration is left out. Memory is the
peak resident size. charts.py draws the figure. Exit codes: 0 done, 1 a run failed, 2 bad input.
"""

import contextlib
import csv
import importlib.util
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import tyro
from console import mebibytes

PPO = Path(__file__).resolve().parents[1] / "ppo" / "ppo.py"
Knob = Literal["num_envs", "num_steps", "width"]
VALUES: dict[Knob, tuple[int, ...]] = {
    "num_envs": (1, 4, 16, 64, 256),
    "num_steps": (8, 32, 128, 512, 2048),
    "width": (16, 64, 256, 1024),
}
DEFAULT_WIDTH = 64
ITERATIONS = 5  # at least; the first one is not counted


@dataclass
class Args:
    knobs: tuple[Knob, ...] = ("num_envs", "num_steps", "width")  # what to turn
    env_id: str = "CartPole-v1"  # environment
    steps: int = 5_000  # environment steps of each run, and five rollouts at least
    rounds: int = 3  # how often each setting is run
    out: Path | None = None  # CSV file to write


@dataclass(frozen=True)
class Row:
    """One run."""

    knob: Knob
    value: int
    round: int
    steps_per_second: int  # of the processor
    memory_mib: int  # peak of the resident size


def with_width(source: str, width: int) -> str:
    """ppo.py with hidden layers of another width: each 64 in `mlp` is replaced.

    Raises ValueError if there is no such function, or no 64 in it.
    """
    begin = source.index("def mlp(")
    end = source.index("\n\n\n", begin)
    edited, count = re.subn(rf"\b{DEFAULT_WIDTH}\b", str(width), source[begin:end])
    if not count:
        raise ValueError(f"mlp has no layers of {DEFAULT_WIDTH} units")
    return source[:begin] + edited + source[end:]


def load(path: Path) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location("measured", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def flags(args: Args, knob: Knob, value: int, script: ModuleType) -> Any:
    """The script's Args with a knob turned, and as many steps as the run needs."""
    chosen: dict[str, Any] = {"env_id": args.env_id, "eval_episodes": 0, "cuda": False}
    if knob != "width":
        chosen[knob] = value
    rollout = script.Args(**chosen).batch_size
    return script.Args(**chosen, total_timesteps=max(args.steps, ITERATIONS * rollout))


def run(args: Args, knob: Knob, value: int, folder: Path) -> tuple[float, float]:
    """Trains once in a folder; returns steps per second of the processor, and the memory in MiB."""
    path = folder / PPO.name
    source = PPO.read_text()
    path.write_text(with_width(source, value) if knob == "width" else source)
    script = load(path)
    log = script.Run.log
    logged: list[tuple[float, int]] = []  # processor time and step at the end of each iteration

    def log_and_note(*given: Any) -> None:
        log(*given)
        logged.append((time.process_time(), given[-1]))

    script.Run.log = log_and_note
    script.train(flags(args, knob, value, script), folder / "run", {})
    (first_time, first_step), (last_time, last_step) = logged[0], logged[-1]
    speed = (last_step - first_step) / (last_time - first_time)
    return speed, mebibytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def run_quietly(args: Args, knob: Knob, value: int, results: Any) -> None:
    """What a process of its own does: `run`, and put what it returns into a queue."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        results.put(run(args, knob, value, Path(folder)))


def measure(args: Args, knob: Knob, value: int, number: int) -> Row:
    """Runs a setting in a process of its own; ends the program with exit code 1 if that fails."""
    context = multiprocessing.get_context("fork")  # torch is imported once
    results = context.SimpleQueue()
    process = context.Process(target=run_quietly, args=[args, knob, value, results])
    process.start()
    process.join()
    if process.exitcode:
        print(f"{knob} {value} failed, exit code {process.exitcode}", file=sys.stderr)
        sys.exit(1)
    speed, memory = results.get()
    return Row(knob, value, number, round(speed), round(memory))


def main() -> None:
    """Runs every setting, once in each round, and writes the file."""
    args = tyro.cli(Args, description=__doc__)
    if args.rounds < 1 or args.steps < 1 or not args.knobs:
        print("error: --rounds and --steps must be at least 1, and one of --knobs", file=sys.stderr)
        sys.exit(2)
    if args.out is not None and not args.out.absolute().parent.is_dir():
        print(f"error: --out: there is no folder {args.out.parent}", file=sys.stderr)
        sys.exit(2)
    if args.out is not None and args.out.is_dir():
        print(f"error: --out: {args.out} is a folder, and not a CSV file", file=sys.stderr)
        sys.exit(2)
    script = load(PPO)  # and with it torch, which the processes below then have
    script.check(script.Args(env_id=args.env_id, cuda=False, runs_dir=tempfile.gettempdir()))
    rows = []
    for number in range(1, args.rounds + 1):
        for knob in args.knobs:
            for value in VALUES[knob]:
                row = measure(args, knob, value, number)
                rows.append(row)
                print(
                    f"round {number} of {args.rounds}: {knob} {value:<8} "
                    f"{row.steps_per_second:8,} steps/s {row.memory_mib:6,} MiB",
                    flush=True,
                )
    if args.out is not None:
        with open(args.out, "w", newline="") as file:
            writer = csv.DictWriter(
                file, [field.name for field in fields(Row)], lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(vars(row) for row in rows)


if __name__ == "__main__":
    main()
