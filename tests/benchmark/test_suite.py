"""The picture, the points and the table of benchmark/suite.py, from synthetic runs."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from helpers.benchmark_runs import run_program
from helpers.in_process import load_program
from scipy import stats
from test_plot import episodes
from test_plot import make_run as plotted_run

suite = load_program("suite.py")
EPISODES = 200  # of a run, one each 10 steps
WALKER, PENDULUM = "dm_control/walker-run-v0", "dm_control/pendulum-swingup-v0"


def make_run(runs_dir: Path, env_id: str, seed: int, score: float) -> None:
    """A run whose episodes all have the same score."""
    played = episodes(np.full(EPISODES, score))
    part = {"start": 0, "episodes": played, "last": (10 * EPISODES, 60.0)}
    plotted_run(runs_dir, env_id, seed, [part], name="ppo_continuous_action")


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """Walker scores 200 and 300, where 125.92 is published; pendulum 100 and 120, of 242.81."""
    folder = tmp_path / "runs"
    for seed, (walker, pendulum) in enumerate(((200, 100), (300, 120)), start=1):
        make_run(folder, WALKER, seed, walker)
        make_run(folder, PENDULUM, seed, pendulum)
    return folder


def results_of(runs_dir: Path) -> "suite.plot.Results":
    return suite.plot.read_results(suite.plot.Args(runs_dir))


def test_writes_picture_points_scores_and_table(runs_dir, tmp_path):
    out = tmp_path / "out"
    words = ("--runs-dir", str(runs_dir), "--out", str(out), "--name", "two")
    done = run_program("suite.py", *words)
    assert done.returncode == 0, done.stderr
    files = [out / f"two{end}" for end in (".png", ".csv", "_scores.csv", ".md")]
    assert done.stdout.splitlines() == [str(path) for path in files]
    picture, points, scores, table = files
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(points.open()))
    assert rows[-1]["global_step"] == "2000" and {row["mean"] for row in rows} == {"180.00"}
    assert len(list(csv.DictReader(scores.open()))) == 4
    said, _, after = table.read_text().partition("\n\n")
    assert said == (
        "Mean return over 2 environments after 2k steps: 180 (95 %: -92 to 452). CleanRL, "
        "published, after 1M steps: 184. Ours is higher in 1 of 2."
    )
    assert f"| {WALKER} | 250.00 ± 70.71 (2 seeds) | 125.92 ± 10.01 (1M steps) |" in after


def test_interval_adds_up_the_variances_of_the_environments(runs_dir):
    """By hand: variances 5,000 and 200 of two seeds each, the mean of both a half of their sum.

    Its variance is (2,500 + 100) / 4; degrees of freedom 2,600² / (2,500² + 100²) = 1.08.
    """
    curve = suite.mean_curve(results_of(runs_dir))
    half = 650**0.5 * stats.t.ppf(0.975, 2600**2 / (2500**2 + 100**2))
    assert curve.mean == pytest.approx(180)
    assert curve.low == pytest.approx(180 - half) and curve.high == pytest.approx(180 + half)


def test_interval_covers_the_truth_in_95_of_100_cases():
    """22 environments of unlike spread with three seeds each; by resampling it is 85."""
    rng = np.random.default_rng(0)
    deviations = 2.0 ** (np.arange(22) % 8)
    covered = []
    for _ in range(400):
        scores = rng.normal(0, deviations, (3, 22))
        low, high = suite.interval_of_mean([own[:, None] for own in scores.T])
        covered.append(low[0] <= 0 <= high[0])
    assert 0.93 < np.mean(covered) < 0.985  # sampling: 0.011; Satterthwaite errs on the safe side


def test_environments_in_which_nothing_varies_are_no_reason_to_be_sure(tmp_path):
    """One solved environment adds no variance; if no run varies, nothing is known of chance."""
    solved = np.full((2, 1), 500.0)
    low, high = suite.interval_of_mean([np.array([[1.0], [3.0]]), solved])
    half = 0.5 * 12.7062  # t of 97.5 % and 1 degree of freedom; error sqrt(2 / 2) / 2
    assert (low[0], high[0]) == pytest.approx((251 - half, 251 + half), abs=1e-3)
    assert np.isnan(suite.interval_of_mean([solved, solved])).all()


def test_a_single_seed_has_no_interval(tmp_path):
    make_run(tmp_path / "runs", WALKER, 1, 200)
    make_run(tmp_path / "runs", PENDULUM, 1, 100)
    make_run(tmp_path / "runs", PENDULUM, 2, 500)
    curve = suite.mean_curve(results_of(tmp_path / "runs"))
    assert curve.final == "250" and math.isnan(curve.low[0])
    entries = suite.legend_entries(results_of(tmp_path / "runs"), curve, [])
    assert [entry.get_label() for entry in entries] == ["ppo_continuous_action.py, 1 to 2 seeds"]


def test_all_seeds_are_in_the_mean_of_which_each_environment_is_a_half(runs_dir):
    """Pendulum's three have the mean 200 and the variance 24,400, walker's two 250 and 5,000."""
    make_run(runs_dir, PENDULUM, 3, 380)
    curve = suite.mean_curve(results_of(runs_dir))
    walker, pendulum = 5000 / 2, 24_400 / 3
    df = (walker + pendulum) ** 2 / (walker**2 + pendulum**2 / 2)
    half = ((walker + pendulum) / 4) ** 0.5 * stats.t.ppf(0.975, df)
    assert curve.mean == pytest.approx(225)
    assert curve.low == pytest.approx(225 - half) and curve.high == pytest.approx(225 + half)


def test_the_mean_begins_where_every_run_has_ended_an_episode(runs_dir):
    results = results_of(runs_dir)
    late = results.by_env[WALKER][0]
    late.steps = late.steps[20:]  # the first episode ends after 210 steps
    late.scores = late.scores[20:]
    curve = suite.mean_curve(results)
    assert curve.steps[0] == 210 and not np.isnan(curve.mean).any()


def test_environments_are_ordered_by_how_far_ours_is_ahead(runs_dir):
    make_run(runs_dir, "dm_control/own-task-v0", 1, 999)
    found = suite.standings(results_of(runs_dir))
    assert [one.env_id for one in found] == [WALKER, PENDULUM, "dm_control/own-task-v0"]
    assert found[0].ahead == pytest.approx(250 - 125.92)
    assert math.isnan(suite.published_mean(found)) and found[2].published is None
    assert suite.published_mean(found[:2]) == pytest.approx((125.92 + 242.81) / 2)


def test_names_leave_out_what_all_have():
    assert suite.short_names([WALKER, PENDULUM]) == ["walker-run", "pendulum-swingup"]
    assert suite.short_names([WALKER, "Hopper-v4"]) == [WALKER, "Hopper-v4"]
    assert suite.short_names(["dm_control/a-v0", "dm_control/b-v1"]) == ["a-v0", "b-v1"]


def test_bad_input(tmp_path, runs_dir):
    def refused(*words: object) -> str:
        done = run_program("suite.py", "--name", "x", *map(str, words))
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        return done.stderr

    assert "there is no folder" in refused("--runs-dir", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no finished run" in refused("--runs-dir", tmp_path / "empty")
    late = {"start": 0, "episodes": [(3000, 9.0, 1.0)] * 100, "last": (3000, 9.0)}
    plotted_run(tmp_path / "late", PENDULUM, 1, [late], name="ppo_continuous_action")
    make_run(tmp_path / "late", WALKER, 1, 200)
    apart = refused("--runs-dir", tmp_path / "late", "--out", tmp_path / "new")
    assert "one run ends after 2,000 steps, before another one's first episode" in apart
    assert not (tmp_path / "new").exists()
    file = tmp_path / "file"
    file.touch()
    assert "is not a folder" in refused("--runs-dir", runs_dir, "--out", file / "sub")
    refused_name = refused("--runs-dir", runs_dir, "--out", tmp_path / "new", "--name", "a/b")
    assert "'a/b' is not the name of a file" in refused_name and not (tmp_path / "new").exists()
