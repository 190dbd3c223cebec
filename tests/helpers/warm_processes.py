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
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO
from weakref import WeakSet

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


def run_program(
    words: Sequence[str], cwd: Path, env: dict[str, str], stdout: Connection, stderr: Connection
) -> None:
    """Body of a process: what `python words...` does, with its own folder, variables and output."""
    os.setsid()
    multiprocessing.set_start_method(None, force=True)  # the system's default again
    multiprocessing.process._parent_process = None  # a user's process is nobody's worker
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, connection in enumerate((stdout, stderr), start=1):
        os.dup2(connection.fileno(), number)
        connection.close()
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
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


STARTED: "WeakSet[WarmCommand]" = WeakSet()


@atexit.register
def kill_what_still_runs() -> None:
    """Multiprocessing would wait for the programs that a failed test has left behind."""
    for command in list(STARTED):
        command.kill()


class WarmCommand:
    """A program that runs in a warm process; to its user a `subprocess.Popen` with text pipes."""

    def __init__(self, words: Sequence[str], cwd: Path, env: dict[str, str]) -> None:
        self.args = list(words)
        if "--resume" in words:
            # TensorBoard reads a run's event files in the order of the seconds in their names.
            time.sleep(1 - time.time() % 1)
        ends = [context().Pipe(duplex=False) for _ in range(2)]
        writers = [writer for _, writer in ends]
        self.process = context().Process(target=run_program, args=(self.args, cwd, env, *writers))
        self.process.start()
        for writer in writers:
            writer.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(reader.fileno())) for reader, _ in ends)
        for reader, _ in ends:
            reader.close()
        self.output: dict[str, str] = {}
        self.readers: list[threading.Thread] = []
        STARTED.add(self)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, minus the signal's number after a signal; TimeoutExpired if it still runs."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All output, once the program has ended; TimeoutExpired if it still runs."""
        if not self.readers:
            pipes = {"stdout": self.stdout, "stderr": self.stderr}
            self.readers = [
                threading.Thread(target=self._read, args=pipe, daemon=True)
                for pipe in pipes.items()
            ]
            for reader in self.readers:
                reader.start()
        self.wait(timeout)
        for reader in self.readers:
            reader.join()
        return self.output["stdout"], self.output["stderr"]

    def _read(self, name: str, pipe: TextIO) -> None:
        self.output[name] = pipe.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
