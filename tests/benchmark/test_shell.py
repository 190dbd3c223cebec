"""The shell scripts of benchmark/: one call of the runner each, or of the search."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.benchmark_runs import BENCHMARK, run_program
from helpers.in_process import load_program
from scores import SOLVED, presets_of
from sync import Collection

# These have tests of their own.
OTHERS = {"ablation.sh", "dm_control.sh", "dm_control_heavy.sh", "presets.sh", "tune.sh"}
SCRIPTS = sorted({path.name for path in BENCHMARK.glob("*.sh")} - OTHERS)
# Notes its arguments, one a line, instead of running them.
NOTE = """#!/bin/sh
printf '%s\\n' "$@" >> "$NOTED"
"""


@pytest.fixture
def handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that runs a script with flags and returns what follows `uv run` in it.

    That is one call of a program: the runner, if nothing else is said.
    """
    noted = tmp_path / "noted.txt"
    uv = tmp_path / "uv"
    uv.write_text(NOTE)
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTED", str(noted))
    monkeypatch.chdir(BENCHMARK.parent)

    def run(script: str, *flags: str, program: str = "benchmark/run.py") -> list[str]:
        noted.unlink(missing_ok=True)
        words = ["bash", str(BENCHMARK / script), *flags]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout == done.stderr == ""
        uv_run, *words = noted.read_text().splitlines()
        assert uv_run == "run" and words.count(program) == 1, "one call"
        return words

    return run


def test_each_training_script_has_a_shell_script():
    assert {Path(name).stem for name in SCRIPTS} == {Path(s).stem for s in Collection().scripts()}


@pytest.mark.parametrize("script", SCRIPTS)
def test_dry_run_lists_the_runs_and_what_follows_them(script, handed_over, tmp_path):
    program, *words = handed_over(script, "--num-seeds", "1", "--dry-run")
    assert program == "benchmark/run.py"
    name = Path(script).stem
    assert words[words.index("--runs-dir") + 1] == f"runs/benchmark/{name}"
    runs = ("--runs-dir", str(tmp_path / "runs"))
    done = run_program("run.py", *words, *runs)
    assert done.returncode == 0 and done.stderr == ""
    listed = done.stdout.splitlines()
    training = [line for line in listed if "--env-id" in line]
    drawing = [line for line in listed if "--env-id" not in line]
    pattern = rf"uv run .*ppo/{name}\.py .*--env-id \S+ --seed 1 --runs-dir \S+ --resume auto"
    assert training and all(re.fullmatch(pattern, line) for line in training)
    plot = [sys.executable, f"{BENCHMARK}/plot.py", *runs, "--out", "docs/results"]
    assert [shlex.split(line) for line in drawing] == [plot]
    assert not (tmp_path / "runs").exists()

    chosen = run_program("run.py", *words, *runs, "--env-ids", "A-v0").stdout.splitlines()
    assert len([line for line in chosen if "--env-id A-v0 " in line]) == 1
    assert len([line for line in chosen if "--env-id " in line]) == 1


def test_the_suites_have_each_published_task_once(handed_over, tmp_path):
    env_ids = []
    for suite in ("dm_control", "dm_control_heavy"):
        words = handed_over(f"{suite}.sh", "--num-seeds", "1", "--dry-run")[1:]
        listed = run_program("run.py", *words, "--runs-dir", str(tmp_path / "runs")).stdout
        *training, drawing = listed.splitlines()
        env_ids += [re.search(r"--env-id (\S+)", line)[1] for line in training]
        assert drawing.endswith(f"--suite ppo_continuous_action_{suite}")
    words = handed_over("ppo_continuous_action.sh", "--num-seeds", "1", "--dry-run")[1:]
    env_ids += [word for word in words if word.startswith("dm_control/")]
    published = load_program("plot.py").read_published("ppo_continuous_action.py")
    assert sorted(env_ids) == sorted(name for name in published if name.startswith("dm_control/"))


@pytest.mark.parametrize("script", ["ppo", "ppo_continuous_action"])
def test_presets_are_those_of_the_page(script, handed_over, tmp_path):
    words = handed_over("presets.sh", script, "--num-seeds", "1", "--dry-run")[1:]
    runs = ("--runs-dir", str(tmp_path / "runs"))
    lines = run_program("run.py", *words, *runs).stdout.splitlines()
    assert "/plot.py " in lines.pop()
    assert all(any(f"--env-id {env_id} " in line for env_id in SOLVED) for line in lines)
    for env_id, runs in presets_of(BENCHMARK.parent).items():
        run = runs.iloc[0]
        if run["script"] == f"{script}.py":
            flags = f"uv run ppo/{run['script']} {run['flags']} --env-id {env_id} "
            assert any(line.startswith(flags) for line in lines)


@pytest.mark.parametrize(("script", "details"), [("ppo", 13), ("ppo_continuous_action", 11)])
def test_the_ablation_leaves_out_each_detail(script, details, handed_over, tmp_path):
    flags = ("--num-seeds", "1", "--dry-run")
    words = handed_over("ablation.sh", script, *flags, program="benchmark/ablation.py")[1:]
    done = run_program("ablation.py", *words, "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3 * (1 + details)
    lander = [line for line in done.stdout.splitlines() if "--env-id LunarLander-v3" in line]
    assert len(lander) == (1 + details if script == "ppo" else 0)
    assert all("--gamma 0.999" in line for line in lander)


def test_dry_run_of_the_search_lists_the_runs_of_a_trial(handed_over, tmp_path):
    flags = ("--study", str(tmp_path / "study"), "--dry-run")
    words = handed_over("tune.sh", *flags, program="benchmark/tune.py")[1:]
    done = run_program("tune.py", *words)
    assert done.returncode == 0 and done.stderr == ""
    runs = done.stdout.splitlines()
    pattern = (
        r"uv run ppo/ppo\.py .*--env-id (CartPole|Acrobot)-v1 --seed 1 --runs-dir \S+/study/.*"
    )
    assert len(runs) == 2 and all(re.fullmatch(pattern, line) for line in runs)
    assert not (tmp_path / "study").exists()
