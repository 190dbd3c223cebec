"""The programs that a test starts: none outlives it, even if it fails."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STARTED: list[Any] = []  # of the present test: Popen, or what has its methods


def start(
    words: Sequence[str],
    cwd: Path,
    env: dict[str, str] | None = None,
    text: bool = True,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[Any]:
    """Starts a program in a process group of its own, which conftest.py ends after the test."""
    process = subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        text=text,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def kill_what_still_runs() -> None:
    """Kills each program and what it has started."""
    for process in STARTED:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has no group yet
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
    STARTED.clear()
