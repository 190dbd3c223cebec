"""Speed of a script beside CleanRL's, LeanRL's and SB3's PPO, all run in turn.

    uv run benchmark/speed.py                                            beside SB3
    uv run benchmark/speed.py --script ppo_atari_envpool.py --cleanrl ~/cleanrl
    uv run benchmark/speed.py --until 475 --rounds 3                     seconds until solved
    uv run benchmark/speed.py --vary num-envs=1,4,16,64                  how it scales

All train the same environment with CleanRL's hyperparameters and as many threads, JAX with two at
least; EnvPool in CleanRL and LeanRL takes a thread for each game if there are as many CPUs. Each
round runs each program twice, short and long. Speed is the difference of their steps over the
difference of their times, so imports, compiling and the first iterations do not count. Rounds are
paired: ratios are formed within a round, and their median and range over the rounds are reported.
Seconds are CPU time, which other programs on the machine disturb less; --wall and --cuda take
wall-clock time. Memory is the peak resident size of the long run.

CleanRL and LeanRL are clones of their repositories, left out if not given; SB3 is run by
speed_sb3.py. uv runs them with the versions in requirements/. --cleanrl-python and --ppo-python
name interpreters to take instead.

With --until it is the wall-clock time from the start of the process until the mean return of the
last 100 episodes reaches a score. Round n has seed n, and each program has the hyperparameters and
steps that it comes with. Exit codes: 0 done, 1 a program failed, 2 bad input.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import cpu_count, fail, kill_all, mebibytes, read_args
from runs import RETURN, WINDOW, read_events, rolling_mean
from scripts import default_of, defaults

HERE = Path(__file__).resolve().parent
PPO = HERE.parent / "ppo"
SB3_ENVS = {"ppo.py": "CartPole-v1", "ppo_continuous_action.py": "HalfCheetah-v4"}
SB3_GAMES = ("ppo_atari.py", "ppo_atari_envpool.py")  # which it plays with --until alone
# Environment steps between the short and the long run: half a minute or so each.
STEPS = {"ppo.py": 200_000, "ppo_continuous_action.py": 50_000, "ppo_gymnax.py": 2_000_000}
STEPS_OF_GAMES = 10_240
ITERATIONS_OF_SHORT = 2  # so that all that happens once is in both runs


@dataclass
class Args:
    script: str = "ppo.py"  # which of ppo/ to measure; the peers' script of that name beside it
    env_id: str | None = None  # environment of all; the default fits the script
    steps: int | None = None  # of the long run beyond the short one; the default fits the script
    until: float | None = None  # measure the time until this mean return of 100 episodes
    vary: str | None = None  # FLAG=VALUE,VALUE: the script alone, with each value
    plain: bool = False  # leave out the script with --compile and with --bf16
    rounds: int = 5  # how often each is run
    threads: int = 1  # CPU threads of each
    wall: bool = False  # wall-clock time instead of CPU time
    cuda: bool = False  # train on the GPU
    ppo_python: Path | None = None  # interpreter for the script; by default uv runs it
    cleanrl: Path | None = None  # clone of CleanRL
    cleanrl_python: Path | None = None  # interpreter for it; by default uv makes one
    leanrl: Path | None = None  # clone of LeanRL; not with --until
    sb3: bool = True  # measure SB3, too, where it has a counterpart
    out: Path | None = None  # CSV file to write


@dataclass(frozen=True)
class Program:
    """Something that trains. steps_flag: what its number of environment steps is called."""

    name: str
    command: list[str]
    steps_flag: str = "--total-timesteps"
    path: str = ""  # folder to import from, besides that of the script


@dataclass(frozen=True)
class Ended:
    """One run: when it started, its seconds, and its memory in MiB."""

    started: float  # seconds since the epoch
    wall: float
    cpu: float
    memory: float


# ------ the programs ------
def python_of(given: Path | None, requirements: str, version: str = "3.10") -> list[str]:
    """The command of an interpreter: the given one, or one that uv makes of pinned versions."""
    if given is not None:
        return [str(given.absolute())]
    start = ["uv", "run", "--no-project", "--python", version, "--with-requirements"]
    return [*start, str(HERE / "requirements" / requirements), "python"]


def our_programs(args: Args) -> list[Program]:
    """The script, as it comes and with each flag that may make it faster, or with --vary's."""
    script = PPO / args.script
    if not script.is_file():
        fail(f"there is no {script}")
    known = defaults(script.read_text())
    start = ["uv", "run"] if args.ppo_python is None else python_of(args.ppo_python, "")
    command = [*start, str(script), "--eval-episodes", "0", *shared_flags(args)]
    for name in ("torch", "env"):
        if f"{name}_threads" in known:
            command += [f"--{name}-threads", str(args.threads)]
    if args.cuda:
        command += ["--device", "cuda"]  # without a GPU it stops; --cuda would use the CPU
    if args.vary is not None:
        flag, _, text = args.vary.partition("=")
        values = text.split(",")
        if not text or len(set(values)) < len(values):
            fail(f"--vary {args.vary} is not of the form FLAG=VALUE,VALUE with different values")
        flag = flag.lstrip("-").replace("_", "-")
        variants = [[f"--{flag}", value] for value in values]
    else:
        faster = [name for name in ("compile", "bf16") if name in known]
        variants = [[], *([f"--{name}"] for name in faster if not args.plain)]
    return [Program(" ".join([args.script, *v]), [*command, *v]) for v in variants]


def shared_flags(args: Args) -> list[str]:
    """Flags that CleanRL, LeanRL and we understand."""
    flags = ["--cuda" if args.cuda else "--no-cuda"]
    env_id = args.env_id or SB3_ENVS.get(args.script)
    return flags if env_id is None else [*flags, "--env-id", env_id]


def clone_program(
    name: str, script: Path, python: list[str], args: Args, more: tuple[str, ...] = ()
) -> Program:
    """A script of a clone. more: flags with which it is fastest."""
    if not script.is_file():
        fail(f"there is no {script}")
    label = " ".join([name, script.name, *more])
    command = [*python, str(script), *shared_flags(args), *more]
    return Program(label, command, path=str(script.parents[1]))


def our_default(args: Args, field: str) -> Any:
    """The default of a flag of the script."""
    return default_of((PPO / args.script).read_text(), field)


def sb3_program(args: Args) -> Program:
    """SB3's PPO with the script's hyperparameters; with its own until a score."""
    env_id = args.env_id or SB3_ENVS.get(args.script) or our_default(args, "env_id")
    if args.script in SB3_GAMES:
        env_id = re.sub(r"-v5$", "NoFrameskip-v4", str(env_id))
    python = python_of(None, "sb3.txt", "3.11")
    command = [*python, str(HERE / "speed_sb3.py"), "--env-id", str(env_id)]
    command += ["--threads", str(args.threads), "--device", "cuda" if args.cuda else "cpu"]
    command += ["--script", args.script] if args.until is None else ["--runs-dir", "runs"]
    return Program("SB3 PPO", command, "--steps")


def programs(args: Args) -> list[Program]:
    """All that are measured; ours first."""
    found = our_programs(args)
    if args.vary is not None:
        return found
    stem = Path(args.script).stem
    if args.cleanrl is not None:
        script = args.cleanrl.resolve() / "cleanrl" / args.script
        python = python_of(args.cleanrl_python, "cleanrl.txt")
        found.append(clone_program("CleanRL", script, python, args))
    if args.leanrl is not None:  # its fast scripts compile
        script = args.leanrl.resolve() / "leanrl" / f"{stem}_torchcompile.py"
        python = python_of(None, "leanrl.txt")
        flags = ("--compile", "--cudagraphs") if args.cuda else ("--compile",)
        found.append(clone_program("LeanRL", script, python, args, flags))
    games = () if args.until is None else SB3_GAMES
    if args.sb3 and args.script in (*SB3_ENVS, *games):
        found.append(sb3_program(args))
    return found


# ------ one run ------
def train(program: Program, more: list[str], folder: Path, args: Args) -> Ended:
    """Run a program in a folder until it ends; exit code 1, with what it has printed, if it fails.

    more: flags of this run.
    """
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "WANDB_MODE": "offline"}
    env["PYTHONPATH"] = program.path
    # JAX's; with a single thread its callbacks may wait for each other forever.
    env["PJRT_NPROC"] = str(max(2, args.threads))
    if not args.cuda:
        env["CUDA_VISIBLE_DEVICES"] = ""
    started, clock = time.time(), time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [*program.command, *more],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=env,
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)  # its own, and that of its children
        except BaseException:  # Ctrl-C, or SIGTERM
            kill_all(process.pid)
            raise
        if status:
            output.seek(0)
            print(output.read()[-2000:], file=sys.stderr)
            print(f"error: {program.name} failed: {program.command}", file=sys.stderr)
            raise SystemExit(1)
    cpu = usage.ru_utime + usage.ru_stime
    return Ended(started, time.monotonic() - clock, cpu, mebibytes(usage.ru_maxrss))


def measure(program: Program, args: Args) -> tuple[float, float]:
    """Environment steps per second and memory in MiB, of a short and a long run."""
    batch = 1
    for flag in ("num-envs", "num-steps"):
        number = our_default(args, flag.replace("-", "_"))
        if f"--{flag}" in program.command:  # of --vary
            number = program.command[program.command.index(f"--{flag}") + 1]
        batch *= int(number)
    short = ITERATIONS_OF_SHORT * batch
    wanted = args.steps or STEPS.get(args.script, STEPS_OF_GAMES)
    longer = max(1, round(wanted / batch)) * batch
    ended = []
    for steps in (short, short + longer):
        with tempfile.TemporaryDirectory() as folder:
            ended.append(train(program, [program.steps_flag, str(steps)], Path(folder), args))
    clock = "wall" if args.wall or args.cuda else "cpu"
    seconds = getattr(ended[1], clock) - getattr(ended[0], clock)
    return longer / seconds, ended[1].memory


def time_to_score(program: Program, seed: int, args: Args) -> dict[str, Any]:
    """Train once; after how many seconds and steps the score was reached, NaN if it was not."""
    assert args.until is not None
    more = ["--seed", str(seed)]
    if program.steps_flag == "--steps":  # SB3 comes without a number of steps
        more += ["--steps", str(args.steps or our_default(args, "total_timesteps"))]
    elif args.steps:
        more += [program.steps_flag, str(args.steps)]
    with tempfile.TemporaryDirectory() as folder:
        ended = train(program, more, Path(folder), args)
        (log,) = {file.parent for file in Path(folder).rglob("events.out.tfevents.*")}
        events = read_events(log)
    if not events.episodes:
        fail(f"{program.name} logs no {RETURN}")
    means = rolling_mean(np.array([episode.score for episode in events.episodes]))
    reached = (means >= args.until) & (np.arange(len(means)) >= WINDOW - 1)
    if not reached.any():
        return {"seconds": float("nan"), "steps": float("nan")}
    episode = events.episodes[int(reached.argmax())]
    seconds = events.started + 60 * episode.minutes - ended.started
    return {"seconds": seconds, "steps": episode.step}


# ------ the tables ------
def speed_table(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """A row for each program: speed, memory, and the ratio of its speed to the reference's."""
    speeds = rows.pivot(index="round", columns="program", values="steps_per_second")
    table = []
    for name in dict.fromkeys(rows["program"]):
        ratio = speeds[name] / speeds[reference]
        row = {"program": name, "steps_per_second": round(speeds[name].median())}
        row |= {"low": round(speeds[name].min()), "high": round(speeds[name].max())}
        row |= {"memory_mib": round(rows.memory_mib[rows["program"] == name].median())}
        row |= {"ratio": ratio.median(), "ratio_low": ratio.min(), "ratio_high": ratio.max()}
        table.append(row)
    return pd.DataFrame(table)


def show(rows: pd.DataFrame) -> None:
    """Print a table without an index."""
    print(rows.to_string(index=False, float_format="%.2f"), flush=True)


def warm_up(listed: list[Program], args: Args) -> None:
    """Run each briefly: what is installed, compiled and cached is so before the rounds."""
    for program in listed:
        measure(program, replace(args, steps=1))


def compare_speeds(args: Args, listed: list[Program]) -> pd.DataFrame:
    """Measure all in turn, round by round; the first peer is what ratios are formed with."""
    ours = len(our_programs(args))
    reference = listed[ours if len(listed) > ours else 0].name
    warm_up(listed, args)
    rows = []
    for number in range(1, args.rounds + 1):
        for program in listed:
            speed, memory = measure(program, args)
            row = {"round": number, "program": program.name}
            rows.append({**row, "steps_per_second": speed, "memory_mib": memory})
            print(f"round {number}: {program.name:36} {speed:10,.0f} steps/s", flush=True)
    table = speed_table(pd.DataFrame(rows), reference)
    print(f"\nratio: to {reference}, median and range of {args.rounds} rounds")
    show(table)
    return table


def compare_times(args: Args, listed: list[Program]) -> pd.DataFrame:
    """Train all until the score, each seed in turn."""
    warm_up(listed, args)
    rows = []
    for seed in range(1, args.rounds + 1):
        for program in listed:
            row = {"task": args.env_id or args.script, "score": args.until}
            row |= {"program": program.name, "seed": seed}
            rows.append(row | time_to_score(program, seed, args))
            show(pd.DataFrame(rows[-1:]))
    table = pd.DataFrame(rows)
    print("\nmedian over the seeds; inf: most did not reach the score")
    numbers = table[["seconds", "steps"]].fillna(np.inf)
    show(numbers.groupby(table["program"], sort=False).median().reset_index())
    return table


def main() -> int:
    """Measure all in turn and print the table; returns the exit code."""
    args = read_args(Args, __doc__)
    if args.rounds < 1:
        fail(f"--rounds must be at least 1, not {args.rounds}")
    if args.until is not None and args.leanrl is not None:
        fail("--leanrl does not go with --until: LeanRL logs to wandb alone, and no score is seen")
    listed = programs(args)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    print(f"{cpu_count()} CPUs, {args.threads} for each of {len(listed)} programs", flush=True)
    table = compare_speeds(args, listed) if args.until is None else compare_times(args, listed)
    if args.out is not None:
        table.to_csv(args.out, index=False, float_format="%.4g")
    return 0


if __name__ == "__main__":
    # As an exception, like Ctrl-C: what is being measured must not go on alone.
    signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
    raise SystemExit(main())
