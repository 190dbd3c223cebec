"""Answers, statistics and files of benchmark/compare.py, from numbers whose truth is known."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import comparison as numbers
import comparison_picture
import numpy as np
import pytest
import run_folders
from helpers.benchmark_runs import BENCHMARK, run_program
from helpers.in_process import load_program
from rliable import metrics
from scipy import stats
from test_benchmark_plot import episodes, make_run

compare = load_program("compare.py")
Estimate = numbers.Estimate


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch):
    """Resampling takes most of the program's time; here its intervals are of no interest."""
    monkeypatch.setattr(compare, "RESAMPLES", 100)


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


@dataclass
class Finished:
    """Stands in for a run."""

    env_id: str
    seed: int
    score: float
    total_steps: int = 100
    name: str = ""

    def score_after(self, steps: int) -> float:
        assert steps == 100
        return self.score


def said(results: numbers.Results) -> str:
    """The answer about the second group."""
    return numbers.sentence(results.scores, results.comparisons[0])


def make_group(folder: Path, scores: dict[str, list[float]], foreign: bool = False) -> Path:
    """Runs whose last episodes have these scores, a seed for each; foreign: without args.json."""
    for env_id, values in scores.items():
        for seed, value in enumerate(values, 1):
            part = {"start": 0, "episodes": episodes(np.full(3, value)), "last": (100, 9.0)}
            run = make_run(folder, env_id, seed, [part])
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
            "30), probability of improvement 0.78; if that is the true difference, about 17 seeds "
            "of each would show it.",
        ),
        (
            [500.0, 500.0],
            [500.0, 500.0, 500.0],
            "B and A cannot be told apart: their runs score the same.",
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
            "B is better than A by 3.0 points (95 %: 3.0 to 3.0), probability of improvement 1.00.",
        ),
    ],
    ids=["worse", "hopeless", "more seeds", "alike", "one seed", "from zero"],
)
def test_what_the_answer_says(before, after, expected):
    assert said(results_of(A={"X-v0": before}, B={"X-v0": after})) == expected


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


def test_resampling_is_reproducible_and_holds_the_number():
    matrix = np.random.default_rng(4).normal(0.5, 0.2, (5, 3))
    first = numbers.bootstrap(matrix, numbers.interquartile_mean)
    assert first == numbers.bootstrap(matrix, numbers.interquartile_mean)
    assert first.low < first.value < first.high
    assert not numbers.bootstrap(matrix[:1], numbers.interquartile_mean).has_interval


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


def test_scales_by_default_and_on_request():
    scores = {"Pong-v5": np.array([0.0, 4.0]), "X-v0": np.array([3.0, 9.0])}
    auto = numbers.choose_scales("auto", scores)
    assert [scale.kind for scale in auto.values()] == ["human", "range"]
    ranges = numbers.choose_scales("range", scores)
    assert [(scale.low, scale.high) for scale in ranges.values()] == [(0, 4), (3, 9)]
    alike = numbers.choose_scales("range", {"X-v0": np.array([7.0, 7.0])})
    assert list(alike["X-v0"].normalize(np.array([7.0, 7.0]))) == [1, 1]


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
    assert "B has the script and the flags of A." in table
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
    assert runs["X-v0", "B", "3"]["score"] == "6" and runs["Y-v0", "A", "1"]["score"] == "5"
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
        make_run(tmp_path / "b", "X-v0", seed, [part], finished=False)
        (tmp_path / f"b/logs/X-v0__{seed}.log").write_text(log)
    told = answer(tmp_path, *groups)
    assert told.startswith(begins) and told.endswith(ends)
    why = "diverged" if "diverged" in log else "not finished"
    table = (tmp_path / "out/compare.md").read_text()
    assert f"B: Left out, {why}: X-v0 seed 4, X-v0 seed 5, X-v0 seed 6." in table


def test_another_programs_folder_is_read_with_care(tmp_path, capsys):
    folder = make_group(tmp_path / "theirs", {"X-v0": [1.0, 2.0]}, foreign=True)
    part = {"start": 0, "episodes": episodes(np.full(3, 9.0)), "last": (100, 9.0)}
    newer = make_run(folder, "X-v0", 2, [part], ended="20261121-120000")
    crashed = {"start": 0, "episodes": episodes(np.full(1, 9.0), step=1), "last": (2, 1.0)}
    make_run(folder, "X-v0", 3, [crashed])
    pong = make_run(folder, "ALE/Pong-v5", 1, [part])
    (folder / "ALE").mkdir()  # another program keeps the slash of the environment's name
    pong.rename(folder / "ALE" / pong.name.removeprefix("ALE-"))
    by_env = run_folders.read_other_runs(folder, "Peer", run_folders.RETURN)
    assert by_env.keys() == {"X-v0", "ALE/Pong-v5"}
    assert [(run.seed, run.score) for run in by_env["X-v0"]] == [(1, 1.0), (2, 9.0)]
    warned = capsys.readouterr().err
    assert f"is left out: {newer.name} is newer" in warned
    assert "is left out: 2 of 100 steps" in warned
    make_run(folder, "X-v0", 1, [part], name="dqn")
    with pytest.raises(SystemExit):
        run_folders.read_other_runs(folder, "Peer", run_folders.RETURN)
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
    assert "The runs of X-v0 differ in new." in compare.read_group("A", folder, None).remarks


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
    assert "B beside A: `gamma` 0.99 → 0.9; the script, SHA-256" in table


@pytest.mark.usefixtures("no_picture")
def test_runs_are_compared_where_the_shortest_ended(tmp_path):
    part = {"start": 0, "episodes": episodes(np.arange(10.0)), "last": (100, 9.0)}
    make_run(tmp_path / "a", "X-v0", 1, [part])
    part = {"start": 0, "episodes": episodes(np.arange(20.0)), "last": (200, 9.0)}
    make_run(tmp_path / "b", "X-v0", 1, [part])
    groups = f"A={tmp_path / 'a'}", f"B={tmp_path / 'b'}"
    assert "B scored the same, but one seed gives no interval" in answer(tmp_path, *groups)
    table = (tmp_path / "out" / "compare.md").read_text()
    assert "X-v0 is compared after 100 steps" in table and "others did up to 200." in table


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
        (["A={a}", "B={mixed}"], "B: runs of ppo.py, ppo_atari.py"),
        (["A={a}", "B={b}", "--normalize", "human"], "human knows nothing of X-v0"),
        (["A={a}", "B={b}", "--normalize", "{a}/none.csv"], "no CSV file with numbers"),
        (["A={a}", "B={b}", "--normalize", "{bad}"], "low must be below high, also of X-v0"),
        (["A={a}", "B={b}", "--out", "{bad}"], "is not a folder"),
        (["A={a}", "B={b}", "--metric", "charts/nothing"], "A: no finished run"),
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
    words = [word.format(**folders) for word in words]
    if "--out" not in words:
        words += ["--out", str(tmp_path / "out")]
    done = run_program("compare.py", *words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and problem in errors[0]
    assert not (tmp_path / "out").exists()
