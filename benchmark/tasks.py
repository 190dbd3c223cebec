"""One training run of a benchmark: how it is found again, and how it is brought to its end.

Part of run.py. slurm.py sends these functions to other machines: they use the standard library
only.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: nothing then guards a run against a second runner
    fcntl = None  # type: ignore[assignment]

OWN_FLAGS = ("--env-id", "--seed", "--runs-dir", "--resume")  # of one run, not of its settings
BUSY = "another process is already running this task"  # why a task could not be started
REFUSAL = "exit code 2"  # of a script that cannot work with its flags


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
    variant: str = ""  # of the script, where several are run
    script_hash: str = ""  # of the version that is to be run; whichever there is, if empty

    @property
    def name(self) -> str:
        """What the user reads."""
        return f"{self.variant} {self.env_id} seed {self.seed}".lstrip()

    @property
    def log(self) -> Path:
        """File with all that the run prints."""
        name = exp_name(self.argv, self.script)
        return log_path(self.runs_dir, self.env_id, name, self.seed)


@dataclass(frozen=True)
class Result:
    """How a task ended."""

    outcome: str  # done, skipped, stopped, failed or left out
    reason: str = ""  # of a failure, or why the task was left out
    seconds: float = 0.0  # that its process has run


def file_name(name: str) -> str:
    """A name without what the scripts replace in the names of their run folders."""
    return name.replace("/", "-").replace(":", "-")


def log_path(runs_dir: Path, *names: str | int) -> Path:
    """Where the runner keeps what a run prints; its name is that of the run folder less the time.

    names: environment, exp_name and seed.
    """
    return runs_dir / "logs" / f"{file_name('__'.join(map(str, names)))}.log"


def log_of(folder: Path) -> Path:
    """The log of the run in a folder; there may be none."""
    facts = json.loads((folder / "args.json").read_text())
    env_id, seed = facts["args"]["env_id"], facts["args"]["seed"]
    name = exp_name(facts.get("argv", []), Path(facts["script"]))
    log = log_path(folder.parent, env_id, name, seed)
    if log.exists():
        return log
    return log_path(folder.parent, env_id, seed)  # of an earlier version of the runner


def hash_of(script: Path) -> str:
    """SHA-256 of a script."""
    return hashlib.sha256(script.read_bytes()).hexdigest()


def last_value(argv: Sequence[str], flag: str) -> str | None:
    """The value of a flag; the last one counts. None without the flag."""
    value = None
    for word, next_word in zip(argv, [*argv, ""][1:], strict=True):
        name, equals, text = word.partition("=")
        if name.replace("_", "-") == flag:
            value = text if equals else next_word
    return value


def exp_name(argv: Sequence[str], script: Path) -> str:
    """What a run with these flags is called in the name of its folder."""
    return last_value(argv, "--exp-name") or script.stem


def without_flags(argv: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words of argv less these flags and their values."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, _ = word.replace("_", "-").partition("=")
        if flag not in flags:
            kept.append(word)
        elif not equals:
            next(words, None)
    return kept


def settings(argv: Sequence[str]) -> list[str]:
    """The flags that decide what is learned: argv without where it is kept or resumed from."""
    return without_flags(argv, ("--runs-dir", "--resume"))


def process_count(command: Sequence[str]) -> int | None:
    """How many processes torchrun starts, 1 without it; None if it is left to find out itself."""
    words = " ".join(command).replace("_", "-")
    counts = re.findall(r"--(?:nnodes|nproc-per-node)[= ](\S+)", words)
    return math.prod(map(int, counts)) if all(map(str.isdigit, counts)) else None


def is_run_of(task: Task, folder: Path) -> bool:
    """Whether the run in a folder does what the task is to do.

    Raises OSError, ValueError, KeyError or TypeError if it is no run.
    """
    facts = json.loads((folder / "args.json").read_text())
    same_script = facts["script"] == task.script.name
    same_flags = settings(facts["argv"]) == settings(task.argv)
    same_count = process_count(task.command) in (None, int(facts.get("processes", 1)))
    return same_script and same_flags and same_count and not resumed_with_others(task, folder)


def resumed_with_others(task: Task, folder: Path) -> bool:
    """Whether somebody has resumed the run with flags that are not the task's."""
    its_flags = without_flags(task.argv, OWN_FLAGS)
    for file in folder.glob("resumed_at_*/args.json"):
        try:
            given = without_flags(json.loads(file.read_text())["argv"], OWN_FLAGS)
        except ValueError:  # it was not written to its end: nothing was done with these flags
            continue
        if given not in ([], its_flags):
            return True
    return False


def find_run(task: Task) -> tuple[Path | None, bool]:
    """The task's run folder and whether it is finished; (None, False) if it has to start afresh."""
    found: list[tuple[bool, str, Path]] = []
    for args_file in task.runs_dir.glob("*/args.json"):
        folder = args_file.parent
        try:
            same = is_run_of(task, folder)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the run was killed while it was being created, or this is no run of ours
        finished = (folder / "agent.pt").exists()
        if same and (finished or (folder / "checkpoint.pt").exists()):
            found.append((finished, folder.name, folder))
    if not found:
        return None, False
    finished, _, folder = max(found)  # a finished one if there is any, else the newest
    return folder, finished


def printed_last(log: Path) -> str:
    """All that a log has from the last command on, which stands behind a "$"; empty without one."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return text[text.rfind("\n$ ") + 1 :]


def diverged(folder: Path) -> bool:
    """Whether a run was ended by a loss that is not finite; again it would be.

    Other runs may share its log: those that differ in flags only.
    """
    printed = printed_last(log_of(folder))
    return folder.name in printed and "diverged at step" in printed


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have; none on Windows."""
    try:
        words = ["ps", "-A", "-o", "pid=,ppid="]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    children: dict[int, list[int]] = {}
    for child, parent in (map(int, line.split()) for line in listed.splitlines()):
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:  # the list grows while it is read
        found += children.get(one, [])
    return found[1:]


def kill_all(pid: int) -> None:
    """Kill a process that leads a group, the group, and what has left it: torchrun's workers do."""
    workers = descendants(pid)
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(pid, signal.SIGKILL)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def next_command(task: Task, folder: Path | None) -> list[str]:
    """The command that goes on with the run in `folder`, or that starts one if there is none."""
    return [*task.resume_command, str(folder)] if folder else list(task.command)


class Children:
    """The processes of the running tasks, and the signal that was passed on to them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.signum = 0

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
        """Wait for the end of a process; returns its exit code."""
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
                    kill_all(process.pid)
                elif kill:
                    process.kill()
                else:
                    # Only to the process we started: `uv run` and `torchrun` pass it on themselves.
                    process.send_signal(signum)


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


def environment(threads: int | None) -> dict[str, str]:
    """The environment variables of a run that has so many threads."""
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if threads:  # the default of --torch-threads and --env-threads
        variables.setdefault("OMP_NUM_THREADS", str(threads))
        # Runs beside each other: JAX would take three quarters of a GPU's memory for the first.
        variables.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return variables


def exit_code_behind(exit_code: int, command: Sequence[str], log: Path) -> int:
    """A command's exit code; of torchrun, which always fails with 1, the one of its script."""
    if exit_code == 1 and any(Path(word).name == "torchrun" for word in command):
        reported = re.findall(r"\bexitcode\s*: (-?\d+)", printed_last(log))
        if reported:
            return int(reported[-1])  # the report ends with the process that failed first
    return exit_code


def reason(exit_code: int) -> str:
    """Why a run with this exit code has failed; -n and, of a shell or uv, 128 + n is signal n."""
    if exit_code == 0:
        return "exit code 0, but no finished run folder"
    signum = -exit_code if exit_code < 0 else exit_code - 128
    if signum in set(signal.Signals):
        return f"exit code {exit_code}: {signal.Signals(signum).name}"
    return f"exit code {exit_code}"


def run_task(task: Task, children: Children) -> Result:
    """Bring one task to its end: skip, resume or start it among the children, and wait for it."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with open(task.log, "ab") as log:
        if not lock_log(log):
            return Result("failed", BUSY)
        folder, finished = find_run(task)
        if finished:
            return Result("skipped")
        if task.script_hash and hash_of(task.script) != task.script_hash:
            return Result("left out", f"{task.script} has been edited meanwhile")
        command = next_command(task, folder)
        if not folder:
            log.truncate(0)
        log.write(f"$ {shlex.join(command)}\n".encode())
        log.flush()
        process = children.start(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(task.threads),
        )
        if process is None:
            return Result("stopped")
        exit_code = exit_code_behind(children.wait(process), command, task.log)
    seconds = time.monotonic() - started
    finished = find_run(task)[1]
    if finished and (exit_code == 0 or children.signum):
        return Result("done", seconds=seconds)
    if children.signum:
        return Result("stopped", seconds=seconds)
    return Result("failed", reason(exit_code), seconds)
