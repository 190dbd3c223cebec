# /// script
# requires-python = ">=3.11"
# dependencies = ["submitit>=1.5", "tyro>=0.9.20"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Run one training script on several environments and seeds.

    uv run benchmark/run.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 --workers 2
    uv run benchmark/run.py --command "uv run ppo/ppo_atari.py" \
        --env-ids PongNoFrameskip-v4 --workers 16 --launcher slurm --partition gpu --gpus 1 --cpus 4

Each run gets `--env-id X --seed N --runs-dir DIR` appended to the command. The same call again does
what is left: finished runs are skipped, runs that were cut off are resumed, failed ones repeated.
Workers share the CPUs, by OMP_NUM_THREADS. With --launcher slurm the runs are jobs of an array, for
which this program waits. Ctrl-C lets the runs save and stops. Exit codes: 0 when all runs are
finished, 1 if a run failed, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import tyro

try:
    import fcntl
except ImportError:  # Windows: nothing then guards a run against a second runner
    fcntl = None  # type: ignore[assignment]

OWN_FLAGS = ("--env-id", "--seed", "--runs-dir", "--resume")  # appended to the command here
TAIL_LINES = 20  # of a failed run's log
LOST = 30  # seconds after which a job that SLURM does not list any more has lost its result


@dataclass
class Args:
    command: str  # how the script is run, with the flags that all runs share
    env_ids: list[str]  # environments
    num_seeds: int = 3  # runs of each environment
    start_seed: int = 1  # the first seed; the others follow it
    workers: int = 1  # runs at a time
    runs_dir: Path = Path("runs/benchmark")  # where the run folders and logs/ are kept
    dry_run: bool = False  # print what would be run, and run nothing
    launcher: Literal["local", "slurm"] = "local"  # where the runs are: on this machine, in SLURM
    partition: str | None = None  # of SLURM; its default if there is none
    gpus: int = 0  # of a job of SLURM
    cpus: int = 1  # of a job of SLURM
    hours: float = (
        24.0  # time limit of a job of SLURM; a run that needs more goes on in another one
    )


@dataclass(frozen=True)
class Task:
    """One run: what a launcher hands to `run_task`, on this machine or on another one."""

    env_id: str
    seed: int
    command: tuple[str, ...]  # of a fresh run, complete
    resume_command: tuple[str, ...]  # the run's folder is to be appended
    argv: tuple[str, ...]  # what follows the script in `command`
    script: Path
    runs_dir: Path
    threads: int | None  # this run's share of the CPUs; None: all of them

    @property
    def name(self) -> str:
        return f"{self.env_id} seed {self.seed}"

    @property
    def log(self) -> Path:
        return self.runs_dir / "logs" / f"{self.env_id.replace('/', '-')}__{self.seed}.log"


@dataclass(frozen=True)
class Result:
    outcome: str  # done, skipped, stopped or failed
    reason: str = ""  # of a failure
    seconds: float = 0.0


def expand(args: Args) -> list[Task]:
    """One task for each seed and environment; all environments get their first seed first."""
    command = tuple(shlex.split(args.command))
    script = next(i for i, word in enumerate(command) if word.endswith(".py"))
    threads = args.cpus if args.launcher == "slurm" else None
    if args.launcher == "local" and args.workers > 1:
        threads = max(1, (os.cpu_count() or 1) // args.workers)
    tasks = []
    for seed in range(args.start_seed, args.start_seed + args.num_seeds):
        for env_id in args.env_ids:
            own = ("--env-id", env_id, "--seed", str(seed), "--runs-dir", str(args.runs_dir))
            tasks.append(
                Task(
                    env_id=env_id,
                    seed=seed,
                    command=command + own,
                    resume_command=(*command, "--resume"),
                    argv=command[script + 1 :] + own,
                    script=Path(command[script]),
                    runs_dir=args.runs_dir,
                    threads=threads,
                )
            )
    return tasks


def settings(argv: list[str] | tuple[str, ...]) -> list[str]:
    """The flags that decide what is learned: argv without where it is kept or resumed from."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, _ = word.replace("_", "-").partition("=")
        if flag in ("--runs-dir", "--resume"):
            if not equals:
                next(words, None)
        else:
            kept.append(word)
    return kept


def processes(command: tuple[str, ...]) -> int | None:
    """How many processes torchrun starts, 1 without it; None if it is left to find out itself."""
    words = " ".join(command).replace("_", "-")
    counts = re.findall(r"--(?:nnodes|nproc-per-node)[= ](\S+)", words)
    return math.prod(map(int, counts)) if all(map(str.isdigit, counts)) else None


def find_run(task: Task) -> tuple[Path | None, bool]:
    """The task's run folder and whether it is finished; (None, False) if it has to start afresh."""
    found: list[tuple[bool, str, Path]] = []
    for args_file in task.runs_dir.glob("*/args.json"):
        try:
            run = json.loads(args_file.read_text())
            same = run["script"] == task.script.name
            same &= settings(run["argv"]) == settings(task.argv)
            same &= processes(task.command) in (None, int(run.get("processes", 1)))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the run was killed while it was being created, or this is no run of ours
        folder = args_file.parent
        finished = (folder / "agent.pt").exists()
        if same and (finished or (folder / "checkpoint.pt").exists()):
            found.append((finished, folder.name, folder))
    if not found:
        return None, False
    finished, _, folder = max(found)  # a finished one if there is any, else the newest
    return folder, finished


class Children:
    """The processes of the running tasks, and the signal that was passed on to them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.signum = 0

    def __reduce__(self) -> tuple[type["Children"], tuple[()]]:
        return Children, ()  # a job of SLURM gets a copy of this program's functions, not these

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes] | None:
        """Start a process; None if the signal to stop came first."""
        with self.lock:
            if self.signum:
                return None
            # A session of its own keeps the terminal's Ctrl-C away from the child: the signal
            # reaches it through `stop`, once. Twice would mean "do not even save".
            process = subprocess.Popen(command, start_new_session=True, **options)
            self.processes.add(process)
            return process

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        exit_code = process.wait()
        with self.lock:
            self.processes.discard(process)
        return exit_code

    def stop(self, signum: int, kill: bool = False) -> None:
        """Pass a signal on to all running tasks, start no more; kill: end them all at once."""
        with self.lock:
            self.signum = signum
            for process in self.processes:
                if kill and hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                elif kill:
                    process.kill()
                else:
                    # Only to the process we started: `uv run` and `torchrun` pass it on themselves.
                    process.send_signal(signum)


CHILDREN = Children()


def lock_log(log: BinaryIO) -> bool:
    """Whether the run is ours alone; the child inherits the lock, so that it outlives a kill."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def run_task(task: Task) -> Result:
    """Bring one task to its end: skip, resume or start it, and wait. Needs nothing but the task."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with open(task.log, "ab") as log:
        if not lock_log(log):
            return Result("failed", "another process is already running this task")
        folder, finished = find_run(task)
        if finished:
            return Result("skipped")
        command = [*task.resume_command, str(folder)] if folder else list(task.command)
        if not folder:
            log.truncate(0)
        log.write(f"$ {shlex.join(command)}\n".encode())
        log.flush()
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if task.threads:  # the default of --torch-threads and --env-threads
            env.setdefault("OMP_NUM_THREADS", str(task.threads))
        process = CHILDREN.start(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env
        )
        if process is None:
            return Result("stopped")
        exit_code = CHILDREN.wait(process)
    seconds = time.monotonic() - started
    finished = find_run(task)[1]
    if finished and (exit_code == 0 or CHILDREN.signum):
        return Result("done", seconds=seconds)
    if CHILDREN.signum:
        return Result("stopped", seconds=seconds)
    reason = f"exit code {exit_code}" if exit_code else "exit code 0, but no finished run folder"
    return Result("failed", reason, seconds)


def last_output(log: Path) -> list[str]:
    """The last lines of a log, since the command was last started."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    return lines[starts[-1] :] if starts else lines


def percent(task: Task) -> str:
    """How far a running task is, from the progress lines in its log."""
    try:
        found = re.findall(
            r"(?<![\d.])(\d{1,3})(?:\.\d+)? ?%", "\n".join(last_output(task.log)[1:])
        )
    except OSError:
        found = []
    return f"{found[-1]:>3}%" if found else "starting"


def clock(seconds: float) -> str:
    return f"{seconds // 3600:.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f}"


class Progress:
    """A block of lines that is redrawn on a terminal; elsewhere a plain line once a minute."""

    def __init__(self, tasks: list[Task], live: bool):
        self.tasks, self.live = tasks, live
        self.results: dict[Task, Result] = {}
        self.since: dict[Task, float] = {}
        self.started = self.printed = time.monotonic()
        self.drawn = 0

    def count(self, outcome: str) -> int:
        return sum(result.outcome == outcome for result in self.results.values())

    def summary(self) -> str:
        parts = [f"{self.count(outcome)} {outcome}" for outcome in ("done", "skipped", "failed")]
        if self.count("stopped"):
            parts.append(f"{self.count('stopped')} stopped")
        return (
            f"{len(self.tasks)} runs: {', '.join(parts)}, {clock(time.monotonic() - self.started)}"
        )

    def clear(self) -> None:
        if self.drawn:
            print(f"\x1b[{self.drawn}F\x1b[J", end="", flush=True)
            self.drawn = 0

    def say(self, text: str, error: bool = False) -> None:
        """A line that stays."""
        self.clear()
        print(text, file=sys.stderr if error else sys.stdout, flush=True)

    def draw(self, running: list[Task]) -> None:
        now = time.monotonic()
        if now - self.printed < (0.5 if self.drawn else 0 if self.live else 60):
            return
        self.printed = now
        states = [f"{t.name}: {percent(t)}, {clock(now - self.since.get(t, now))}" for t in running]
        if not self.live:
            print("; ".join([self.summary(), *states]), flush=True)
            return
        size = shutil.get_terminal_size()
        lines = [self.summary(), *(f"  {state}" for state in states)][: max(1, size.lines - 1)]
        self.clear()
        print("\n".join(line[: size.columns - 1] for line in lines), flush=True)
        self.drawn = len(lines)


def report(progress: Progress, task: Task, result: Result) -> None:
    """Say how a task ended; a failed one with the tail of its log."""
    progress.results[task] = result
    if result.outcome == "failed":
        lines = last_output(task.log) if task.log.exists() else []  # a job may fail before
        tail = "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])
        progress.say(f"FAILED   {task.name}: {result.reason}; {task.log}\n{tail}", error=True)
    elif result.outcome == "skipped":
        progress.say(f"skipped  {task.name}: finished before")
    elif result.seconds:
        progress.say(f"{result.outcome:8} {task.name}, {clock(result.seconds)}")


class Signals:
    """The signals to stop that have come: Ctrl-C, SIGTERM, SIGHUP unless it is ignored (nohup)."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.answered = 0
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)
            if signum and not (name == "SIGHUP" and signal.getsignal(signum) == signal.SIG_IGN):
                signal.signal(signum, lambda number, _frame: self.received.append(number))

    def demand(self) -> Literal["save", "kill"] | None:
        """What is to be done now: `save` once, `kill` after that, None without a new signal."""
        before, self.answered = self.answered, len(self.received)  # later ones: next time
        if self.answered == before:
            return None
        return "kill" if before else "save"


def run_locally(tasks: list[Task], workers: int) -> int:
    """Run the tasks on this machine, `workers` at a time; returns the exit code."""
    signals = Signals()
    progress = Progress(tasks, live=sys.stdout.isatty())

    def started(task: Task) -> Result:
        progress.since[task] = time.monotonic()
        return run_task(task)

    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(started, task): task for task in tasks}
        pending = set(futures)
        while pending:
            finished, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                if future.cancelled():
                    result = Result("stopped")
                elif error := future.exception():
                    result = Result("failed", str(error))
                else:
                    result = future.result()
                report(progress, futures[future], result)
            if demand := signals.demand():
                signum = signals.received[0]
                # A training script knows how to stop on SIGTERM; a lost terminal is news to it.
                forwarded = signum if signum == signal.SIGINT else signal.SIGTERM
                CHILDREN.stop(forwarded, kill=demand == "kill")
                if demand == "save":
                    progress.say("stopping: the runs save what they have; again to kill them")
                for future in pending:
                    future.cancel()
            progress.draw([t for f, t in futures.items() if f in pending and f.running()])
    return conclude(progress, signals.received)


class Job:
    """What a job of SLURM does. Submitit takes it there, with all the functions that it calls."""

    def __call__(self, task: Task, stop: Path) -> Result:
        """Bring the task to its end; the file `stop` says that it is to save what it has."""
        # The warning before the time limit goes to all processes of a job. Only this one knows it:
        # what it starts inherits that the signal is blocked.
        warning = getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}")

        def run() -> Result:
            signal.pthread_sigmask(signal.SIG_BLOCK, {warning})
            return run_task(task)

        with ThreadPoolExecutor(1) as pool:  # so that signals find the main thread idle
            future = pool.submit(run)
            while not wait([future], timeout=1).done:
                if stop.exists() and not CHILDREN.signum:
                    CHILDREN.stop(signal.SIGTERM)
            return future.result()

    def checkpoint(self, task: Task, stop: Path) -> Any:
        """Called before the time is over; the run saves, and what is returned goes on with it."""
        from submitit.helpers import DelayedSubmission

        CHILDREN.stop(signal.SIGTERM)
        while CHILDREN.processes:
            time.sleep(0.1)
        return DelayedSubmission(self, task, stop)


def listed_jobs(array: str) -> dict[str, str] | None:
    """State (R, PD ...) of each job of an array that has not ended; None if SLURM does not say."""
    words = ["squeue", "--noheader", "--array", "--format=%i %t", f"--jobs={array}"]
    answer = subprocess.run(words, capture_output=True, text=True)
    if answer.returncode and "Invalid job id" not in answer.stderr:  # known no more: it has ended
        return None
    return dict(line.split() for line in answer.stdout.splitlines())


def job_result(job: Any) -> Result:
    """What `run_task` returned in a job, or why it did not."""
    try:
        return job.result()
    except Exception as error:  # of submitit, with the traceback of the job as text
        return Result("failed", str(error).strip().splitlines()[-1])


def run_in_slurm(tasks: list[Task], args: Args) -> int:
    """Submit the tasks as an array, `workers` at a time, and wait for it; returns the exit code."""
    import submitit

    signals = Signals()
    progress = Progress(tasks, live=sys.stdout.isatty())
    todo = [task for task in tasks if not find_run(task)[1]]
    for task in tasks:
        if task not in todo:
            report(progress, task, Result("skipped"))
    folder = args.runs_dir.absolute() / "logs" / "slurm"
    stop = folder / f"stop-{time.time_ns()}"
    executor = submitit.SlurmExecutor(folder, max_num_timeout=10_000)
    executor.update_parameters(
        job_name=Path(__file__).stem,
        partition=args.partition,
        time=max(1, round(args.hours * 60)),
        cpus_per_task=args.cpus,
        gpus_per_node=args.gpus or None,
        array_parallelism=args.workers,
        signal_delay_s=120,  # enough to end an iteration and save
    )
    try:
        found = executor.map_array(Job(), todo, [stop] * len(todo)) if todo else []
    except (submitit.core.utils.FailedJobError, OSError) as error:
        fail(f"sbatch: {str(error).strip().splitlines()[-1].removeprefix('sbatch: error: ')}")
    jobs = dict(zip(todo, found, strict=True))
    array = found[0].job_id.partition("_")[0] if found else ""
    if jobs:
        progress.say(f"{len(jobs)} jobs of array {array}; {folder}")

    states: dict[str, str] = {}
    asked, missing = -60.0, dict[Task, float]()
    while jobs:
        time.sleep(0.2)
        now = time.monotonic()
        if now - asked > (1 if signals.answered else 5):
            listed = listed_jobs(array)
            asked, states = now, states if listed is None else listed
            for task, job in jobs.items():
                if states.get(job.job_id) == "R":
                    progress.since.setdefault(task, now)
                if job.job_id in states:
                    missing.pop(task, None)
                else:
                    missing.setdefault(task, now)
        for task, job in list(jobs.items()):
            if job.paths.result_pickle.exists():
                report(progress, task, job_result(job))
            elif task in missing and signals.answered:
                report(progress, task, Result("stopped"))
            elif now - missing.get(task, now) > LOST:
                reason = f"job {job.job_id} ended without a result, see {job.paths.stderr}"
                report(progress, task, Result("failed", reason))
            else:
                continue
            del jobs[task]
        if demand := signals.demand():
            if demand == "save":
                stop.touch()  # scancel's signal would reach every process of a job, more than once
                progress.say("stopping: the runs save what they have; again to kill them")
            pending = ["--state=PENDING"] if demand == "save" else []
            subprocess.run(["scancel", *pending, array], capture_output=True)
        progress.draw([task for task, job in jobs.items() if states.get(job.job_id) == "R"])
    stop.unlink(missing_ok=True)
    return conclude(progress, signals.received)


def conclude(progress: Progress, received: list[int]) -> int:
    """Say how it went; returns the exit code."""
    progress.clear()
    print(progress.summary(), flush=True)
    for task, result in progress.results.items():
        if result.outcome == "failed":
            print(f"FAILED   {task.name}: {result.reason}; {task.log}", file=sys.stderr)
    if received and progress.count("stopped"):
        print("the same command again goes on from here", flush=True)
        return 128 + received[0]
    return 1 if progress.count("failed") else 0


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def check(args: Args) -> None:
    """Exit with one line and code 2 if the arguments cannot work; creates nothing."""
    try:
        command = shlex.split(args.command)
    except ValueError as error:
        fail(f"--command: {error}")
    scripts = [word for word in command if word.endswith(".py")]
    if not scripts:
        fail('--command names no .py script; try --command "uv run ppo/ppo.py"')
    if not Path(scripts[0]).is_file():
        fail(f"--command: there is no file {scripts[0]}")
    if shutil.which(command[0]) is None:
        fail(f"--command: cannot run {command[0]}: not found or not executable")
    for word in command:
        flag = word.partition("=")[0].replace("_", "-")
        if flag in OWN_FLAGS:
            fail(f"--command must not contain {flag}: it is set for each run")
    if not args.env_ids:
        fail("--env-ids is empty")
    if len(set(args.env_ids)) < len(args.env_ids):
        fail("--env-ids names an environment twice")
    if args.num_seeds < 1:
        fail(f"--num-seeds must be at least 1, not {args.num_seeds}")
    if args.start_seed < 0:
        fail(f"--start-seed must not be negative, but is {args.start_seed}")
    if args.workers < 1:
        fail(f"--workers must be at least 1, not {args.workers}; to run nothing: --dry-run")
    unused = (args.partition, args.gpus, args.cpus, args.hours) != (None, 0, 1, 24.0)
    if args.launcher == "local" and unused:
        fail("--partition, --gpus, --cpus and --hours need --launcher slurm")
    if args.launcher == "slurm" and shutil.which("sbatch") is None:
        fail("--launcher slurm: there is no sbatch on this machine")
    if args.gpus < 0 or args.cpus < 1 or not args.hours > 0:
        fail("--gpus must be at least 0, --cpus at least 1, --hours above 0")
    if any(p.exists() and not p.is_dir() for p in (args.runs_dir, *args.runs_dir.parents)):
        fail(f"--runs-dir: {args.runs_dir} is not a folder")


def main() -> int:
    args = tyro.cli(Args, description=__doc__.partition("\n")[0])
    check(args)
    tasks = expand(args)
    for task in tasks:
        folder, finished = find_run(task)
        copy = folder / task.script.name if folder else task.script
        if copy.exists() and copy.read_bytes() != task.script.read_bytes():
            print(f"note: {folder} was made by a different {copy.name}", file=sys.stderr)
        if args.dry_run and finished:
            print(f"# finished: {folder}")
        elif args.dry_run:
            print(shlex.join([*task.resume_command, str(folder)] if folder else task.command))
    if args.dry_run:
        return 0
    return (
        run_in_slurm(tasks, args) if args.launcher == "slurm" else run_locally(tasks, args.workers)
    )


if __name__ == "__main__":
    raise SystemExit(main())
