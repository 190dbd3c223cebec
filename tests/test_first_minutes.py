"""What a newcomer does: `uv run` in a fresh folder, watching the progress, Ctrl-C, evaluation."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import (
    LIMIT,
    PPO,
    SCRIPT,
    checkpoint,
    environment,
    finish,
    finished_run,
    interrupted_run,
    the_folder,
    wait_for_checkpoint,
)

# Percent, step, speed, time left, return of the last episodes.
LINE = r" *\d+%  step [\d,]+  [\d,]+ steps/s  [\d.]+ min left  return [\d.]+"
# Runs its arguments on a terminal of their own; what it reads is typed there.
ON_A_TERMINAL = (
    "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])) % 256)"
)
needs_uv = pytest.mark.skipif(not shutil.which("uv"), reason="uv is not installed")


def as_a_newcomer() -> dict[str, str]:
    """The environment of somebody who has only uv: nothing of this process's Python."""
    changed = environment(Path.home())
    return {k: v for k, v in changed.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "UV_PYTHON")}


def on_a_terminal(*command: object, cwd: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts a command on a terminal of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, *map(str, command)],
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of ppo/ and nothing else."""
    cwd = tmp_path_factory.mktemp("fresh")
    shutil.copytree(PPO, cwd / "ppo", ignore=shutil.ignore_patterns("__pycache__"))
    return cwd


@needs_uv
@pytest.mark.slow
def test_uv_run_trains_and_evaluates(fresh: Path) -> None:
    """The README's first command, shortened, then evaluation; the first one installs everything."""

    def uv_run(*args: object) -> str:
        done = subprocess.run(
            ["uv", "run", *map(str, args)],
            cwd=fresh,
            env=as_a_newcomer(),
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    trained = uv_run("ppo/ppo.py", "--total-timesteps", 2048)
    assert re.search("evaluation: return", trained)
    folder = the_folder(fresh / "runs")
    assert (folder / "agent.pt").exists()
    played = uv_run("ppo/evaluate.py", folder.relative_to(fresh), "--episodes", 2)
    assert played.count("episode ") == 2
    assert "over 2 episodes" in played
    assert {path.name for path in fresh.iterdir()} == {"ppo", "runs"}


@needs_uv
@pytest.mark.slow
def test_one_ctrl_c_under_uv_saves_the_run(fresh: Path) -> None:
    """uv and the script both get the terminal's signal: it must not count as two."""
    command = ("uv", "run", "ppo/ppo.py", "--runs-dir", "stopped", "--total-timesteps", 50_000_000)
    process = on_a_terminal(*command, cwd=fresh, env=as_a_newcomer())
    folder = wait_for_checkpoint(fresh / "stopped", process, LIMIT)
    time.sleep(1)
    assert process.stdin is not None
    process.stdin.write(b"\x03")
    process.stdin.flush()
    code, output, _ = finish(process)
    shown = output.decode()
    assert code == 130, shown
    assert "Traceback" not in shown
    assert checkpoint(folder)["global_step"] > 0
    shutil.rmtree(fresh / "stopped")


def test_progress_in_a_pipe_is_plain_lines() -> None:
    for run in (finished_run(), interrupted_run()[0]):
        assert "\r" not in run.stdout
        assert "\x1b" not in run.stdout
        lines = [line for line in run.stdout.splitlines() if "%" in line]
        assert lines
        assert all(re.fullmatch(LINE, line) for line in lines), run.stdout
    last = [line for line in finished_run().stdout.splitlines() if "%" in line][-1]
    assert re.match("100%  step 2,048", last)
    assert re.fullmatch(
        r"evaluation: return [\d.]+ ± [\d.]+", finished_run().stdout.splitlines()[-1]
    )


def test_progress_on_a_terminal_is_one_live_line(tmp_path: Path) -> None:
    process = on_a_terminal(
        *(sys.executable, SCRIPT, "--total-timesteps", 20480, "--eval-episodes", 1),
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    code, output, _ = finish(process, LIMIT)
    shown = output.decode().replace("\r\n", "\n")  # what a terminal makes of a line's end
    assert code == 0, shown
    first, shown = shown.split("\n", 1)
    folder = the_folder(tmp_path / "runs")
    assert first == f"run folder: {folder.relative_to(tmp_path)}"
    live, evaluation = shown.rstrip().rsplit("\n", 1)
    assert re.match(r"evaluation: return [\d.]+ ± ", evaluation)
    states = live.strip("\r\n").split("\r")
    assert len(states) > 2
    assert "\n" not in "".join(states)
    assert all(re.fullmatch(LINE + re.escape("\x1b[K"), state) for state in states), states
    percent = [int(state.split("%")[0]) for state in states]
    assert percent == sorted(percent)
    assert percent[0] < percent[-1] == 100
    assert os.path.getsize(folder / "agent.pt") > 0
