"""What the tests of all scripts in JAX do with the command line and with checkpoints."""

import re
import signal
from pathlib import Path
from typing import Any

from filelock import FileLock
from flax import serialization
from helpers import command_line


def state_of(folder: Path, name: str = "checkpoint.pt") -> dict[str, Any]:
    """A checkpoint, read without executing anything inside it."""
    return serialization.msgpack_restore((folder / name).read_bytes())


def assert_only_one_process_writes(folder: Path, cwd: Path, script: Path) -> None:
    """A run that another process has, here this one, is refused."""
    with FileLock(folder / ".lock"):
        done = command_line.run_command("--resume", folder, cwd=cwd, script=script)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"{script.name}: {folder}: another process is writing this run\n"


def assert_a_full_disk_costs_nothing(folder: Path, cwd: Path, script: Path) -> None:
    """The next checkpoint goes to a device that is always full; the last one stays."""
    last = (folder / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.tmp").symlink_to("/dev/full")
    flags = ("--resume", folder, "--checkpoint-every", 1)
    done = command_line.run_command(*flags, cwd=cwd, script=script)
    (folder / "checkpoint.tmp").unlink()
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert (folder / "checkpoint.pt").read_bytes() == last


def assert_stopped_and_resumed(
    *flags: object, cwd: Path, script: Path, multiple: int, more: tuple[object, ...]
) -> Path:
    """A run that Ctrl-C stops after a whole call, and that then goes on; returns its folder.

    multiple: steps of one compiled call; the resumed run makes two calls more.
    more: flags of the resumed run, which is to end with an evaluation.
    """
    flags = (*flags, "--runs-dir", "runs", "--checkpoint-every", 1)
    process = command_line.start_command(*flags, cwd=cwd, script=script)
    folder = command_line.wait_for_checkpoint(cwd / "runs", process, 100)
    process.send_signal(signal.SIGINT)
    code, _, stderr = command_line.finish(process, 100)
    assert code == 130 and stderr.count("stopping after this iteration") == 1, stderr
    step = state_of(folder)["global_step"]
    assert step > 0 and step % multiple == 0 and not (folder / "agent.pt").exists()
    assert_only_one_process_writes(folder, cwd, script)
    assert_a_full_disk_costs_nothing(folder, cwd, script)
    last = step + 2 * multiple
    done = command_line.run_command(
        *("--resume", folder, "--total-timesteps", last, *more), cwd=cwd, script=script
    )
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^{last:,} of {last:,} steps, [\d,]+ steps/s", done.stdout, re.MULTILINE)
    assert re.search(r"^evaluation: episodic_return [\d.]+ ± ", done.stdout, re.MULTILINE)
    assert state_of(folder, "agent.pt")["global_step"] == last
    return folder


def played(*args: object, cwd: Path) -> str:
    """What evaluate.py prints."""
    done = command_line.run_command(*args, cwd=cwd, script=command_line.EVALUATE)
    assert done.returncode == 0, done.stderr
    return done.stdout
