"""What groups of runs say about each other: their scores, the statistics, the answer in words.

Part of compare.py.
"""

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import plot
from console import fail, warn
from rliable import library, metrics
from run_folders import Run
from scipy import stats

ATARI_SCORES = Path(__file__).with_name("atari_human_scores.csv")
RESAMPLES = 2000  # of a bootstrap
NEAR_ZERO = 0.1  # of a scale's span; differences are not told in % of less
MOST_SEEDS = 100  # that anybody is advised to run
MOST_NAMES = 3  # of environments in a part of the answer
SHORTENED = 0.9  # the answer tells of comparisons after less than this share of the longest run
POWER = 0.8  # probability that so many seeds show a difference that is there
# What lies between 0 and 1, by the kind of scale.
WAYS = {
    "human": "from random to human play",
    "range": "from the worst to the best run",
    "file": "from low to high",
}
NAN = float("nan")


@dataclass
class Group:
    """The runs of a folder."""

    name: str
    by_env: dict[str, list[Run]]
    remarks: list[str] = field(default_factory=list)  # what the reader has to be told
    unfinished: int = 0  # runs that were stopped or go on
    diverged: int = 0


@dataclass(frozen=True)
class Scale:
    """What is 0 and what is 1 in an environment."""

    low: float
    high: float
    kind: str  # human, range or file

    @property
    def span(self) -> float:
        """From 0 to 1, in the environment's own scores."""
        return self.high - self.low

    def normalize(self, scores: np.ndarray) -> np.ndarray:
        """(n,) -> (n,)."""
        return (scores - self.low) / self.span


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval, which is NaN where one seed or equal scores give none."""

    value: float
    low: float = NAN
    high: float = NAN

    @property
    def has_interval(self) -> bool:
        """Whether there is one."""
        return not np.isnan(self.low)

    @property
    def sign(self) -> int:
        """1 or -1 if the interval is above or below zero, 0 if zero is in it or there is none."""
        return int(self.low > 0) - int(self.high < 0)

    def times(self, factor: float) -> "Estimate":
        """Number and interval in another unit; the factor must be positive."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def text(self, form: str = "+.2f") -> str:
        """'+3.20 (-5.10 to +11.50)', or the number alone."""
        if not self.has_interval:
            return f"{self.value:{form}}"
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


@dataclass
class Scores:
    """What is compared: the final score of each run, (runs,), by group and environment."""

    raw: dict[str, dict[str, np.ndarray]]
    seeds: dict[str, dict[str, list[int]]]  # of the same runs
    scales: dict[str, Scale]  # of the environments, in their order
    shared: list[str]  # environments in which every group has runs
    steps: dict[str, int]  # after which the scores of an environment were taken
    longest: dict[str, int]  # steps of the longest run of an environment
    remarks: list[str]

    @property
    def by_middle(self) -> bool:
        """Whether the answer is about interquartile means: one game may outweigh all others."""
        kinds = {scale.kind for scale in self.scales.values()}
        return kinds == {"human"} and len(self.shared) > 1

    def normalized(self, group: str, env_id: str) -> np.ndarray:
        """Scores of a group: (runs,)."""
        return self.scales[env_id].normalize(self.raw[group][env_id])

    def matrix(self, group: str) -> np.ndarray:
        """Normalized scores, (runs, shared environments), as rliable wants them.

        Of an environment with more runs than another one the first ones are in it; what is told
        of that is in `remarks`.
        """
        columns = [self.normalized(group, env_id) for env_id in self.shared]
        count = min(len(column) for column in columns)
        return np.stack([column[:count] for column in columns], axis=1)


@dataclass
class Comparison:
    """A group beside the baseline."""

    group: str
    baseline: str
    by_env: dict[str, Estimate]  # difference of the mean scores; environments that both have
    improvement: dict[str, float]  # probability that a run is better, of the same environments
    overall: Estimate  # difference of normalized scores over the shared environments
    overall_improvement: Estimate
    seeds_needed: int | None  # of each group, for a difference like this one to be seen
    lost: dict[str, str] = field(default_factory=dict)  # by group: "3 of 5 runs of B diverged"
    undecided: bool = False  # whether such runs may change who is better


@dataclass
class Results:
    """All that is drawn and written. The first group is the baseline."""

    groups: list[Group]
    scores: Scores
    comparisons: list[Comparison]  # of the other groups
    overall: dict[str, dict[str, Estimate]]  # by measure and group: over the shared environments

    @property
    def baseline(self) -> Group:
        """What the others are compared with."""
        return self.groups[0]


# ------ scores, and what is 0 and 1 in them ------


def all_runs(group: Group) -> list[Run]:
    """Of all environments."""
    return [run for runs in group.by_env.values() for run in runs]


def atari_game(env_id: str) -> str:
    """The game of Gymnasium's, EnvPool's or the old Gym's environment: Breakout."""
    return re.sub(r"^ALE[/-]|(NoFrameskip|Deterministic)?-v\d+$", "", env_id)


def read_scales_file(path: Path) -> dict[str, Scale]:
    """Scales from a CSV file with the columns env_id,low,high; fails if it is not one."""
    scales = {}
    try:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                scales[row["env_id"]] = Scale(float(row["low"]), float(row["high"]), "file")
    except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        fail(f"--normalize {path}: no CSV file with numbers in env_id,low,high: {error!r}")
    for env_id, scale in scales.items():
        if not scale.low < scale.high:
            fail(f"--normalize {path}: low must be below high, also of {env_id}")
    return scales


def read_atari_scales() -> dict[str, Scale]:
    """Random and human scores of the 57 games."""
    with open(ATARI_SCORES, newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["game"]: Scale(float(row["random"]), float(row["human"]), "human") for row in rows}


def seen_scale(scores: np.ndarray) -> Scale:
    """From the worst to the best of all runs; if they are alike, they are all as good as the best.

    scores: (runs,).
    """
    low, high = float(scores.min()), float(scores.max())
    return Scale(low if low < high else high - 1, high, "range")


def choose_scales(normalize: str, scores: dict[str, np.ndarray]) -> dict[str, Scale]:
    """What is 0 and 1 in each environment, from --normalize and the scores of all its runs."""
    games = read_atari_scales()
    human = {env_id: games[game] for env_id in scores if (game := atari_game(env_id)) in games}
    seen = {env_id: seen_scale(runs) for env_id, runs in scores.items()}
    if normalize == "range":
        return seen
    if normalize == "auto":
        return {env_id: human.get(env_id, seen[env_id]) for env_id in scores}
    if normalize != "human" and not Path(normalize).is_file():
        fail(f"--normalize {normalize}: neither auto, human or range nor a file that is there")
    chosen = human if normalize == "human" else read_scales_file(Path(normalize))
    if missing := [env_id for env_id in scores if env_id not in chosen]:
        fail(f"--normalize {normalize} knows nothing of {', '.join(missing)}")
    return {env_id: chosen[env_id] for env_id in scores}


def steps_to_compare(runs: list[Run], wanted: int | None, remarks: list[str]) -> int:
    """Where the shortest of an environment's runs ended, or before: there all are compared.

    Fails if that is before the steps wanted.
    """
    shortest = min(runs, key=lambda run: run.total_steps)
    if wanted is not None:
        if shortest.total_steps < wanted:
            fail(f"--steps {wanted}: {shortest.folder} ended after {shortest.total_steps}")
        return wanted
    longest = max(run.total_steps for run in runs)
    if longest > (1 + plot.SAME_STEPS) * shortest.total_steps:
        remarks.append(
            f"{shortest.env_id} is compared after {shortest.total_steps:,} steps, where "
            f"{shortest.folder.name} ended; others did up to {longest:,}."
        )
    return shortest.total_steps


def final_scores(group: Group, env_id: str, steps: int, remarks: list[str]) -> dict[int, float]:
    """Scores of a group after so many steps, by seed, less those that are not numbers."""
    scores = {}
    for run in group.by_env.get(env_id, []):
        score = run.score_after(steps)
        if np.isfinite(score):
            scores[run.seed] = score
        else:
            remarks.append(f"Left out, without a score: {run.name} of {group.name}.")
    return scores


def collect_scores(groups: list[Group], normalize: str, wanted: int | None) -> Scores:
    """The scores to compare, after the steps wanted if any are.

    Fails if no environment has runs of all groups.
    """
    remarks = [f"{group.name}: {remark}" for group in groups for remark in group.remarks]
    raw: dict[str, dict[str, np.ndarray]] = {group.name: {} for group in groups}
    seeds_of: dict[str, dict[str, list[int]]] = {group.name: {} for group in groups}
    env_ids = list(dict.fromkeys(env_id for group in groups for env_id in group.by_env))
    steps = {}
    longest = {}
    for env_id in env_ids:
        runs = [run for group in groups for run in group.by_env.get(env_id, [])]
        steps[env_id] = steps_to_compare(runs, wanted, remarks)
        longest[env_id] = max(run.total_steps for run in runs)
        for group in groups:
            scores = final_scores(group, env_id, steps[env_id], remarks)
            if scores:
                raw[group.name][env_id] = np.array(list(scores.values()))
                seeds_of[group.name][env_id] = list(scores)
    env_ids = [env_id for env_id in env_ids if any(env_id in scores for scores in raw.values())]
    shared = [env_id for env_id in env_ids if all(env_id in scores for scores in raw.values())]
    if not shared:
        for remark in remarks:  # the reasons are among them
            warn(remark)
        fail(f"no environment has runs of all groups: {', '.join(raw)}")
    for name, scores_of in raw.items():
        fewest = min(len(scores_of[env_id]) for env_id in shared)
        if more := [env_id for env_id in shared if len(scores_of[env_id]) > fewest]:
            remarks.append(
                f"In interquartile mean, optimality gap and profile {name} has its first {fewest} "
                f"seeds alone, also in {', '.join(more)}."
            )
        if missing := [env_id for env_id in env_ids if env_id not in scores_of]:
            remarks.append(
                f"No run of {name}, so not in the overall numbers: {', '.join(missing)}."
            )
    pooled = {
        env_id: np.concatenate([of[env_id] for of in raw.values() if env_id in of])
        for env_id in env_ids
    }
    scales = choose_scales(normalize, pooled)
    return Scores(raw, seeds_of, scales, shared, steps, longest, remarks)


# ------ numbers ------

Pair = tuple[np.ndarray, np.ndarray]  # scores of the baseline's runs and of another group's


def equal_within(pair: Pair) -> bool:
    """Whether all runs of each of the two groups have the same score."""
    before, after = pair
    return bool(np.ptp(before) == 0 and np.ptp(after) == 0)


def lacks_chance(pairs: list[Pair]) -> bool:
    """Whether runs that do not vary make a difference: nothing is known of its chance then.

    That is so if no environment has runs that vary, or if the groups differ in one that has none.
    """
    equal = [pair for pair in pairs if equal_within(pair)]
    return len(equal) == len(pairs) or any(before[0] != after[0] for before, after in equal)


def welch(pairs: list[Pair]) -> tuple[float, np.ndarray, np.ndarray]:
    """Of a mean over environments: the difference, and each sample's variance and size.

    The variances, (2 environments,), are those that single runs add to the mean of the differences.
    """
    difference = float(np.mean([after.mean() - before.mean() for before, after in pairs]))
    samples = [sample for pair in pairs for sample in pair]
    counts = np.array([len(sample) for sample in samples])
    variances = np.array([sample.var(ddof=1) if len(sample) > 1 else NAN for sample in samples])
    return difference, variances / len(pairs) ** 2, counts


def degrees_of_freedom(variances: np.ndarray, counts: np.ndarray) -> float:
    """Satterthwaite's approximation for a sum of means with such variances and sizes."""
    shares = variances / counts
    return float(shares.sum() ** 2 / (shares**2 / (counts - 1)).sum())


def difference(pairs: list[Pair]) -> Estimate:
    """Mean over environments of the difference of means, with Welch's 95 % interval.

    With one pair that is Welch's t-test; with several, variances add up.
    """
    value, variances, counts = welch(pairs)
    if np.isnan(variances).any() or lacks_chance(pairs):
        return Estimate(value)
    error = float(np.sqrt((variances / counts).sum()))
    half = error * stats.t.ppf(0.975, degrees_of_freedom(variances, counts))
    return Estimate(value, value - half, value + half)


def seeds_needed(pairs: list[Pair]) -> int | None:
    """Seeds of each group with which this difference, if it is the true one, would be seen.

    Seen: Welch's interval leaves out zero, with probability POWER. None if that takes more than
    MOST_SEEDS, or if there is nothing to reckon with: no difference, no spread or one seed.
    """
    value, variances, counts = welch(pairs)
    if value == 0 or not variances.sum() > 0:
        return None
    for count in range(2, MOST_SEEDS + 1):
        error = np.sqrt(variances.sum() / count)
        df = degrees_of_freedom(variances, np.full_like(counts, count))
        if stats.nct.sf(stats.t.ppf(0.975, df), df, abs(value) / error) >= POWER:
            return count
    return None


def improvement(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Probability that a run of `after` beats one of `before`, a tie counting half: (1,).

    before, after: (runs, environments). It is rliable's probability_of_improvement(after, before),
    by one comparison of all pairs rather than a test for each environment: a bootstrap calls it
    thousands of times.
    """
    gaps = after[:, None] - before[None]
    return np.array([((gaps > 0) + 0.5 * (gaps == 0)).mean()])


def mean_improvement(*samples: np.ndarray) -> np.ndarray:
    """Mean of `improvement` over environments: (1,).

    samples: (runs, 1) each, of the baseline's runs in the first environment, the other group's
    there, then those of the next environment.
    """
    pairs = zip(samples[::2], samples[1::2], strict=True)
    return np.mean([improvement(before, after) for before, after in pairs], axis=0)


def bootstrap(scores: Any, function: Any) -> Estimate:
    """rliable's stratified bootstrap of a function of (runs, environments) scores.

    scores: one matrix, or a list of several that are resampled on their own. There is no interval
    if a matrix has one run only, or if the runs of an environment are alike in all of them.
    """
    matrices = scores if isinstance(scores, list) else [scores]
    single = min(len(matrix) for matrix in matrices) < 2
    if single or all((matrix == matrix[0]).all() for matrix in matrices):
        return Estimate(float(function(*matrices)[0]))
    np.random.seed(0)  # rliable resamples by numpy's global generator, whatever it is given
    points, intervals = library.get_interval_estimates({"": scores}, function, reps=RESAMPLES)
    low, high = intervals[""][:, 0]
    return Estimate(float(points[""][0]), float(low), float(high))


def interquartile_mean(matrix: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all scores: (1,)."""
    return np.array([metrics.aggregate_iqm(matrix)])


def middle_difference(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Difference of the interquartile means of two groups' (runs, environments) scores: (1,)."""
    return interquartile_mean(after) - interquartile_mean(before)


def overall_difference(scores: Scores, baseline: str, group: str, pairs: list[Pair]) -> Estimate:
    """Difference over all environments: of interquartile means on the human scale, else of means.

    pairs: the normalized scores of both groups in each environment.
    """
    if not scores.by_middle:
        return difference(pairs)
    found = bootstrap([scores.matrix(baseline), scores.matrix(group)], middle_difference)
    return Estimate(found.value) if lacks_chance(pairs) else found


def optimality_gap(matrix: np.ndarray) -> np.ndarray:
    """How far the scores, those above 1 counting as 1, are below 1 on average: (1,)."""
    return np.array([metrics.aggregate_optimality_gap(matrix)])


def shares_above(matrix: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Share of all scores above each point of a grid: (points,)."""
    ordered = np.sort(matrix, axis=None)
    return 1 - np.searchsorted(ordered, grid, side="right") / len(ordered)


def profile(matrix: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of runs above each point of a grid, (points,), and its 95 % band, (2, points).

    rliable's performance profile; its own function of the shares is a loop over the points.
    """
    np.random.seed(0)
    options: dict[str, Any] = {"custom_profile_func": shares_above, "reps": RESAMPLES}
    points, bands = library.create_performance_profile({"": matrix}, grid, **options)
    return points[""], bands[""]


def compare(scores: Scores, baseline: str, group: str) -> Comparison:
    """A group beside the baseline, in each environment and over all of them."""
    before, after = scores.raw[baseline], scores.raw[group]
    env_ids = [env_id for env_id in scores.scales if env_id in before and env_id in after]
    pairs = [
        (scores.normalized(baseline, env_id), scores.normalized(group, env_id))
        for env_id in scores.shared
    ]
    return Comparison(
        group=group,
        baseline=baseline,
        by_env={env_id: difference([(before[env_id], after[env_id])]) for env_id in env_ids},
        improvement={
            env_id: float(improvement(before[env_id][:, None], after[env_id][:, None])[0])
            for env_id in env_ids
        },
        overall=overall_difference(scores, baseline, group, pairs),
        overall_improvement=bootstrap(
            [sample[:, None] for pair in pairs for sample in pair], mean_improvement
        ),
        seeds_needed=seeds_needed(pairs),
    )


def measure_overall(
    scores: Scores, comparisons: list[Comparison]
) -> dict[str, dict[str, Estimate]]:
    """Numbers over the environments that all groups have, by measure and group."""
    baseline = comparisons[0].baseline
    matrices = {name: scores.matrix(name) for name in scores.raw}
    of_what = " of interquartile means" if scores.by_middle else ""
    return {
        "interquartile mean": {
            name: bootstrap(matrix, interquartile_mean) for name, matrix in matrices.items()
        },
        "optimality gap": {
            name: bootstrap(matrix, optimality_gap) for name, matrix in matrices.items()
        },
        f"difference{of_what} to {baseline}": {one.group: one.overall for one in comparisons},
        f"probability of improvement over {baseline}": {
            one.group: one.overall_improvement for one in comparisons
        },
    }


def lost_runs(group: Group) -> str:
    """'3 of 5 runs of B diverged'; empty if all of them have a score."""
    count = group.unfinished + group.diverged + len(all_runs(group))
    ends = ((group.diverged, "diverged"), (group.unfinished, "did not finish"))
    return " and ".join(f"{n} of {count} runs of {group.name} {end}" for n, end in ends if n)


def note_lost_runs(comparison: Comparison, baseline: Group, group: Group) -> None:
    """Tells the comparison which runs have no score.

    A group that looks better may owe that to them, and runs that are not finished may change
    everything; a group that looks worse has not become better by runs that diverged.
    """
    both = (baseline, group)
    comparison.lost = {one.name: text for one in both if (text := lost_runs(one))}
    better = group if comparison.overall.sign > 0 else baseline
    comparison.undecided = any(one.unfinished for one in both) or better.diverged > 0


def evaluate(groups: list[Group], normalize: str, steps: int | None = None) -> Results:
    """All numbers, after so many steps if given; fails if there is nothing to compare."""
    scores = collect_scores(groups, normalize, steps)
    baseline, *others = scores.raw
    comparisons = [compare(scores, baseline, group) for group in others]
    for comparison, group in zip(comparisons, groups[1:], strict=True):
        note_lost_runs(comparison, groups[0], group)
    return Results(groups, scores, comparisons, measure_overall(scores, comparisons))


# ------ the answer ------


def mean_score(scores: Scores, baseline: str, env_id: str) -> float | None:
    """The baseline's mean score, without its sign, as what differences are measured by.

    None if it is near 0 beside the scale of the scores: a small part of it would be a large
    number of per cent.
    """
    mean = abs(float(scores.raw[baseline][env_id].mean()))
    return None if mean < NEAR_ZERO * scores.scales[env_id].span else mean


def in_percent(scores: Scores, comparison: Comparison, env_id: str) -> Estimate | None:
    """The difference in % of the baseline's mean score, if that is good for it."""
    mean = mean_score(scores, comparison.baseline, env_id)
    return comparison.by_env[env_id].times(100 / mean) if mean else None


def way(scores: Scores) -> str:
    """What 100 % of the normalized scale are, in words."""
    kinds = {scale.kind for scale in scores.scales.values()}
    return WAYS[kinds.pop()] if len(kinds) == 1 else "from 0 to 1"


def unit(scores: Scores, comparison: Comparison) -> tuple[Estimate, str]:
    """The difference as the answer has it, and its unit.

    Of one environment it is in % of the baseline's score; of several in % of the normalized scale.
    These count also where not all groups have runs, for the picture shows them.
    """
    if len(scores.scales) > 1:
        return comparison.overall.times(100), f" % of the way {way(scores)}"
    env_id = scores.shared[0]
    percent = in_percent(scores, comparison, env_id)
    if percent:
        return percent, f" % of {comparison.baseline}'s mean"
    return comparison.by_env[env_id], " points"


def rounded(numbers: list[float]) -> list[str]:
    """The numbers of a sentence, with fewer decimals the larger the largest of them is."""
    largest = max(abs(number) for number in numbers)
    digits = 0 if largest >= 10 else 1 if largest >= 1 else 2
    texts = [f"{number:.{digits}f}" for number in numbers]
    return [text.removeprefix("-") if float(text) == 0 else text for text in texts]  # no -0


def some(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return ", ".join(names)


def where(scores: Scores) -> str:
    """What the difference is one of, as the answer says it: ' over 2 environments'.

    With it, after how many steps, if some runs are much longer.
    """
    after = {
        env_id: f"after {scores.steps[env_id]:,} of {scores.longest[env_id]:,} steps"
        for env_id in scores.shared
        if scores.steps[env_id] < SHORTENED * scores.longest[env_id]
    }
    if len(scores.shared) == 1:
        return "".join(f" {text}" for text in after.values())
    middle = " in the interquartile mean" if scores.by_middle else ""
    shorter = some([f"{env_id} {text}" for env_id, text in after.items()])
    return f"{middle} over {len(scores.shared)} environments" + (f" ({shorter})" if shorter else "")


def no_interval(scores: Scores, comparison: Comparison) -> str:
    """Why the difference has no interval."""
    names = (comparison.baseline, comparison.group)
    pairs = {
        env_id: (scores.raw[names[0]][env_id], scores.raw[names[1]][env_id])
        for env_id in scores.shared
    }
    single = [env_id for env_id, pair in pairs.items() if min(len(runs) for runs in pair) < 2]
    several = len(scores.shared) > 1
    if single:
        of = f" of {', '.join(single)}" if several else ""
        return f"one seed{of} gives no interval; run at least 2, better 5 or more"
    equal = [env_id for env_id, pair in pairs.items() if equal_within(pair)]
    return f"equal scores{f' in {some(equal)}' if several else ''} tell nothing about chance"


def clear_environments(comparison: Comparison) -> str:
    """'better than A in X-v0 and worse in Y-v0', by their own intervals; empty if there is none."""
    signs = {env_id: found.sign for env_id, found in comparison.by_env.items()}
    than = f" than {comparison.baseline}"
    parts = []
    for sign, word in ((1, "better"), (-1, "worse")):
        if names := [env_id for env_id in signs if signs[env_id] == sign]:
            parts.append(f"{word}{than} in {some(names)}")
            than = ""
    return " and ".join(parts)


def advice(scores: Scores, comparison: Comparison) -> str:
    """How many seeds would show the difference; it is reckoned for differences of means alone."""
    if scores.by_middle:
        return ""
    if comparison.seeds_needed:
        how_many = f"about {comparison.seeds_needed} fresh seeds of each would show it"
    else:
        how_many = f"more than {MOST_SEEDS} seeds of each would be needed to show it"
    return f"; if that is the true difference, {how_many}"


def verdict(scores: Scores, comparison: Comparison) -> str:
    """What the scores say of the group and the baseline."""
    group, baseline = comparison.group, comparison.baseline
    found, words = unit(scores, comparison)
    place = where(scores)
    probability = f"probability of improvement {comparison.overall_improvement.value:.2f}"
    if not found.has_interval:
        (size,) = rounded([abs(found.value)])
        more = "higher" if found.value > 0 else "lower"
        scored = f"{more} by {size}{words}" if found.value else "the same"
        return (
            f"{group} and {baseline} cannot be told apart yet: {group} scored {scored}"
            f"{place}, but {no_interval(scores, comparison)}."
        )
    if found.sign:
        better = "better" if found.sign > 0 else "worse"
        size, low, high = rounded([abs(found.value), *sorted([abs(found.low), abs(found.high)])])
        interval = f" (95 %: {low} to {high})"
        if comparison.undecided:
            return (
                f"{group} and {baseline} cannot be told apart, though the runs of {group} that "
                f"have a score are {better} by {size}{words}{interval}{place}."
            )
        return (
            f"{group} is {better} than {baseline} by {size}{words}{interval}{place}, {probability}."
        )
    size, low, high = rounded([found.value, found.low, found.high])
    interval = f"{size}{words} (95 %: {low} to {high}){place}, {probability}"
    apart = f"{group} and {baseline} cannot be told apart"
    if clear := clear_environments(comparison):
        begin = f"{group} is {clear}"
        if comparison.lost:
            begin = f"{apart}, though the runs of {group} that have a score are {clear}"
        return f"{begin}; over all undecided, a difference of {interval}."
    return f"{apart}: a difference of {interval}{advice(scores, comparison)}."


def sentence(scores: Scores, comparison: Comparison) -> str:
    """The answer to: is the group better than the baseline?"""
    answer = verdict(scores, comparison)
    if not comparison.lost:
        return answer
    return f"{answer.removesuffix('.')}; {' and '.join(comparison.lost.values())}."
