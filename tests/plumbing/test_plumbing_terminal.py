"""What a newcomer does: `uv run` in a fresh folder, watching the progress, Ctrl-C, evaluation."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import newcomer, processes
from helpers.command_line import (
    LIMIT,
    PPO,
    SCRIPT,
    checkpoint,
    environment,
    finish,
    the_folder,
    wait_for_checkpoint,
)
from helpers.in_process import load_script
from helpers.newcomer import needs_uv

COLUMNS = 100
# Runs its arguments on a terminal of their own; what it reads is typed there.
ON_A_TERMINAL = f"""
import os, pty, sys
command = ["sh", "-c", 'stty cols {COLUMNS} rows 30; exec "$@"', "sh", *sys.argv[1:]]
sys.exit(os.waitstatus_to_exitcode(pty.spawn(command)) % 256)
"""


def on_a_terminal(*command: object, cwd: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts a command on a terminal of its own."""
    words = [sys.executable, "-c", ON_A_TERMINAL, *map(str, command)]
    return processes.start(words, cwd, env, text=False, stdin=subprocess.PIPE)


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
    evaluate = ("uv", "run", "ppo/evaluate.py", folder.relative_to(fresh), "--episodes", 2)
    played = newcomer.run(*evaluate, cwd=fresh)
    assert played.returncode == 0, played.stderr
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


def test_progress_is_a_line_every_ten_seconds_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run resumed at step 400. Its first iteration, which may compile, is in no speed."""
    script, clock = load_script("ppo.py"), {"now": 100.0}
    monkeypatch.setattr(script.time, "perf_counter", lambda: clock["now"])
    args = script.Args(num_envs=2, num_steps=50, total_timesteps=1000)
    run = script.Run(args, tmp_path, {"global_step": 400})
    capsys.readouterr()
    for step, now in ((500, 110), (600, 119), (700, 120), (1000, 126)):
        run.step, clock["now"] = step, now
        metrics: dict[str, float] = {}
        run.show_progress(metrics)
        run.recent = [[3.0, 7]]
    run.writer.close()
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "500 of 1,000 steps"
    assert second == "700 of 1,000 steps, 20 steps/s, return 3.0, length 7"
    assert last == "1,000 of 1,000 steps, 31 steps/s, return 3.0, length 7"
    assert metrics == {"charts/SPS": 500 / 16}


def test_no_progress_is_printed_between_a_signal_and_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C may have ended `tee`, too: printing would fail, and nothing would be saved."""
    script = load_script("ppo.py")
    log = script.Run.log

    def interrupted_log(run: Any, *metrics: Any) -> None:
        run.on_signal(signal.SIGINT, None)
        log(run, *metrics)

    monkeypatch.setattr(script.Run, "log", interrupted_log)
    assert script.train(script.Args(total_timesteps=512), tmp_path, {}) == 130
    assert "512 of 512 steps" not in capsys.readouterr().out


@pytest.mark.slow("command line")
def test_progress_on_a_terminal_is_one_live_line(tmp_path: Path) -> None:
    process = on_a_terminal(
        *(sys.executable, SCRIPT, "--total-timesteps", 20480, "--eval-episodes", 0),
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    code, output, _ = finish(process, LIMIT)
    shown = output.decode()
    assert code == 0, shown
    live = shown.rstrip().rsplit("\n", 1)[1]
    states = live.strip("\r").split("\r")
    assert all(len(state) <= COLUMNS for state in states), "wrapped lines are not overwritten"
    percent = [int(state.split("%")[0]) for state in states]
    assert percent == sorted(percent)
    assert percent[0] < percent[-1] == 100
    assert re.search(r"steps/s, return [\d.]+, length \d+\]", states[-1])
