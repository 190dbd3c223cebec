"""benchmark/rerun.py: what it runs, and when it says that a published row agrees."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.benchmark_runs import BENCHMARK, FakeScript, run_program, stops
from helpers.command_line import finish
from helpers.in_process import ROOT, load_program
from scipy import stats
from test_benchmark_plot import episodes, make_run

rerun = load_program("rerun.py")
PUBLISHED = ROOT / "docs" / "results"
HEADER = "env_id,seed,score,steps,minutes,script,script_hash,flags,processes,versions,hardware\n"


def publish(folder: Path, scores: list[float], env_id: str = "X-v0", **changed: str) -> Path:
    """A folder with a row `it/X-v0`, or of another environment, of these scores; returns it."""
    folder.mkdir(exist_ok=True)
    facts = {
        "script": "ppo.py",
        "script_hash": "abc",
        "flags": "--gamma 0.9",
        "processes": "1",
        "versions": "torch 1",
        "hardware": "cpu",
        **changed,
    }
    rows = [f"{env_id},{seed},{score},100,1.0,{','.join(facts.values())}\n"
            for seed, score in enumerate(scores, 1)]  # fmt: skip
    (folder / "it_scores.csv").write_text(HEADER + "".join(rows))
    return folder


def run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scores: list[float], exit_code: int = 0
) -> subprocess.CompletedProcess[str]:
    """The program on the row `it/X-v0`; the runner's runs, which are made up, have these scores."""

    def runner(signals: object, command: list[str]) -> int:
        runs_dir = Path(command[command.index("--runs-dir") + 1])
        first = int(command[command.index("--start-seed") + 1])
        assert int(command[command.index("--num-seeds") + 1]) == len(scores)
        for seed, score in enumerate(scores, first):
            part = {"start": 0, "episodes": episodes(np.full(3, score)), "last": (100, 9.0)}
            make_run(runs_dir, "X-v0", seed, [part])
        return exit_code

    monkeypatch.setattr(rerun.Signals, "run", runner)
    folders = ["--results", str(tmp_path / "out"), "--runs-dir", str(tmp_path / "runs")]
    return run_program("rerun.py", "it/X-v0", *folders, "--num-seeds", str(len(scores)))


@pytest.mark.parametrize(
    ("published", "ours", "agrees"),
    [
        ([10.0, 11.0, 12.0], [11.0, 12.0, 13.0], True),
        ([10.0, 11.0, 12.0], [15.0, 16.0, 17.0], False),
        ([500.0, 500.0, 500.0], [500.0, 497.0], True),
        ([500.0, 500.0, 500.0], [480.0, 480.0], False),
        ([10.0], [9.0, 12.0, 10.0], True),  # one published seed: the others tell the spread
    ],
    ids=["within", "beyond", "less than 1 %", "all alike", "one seed"],
)
def test_says_whether_a_row_agrees(published, ours, agrees, tmp_path, monkeypatch):
    publish(tmp_path / "out", published)
    done = run_again(monkeypatch, tmp_path, ours)
    assert done.returncode == (0 if agrees else 1), done.stderr
    answer = "agrees" if agrees else "does not agree"
    assert done.stdout.startswith(f"it/X-v0 {answer}: {np.mean(published):.2f}")
    assert "versions: torch 1 when published, python 3.11.7 torch 2.13.0 now" in done.stdout
    assert "hardware" not in done.stdout and "steps" not in done.stdout


def test_a_run_that_failed_is_no_answer(tmp_path, monkeypatch):
    publish(tmp_path / "out", [1.0, 2.0])
    done = run_again(monkeypatch, tmp_path, [1.0, 2.0], exit_code=130)
    assert done.returncode == 130 and done.stdout == ""


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_its_runs_save_and_end_when_it_is_stopped(signum, exit_code, tmp_path):
    """Ctrl-C, which a terminal sends to the whole group, and SIGTERM, sent to the program alone."""
    fake = FakeScript(tmp_path)
    publish(tmp_path / "out", [1.0, 2.0], env_id="Slow-v0", script="fake.py", flags="")
    fake.runs_dir = tmp_path / "runs" / f"it-Slow-v0-{rerun.script_hash(fake.path)}"
    program = [sys.executable, str(BENCHMARK / "rerun.py"), "it/Slow-v0", "--workers", "2"]
    folders = ["--results", "out", "--scripts", str(tmp_path), "--runs-dir", "runs"]
    process = subprocess.Popen(
        [*program, *folders, "--python", sys.executable],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    fake.wait_until_running(2)
    if signum == signal.SIGINT:
        os.killpg(process.pid, signum)
    else:
        process.send_signal(signum)
    code, output, errors = finish(process)
    assert code == exit_code and errors == ""
    assert "2 runs: 0 done, 0 skipped, 0 failed, 2 stopped" in output
    assert [stops(folder) for folder in fake.run_folders()] == ["1", "1"]


def test_the_test_is_students():
    rng = np.random.default_rng(0)
    decisions = []
    for _ in range(200):
        published, ours = rng.normal(100, 5, 4), rng.normal(105, 5, 3)
        agrees = rerun.judge(published, ours).agrees
        assert agrees == (stats.ttest_ind(published, ours).pvalue > 0.05)
        decisions.append(agrees)
    assert 20 < sum(decisions) < 180, "both kinds of cases"


def test_the_same_program_agrees_in_95_of_100_cases():
    rng = np.random.default_rng(1)
    agree = [rerun.judge(rng.normal(0, 5, 1), rng.normal(0, 5, 3)).agrees for _ in range(1000)]
    assert np.mean(agree) == pytest.approx(0.95, abs=0.02)


def test_dry_run_shows_the_commands(tmp_path, capfd):
    publish(tmp_path / "out", [1.0, 2.0, 3.0])
    words = ["it/X-v0", "--results", str(tmp_path / "out"), "--python", "python3", "--dry-run"]
    done = run_program("rerun.py", *words, "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    lines = capfd.readouterr().out.splitlines()
    digest = rerun.script_hash(ROOT / "ppo" / "ppo.py")
    own = f"--runs-dir {tmp_path}/runs/it-X-v0-{digest}"
    script = f"python3 {ROOT}/ppo/ppo.py --gamma 0.9 --env-id X-v0"
    assert lines == [f"{script} --seed {seed} {own}" for seed in (1, 2, 3)]
    assert not (tmp_path / "runs").exists()


def test_several_processes_are_started_by_torchrun():
    words = rerun.launcher("python3", 2)
    assert words[:3] == ["python3", "-m", "torch.distributed.run"]
    assert "--nproc-per-node=2" in words


@pytest.mark.parametrize(
    ("scores", "changed", "words", "problem"),
    [
        ([1.0], {}, ["it/Y-v0"], "it/Y-v0 is no row in"),
        ([1.0, 2.0], {"script": ""}, ["it/X-v0"], "how it was made is not recorded"),
        ([1.0], {}, ["it/X-v0"], "one published seed and one more tell nothing"),
        ([1.0, 2.0], {}, ["it/X-v0", "--num-seeds", "0"], "--num-seeds must be at least 1"),
        ([1.0, 2.0], {"script": "gone.py"}, ["it/X-v0"], "there is no gone.py"),
        ([1.0, 2.0], {"processes": "2"}, ["it/X-v0"], "give --python"),
        ([1.0, 2.0], {"processes": "two"}, ["it/X-v0"], "invalid literal"),
    ],
)
def test_bad_input_is_one_line(scores, changed, words, problem, tmp_path):
    out = publish(tmp_path / "out", scores, **changed)
    done = run_program("rerun.py", *words, "--results", str(out), "--dry-run")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and problem in errors[0]


RECORDED = [name for name, rows in rerun.all_rows(PUBLISHED).items() if rows[0].get("script")]


@pytest.mark.parametrize("name", RECORDED)
def test_published_rows_name_a_script_and_flags_that_it_knows(name):
    row = rerun.read_row(PUBLISHED, name)
    source = (ROOT / "ppo" / row.script).read_text()
    for word in row.made.flags.split():
        if word.startswith("--"):
            field = word.removeprefix("--").removeprefix("no-").replace("-", "_")
            assert f"    {field}: " in source
