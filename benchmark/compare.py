"""Did an edit help? Two or more groups of runs: a verdict, a table, a picture.

    uv run benchmark/compare.py before=runs/before after=runs/after
    uv run benchmark/compare.py "CleanRL=~/cleanrl/runs" ppo.py=runs/ours --out results/cleanrl
    uv run benchmark/compare.py before='runs/*__ppo__*' after='runs/*__mine__*' --steps 100000

Each group is compared with the first one. A group is a folder with the runs of one script and one
set of flags, or a pattern of run folders; ours or another program's TensorBoard runs. More is
better. The verdict is one of five: better, worse, undecided (the difference may be chance),
undecided because runs were lost, identical. Writes compare.md, .png and .csv, and the scores of
each run to compare_scores.csv. Exit codes: 0 done, whatever the verdict; 2 bad input or nothing to
compare.
"""

import math
import re
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro
from common import fail, read_args, say, seeds, warn
from plot import (
    COLORS,
    LOOK,
    PANELS_A_ROW,
    add_legend,
    draw_seeds,
    finish_panel,
    legend_of_groups,
    light_grid,
    plt,
    read_named,
    save,
)
from runs import (
    RETURNS,
    SAME_STEPS,
    WINDOW,
    Run,
    RunKey,
    remarks_on,
    runs_by_env,
    score_table,
)
from scipy import stats
from stats import Estimate, beyond_chance, short_number, weighted_sum

ATARI_SCORES = Path(__file__).with_name("atari_human_scores.csv")
PERMUTATIONS = 10_000  # of a permutation test


@dataclass
class Args:
    # NAME=FOLDER or NAME=PATTERN of run folders, two or more; first the baseline
    groups: tyro.conf.Positional[tuple[str, ...]]
    out: Path = Path("results")  # where the files are written
    name: str = "compare"  # their name
    steps: int | None = None  # after which scores are compared; if not given, the shortest run's
    # TensorBoard name of an episode's score; the script's if not given. If it ends in _mean, the
    # last point is the score
    metric: str | None = None


@dataclass
class Group:
    """The runs of a folder. scores: (runs,) by environment, after as many steps in all groups."""

    name: str
    by_env: dict[str, list[Run]]
    lost: dict[RunKey, str]  # runs without a score, and why
    remarks: list[str]  # what the reader has to be told
    scores: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """Those of all environments."""
        return [run for runs in self.by_env.values() for run in runs]


@dataclass
class Comparison:
    """A group beside the baseline."""

    group: Group
    by_env: dict[str, Estimate]  # difference of the mean scores
    middles: tuple[float, float]  # normalized scores over the environments: baseline's, group's
    overall: Estimate  # their difference
    lost: list[str]  # runs of either group: "A X-v0 seed 3: not finished"
    identical: bool  # whether all runs are the same, episode by episode
    # By Holm's correction: over the groups, and over the environments of all groups.
    significant: bool = False  # the overall difference
    significant_in: list[str] = field(default_factory=list)  # environments

    @property
    def verdict(self) -> str:
        """One of five."""
        if self.lost:
            return f"undecided: runs were lost ({', '.join(self.lost)})"
        if self.identical:
            return "identical: every episode is the same, the edit changes nothing here"
        if self.significant:
            return "better" if self.overall.value > 0 else "worse"
        return "undecided: the difference may be chance"


# ------ reading ------
def read_groups(args: Args) -> list[Group]:
    """The runs of each group; fails if there are not two groups with runs."""
    if len(args.groups) < 2:
        fail("give two groups or more, each as NAME=FOLDER")
    groups = []
    for name, found in read_named(args.groups, args.metric).items():
        remarks = [f"{name}: {remark}" for remark in remarks_on(found)]
        groups.append(Group(name, runs_by_env(found), found.lost, remarks))
    return groups


def take_scores(groups: list[Group], wanted: int | None) -> dict[str, int]:
    """Set each group's scores; returns by environment the steps after which they were taken.

    These are the steps wanted, or of the shortest run. Environments that a group lacks are left
    out. Fails if none is left, or if a run is shorter than wanted.
    """
    steps = {}
    for env_id in dict.fromkeys(env_id for group in groups for env_id in group.by_env):
        if not all(env_id in group.by_env for group in groups):
            warn(f"{env_id} is left out: not all groups have runs of it")
            continue
        lengths = [run.total_steps for group in groups for run in group.by_env[env_id]]
        if wanted and min(lengths) < (1 - SAME_STEPS) * wanted:
            fail(f"--steps {wanted}: a run of {env_id} ended after {min(lengths)}")
        steps[env_id] = min(wanted or min(lengths), min(lengths))
        if max(lengths) > (1 + SAME_STEPS) * steps[env_id] and not wanted:
            warn(f"{env_id} is compared after {steps[env_id]:,} steps, where its shortest run ends")
        for group in groups:
            runs = group.by_env[env_id]
            group.scores[env_id] = np.array([run.score_after(steps[env_id]) for run in runs])
            if not np.isfinite(group.scores[env_id]).all():
                fail(f"{group.name}: a run of {env_id} has no score after {steps[env_id]:,} steps")
    if not steps:
        fail("no environment has runs of all groups")
    return steps


# ------ numbers ------
def atari_game(env_id: str) -> str:
    """The game of Gymnasium's, EnvPool's or the old Gym's environment: Breakout."""
    return re.sub(r"^ALE[/-]|(NoFrameskip|Deterministic)?-v\d+$", "", env_id)


def scales(groups: list[Group], metric: str | None) -> tuple[str, dict[str, tuple[float, float]]]:
    """What lies between 0 and 1, in words, and what is 0 and 1 in each environment.

    Random and human play if all are returns in Atari games, else the worst and the best run.
    """
    table = pd.read_csv(ATARI_SCORES).set_index("game")
    games = {env_id: atari_game(env_id) for env_id in groups[0].scores}
    if metric in (None, *RETURNS) and all(game in table.index for game in games.values()):
        ends = {env: (table.random[game], table.human[game]) for env, game in games.items()}
        return "from random to human play", ends
    ends = {}
    for env_id in games:
        scores = np.concatenate([group.scores[env_id] for group in groups])
        low, high = scores.min(), scores.max()
        ends[env_id] = (low, high if high > low else low + 1)
    return "from the worst to the best run", ends


def permutation_p_value(before: np.ndarray, after: np.ndarray) -> float:
    """Of the difference of two groups' interquartile means: (runs, environments) each.

    If an edit does nothing, any runs of an environment might as well be the other group's: p is the
    share of exchanges within environments that give a difference of at least this size. (Intervals
    by resampling of two seeds leave out zero three times as often as they should.)
    """
    pooled = np.concatenate([before, after])
    orders = np.random.default_rng(0).permuted(np.tile(pooled, (PERMUTATIONS, 1, 1)), axis=1)
    orders[0] = pooled  # the observed one
    count = len(before)
    middles = [
        stats.trim_mean(part.reshape(PERMUTATIONS, -1), 0.25, axis=1)
        for part in (orders[:, :count], orders[:, count:])
    ]
    sizes = np.abs(middles[1] - middles[0])
    return float(np.mean(sizes >= sizes[0] - 1e-12))


def compare(baseline: Group, group: Group, way: str, ends: dict[str, Any]) -> Comparison:
    """A group beside the baseline, in each environment and over all of them.

    On the human scale the overall difference is one of interquartile means: a single game may
    outweigh all others. It uses only the first runs of an environment that has more than others.
    """
    normal = [normalized(one, ends) for one in (baseline, group)]
    if "human" in way and len(ends) > 1:
        before, after = (matrix_of(scores) for scores in normal)
        theirs, own = (float(stats.trim_mean(part, 0.25, axis=None)) for part in (before, after))
        overall = Estimate(own - theirs, p=permutation_p_value(before, after))
    else:
        share = 1 / len(ends)
        samples = [scores[env_id] for env_id in ends for scores in normal]
        overall = weighted_sum(samples, [-share, share] * len(ends))
        theirs, own = (float(np.mean([x.mean() for x in one.values()])) for one in normal)
    runs = [[run for env in ends for run in one.by_env[env]] for one in (baseline, group)]
    return Comparison(
        group=group,
        by_env={
            env: weighted_sum([baseline.scores[env], group.scores[env]], [-1, 1]) for env in ends
        },
        middles=(theirs, own),
        overall=overall,
        lost=lost_runs(baseline, group),
        identical=same_runs(runs[0], runs[1]),
    )


def lost_runs(baseline: Group, group: Group) -> list[str]:
    """Runs without a score, in environments in which one of the two groups has a score."""
    return [
        f"{one.name} {key.env_id} seed {key.seed}: {why}"
        for one in (baseline, group)
        for key, why in one.lost.items()
        if key.env_id in baseline.by_env | group.by_env
    ]


def normalized(group: Group, ends: dict[str, tuple[float, float]]) -> dict[str, np.ndarray]:
    """A group's scores with what is 0 and 1 in each environment at 0 and 1."""
    return {
        env_id: (group.scores[env_id] - low) / (high - low) for env_id, (low, high) in ends.items()
    }


def matrix_of(scores: dict[str, np.ndarray]) -> np.ndarray:
    """(runs, environments); of each environment as many runs as the one with the fewest has."""
    count = min(len(runs) for runs in scores.values())
    return np.stack([runs[:count] for runs in scores.values()], axis=1)


def same_runs(before: list[Run], after: list[Run]) -> bool:
    """Whether two groups have the same seeds and, episode by episode, the same scores.

    Episodes that are all alike, as before anything has been learned, prove nothing.
    """
    return (
        [run.seed for run in before] == [run.seed for run in after]
        and all(np.array_equal(a.scores, b.scores) for a, b in zip(before, after, strict=True))
        and any(np.ptp(run.scores) > 0 for run in before)
    )


def correct_for_many_tests(comparisons: list[Comparison]) -> None:
    """Note which differences are significant, by Holm's correction.

    Of twenty environments without an effect, one has an interval without zero.
    """
    for place in beyond_chance([one.overall.p for one in comparisons]):
        comparisons[place].significant = True
    tests = [(one, env_id) for one in comparisons for env_id in one.by_env]
    for place in beyond_chance([one.by_env[env_id].p for one, env_id in tests]):
        one, env_id = tests[place]
        one.significant_in.append(env_id)


# ------ the tables ------
def text_of(estimate: Estimate, form: str = "+.2f") -> str:
    """'+3.20 (-5.10 to +11.50)', or the number alone."""
    value, low, high, _ = estimate
    return f"{value:{form}}" + ("" if np.isnan(low) else f" ({low:{form}} to {high:{form}})")


def headline(baseline: Group, comparison: Comparison, way: str) -> str:
    """The verdict and the number that it rests on: of one environment in its own points."""
    verdict = f"{comparison.group.name} beside {baseline.name}: {comparison.verdict}."
    count = len(comparison.by_env)
    number = f"{text_of(comparison.overall, '+.0%')} of the way {way}, {count} environments"
    if count == 1:
        ((env_id, found),) = comparison.by_env.items()
        number = f"{text_of(found, '+.4g')} points in {env_id}"
    p = comparison.overall.p
    alone = ", no interval: a single run, or runs that are all alike"
    test = alone if math.isnan(p) else f", p = {p:.2g}"
    return f"{verdict} {number}{test}."


def settings_text(group: Group, name: str) -> str:
    """The values that a flag has in a group's runs."""
    return ", ".join(sorted({str(run.settings.get(name)) for run in group.runs}))


def what_differs(baseline: Group, group: Group) -> str:
    """Flags and scripts in which a group's runs differ from the baseline's."""
    first, other = (next(iter(one.by_env.values()))[0] for one in (baseline, group))
    if not (first.provenance.versions and other.provenance.versions):  # another program's runs
        return f"What {group.name} does otherwise than {baseline.name} is not recorded."
    changes = [
        f"`{name}` {settings_text(baseline, name)} → {settings_text(group, name)}"
        for name in first.settings | other.settings
        if name not in ("env_id", "exp_name")
        and settings_text(baseline, name) != settings_text(group, name)
    ]
    for what in ("script_hash", "versions", "hardware"):
        before, after = (
            " and ".join(sorted({getattr(run.provenance, what) for run in one.runs}))
            for one in (baseline, group)
        )
        if before != after:
            changes.append(f"{what.replace('_', ' ')} {before} → {after}")
    if not changes:
        return f"{group.name} has the script, flags and packages of {baseline.name}."
    return f"{group.name} beside {baseline.name}: {'; '.join(changes)}."


def numbers_of(estimate: Estimate, significant: bool) -> dict[str, Any]:
    """The columns of a row that compare a group with the baseline."""
    return {
        "difference": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "significant": "yes" if significant else "no",
    }


def scores_table(
    groups: list[Group], comparisons: list[Comparison], steps: dict[str, int]
) -> pd.DataFrame:
    """A row for each group in each environment, and over all of them."""
    rows: list[dict[str, Any]] = []
    for env_id in steps:
        for group, one in zip(groups, [None, *comparisons], strict=True):
            scores = group.scores[env_id]
            row = {"env_id": env_id, "group": group.name, "steps": steps[env_id]}
            row |= {"seeds": len(scores), "mean": scores.mean(), "std": pd.Series(scores).std()}
            if one:
                row |= numbers_of(one.by_env[env_id], env_id in one.significant_in)
            rows.append(row)
    if len(steps) > 1:
        label = f"all {len(steps)}, normalized"
        rows.append({"env_id": label, "group": groups[0].name, "mean": comparisons[0].middles[0]})
        for one in comparisons:
            row = {"env_id": label, "group": one.group.name, "mean": one.middles[1]}
            rows.append(row | numbers_of(one.overall, one.significant))
    return pd.DataFrame(rows).astype({"steps": "Int64", "seeds": "Int64"})


def table_line(row: Any, baseline: str) -> str:
    """A row of `scores_table` in Markdown; the environment stands beside the baseline alone."""
    score = f"{row.mean:.2f}"
    if not pd.isna(row.std):
        score += f" ± {row.std:.2f}"
    title = row.env_id
    if not pd.isna(row.steps):
        title += f", {short_number(row.steps)} steps"
        score += f" ({seeds(row.seeds)})"
    if row.group == baseline:
        return f"| {title} | {baseline} | {score} | | |"
    difference = text_of(Estimate(row.difference, row.low, row.high))
    return f"| | {row.group} | {score} | {difference} | {row.significant} |"


def report(
    groups: list[Group], comparisons: list[Comparison], scores: pd.DataFrame, way: str
) -> str:
    """The verdicts and the table, in Markdown."""
    baseline = groups[0]
    lines = [
        *(f"{headline(baseline, one, way)}\n" for one in comparisons),
        f"| environment | group | score | difference to {baseline.name} (95 %) | significant |",
        "|---|---|---:|---:|---|",
        *(table_line(row, baseline.name) for row in scores.itertuples()),
        "",
        *(what_differs(baseline, group) for group in groups[1:]),
        "",
        f"Score of a run: mean of the last {WINDOW} training episodes. Difference: of mean scores, "
        "with Welch's interval; significant: by Holm's correction over the environments. Over all "
        f"environments scores are normalized: 0 to 1 is {way}. On the human scale the score is "
        "the interquartile mean of as many seeds as all environments have, tested by permutations, "
        "else the mean, the variances of the environments added up.",
        *(remark for group in groups for remark in group.remarks),
    ]
    return "\n".join(lines) + "\n"


# ------ the picture ------
def draw_differences(axes: plt.Axes, comparisons: list[Comparison], ends: dict[str, Any]) -> None:
    """For each environment the differences to the baseline with their intervals, normalized."""
    labels = [*ends, f"all {len(ends)}"] if len(ends) > 1 else list(ends)
    for number, one in enumerate(comparisons):
        color = COLORS[(number + 1) % len(COLORS)]
        found = [(one.by_env[env_id], high - low) for env_id, (low, high) in ends.items()]
        found += [(one.overall, 1.0)] if len(ends) > 1 else []
        for y, (estimate, span) in enumerate(found):
            height = y + 0.3 * ((number + 0.5) / len(comparisons) - 0.5)
            percent = 100 / span
            if not np.isnan(estimate.low):
                interval = [estimate.low * percent, estimate.high * percent]
                axes.plot(interval, [height, height], color=color, linewidth=2.2, alpha=0.75)
            axes.plot(estimate.value * percent, height, "o", color=color, markersize=6)
    axes.axvline(0, color="#374151", linewidth=1)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("difference, % of the normalized scale")
    axes.set_title("Difference, 95 % interval", fontweight="bold")
    light_grid(axes, "x")


def draw(
    groups: list[Group], comparisons: list[Comparison], ends: dict[str, Any], path: Path
) -> None:
    """Write the picture: the curves of each environment, then the differences."""
    plt.rcParams.update(LOOK)
    panels = len(ends) + 1
    columns = min(panels, PANELS_A_ROW)
    rows = -(-panels // columns)
    options: dict[str, Any] = {"squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(rows, columns, figsize=(3.7 * columns, 3.2 * rows + 0.5), **options)
    for axes in grid.flat[panels:]:
        axes.set_visible(False)
    for axes, env_id in zip(grid.flat, ends, strict=False):
        heights: list[float] = []
        for color, group in zip(cycle(COLORS), groups, strict=False):
            heights += draw_seeds(axes, group.by_env[env_id], color, "steps")
        finish_panel(axes, heights, "steps")
        axes.set_title(env_id, fontweight="bold")
    grid[0, 0].set_ylabel(f"rolling mean of {WINDOW} episodes")
    draw_differences(grid.flat[panels - 1], comparisons, ends)
    many = any(len(runs) > 1 for runs in groups[0].by_env.values())
    add_legend(figure, legend_of_groups([group.name for group in groups], many), 4)
    save(figure, path)


def runs_table(groups: list[Group], steps: dict[str, int]) -> pd.DataFrame:
    """A row for each run, with what rerun.py needs to make it again."""
    tables = []
    for group in groups:
        for env_id in steps:
            rows = score_table(group.by_env[env_id])
            rows["score"] = [f"{score:.2f}" for score in group.scores[env_id]]
            rows["steps"] = steps[env_id]
            rows.insert(1, "group", group.name)
            tables.append(rows)
    return pd.concat(tables)


def main() -> int:
    """Read the groups, answer, write the files and say where; returns the exit code."""
    args = read_args(Args, __doc__)
    groups = read_groups(args)
    steps = take_scores(groups, args.steps)
    way, ends = scales(groups, args.metric)
    comparisons = [compare(groups[0], group, way, ends) for group in groups[1:]]
    correct_for_many_tests(comparisons)
    args.out.mkdir(parents=True, exist_ok=True)
    endings = (".md", ".png", ".csv", "_scores.csv")
    paths = [args.out / f"{args.name}{ending}" for ending in endings]
    scores = scores_table(groups, comparisons, steps)
    paths[0].write_text(report(groups, comparisons, scores, way))
    draw(groups, comparisons, ends, paths[1])
    options: dict[str, Any] = {"index": False, "float_format": "%.6g"}
    scores.to_csv(paths[2], **options)
    runs_table(groups, steps).to_csv(paths[3], **options)
    say(paths[0].read_text())
    for path in paths:
        say(str(path))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
