"""Small functions that the programs in this folder share: messages, CPUs, signals to stop."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

import psutil
import tyro

TAIL_BYTES = 16_384  # that are read for the last lines of a log
Args = TypeVar("Args")  # the class of a program's flags


def read_args(kind: type[Args], description: str | None) -> Args:
    """The flags of the command line; shells leave the ~ in --runs-dir=~/runs."""
    args = tyro.cli(kind, description=description)
    for name, value in vars(args).items():
        if isinstance(value, Path):
            setattr(args, name, value.expanduser())
    return args


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def warn(message: str) -> None:
    """Tell the user what is left out or odd."""
    print(f"warning: {message}", file=sys.stderr)


def say(text: str, error: bool = False, end: str = "\n") -> None:
    """Print a text, if anybody reads it: Ctrl-C in `| tee log` ends tee as well."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr if error else sys.stdout, end=end, flush=True)


def file_name(name: str) -> str:
    """A name without slashes and colons."""
    return name.replace("/", "-").replace(":", "-")


def seeds(count: int) -> str:
    """How many runs there are: '1 seed', '3 seeds'."""
    return f"{count} seed{'s' if count > 1 else ''}"


def cpu_count() -> int:
    """How many CPUs this process may use, where the system says so; else how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def mebibytes(maxrss: int) -> float:
    """The `ru_maxrss` of a process, its peak memory, in MiB: macOS counts bytes, Linux KiB."""
    return maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def last_output(log: Path) -> list[str]:
    """The last lines of a log, from the last command on, behind a "$"; none if there is no log."""
    if not log.exists():
        return []
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    return lines[starts[-1] :] if starts else lines


def kill_all(pid: int) -> None:
    """Kill a process and all that it has started; torchrun's workers are in groups of their own."""
    try:
        process = psutil.Process(pid)
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


class Signals:
    """The signals to stop that have come: Ctrl-C, SIGTERM, SIGHUP unless it is ignored (nohup).

    A terminal that goes after one of the others, as with Ctrl-C in `| tee log`, is no second wish.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.answered = 0
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self.receive)

    def receive(self, signum: int, _frame: object) -> None:
        """The handler of all of them."""
        if not self.received or signum != signal.SIGHUP:
            self.received.append(signum)

    def demand(self) -> Literal["save", "kill"] | None:
        """What is to be done now: `save` once, `kill` after that, None without a new signal."""
        before, self.answered = self.answered, len(self.received)  # later ones: next time
        if self.answered == before:
            return None
        return "kill" if before else "save"
