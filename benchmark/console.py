"""What the programs of benchmarks tell their user, and the signals that the user gives them.

Part of run.py and others; the progress is that of runs on this machine and of those in SLURM.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal, NoReturn

from tasks import Result, Task

TAIL_LINES = 20  # of a failed run's log
TAIL_BYTES = 16_384  # that are read for them
REDRAW = 0.5  # seconds between two pictures of the progress on a terminal
PRINT = 60.0  # seconds between two lines of progress elsewhere
ANSWER = 0.1  # seconds until a signal is passed on


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def warn(message: str) -> None:
    """Tell the user what is left out or odd."""
    print(f"warning: {message}", file=sys.stderr)


def tell(text: str, error: bool = False, end: str = "\n") -> None:
    """Print at once. Where the reader is gone (`| head`) it is as if the terminal were gone."""
    stream = sys.stderr if error else sys.stdout
    try:
        print(text, file=stream, end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        signal.raise_signal(getattr(signal, "SIGHUP", signal.SIGTERM))


def check_folder(flag: str, folder: Path) -> None:
    """Fail if what a flag names cannot be a folder: it is a file, or in one."""
    if any(path.exists() and not path.is_dir() for path in (folder, *folder.parents)):
        fail(f"{flag}: {folder} is not a folder")


def check_name(flag: str, name: str) -> None:
    """Fail if what a flag names cannot be the name of a file."""
    if not name or Path(name).name != name:
        fail(f"{flag}: {name!r} is not the name of a file")


def cpu_count() -> int:
    """How many CPUs this process may use, where the system says so; else how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def mebibytes(maxrss: int) -> float:
    """The `ru_maxrss` of a process, its peak memory, in MiB: macOS counts bytes, Linux KiB."""
    return maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def seeds(count: int) -> str:
    """How many runs there are: '1 seed', '3 seeds'."""
    return f"{count} seed{'s' if count > 1 else ''}"


def last_output(log: Path) -> list[str]:
    """The last lines of a log, since the command was last started."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    return lines[starts[-1] :] if starts else lines


def percent(task: Task) -> str:
    """How far a running task is, from the progress lines in its log."""
    try:
        printed = "\n".join(last_output(task.log)[1:])
    except OSError:
        printed = ""
    found = re.findall(r"^([\d,]+) of ([\d,]+) steps", printed, re.MULTILINE)
    if not found:
        return "starting"
    done, total = (int(number.replace(",", "")) for number in found[-1])
    return f"{100 * done // total:3}%"


def evaluation(task: Task) -> str:
    """What a run's evaluation found, ", return 500.0 ± 0.0"; nothing if its log has none."""
    lines = last_output(task.log) if task.log.exists() else []  # of a job it may come later
    start = "evaluation: "
    return "".join(f", {line.removeprefix(start)}" for line in lines if line.startswith(start))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 3723 -> 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Progress:
    """A block of lines that is redrawn on a terminal; elsewhere a plain line once a minute."""

    def __init__(self, tasks: list[Task]):
        self.tasks = tasks
        self.live = sys.stdout.isatty()
        self.results: dict[Task, Result] = {}
        self.since: dict[Task, float] = {}  # when a task began, by time.monotonic()
        self.started = self.printed = time.monotonic()
        self.drawn = 0  # lines of the block that stand on the terminal

    def count(self, outcome: str) -> int:
        """How many tasks have ended in this way."""
        return sum(result.outcome == outcome for result in self.results.values())

    def summary(self) -> str:
        """One line: how many runs there are and how many have ended in which way."""
        parts = [f"{self.count(outcome)} {outcome}" for outcome in ("done", "skipped", "failed")]
        for outcome in ("stopped", "left out"):
            if self.count(outcome):
                parts.append(f"{self.count(outcome)} {outcome}")
        elapsed = clock(time.monotonic() - self.started)
        return f"{len(self.tasks)} runs: {', '.join(parts)}, {elapsed}"

    def state(self, task: Task) -> str:
        """How far a running task is, and for how long it has been running."""
        now = time.monotonic()
        return f"{task.name}: {percent(task)}, {clock(now - self.since.get(task, now))}"

    def ranking(self) -> list[str]:
        """Lines that follow on a terminal: where tasks compete, who leads."""
        return []

    def clear(self) -> None:
        """Wipe the block off the terminal."""
        if self.drawn:
            tell(f"\x1b[{self.drawn}F\x1b[J", end="")
            self.drawn = 0

    def say(self, text: str, error: bool = False) -> None:
        """A line that stays."""
        self.clear()
        tell(text, error)

    def draw(self, running: list[Task]) -> None:
        """Show how far the running tasks are, unless that was shown a moment ago."""
        now = time.monotonic()
        pause = PRINT
        if self.live:
            pause = REDRAW if self.drawn else 0
        if now - self.printed < pause:
            return
        self.printed = now
        lines = [self.summary(), *(self.state(task) for task in running)]
        if not self.live:
            tell("; ".join(lines))
            return
        size = shutil.get_terminal_size()
        lines = [lines[0], *(f"  {line}" for line in [*lines[1:], *self.ranking()])]
        lines = lines[: max(1, size.lines - 1)]
        self.clear()
        tell("\n".join(line[: size.columns - 1] for line in lines))
        self.drawn = len(lines)

    def report(self, task: Task, result: Result) -> None:
        """Note and say how a task ended; of a failed one show the tail of its log."""
        self.results[task] = result
        if result.outcome == "failed":
            lines = last_output(task.log) if task.log.exists() else []  # a job may fail before
            tail = "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])
            self.say(f"FAILED   {task.name}: {result.reason}; {task.log}\n{tail}", error=True)
        elif result.outcome == "skipped":
            self.say(f"skipped  {task.name}: finished before")
        elif result.outcome == "left out":
            self.say(f"left out {task.name}: {result.reason}", error=True)
        elif result.seconds:
            took = clock(result.seconds)
            self.say(f"{result.outcome:8} {task.name}, {took}{evaluation(task)}")

    def conclude(self, received: list[int]) -> int:
        """Say how it all went; returns the exit code. received: the signals that have come."""
        self.say(self.summary())
        failed = [task.name for task, result in self.results.items() if result.outcome == "failed"]
        if failed and len(self.tasks) > 1:  # each was told when it failed, perhaps hours ago
            tell(f"failed: {', '.join(failed)}", error=True)
        if received and self.count("stopped"):
            tell("the same command again goes on from here")
            return 128 + received[0]
        return 1 if self.count("failed") or self.count("left out") else 0


class Signals:
    """The signals to stop that have come: Ctrl-C, SIGTERM, SIGHUP unless it is ignored (nohup).

    A terminal that goes after one of the others, as with Ctrl-C in `| tee log`, is no second wish.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.answered = 0
        self.before: dict[int, Any] = {}  # the handlers that these took the place of
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)
            if signum and not (name == "SIGHUP" and signal.getsignal(signum) == signal.SIG_IGN):
                self.before[signum] = signal.getsignal(signum)
                signal.signal(signum, self.receive)

    def receive(self, number: int, _frame: object) -> None:
        """The handler of all of them."""
        if not self.received or number != getattr(signal, "SIGHUP", None):
            self.received.append(number)

    def release(self) -> None:
        """From now on signals do what they did before."""
        for signum, handler in self.before.items():
            signal.signal(signum, handler)

    def demand(self) -> Literal["save", "kill"] | None:
        """What is to be done now: `save` once, `kill` after that, None without a new signal."""
        before, self.answered = self.answered, len(self.received)  # later ones: next time
        if self.answered == before:
            return None
        return "kill" if before else "save"

    def run(self, command: list[str] | str) -> int:
        """Run a command to its end and pass on the signals that come meanwhile.

        command: its words, or a text for the shell. Returns its exit code, which is 128 + n if
        signal n has ended it.
        """
        send = getattr(os, "killpg", os.kill)  # on Windows there are no groups
        passed_on = len(self.received)  # before the command begins: it may be told at once
        # In a session of its own: the terminal's Ctrl-C reaches it through here, once.
        in_shell = isinstance(command, str)
        process = subprocess.Popen(command, shell=in_shell, start_new_session=True)
        while True:
            try:
                exit_code = process.wait(timeout=ANSWER)
            except subprocess.TimeoutExpired:
                new = self.received[passed_on:]
                passed_on += len(new)
                for signum in new:
                    send(process.pid, signum)
            else:
                return exit_code if exit_code >= 0 else 128 - exit_code
