"""Many environments whose scores have one scale, in one picture: their mean, and each of them.

    uv run benchmark/suite.py --runs-dir runs/benchmark/dm_control --out results --name dm_control

For suites like dm_control, where a curve for each environment would fill pages. Writes
dm_control.png (the mean over all environments as training goes on; each environment beside its
published score), dm_control.csv (the points of that mean), dm_control_scores.csv (a line for each
run) and dm_control.md (the table). Exit codes: 0 done, 2 bad input or no finished run.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plot
import tyro
from console import fail, seeds
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from plot import plt
from runs import short_number
from stats import weighted_sum

ROW_HEIGHT = 0.27  # of an environment, in inches
DASHES: Any = (0, (4, 4))  # of published scores


@dataclass
class Args:
    runs_dir: Path  # folder that holds the run folders of one script
    name: str  # of the suite, and of the files
    out: Path = Path("results")  # where they are written


@dataclass(frozen=True)
class MeanCurve:
    """Mean score over all environments, at steps of training: (points,) each.

    low and high are the ends of its 95 % interval; NaN if an environment has one seed alone, or if
    no run differs from another.
    """

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def final(self) -> str:
        """312 (95 %: 300 to 324)."""
        text = f"{self.mean[-1]:.0f}"
        if np.isnan(self.low[-1]):
            return text
        return f"{text} (95 %: {self.low[-1]:.0f} to {self.high[-1]:.0f})"


@dataclass(frozen=True)
class Standing:
    """An environment: scores of our runs, and the published one, if there is one."""

    env_id: str
    scores: np.ndarray  # (seeds,)
    published: plot.PublishedScore | None

    @property
    def ahead(self) -> float:
        """How far ours is above the published score; those without one come last."""
        return self.scores.mean() - self.published.mean if self.published else -np.inf


# ------ numbers ------


def scores_over_steps(results: plot.Results, steps: np.ndarray) -> list[np.ndarray]:
    """Rolling means of the runs of each environment: (seeds, points) each."""
    return [
        np.array([run.curve("steps", steps) for run in group]) for group in results.by_env.values()
    ]


def interval_of_mean(scores: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the 95 % interval of the mean over all environments, (points,) each.

    The variances of the environments add up, with Satterthwaite's degrees of freedom. (Seeds drawn
    again by a bootstrap vary too little: of three seeds, by a third.) NaN where none can be had.

    scores: of each environment (seeds, points).
    """
    weights = [1 / len(scores)] * len(scores)
    points = scores[0].shape[1]
    ends = [weighted_sum([own[:, i] for own in scores], weights).interval for i in range(points)]
    low, high = np.array(ends).T
    return low, high


def mean_curve(results: plot.Results) -> MeanCurve:
    """The mean over all environments from where each run has ended an episode.

    Each environment counts the same, however many seeds it has. Fails if a run ends before another
    one's first episode.
    """
    end = min(run.total_steps for run in results.runs)
    steps = np.linspace(0, end, plot.POINTS + 1)[1:]
    scores = scores_over_steps(results, steps)
    known = ~np.isnan(np.concatenate(scores)).any(axis=0)
    if not known.any():
        fail(f"--runs-dir: one run ends after {end:,} steps, before another one's first episode")
    steps = steps[known]
    scores = [own[:, known] for own in scores]
    mean = np.mean([own.mean(axis=0) for own in scores], axis=0)
    low, high = interval_of_mean(scores)
    return MeanCurve(steps, mean, low, high)


def standings(results: plot.Results) -> list[Standing]:
    """The environments, those first in which ours is furthest ahead."""
    found = []
    for env_id, group in results.by_env.items():
        scores = np.array([run.score for run in group])
        published = plot.nearest(results.published.get(env_id, []), plot.mean_steps(group))
        found.append(Standing(env_id, scores, published[0] if published else None))
    return sorted(found, key=lambda standing: -standing.ahead)


def short_names(env_ids: list[str]) -> list[str]:
    """dm_control/walker-run-v0 -> walker-run, where all have the same around it."""
    namespaces = {env_id.rpartition("/")[0] for env_id in env_ids}
    versions = {re.sub(r".*-v", "", env_id) for env_id in env_ids}
    if len(namespaces) == 1:
        env_ids = [env_id.rpartition("/")[2] for env_id in env_ids]
    if len(versions) == 1:
        env_ids = [env_id.removesuffix(f"-v{min(versions)}") for env_id in env_ids]
    return env_ids


def published_mean(found: list[Standing]) -> float:
    """Mean of the published scores; NaN if an environment has none."""
    return float(np.mean([one.published.mean if one.published else np.nan for one in found]))


def published_label(found: list[Standing]) -> str:
    """CleanRL, published, after 1M steps."""
    scores = [one.published for one in found if one.published]
    sources = dict.fromkeys(score.source for score in scores)
    steps = dict.fromkeys(short_number(score.total_timesteps) for score in scores)
    return f"{', '.join(sources)}, published, after {' or '.join(steps)} steps"


# ------ the picture ------


def draw_mean(axes: plt.Axes, curve: MeanCurve, found: list[Standing]) -> None:
    """The mean over all environments, with its band, and that of the published scores."""
    axes.plot(curve.steps, curve.mean, color=plot.BLUE, linewidth=1.9)
    band = (curve.low, curve.high)
    axes.fill_between(curve.steps, *band, color=plot.BLUE, alpha=0.2, linewidth=0)
    published = published_mean(found)
    if not np.isnan(published):
        axes.axhline(published, color=plot.RED, linestyle=DASHES, linewidth=1.5)
    axes.set_xlim(0, curve.steps[-1])
    axes.set_ylim(bottom=min(0.0, float(curve.mean.min())))
    axes.xaxis.set_major_formatter(lambda x, _: short_number(x))
    axes.set_xlabel("environment steps")
    axes.set_ylabel(f"return, mean of {len(found)} environments")
    axes.set_title("all together", weight="bold")


def draw_standings(axes: plt.Axes, found: list[Standing]) -> None:
    """A row for each environment: our seeds and their mean, and the published score."""
    for row, standing in enumerate(found):
        mean = standing.scores.mean()
        if standing.published:
            published = standing.published.mean
            axes.plot((mean, published), (row, row), color="#d1d5db", linewidth=2.2, zorder=1)
            axes.scatter(published, row, color=plot.RED, marker="D", s=26, zorder=3)
        rows = np.full(len(standing.scores), row)
        axes.scatter(standing.scores, rows, color=plot.BLUE, alpha=0.4, s=12, zorder=2, linewidth=0)
        axes.scatter(mean, row, color=plot.BLUE, s=38, zorder=4)
    axes.set_yticks(range(len(found)), short_names([standing.env_id for standing in found]))
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("return at the end of training; small dots are seeds")
    axes.set_title("each of them", weight="bold")


def legend_entries(results: plot.Results, curve: MeanCurve, found: list[Standing]) -> list[Any]:
    """Matplotlib's handles of what the picture shows."""
    counts = [len(group) for group in results.by_env.values()]
    fewest, most = min(counts), max(counts)
    count = seeds(most) if fewest == most else f"{fewest} to {seeds(most)}"
    look: dict[str, Any] = {"color": plot.BLUE, "marker": "o", "linewidth": 1.9}
    handles: list[Any] = [Line2D([], [], label=f"{results.label}, {count}", **look)]
    if not np.isnan(curve.low).all():
        handles.append(Patch(color=plot.BLUE, alpha=0.2, linewidth=0, label="95 % interval"))
    if any(standing.published for standing in found):
        look = {"color": plot.RED, "marker": "D", "linestyle": DASHES, "linewidth": 1.5}
        handles.append(Line2D([], [], label=published_label(found), **look))
    return handles


def draw(results: plot.Results, curve: MeanCurve, path: Path) -> None:
    """Writes the picture."""
    found = standings(results)
    plt.rcParams.update(plot.LOOK)
    height = max(ROW_HEIGHT * len(found) + 1.2, 4.2)
    options: dict[str, Any] = {"figsize": (10.5, height), "layout": "constrained"}
    figure, (left, right) = plt.subplots(1, 2, width_ratios=(1, 1.15), **options)
    draw_mean(left, curve, found)
    draw_standings(right, found)
    for axes in (left, right):
        plot.light_grid(axes)
    plot.add_legend(figure, legend_entries(results, curve, found), columns=3)
    plot.save(figure, path)


# ------ the files ------


def sentence(results: plot.Results, curve: MeanCurve) -> str:
    """What the picture shows, in words."""
    found = standings(results)
    text = f"Mean return over {len(found)} environments after {short_number(curve.steps[-1])} "
    text += f"steps: {curve.final}."
    published = published_mean(found)
    if not np.isnan(published):
        text += f" {published_label(found)}: {published:.0f}."
        ahead = sum(one.ahead > 0 for one in found)
        text += f" Ours is higher in {ahead} of {len(found)}."
    return text


def write_curve(curve: MeanCurve, path: Path) -> None:
    """CSV of the points of the mean."""
    columns = np.column_stack([curve.mean, curve.low, curve.high])
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["global_step", "mean", "low", "high"])
        for step, numbers in zip(curve.steps, columns, strict=True):
            cells = ["" if np.isnan(number) else f"{number:.2f}" for number in numbers]
            writer.writerow([f"{step:.0f}", *cells])


def main() -> int:
    """Read the runs, write the results and say where; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    plot.check_folders(args.runs_dir, args.out, args.name)
    results = plot.read_results(plot.Args(args.runs_dir))
    curve = mean_curve(results)
    args.out.mkdir(parents=True, exist_ok=True)
    ends = (".png", ".csv", "_scores.csv", ".md")
    picture, points, scores, table = (args.out / f"{args.name}{end}" for end in ends)
    draw(results, curve, picture)
    write_curve(curve, points)
    plot.write_scores(results.runs, scores)
    plot.write_table(results, table)
    table.write_text(f"{sentence(results, curve)}\n\n{table.read_text()}")
    for path in (picture, points, scores, table):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
