"""What the tests of all scripts in JAX do with the command line and with checkpoints."""

import fcntl
import re
import signal
import time
from pathlib import Path
from typing import Any

from flax import serialization
from helpers import command_line


def state_of(folder: Path, name: str = "checkpoint.pt") -> dict[str, Any]:
    """A checkpoint, read without executing anything inside it."""
    return serialization.msgpack_restore((folder / name).read_bytes())


def assert_only_one_process_writes(folder: Path, cwd: Path, script: Path) -> None:
    """A run that another process has, here this one, is refused."""
    with open(folder / "args.json", "r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        done = command_line.run_command("--resume", folder, cwd=cwd, script=script)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"{script.name}: {folder}: another process is writing this run\n"


def assert_a_full_disk_costs_nothing(folder: Path, cwd: Path, script: Path) -> None:
    """The next checkpoint goes to a device that is always full; the last one stays."""
    last = (folder / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.tmp").symlink_to("/dev/full")
    done = command_line.run_command("--resume", folder, cwd=cwd, script=script)
    (folder / "checkpoint.tmp").unlink()
    told = f"the disk is full; when there is space, --resume {folder} goes on\n"
    assert done.returncode == 1 and done.stderr == f"{script.name}: {told}"
    assert (folder / "checkpoint.pt").read_bytes() == last


def assert_stopped_and_resumed(
    *flags: object, cwd: Path, script: Path, multiple: int, more: tuple[object, ...]
) -> Path:
    """A run that Ctrl-C stops after a whole call, and that then goes on; returns its folder.

    multiple: steps of one compiled call; the resumed run makes two calls more.
    more: flags of the resumed run, which is to end with an evaluation.
    """
    process = command_line.start_command(*flags, "--runs-dir", "runs", cwd=cwd, script=script)
    folder = command_line.wait_for_checkpoint(cwd / "runs", process, 100)
    time.sleep(0.5)
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
    assert re.search(rf"^{last:,} steps, [\d,]+ steps/s$", done.stdout, re.MULTILINE)
    assert re.search(r"^evaluation: return [\d.]+ ± [\d.]+$", done.stdout, re.MULTILINE)
    assert state_of(folder, "agent.pt")["global_step"] == last
    return folder


def played(*args: object, cwd: Path) -> str:
    """What evaluate.py prints."""
    done = command_line.run_command(*args, cwd=cwd, script=command_line.EVALUATE)
    assert done.returncode == 0, done.stderr
    return done.stdout
