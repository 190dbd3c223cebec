"""The picture of a comparison.

Part of compare.py.
"""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import plot
from comparison import Comparison, Estimate, Results, Scores, mean_score, profile, sentence, way
from plot import plt

PROFILE_POINTS = 61
MIDDLES = 5  # a score so many widths of the middle half of all scores above that half is an outlier
COLORS = [plot.BLUE, *plot.BESIDE_COLORS, plot.RED, plot.GREY]


def draw_estimate(axes: plt.Axes, y: float, estimate: Estimate, color: str) -> None:
    """A dot and its interval; a hollow dot where there is no interval."""
    face = color if estimate.has_interval else "white"
    if estimate.has_interval:
        axes.plot([estimate.low, estimate.high], [y, y], color=color, linewidth=2.2, alpha=0.75)
    axes.plot(estimate.value, y, "o", color=color, markerfacecolor=face, markersize=6.5)


def units(scores: Scores, baseline: str) -> tuple[dict[str, float], str]:
    """The unit of each environment's differences, as a score, and what it is called.

    It is that of the answer: `unit` says the same of the numbers in the sentence.
    """
    if len(scores.scales) > 1:
        spans = {env_id: scale.span / 100 for env_id, scale in scores.scales.items()}
        return spans, f"% of the way {way(scores)}"
    (env_id,) = scores.scales
    mean = mean_score(scores, baseline, env_id)
    if mean:
        return {env_id: mean / 100}, f"% of {baseline}'s mean"
    return {env_id: 1.0}, "points"


def draw_runs(
    axes: plt.Axes,
    scores: Scores,
    baseline: str,
    one: dict[str, float],
    colors: dict[str, str],
) -> None:
    """Each run as a small dot, by how many of `one` it is above the baseline's mean score."""
    for y, env_id in enumerate(scores.scales):
        if env_id not in scores.raw[baseline]:
            continue
        middle = scores.raw[baseline][env_id].mean()
        for name, of in scores.raw.items():
            gaps = (of.get(env_id, np.array([])) - middle) / one[env_id]
            dots: dict[str, Any] = {"color": colors[name], "alpha": 0.45, "linewidth": 0}
            axes.scatter(gaps, np.full_like(gaps, y - 0.22), s=16, **dots)


def draw_differences(
    axes: plt.Axes, scores: Scores, comparisons: list[Comparison], colors: dict[str, str]
) -> None:
    """For each environment the differences to the baseline, in the unit of the answer."""
    baseline = comparisons[0].baseline
    one, name_of_unit = units(scores, baseline)
    draw_runs(axes, scores, baseline, one, colors)
    labels = list(scores.scales)
    for number, comparison in enumerate(comparisons):
        offset = 0.4 * (number + 0.5) / len(comparisons) - 0.1
        for env_id, found in comparison.by_env.items():
            y = labels.index(env_id) + offset
            draw_estimate(axes, y, found.times(1 / one[env_id]), colors[comparison.group])
        if len(scores.shared) > 1:
            y = len(labels) + offset
            draw_estimate(axes, y, comparison.overall.times(100), colors[comparison.group])
    if len(scores.shared) > 1:
        axes.axhline(len(labels) - 0.5, color="#9ca3af", linewidth=0.8)
        middle = ",\ninterquartile mean,\nby resampling" if scores.by_middle else ""
        labels.append(f"all {len(scores.shared)}{middle}")
    axes.axvline(0, color="#374151", linewidth=1)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(f"difference to {baseline},\n{name_of_unit}")
    axes.set_title("Runs, difference, 95 % interval", loc="left", fontweight="bold")
    plot.light_grid(axes, "x")


def profile_grid(scores: np.ndarray) -> np.ndarray:
    """Where the profile of some scores, (n,), is drawn: (PROFILE_POINTS,).

    From the lowest to the highest, but not up to outliers above 1: they would have the picture to
    themselves.
    """
    lower, upper = np.quantile(scores, [0.25, 0.75])
    far = max(1.0, float(upper + MIDDLES * (upper - lower)))
    lowest, highest = scores.min(), scores[scores <= far].max()
    margin = 0.02 * (highest - lowest) + 0.01
    return np.linspace(lowest - margin, highest + margin, PROFILE_POINTS)


def draw_profiles(axes: plt.Axes, scores: Scores, colors: dict[str, str]) -> None:
    """Performance profiles: how many runs are above each normalized score."""
    matrices = {name: scores.matrix(name) for name in scores.raw}
    everything = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    grid = profile_grid(everything)
    beyond = int((everything > grid[-1]).sum())
    for name, matrix in matrices.items():
        share, band = profile(matrix, grid)
        axes.step(grid, 100 * share, where="mid", color=colors[name], linewidth=1.9)
        if len(matrix) > 1:
            style_of_band: dict[str, Any] = {"step": "mid", "alpha": 0.13, "linewidth": 0}
            axes.fill_between(grid, *(100 * band), color=colors[name], **style_of_band)
    axes.set_ylim(0, 103)
    axes.set_xlim(grid[0], grid[-1])
    outside = f"; farther right: {beyond} of {len(everything)} runs" if beyond else ""
    axes.set_xlabel(f"normalized score{outside}")
    axes.set_ylabel("% of runs above it")
    axes.set_title("Performance profile", loc="left", fontweight="bold")
    plot.light_grid(axes)


def draw_measures(grid: np.ndarray, results: Results, colors: dict[str, str]) -> None:
    """The numbers over all environments, a panel for each."""
    names = [name for name in results.overall if not name.startswith("difference")]
    titles = ["Interquartile mean", "Optimality gap", "Prob. of improvement"]
    for axes, title, measure in zip(grid, titles, names, strict=True):
        for y, group in enumerate(results.groups):
            if group.name in results.overall[measure]:
                draw_estimate(axes, y, results.overall[measure][group.name], colors[group.name])
        axes.set_ylim(len(results.groups) - 0.4, -0.6)
        axes.set_yticks([])
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
        axes.xaxis.set_major_locator(plot.MaxNLocator(4))
        axes.margins(x=0.15)
        plot.light_grid(axes, "x")
    grid[2].axvline(0.5, color="#374151", linewidth=1)
    grid[2].set_xlim(-0.03, 1.03)


def draw(results: Results, png: Path, svg: Path) -> None:
    """Write the picture as PNG and as SVG."""
    scores, comparisons = results.scores, results.comparisons
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(scores.raw)}
    plt.rcParams.update(plot.LOOK)
    plt.rcParams["svg.hashsalt"] = "compare"  # ids in the SVG do not change from call to call
    rows = len(scores.scales) * max(1.0, 0.6 * len(comparisons))
    height = max(5.4, 0.27 * rows + 2.5)
    figure = plt.figure(figsize=(11, height), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1, 1.15])
    left, right = halves
    draw_differences(left.subplots(), scores, comparisons, colors)
    top, bottom = right.subfigures(2, 1, height_ratios=[1.6, 1])
    draw_profiles(top.subplots(), scores, colors)
    draw_measures(bottom.subplots(1, 3), results, colors)
    answer = "\n".join(
        line
        for comparison in comparisons
        for line in textwrap.wrap(sentence(scores, comparison), 136)
    )
    figure.suptitle(answer, x=0.01, ha="left", fontsize=10.5)
    line: dict[str, Any] = {"linewidth": 2.2, "marker": "o"}
    handles: list[Any] = [plot.Line2D([], [], color=c, label=n, **line) for n, c in colors.items()]
    plot.add_legend(figure, handles, 6)
    figure.savefig(svg, facecolor="white", metadata={"Date": None})
    plot.save(figure, png)
