"""Runs the scripts as their users do: the real command line, in a process of its own.

Every process gets an empty home folder and no Weights & Biases settings, so that what a test sees
does not depend on whose machine it runs on. PPO_SCRIPT may name another script to test.
"""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from helpers import processes
from helpers.in_process import events
from helpers.warm_processes import WarmCommand

ENVS = Path(__file__).resolve().parents[1] / "envs"
STAND_INS = ENVS / "stand_ins"  # for packages that do not run everywhere
PPO = ENVS.parents[1] / "ppo"
SCRIPT = Path(os.environ.get("PPO_SCRIPT", PPO / "ppo.py")).resolve()
EVALUATE = PPO / "evaluate.py"
LIMIT = 120  # seconds after which a command counts as hanging
Process: TypeAlias = subprocess.Popen[Any] | WarmCommand
CLOCKWORK = "clockwork:Clockwork-v0"  # tests/envs/clockwork.py: nothing in it is random


@dataclass(frozen=True)
class CommandRun:
    """A run that has ended: its folder and what it printed."""

    folder: Path
    stdout: str
    stderr: str


def environment(home: Path, **changes: str) -> dict[str, str]:
    """The variables of this process, with tests/envs importable, `home` as home and `changes`."""
    left_out = ("WANDB_", "RANK", "PYTEST", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    paths = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    paths["PYTHONPATH"] = f"{ENVS}{os.pathsep}{STAND_INS}"
    return kept | paths | {"CUDA_VISIBLE_DEVICES": ""} | changes


def start_command(
    *args: object, cwd: Path, script: Path = SCRIPT, cold: bool = False, **changes: str
) -> Process:
    """Starts `script args` in a process group of its own, with `changes` in its environment.

    cold: in a new interpreter, as a user's is; the others are forked from a warm one.
    """
    home = cwd.parent / f"{cwd.name}-home"
    home.mkdir(exist_ok=True)
    words = [str(script), *map(str, args)]
    variables = environment(home, **changes)
    if cold:
        return processes.start([sys.executable, *words], cwd, variables)
    command = WarmCommand(words, cwd, variables)
    processes.STARTED.append(command)
    return command


def run_command(
    *args: object, cwd: Path, script: Path = SCRIPT, cold: bool = False, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Runs `script args` to its end; a command that hangs fails the test."""
    process = start_command(*args, cwd=cwd, script=script, cold=cold, **changes)
    try:
        stdout, stderr = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        pytest.fail(f"{args} still ran after {LIMIT} s\n{stdout}\n{stderr}")
    code = process.returncode
    assert code is not None
    return subprocess.CompletedProcess(process.args, code, stdout, stderr)


def the_folder(runs_dir: Path) -> Path:
    """The only run folder in `runs_dir`."""
    (folder,) = runs_dir.glob("*__*")  # and not what Weights & Biases may keep beside it
    return folder


def train_command(*args: object, cwd: Path, script: Path = SCRIPT, **changes: str) -> CommandRun:
    """A run in `cwd`/runs that must end well."""
    done = run_command(*args, cwd=cwd, script=script, **changes)
    assert done.returncode == 0, done.stderr
    return CommandRun(the_folder(cwd / "runs"), done.stdout, done.stderr)


def resume_command(folder: Path, *args: object, cwd: Path, **changes: str) -> CommandRun:
    """Continues the run in `folder`, which must end well."""
    done = run_command("--resume", folder, *args, cwd=cwd, **changes)
    assert done.returncode == 0, done.stderr
    return CommandRun(folder, done.stdout, done.stderr)


def wait_until(condition: Any, seconds: float = LIMIT) -> Any:
    """What `condition()` returns once that is true; fails the test when it takes too long."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s for nothing")
        time.sleep(0.02)
    return value


def wait_for(pattern: str, runs_dir: Path, process: Process, seconds: float = LIMIT) -> Path:
    """The run folder in `runs_dir`, once there is a file like that in it."""

    def found() -> list[Path]:
        if process.poll() is not None:
            pytest.fail(f"ended too early: {process.communicate()}")
        return list(runs_dir.glob(f"*/{pattern}"))

    return wait_until(found, seconds)[0].parent


wait_for_checkpoint = functools.partial(wait_for, "checkpoint.pt")
wait_for_training = functools.partial(wait_for, "events.out.*")  # its first iteration


def finish(process: Process, seconds: float = LIMIT) -> tuple[int, Any, Any]:
    """Exit code and output of a process that must end within so many seconds."""
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"still ran {seconds} s later")
    return process.returncode, stdout, stderr


def parents() -> dict[int, int]:
    """Parent of each living process, zombies left out."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {int(pid): int(parent) for pid, parent, state in rows if "Z" not in state}


def children(pid: int) -> set[int]:
    """Living child processes of a process."""
    return {child for child, parent in parents().items() if parent == pid}


def contents(folder: Path) -> dict[Path, bytes | None]:
    """Every file below a folder with what is in it, and every folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


class BoobyTrap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def checkpoint(folder: Path, name: str = "checkpoint.pt") -> dict[str, Any]:
    """A checkpoint, read without executing anything inside it."""
    return torch.load(folder / name, map_location="cpu", weights_only=True)


def assert_resumed_and_played(*args: object, cwd: Path, script: Path, film: bool = True) -> Path:
    """A run of 64 steps, resumed to 128, then an episode of it, filmed; returns the run folder."""
    folder = train_command(*args, "--total-timesteps", 64, cwd=cwd, script=script).folder
    done = run_command("--resume", folder, "--total-timesteps", 128, cwd=cwd, script=script)
    assert done.returncode == 0, done.stderr
    assert checkpoint(folder)["global_step"] == 128
    filming = ["--capture-video"] * film
    played = run_command(folder, "--episodes", 1, *filming, cwd=cwd, script=EVALUATE)
    assert played.returncode == 0, played.stderr
    return folder


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Steps and values of a scalar."""
    return [(point.step, point.value) for point in events(folder).Scalars(tag)]


SHARED = tempfile.TemporaryDirectory()  # removed when this process ends


def shared_folder(name: str) -> Path:
    """An empty folder for what several test modules share."""
    folder = Path(SHARED.name, name)
    folder.mkdir()
    return folder


@functools.cache
def finished_run() -> CommandRun:
    """A short run that ended by itself, shared by all tests of a session: do not write into it."""
    return train_command(
        *("--total-timesteps", 2048, "--eval-episodes", 2, "--seed", 3),
        cwd=shared_folder("finished"),
    )


@functools.cache
def interrupted_run() -> tuple[CommandRun, int]:
    """A run that Ctrl-C ended halfway and its exit code, shared like the finished one."""
    cwd = shared_folder("interrupted")
    flags = ("--total-timesteps", 65536, "--checkpoint-every", 3)
    process = start_command(*flags, "--runs-dir", "runs", cwd=cwd)
    folder = wait_for_checkpoint(cwd / "runs", process)
    process.send_signal(signal.SIGINT)
    code, stdout, stderr = finish(process)
    return CommandRun(folder, stdout, stderr), code
