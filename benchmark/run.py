"""Run one training script on several environments and seeds.

    uv run benchmark/run.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 --workers 2
    uv run benchmark/run.py --command "uv run ppo/ppo_atari.py" \\
        --env-ids PongNoFrameskip-v4 --workers 16 --launcher slurm --partition gpu --gpus 1 --cpus 4

Each run gets `--env-id X --seed N --runs-dir DIR --resume auto` appended to the command. So the
same call again finishes what is left: the script resumes a run that was cut off, and ends at once
if the run is finished. Workers share the CPUs, by OMP_NUM_THREADS and PJRT_NPROC. Ctrl-C saves the
runs and stops; a second one kills them. With --launcher slurm the runs are submitted as an array of
jobs. If a flag is given twice, the last one counts. Exit codes: 0 when all is done, 1 if a run or
the plot failed, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Literal

from common import (
    Signals,
    cpu_count,
    fail,
    file_name,
    kill_all,
    last_output,
    read_args,
    say,
)

OWN_FLAGS = ("--env-id", "--seed", "--runs-dir", "--resume")  # of one run, not of its settings
TAIL_LINES = 20  # of a failed run's log
REDRAW = 0.5  # seconds between two pictures of the progress on a terminal
PRINT = 60.0  # seconds between two lines of progress elsewhere


@dataclass
class Args:
    command: str  # how the script is run, with the flags that all runs share
    env_ids: list[str]  # environments
    env_flags: tuple[str, ...] = ()  # "ENV_ID=FLAGS": more flags, for the runs of one environment
    num_seeds: int = 3  # runs of each environment
    start_seed: int = 1  # the first seed; the others follow it
    workers: int = 1  # runs at a time
    runs_dir: Path = Path("runs/benchmark")  # where the run folders and logs/ are kept
    plot: Path | None = None  # folder for curves and tables of the finished runs
    suite: str | None = None  # name under which --plot shows all environments in one picture
    dry_run: bool = False  # print what would be run, and run nothing
    launcher: Literal["local", "slurm"] = "local"  # run on this machine, or in SLURM
    partition: str | None = None  # SLURM's partition; its default if not given
    gpus: int = 0  # of each SLURM job
    cpus: int = 1  # of each SLURM job
    hours: float = 24.0  # time limit of each SLURM job; a longer run is requeued


@dataclass(frozen=True)
class Task:
    """One training run."""

    label: str  # what the user reads before the environment; may be empty
    env_id: str
    seed: int
    command: tuple[str, ...]  # complete
    log: Path  # gets all that the run prints
    script: Path
    source: bytes  # of the script that is to be run

    @property
    def name(self) -> str:
        """What the user reads."""
        return f"{self.label} {self.env_id} seed {self.seed}".lstrip()


@dataclass(frozen=True)
class Result:
    """How a task ended."""

    outcome: Literal["done", "stopped", "failed"]
    reason: str = ""  # of a failure
    seconds: float = 0.0  # that its process has run


# ------ the tasks ------
def split_words(flag: str, text: str) -> list[str]:
    """The words of a shell command; fails if one of them is what is set for each run."""
    try:
        words = shlex.split(text)
    except ValueError as error:  # a quotation mark without its second
        fail(f"{flag}: {error}")
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name in OWN_FLAGS:
            fail(f"{flag} must not contain {name}: it is set for each run")
        if name == "--num-seeds":  # of ppo_gymnax.py, for which all seeds are one run
            fail(f"{flag} must not contain {name}: here each seed is a run")
    return words


def split_env_flags(env_flags: tuple[str, ...]) -> dict[str, list[str]]:
    """--env-flags by environment; fails if one is not ENV_ID=FLAGS."""
    flags: dict[str, list[str]] = {}
    for text in env_flags:
        env_id, equals, words = text.partition("=")
        if not equals:
            fail(f'--env-flags: {text} is not of the form "ENV_ID=--flag value"')
        if env_id in flags:
            fail(f"--env-flags names {env_id} twice")
        flags[env_id] = split_words("--env-flags", words)
    return flags


def script_of(command: list[str]) -> Path:
    """The training script that a command runs; fails if it cannot be run."""
    scripts = [Path(word) for word in command if word.endswith(".py")]
    if not scripts:
        fail('--command names no .py script; try --command "uv run ppo/ppo.py"')
    if not scripts[0].is_file():
        fail(f"--command: there is no file {scripts[0]}")
    if shutil.which(command[0]) is None:
        fail(f"--command: cannot run {command[0]}: not found or not executable")
    return scripts[0]


def expand(args: Args, label: str = "") -> list[Task]:
    """A task for each seed and environment; all environments get their first seed first.

    label: stands before the names of the tasks.
    """
    shared = split_words("--command", args.command)
    flags = split_env_flags(args.env_flags)
    script = script_of(shared)
    source = script.read_bytes()
    tasks = []
    for seed in range(args.start_seed, args.start_seed + args.num_seeds):
        for env_id in args.env_ids:
            own = ["--env-id", env_id, "--seed", str(seed), "--runs-dir", str(args.runs_dir)]
            command = (*shared, *flags.get(env_id, []), *own, "--resume", "auto")
            log = args.runs_dir / "logs" / file_name(f"{env_id}__{script.stem}__{seed}.log")
            tasks.append(Task(label, env_id, seed, command, log, script, source))
    return tasks


# ------ one task ------
class Children:
    """The processes of the running tasks, of which there are as many as workers, at most."""

    def __init__(self, workers: int) -> None:
        self.lock = threading.Lock()
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.stopping = False
        # The share of each in the CPUs; None: all of them.
        self.threads = max(1, cpu_count() // workers) if workers > 1 else None

    def run(self, command: tuple[str, ...], log: BinaryIO) -> int | None:
        """Run a command to its end; returns its exit code, None if it was not to start any more."""
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.threads:
            env.setdefault("OMP_NUM_THREADS", str(self.threads))
            # JAX's; with a single thread its callbacks may wait for each other forever.
            env.setdefault("PJRT_NPROC", str(max(2, self.threads)))
            # JAX would take three quarters of a GPU's memory for the first of several runs.
            env.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with self.lock:
            if self.stopping:
                return None
            # A session of its own keeps the terminal's Ctrl-C away from the child: `stop` sends it
            # one signal. A second Ctrl-C would mean "do not even save".
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                pass_fds=(log.fileno(),),  # and with it the lock, which outlives the runner
            )
            self.processes.add(process)
        exit_code = process.wait()
        with self.lock:
            self.processes.discard(process)
        return exit_code

    def stop(self, kill: bool) -> None:
        """Start no more tasks, and let the running ones save and end; kill: end them at once."""
        with self.lock:
            self.stopping = True
            for process in self.processes:
                if kill:
                    kill_all(process.pid)
                else:
                    # Only the process we started: `uv run` and `torchrun` pass it on themselves.
                    process.terminate()


def wait_for_lock(log: BinaryIO, children: Children) -> None:
    """Wait until no other process has the run, as a runner that was killed leaves them."""
    while not children.stopping:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(1)


def run_task(task: Task, children: Children) -> Result:
    """Bring one task to its end among the children."""
    try:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with open(task.log, "ab") as log:
            wait_for_lock(log, children)
            if children.stopping:
                return Result("stopped")
            if task.script.read_bytes() != task.source:
                return Result("failed", f"{task.script} has been edited since the runner started")
            log.write(f"$ {shlex.join(task.command)}\n".encode())
            log.flush()
            started = time.monotonic()
            exit_code = children.run(task.command, log)
            seconds = time.monotonic() - started
    except OSError as error:  # the script is gone, or the disk is full
        return Result("failed", repr(error))
    if exit_code is None:
        return Result("stopped")
    if exit_code == 0:
        return Result("done", seconds=seconds)
    if children.stopping:
        return Result("stopped", seconds=seconds)
    return Result("failed", f"exit code {exit_code}", seconds)


# ------ progress ------
def percent(task: Task) -> str:
    """How far a running task is, from the progress lines in its log."""
    printed = "\n".join(last_output(task.log))
    counts = re.findall(r"^([\d,]+) of ([\d,]+) steps", printed, re.MULTILINE)
    if not counts:
        return "starting"
    done, total = (int(number.replace(",", "")) for number in counts[-1])
    return f"{100 * done // total:3}%"


def closing_words(task: Task) -> str:
    """What a run that is done printed last: ", evaluation: return 500.0 ± 0.0"."""
    said = ("evaluation: ", "is finished")
    lines = [line for line in last_output(task.log) if any(words in line for words in said)]
    return f", {lines[-1]}" if lines else ""


class Progress:
    """A block of lines that is redrawn on a terminal; elsewhere a plain line once a minute."""

    def __init__(self, tasks: list[Task]):
        self.tasks = tasks
        self.live = sys.stdout.isatty()
        self.results: dict[Task, Result] = {}
        self.since: dict[Task, float] = {}  # when a task began, by time.monotonic()
        self.started = self.printed = time.monotonic()
        self.drawn = 0  # lines of the block that stand on the terminal
        self.shown: set[str] = set()  # last lines of logs; a mistake is the same for each seed

    def count(self, outcome: str) -> int:
        """How many tasks have ended in this way."""
        return sum(result.outcome == outcome for result in self.results.values())

    def summary(self) -> str:
        """One line: how many runs there are and how many have ended in which way."""
        counts = [f"{self.count(outcome)} {outcome}" for outcome in ("done", "failed")]
        if self.count("stopped"):
            counts.append(f"{self.count('stopped')} stopped")
        elapsed = timedelta(seconds=round(time.monotonic() - self.started))
        return f"{len(self.tasks)} runs: {', '.join(counts)}, {elapsed}"

    def state(self, task: Task) -> str:
        """How far a running task is, and for how long it has been running."""
        elapsed = timedelta(seconds=round(time.monotonic() - self.since[task]))
        return f"{task.name}: {percent(task)}, {elapsed}"

    def say(self, text: str, error: bool = False) -> None:
        """A line that stays."""
        if self.drawn:  # wipe the block off the terminal
            say(f"\x1b[{self.drawn}F\x1b[J", end="")
            self.drawn = 0
        say(text, error)

    def draw(self, running: list[Task]) -> None:
        """Show how far the running tasks are, unless that was shown a moment ago."""
        now = time.monotonic()
        if now - self.printed < (REDRAW if self.live else PRINT):
            return
        self.printed = now
        lines = [self.summary(), *(self.state(task) for task in running)]
        if not self.live:
            self.say("; ".join(lines))
            return
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
        self.say("\n  ".join(lines))
        self.drawn = len(lines)

    def report(self, task: Task, result: Result) -> None:
        """Note and say how a task ended; of a failed one show the end of its log."""
        self.results[task] = result
        if result.outcome == "failed":
            lines = last_output(task.log)[-TAIL_LINES:]
            if lines and lines[-1] in self.shown:
                lines = ["...", lines[-1]]
            self.shown.update(lines[-1:])
            tail = "\n".join(f"  | {line}" for line in lines)
            self.say(f"FAILED   {task.name}: {result.reason}; {task.log}\n{tail}", error=True)
            return
        took = timedelta(seconds=round(result.seconds))
        if result.outcome == "done":
            self.say(f"done     {task.name}, {took}{closing_words(task)}")
        elif result.seconds:
            self.say(f"stopped  {task.name}, {took}")

    def conclude(self, received: list[int]) -> int:
        """Say how it all went; returns the exit code. received: the signals that have come."""
        self.say(self.summary())
        failed = [task.name for task, result in self.results.items() if result.outcome == "failed"]
        if failed and len(self.tasks) > 1:  # each was told when it failed, perhaps hours ago
            self.say(f"failed: {', '.join(failed)}", error=True)
        if received and self.count("stopped"):
            self.say("the same command again goes on from here")
            return 128 + received[0]
        return 1 if failed else 0


# ------ all tasks ------
def run_locally(tasks: list[Task], workers: int, signals: Signals) -> int:
    """Run the tasks on this machine, `workers` at a time; returns the exit code."""
    progress = Progress(tasks)
    children = Children(workers)

    def start(task: Task) -> Result:
        progress.since[task] = time.monotonic()
        return run_task(task, children)

    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(start, task): task for task in tasks}
        pending = set(futures)
        while pending:
            finished, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                progress.report(futures[future], future.result())
            if demand := signals.demand():
                children.stop(kill=demand == "kill")
                if demand == "save":
                    progress.say("stopping: the runs save; Ctrl-C again kills them")
            running = [futures[future] for future in pending if future.running()]
            progress.draw([task for task in running if task in progress.since])
    return progress.conclude(signals.received)


def plot_command(args: Args) -> list[str]:
    """The command that draws the finished runs; empty without --plot."""
    if args.plot is None:
        return []
    program = str(Path(__file__).with_name("plot.py"))
    words = [sys.executable, program, "--runs-dir", str(args.runs_dir), "--out", str(args.plot)]
    return words if args.suite is None else [*words, "--suite", args.suite]


def check(args: Args) -> None:
    """Exit with one line and code 2 if the arguments cannot work; creates nothing.

    Tells which of them are not used.
    """
    if not args.env_ids:
        fail("--env-ids names no environment")
    if len(set(args.env_ids)) < len(args.env_ids):
        fail("--env-ids names an environment twice")
    if args.num_seeds < 1:
        fail(f"--num-seeds must be at least 1, not {args.num_seeds}")
    if args.workers < 1:
        fail(f"--workers must be at least 1, not {args.workers}; to run nothing: --dry-run")
    unused = (args.partition, args.gpus, args.cpus, args.hours) != (None, 0, 1, 24.0)
    if args.suite and args.plot is None:
        fail("--suite needs --plot")
    if args.launcher == "local" and unused:
        fail("--partition, --gpus, --cpus and --hours need --launcher slurm")
    for env_id in split_env_flags(args.env_flags):
        if env_id not in args.env_ids:
            print(f"note: no runs of {env_id}: its --env-flags are not used", file=sys.stderr)


def main() -> int:
    """Parse the command line and run what it asks for; returns the exit code."""
    args = read_args(Args, __doc__)
    check(args)
    tasks = expand(args)
    drawing = plot_command(args)
    if args.dry_run:
        for command in [*(task.command for task in tasks), drawing]:
            if command:
                print(shlex.join(command))
        return 0
    if args.launcher == "slurm":
        import slurm

        return slurm.submit(tasks, args, drawing)
    exit_code = run_locally(tasks, args.workers, Signals())
    if exit_code not in (0, 1) or not drawing:  # a run that failed does not keep back the others
        return exit_code
    print(f"$ {shlex.join(drawing)}", flush=True)
    drawn = subprocess.run(drawing)
    return int(exit_code != 0 or drawn.returncode != 0)


if __name__ == "__main__":
    raise SystemExit(main())
