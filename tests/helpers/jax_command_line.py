"""What the tests of all scripts in JAX do with the command line and with checkpoints."""

import gc
import re
import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flax import serialization
from helpers import command_line
from helpers.in_process import Run


def state_of(folder: Path, name: str = "checkpoint.pt") -> dict[str, Any]:
    """A checkpoint, read without executing anything inside it."""
    return serialization.msgpack_restore((folder / name).read_bytes())


def assert_same(a: dict[str, Any], b: dict[str, Any], **tolerance: float) -> None:
    """Two train_states of checkpoints have the same arrays; without a tolerance to the bit."""
    assert a.keys() == b.keys()
    for part in a:
        assert a[part].keys() == b[part].keys()
        for name in a[part]:
            np.testing.assert_allclose(
                a[part][name], b[part][name], **(tolerance or {"rtol": 0}), err_msg=name
            )


def assert_resumed_equals(script: ModuleType, whole: Run, folder: Path, step: int) -> None:
    """The same training, stopped after a step and resumed in `folder`, comes to the same."""
    log = script.Run.log

    def log_and_interrupt(run: Any, *metrics: Any) -> None:
        if metrics[-1] == step:
            run.on_signal(signal.SIGINT, None)
        log(run, *metrics)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script.Run, "log", log_and_interrupt)
        assert script.train(whole.args, folder, {}) == 130
    checkpoint = script.load_checkpoint(folder / "checkpoint.pt")
    assert checkpoint["global_step"] == step
    gc.collect()  # gives back the lock of the first part
    time.sleep(1)  # TensorBoard orders event files by the seconds in their names
    assert script.train(whole.args, folder, checkpoint) == 0
    assert_same(state_of(whole.folder)["train_state"], state_of(folder)["train_state"])
    resumed, uninterrupted = Run(script, whole.args, folder).scalars(), whole.scalars()
    for name in uninterrupted.keys() - {"charts/SPS"}:
        assert resumed[name] == uninterrupted[name], name


def assert_stopped_and_resumed(
    *flags: object, cwd: Path, script: Path, multiple: int, more: tuple[object, ...]
) -> Path:
    """A run that Ctrl-C stops after a whole call, and that then goes on; returns its folder.

    multiple: steps of one compiled call; the resumed run makes two calls more.
    more: flags of the resumed run, which is to end with an evaluation.
    """
    flags = (*flags, "--runs-dir", "runs", "--checkpoint-every", 1, "--resume", "auto")
    process = command_line.start_command(*flags, cwd=cwd, script=script)
    folder = command_line.wait_for_checkpoint(cwd / "runs", process, 100)
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
    assert re.search(rf"^{last:,} of {last:,} steps, [\d,]+ steps/s", done.stdout, re.MULTILINE)
    assert re.search(r"^evaluation: episodic_return [\d.]+ ± ", done.stdout, re.MULTILINE)
    assert state_of(folder, "agent.pt")["global_step"] == last
    again = command_line.run_command(*flags, cwd=cwd, script=script)
    assert again.returncode == 0 and f"{folder.name} is finished" in again.stdout
    return folder


def played(*args: object, cwd: Path) -> str:
    """What evaluate.py prints."""
    done = command_line.run_command(*args, cwd=cwd, script=command_line.EVALUATE)
    assert done.returncode == 0, done.stderr
    return done.stdout
