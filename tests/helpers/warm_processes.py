"""Processes that start in a moment: forks of one that has imported all slow packages.

Starting Python with torch takes four seconds, and a test suite that runs programs does it hundreds
of times. Python's fork server imports the packages once; `WarmCommand` runs a program in a fork of
it as `python program.py` would run it. What reads the environment while packages are imported, and
what the interpreter does at its very end, need a real process: `start_command(cold=True)`.
"""

import atexit
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# torch._dynamo: the first optimizer imports it. What is not installed is left out.
PRELOADED = "torch torch._dynamo torch.utils.tensorboard gymnasium tyro moviepy pytest mujoco"
PRELOADED += " ale_py cv2 pettingzoo supersuit envpool flax.nnx optax scipy.linalg"
PRELOADED += " mujoco.mjx matplotlib.pyplot"  # of Playground and gymnax what does not start JAX
PRELOADED += " helpers.frozen"  # the last one


@functools.cache
def context() -> Any:
    """Of multiprocessing, to start warm processes; a process that is one of them forks itself."""
    if multiprocessing.parent_process() is not None:
        return multiprocessing.get_context("fork")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOADED.split())
    return found


def redirect_output(*files: Path) -> None:
    """Lets this process write its standard output, and its errors, to a file each."""
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)


def run_program(words: Sequence[str], cwd: Path, env: dict[str, str], output: Path) -> None:
    """Body of a process: what `python words...` does, with its own folder, variables and output."""
    os.setsid()
    multiprocessing.set_start_method(None, force=True)  # the system's default again
    multiprocessing.process._parent_process = None  # a user's process is nobody's worker
    signal.signal(signal.SIGINT, signal.default_int_handler)
    redirect_output(output / "stdout", output / "stderr")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = list(words)
    sys.path[:0] = [str(Path(words[0]).parent), *env.get("PYTHONPATH", "").split(os.pathsep)]
    program = ModuleType("__main__")
    program.__file__ = words[0]
    sys.modules["__main__"] = program
    code: object = 0
    try:
        exec(compile(Path(words[0]).read_text(), words[0], "exec"), vars(program))
    except SystemExit as stop:
        code = stop.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:
        frames = error.__traceback__
        traceback.print_exception(error.with_traceback(frames.tb_next if frames else None))
        code = 1
    # Here the exception is gone, and with it what its frames held; then as an interpreter ends:
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.exit(code)


class WarmCommand:
    """A program that runs in a warm process, with the methods of a `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], cwd: Path, env: dict[str, str]) -> None:
        if "--resume" in words:
            # TensorBoard reads a run's event files in the order of the seconds in their names.
            time.sleep(1 - time.time() % 1)
        self.args = list(words)
        self.folder = tempfile.TemporaryDirectory()
        given = (self.args, cwd, env, Path(self.folder.name))
        self.process = context().Process(target=run_program, args=given)
        self.process.start()
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, minus the signal's number after a signal; None while the program runs."""
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; TimeoutExpired if the program still runs."""
        self.process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def output(self, name: str) -> str:
        """What is written so far to stdout or stderr."""
        file = Path(self.folder.name, name)
        return file.read_text() if file.exists() else ""

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All output, once the program has ended; TimeoutExpired if it still runs."""
        self.wait(timeout)
        return self.output("stdout"), self.output("stderr")

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
