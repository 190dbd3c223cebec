"""benchmark/rerun.py: what it runs, and when it says that a published row agrees."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edits import own_ablations
from helpers.benchmark_runs import BENCHMARK, FakeScript, run_program, stops
from helpers.command_line import finish
from helpers.in_process import ROOT, load_program
from runs import RETURN
from scipy import stats
from test_plot import episodes, make_run

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
    rows = []
    for seed, score in enumerate(scores, 1):
        rows.append(f"{env_id},{seed},{score:.2f},100,1.0,{','.join(facts.values())}\n")
    (folder / "it_scores.csv").write_text(HEADER + "".join(rows))
    return folder


def run_again(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    scores: list[float | None],
    *words: str,
    exit_code: int = 0,
    tag: str = RETURN,
) -> subprocess.CompletedProcess[str]:
    """The program on the row `it/X-v0`; the runner's runs, which are made up, have these scores.

    None is a run that has ended no episode.
    """

    def runner(signals: object, command: list[str]) -> int:
        runs_dir = Path(command[command.index("--runs-dir") + 1])
        first = int(command[command.index("--start-seed") + 1])
        assert int(command[command.index("--num-seeds") + 1]) == len(scores)
        for seed, score in enumerate(scores, first):
            played = [] if score is None else episodes(np.full(3, score))
            part = {"start": 0, "episodes": played, "last": (100, 9.0)}
            make_run(runs_dir, "X-v0", seed, [part], tag=tag)
        return exit_code

    monkeypatch.setattr(rerun.Signals, "run", runner)
    folders = ["--results", str(tmp_path / "out"), "--runs-dir", str(tmp_path / "runs")]
    return run_program("rerun.py", "it/X-v0", *folders, "--num-seeds", str(len(scores)), *words)


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
def test_says_whether_other_seeds_agree(published, ours, agrees, tmp_path, monkeypatch):
    publish(tmp_path / "out", published)
    done = run_again(monkeypatch, tmp_path, ours, "--start-seed", "11")
    assert done.returncode == (0 if agrees else 1), done.stderr
    answer = "agrees" if agrees else "does not agree"
    beginning = f"it/X-v0 with other seeds {answer}: {np.mean(published):.2f}"
    assert done.stdout.startswith(beginning)
    assert "(Student's t at 95 %, or 1 % of the score)" in done.stdout
    assert "versions: torch 1 when published, python 3.11.7 torch 2.13.0 now" in done.stdout
    assert "hardware" not in done.stdout and "steps" not in done.stdout


def test_the_same_scores_of_the_same_seeds_are_told(tmp_path, monkeypatch):
    publish(tmp_path / "out", [10.0, 490.12, 12.0])
    done = run_again(monkeypatch, tmp_path, [10.0, 490.12])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "seed 1: 10.00, as published",
        "seed 2: 490.12, as published",
        "it/X-v0 agrees: the same scores.",
    ]
    assert "Student" not in done.stdout


@pytest.mark.parametrize(
    ("published", "ours", "limit", "agrees"),
    [
        ([10.0, 11.0, 12.0], [10.0, 14.0, 12.0], "2.00 (twice the spread of the ", True),
        ([10.0, 11.0, 12.0], [13.5], "2.00 (twice the spread of the ", False),
        ([500.0, 500.0], [496.0], "5.00 (twice the spread of the ", True),
        ([500.0], [496.0], "5.00 (1 % of the score, as one published seed has", True),
        ([500.0], [494.0], "5.00 (1 % of the score, as one published seed has", False),
    ],
    ids=["within", "beyond", "less than 1 %", "one seed", "one seed, beyond"],
)
def test_other_scores_of_the_same_seeds_are_told(
    published, ours, limit, agrees, tmp_path, monkeypatch
):
    publish(tmp_path / "out", published)
    done = run_again(monkeypatch, tmp_path, ours)
    assert done.returncode == (0 if agrees else 1), done.stderr
    lines = done.stdout.splitlines()
    told = [
        f"seed {seed}: {now:.2f}, "
        + ("as published" if now == before else f"published {before:.2f}")
        for seed, (now, before) in enumerate(zip(ours, published, strict=False), 1)
    ]
    assert lines[: len(ours)] == told
    assert lines[len(ours)] == "The seeds are the same, the scores are not."
    answer = "agrees" if agrees else "does not agree"
    before = f"{np.mean(published[: len(ours)]):.2f}"
    assert lines[len(ours) + 1].startswith(f"it/X-v0 {answer}: {before}")
    assert f"and may be up to {limit}" in lines[len(ours) + 1]
    assert "Student" not in done.stdout and "95 %" not in done.stdout


@pytest.mark.parametrize(
    ("ours", "exit_code"), [([10.0, 11.0, 10.5, 11.5], 0), ([10.0, 11.0, 20.0, 21.0], 1)]
)
def test_published_seeds_are_no_part_of_the_test(ours, exit_code, tmp_path, monkeypatch):
    publish(tmp_path / "out", [10.0, 11.0])
    done = run_again(monkeypatch, tmp_path, ours)
    assert done.returncode == exit_code
    same, others = [line for line in done.stdout.splitlines() if line.startswith("it/X-v0")]
    assert same == "it/X-v0 agrees: the same scores."
    verdict = rerun.judge(np.array([10.0, 11.0]), np.array(ours[2:]))
    assert f"{np.mean(ours[2:]):.2f}" in others and f"up to {verdict.limit:.2f}" in others


def test_a_run_that_failed_is_no_answer(tmp_path, monkeypatch):
    publish(tmp_path / "out", [1.0, 2.0])
    done = run_again(monkeypatch, tmp_path, [1.0, 2.0], exit_code=130)
    assert done.returncode == 130 and done.stdout == ""


@pytest.mark.parametrize(("scores", "missing"), [([1.0, None], "2"), ([None, None], "1, 2")])
def test_a_run_without_a_score_is_no_answer(scores, missing, tmp_path, monkeypatch):
    publish(tmp_path / "out", [1.0, 2.0])
    done = run_again(monkeypatch, tmp_path, scores)
    assert done.returncode == 1 and done.stdout == ""
    assert f"it/X-v0: no score of seed {missing} in " in done.stderr.splitlines()[-1]


def test_the_metric_that_was_published_is_compared(tmp_path, monkeypatch):
    file = publish(tmp_path / "out", [1.0, 2.0]) / "it_scores.csv"
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([f"{header},metric", *(f"{row},charts/other" for row in rows)]))
    done = run_again(monkeypatch, tmp_path, [1.0, 2.0], tag="charts/other")
    assert done.returncode == 0 and "it/X-v0 agrees: the same scores." in done.stdout


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_its_runs_save_and_end_when_it_is_stopped(signum, exit_code, tmp_path):
    """Ctrl-C, which a terminal sends to the whole group, and SIGTERM, sent to the program alone."""
    fake = FakeScript(tmp_path)
    publish(tmp_path / "out", [1.0, 2.0], env_id="Slow-v0", script="fake.py", flags="")
    fake.runs_dir = tmp_path / "runs" / f"it-Slow-v0-{rerun.script_hash(fake.path.read_text())}"
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
    digest = rerun.script_hash((ROOT / "ppo" / "ppo.py").read_text())
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
        ([1.0], {"script": ""}, ["it/Y-v0"], "the nearest: none;"),
        ([1.0, 2.0], {"script": ""}, ["it/X-v0"], "how it was made is not recorded"),
        ([1.0], {}, ["it/X-v0", "--num-seeds", "2"], "one published seed and one other tell"),
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


def test_an_unknown_row_is_answered_with_the_nearest(tmp_path):
    done = run_program("rerun.py", "ppo/CartPol-v1", "--dry-run")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    nearest = line.partition("the nearest: ")[2].partition(";")[0].split(", ")
    assert nearest[0] == "ppo/CartPole-v1" and len(nearest) == 6
    assert set(nearest) <= set(RECORDED)
    assert line.endswith("all are in its *_scores.csv, where the column script is filled in")


def test_a_row_in_a_folder_of_the_results_can_be_run(tmp_path, capfd):
    words = ["presets/ppo/LunarLander-v3", "--python", "python3", "--dry-run"]
    done = run_program("rerun.py", *words, "--runs-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "--no-clip-vloss --env-id LunarLander-v3 --seed 1" in capfd.readouterr().out


def test_rows_of_a_comparison_are_found_by_their_group(tmp_path):
    publish(tmp_path / "out", [1.0, 2.0])
    file = tmp_path / "out" / "it_scores.csv"
    first, second = file.read_text().splitlines()[1:]
    file.write_text(f"group,{HEADER}before,{first}\nafter,{second}\n")
    rows = rerun.all_rows(tmp_path / "out")
    assert list(rows) == ["it/X-v0/before", "it/X-v0/after"]
    assert rerun.read_row(tmp_path / "out", "it/X-v0/after").scores == {2: 2.0}


def test_an_ablation_is_run_by_an_edited_copy(tmp_path, capfd):
    """The baseline by the script itself; a detail that the script has not is bad input."""
    folders = ["--runs-dir", str(tmp_path), "--python", "python3", "--dry-run"]
    row = "ablation_ppo/CartPole-v1"
    assert run_program("rerun.py", f"{row}/core-7", *folders, "--num-seeds", "1").returncode == 0
    words = capfd.readouterr().out.split()
    source = (ROOT / "ppo" / "ppo.py").read_text()
    edited = own_ablations("ppo.py")["core-7"].apply(source)
    copy = Path(words[1])
    assert copy.is_relative_to(tmp_path) and copy.read_text() == edited != source
    assert copy.parent.name == f"ablation_ppo-CartPole-v1-core-7-{rerun.script_hash(edited)}"
    assert run_program("rerun.py", f"{row}/baseline", *folders).returncode == 0
    assert capfd.readouterr().out.split()[1] == str(ROOT / "ppo" / "ppo.py")
    out = publish(tmp_path / "out", [1.0, 2.0])
    file = out / "it_scores.csv"
    lines = file.read_text().splitlines()[1:]
    rows = "".join(f"core-99,{line}\n" for line in lines)
    file.write_text(f"variant,{HEADER}{rows}")
    done = run_program("rerun.py", "it/X-v0/core-99", "--results", str(out), *folders)
    problem = "it/X-v0/core-99: ppo.py has no detail core-99 that can be left out"
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == f"error: {problem}"


ROWS = rerun.all_rows(PUBLISHED)
RECORDED = [name for name, lines in ROWS.items() if rerun.is_recorded(lines)]


def test_every_published_row_says_how_it_was_made():
    assert set(ROWS) - set(RECORDED) == set(), "plot.py writes how runs were made: publish with it"


def test_published_scores_have_two_decimals():
    """As all programs write them: rerun.py compares the digits."""
    scores = [line["score"] for lines in ROWS.values() for line in lines]
    assert scores == [f"{float(score):.2f}" for score in scores]


@pytest.mark.parametrize("name", RECORDED)
def test_published_rows_name_a_script_and_flags_that_it_knows(name):
    row = rerun.read_row(PUBLISHED, name)
    source = (ROOT / "ppo" / row.script).read_text()
    for word in row.made.flags.split():
        if word.startswith("--"):
            field = word.removeprefix("--").removeprefix("no-").replace("-", "_")
            second_name = f'aliases=["{word}"]'
            assert f"    {field}: " in source or second_name in source
