"""Answers, statistics and files of benchmark/compare.py, from numbers whose truth is known."""

import csv
import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import comparison as numbers
import comparison_picture
import numpy as np
import pytest
import runs as run_folders
from helpers.benchmark_runs import BENCHMARK, run_program
from helpers.in_process import events, load_program
from rliable import metrics
from scipy import stats
from test_plot import episodes, make_run
from torch.utils.tensorboard import SummaryWriter

compare = load_program("compare.py")
Estimate = numbers.Estimate


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch):
    """Resampling takes most of the program's time; here its intervals are of no interest."""
    monkeypatch.setattr(numbers, "RESAMPLES", 100)


def results_of(**groups: dict[str, list[float]]) -> numbers.Results:
    """Everything that is computed of groups of runs with these scores by environment."""
    found = []
    for name, scores in groups.items():
        by_env = {
            env_id: [Finished(env_id, seed, value) for seed, value in enumerate(values, 1)]
            for env_id, values in scores.items()
        }
        found.append(numbers.Group(name, by_env))
    return numbers.evaluate(found, "auto")


COUNTER = itertools.count()


@dataclass
class Finished:
    """Stands in for a run."""

    env_id: str
    seed: int
    score: float
    total_steps: int = 100
    name: str = ""
    steps: tuple[int, ...] = field(default_factory=lambda: (next(COUNTER),))  # no other run's
    scores: tuple[float, ...] = ()

    def score_after(self, steps: int) -> float:
        assert steps == 100
        return self.score


def said(results: numbers.Results) -> str:
    """The answer about the second group."""
    return numbers.sentence(results.scores, results.comparisons[0])


def make_group(
    folder: Path, scores: dict[str, list[float]], foreign: bool = False, name: str = "ppo"
) -> Path:
    """Runs whose last episodes have these scores, a seed for each; foreign: without args.json."""
    for env_id, values in scores.items():
        for seed, value in enumerate(values, 1):
            part = {"start": 0, "episodes": episodes(np.full(3, value)), "last": (100, 9.0)}
            run = make_run(folder, env_id, seed, [part], name=name)
            if foreign:
                (run / "args.json").unlink()
    return folder


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch):
    """The picture takes a second, and most tests are not about it."""
    monkeypatch.setattr(compare, "draw", lambda *_: None)


def answer(tmp_path: Path, *groups: str, more: tuple[str, ...] = ()) -> str:
    """The first line that the program prints; it must end well."""
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"), *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[0]


def two_groups(
    tmp_path: Path, before: dict[str, list[float]], after: dict[str, list[float]]
) -> tuple[str, str]:
    """NAME=FOLDER of both."""
    a, b = make_group(tmp_path / "a", before), make_group(tmp_path / "b", after)
    return f"A={a}", f"B={b}"


# ------ the sentence ------


def test_better_in_percent_of_the_baselines_score():
    """Means 100 and 112; the standard error is sqrt((4 + 4) / 3), with 4 degrees of freedom."""
    results = results_of(A={"X-v0": [98.0, 100.0, 102.0]}, B={"X-v0": [110.0, 112.0, 114.0]})
    half = 2.776445 * (8 / 3) ** 0.5  # t of 97.5 % and 4 degrees of freedom, from a table
    assert f"{12 - half:.0f} to {12 + half:.0f}" == "7 to 17"
    expected = (
        "B is better than A by 12 % of A's mean (95 %: 7 to 17), probability of improvement 1.00."
    )
    assert said(results) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            [-80.0, -84.0, -82.0],
            [-100.0, -102.0, -98.0],
            "B is worse than A by 22 % of A's mean (95 %: 16 to 27), probability of improvement "
            "0.00.",
        ),
        (
            [10.0, 20.0],
            [12.0, 22.0],
            "B and A cannot be told apart: a difference of 13 % of A's mean (95 %: -189 to "
            "216), probability of improvement 0.75; if that is the true difference, more than 100 "
            "seeds of each would be needed to show it.",
        ),
        (
            [10.0, 11.0, 12.0],
            [11.0, 12.0, 13.0],
            "B and A cannot be told apart: a difference of 9 % of A's mean (95 %: -12 to "
            "30), probability of improvement 0.78; if that is the true difference, about 17 fresh "
            "seeds of each would show it.",
        ),
        (
            [500.0, 500.0],
            [500.0, 500.0, 500.0],
            "B and A cannot be told apart yet: B scored the same, but equal scores tell nothing "
            "about chance.",
        ),
        (
            [100.0],
            [90.0, 94.0],
            "B and A cannot be told apart yet: B scored lower by 8.0 % of A's mean, but one seed "
            "gives no interval; run at least 2, better 5 or more.",
        ),
        (
            [0.0, 0.0],
            [3.0, 3.0],
            "B and A cannot be told apart yet: B scored higher by 3.0 points, but equal scores "
            "tell nothing about chance.",
        ),
    ],
    ids=["worse", "hopeless", "more seeds", "alike", "one seed", "from zero"],
)
def test_what_the_answer_says(before, after, expected):
    assert said(results_of(A={"X-v0": before}, B={"X-v0": after})) == expected


def test_opposite_effects_are_told_in_place_of_advice():
    """Variances 1/144 on scales from 0 to 12; over both 8 degrees of freedom, t = 2.306."""
    low, high = [0.0, 1.0, 2.0], [10.0, 11.0, 12.0]
    results = results_of(A={"X-v0": low, "Y-v0": high}, B={"X-v0": high, "Y-v0": low})
    half = 2.306 * (4 / (144 * 2**2 * 3)) ** 0.5
    assert f"{100 * half:.0f}" == "11"
    undecided = (
        "; over all undecided, a difference of 0 % of the way from the worst to the best run "
        "(95 %: -11 to 11) over 2 environments, probability of improvement 0.50"
    )
    clear = "better than A in X-v0 and worse in Y-v0"
    assert said(results) == f"B is {clear}{undecided}."
    (comparison,) = results.comparisons
    comparison.lost = {"B": "1 of 7 runs of B diverged"}
    apart = f"B and A cannot be told apart, though the runs of B that have a score are {clear}"
    assert said(results) == f"{apart}{undecided}; 1 of 7 runs of B diverged."


def test_at_most_three_environments_of_a_kind_are_named():
    """Better in five, worse in five."""
    low, high = [0.0, 1.0, 2.0], [10.0, 11.0, 12.0]
    names = [f"E{number}" for number in range(10)]
    results = results_of(
        A={name: low if name < "E5" else high for name in names},
        B={name: high if name < "E5" else low for name in names},
    )
    begin = "B is better than A in E0, E1, E2 and 2 more and worse in E5, E6, E7 and 2 more; over"
    assert said(results).startswith(begin)


def human_scores(**normalized: list[float]) -> dict[str, list[float]]:
    """Scores of games that are these on the scale from random to human play."""
    scales = numbers.read_atari_scales()
    return {
        f"{game}-v5": [scales[game].low + scales[game].span * value for value in values]
        for game, values in normalized.items()
    }


def test_one_game_does_not_decide_over_all_games():
    """Middle halves: 0, 0, .1, .1 of A and .2, .4, .4, .4 of B; the means differ by 25."""
    games = ("Alien", "Breakout", "Pong")
    before = human_scores(**{game: [0.0, 0.1] for game in (*games, "Atlantis")})
    after = human_scores(**{game: [0.2, 0.4] for game in games}, Atlantis=[100.0, 101.0])
    results = results_of(A=before, B=after)
    (comparison,) = results.comparisons
    assert comparison.overall.value == pytest.approx(0.35 - 0.05)
    assert 0.1 <= comparison.overall.low < 0.3 < comparison.overall.high <= 0.4
    answer = said(results)
    begin = (
        "B is better than A by 30 % of the way from random to human play (permutation test: p = "
    )
    assert answer.startswith(begin) and "; 95 % by resampling: " in answer
    assert ") in the interquartile mean over 4 environments, probability" in answer
    assert "difference of interquartile means to A" in results.overall

    alike = said(results_of(A=before, B=before))
    of_chance = "(permutation test: p = 1; 95 %"
    assert f"a difference of 0.0 % of the way from random to human play {of_chance}" in alike
    assert "seeds" not in alike  # those that are reckoned are for differences of means


@pytest.mark.parametrize(
    ("steps", "longest", "told"),
    [
        ({"X-v0": 50}, {"X-v0": 1000}, "(95 %: 7 to 17) after 50 of 1,000 steps, probability"),
        ({"X-v0": 90}, {"X-v0": 100}, "(95 %: 7 to 17), probability"),
        (
            {"X-v0": 50, "Y-v0": 100},
            {"X-v0": 1000, "Y-v0": 100},
            " over 2 environments (X-v0 after 50 of 1,000 steps), probability",
        ),
    ],
)
def test_a_comparison_before_the_end_says_so(steps, longest, told):
    before, after = [98.0, 100.0, 102.0], [110.0, 112.0, 114.0]
    results = results_of(A=dict.fromkeys(steps, before), B=dict.fromkeys(steps, after))
    results.scores.steps = steps
    results.scores.longest = longest
    assert told in said(results)


@pytest.mark.usefixtures("no_picture")
def test_over_several_environments_in_percent_of_the_scale(tmp_path):
    """Each environment counts the same, whatever its unit: 40 % in one and 20 % in the other."""
    before = {"X-v0": [0.0, 2.0], "Y-v0": [0.0, 100.0]}
    after = {"X-v0": [4.0, 6.0], "Y-v0": [20.0, 120.0]}
    scales = tmp_path / "scales.csv"
    scales.write_text("env_id,low,high\nX-v0,0,10\nY-v0,0,100\n")
    groups = two_groups(tmp_path, before, after)
    line = answer(tmp_path, *groups, more=("--normalize", str(scales)))
    assert "a difference of 30 % of the way from low to high" in line
    assert "over 2 environments, probability of improvement 0.88;" in line  # (1 + 3/4) / 2


# ------ statistics ------


def test_one_environment_with_a_single_seed_is_named():
    results = results_of(
        A={"X-v0": [1.0, 2.0, 3.0], "Y-v0": [1.0, 2.0]}, B={"X-v0": [4.0, 5.0], "Y-v0": [5.0]}
    )
    assert "but one seed of Y-v0 gives no interval" in said(results)


def test_no_percent_of_nearly_nothing():
    """Means 0.1 and 2.1, and 0 is far from the worst run."""
    results = results_of(A={"X-v0": [-9.9, 10.1]}, B={"X-v0": [-7.9, 12.1]})
    assert "a difference of 2 points (95 %" in said(results)

    row = compare.env_rows(results.scores, results.comparisons, "X-v0")[1]
    assert "| +2.00 (" in row and row.endswith("| - | 0.75 |")


@pytest.mark.parametrize(
    "groups",
    [
        {"A": {"X-v0": [98.0, 100.0, 102.0]}, "B": {"X-v0": [110.0, 112.0, 114.0]}},
        {"A": {"X-v0": [0.0, 0.0]}, "B": {"X-v0": [3.0, 3.0]}},
        {"A": {"X-v0": [1.0, 2.0], "Y-v0": [5.0]}, "B": {"X-v0": [3.0, 4.0], "Y-v0": [9.0]}},
        {"A": {"X-v0": [1.0, 2.0], "Y-v0": [5.0]}, "B": {"X-v0": [3.0, 4.0]}},
    ],
    ids=["of the mean", "points", "of the way", "of the way in one of two"],
)
def test_the_picture_and_the_answer_have_one_unit(groups):
    results = results_of(**groups)
    (comparison,) = results.comparisons
    found, words = numbers.unit(results.scores, comparison)
    one, name = comparison_picture.units(results.scores, "A")
    assert words.strip() == name
    drawn = [each.value / one[env_id] for env_id, each in comparison.by_env.items()]
    assert np.mean(drawn) == pytest.approx(found.value)


def test_welchs_interval_is_scipys():
    rng = np.random.default_rng(0)
    before, after = rng.normal(0, 1, 4), rng.normal(1, 5, 7)
    found = numbers.difference([(before, after)])
    expected = stats.ttest_ind(after, before, equal_var=False).confidence_interval()
    assert found.value == pytest.approx(after.mean() - before.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("second", [[0.1, 0.1, 0.1], [0.7, 0.7, 0.7]])
def test_equal_scores_give_no_interval(second):
    """Not even by what rounding leaves of a variance: the mean of three times 0.1 is not 0.1."""
    found = numbers.difference([(np.full(3, 0.1), np.array(second))])
    assert found.value == pytest.approx(second[0] - 0.1) and not found.has_interval
    matrices = [np.full((3, 1), 0.1), np.array(second)[:, None]]
    assert not numbers.bootstrap(matrices, numbers.mean_improvement).has_interval


def test_every_run_better_is_no_interval_of_one_point():
    """From three seeds each: whatever is drawn of them, all pairs are won."""
    won = results_of(A={"X-v0": [1.0, 2.0, 3.0]}, B={"X-v0": [4.0, 5.0, 6.0]})
    assert won.comparisons[0].overall_improvement.text(".2f") == "1.00"


def test_exchanges_of_labels_by_hand():
    """Of 6 exchanges the observed one and its mirror image are of this size.

    Of 6 x 6 also those where 1 and 2 have changed sides in one environment: the middle halves of
    0, 0, 1, 2 and 1, 2, 3, 3 are as far apart as those of 0, 0, 1, 1 and 2, 2, 3, 3.
    """
    low, high = np.array([[0.0], [1.0]]), np.array([[2.0], [3.0]])
    assert numbers.permutation_p_value(low, high) == pytest.approx(2 / 6)
    two = np.hstack([low, low]), np.hstack([high, high])
    assert numbers.permutation_p_value(*two) == pytest.approx(6 / 36)
    # Unlike ones within an environment: of 0 | 1, 2 the mean is as far off as of 2 | 0, 1.
    assert numbers.permutation_p_value(low[:1], np.array([[1.0], [2.0]])) == pytest.approx(2 / 3)


def test_exchanges_that_are_drawn_are_of_all_environments(monkeypatch):
    """Of 184,756 x 184,756 ways; the two extreme ones are seen only because one was observed."""
    monkeypatch.setattr(numbers, "PERMUTATIONS", 500)
    orders = numbers.orders_of_runs(2, 20, 10)
    assert orders.shape == (500, 2, 20) and (np.sort(orders) == np.arange(20)).all()
    assert (orders[0] == np.arange(20)).all() and (orders[1, 0] != orders[1, 1]).any()
    ten = np.arange(20.0).reshape(10, 2)
    assert numbers.permutation_p_value(ten, ten + 100) == 1 / 500


@pytest.mark.parametrize(("games", "seeds"), [(2, 3), (3, 3), (5, 5)])
def test_the_middle_half_is_falsely_better_in_5_of_100_cases(games, seeds, monkeypatch):
    """Where nothing differs; intervals by resampling leave out zero more often."""
    monkeypatch.setattr(numbers, "PERMUTATIONS", 400)
    rng = np.random.default_rng(0)
    found = [
        numbers.permutation_p_value(*rng.lognormal(0, 1, (2, seeds, games))) < 0.05
        for _ in range(400)
    ]
    assert np.mean(found) < 0.08  # five in a hundred, and sampling: 0.011


def test_two_games_with_two_seeds_cannot_decide():
    """Each run is far better, but there are only 6 x 6 exchanges, and six of them are no worse."""
    before = human_scores(Alien=[0.0, 0.1], Pong=[0.0, 0.1])
    after = human_scores(Alien=[0.8, 0.9], Pong=[0.8, 0.9])
    told = said(results_of(A=before, B=after))
    clear = "B is better than A in Alien-v5, Pong-v5; over all undecided, a difference of 80 % of "
    assert told.startswith(clear)
    assert "(permutation test: p = 0.17; 95 % by resampling: 70 to 90)" in told


# ------ which environments are named ------

LOW_RUNS, SAME_RUNS = [9.0, 10.0, 11.0], [4.0, 5.0, 6.0, 7.0]


def test_an_environment_is_better_only_beyond_holms_correction():
    """Of five environments it takes p = 0.05 / 5, where one is enough for 0.05."""
    even = {f"E{number}": SAME_RUNS for number in range(4)}
    better = [11.9, 12.9, 13.9]  # t = 2.9 / sqrt(2 / 3), with 4 degrees of freedom: p = 0.024
    results = results_of(A=even | {"X-v0": LOW_RUNS}, B=even | {"X-v0": better})
    (comparison,) = results.comparisons
    assert 0.05 / 5 < comparison.by_env["X-v0"].p == pytest.approx(0.0237, abs=1e-3)
    assert (comparison.clear, comparison.unclear, comparison.tests) == ([], ["X-v0"], 5)
    told = said(results)
    assert told.startswith("B and A cannot be told apart: a difference of ")
    perhaps = "; better in X-v0 by the interval there, which may be chance among 5 such intervals; "
    assert perhaps in told
    far = [15.0, 16.0, 17.0]
    results = results_of(A=even | {"X-v0": LOW_RUNS}, B=even | {"X-v0": far})
    assert results.comparisons[0].clear == ["X-v0"]
    alone = results_of(A={"X-v0": LOW_RUNS}, B={"X-v0": better})
    assert alone.comparisons[0].clear == ["X-v0"] and said(alone).startswith("B is better than A")


def test_holms_correction_is_over_all_groups():
    """The same p-value, which is the smaller one of two, but not of two groups in two of them."""
    even, better = SAME_RUNS, [11.95, 12.95, 13.95]
    before = {"X-v0": LOW_RUNS, "Y-v0": even}
    results = results_of(A=before, B=before | {"X-v0": better})
    assert [one.clear for one in results.comparisons] == [["X-v0"]]
    results = results_of(A=before, B=before | {"X-v0": better}, C=before)
    assert [one.clear for one in results.comparisons] == [[], []]
    assert [one.tests for one in results.comparisons] == [4, 4]


def test_no_environment_is_named_without_an_effect_in_95_of_100_cases():
    """Twenty environments, five seeds; without a correction it would be 56 to 64 of 100."""
    rng = np.random.default_rng(5)
    names = [f"E{number}" for number in range(20)]
    any_scores = {name: [1.0, 2.0] for name in names}
    some = results_of(A=any_scores, B=any_scores)
    (comparison,) = some.comparisons
    named = []
    for _ in range(200):
        comparison.clear = []
        comparison.by_env = {
            name: numbers.difference([tuple(rng.normal(0, 1, (2, 5)))]) for name in names
        }
        numbers.note_clear_environments(some.scores, some.comparisons)
        named.append(bool(comparison.clear))
    assert np.mean(named) < 0.1  # five in a hundred, and sampling: 0.015


def test_better_on_the_whole_does_not_hide_what_is_worse():
    """Better in three environments and clearly worse in one."""
    low, high = [0.0, 1.0, 2.0], [10.0, 11.0, 12.0]
    names = ("E0", "E1", "E2")
    results = results_of(
        A=dict.fromkeys(names, low) | {"Swimmer-v4": high},
        B=dict.fromkeys(names, high) | {"Swimmer-v4": low},
    )
    told = said(results)
    assert told.startswith("B is better than A by ") and told.endswith("; worse in Swimmer-v4.")
    (comparison,) = results.comparisons
    comparison.lost, comparison.undecided = {"B": "1 of 13 runs of B did not finish"}, True
    assert said(results).endswith("; worse in Swimmer-v4; 1 of 13 runs of B did not finish.")


# ------ the same runs ------


@pytest.mark.usefixtures("no_picture")
def test_a_folder_beside_itself_is_no_difference(tmp_path):
    folder = make_group(tmp_path / "a", {"X-v0": [1.0, 2.0, 3.0], "Y-v0": [5.0, 7.0, 6.0]})
    told = answer(tmp_path, f"before={folder}", f"after={folder}")
    assert told == (
        "after and before cannot be told apart: all 6 runs have exactly the same scores, episode "
        "by episode; the edit changes nothing here."
    )


@pytest.mark.usefixtures("no_picture")
def test_runs_with_equal_scores_are_not_the_same_for_that(tmp_path):
    """One episode of one run is otherwise, and so is the other seed."""
    part = {"start": 0, "episodes": episodes(np.array([1.0, 5.0])), "last": (20, 9.0)}
    make_run(tmp_path / "a", "X-v0", 1, [part])
    part = {"start": 0, "episodes": episodes(np.array([5.0, 1.0])), "last": (20, 9.0)}
    make_run(tmp_path / "b", "X-v0", 1, [part])
    make_run(tmp_path / "c", "X-v0", 2, [part])
    for other in "bc":
        told = answer(tmp_path, f"A={tmp_path / 'a'}", f"B={tmp_path / other}")
        assert told.startswith("B and A cannot be told apart yet: B scored the same, but one seed")
    told = answer(tmp_path, f"A={tmp_path / 'a'}", f"B={tmp_path / 'a'}")
    assert "apart: the run has exactly the same scores" in told


def test_no_seeds_would_show_a_difference_of_nothing():
    told = said(results_of(A={"X-v0": [1.0, 2.0, 3.0]}, B={"X-v0": [3.0, 2.0, 1.0]}))
    assert "a difference of 0 % of A's mean" in told and "seeds" not in told


def test_equal_scores_in_one_of_two_environments():
    """Where they make a difference there is none to be shown; else the other one decides."""
    before, after = {"X-v0": [1.0, 2.0, 3.0]}, {"X-v0": [7.0, 8.0, 9.0]}
    solved = {"Y-v0": [500.0, 500.0]}
    unlike = results_of(A=before | {"Y-v0": [400.0, 400.0]}, B=after | solved)
    assert unlike.comparisons[0].by_env["X-v0"].has_interval
    assert not unlike.comparisons[0].by_env["Y-v0"].has_interval
    assert said(unlike).endswith("but equal scores in Y-v0 tell nothing about chance.")
    games = {"Alien": [0.0, 0.1], "Pong": [0.0, 0.0]}
    middles = results_of(A=human_scores(**games), B=human_scores(**games | {"Pong": [1.0, 1.0]}))
    assert said(middles).endswith("but equal scores in Pong-v5 tell nothing about chance.")
    alike = results_of(A=before | solved, B=after | solved)
    assert alike.comparisons[0].overall.has_interval
    assert said(alike).startswith("B is better than A by ")


def test_intervals_cover_the_truth_in_95_of_100_cases():
    """Two environments of different spread, few seeds, unequal numbers of them."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        first = rng.normal(0, 1, 4), rng.normal(1, 2, 5)
        second = rng.normal(0, 3, 3), rng.normal(2, 1, 5)
        found = numbers.difference([first, second])
        covered += found.low <= 1.5 <= found.high
    assert 0.93 < covered / 1000 < 0.975  # Satterthwaite errs on the safe side; sampling: 0.007


def test_so_many_seeds_do_show_the_difference():
    """The advice of seeds_needed, tried: means 0 and 1, standard deviations of exactly 1."""
    before = np.array([-1.0, 0.0, 1.0])
    count = numbers.seeds_needed([(before, before + 1)])
    assert count == 17  # of textbooks: 16 to 17 in each group for d = 1, 80 % power
    rng = np.random.default_rng(2)
    found = [
        numbers.difference([(rng.normal(0, 1, count), rng.normal(1, 1, count))]).sign == 1
        for _ in range(1000)
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)


def test_improvement_counts_pairs_and_is_rliables():
    before = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 7.0]])
    after = np.array([[2.0, 5.0], [4.0, 6.0]])
    # First column: 2 beats 1, ties with 2; 4 beats all three. Second: 5 ties twice; 6 beats two.
    expected = ((1 + 0.5 + 3) / 6 + (0.5 + 0.5 + 2) / 6) / 2
    assert numbers.improvement(before, after)[0] == pytest.approx(expected)
    rng = np.random.default_rng(3)
    before, after = rng.integers(0, 5, (4, 6)).astype(float), rng.integers(0, 5, (7, 6)) + 0.0
    theirs = metrics.probability_of_improvement(after, before)
    assert numbers.improvement(before, after)[0] == pytest.approx(theirs)


def test_middle_half_gap_and_profile_of_a_known_matrix():
    matrix = np.array([[0.0, 0.2], [0.4, 0.6], [0.8, 9.0], [0.5, 0.5]])
    # Sorted: 0 0.2 | 0.4 0.5 0.5 0.6 | 0.8 9; and 9 counts as 1 in the gap.
    assert numbers.interquartile_mean(matrix)[0] == pytest.approx(0.5)
    assert numbers.optimality_gap(matrix)[0] == pytest.approx(1 - 4.0 / 8)
    share, band = numbers.profile(matrix, np.array([-1.0, 0.5, 8.0, 9.0]))
    assert list(share) == [1, 3 / 8, 1 / 8, 0]
    assert band.shape == (2, 4) and (band[0] <= share).all() and (share <= band[1]).all()


def test_the_profile_ends_before_an_outlier():
    """0, 0.01, ... 1 and one of 230; the middle half is from 0.25 to 0.75 or so."""
    usual = np.arange(101) / 100
    grid = comparison_picture.profile_grid(np.append(usual, 230.0))
    assert grid[0] < 0 and 1 < grid[-1] < 1.1
    assert np.allclose(comparison_picture.profile_grid(usual), grid)
    games = human_scores(Alien=[0.0, 0.5, 1.0], Breakout=[0.2, 0.3, 0.4], Atlantis=[0.1, 0.2, 230])
    results = results_of(A=games, B=games)
    axes = comparison_picture.plt.figure().subplots()
    comparison_picture.draw_profiles(axes, results.scores, {"A": "black", "B": "red"})
    assert axes.get_xlabel() == "normalized score; farther right: 2 of 18 runs"
    assert axes.get_xlim()[1] < 1.1
    comparison_picture.plt.close(axes.figure)


def test_resampling_is_reproducible_and_holds_the_number():
    matrix = np.random.default_rng(4).normal(0.5, 0.2, (5, 3))
    first = numbers.bootstrap(matrix, numbers.interquartile_mean)
    assert repr(first) == repr(numbers.bootstrap(matrix, numbers.interquartile_mean))  # p is NaN
    assert first.low < first.value < first.high
    assert not numbers.bootstrap(matrix[:1], numbers.interquartile_mean).has_interval


def test_resampling_is_short_in_these_tests():
    calls = []

    def counted(matrix: np.ndarray) -> np.ndarray:
        calls.append(matrix)
        return matrix.mean(axis=0)[:1]

    numbers.bootstrap(np.array([[1.0], [2.0]]), counted)
    assert 100 <= len(calls) < 110


# ------ scales ------


@pytest.mark.parametrize(
    ("env_id", "game"),
    [
        ("Breakout-v5", "Breakout"),
        ("ALE/MsPacman-v5", "MsPacman"),
        ("PongNoFrameskip-v4", "Pong"),
        ("QbertDeterministic-v4", "Qbert"),
        ("pong_v3", "pong_v3"),
        ("Breakout-MinAtar", "Breakout-MinAtar"),
        ("CartPole-v1", "CartPole"),
    ],
)
def test_names_of_games(env_id, game):
    assert numbers.atari_game(env_id) == game


def test_atari_scores_are_of_the_57_games_of_the_benchmark():
    games = numbers.read_atari_scales()
    shell = (BENCHMARK / "ppo_atari_envpool_xla_jax.sh").read_text()
    listed = {word.removesuffix("-v5") for word in shell.split() if word.endswith("-v5")}
    assert set(games) == listed and len(games) == 57
    assert all(scale.low < scale.high for scale in games.values())
    pong = games["Pong"].normalize(np.array([-20.7, 14.6]))
    assert list(pong) == [0, 1]
    digest = hashlib.sha256(numbers.ATARI_SCORES.read_bytes()).hexdigest()
    assert digest == "61203d7f6d2aecdacdadf02b5fc97a2f78fee4ebb3eb578bf92e65f28d6ae7ee"


def test_scales_by_default_and_on_request():
    scores = {"Pong-v5": np.array([0.0, 4.0]), "X-v0": np.array([3.0, 9.0])}

    def kinds(shared: list[str]) -> list[str]:
        return [scale.kind for scale in numbers.choose_scales("auto", scores, shared).values()]

    assert kinds(["Pong-v5"]) == ["human", "range"]
    assert kinds(["Pong-v5", "X-v0"]) == kinds(["X-v0"]) == ["range", "range"]
    ranges = numbers.choose_scales("range", scores, list(scores))
    assert [(scale.low, scale.high) for scale in ranges.values()] == [(0, 4), (3, 9)]
    for same in (7.0, 0.0, -7.0):
        alike = numbers.seen_scale(np.array([same, same]))
        assert list(alike.normalize(np.array([same, same]))) == [1, 1] and alike.alike


def test_one_scale_for_all_that_is_averaged():
    """Breakout from 30 to 403 is 13 times the way to human play; CartPole loses 45 points."""
    before = {"Breakout-v5": [29.0, 31.0], "CartPole-v1": [109.0, 111.0]}
    after = {"Breakout-v5": [402.0, 404.0], "CartPole-v1": [64.0, 66.0]}
    (comparison,) = results_of(A=before, B=after).comparisons
    assert comparison.overall.value == pytest.approx((373 / 375 - 45 / 47) / 2)
    own = {"CartPole-v1": [10.0, 20.0]}  # that the other group lacks
    games = {game: before["Breakout-v5"] for game in ("Breakout-v5", "Alien-v5")}
    assert results_of(A=games | own, B=games).scores.by_middle


def test_noise_at_the_ceiling_is_no_difference():
    """CartPole is worse by 0.1 of 500 points, Acrobot better by 2 of 100: the latter counts."""
    before = {"CartPole-v1": [500.0, 500.0, 499.9], "Acrobot-v1": [-100.1, -100.0, -99.9]}
    after = {"CartPole-v1": [499.8, 499.8, 499.7], "Acrobot-v1": [-98.1, -98.0, -97.9]}
    results = results_of(A=before, B=after)
    assert results.comparisons[0].by_env["CartPole-v1"].sign == -1
    assert said(results).startswith("B is better than A by ") and "worse" not in said(results)
    told = "The scores of CartPole-v1 differ by less than 1 %: too little for a verdict there."
    assert results.scores.remarks == [told]
    assert not numbers.seen_scale(np.array([-100.0, -98.0])).alike
    alone = results_of(A={"CartPole-v1": [500.0, 499.9]}, B={"CartPole-v1": [499.1, 499.0]})
    assert alone.comparisons[0].overall.sign == -1
    assert said(alone) == "B and A cannot be told apart: their scores differ by less than 1 %."


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize("kind", ["human", "file"])
def test_noise_is_no_difference_on_any_scale(kind, tmp_path):
    """Of 18 points in Pong by 0.1: beyond chance, and too little for a verdict."""
    before, after = {"Pong-v5": [18.0, 18.01, 18.02]}, {"Pong-v5": [17.9, 17.91, 17.92]}
    scales = tmp_path / "scales.csv"
    scales.write_text("env_id,low,high\nPong-v5,-21,21\n")
    normalize = str(scales) if kind == "file" else "human"
    told = answer(tmp_path, *two_groups(tmp_path, before, after), more=("--normalize", normalize))
    assert told == "B and A cannot be told apart: their scores differ by less than 1 %."
    table = (tmp_path / "out/compare.md").read_text()
    assert "The scores of Pong-v5 differ by less than 1 %: too little for a verdict" in table


# ------ groups ------


def test_writes_table_pictures_and_numbers(tmp_path):
    """Two environments that both have, one that only the baseline has, and unequal seeds."""
    before = {"X-v0": [1.0, 2.0, 3.0], "Y-v0": [5.0, 7.0], "Z-v0": [1.0]}
    groups = two_groups(tmp_path, before, {"X-v0": [4.0, 5.0, 6.0], "Y-v0": [8.0, 9.0]})
    out = tmp_path / "out"
    done = run_program("compare.py", *groups, "--out", str(out), "--name", "it")
    assert done.returncode == 0, done.stderr
    ends = [".csv", ".md", ".png", ".svg", "_overall.csv", "_scores.csv"]
    assert sorted(path.name for path in out.iterdir()) == [f"it{end}" for end in ends]
    table = (out / "it.md").read_text()
    assert done.stdout.startswith(table.splitlines()[0])
    assert "| difference to A (95 %) | the same in % of A's mean | probability" in table
    assert "| X-v0, 100 steps | A | 2.00 ± 1.00 (3 seeds) |  |  |  |" in table
    assert "|  | B | 5.00 ± 1.00 (3 seeds) | +3.00 (+0.73 to +5.27) | +150.0 (" in table
    assert "No run of B, so not in the overall numbers: Z-v0." in table
    assert "| Z-v0, 100 steps | A | 1.00 (1 seed) |" in table and "|  | B | - |" in table
    assert "B has the script, flags, packages and hardware of A." in table
    with open(out / "it.csv") as file:
        rows = {(row["env_id"], row["group"]): row for row in csv.DictReader(file)}
    assert rows["Y-v0", "B"]["difference"] == "2.5" and rows["Y-v0", "A"]["difference"] == ""
    assert rows["Z-v0", "A"]["std"] == "" and ("Z-v0", "B") not in rows
    with open(out / "it_overall.csv") as file:
        overall = {(row["measure"], row["group"]): row for row in csv.DictReader(file)}
    # X from 1 to 6, Y from 5 to 9: A has 0 .2 .4 and 0 .5, the first two of each are compared.
    assert float(overall["interquartile mean", "A"]["value"]) == pytest.approx(0.1)
    assert float(overall["probability of improvement over A", "B"]["value"]) == 1
    with open(out / "it_scores.csv") as file:
        runs = {(row["env_id"], row["group"], row["seed"]): row for row in csv.DictReader(file)}
    assert len(runs) == 11
    assert runs["X-v0", "B", "3"]["score"] == "6.00"
    made = {name: runs["X-v0", "B", "3"][name] for name in ("script", "versions", "hardware")}
    assert runs["X-v0", "B", "3"]["steps"] == "100" and all(made.values())
    assert (out / "it.png").read_bytes().startswith(b"\x89PNG")
    picture = (out / "it.svg").read_text()
    assert "<svg" in picture and len(picture) < 300_000


@pytest.mark.usefixtures("no_picture")
def test_another_programs_runs_and_three_groups(tmp_path):
    theirs = make_group(tmp_path / "theirs", {"X-v0": [1.0, 1.1, 0.9]}, foreign=True)
    ours = make_group(tmp_path / "ours", {"X-v0": [2.0, 2.1, 1.9]})
    groups = (f"Peer={theirs}", f"ours={ours}", f"again={ours}")
    assert answer(tmp_path, *groups).startswith(
        "ours is better than Peer by 100 % of Peer's mean (95 %: "
    )
    table = (tmp_path / "out" / "compare.md").read_text()
    assert table.splitlines()[1].startswith("again is better than Peer by 100 % of Peer's mean")
    assert "What ours does otherwise than Peer is not recorded." in table
    assert "Each group is compared for itself" in table


LOW, HIGH = [0.9, 1.0, 1.1], [1.9, 2.0, 2.1]


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize(
    ("log", "before", "after", "begins", "ends"),
    [
        (
            "diverged at step 12",
            LOW,
            HIGH,
            "B and A cannot be told apart, though the runs of B that have a score are better by ",
            "; 3 of 6 runs of B diverged.",
        ),
        ("diverged at step 12", HIGH, LOW, "B is worse than A by ", "; 3 of 6 runs of B diverged."),
        (
            "50 %",
            HIGH,
            LOW,
            "B and A cannot be told apart, though the runs of B that have a score are worse by ",
            "; 3 of 6 runs of B did not finish.",
        ),
    ],
)
def test_runs_without_a_score_are_in_the_answer(tmp_path, log, before, after, begins, ends):
    """Three of six: a group is not better by what is left, unless it is the other that diverged."""
    groups = two_groups(tmp_path, {"X-v0": before}, {"X-v0": after})
    (tmp_path / "b/logs").mkdir()
    for seed in (4, 5, 6):
        part = {"start": 0, "episodes": episodes(np.zeros(3)), "last": (100, 9.0)}
        run = make_run(tmp_path / "b", "X-v0", seed, [part], finished=False)
        (tmp_path / f"b/logs/X-v0__{seed}.log").write_text(f"run folder: {run}\n{log}")
    told = answer(tmp_path, *groups)
    assert told.startswith(begins) and told.endswith(ends)
    why = "diverged" if "diverged" in log else "not finished"
    table = (tmp_path / "out/compare.md").read_text()
    assert f"B: Left out, {why}: X-v0 seed 4, X-v0 seed 5, X-v0 seed 6." in table


def empty_events(run: Path) -> None:
    """As a full disk leaves them."""
    for file in run.glob("events.out.tfevents.*"):
        file.write_bytes(b"")


def spoil_events(run: Path) -> None:
    """Eight bytes in the middle are others; readers stop there."""
    (file,) = run.glob("events.out.tfevents.*")
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = b"\0" * 8
    file.write_bytes(content)


def break_args(run: Path) -> None:
    (run / "args.json").write_text("{")


def close_args(run: Path) -> None:
    """It cannot be opened, whoever reads it."""
    (run / "args.json").unlink()
    (run / "args.json").mkdir()


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize(
    ("harm", "ends", "remark"),
    [
        (empty_events, "1 of 6 runs of after ended no episode.", "Left out, no episode ended"),
        (spoil_events, "left damaged event files.", "Left out, damaged event files"),
        (break_args, "1 of 6 runs of after could not be read.", "Left out, cannot be read"),
        (close_args, "1 of 6 runs of after could not be read.", "Left out, cannot be read"),
    ],
)
def test_a_run_that_cannot_be_read_is_not_as_if_it_had_never_been(tmp_path, harm, ends, remark):
    """It is the seed that failed, in an environment whose name has a slash."""
    before = make_group(tmp_path / "a", {"ALE/X-v0": LOW, "Y-v0": LOW})
    after = make_group(tmp_path / "b", {"ALE/X-v0": HIGH, "Y-v0": HIGH})
    run = next(after.glob("ALE-X-v0__ppo__3__*"))
    if harm is spoil_events:
        facts = json.loads((run / "args.json").read_text())
        facts["args"]["total_timesteps"] = 100
        (run / "args.json").write_text(json.dumps(facts))
    harm(run)
    told = answer(tmp_path, f"before={before}", f"after={after}")
    assert told.startswith("after and before cannot be told apart, though the runs of after that ")
    assert told.endswith(ends)
    assert f"after: {remark}: ALE/X-v0 seed 3." in (tmp_path / "out/compare.md").read_text()
    part = {"start": 0, "episodes": episodes(np.full(3, 2.1)), "last": (100, 9.0)}
    make_run(after, "ALE/X-v0", 3, [part], ended="20261121-120000")  # it was made again
    again = answer(tmp_path, f"before={before}", f"after={after}")
    assert again.startswith("after is better than before") and "runs of after" not in again


@pytest.mark.parametrize(
    ("settings", "last", "missing"),
    [
        ({"total_timesteps": 20_000}, 5060, "its event files end after 5,060 of 20,000 steps"),
        ({"total_timesteps": 20_000, "num_envs": 4, "num_steps": 128}, 19_968, ""),
        ({"total_timesteps": 700, "num_envs": 4, "num_steps": 128}, 512, ""),
        ({"total_timesteps": 2000, "num_envs": 4, "num_steps": 128}, 1024, "end after 1,024 of"),
        ({"total_timesteps": 3000, "num_envs": 4, "num_steps": 128}, 2048, ""),
        ({}, 5060, ""),
    ],
)
def test_event_files_of_a_finished_run_have_all_but_a_rollout(settings, last, missing, tmp_path):
    """The third did all that fits; to the fourth a rollout is missing, to the fifth a processor."""
    part = {"start": 0, "episodes": episodes(np.full(3, 1.0)), "last": (last, 9.0)}
    run = make_run(tmp_path, "X-v0", 1, [part])
    facts = json.loads((run / "args.json").read_text())
    facts["args"] |= settings
    facts["processes"] = 2 if last == 2048 else 1
    (run / "args.json").write_text(json.dumps(facts))
    found = run_folders.find_runs(tmp_path)
    assert bool(found.runs) == (not missing)
    read = run_folders.read_run(run, facts)
    assert missing in run_folders.steps_missing(read) and found.lost.keys() == (
        {("ppo.py", "X-v0", 1)} if missing else set()
    )


@pytest.mark.usefixtures("no_picture")
def test_unfinished_runs_count_where_they_are_compared(tmp_path):
    """Not in an environment of one group alone; but in one where the other has no score yet."""
    groups = two_groups(tmp_path, {"X-v0": LOW, "Y-v0": LOW}, {"X-v0": HIGH})
    part = {"start": 0, "episodes": episodes(np.zeros(3)), "last": (100, 9.0)}
    make_run(tmp_path / "b", "Z-v0", 1, [part], finished=False)
    assert answer(tmp_path, *groups).startswith("B is better than A by ")
    make_run(tmp_path / "b", "Y-v0", 1, [part], finished=False)
    told = answer(tmp_path, *groups)
    assert told.startswith("B and A cannot be told apart, though the runs of B that have a score")
    assert told.endswith("; 1 of 4 runs of B did not finish.")


def test_a_run_without_a_score_is_not_forgotten():
    results = results_of(A={"X-v0": LOW}, B={"X-v0": [*HIGH, np.nan]})
    assert said(results).startswith("B and A cannot be told apart, though")
    assert said(results).endswith("; 1 of 4 runs of B had no score by then.")


@pytest.mark.usefixtures("no_picture")
def test_own_runs_one_folder_deeper_are_not_another_programs(tmp_path):
    for name in ("n1", "n2"):
        make_group(tmp_path / name / "x", {"X-v0": [1.0, 2.0]})
    groups = f"before={tmp_path}/n1", f"after={tmp_path}/n2"
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"))
    below = f"error: before: runs of ours are in sub-folders: {tmp_path}/n1/x; name one of them\n"
    assert done.returncode == 2 and done.stderr.endswith(below)
    done = run_program("compare.py", groups[0] + "/x", f"after={tmp_path}")
    both = f"error: after: runs of ours are in sub-folders: {tmp_path}/n1/x, {tmp_path}/n2/x; name"
    assert both in done.stderr


@pytest.mark.usefixtures("no_picture")
def test_groups_are_chosen_by_pattern(tmp_path):
    runs = make_group(tmp_path / "runs", {"X-v0": LOW})
    make_group(runs, {"X-v0": HIGH}, name="ppo-mine")
    groups = f"before={runs}/*__ppo__*", f"after={runs}/*__ppo-mine__*"
    assert answer(tmp_path, *groups).startswith("after is better than before by 100 % ")
    every = f"all={runs.parent}/r*s/*"
    done = run_program("compare.py", groups[0], every)
    assert done.returncode == 2
    expected = f"error: all: runs of ppo, ppo-mine in {runs.parent}/r*s/*; choose by a pattern, as "
    assert expected in done.stderr


@pytest.mark.usefixtures("no_picture")
def test_another_programs_runs_are_chosen_by_pattern(tmp_path):
    """The pattern also holds where an environment's name has made two folders of one."""
    theirs = make_group(tmp_path / "theirs", {"X-v0": LOW, "ALE/Pong-v5": LOW}, foreign=True)
    (theirs / "ALE").mkdir()
    for run in theirs.glob("ALE-*"):
        run.rename(theirs / "ALE" / run.name.removeprefix("ALE-"))
    make_group(theirs, {"X-v0": HIGH}, foreign=True, name="dqn")
    found = compare.read_groups(compare.Args((f"A={theirs}/*__ppo__*", f"B={theirs}/*__dqn__*")))
    assert [set(group.by_env) for group in found] == [{"X-v0", "ALE/Pong-v5"}, {"X-v0"}]
    done = run_program("compare.py", f"A={theirs}", f"B={theirs}/*__dqn__*")
    expected = f"error: A: runs of dqn, ppo in {theirs}; choose by a pattern, as A='{theirs}/*__dqn"
    assert done.returncode == 2 and expected in done.stderr


def other_runs(folder: Path, metric: str = run_folders.RETURN) -> dict[str, list[run_folders.Run]]:
    """Another program's runs by environment."""
    return run_folders.runs_by_env(run_folders.find_other_runs(folder, "Peer", metric))


@pytest.mark.usefixtures("no_picture")
def test_another_programs_runs_without_a_score_count(tmp_path):
    """One was cut off after 2 of 100 steps, one has logged nothing."""
    theirs = make_group(tmp_path / "theirs", {"X-v0": HIGH}, foreign=True)
    crashed = {"start": 0, "episodes": episodes(np.full(1, 9.0), step=1), "last": (2, 1.0)}
    silent = {"start": 0, "episodes": [], "last": (100, 9.0)}
    for seed, part in ((4, crashed), (5, silent)):
        (make_run(theirs, "X-v0", seed, [part]) / "args.json").unlink()
    ours = make_group(tmp_path / "ours", {"X-v0": LOW})
    told = answer(tmp_path, f"ours={ours}", f"theirs={theirs}")
    assert told.startswith("theirs and ours cannot be told apart, though the runs of theirs that")
    lost = "1 of 5 runs of theirs did not finish and 1 of 5 runs of theirs ended no episode"
    assert told.endswith(f"; {lost}.")
    table = (tmp_path / "out/compare.md").read_text()
    assert "theirs: Left out, no episode ended: X-v0 seed 5." in table


def test_cleanrls_runs_in_jax_count_by_their_mean_return(tmp_path, capsys):
    """They log no single episodes; runs that log both count by these."""
    theirs = tmp_path / "theirs"
    for seed, tags in enumerate(
        [["avg_episodic_return"], ["avg_episodic_return", "episodic_return"]]
    ):
        writer = SummaryWriter(str(theirs / f"X-v0__ppo__{seed}__1"))
        for tag, score in zip(tags, (7.0, 9.0), strict=False):
            writer.add_scalar(f"charts/{tag}", score, 100)
        writer.close()
    assert [run.score for run in other_runs(theirs)["X-v0"]] == [7.0, 9.0]
    told = capsys.readouterr().err
    assert told.count("charts/avg_episodic_return stands in for it") == 1 and "__0__" in told


@pytest.mark.usefixtures("no_picture")
def test_stable_baselines3_as_its_user_names_the_runs(tmp_path):
    """Two seeds of 128 steps, the second trained twice; the log's last mean is the score."""
    from stable_baselines3 import PPO

    theirs = tmp_path / "theirs"
    for seed in (1, 2, 2):
        model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=seed, tensorboard_log=str(theirs))
        model.learn(128, tb_log_name=f"CartPole-v1__sb3__{seed}", log_interval=1)
    means = [
        events(theirs / f"CartPole-v1__sb3__{name}").Scalars("rollout/ep_rew_mean")[-1]
        for name in ("1_1", "2_2")
    ]
    ours = make_group(tmp_path / "ours", {"CartPole-v1": [1.0, 2.0]})
    metrics = ("--metric", "ours=charts/episodic_return", "sb3=rollout/ep_rew_mean")
    answer(tmp_path, f"sb3={theirs}", f"ours={ours}", more=metrics)
    with open(tmp_path / "out/compare_scores.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["group"] == "sb3"]
    assert [row["seed"] for row in rows] == ["1", "2"]
    model_runs = other_runs(theirs, "rollout/ep_rew_mean")["CartPole-v1"]
    assert [run.total_steps for run in model_runs] == [means[0].step, means[1].step] == [128, 128]
    assert [run.score for run in model_runs] == [means[0].value, means[1].value]


@pytest.mark.usefixtures("no_picture")
def test_the_metric_that_was_named_is_in_the_file_of_scores(tmp_path):
    """Of one group alone; without one there is no such column."""
    part = {"start": 0, "episodes": episodes(np.full(3, 7.0)), "last": (100, 9.0)}
    for seed in (1, 2):
        make_run(tmp_path / "a", "X-v0", seed, [part])
        make_run(tmp_path / "b", "X-v0", seed, [part], tag="charts/other")
    groups = f"A={tmp_path / 'a'}", f"B={tmp_path / 'b'}"
    answer(tmp_path, *groups, more=("--metric", "B=charts/other"))
    with open(tmp_path / "out/compare_scores.csv") as file:
        rows = [(row["group"], row["metric"]) for row in csv.DictReader(file)]
    assert rows == [("A", "")] * 2 + [("B", "charts/other")] * 2
    answer(tmp_path, groups[0], groups[0].replace("A=", "B="))
    assert "metric" not in (tmp_path / "out/compare_scores.csv").read_text()


def test_the_last_of_means_is_the_score_and_nine_is_before_ten(tmp_path):
    part = {"start": 0, "episodes": episodes(np.array([1.0, 2.0, 6.0])), "last": (100, 9.0)}
    for tag, score in (("rollout/ep_rew_mean", 6.0), ("rollout/ep_rew", 3.0)):
        folder = tmp_path / tag
        (make_run(folder, "X-v0", 1, [part], tag=tag) / "args.json").unlink()
        (run,) = other_runs(folder, tag)["X-v0"]
        assert (run.score, run.score_after(20)) == (score, 2.0 if tag.endswith("_mean") else 1.5)
    folders = [Path(f"X-v0__sb3__1_{number}") for number in (10, 9)]
    assert sorted(folders, key=run_folders.start_time) == folders[::-1]


@pytest.mark.parametrize(
    ("rollouts", "steps", "score"),
    [
        (49, 99_840, 49.0),  # the last point, of 100,352 steps, is its own end
        (49, 98_400, 49.0),  # another point is nearer, but this run is as long
        (10, 19_968, 10.0),  # 2.6 % longer, and the point before is at 18,432
        (10, 18_500, 9.0),
        (10, 2_000, math.nan),
    ],
)
def test_a_mean_of_each_rollout_is_taken_near_the_step(rollouts, steps, score, tmp_path):
    points = [(2048 * number, float(number), float(number)) for number in range(1, rollouts + 1)]
    part = {"start": 0, "episodes": points, "last": (2048 * rollouts, 99.0)}
    tag = "rollout/ep_rew_mean"
    (make_run(tmp_path, "X-v0", 1, [part], tag=tag) / "args.json").unlink()
    (run,) = other_runs(tmp_path, tag)["X-v0"]
    assert run.score_after(steps) == pytest.approx(score, nan_ok=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), {}),
        (("a/b",), {"A": "a/b", "B": "a/b"}),
        (("B=c", "a/b"), {"A": "a/b", "B": "c"}),
    ],
)
def test_a_metric_is_of_all_groups_or_of_one(given, expected):
    assert compare.split_metrics(given, ["A", "B"]) == expected


def test_another_programs_folder_is_read_with_care(tmp_path, capsys):
    folder = make_group(tmp_path / "theirs", {"X-v0": [1.0, 2.0]}, foreign=True)
    part = {"start": 0, "episodes": episodes(np.full(3, 9.0)), "last": (100, 9.0)}
    newer = make_run(folder, "X-v0", 2, [part], ended="20261121-120000")
    crashed = {"start": 0, "episodes": episodes(np.full(1, 9.0), step=1), "last": (2, 1.0)}
    make_run(folder, "X-v0", 3, [crashed])
    pong = make_run(folder, "ALE/Pong-v5", 1, [part])
    (folder / "ALE").mkdir()  # another program keeps the slash of the environment's name
    pong.rename(folder / "ALE" / pong.name.removeprefix("ALE-"))
    by_env = other_runs(folder)
    assert by_env.keys() == {"X-v0", "ALE/Pong-v5"}
    assert [(run.seed, run.score) for run in by_env["X-v0"]] == [(1, 1.0), (2, 9.0)]
    warned = capsys.readouterr().err
    assert f"is left out: {newer.name} is newer" in warned
    assert "is left out: 2 of 100 steps" in warned
    make_run(folder, "X-v0", 1, [part], name="dqn")
    with pytest.raises(SystemExit):
        other_runs(folder)
    assert "Peer: runs of dqn, ppo in " in capsys.readouterr().err


def test_why_there_is_nothing_to_compare_is_told(tmp_path):
    """The only run of B has ended before A's first episodes had."""
    a = make_group(tmp_path / "a", {"X-v0": [1.0, 2.0]})
    crashed = {"start": 0, "episodes": episodes(np.full(1, 9.0), step=1), "last": (2, 1.0)}
    run = make_run(tmp_path / "b", "X-v0", 1, [crashed])
    done = run_program("compare.py", f"A={a}", f"B={tmp_path / 'b'}")
    *reasons, last = done.stderr.splitlines()
    assert done.returncode == 2 and last == "error: no environment has runs of all groups: A, B"
    told = f"X-v0 is compared after 2 steps, where {run.name} ended; others did up to 100."
    assert f"warning: {told}" in reasons
    assert "warning: Left out, without a score: X-v0 seed 1 of A." in reasons


def test_all_runs_are_in_the_probability_of_improvement():
    """X: B wins 5 of 10 pairs, Y: 2 of 2; in the first two seeds alone it would win all."""
    results = results_of(
        A={"X-v0": [1.0, 1.0], "Y-v0": [1.0, 1.0]},
        B={"X-v0": [2.0, 2.0, 0.0, 0.0, 1.0], "Y-v0": [2.0, 2.0]},
    )
    (comparison,) = results.comparisons
    assert comparison.improvement == {"X-v0": 0.5, "Y-v0": 1.0}
    assert comparison.overall_improvement.value == 0.75
    assert "B has its first 2 seeds alone, also in X-v0." in "".join(results.scores.remarks)


def test_runs_of_several_seeds_at_once_are_no_seed(tmp_path, capsys):
    folder = make_group(tmp_path, {"X-v0": [1.0, 2.0]})
    run = next(folder.glob("*__2__*"))
    facts = json.loads((run / "args.json").read_text())
    facts["args"]["num_seeds"] = 5
    (run / "args.json").write_text(json.dumps(facts))
    assert [key.seed for key in run_folders.find_runs(folder).runs] == [1]
    assert "one curve for all its seeds" in capsys.readouterr().err


def test_runs_of_a_group_with_unlike_flags_are_told(tmp_path):
    """The second one has a flag that the first one lacks."""
    folder = make_group(tmp_path, {"X-v0": [1.0, 2.0]})
    run = next(folder.glob("*__2__*"))
    facts = json.loads((run / "args.json").read_text())
    facts["args"]["new"] = True
    (run / "args.json").write_text(json.dumps(facts))
    found = compare.read_group("A", compare.Source("", folder), None)
    assert "The runs of X-v0 differ in new." in found.remarks


@pytest.mark.usefixtures("no_picture")
def test_versions_of_the_script_within_a_group_are_told(tmp_path):
    groups = two_groups(tmp_path, {"X-v0": [1.0, 2.0]}, {"X-v0": [4.0, 5.0]})
    for number, run in enumerate((tmp_path / "b").iterdir()):
        (run / "ppo.py").write_text(f"# edit {number}")
    answer(tmp_path, *groups)
    told = "B: The runs of X-v0 are of 2 versions of the script."
    assert told in (tmp_path / "out/compare.md").read_text()
    (remark,) = run_folders.read_runs(tmp_path / "b")[1][1:]  # what plot.py tells
    assert remark == told.removeprefix("B: ")


@pytest.mark.parametrize(("seeds", "told"), [(9, True), (10, False)])
def test_few_seeds_are_told_with_what_the_intervals_take_for_granted(seeds, told):
    scores = [float(seed) for seed in range(seeds)]
    lines = compare.explain(results_of(A={"X-v0": scores}, B={"X-v0": scores}).scores)
    explained = "about normally distributed. A rare run that" in " ".join(lines)
    assert explained == told


def test_flags_are_compared_within_an_environment(tmp_path):
    """An environment's own flags are no difference; a flag that only the baseline has is one."""
    groups = []
    for name in "AB":
        folder = make_group(tmp_path / name, {"X-v0": [1.0], "Y-v0": [1.0]})
        for run in folder.glob("Y-v0*"):
            facts = json.loads((run / "args.json").read_text())
            facts["args"]["gamma"] = 0.9
            facts["args"] |= {"old": True} if name == "A" else {}
            (run / "args.json").write_text(json.dumps(facts))
        found = run_folders.find_runs(folder)
        by_env = run_folders.runs_by_env(found)
        if name == "B":  # as if Y's runs had started first
            by_env = dict(reversed(by_env.items()))
        groups.append(numbers.Group(name, by_env))
    assert compare.what_differs(*groups) == "B beside A: `old` True → None (Y-v0)."


@pytest.mark.usefixtures("no_picture")
def test_what_differs_is_told(tmp_path):
    groups = two_groups(tmp_path, {"X-v0": [1.0, 2.0]}, {"X-v0": [4.0, 5.0]})
    for run in (tmp_path / "b").iterdir():
        facts = (run / "args.json").read_text().replace('"gamma": 0.99', '"gamma": 0.9')
        (run / "args.json").write_text(facts)
        (run / "ppo.py").write_text("# edited")
    answer(tmp_path, *groups)
    table = (tmp_path / "out" / "compare.md").read_text()
    assert "B beside A: `gamma` 0.99 → 0.9; the script, SHA-256 not recorded → " in table


def test_other_packages_and_other_hardware_are_told(tmp_path):
    groups = []
    for name in "AB":
        folder = make_group(tmp_path / name, {"X-v0": [1.0, 2.0]})
        for run in folder.iterdir():
            facts = json.loads((run / "args.json").read_text())
            facts["versions"]["gymnasium"] = "1.4.0"
            if name == "B":
                facts["versions"] |= {"torch": "2.14.0", "mujoco": "3.3.0"}
                facts["hardware"] = "16 CPUs, cuda NVIDIA H100"
            (run / "args.json").write_text(json.dumps(facts))
        groups.append(compare.read_group(name, compare.Source("", folder), None))
    assert compare.what_differs(*groups) == (
        "B beside A: torch 2.13.0 → 2.14.0; mujoco not recorded → 3.3.0; "
        "hardware cpu → 16 CPUs, cuda NVIDIA H100."
    )


@pytest.mark.usefixtures("no_picture")
def test_runs_are_compared_where_the_shortest_ended(tmp_path):
    part = {"start": 0, "episodes": episodes(np.arange(5.0)), "last": (50, 9.0)}
    shortest = make_run(tmp_path / "a", "X-v0", 1, [part])
    part = {"start": 0, "episodes": episodes(np.arange(20.0)), "last": (1000, 9.0)}
    make_run(tmp_path / "b", "X-v0", 1, [part])
    groups = f"A={tmp_path / 'a'}", f"B={tmp_path / 'b'}"
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"))
    assert "B scored the same after 50 of 1,000 steps, but one seed gives" in done.stdout
    told = f"X-v0 is compared after 50 steps, where {shortest.name} ended; others did up to 1,000."
    assert f"warning: {told}" in done.stderr.splitlines() and told in done.stdout


@pytest.mark.usefixtures("no_picture")
def test_runs_are_compared_after_the_steps_asked_for(tmp_path):
    """B's episode that ends with step 20 has 1 point, its later ones more."""
    part = {"start": 0, "episodes": episodes(np.array([2.0, 2, 2, 2])), "last": (40, 9.0)}
    make_run(tmp_path / "a", "X-v0", 1, [part])
    part = {"start": 0, "episodes": episodes(np.array([1.0, 1, 5, 5, 5])), "last": (50, 9.0)}
    make_run(tmp_path / "b", "X-v0", 1, [part])
    groups = f"A={tmp_path / 'a'}", f"B={tmp_path / 'b'}", "--out", str(tmp_path / "out")
    done = run_program("compare.py", *groups, "--steps", "20")
    assert "X-v0, 20 steps | A | 2.00" in done.stdout and "| B | 1.00" in done.stdout
    assert "is compared after" not in done.stderr
    done = run_program("compare.py", *groups, "--steps", "45")
    told = f"error: --steps 45: {tmp_path / 'a'}"
    assert done.returncode == 2 and done.stderr.startswith(told)
    assert done.stderr.endswith("ended after 40\n")


@pytest.mark.usefixtures("no_picture")
def test_runs_end_with_their_last_whole_rollout_before_the_steps_asked_for(tmp_path):
    """99,840 of 100,000 steps, 780 rollouts of 128; the other runs went on."""
    part = {"start": 0, "episodes": episodes(np.full(3, 2.0)), "last": (99_840, 9.0)}
    make_run(tmp_path / "a", "X-v0", 1, [part])
    longer = [(50_000, 1.0, 3.0), (99_900, 2.0, 9.0)]
    make_run(tmp_path / "b", "X-v0", 1, [part | {"episodes": longer, "last": (500_000, 9.0)}])
    groups = f"A={tmp_path / 'a'}", f"B={tmp_path / 'b'}", "--out", str(tmp_path / "out")
    done = run_program("compare.py", *groups, "--steps", "100000")
    assert done.returncode == 0, done.stderr
    assert "X-v0, 99.8k steps | A | 2.00" in done.stdout and "| B | 3.00" in done.stdout
    refused = run_program("compare.py", *groups, "--steps", "101900")
    assert refused.returncode == 2 and refused.stderr.endswith("ended after 99840\n")


@pytest.mark.usefixtures("no_picture")
def test_a_run_without_a_number_is_left_out(tmp_path):
    groups = two_groups(tmp_path, {"X-v0": [1.0, 2.0, np.nan]}, {"X-v0": [4.0, 5.0]})
    done = run_program("compare.py", *groups, "--out", str(tmp_path / "out"))
    assert "Left out, without a score: X-v0 seed 3 of A." in done.stderr
    assert "1.50 ± 0.71 (2 seeds)" in done.stdout


def test_a_score_keeps_its_seed_where_another_one_is_left_out():
    results = results_of(A={"X-v0": [np.nan, 4.0]}, B={"X-v0": [5.0, 6.0]})
    assert results.scores.seeds == {"A": {"X-v0": [2]}, "B": {"X-v0": [1, 2]}}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["A={a}"], "give two groups or more"),
        (["A={a}", "{b}"], "is not of the form NAME=FOLDER"),
        (["A={a}", "B={a}/nothing"], "B: there is no folder"),
        (["A={a}", "A={b}"], "two groups are called A"),
        (["A={a}", "B={empty}"], "B: no finished run"),
        (["A={a}", "B={other}"], "no environment has runs of all groups"),
        (["A={a}", "B={mixed}"], "B: runs of ppo, ppo_atari in {mixed}; choose by a pattern, as"),
        (["A={a}", "B={b}/*__dqn__*"], "B: no run folder matches {b}/*__dqn__*"),
        (["A={a}", "B={b}/x/*"], "B: there is no folder {b}/x"),
        (["A={a}", "B={b}", "--normalize", "human"], "human knows nothing of X-v0"),
        (["A={a}", "B={b}", "--normalize", "Human"], "Human: neither auto, human or range nor a"),
        (["A={a}", "B={b}", "--normalize", "{shell}"], "no CSV file with numbers"),
        (["A={a}", "B={b}", "--normalize", "{bad}"], "low must be below high, also of X-v0"),
        (["A={a}", "B={b}", "--out", "{bad}"], "is not a folder"),
        (["A={a}", "B={b}", "--out", "{bad}/sub"], "is not a folder"),
        (["A={a}", "B={b}", "--name", "x/y"], "--name: 'x/y' is not the name of a file"),
        (["A={a}", "B={b}", "--name", ""], "--name: '' is not the name of a file"),
        (["A={a}", "B={b}", "--steps", "0"], "--steps must be at least 1, not 0"),
        (["A={a}", "B={b}", "--steps", "-5"], "--steps must be at least 1, not -5"),
        (
            ["A={a}", "B={b}", "--metric", "charts/nope"],
            "A: no finished run in {a} has logged charts/nope",
        ),
        (["A={a}", "B={silent}"], "B: no finished run in {silent} has logged an episode"),
        (["A={a}", "B={b}", "--metric", "C=charts/x"], "--metric C=charts/x: there is no group C"),
    ],
)
def test_bad_input_is_one_line(words, problem, tmp_path):
    folders = {name: tmp_path / name for name in ("a", "b", "empty", "other", "mixed", "bad")}
    for name in ("a", "b", "mixed"):
        make_group(folders[name], {"X-v0": [1.0]})
    make_group(folders["other"], {"Y-v0": [1.0]})
    folders["empty"].mkdir()
    folders["bad"].write_text("env_id,low,high\nX-v0,3,3\n")
    part = {"start": 0, "episodes": [(100, 60.0, 1.0)], "last": (100, 60.0)}
    make_run(folders["mixed"], "X-v0", 2, [part], name="ppo_atari")
    folders["silent"] = tmp_path / "silent"
    make_run(folders["silent"], "X-v0", 1, [part | {"episodes": []}])
    folders["shell"] = BENCHMARK / "ppo.sh"
    words = [word.format(**folders) for word in words]
    problem = problem.format(**folders)
    if "--out" not in words:
        words += ["--out", str(tmp_path / "out")]
    done = run_program("compare.py", *words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and problem in errors[0]
    assert not (tmp_path / "out").exists()
