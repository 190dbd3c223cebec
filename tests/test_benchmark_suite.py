"""The picture, the points and the table of benchmark/suite.py, from synthetic runs."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from helpers.benchmark_runs import run_program
from helpers.in_process import load_program
from test_benchmark_plot import episodes
from test_benchmark_plot import make_run as plotted_run

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
        "Mean return over 2 environments after 2k steps: 180 (95 %: 150 to 210). CleanRL, "
        "published, after 1M steps: 184. Ours is higher in 1 of 2."
    )
    assert f"| {WALKER} | 250.00 ± 70.71 (2 seeds) | 125.92 ± 10.01 (after 1M steps) |" in after


def test_interval_draws_seeds_again_within_each_environment(runs_dir):
    """Four equally likely means of walker's two seeds (one of them twice) by as many of pendulum's.

    Walker's are 200, 250, 250 and 300, pendulum's 100, 110, 110, 120: the mean of both is between
    150 and 210, and each end has a sixteenth of the draws, more than is left out of 95 %.
    """
    curve = suite.mean_curve(results_of(runs_dir))
    assert set(curve.mean) == {180} and set(curve.low) == {150} and set(curve.high) == {210}


def test_a_single_seed_has_no_interval(tmp_path):
    make_run(tmp_path / "runs", WALKER, 1, 200)
    make_run(tmp_path / "runs", PENDULUM, 1, 100)
    make_run(tmp_path / "runs", PENDULUM, 2, 500)
    curve = suite.mean_curve(results_of(tmp_path / "runs"))
    assert curve.final == "150" and math.isnan(curve.low[0]), "the first seed of each"
    entries = suite.legend_entries(results_of(tmp_path / "runs"), curve, [])
    assert [entry.get_label() for entry in entries] == ["ppo_continuous_action.py, 1 seed"]


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
        done = run_program("suite.py", *map(str, words), "--name", "x")
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        return done.stderr

    assert "there is no folder" in refused("--runs-dir", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no finished run" in refused("--runs-dir", tmp_path / "empty")
    file = tmp_path / "file"
    file.touch()
    assert "is not a folder" in refused("--runs-dir", runs_dir, "--out", file)
