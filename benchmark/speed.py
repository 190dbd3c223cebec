# /// script
# requires-python = ">=3.11"
# dependencies = ["tyro>=0.9.20"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Steps per second and memory of a script beside CleanRL's, LeanRL's and SB3's PPO, in turn.

    uv run benchmark/speed.py --out docs/results/speed.md
    uv run benchmark/speed.py --script ppo_continuous_action.py --cleanrl ~/cleanrl

All train the same environment with CleanRL's hyperparameters on the CPU, on as many threads; with
--cuda all but SB3 on the GPU. Every round runs each of them once, one after the other, so that a
machine whose speed drifts slows all of them alike; the ratios are formed within a round, and their
median and range over the rounds is reported. Speed is what each prints itself: environment steps
over the time of its training loop, without start-up (and without our first iteration, in which
--compile compiles). Memory is the peak resident size of the process; most of it are torch's
libraries, and less of them in torch's CPU builds. CleanRL and LeanRL are clones of their
repositories, left out if not given; SB3 is run by speed_sb3.py, for the scripts that it has a
counterpart of. uv runs each of them with the versions in requirements/, unless an interpreter is
given.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn

import tyro

HERE = Path(__file__).resolve().parent
PPO = HERE.parent / "ppo"
# Scripts that SB3 has a counterpart of, and the environments that they are known for.
SB3_ENVS = {"ppo.py": "CartPole-v1", "ppo_continuous_action.py": "HalfCheetah-v4"}
OUR_SPEED = r"steps, ([1-9][\d,]*) steps/s"  # of the last line, behind the number of steps
GRACE = 35  # seconds from SIGTERM to SIGKILL; torchrun gives its own processes 30
RUNNING: set[int] = set()  # process groups of the commands that run
# What stands for a path in the command of a table; the other paths are interpreters.
PLACEHOLDERS = {"cleanrl": "CLONE", "leanrl": "CLONE", "out": "FILE"}


@dataclass
class Args:
    script: str = "ppo.py"  # which of ppo/ to measure; the peers' script of that name beside it
    env_id: str | None = None  # environment of all; by default one that the script is known for
    steps: int = 200_000  # environment steps of each run
    rounds: int = 5  # how often each is run
    threads: int = 1  # CPU threads of each
    cuda: bool = False  # train on the GPU
    ppo_python: Path | None = None  # interpreter for the script; by default uv runs it
    cleanrl: Path | None = None  # clone of CleanRL
    cleanrl_python: Path | None = None  # interpreter for it; by default uv makes one
    leanrl: Path | None = None  # clone of LeanRL
    leanrl_python: Path | None = None  # interpreter for it; by default uv makes one
    sb3: bool = True  # measure SB3, too, where it has a counterpart
    sb3_python: Path | None = None  # interpreter for it; by default uv makes one
    out: Path | None = None  # Markdown file to write the table to

    @property
    def environment(self) -> str | None:
        """The environment of all; None: the default of the scripts."""
        return self.env_id or SB3_ENVS.get(self.script)


@dataclass(frozen=True)
class Peer:
    """Another collection that has a script of the same name, and how it is run."""

    name: str
    folder: str  # of its scripts in its repository
    python: str  # version
    requirements: str  # file in requirements/
    pattern: str  # finds its speed in what it prints


CLEANRL = Peer("CleanRL", "cleanrl", "3.10", "cleanrl.txt", r"SPS: (\d+)")
LEANRL = Peer("LeanRL", "leanrl", "3.10", "leanrl.txt", r"speed: +([\d.]+) sps")
SB3 = Peer("SB3 PPO", "", "3.11", "sb3.txt", r"SPS: ([\d.]+)")


@dataclass(frozen=True)
class Contender:
    """Something that trains, and how to read its speed (steps per second) off what it prints."""

    name: str
    command: list[str]
    pattern: str
    path: Path | str = ""  # folder to import from, besides that of the script


@dataclass(frozen=True)
class Ended:
    """A command that has run to its end, or was stopped at its time limit."""

    exit_code: int
    printed: str
    memory: float  # peak of the resident size, MiB
    late: bool  # stopped at the limit


class Failed(Exception):
    """A contender that gave no speed: the reason in one line; `printed` is what it has printed."""

    def __init__(self, reason: str, printed: str):
        super().__init__(reason)
        self.printed = printed


@dataclass(frozen=True)
class Measurement:
    """One run of a contender."""

    speed: float  # environment steps per second
    memory: float  # peak of the resident size, MiB


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"{Path(__file__).name}: {message}", file=sys.stderr)
    sys.exit(2)


def interpreter(given: Path) -> str:
    """The path of an interpreter that the user has named; runs have another working directory."""
    found = shutil.which(given.expanduser())
    if found is None:
        fail(f"there is no interpreter {given}")
    return os.path.abspath(found)


def python_of(peer: Peer, given: Path | None) -> list[str]:
    """The command of a peer's interpreter: the given one, or one that uv makes of its versions."""
    if given is not None:
        return [interpreter(given)]
    versions = str(HERE / "requirements" / peer.requirements)
    uv = ["uv", "run", "--no-project", "--python", peer.python]
    return [*uv, "--with-requirements", versions, "python"]


def has_flag(script: Path, name: str) -> bool:
    """Whether a script has a flag: a field of that name in its Args."""
    return re.search(rf"^    {name}: ", script.read_text(), re.MULTILINE) is not None


def variants(script: Path) -> list[list[str]]:
    """Flags that a script is measured with, one set after the other; the first set is empty."""
    return [[], *([f"--{name}"] for name in ("compile", "bf16") if has_flag(script, name))]


def thread_flags(script: Path, threads: int) -> list[str]:
    """As many threads for all that a script has threads of."""
    flags = []
    for name in ("torch", "env"):
        if has_flag(script, f"{name}_threads"):
            flags += [f"--{name}-threads", str(threads)]
    return flags


def shared_flags(args: Args) -> list[str]:
    """Flags that CleanRL, LeanRL and we understand."""
    flags = ["--cuda" if args.cuda else "--no-cuda", "--total-timesteps", str(args.steps)]
    if args.environment is not None:
        flags += ["--env-id", args.environment]
    return flags


def our_contenders(args: Args) -> list[Contender]:
    """The script, with each set of flags."""
    script = PPO / args.script
    if not script.is_file():
        fail(f"there is no {script}")
    start = ["uv", "run"] if args.ppo_python is None else [interpreter(args.ppo_python)]
    flags = [*shared_flags(args), "--eval-episodes", "0", *thread_flags(script, args.threads)]
    if args.cuda:
        flags += ["--device", "cuda"]  # and not the CPU if there is none
    listed = []
    for variant in variants(script):
        name = " ".join([args.script, *variant])
        listed.append(Contender(name, [*start, str(script), *flags, *variant], OUR_SPEED))
    return listed


def clone_contender(args: Args, peer: Peer, clone: Path, python: Path | None) -> Contender:
    """The script of the same name in a peer's clone."""
    root = clone.expanduser().resolve()
    script = root / peer.folder / args.script
    if not script.is_file():
        fail(f"there is no {script}")
    command = [*python_of(peer, python), str(script), *shared_flags(args)]
    return Contender(f"{peer.name} {args.script}", command, peer.pattern, root)


def sb3_contender(args: Args) -> Contender:
    """SB3's PPO with the script's hyperparameters."""
    flags = ["--script", args.script, "--env-id", str(args.environment)]
    flags += ["--steps", str(args.steps), "--threads", str(args.threads)]
    command = [*python_of(SB3, args.sb3_python), str(HERE / "speed_sb3.py"), *flags]
    return Contender(SB3.name, command, SB3.pattern)


def contenders(args: Args) -> list[Contender]:
    """Who takes part; the first one is what the others are compared with."""
    listed = our_contenders(args)
    if args.cleanrl is not None:
        listed.append(clone_contender(args, CLEANRL, args.cleanrl, args.cleanrl_python))
    if args.leanrl is not None:
        listed.append(clone_contender(args, LEANRL, args.leanrl, args.leanrl_python))
    if args.sb3 and args.script in SB3_ENVS:
        listed.append(sb3_contender(args))
    return listed


def signal_group(group: int, signum: int) -> None:
    """Send a signal to all processes of a group, if there are any left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signum)


def run_command(
    command: list[str],
    folder: Path | str,
    variables: dict[str, str],
    limit: float = threading.TIMEOUT_MAX,
) -> Ended:
    """Run a command in `folder` with these environment variables, for at most `limit` seconds.

    At the limit it gets SIGTERM, which our scripts end on, and after GRACE seconds SIGKILL.
    Raises OSError if it cannot be started.
    """
    late = threading.Event()
    ended = threading.Event()

    def stop(process: subprocess.Popen) -> None:
        if ended.wait(limit):
            return
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        if not ended.wait(GRACE):
            signal_group(process.pid, signal.SIGKILL)

    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
        RUNNING.add(process.pid)
        threading.Thread(target=stop, args=[process], daemon=True).start()
        try:
            _, status, usage = os.wait4(process.pid, 0)  # its own peak, and that of its children
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:  # also after Ctrl-C, which reaches this process only
            ended.set()
            RUNNING.discard(process.pid)
            signal_group(process.pid, signal.SIGKILL)
        output.seek(0)
        printed = output.read()
    return Ended(process.returncode, printed, usage.ru_maxrss / 1024, late.is_set())


def attempt(
    contender: Contender,
    folder: str,
    threads: int,
    cuda: bool = False,
    limit: float = threading.TIMEOUT_MAX,
) -> Measurement:
    """Run the contender once in `folder`, for at most `limit` seconds. Raises Failed, OSError."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    variables |= {"PYTHONPATH": str(contender.path), "WANDB_MODE": "disabled"}
    if not cuda:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    ended = run_command(contender.command, folder, variables, limit)
    speeds = re.findall(contender.pattern, ended.printed)
    if ended.late:
        raise Failed(f"still ran after {limit:.0f} s", ended.printed)
    if ended.exit_code != 0 or not speeds:
        raise Failed(f"exit code {ended.exit_code}", ended.printed)
    return Measurement(float(speeds[-1].replace(",", "")), ended.memory)


def measure(contender: Contender, folder: str, threads: int, cuda: bool = False) -> Measurement:
    """Run the contender once in `folder`; ends the program with exit code 1 if it fails."""
    try:
        return attempt(contender, folder, threads, cuda)
    except Failed as failure:
        print(failure.printed[-3000:], file=sys.stderr)
        print(f"{contender.name} failed, {failure}", file=sys.stderr)
        sys.exit(1)


def spread(values: list[float], digits: int) -> str:
    """Median and range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def table(results: dict[str, list[Measurement]], own: int) -> str:
    """Markdown: speed, memory, and how many times as fast ours is, median (range) of rounds.

    results: the rounds of each contender; the first `own` of them are ours.
    """
    ours = list(results)[:own]
    header = ["", "steps per second", "peak memory, MiB", f"{ours[0]} is faster"]
    header += [f"with {name.removeprefix(ours[0]).strip()}" for name in ours[1:]]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for name, rounds in results.items():
        speeds = [one.speed for one in rounds]
        cells = [name, spread(speeds, 0), spread([one.memory for one in rounds], 0)]
        for mine in ours:
            ratios = [a.speed / b for a, b in zip(results[mine], speeds, strict=True)]
            cells.append("" if name in ours else f"{spread(ratios, 2)} times")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def command_of(args: Args) -> str:
    """The command line that gives these arguments, with placeholders for paths."""
    words = ["uv", "run", "benchmark/speed.py"]
    for field in fields(args):
        value = getattr(args, field.name)
        flag = field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, Path):
            words += [f"--{flag}", PLACEHOLDERS.get(field.name, "ITS_PYTHON")]
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def note(args: Args) -> str:
    """How the table was made."""
    machine = f"{os.cpu_count()} CPU cores{' and a GPU' if args.cuda else ''}"
    return (
        f"{args.environment or 'Default environment'}, {args.steps:,} steps, {args.rounds} rounds "
        f"in turn on {machine}, threads: {args.threads}; "
        f"median (lowest to highest). Command: `{command_of(args)}`."
    )


def main() -> None:
    """Measure all contenders in turn and print the table."""
    args = tyro.cli(Args, description=(__doc__ or "").splitlines()[0])
    if args.rounds < 1 or args.steps < 5_000:
        fail("--rounds must be at least 1 and --steps at least 5000")
    listed = contenders(args)
    results: dict[str, list[Measurement]] = {contender.name: [] for contender in listed}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            for contender in listed:
                measured = measure(contender, folder, args.threads, args.cuda)
                results[contender.name].append(measured)
                print(
                    f"round {number + 1} of {args.rounds}: {contender.name:36} "
                    f"{measured.speed:8,.0f} steps/s {measured.memory:6,.0f} MiB",
                    flush=True,
                )
    shown = table(results, len(variants(PPO / args.script)))
    print(f"\n{shown}")
    if args.out is not None:
        args.out.write_text(f"{shown}\n\n{note(args)}\n")


if __name__ == "__main__":
    main()
