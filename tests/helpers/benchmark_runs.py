"""Runs benchmark/run.py on a script that only pretends to train, and reads what it left behind."""

import contextlib
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import processes
from helpers.command_line import wait_until
from helpers.in_process import load_program
from torch.utils.tensorboard import SummaryWriter

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmark"
FAKE_TRAINING = Path(__file__).with_name("fake_training.py")


def run_program(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """benchmark/<name> with these arguments, run by this process, which saves starting another."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        patch.setattr(sys, "argv", [name, *args])
        try:
            code = load_program(name).main()
        except SystemExit as stop:
            code = stop.code
    return subprocess.CompletedProcess([name, *args], code, stdout.getvalue(), stderr.getvalue())


class FakeScript:
    """A copy of fake_training.py in a folder of its own, and the runs that it makes there."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = Path(shutil.copy(FAKE_TRAINING, folder / "fake.py"))
        self.runs_dir = folder / "runs"

    def arguments(self, *flags: str, command: str = "") -> list[str]:
        """What follows run.py on its command line; flags may name another --runs-dir."""
        words = ["--command", command or f"{sys.executable} {self.path}"]
        return [*words, "--runs-dir", str(self.runs_dir), *flags]

    def run(self, *flags: str, command: str = "") -> subprocess.CompletedProcess[str]:
        """The runner in this process, until it ends."""
        return run_program("run.py", *self.arguments(*flags, command=command))

    def start(self, *flags: str) -> subprocess.Popen[str]:
        """The runner in a process of its own, in the script's folder."""
        words = [sys.executable, str(BENCHMARK / "run.py"), *self.arguments(*flags)]
        return processes.start(words, self.folder)

    def run_folders(self) -> list[Path]:
        """The folders of all runs."""
        return sorted(path.parent for path in self.runs_dir.glob("*/args.json"))

    def wait_until_running(self, count: int) -> None:
        """Returns when so many runs have begun."""
        wait_until(lambda: len(list(self.runs_dir.glob("*/starts.txt"))) >= count)

    def let_go(self) -> None:
        """From now on runs end well."""
        (self.folder / "let-go").touch()


def starts(folder: Path) -> list[str]:
    """The command lines of a run and of its resumptions, each with its OMP_NUM_THREADS."""
    return (folder / "starts.txt").read_text().splitlines()


def stops(folder: Path) -> str:
    """How many signals have reached a run that was stopped."""
    return (folder / "signals.txt").read_text()


def write_returns(path: Path, episodic_return: float) -> None:
    """An event file: 1,000 steps in which an episode with this return ends every ten."""
    writer = SummaryWriter(str(path.parent / "writer"))
    for step in range(10, 1001, 10):
        writer.add_scalar("charts/episodic_return", episodic_return, step)
    writer.close()
    (written,) = (path.parent / "writer").iterdir()
    written.rename(path)
