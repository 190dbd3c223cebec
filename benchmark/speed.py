"""Steps per second and memory of a script beside CleanRL's, LeanRL's and SB3's PPO, in turn.

    uv run benchmark/speed.py --out docs/results/speed.md
    uv run benchmark/speed.py --script ppo_continuous_action.py --cleanrl ~/cleanrl
    uv run benchmark/speed.py --until 475 --rounds 3            seconds until the task is solved

All train the same environment with CleanRL's hyperparameters on the CPU, on as many threads, or
with --cuda all but SB3 on the GPU. Of LeanRL it is the compiled script. Every round runs each once,
one after the other, so that a machine whose speed drifts slows all of them alike; the ratios are
formed within a round, and their median and range over the rounds is reported. Speed is what each
prints itself: environment steps over the time of its training loop, without start-up (and without
our first iteration, in which --compile compiles). Memory is the peak resident size of the process;
most of it are torch's libraries, and less of them in torch's CPU builds. CleanRL and LeanRL are
clones of their repositories, left out if not given; SB3 is run by speed_sb3.py, for the scripts
that it has a counterpart of; on Atari, where it has other wrappers, with --until alone. uv runs
each of them with the versions in requirements/, unless an interpreter is given.

With --until it is the time from the start of the process, imports and compiling included, packages
installed before, until the mean return of the last 100 episodes reaches a score, or the training
its end. Round n has seed n, and each has the hyperparameters and number of steps that it comes
with; SB3, which comes without steps, has the script's. --at-once runs those of a round side by
side, each on --threads cores of its own: for tasks that take hours. Exit codes: 0 done, 1 one of
them failed, 2 bad input, 130 and 143 when stopped by Ctrl-C or SIGTERM.
"""

import contextlib
import csv
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple, NoReturn

import solved
import tyro
from console import cpu_count, fail, mebibytes
from tasks import kill_all

HERE = Path(__file__).resolve().parent
PPO = HERE.parent / "ppo"
# Scripts that SB3 has a counterpart of, and the environments that they are known for.
SB3_ENVS = {"ppo.py": "CartPole-v1", "ppo_continuous_action.py": "HalfCheetah-v4"}
SB3_GAMES = {"ppo_atari.py", "ppo_atari_envpool.py"}  # which it plays with --until alone
OUR_SPEED = r"steps, ([1-9][\d,]*) steps/s"  # of the last line, behind the number of steps
STEPS = 200_000  # of a run whose speed is measured
SPEED, MEMORY = "steps per second", "peak memory, MiB"  # columns of the table
POLL = 0.5  # seconds between two looks at whether a run has reached its score
GRACE = 35  # seconds from SIGTERM to SIGKILL; torchrun gives its own processes 30
RUNNING: set[int] = set()  # process groups of the commands that run
# What stands for a path in the command of a table; the other paths are interpreters.
PLACEHOLDERS = {"cleanrl": "CLONE", "leanrl": "CLONE", "out": "FILE"}
MEANINGS = {
    "CLONE": "folder of the repository",
    "ITS_PYTHON": "interpreter with its packages",
    "FILE": "of this table",
}


@dataclass
class Args:
    script: str = "ppo.py"  # which of ppo/ to measure; the peers' script of that name beside it
    env_id: str | None = None  # environment of all; by default one that the script is known for
    steps: int | None = None  # of each run: 200,000 environment steps, with --until its own default
    until: float | None = None  # measure the time until this mean return of 100 episodes
    at_once: bool = False  # with --until: a round's runs side by side, each on cores of its own
    plain: bool = False  # leave out the script with --compile and with --bf16
    rounds: int = 5  # how often each is run
    threads: int = 1  # CPU threads of each
    cuda: bool = False  # train on the GPU
    ppo_python: Path | None = None  # interpreter for the script; by default uv runs it
    cleanrl: Path | None = None  # clone of CleanRL
    cleanrl_python: Path | None = None  # interpreter for it; by default uv makes one
    leanrl: Path | None = None  # clone of LeanRL; not with --until
    leanrl_python: Path | None = None  # interpreter for it; by default uv makes one
    sb3: bool = True  # measure SB3, too, where it has a counterpart
    sb3_python: Path | None = None  # interpreter for it; by default uv makes one
    out: Path | None = None  # Markdown file to write the table to

    @property
    def environment(self) -> str | None:
        """The environment of all; None: the default of the scripts."""
        return self.env_id or SB3_ENVS.get(self.script)

    @property
    def total_timesteps(self) -> int | None:
        """Environment steps of each run; None: what the scripts have by default."""
        if self.steps is None and self.until is None:
            return STEPS
        return self.steps


@dataclass(frozen=True)
class Peer:
    """Another collection that has a counterpart of the script, and how it is run."""

    name: str
    folder: str  # of its scripts in its repository
    python: str  # version
    requirements: str  # file in requirements/
    pattern: str  # finds its speed in what it prints
    ending: str = ".py"  # of its script's name, behind what it has in common with ours
    flags: tuple[str, ...] = ()  # with which it is fastest
    cuda_flags: tuple[str, ...] = ()  # and those on a GPU besides

    def script(self, clone: Path, ours: str) -> Path:
        """Its counterpart of our script; there may be none of that name."""
        return clone / self.folder / f"{Path(ours).stem}{self.ending}"


CLEANRL = Peer("CleanRL", "cleanrl", "3.10", "cleanrl.txt", r"SPS: (\d+)")
# Its fast scripts compile; those with the names of ours are what it compares itself with.
LEANRL = Peer(
    "LeanRL",
    "leanrl",
    "3.10",
    "leanrl.txt",
    r"speed: +([\d.]+) sps",
    ending="_torchcompile.py",
    flags=("--compile",),
    cuda_flags=("--cudagraphs",),
)
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
    processor: float = 0.0  # seconds that the processor worked for it


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


@dataclass(frozen=True)
class Race:
    """One run of a contender until its score."""

    seed: int
    seconds: float  # from the start of the process until the score, or the end of the training
    processor: float  # seconds that the processor worked for it, until it was stopped there
    steps: int  # environment steps until then
    reached: bool

    def __str__(self) -> str:
        """What a table says of it."""
        reached = "" if self.reached else "not reached: "
        work = f"processor {self.processor:,.0f} s"
        return f"{reached}{self.seconds:,.0f} s ({work}), {self.steps / 1000:,.0f}k steps"


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
    flags = ["--cuda" if args.cuda else "--no-cuda"]
    if args.total_timesteps is not None:
        flags += ["--total-timesteps", str(args.total_timesteps)]
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
    for variant in [[]] if args.plain else variants(script):
        name = " ".join([args.script, *variant])
        listed.append(Contender(name, [*start, str(script), *flags, *variant], OUR_SPEED))
    return listed


def clone_contender(args: Args, peer: Peer, clone: Path, python: Path | None) -> Contender:
    """The counterpart of the script in a peer's clone."""
    root = clone.expanduser().resolve()
    script = peer.script(root, args.script)
    if not script.is_file():
        fail(f"there is no {script}")
    flags = [*peer.flags, *(peer.cuda_flags if args.cuda else ())]
    command = [*python_of(peer, python), str(script), *shared_flags(args), *flags]
    return Contender(" ".join([peer.name, script.name, *flags]), command, peer.pattern, root)


def default_of(script: Path, field: str) -> str:
    """The default of a script's flag, as its source has it."""
    found = re.search(rf"^    {field}: \w+ = (\S+)", script.read_text(), re.MULTILINE)
    assert found is not None, "every script has it"
    return found[1]


def default_steps(script: Path) -> int:
    """How many environment steps a script trains for if nobody says otherwise."""
    return int(default_of(script, "total_timesteps"))


def sb3_contender(args: Args) -> Contender:
    """SB3's PPO with the script's hyperparameters; with its own until a score."""
    script = PPO / args.script
    steps = args.total_timesteps or default_steps(script)
    env_id = args.environment or default_of(script, "env_id").strip('"')
    env_id = re.sub(r"-v5$", "NoFrameskip-v4", env_id) if args.script in SB3_GAMES else env_id
    flags = ["--env-id", env_id, "--steps", str(steps)]
    flags += ["--threads", str(args.threads)]
    if args.until is None:
        flags += ["--script", args.script]
    else:
        flags += ["--runs-dir", "runs"]
    command = [*python_of(SB3, args.sb3_python), str(HERE / "speed_sb3.py"), *flags]
    return Contender(SB3.name, command, SB3.pattern)


def contenders(args: Args) -> list[Contender]:
    """Who takes part; the first one is what the others are compared with."""
    listed = our_contenders(args)
    if args.cleanrl is not None:
        listed.append(clone_contender(args, CLEANRL, args.cleanrl, args.cleanrl_python))
    if args.leanrl is not None:
        listed.append(clone_contender(args, LEANRL, args.leanrl, args.leanrl_python))
    plays_games = args.until is not None and args.script in SB3_GAMES
    if args.sb3 and (args.script in SB3_ENVS or plays_games):
        listed.append(sb3_contender(args))
    return listed


def interrupted(signum: int, _frame: object) -> NoReturn:
    """Ends the program with all that it has started; the handler of Ctrl-C and SIGTERM."""
    raise KeyboardInterrupt(signum)


def listen() -> None:
    """Lets Ctrl-C, SIGTERM and the end of the terminal, unless it is ignored (nohup), interrupt."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, interrupted)


def run_command(
    command: list[str],
    folder: Path | str,
    variables: dict[str, str],
    limit: float = threading.TIMEOUT_MAX,
    enough: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a command in `folder` with these environment variables, for at most `limit` seconds.

    At the limit, and as soon as it is `enough`, it gets SIGTERM, which our scripts end on, and
    after GRACE seconds SIGKILL. Raises OSError if it cannot be started.
    """
    late = threading.Event()
    ended = threading.Event()

    def stop(process: subprocess.Popen) -> None:
        deadline = time.monotonic() + limit
        while not enough():
            if time.monotonic() >= deadline:
                late.set()
                break
            if ended.wait(POLL):
                return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        if not ended.wait(GRACE):
            kill_all(process.pid)

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
        stopper = threading.Thread(target=stop, args=[process], daemon=True)
        stopper.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)  # its own peak, and that of its children
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:  # also after Ctrl-C and SIGTERM, which reach this process only
            ended.set()
            RUNNING.discard(process.pid)
            kill_all(process.pid)
            stopper.join()  # what it asks whether it is enough belongs to the caller from now on
        output.seek(0)
        printed = output.read()
    memory = mebibytes(usage.ru_maxrss)
    processor = usage.ru_utime + usage.ru_stime
    return Ended(process.returncode, printed, memory, late.is_set(), processor)


def variables_of(contender: Contender, threads: int, cuda: bool) -> dict[str, str]:
    """The environment variables of a contender's process."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "WANDB_MODE": "disabled"}
    # It is run in a folder of its own: the user's paths have to be complete there.
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [str(contender.path), *map(os.path.abspath, own)]
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if not cuda:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables


def attempt(
    contender: Contender,
    folder: str,
    threads: int,
    cuda: bool = False,
    limit: float = threading.TIMEOUT_MAX,
) -> Measurement:
    """Run the contender once in `folder`, for at most `limit` seconds. Raises Failed, OSError."""
    variables = variables_of(contender, threads, cuda)
    ended = run_command(contender.command, folder, variables, limit)
    speeds = re.findall(contender.pattern, ended.printed)
    if ended.late:
        raise Failed(f"still ran after {limit:.0f} s", ended.printed)
    if ended.exit_code != 0 or not speeds:
        raise Failed(f"exit code {ended.exit_code}", ended.printed)
    return Measurement(float(speeds[-1].replace(",", "")), ended.memory)


def race(contender: Contender, folder: str, args: Args, seed: int) -> Race:
    """Run the contender once in `folder`, which is empty, until its score. Raises Failed."""
    assert args.until is not None
    watch = solved.Watch(Path(folder), args.until)
    variables = variables_of(contender, args.threads, args.cuda)
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder) / "compiled")  # by this run, anew
    command = [*contender.command, "--seed", str(seed)]
    started = time.time()
    ended = run_command(command, folder, variables, enough=watch.look)
    over = time.time()
    watch.look()
    if watch.solved is not None:
        seconds = watch.solved.time - started
        return Race(seed, seconds, ended.processor, watch.solved.step, reached=True)
    if ended.exit_code != 0:
        raise Failed(f"exit code {ended.exit_code}", ended.printed)
    return Race(seed, over - started, ended.processor, watch.last_step, reached=False)


def give_up(contender: Contender, failure: Failed) -> NoReturn:
    """End the program with exit code 1 and what a contender that failed has printed last."""
    print(failure.printed[-3000:], file=sys.stderr)
    print(f"{contender.name} failed, {failure}", file=sys.stderr)
    sys.exit(1)


def measure(contender: Contender, folder: str, threads: int, cuda: bool = False) -> Measurement:
    """Run the contender once in `folder`; ends the program with exit code 1 if it fails."""
    try:
        return attempt(contender, folder, threads, cuda)
    except Failed as failure:
        give_up(contender, failure)


def install(contender: Contender, args: Args) -> None:
    """Lets uv install what a contender needs, if it is uv that runs it: no part of its time."""
    if contender.command[0] == "uv":
        variables = variables_of(contender, args.threads, args.cuda)
        run_command([*contender.command, "--help"], HERE, variables)


def timed(contender: Contender, args: Args, seed: int) -> Race:
    """Run the contender once until its score, and print the result. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder:
        one = race(contender, folder, args, seed)
    print(f"seed {seed} of {args.rounds}: {contender.name:36} {one}", flush=True)
    return one


def race_in_turn(listed: list[Contender], args: Args, seed: int) -> list[Race]:
    """Run the contenders one after the other until their score; exit code 1 if one fails."""
    races = []
    for contender in listed:
        try:
            races.append(timed(contender, args, seed))
        except Failed as failure:
            give_up(contender, failure)
    return races


def race_at_once(listed: list[Contender], args: Args, seed: int) -> list[Race]:
    """Run the contenders side by side until their score; exit code 1 if one fails.

    Each has args.threads cores to itself; main has made sure that there are as many.
    """
    cores = sorted(os.sched_getaffinity(0))

    def start(number: int) -> Race:
        own = cores[number * args.threads : (number + 1) * args.threads]
        os.sched_setaffinity(0, own)  # of this thread and of what it starts
        return timed(listed[number], args, seed)

    with ThreadPoolExecutor(len(listed)) as pool:
        futures = [pool.submit(start, number) for number in range(len(listed))]
        try:
            ended = wait(futures, return_when=FIRST_EXCEPTION).done
        finally:  # where one has failed, or the user has stopped this program, others still run
            while wait(futures, timeout=POLL).not_done:
                for group in list(RUNNING):
                    kill_all(group)
    for contender, future in zip(listed, futures, strict=True):
        if future in ended and isinstance(failure := future.exception(), Failed):
            give_up(contender, failure)
    return [future.result() for future in futures]


class Spread(NamedTuple):
    """Median and range of several rounds."""

    median: float
    lowest: float
    highest: float

    def text(self, digits: int) -> str:
        """What a table says of it."""
        return (
            f"{self.median:,.{digits}f} ({self.lowest:,.{digits}f} to {self.highest:,.{digits}f})"
        )


def spread(values: list[float]) -> Spread:
    """Median and range of some numbers."""
    return Spread(statistics.median(values), min(values), max(values))


# The cells of a table: by contender, then by column.
Cells = dict[str, dict[str, Spread]]


def summary(results: dict[str, list[Measurement]], own: int) -> Cells:
    """Speed, memory, and how many times as fast ours is: median and range of rounds.

    results: the rounds of each contender; the first `own` of them are ours.
    """
    ours = list(results)[:own]
    cells: Cells = {}
    for name, rounds in results.items():
        speeds = [one.speed for one in rounds]
        cells[name] = {SPEED: spread(speeds), MEMORY: spread([one.memory for one in rounds])}
        if name in ours:
            continue
        for mine in ours:
            ratios = [a.speed / b for a, b in zip(results[mine], speeds, strict=True)]
            flags = mine.removeprefix(ours[0]).strip()
            column = f"with {flags}" if flags else f"{mine} is faster"
            cells[name][column] = spread(ratios)
    return cells


def table(cells: Cells) -> str:
    """Markdown of a summary, whose first row is ours."""
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    lines = [f"|  | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in cells.items():
        texts = [name]
        for column in columns:
            if column not in row:
                texts.append("")
            elif column in (SPEED, MEMORY):
                texts.append(row[column].text(digits=0))
            else:
                texts.append(f"{row[column].text(digits=2)} times")
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def write_summary(cells: Cells, path: Path) -> None:
    """CSV with a line for each cell."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["contender", "column", *Spread._fields])
        for name, row in cells.items():
            for column, cell in row.items():
                digits = 0 if column in (SPEED, MEMORY) else 2
                writer.writerow([name, column, *(f"{x:.{digits}f}" for x in cell)])


def read_summary(path: Path) -> Cells:
    """What write_summary wrote. Raises OSError, or KeyError or ValueError if it is another file."""
    cells: Cells = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            cell = Spread(*(float(row[field]) for field in Spread._fields))
            cells.setdefault(row["contender"], {})[row["column"]] = cell
    return cells


def times_as_long(ours: list[Race], theirs: list[Race], clock: str) -> str:
    """How many times as long they take in the rounds that ours got there in: median, and range.

    clock: the field of Race that counts. Lower bounds if they did not reach the score each time.
    Of one round there is no range.
    """
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.reached]
    if not pairs:
        return ""
    ratios = [getattr(b, clock) / getattr(a, clock) for a, b in pairs]
    text = spread(ratios).text(digits=2) if len(ratios) > 1 else f"{ratios[0]:.2f}"
    bound = "" if all(b.reached for _, b in pairs) else "at least "
    return f"{bound}{text} times"


def race_table(results: dict[str, list[Race]], own: int) -> str:
    """Markdown: each run's seconds and steps until the score, and how much longer peers take.

    results: the rounds of each contender; the first `own` of them are ours.
    """
    first = next(iter(results))
    columns = [f"seed {one.seed}" for one in results[first]]
    columns += [f"time, {first} = 1", "processor time"]
    lines = [f"|  | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for number, (name, races) in enumerate(results.items()):
        cells = [name, *map(str, races)]
        for clock in ("seconds", "processor"):
            cells.append("" if number < own else times_as_long(results[first], races, clock))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_races(results: dict[str, list[Race]], task: str, score: float, path: Path) -> None:
    """CSV with a line for each run."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "score", "contender", *(field.name for field in fields(Race))])
        for name, races in results.items():
            for one in races:
                times = (f"{one.seconds:.1f}", f"{one.processor:.1f}")
                writer.writerow([task, score, name, one.seed, *times, one.steps, one.reached])


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


def processor() -> str:
    """The CPU's model as the system calls it; empty if it does not say."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:  # Linux
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def note(args: Args) -> str:
    """How the table was made."""
    machine = f"{cpu_count()} CPU cores"
    if model := processor():
        machine += f" ({model})"
    if args.cuda:
        machine += " and a GPU"
    rounds = f"{args.rounds} round{'s' if args.rounds > 1 else ''}"
    order = "side by side" if args.at_once else "in turn"
    how = f"{rounds} {order} on {machine}, threads: {args.threads}"
    steps = "default number of" if args.total_timesteps is None else f"{args.total_timesteps:,}"
    what = f"{args.environment or 'Default environment'}, {steps} steps, {how}"
    if args.until is None:
        what += "; median (lowest to highest)"
    else:
        what += f"; until the mean return of 100 episodes was {args.until:g}"
    command = command_of(args)
    meanings = [f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in command]
    explained = f" ({', '.join(meanings)})" if meanings else ""
    return f"{what}. Command: `{command}`{explained}."


def write_results(args: Args, shown: str, write_csv: Callable[[Path], None]) -> None:
    """The table as Markdown and as CSV beside it, if the user wants files."""
    if args.out is not None:
        args.out.write_text(f"{shown}\n\n{note(args)}\n")
        write_csv(args.out.with_suffix(".csv"))


def compare_speeds(args: Args, listed: list[Contender], own: int) -> str:
    """Measures all contenders in turn and writes the table, which it returns."""
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
    cells = summary(results, own)
    shown = table(cells)
    write_results(args, shown, lambda path: write_summary(cells, path))
    return shown


def compare_races(args: Args, listed: list[Contender], own: int) -> str:
    """Trains all contenders until the score; writes the table and returns it."""
    assert args.until is not None
    task, score = args.environment or args.script, args.until
    results: dict[str, list[Race]] = {contender.name: [] for contender in listed}
    shown = ""
    race_all = race_at_once if args.at_once else race_in_turn
    for contender in listed:
        install(contender, args)
    for seed in range(1, args.rounds + 1):
        for contender, one in zip(listed, race_all(listed, args, seed), strict=True):
            results[contender.name].append(one)
        # After each round: these take long.
        shown = race_table(results, own)
        write_results(args, shown, lambda path: write_races(results, task, score, path))
    return shown


def check_cores(needed: int, args: Args) -> None:
    """End the program unless --at-once is possible: on Linux, with cores for all."""
    if args.until is None:
        fail("--at-once goes with --until: speeds are measured in turn")
    if not hasattr(os, "sched_setaffinity"):
        fail("--at-once needs Linux, which gives each run cores of its own")
    free = len(os.sched_getaffinity(0))
    if needed > free:
        fail(f"--at-once needs {needed} cores, and there are {free}: try --plain or without it")


def main() -> int:
    """Measure all contenders in turn and print the table; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    if args.rounds < 1 or (args.steps is not None and args.steps < 5_000):
        fail("--rounds must be at least 1 and --steps at least 5000")
    if args.out is not None and not args.out.absolute().parent.is_dir():
        fail(f"--out: there is no folder {args.out.parent}")
    if args.out is not None and (args.out.is_dir() or args.out.suffix == ".csv"):
        fail(f"--out: {args.out} is no name for a Markdown file; the CSV is written beside it")
    if args.until is not None and args.leanrl is not None:
        fail("--leanrl does not go with --until: LeanRL logs to wandb alone, and no score is seen")
    listed = contenders(args)
    own = len(our_contenders(args))
    if args.at_once:
        check_cores(len(listed) * args.threads, args)
    compare = compare_speeds if args.until is None else compare_races
    listen()
    try:
        print(f"\n{compare(args, listed, own)}")
    except KeyboardInterrupt as stop:
        print("stopped", file=sys.stderr)
        return 128 + stop.args[0]
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
