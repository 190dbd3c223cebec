"""What a newcomer does: `uv run` in a fresh folder, watching the progress, Ctrl-C, evaluation."""

import os
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

# Percent, steps, speed, time left, return and length of the last episodes. As long as nothing is
# known of one of them there is a question mark or nothing.
NUMBER = r"[\d.]+[kMG]?"
EPISODES = rf", return {NUMBER}, length \d+"
LINE = rf" *\d+%  {NUMBER} steps  ({NUMBER}|\?) steps/s  ([\d:]+|\?) left({EPISODES})?"
# On a terminal: 20%|██   | 4.1k/20.5k [00:02<00:10, 1.6k steps/s, return 26.0, length 26].
TIME = rf"\[[\d:]+<([\d:]+|\?), ({NUMBER}|\?) steps/s({EPISODES})?\]"
BAR = rf" *\d+%\|.*\| {NUMBER}/{NUMBER} {TIME} *"
# What stands behind the last line of progress.
SPEED = r"[\d,]+ steps, [\d,]+ steps/s"
EVALUATION = r"evaluation: return [\d.]+ ± [\d.]+"
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
    assert "evaluation: return" in trained.stdout
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


@pytest.mark.slow("command line")
def test_progress_in_a_pipe_is_plain_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--total-timesteps", "2048", "--eval-episodes", "1"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,  # as bytes: decoding would turn a carriage return into a line's end
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode()
    assert "\r" not in shown
    assert "\x1b" not in shown
    first, *lines, last, speed, announced, evaluation = filter(None, shown.split("\n"))
    assert first.startswith("run folder: ")
    assert lines
    assert all(re.fullmatch(LINE, line) for line in lines), shown
    assert re.fullmatch(rf"100%  2.05k steps  {NUMBER} steps/s  00:00 left{EPISODES}", last)
    assert re.fullmatch(SPEED, speed) and speed.startswith("2,048 steps, ")
    assert announced == "evaluation (--eval-episodes 1) ..."
    assert re.fullmatch(EVALUATION, evaluation)


@pytest.mark.slow("command line")
def test_evaluation_that_may_never_end_is_told(tmp_path: Path) -> None:
    """Nothing of CartPole ends in four steps; an episode without any limit never does."""
    flags = ("--num-steps", 4, "--total-timesteps", 16, "--eval-episodes", 1)
    lines = train_command(*flags, cwd=tmp_path).stdout.splitlines()
    announced = lines.index("evaluation (--eval-episodes 1) ...")
    assert lines[announced + 1].startswith("no episode ended in training")
    assert re.fullmatch(EVALUATION, lines[announced + 2])


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
    first, shown = shown.split("\n", 1)
    folder = the_folder(tmp_path / "runs")
    assert first == f"run folder: {folder.relative_to(tmp_path)}"
    live, speed, _announced, evaluation = shown.rstrip().rsplit("\n", 3)
    assert re.fullmatch(SPEED, speed)
    assert re.fullmatch(EVALUATION, evaluation)
    states = live.strip("\r").split("\r")
    assert len(states) > 2
    assert all(re.fullmatch(BAR, state) for state in states), states
    assert all(len(state) <= COLUMNS for state in states), "wrapped lines are not overwritten"
    assert re.search(EPISODES, states[-1])
    percent = [int(state.split("%")[0]) for state in states]
    assert percent == sorted(percent)
    assert percent[0] < percent[-1] == 100
    assert os.path.getsize(folder / "agent.pt") > 0
