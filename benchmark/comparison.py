"""What groups of runs say about each other: their scores, the statistics, the answer in words.

Part of compare.py.
"""

import csv
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import runs as run_folders
from console import fail, warn
from rliable import library, metrics
from runs import SAME_STEPS, Run
from scipy import stats
from stats import ALPHA, beyond_chance, degrees_of_freedom, variance, weighted_sum

ATARI_SCORES = Path(__file__).with_name("atari_human_scores.csv")
RESAMPLES = 2000  # of a bootstrap
PERMUTATIONS = 10_000  # of a permutation test at most
NEAR_ZERO = 0.1  # of a scale's span; differences are not told in % of less
NEGLIGIBLE = 0.01  # of the larger score; runs that differ by less are as good as each other
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
NO_SCORE = "no score"
# What became of runs without a score, as the answer says it.
ENDS = {
    run_folders.DIVERGED: "diverged",
    run_folders.UNFINISHED: "did not finish",
    run_folders.NO_EPISODE: "ended no episode",
    run_folders.DAMAGED: "left damaged event files",
    run_folders.UNREADABLE: "could not be read",
    NO_SCORE: "had no score by then",
}


@dataclass
class Group:
    """The runs of a folder."""

    name: str
    by_env: dict[str, list[Run]]
    remarks: list[str] = field(default_factory=list)  # what the reader has to be told
    # What became of the runs that are not in by_env, a key of ENDS for each, by environment.
    lost: dict[str, list[str]] = field(default_factory=dict)
    metric: str = ""  # that --metric has named for it


@dataclass(frozen=True)
class Scale:
    """What is 0 and what is 1 in an environment."""

    low: float
    high: float
    kind: str  # human, range or file
    alike: bool = False  # whether the runs differ by too little for a verdict

    @property
    def span(self) -> float:
        """From 0 to 1, in the environment's own scores."""
        return self.high - self.low

    def normalize(self, scores: np.ndarray) -> np.ndarray:
        """(n,) -> (n,)."""
        return (scores - self.low) / self.span


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval and the p-value of a test against 0.

    The last three are NaN where one seed or equal scores give none.
    """

    value: float
    low: float = NAN
    high: float = NAN
    p: float = NAN

    @property
    def has_interval(self) -> bool:
        """Whether there is one."""
        return not np.isnan(self.low)

    @property
    def sign(self) -> int:
        """1 or -1 if the test finds it above or below zero, 0 if not or if there is no test."""
        return int(np.sign(self.value)) if self.p < ALPHA else 0

    def times(self, factor: float) -> "Estimate":
        """Number and interval in another unit; the factor must be positive."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.p)

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
        kinds = {self.scales[env_id].kind for env_id in self.shared}
        return kinds == {"human"} and len(self.shared) > 1

    @property
    def all_alike(self) -> bool:
        """Whether the runs differ by too little for a verdict in all environments."""
        return all(self.scales[env_id].alike for env_id in self.shared)

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
    identical: int = 0  # runs of each group, if all of them are the same, episode by episode
    # Environments whose own intervals leave out zero: those that Holm's correction over all
    # environments and comparisons leaves, and those that may be chance.
    clear: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    tests: int = 0  # that were corrected for


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
    """From the worst to the best of all runs.

    Runs that differ by next to nothing are all about as good as the best: from the worst of them to
    the best, noise would be as large as learning is elsewhere.

    scores: (runs,).
    """
    low, high = float(scores.min()), float(scores.max())
    size = max(abs(low), abs(high))
    if high - low < NEGLIGIBLE * size or low == high:
        return Scale(high - (size or 1.0), high, "range", alike=True)
    return Scale(low, high, "range")


def choose_scales(
    normalize: str, scores: dict[str, np.ndarray], shared: list[str]
) -> dict[str, Scale]:
    """What is 0 and 1 in each environment, from --normalize and the scores of all its runs.

    By default it is one kind of scale for all shared environments: a mean of parts of the way to
    human play and of the way to the best run would say nothing.
    """
    games = read_atari_scales()
    human = {env_id: games[game] for env_id in scores if (game := atari_game(env_id)) in games}
    seen = {env_id: seen_scale(runs) for env_id, runs in scores.items()}
    all_human = all(env_id in human for env_id in shared)
    if normalize == "range" or (normalize == "auto" and not all_human):
        return seen
    if normalize == "auto":
        chosen = seen | human
    elif normalize == "human":
        chosen = human
    elif Path(normalize).is_file():
        chosen = read_scales_file(Path(normalize))
    else:
        fail(f"--normalize {normalize}: neither auto, human or range nor a file that is there")
    missing = [env_id for env_id in scores if env_id not in chosen]
    if missing:
        fail(f"--normalize {normalize} knows nothing of {', '.join(missing)}")
    return {env_id: replace(chosen[env_id], alike=seen[env_id].alike) for env_id in scores}


def steps_to_compare(runs: list[Run], wanted: int | None, remarks: list[str]) -> int:
    """Where the shortest of an environment's runs ended, or before: there all are compared.

    Fails if that is before the steps wanted, by more than a last rollout that was left out.
    """
    shortest = min(runs, key=lambda run: run.total_steps)
    if wanted is not None:
        if shortest.total_steps < (1 - SAME_STEPS) * wanted:
            fail(f"--steps {wanted}: {shortest.folder} ended after {shortest.total_steps}")
        return min(wanted, shortest.total_steps)
    longest = max(run.total_steps for run in runs)
    if longest > (1 + SAME_STEPS) * shortest.total_steps:
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
    scales = choose_scales(normalize, pooled, shared)
    for env_id, scale in scales.items():
        if scale.alike and np.ptp(pooled[env_id]) > 0:
            remarks.append(
                f"The scores of {env_id} differ by less than {100 * NEGLIGIBLE:.0f} %: too little "
                "for a verdict there."
            )
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


def mean_difference(pairs: list[Pair]) -> float:
    """Mean over environments of the difference of means."""
    return float(np.mean([after.mean() - before.mean() for before, after in pairs]))


def difference(pairs: list[Pair]) -> Estimate:
    """Mean over environments of the difference of means, with Welch's 95 % interval and test.

    With one pair that is Welch's t-test; with several, variances add up.
    """
    if lacks_chance(pairs):
        return Estimate(mean_difference(pairs))
    samples = [sample for pair in pairs for sample in pair]
    weights = [sign / len(pairs) for _ in pairs for sign in (-1, 1)]
    found = weighted_sum(samples, weights)
    return Estimate(found.value, *found.interval, found.p_value)


def seeds_needed(pairs: list[Pair]) -> int | None:
    """Seeds of each group with which this difference, if it is the true one, would be seen.

    Seen: Welch's interval leaves out zero, with probability POWER. None if that takes more than
    MOST_SEEDS, or if there is nothing to reckon with: no difference, no spread or one seed.
    """
    value = mean_difference(pairs)
    samples = [sample for pair in pairs for sample in pair]
    variances = np.array([variance(sample) for sample in samples]) / len(pairs) ** 2
    if value == 0 or not variances.sum() > 0:
        return None
    for count in range(2, MOST_SEEDS + 1):
        error = np.sqrt(variances.sum() / count)
        df = degrees_of_freedom(variances, np.full(len(samples), count))
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
    if a matrix has one run only, or if all resamples give the same: "1.00 to 1.00" from three seeds
    would claim to know what is not known.
    """
    matrices = scores if isinstance(scores, list) else [scores]
    if min(len(matrix) for matrix in matrices) < 2:
        return Estimate(float(function(*matrices)[0]))
    np.random.seed(0)  # rliable resamples by numpy's global generator, whatever it is given
    points, intervals = library.get_interval_estimates({"": scores}, function, reps=RESAMPLES)
    value = float(points[""][0])
    low, high = (float(end) for end in intervals[""][:, 0])
    return Estimate(value) if math.isclose(low, high, abs_tol=1e-12) else Estimate(value, low, high)


def interquartile_mean(matrix: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all scores: (1,)."""
    return np.array([metrics.aggregate_iqm(matrix)])


def middle_difference(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Difference of the interquartile means of two groups' (runs, environments) scores: (1,)."""
    return interquartile_mean(after) - interquartile_mean(before)


def orders_of_runs(environments: int, runs: int, count: int) -> np.ndarray:
    """Ways to call `count` of each environment's runs the baseline's: places of runs.

    (ways, environments, runs), the baseline's first. All ways, if there are not too many; else some
    that are drawn, and the one that was observed.
    """
    if math.comb(runs, count) ** environments > PERMUTATIONS:
        observed = np.tile(np.arange(runs), (PERMUTATIONS, environments, 1))
        orders = np.random.default_rng(0).permuted(observed, axis=-1)
        orders[0] = observed[0]
        return orders
    ways = [
        [*chosen, *(place for place in range(runs) if place not in chosen)]
        for chosen in itertools.combinations(range(runs), count)
    ]
    return np.array(list(itertools.product(ways, repeat=environments)))


def permutation_p_value(before: np.ndarray, after: np.ndarray) -> float:
    """Of the difference of two groups' interquartile means, by a stratified permutation test.

    If an edit does nothing, any runs of an environment might as well be the other group's: p is the
    share of such exchanges, within each environment, that give a difference of at least this size.

    before, after: (runs, environments).
    """
    count = len(before)
    pooled = np.concatenate([before, after]).T
    environments, runs = pooled.shape
    orders = orders_of_runs(environments, runs, count)
    exchanged = np.take_along_axis(pooled[None], orders, axis=-1)
    # rliable's interquartile mean is this one, of a single matrix.
    middles = [
        stats.trim_mean(part.reshape(len(orders), -1), 0.25, axis=1)
        for part in (exchanged[..., :count], exchanged[..., count:])
    ]
    sizes = np.abs(middles[1] - middles[0])
    observed = abs(middle_difference(before, after)[0])
    return float(np.mean((sizes > observed) | np.isclose(sizes, observed)))


def overall_difference(scores: Scores, baseline: str, group: str, pairs: list[Pair]) -> Estimate:
    """Difference over all environments: of interquartile means on the human scale, else of means.

    The test of interquartile means is one of permutations: with two seeds, intervals by resampling
    leave out zero three times as often as they should.

    pairs: the normalized scores of both groups in each environment.
    """
    if not scores.by_middle:
        return difference(pairs)
    before, after = scores.matrix(baseline), scores.matrix(group)
    found = bootstrap([before, after], middle_difference)
    if lacks_chance(pairs) or not found.has_interval:
        return Estimate(found.value)
    return Estimate(found.value, found.low, found.high, permutation_p_value(before, after))


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


def environments_of(group: Group) -> set[str]:
    """Where it has runs, with a score or without."""
    return group.by_env.keys() | group.lost.keys()


def ends_of_runs(scores: Scores, group: Group, env_ids: set[str]) -> Counter[str]:
    """How many runs of the group in these environments have no score, by what became of them."""
    ends = Counter(why for env_id in env_ids for why in group.lost.get(env_id, []))
    for env_id in env_ids:
        scored = len(scores.seeds[group.name].get(env_id, []))
        ends[NO_SCORE] += len(group.by_env.get(env_id, [])) - scored
    return +ends


def note_lost_runs(scores: Scores, comparison: Comparison, baseline: Group, group: Group) -> None:
    """Tells the comparison which runs have no score where both groups have runs.

    A group that looks better may owe that to them, and runs of which it is not known how they would
    have ended may change everything; a group that looks worse has not become better by runs that
    diverged.
    """
    both = (baseline, group)
    env_ids = environments_of(baseline) & environments_of(group)
    ends = {one.name: ends_of_runs(scores, one, env_ids) for one in both}
    for one in both:
        scored = sum(len(scores.seeds[one.name].get(env_id, [])) for env_id in env_ids)
        count = scored + ends[one.name].total()
        texts = [
            f"{ends[one.name][why]} of {count} runs of {one.name} {end}"
            for why, end in ENDS.items()
            if ends[one.name][why]
        ]
        if texts:
            comparison.lost[one.name] = " and ".join(texts)
    better = group if comparison.overall.sign > 0 else baseline
    unknown = any(of.keys() - {run_folders.DIVERGED} for of in ends.values())
    comparison.undecided = unknown or ends[better.name][run_folders.DIVERGED] > 0


def same_episodes(one: Run, other: Run) -> bool:
    """Whether two runs are the same to the last digit of the last episode."""
    steps = np.array_equal(one.steps, other.steps)
    return steps and np.array_equal(one.scores, other.scores)


def identical_runs(shared: list[str], baseline: Group, group: Group) -> int:
    """How many runs each of two groups has, if seed by seed they are the same; else 0."""
    count = 0
    for env_id in shared:
        before = {run.seed: run for run in baseline.by_env[env_id]}
        after = {run.seed: run for run in group.by_env[env_id]}
        if before.keys() != after.keys():
            return 0
        if not all(same_episodes(before[seed], after[seed]) for seed in before):
            return 0
        count += len(before)
    return count


def note_clear_environments(scores: Scores, comparisons: list[Comparison]) -> None:
    """Tells the comparisons in which environments alone a group is better or worse.

    By Holm's correction over all of them: of twenty environments without an effect, one has an
    interval without zero.
    """
    tests = [
        (comparison, env_id)
        for comparison in comparisons
        for env_id, found in comparison.by_env.items()
        if not (math.isnan(found.p) or scores.scales[env_id].alike)
    ]
    beyond = beyond_chance([one.by_env[env_id].p for one, env_id in tests])
    for place, (comparison, env_id) in enumerate(tests):
        comparison.tests = len(tests)
        if comparison.by_env[env_id].sign:
            (comparison.clear if place in beyond else comparison.unclear).append(env_id)


def evaluate(groups: list[Group], normalize: str, steps: int | None = None) -> Results:
    """All numbers, after so many steps if given; fails if there is nothing to compare."""
    scores = collect_scores(groups, normalize, steps)
    baseline, *others = scores.raw
    comparisons = [compare(scores, baseline, group) for group in others]
    for comparison, group in zip(comparisons, groups[1:], strict=True):
        note_lost_runs(scores, comparison, groups[0], group)
        comparison.identical = identical_runs(scores.shared, groups[0], group)
    note_clear_environments(scores, comparisons)
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
    of = f" in {some(equal)}" if several and equal else ""
    return f"equal scores{of} tell nothing about chance"


def better_or_worse(comparison: Comparison, env_ids: list[str], than: str = "") -> str:
    """'better than A in X-v0 and worse in Y-v0', of these environments; empty if there is none."""
    parts = []
    for sign, word in ((1, "better"), (-1, "worse")):
        names = [env_id for env_id in env_ids if comparison.by_env[env_id].sign == sign]
        if names:
            parts.append(f"{word}{than} in {some(names)}")
            than = ""
    return " and ".join(parts)


def opposite(comparison: Comparison) -> str:
    """'; worse in X-v0', of environments that are clearly otherwise than the overall difference."""
    sign = -comparison.overall.sign
    names = [env_id for env_id in comparison.clear if comparison.by_env[env_id].sign == sign]
    found = better_or_worse(comparison, names)
    return f"; {found}" if found else ""


def perhaps(comparison: Comparison) -> str:
    """'; worse in X-v0 ..., which may be chance', where Holm's correction leaves no difference."""
    found = better_or_worse(comparison, comparison.unclear)
    if not found:
        return ""
    chance = f"which may be chance among {comparison.tests} such intervals"
    return f"; {found} by the interval there, {chance}"


def advice(scores: Scores, comparison: Comparison) -> str:
    """How many seeds would show the difference; it is reckoned for differences of means alone."""
    if scores.by_middle or scores.all_alike or comparison.overall.value == 0:
        return ""
    if comparison.seeds_needed:
        how_many = f"about {comparison.seeds_needed} fresh seeds of each would show it"
    else:
        how_many = f"more than {MOST_SEEDS} seeds of each would be needed to show it"
    return f"; if that is the true difference, {how_many}"


def interval_text(scores: Scores, comparison: Comparison, low: str, high: str) -> str:
    """'(95 %: 7 to 17)'; of interquartile means with the test that decides."""
    if not scores.by_middle:
        return f"(95 %: {low} to {high})"
    p = comparison.overall.p
    return f"(permutation test: p = {p:.2g}; 95 % by resampling: {low} to {high})"


def without_interval(scores: Scores, comparison: Comparison) -> str:
    """What is said of a difference of which nothing is known but its size."""
    group, baseline = comparison.group, comparison.baseline
    found, words = unit(scores, comparison)
    (size,) = rounded([abs(found.value)])
    more = "higher" if found.value > 0 else "lower"
    scored = f"{more} by {size}{words}" if found.value else "the same"
    return (
        f"{group} and {baseline} cannot be told apart yet: {group} scored {scored}"
        f"{where(scores)}, but {no_interval(scores, comparison)}."
    )


def clear_difference(scores: Scores, comparison: Comparison) -> str:
    """What is said of a difference that is beyond chance."""
    group, baseline = comparison.group, comparison.baseline
    found, words = unit(scores, comparison)
    better = "better" if found.sign > 0 else "worse"
    ends = [found.low, found.high] if found.sign > 0 else [-found.high, -found.low]
    size, low, high = rounded([abs(found.value), *ends])
    interval = f"{interval_text(scores, comparison, low, high)}{where(scores)}"
    by = f"by {size}{words} {interval}"
    but = opposite(comparison)
    if comparison.undecided:
        return (
            f"{group} and {baseline} cannot be told apart, though the runs of {group} that "
            f"have a score are {better} {by}{but}."
        )
    probability = f"probability of improvement {comparison.overall_improvement.value:.2f}"
    return f"{group} is {better} than {baseline} {by}, {probability}{but}."


def unclear_difference(scores: Scores, comparison: Comparison) -> str:
    """What is said of a difference that may be chance."""
    group, baseline = comparison.group, comparison.baseline
    found, words = unit(scores, comparison)
    size, low, high = rounded([found.value, found.low, found.high])
    probability = f"probability of improvement {comparison.overall_improvement.value:.2f}"
    interval = f"{interval_text(scores, comparison, low, high)}{where(scores)}, {probability}"
    text = f"a difference of {size}{words} {interval}{perhaps(comparison)}"
    clear = better_or_worse(comparison, comparison.clear, f" than {baseline}")
    apart = f"{group} and {baseline} cannot be told apart"
    if clear and comparison.lost:
        begin = f"{apart}, though the runs of {group} that have a score are {clear}"
        return f"{begin}; over all undecided, {text}."
    if clear:
        return f"{group} is {clear}; over all undecided, {text}."
    return f"{apart}: {text}{advice(scores, comparison)}."


def verdict(scores: Scores, comparison: Comparison) -> str:
    """What the scores say of the group and the baseline."""
    apart = f"{comparison.group} and {comparison.baseline} cannot be told apart"
    if comparison.identical:
        runs = (
            f"all {comparison.identical} runs have" if comparison.identical > 1 else "the run has"
        )
        same = f"{runs} exactly the same scores, episode by episode"
        return f"{apart}: {same}; the edit changes nothing here."
    if not comparison.overall.has_interval:
        return without_interval(scores, comparison)
    if comparison.overall.sign and scores.all_alike:
        return f"{apart}: their scores differ by less than {100 * NEGLIGIBLE:.0f} %{where(scores)}."
    if comparison.overall.sign:
        return clear_difference(scores, comparison)
    return unclear_difference(scores, comparison)


def sentence(scores: Scores, comparison: Comparison) -> str:
    """The answer to: is the group better than the baseline?"""
    answer = verdict(scores, comparison)
    if not comparison.lost:
        return answer
    return f"{answer.removesuffix('.')}; {' and '.join(comparison.lost.values())}."
