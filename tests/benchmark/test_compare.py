"""Verdicts and statistics of benchmark/compare.py, from scores whose truth is known."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.benchmark_runs import run_program
from helpers.fake_runs import episodes, make_group, make_run
from helpers.in_process import load_program
from scipy import stats
from stats import beyond_chance

compare = load_program("compare.py")


def answer(tmp_path: Path, before: dict, after: dict, *flags: str) -> str:
    """The program's first line about two groups with these scores by environment."""
    groups = [f"A={make_group(tmp_path / 'a', before)}", f"B={make_group(tmp_path / 'b', after)}"]
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"), *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([98, 100, 102], [110, 112, 114], "better. +12 (+7.466 to +16.53) points in X-v0"),
        ([110, 112, 114], [98, 100, 102], "worse. -12 (-16.53 to -7.466) points in X-v0"),
        ([90, 100, 110], [95, 105, 115], "undecided: the difference may be chance. +5"),
        ([90], [100], "undecided: the difference may be chance. +10 points in X-v0, no interval"),
        ([90, 100], [90, 100], "undecided: the difference may be chance. +0 (-30.42 to +30.42)"),
    ],
)
def test_verdict(before, after, verdict, tmp_path):
    line = answer(tmp_path, {"X-v0": before}, {"X-v0": after})
    assert line.startswith(f"B beside A: {verdict}")
    marked = "| yes |" in (tmp_path / "out" / "compare.md").read_text()
    assert marked == verdict.startswith(("better", "worse"))
    if len(before) > 1:
        assert f"p = {stats.ttest_ind(before, after, equal_var=False).pvalue:.2g}." in line


@pytest.mark.parametrize("learned", [True, False])
def test_the_same_episodes_are_identical_if_they_differ_from_each_other(learned, tmp_path):
    """Where every episode has -200, an edit that breaks everything changes nothing either."""
    scores = np.arange(-200.0, -190.0) if learned else np.full(10, -200.0)
    part = {"start": 0, "episodes": episodes(scores), "last": (100, 9.0)}
    for name in "ab":
        make_run(tmp_path / name, "X-v0", 1, [part])
    line = answer(tmp_path, {}, {})
    assert ("identical: every episode is the same" in line) == learned


@pytest.mark.parametrize("env_id", ["X-v0", "Y-v0"])
def test_lost_runs_make_it_undecided(env_id, tmp_path):
    """Unless they are of an environment in which neither group has a score."""
    part = {"start": 0, "episodes": episodes(np.ones(3)), "last": (100, 9.0)}
    make_run(tmp_path / "b", env_id, 9, [part], finished=False)
    line = answer(tmp_path, {"X-v0": [98, 100, 102]}, {"X-v0": [110, 112, 114]})
    lost = "undecided: runs were lost (B X-v0 seed 9: not finished)"
    assert (lost if env_id == "X-v0" else "better") in line


def test_verdicts_on_several_groups_are_corrected(tmp_path):
    """p = 0.03 is significant alone, and not as the smaller one of two."""
    scores = {"A": [98.0, 100.0, 102.0], "B": [103.0, 105.0, 107.0], "C": [98.0, 101.0, 102.0]}
    groups = [f"{n}={make_group(tmp_path / n, {'X-v0': scores[n]})}" for n in "ABC"]
    p = stats.ttest_ind(scores["A"], scores["B"], equal_var=False).pvalue
    assert 0.025 < p < 0.05
    for count, verdict in ((2, "better"), (3, "undecided: the difference may be chance")):
        done = run_program("compare.py", *groups[:count], "--out", str(tmp_path / "out"))
        assert done.stdout.startswith(f"B beside A: {verdict}.")


@pytest.mark.parametrize("more", ["a", "b"])
def test_an_environment_of_one_group_is_told(more, tmp_path):
    groups = [f"{name}={make_group(tmp_path / name, {'X-v0': [1.0, 2.0]})}" for name in "ab"]
    make_group(tmp_path / more, {"Y-v0": [1.0]})
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"))
    assert "Y-v0 is left out: not all groups have runs of it" in done.stderr


def test_numbers_over_two_environments(tmp_path):
    """Normalized by the worst and the best run; the variances of both differences add up."""
    before = {"X-v0": [0.0, 4.0, 6.0], "Y-v0": [-9.0, -8.0, -5.0]}
    after = {"X-v0": [7.0, 9.0, 10.0], "Y-v0": [-7.0, -6.0, 1.0]}
    line = answer(tmp_path, before, after)
    normal = {
        name: np.array([np.array(scores["X-v0"]) / 10, (np.array(scores["Y-v0"]) + 9) / 10])
        for name, scores in (("A", before), ("B", after))
    }
    difference = (normal["B"].mean(1) - normal["A"].mean(1)).mean()
    assert f"{difference:+.0%}" in line and "2 environments" in line
    shares = np.concatenate([n.var(1, ddof=1) / 3 for n in normal.values()]) / 4
    half = shares.sum() ** 0.5 * stats.t.ppf(0.975, shares.sum() ** 2 / (shares**2 / 2).sum())
    table = pd.read_csv(tmp_path / "out" / "compare.csv").set_index(["env_id", "group"])
    found = table.loc[("all 2, normalized", "B")]
    assert found.difference == pytest.approx(difference, rel=1e-4)
    assert (found.low, found.high) == pytest.approx(
        (difference - half, difference + half), rel=1e-4
    )
    for name in "AB":
        row = table.loc[("all 2, normalized", name)]
        assert row["mean"] == pytest.approx(normal[name].mean(), rel=1e-4)
    row = table.loc[("X-v0", "B")]
    welch = stats.ttest_ind(after["X-v0"], before["X-v0"], equal_var=False)
    interval = welch.confidence_interval()
    assert (row.low, row.high) == pytest.approx((interval.low, interval.high), rel=1e-4)
    scores = pd.read_csv(tmp_path / "out" / "compare_scores.csv")
    assert len(scores) == 12 and {"group", "script_hash", "commit"} <= set(scores)
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_all_seeds_count_over_all_environments(tmp_path):
    """In X the first two of B lose and the others win; in Y, with fewer seeds, all are equal."""
    before = {"X-v0": [1.0, 1.0, 1.0, 1.0], "Y-v0": [5.0, 5.0]}
    after = {"X-v0": [0.0, 0.0, 2.0, 2.0], "Y-v0": [5.0, 5.0]}
    assert "may be chance. +0% (" in answer(tmp_path, before, after)


def test_environments_beyond_chance_are_those_that_holm_leaves():
    """Of three p-values the smallest must be below 0.05 / 3, the next one below 0.05 / 2."""
    assert beyond_chance([0.2, 0.004, np.nan, 0.03]) == [1]
    assert beyond_chance([0.2, 0.004, np.nan, 0.02]) == [1, 3]


def test_games_are_compared_by_interquartile_means_and_permutations(tmp_path):
    """Human-normalized: random play of Pong has -20.7, a person 14.6; of Breakout 1.7 and 30.5."""
    before = {"Pong-v5": [-20.0, -19.0, -18.0], "BreakoutNoFrameskip-v4": [2.0, 3.0, 4.0]}
    after = {"Pong-v5": [10.0, 12.0, 14.0], "BreakoutNoFrameskip-v4": [300.0, 310.0, 320.0]}
    line = answer(tmp_path, before, after)
    assert line.startswith("B beside A: better. ") and "from random to human play" in line
    matrices = [
        np.stack(
            [(np.array(s["Pong-v5"]) + 20.7) / 35.3, (np.array(list(s.values())[1]) - 1.7) / 28.8]
        )
        for s in (before, after)
    ]
    # The interquartile mean of six scores, by hand: a quarter of six is one and a half, and SciPy
    # leaves out one at each end, so the mean of the four in the middle.
    middles = [np.sort(one.ravel())[1:-1].mean() for one in matrices]
    assert f"{middles[1] - middles[0]:+.0%}" in line
    games = compare.Group("A", {}, {}, [], {env_id: np.array(x) for env_id, x in before.items()})
    assert compare.scales([games], "charts/episodic_length")[0] == "from the worst to the best run"
    # Two of the 20 x 20 ways to divide the runs are as far apart as these.
    p = compare.permutation_p_value(matrices[0].T, matrices[1].T)
    assert p == pytest.approx(2 / 400, abs=0.003)


def test_what_differs_is_told_where_it_is_recorded(tmp_path):
    """B is another program's: its folders have no args.json. C has a flag that A lacks.

    Of D the second run was made on another machine.
    """
    folders = {name: make_group(tmp_path / name, {"X-v0": [1.0, 2.0]}) for name in "ABCD"}
    (file,) = folders["D"].glob("*__2__*/args.json")
    file.write_text(file.read_text().replace('"cpu"', '"gpu"'))
    for file in folders["B"].glob("*/args.json"):
        file.unlink()
    for file in folders["C"].glob("*/args.json"):
        facts = json.loads(file.read_text())
        facts["args"]["rpo_alpha"] = 0.5
        file.write_text(json.dumps(facts))
    groups = [f"{name}={folder}" for name, folder in folders.items()]
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "What B does otherwise than A is not recorded.\n" in done.stdout
    assert "C beside A: `rpo_alpha` None → 0.5.\n" in done.stdout
    assert "D beside A: hardware cpu → cpu and gpu.\n" in done.stdout


def test_permutation_test_is_right_where_nothing_differs():
    rng = np.random.default_rng(0)
    p = [compare.permutation_p_value(*rng.normal(size=(2, 4, 3))) for _ in range(60)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_groups_are_compared_after_as_many_steps(tmp_path):
    """A run that goes on is scored where the shortest one ended."""
    part = {"start": 0, "episodes": episodes(np.arange(40.0)), "last": (400, 9.0)}
    make_run(tmp_path / "b", "X-v0", 3, [part])
    answer(tmp_path, {"X-v0": [1.0, 2.0]}, {"X-v0": [1.0, 2.0]})
    table = pd.read_csv(tmp_path / "out" / "compare.csv").set_index("group")
    assert table.loc["B", "mean"] == pytest.approx((1 + 2 + np.arange(10).mean()) / 3)
