"""What the tests of all scripts in JAX do with the command line and with checkpoints."""

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
