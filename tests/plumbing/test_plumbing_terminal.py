"""What a newcomer does: `uv run` in a fresh folder, watching the progress, Ctrl-C, evaluation."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import newcomer
from helpers.command_line import (
    LIMIT,
    PPO,
    SCRIPT,
    checkpoint,
    environment,
    finish,
    the_folder,
    train_command,
    wait_for_checkpoint,
)
from helpers.newcomer import needs_uv

NUMBER = r"[\d.]+[kMG]?"
# On a terminal: 20%|██   | 4.1k/20.5k [00:02<00:10, 1.6k steps/s, return 26.0, length 26].
EPISODES = r", return [\d.]+, length \d+"
TIME = rf"\[[\d:]+<([\d:]+|\?), ({NUMBER}|\?) steps/s({EPISODES})?\]"
BAR = rf" *\d+%\|.*\| {NUMBER}/{NUMBER} {TIME} *"
EVALUATION = r"evaluation: episodic_return [\d.]+ ± [\d.]+ over 1 episodes"
COLUMNS = 100
# Runs its arguments on a terminal of their own; what it reads is typed there.
ON_A_TERMINAL = f"""
import os, pty, sys
command = ["sh", "-c", 'stty cols {COLUMNS} rows 30; exec "$@"', "sh", *sys.argv[1:]]
sys.exit(os.waitstatus_to_exitcode(pty.spawn(command)) % 256)
"""


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
@pytest.mark.slow("uv installs packages")
def test_uv_run_trains_and_evaluates(fresh: Path) -> None:
    """The README's first command, shortened, then evaluation; the first one installs everything."""

    trained = newcomer.run("uv", "run", "ppo/ppo.py", "--total-timesteps", 2048, cwd=fresh)
    assert trained.returncode == 0, trained.stderr
    assert "evaluation: episodic_return" in trained.stdout
    folder = the_folder(fresh / "runs")
    assert (folder / "agent.pt").exists()
    evaluate = ("uv", "run", "ppo/evaluate.py", folder.relative_to(fresh), "--episodes", 2)
    played = newcomer.run(*evaluate, cwd=fresh)
    assert played.returncode == 0, played.stderr
    assert played.stdout.count("episode ") == 2
    assert "over 2 episodes" in played.stdout
    assert {path.name for path in fresh.iterdir()} == {"ppo", "runs"}


@needs_uv
@pytest.mark.slow("uv installs packages")
def test_one_ctrl_c_under_uv_saves_the_run(fresh: Path) -> None:
    """uv and the script both get the terminal's signal: it must not count as two."""
    command = ("uv", "run", "ppo/ppo.py", "--runs-dir", "stopped", "--total-timesteps", 50_000_000)
    process = on_a_terminal(*command, cwd=fresh, env=newcomer.environment())
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


def test_progress_off_a_terminal_is_plain_lines(tmp_path: Path) -> None:
    lines = train_command("--total-timesteps", 2048, "--eval-episodes", 1, cwd=tmp_path).stdout
    assert "\r" not in lines and "\x1b" not in lines
    folder, device, *progress, evaluation = lines.splitlines()
    assert folder.startswith("run folder: ")
    assert device == "4 environments, device cpu"
    line = rf"[\d,]+ of 2,048 steps, [\d,]+ steps/s{EPISODES}"
    assert progress[-1].startswith("2,048 of")
    assert all(re.fullmatch(line, shown) for shown in progress)
    assert re.fullmatch(EVALUATION, evaluation)


@pytest.mark.slow("command line")
def test_progress_on_a_terminal_is_one_live_line(tmp_path: Path) -> None:
    process = on_a_terminal(
        *(sys.executable, SCRIPT, "--total-timesteps", 20480, "--eval-episodes", 1),
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    code, output, _ = finish(process, LIMIT)
    shown = output.decode().replace("\r\n", "\n")  # what a terminal makes of a line's end
    assert code == 0, shown
    folder, _device, shown = shown.split("\n", 2)
    assert folder.startswith("run folder: ")
    live, evaluation = shown.rstrip().rsplit("\n", 1)
    assert re.fullmatch(EVALUATION, evaluation)
    states = live.strip("\r").split("\r")
    assert len(states) > 2
    assert all(re.fullmatch(BAR, state) for state in states), states
    assert all(len(state) <= COLUMNS for state in states), "wrapped lines are not overwritten"
    assert re.search(EPISODES, states[-1])
    percent = [int(state.split("%")[0]) for state in states]
    assert percent == sorted(percent)
    assert percent[0] < percent[-1] == 100
