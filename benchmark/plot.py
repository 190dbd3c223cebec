"""Learning curves and a score table from the folders of finished runs.

    uv run benchmark/plot.py --runs-dir runs/benchmark/ppo --out results --name ppo
    uv run benchmark/plot.py --runs-dir runs --beside CleanRL=~/cleanrl/runs
    uv run benchmark/plot.py --runs-dir runs/benchmark/dm_control --suite dm_control

Writes ppo.png (curves over steps and over minutes), ppo.csv (their points), ppo_scores.csv (a line
for each run) and ppo.md (the table). If cleanrl_curves.csv has CleanRL's curve, the picture shows
it. With --suite, for many environments whose scores have one scale, the picture and ppo.csv are of
their mean, and each environment is a row beside its published score. Exit codes: 0 done, 2 bad
input or no finished run.
"""

import io
import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import fail, read_args, seeds, warn
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image
from runs import (
    CURVE_POINTS,
    RETURN,
    SAME_STEPS,
    WINDOW,
    Axis,
    Found,
    Run,
    find_runs,
    mean_and_std,
    metric_of,
    remarks_on,
    runs_by_env,
    score_table,
    value_at,
)
from scipy import stats
from stats import short_number, weighted_sum

PANELS_A_ROW = 4
ROW_HEIGHT = 0.27  # of an environment of a suite, in inches
PUBLISHED = Path(__file__).with_name("published.csv")
CURVES = Path(__file__).with_name("cleanrl_curves.csv")  # read off the pictures of its repository
LONGER = 1.5  # published runs of more than so many times our steps are not drawn
BLUE, RED, GREY = "#1f6fb4", "#d1495b", "#6b7280"
COLORS = [BLUE, "#d97706", "#15803d", "#7c3aed", RED, GREY]  # of groups of runs, in this order
# Published scores: dashes that fall into each other's gaps, so that equal scores stay visible.
DASHES: list[tuple[str, Any]] = [(RED, (0, (4, 6))), (GREY, (5, (4, 6)))]
LOOK: dict[Any, Any] = {"font.size": 10, "axes.titlesize": 11.5, "axes.edgecolor": "#9ca3af"}
LABELS: dict[Axis, str] = {"steps": "environment steps", "minutes": "wall-clock minutes"}


@dataclass
class Args:
    runs_dir: Path  # folder that holds the run folders of one script, or a pattern of run folders
    out: Path = Path("results")  # where the four files are written
    name: str | None = None  # their name; the script's if not given
    # NAME=FOLDER or NAME=PATTERN: runs to show with them, also another program's
    beside: tuple[str, ...] = ()
    suite: str | None = None  # in place of --name: all environments in one picture
    minutes: bool = True  # draw the curves over minutes as well; a suite's are over steps alone


@dataclass
class Results:
    """All that is drawn and written: finished runs of one script, and what they are compared with.

    The environments are in the order in which they are shown.
    """

    script: str
    by_env: dict[str, list[Run]]
    published: dict[str, list[Any]]  # rows of published.csv
    curves: dict[str, pd.DataFrame]  # CleanRL's: global_step, mean, low and high of three seeds
    beside: dict[str, dict[str, list[Run]]]  # runs of other programs by name and environment
    remarks: list[str]  # what the reader has to be told

    @property
    def label(self) -> str:
        """What our runs are called: the script, unless their --exp-name says something else."""
        names = {run.settings.get("exp_name", "") for run in self.runs}
        renamed = names - {"", Path(self.script).stem}
        return renamed.pop() if len(names) == len(renamed) == 1 else self.script

    @property
    def what(self) -> str:
        """What the scores are."""
        return "return" if metric_of(self.script) == RETURN else "length"

    @property
    def runs(self) -> list[Run]:
        """Ours, of all environments."""
        return [run for group in self.by_env.values() for run in group]

    @property
    def sources(self) -> list[str]:
        """Where the published scores of these environments are from."""
        scores = [score for env_id in self.by_env for score in self.published.get(env_id, [])]
        return list(dict.fromkeys(score.source for score in scores))


# ------ reading ------
def read_group(name: str, given: Path, metric: str | None) -> Found:
    """The runs in a folder; fails without any, or if they are of several scripts.

    name: what the user calls them. given: the folder, or a pattern of run folders.
    """
    parts = given.expanduser().parts
    first = next((i for i, part in enumerate(parts) if "*" in part), len(parts))
    folder = Path(*parts[:first])
    pattern = "/".join(parts[first:]) or "*"
    if not folder.is_dir():
        fail(f"{name}: there is no folder {folder}")
    found = find_runs(folder, metric, pattern)
    scripts = sorted({key.script for key in found.runs})
    if not scripts:
        fail(f"{name}: no run folder with a finished run in {given}")
    if len(scripts) > 1:
        fail(f"{name}: runs of {', '.join(scripts)}; give each a folder of its own")
    return found


def read_named(given: tuple[str, ...], metric: str | None) -> dict[str, Found]:
    """The runs of groups given as NAME=FOLDER; fails if one is not.

    metric: what they are measured by; if None, what the first group's script is measured by.
    """
    groups: dict[str, Found] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            fail(f"{text} is not of the form NAME=FOLDER")
        if name in groups:
            fail(f"two groups are called {name}")
        groups[name] = read_group(name, Path(path), metric)
        metric = metric or metric_of(next(iter(groups[name].runs)).script)
    return groups


def read_published(script: str) -> dict[str, list[Any]]:
    """Published scores of a script by environment: rows of published.csv."""
    table = pd.read_csv(PUBLISHED)
    own = table[table["script"] == Path(script).stem].groupby("env_id", sort=False)
    return {env_id: list(rows.itertuples()) for env_id, rows in own}


def read_curves(script: str) -> dict[str, pd.DataFrame]:
    """CleanRL's curves of a script by environment."""
    table = pd.read_csv(CURVES)
    return dict(list(table[table["script"] == Path(script).stem].groupby("env_id")))


def read_results(args: Args) -> Results:
    """All that is to be shown; fails if there is nothing, or the runs of several scripts."""
    found = read_group("--runs-dir", args.runs_dir, None)
    by_env = runs_by_env(found)
    script = next(iter(found.runs)).script
    published = read_published(script)
    beside = read_named(args.beside, metric_of(script))
    remarks = [f"{name}: {text}" for name, group in beside.items() for text in remarks_on(group)]
    # Environments with published scores first, in their order.
    order = [env_id for env_id in published if env_id in by_env]
    order += sorted(set(by_env) - set(order))
    return Results(
        script=script,
        by_env={env_id: by_env[env_id] for env_id in order},
        published=published,
        curves=read_curves(script),
        beside={name: runs_by_env(group) for name, group in beside.items()},
        remarks=[*remarks_on(found), *remarks],
    )


# ------ numbers ------
def mean_steps(group: list[Run]) -> float:
    """Environment steps of a run."""
    return float(np.mean([run.total_steps for run in group]))


def nearest(scores: list[Any], steps: float) -> list[Any]:
    """Of each source the score after a number of steps that is nearest to ours, by its ratio."""
    found: dict[str, Any] = {}
    for score in sorted(scores, key=lambda score: abs(np.log(score.total_timesteps / steps))):
        found.setdefault(score.source, score)
    return list(found.values())


# ------ drawing ------
def light_grid(axes: plt.Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Pale lines behind the data, across one axis or both; no frame above and at the right."""
    axes.grid(axis=axis, color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_seeds(axes: plt.Axes, runs: list[Run], color: str, over: Axis) -> list[float]:
    """The runs of an environment, their mean and its 95 % band (Student's); returns their heights.

    Over steps the curves end where the shortest run does; over minutes a finished run keeps its
    score.
    """
    totals = [run.total(over) for run in runs]
    grid = np.linspace(0, min(totals) if over == "steps" else max(totals), CURVE_POINTS + 1)
    curves = np.stack([run.curve(over, grid) for run in runs])
    mean = curves.mean(0)
    if len(runs) > 1:
        half = stats.t.ppf(0.975, len(runs) - 1) * stats.sem(curves)
        axes.fill_between(grid, mean - half, mean + half, color=color, alpha=0.15, linewidth=0)
        axes.plot(grid, curves.T, color=color, alpha=0.35, linewidth=0.8)
    axes.plot(grid, mean, color=color, linewidth=1.9)
    # The band of few seeds can be far wider than the curves: it may leave the panel.
    return [float(np.nanmin(curves)), float(np.nanmax(curves))]


def draw_cleanrl(axes: plt.Axes, curve: pd.DataFrame, steps: float) -> list[float]:
    """CleanRL's curve and the band of its seeds, as far as our runs go; returns their heights."""
    seen = curve[curve["global_step"] <= steps]
    band = seen["global_step"], seen["low"], seen["high"]
    axes.fill_between(*band, color=RED, alpha=0.15, linewidth=0)
    axes.plot(seen["global_step"], seen["mean"], color=RED, linewidth=1.2)
    return [*seen["low"], *seen["high"]]


def finish_panel(axes: plt.Axes, heights: list[float], over: Axis) -> None:
    """Limits and labels of a panel with curves. heights: that must be seen."""
    low, high = min(heights), max(heights)
    margin = max(0.08 * (high - low), 0.05 * max(abs(low), abs(high)), 0.1)
    axes.set_ylim(low - margin, high + margin)
    axes.margins(x=0)
    axes.set_xlim(left=0)
    if over == "steps":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short_number(x)))
    axes.set_xlabel(LABELS[over])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    light_grid(axes)


def drawn_scores(results: Results, env_id: str) -> list[Any]:
    """An environment's published scores; those of much longer runs are in the table alone."""
    steps = mean_steps(results.by_env[env_id])
    scores = nearest(results.published.get(env_id, []), steps)
    return [score for score in scores if score.total_timesteps <= LONGER * steps]


def draw_panel(axes: plt.Axes, results: Results, env_id: str, over: Axis) -> None:
    """All that is known of an environment over steps or minutes."""
    group = results.by_env[env_id]
    heights = draw_seeds(axes, group, BLUE, over)
    for number, by_env in enumerate(results.beside.values(), start=1):
        if env_id in by_env:
            heights += draw_seeds(axes, by_env[env_id], COLORS[number % len(COLORS)], over)
    if over == "steps" and env_id in results.curves:
        heights += draw_cleanrl(axes, results.curves[env_id], mean_steps(group))
    for score in drawn_scores(results, env_id):
        color, dashes = DASHES[results.sources.index(score.source) % len(DASHES)]
        axes.axhline(score.mean, color=color, linestyle=dashes, linewidth=1.5)
        heights.append(score.mean)
    finish_panel(axes, heights, over)


def legend_of_groups(names: list[str], many: bool) -> list[Any]:
    """Matplotlib's handles of groups of runs, in their colors. many: whether of several seeds."""
    handles: list[Any] = [
        Line2D([], [], color=color, linewidth=1.9, label=name + ", mean of seeds" * many)
        for color, name in zip(cycle(COLORS), names, strict=False)
    ]
    if many:
        handles.append(Patch(color=BLUE, alpha=0.15, linewidth=0, label="95 % confidence band"))
    return handles


def add_legend(figure: plt.Figure, handles: list[Any], columns: int) -> None:
    """A legend below the panels, with as many columns, at most, as there is room for."""
    look: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "handlelength": 3}
    for ncols in range(min(len(handles), columns), 0, -1):
        legend = figure.legend(handles=handles, ncols=ncols, **look)
        if ncols == 1 or legend.get_window_extent().width < figure.bbox.width:
            break
        legend.remove()


def save(figure: plt.Figure, path: Path) -> None:
    """Write the picture as PNG with a palette, which makes it a third as large."""
    image = io.BytesIO()
    figure.savefig(image, dpi=110, facecolor="white")
    plt.close(figure)
    Image.open(image).convert("RGB").quantize(128).save(path, optimize=True)


def draw(results: Results, path: Path, minutes: bool) -> None:
    """Write the picture: for each environment a panel over steps; below it one over minutes."""
    columns = min(len(results.by_env), PANELS_A_ROW)
    blocks = -(-len(results.by_env) // columns)
    plt.rcParams.update(LOOK)
    over: list[Axis] = ["steps", "minutes"] if minutes else ["steps"]
    rows = len(over)
    height = 5.2 if minutes else 3.4  # of an environment's panels
    size = (max(3.3 * columns, 6.6), height * blocks + 0.5)
    options: dict[str, Any] = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(rows * blocks, columns, **options)
    for axes in grid.flat:
        axes.set_visible(False)
    for index, (env_id, group) in enumerate(results.by_env.items()):
        block, column = divmod(index, columns)
        panels = grid[rows * block : rows * (block + 1), column]
        for axes, axis in zip(panels, over, strict=True):
            axes.set_visible(True)
            draw_panel(axes, results, env_id, axis)
            if column == 0:
                axes.set_ylabel(f"{results.what}, rolling mean\nof the last {WINDOW} episodes")
        fontsize = 11.5 if len(env_id) < 26 else 9  # a title is not wrapped, it runs into others
        title = env_id if results.beside else f"{env_id}\n{seeds(len(group))}"
        panels[0].set_title(title, fontweight="bold", fontsize=fontsize)
    many = any(len(group) > 1 for group in results.by_env.values())
    ours = results.label
    if results.beside and len(results.runs) == 1:
        ours += f", seed {results.runs[0].seed}"
    handles = legend_of_groups([ours, *results.beside], many)
    drawn = {score.source for env_id in results.by_env for score in drawn_scores(results, env_id)}
    for (color, dashes), source in zip(DASHES, results.sources, strict=False):
        if source in drawn:
            look: dict[str, Any] = {"color": color, "linestyle": dashes, "linewidth": 1.5}
            handles.append(Line2D([], [], label=f"{source}, published", **look))
    if results.curves.keys() & results.by_env.keys():
        label = "CleanRL's curve, with the band of its three seeds"
        handles.append(Line2D([], [], color=RED, linewidth=1.2, label=label))
    add_legend(figure, handles, max(columns, 2))
    save(figure, path)


# ------ a suite ------
def mean_curve(results: Results) -> pd.DataFrame:
    """Mean score over all environments as training goes on: global_step, mean, low, high.

    Each environment counts the same, however many seeds it has. low and high are the ends of the
    95 % interval: variances of the environments add up, with Satterthwaite's degrees of freedom.
    (Seeds drawn again by a bootstrap vary too little: of three seeds, by a third.)
    """
    end = min(run.total_steps for run in results.runs)
    steps = np.linspace(0, end, CURVE_POINTS + 1)[1:]
    by_env = results.by_env.values()
    scores = [np.array([run.curve("steps", steps) for run in group]) for group in by_env]
    weights = [1 / len(scores)] * len(scores)
    rows = []
    for i, step in enumerate(steps):
        found = weighted_sum([of_env[:, i] for of_env in scores], weights)
        rows.append((step, found.value, found.low, found.high))
    table = pd.DataFrame(rows, columns=["global_step", "mean", "low", "high"])
    return table[table["mean"].notna()]


def published_of(results: Results) -> dict[str, float]:
    """The published mean of each environment that has one, after about as many steps."""
    scores = {env_id: drawn_scores(results, env_id) for env_id in results.by_env}
    return {env_id: found[0].mean for env_id, found in scores.items() if found}


def publishers(results: Results) -> str:
    """Whose scores `published_of` returns: 'CleanRL, published'."""
    scores = [drawn_scores(results, env_id)[:1] for env_id in results.by_env]
    names = dict.fromkeys(score.source for found in scores for score in found)
    return f"{', '.join(names)}, published"


def draw_mean(axes: plt.Axes, curve: pd.DataFrame, results: Results) -> None:
    """The mean over all environments, with its band, and that of the published scores."""
    steps = curve["global_step"]
    axes.plot(steps, curve["mean"], color=BLUE, linewidth=1.9)
    axes.fill_between(steps, curve["low"], curve["high"], color=BLUE, alpha=0.2, linewidth=0)
    heights = [0.0, *curve["mean"].agg(["min", "max"]), float(curve["high"].max())]
    published = published_of(results)
    if len(published) == len(results.by_env):
        mean = float(np.mean(list(published.values())))
        axes.axhline(mean, color=RED, linestyle=DASHES[0][1], linewidth=1.5)
        heights.append(mean)
    axes.set_ylabel(f"{results.what}, mean of {len(results.by_env)} environments")
    axes.set_title("all together", weight="bold")
    finish_panel(axes, [height for height in heights if np.isfinite(height)], "steps")


def draw_standings(axes: plt.Axes, results: Results) -> None:
    """A row for each environment: our seeds, their mean and the published score."""
    published = published_of(results)
    scores = {env: np.array([run.score for run in runs]) for env, runs in results.by_env.items()}
    order = sorted(scores, key=lambda env: published.get(env, np.inf) - scores[env].mean())
    for row, env_id in enumerate(order):
        mean = scores[env_id].mean()
        if env_id in published:
            axes.plot((mean, published[env_id]), (row, row), color="#d1d5db", linewidth=2.2)
            axes.scatter(published[env_id], row, color=RED, marker="D", s=26, zorder=3)
        rows = np.full(len(scores[env_id]), row)
        axes.scatter(scores[env_id], rows, color=BLUE, alpha=0.4, s=12, zorder=2, linewidth=0)
        axes.scatter(mean, row, color=BLUE, s=38, zorder=4)
    names = [re.sub(r".*/|-v\d+$", "", env_id) for env_id in order]
    axes.set_yticks(range(len(order)), names)
    axes.set_ylim(len(order) - 0.4, -0.6)
    seeds = "; small dots are seeds" if len(results.runs) > len(order) else ""
    axes.set_xlabel(f"{results.what} at the end of training{seeds}")
    axes.set_title("each of them", weight="bold")
    light_grid(axes)


def draw_suite(results: Results, curve: pd.DataFrame, path: Path) -> None:
    """Write the picture of a suite."""
    plt.rcParams.update(LOOK)
    height = max(ROW_HEIGHT * len(results.by_env) + 1.2, 4.2)
    options: dict[str, Any] = {"figsize": (10.5, height), "layout": "constrained"}
    figure, (left, right) = plt.subplots(1, 2, width_ratios=(1, 1.15), **options)
    draw_mean(left, curve, results)
    draw_standings(right, results)
    many = bool(curve["low"].notna().any())  # otherwise some environment has a single seed
    handles = legend_of_groups([results.label], many)
    if published_of(results):
        look: dict[str, Any] = {"color": RED, "marker": "D", "linestyle": DASHES[0][1]}
        handles.append(Line2D([], [], label=publishers(results), **look))
    add_legend(figure, handles, columns=3)
    save(figure, path)


def suite_summary(results: Results, curve: pd.DataFrame) -> str:
    """The numbers of the picture in one line."""
    last = curve.iloc[-1]
    text = f"Mean {results.what} over {len(results.by_env)} environments after "
    text += f"{short_number(last.global_step)} steps: {last['mean']:.0f}"
    text += f" (95 %: {last.low:.0f} to {last.high:.0f})." if np.isfinite(last.low) else "."
    published = published_of(results)
    if len(published) == len(results.by_env):
        means = {
            env_id: np.mean([r.score for r in runs]) for env_id, runs in results.by_env.items()
        }
        higher = sum(means[env_id] > score for env_id, score in published.items())
        text += f" {publishers(results)}: {np.mean(list(published.values())):.0f}"
        text += f"; ours is higher in {higher} of {len(published)}."
    return text


# ------ the files of numbers ------
def curve_points(runs: list[Run], what: str) -> pd.DataFrame:
    """At most CURVE_POINTS points of each run's smoothed curve; what: return or length."""
    tables = []
    for run in runs:
        grid = np.linspace(0, run.total_steps, CURVE_POINTS + 1)[1:]
        columns = {"env_id": run.env_id, "seed": run.seed, "global_step": np.round(grid)}
        columns["minutes"] = np.round(value_at(grid, run.steps, run.minutes), 3)
        columns[what] = np.round(run.curve("steps", grid), 2)
        tables.append(pd.DataFrame(columns).dropna())
    return pd.concat(tables).astype({"global_step": int})


def published_cell(scores: list[Any], source: str, steps: float) -> str:
    """A source's score of an environment, with its steps if ours were fewer or more."""
    for score in nearest(scores, steps):
        if score.source == source:
            spread = "" if np.isnan(score.std) else f" ± {score.std:.2f}"
            cell = f"{score.mean:.2f}{spread}"
            if abs(score.total_timesteps / steps - 1) > SAME_STEPS:
                cell += f" ({short_number(score.total_timesteps)} steps)"
            return cell
    return "-"


def table_row(results: Results, env_id: str) -> str:
    """The line of an environment: scores of ours, of other programs and published ones."""
    group = results.by_env[env_id]
    steps = mean_steps(group)
    cells = [env_id, f"{mean_and_std(run.score for run in group)} ({seeds(len(group))})"]
    for by_env in results.beside.values():
        runs = by_env.get(env_id, [])
        scores = mean_and_std(run.score_after(steps) for run in runs) if runs else "-"
        shorter = bool(runs) and mean_steps(runs) < (1 - SAME_STEPS) * steps
        after = f", {short_number(mean_steps(runs))} steps" if shorter else ""
        cells.append(f"{scores} ({seeds(len(runs))}{after})" if runs else scores)
    for source in results.sources:
        cells.append(published_cell(results.published.get(env_id, []), source, steps))
    minutes = float(np.mean([run.total_minutes for run in group]))
    cells += [short_number(steps), f"{minutes:.1f}"]
    return f"| {' | '.join(cells)} |"


def origin(group: list[Run]) -> str:
    """Script, flags and seeds of an environment's runs."""
    seeds_of: dict[str, list[str]] = defaultdict(list)  # usually all are of one origin
    for run in group:
        made = run.provenance
        version = "version not recorded"
        if made.script_hash:
            version = f"SHA-256 `{made.script_hash}`"
        if made.commit:
            version = f"commit `{made.commit}`"
        flags = "default flags" if made.versions else "flags not recorded"
        if made.flags:
            flags = f"flags `{made.flags}`"
        seeds_of[f"{version}, {flags}"].append(str(run.seed))
    made_by = [f"{how}, seed{'s' * (len(n) > 1)} {', '.join(n)}" for how, n in seeds_of.items()]
    return f"`{group[0].script}`, {'; '.join(made_by)}."


def write_table(results: Results, path: Path, first: str = "") -> None:
    """Markdown table of the final scores beside the published ones. first: a line above it."""
    beside = [f"{name}, run beside it" for name in results.beside]
    columns = [f"`{results.label}`", *beside, *results.sources, "steps", "minutes"]
    by_origin: dict[str, list[str]] = defaultdict(list)
    for env_id, group in results.by_env.items():
        by_origin[origin(group)].append(env_id)
    made_with = sorted({run.provenance.made_with for run in results.runs})
    lines = [
        *([first, ""] if first else []),
        f"| environment | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
        *(table_row(results, env_id) for env_id in results.by_env),
        "",
        f"Score of a run: mean {results.what} of its last {WINDOW} training episodes. The table "
        "has its mean ± standard deviation over the seeds, and the mean duration of a run in "
        "minutes.",
        f"Ours were made with {'; '.join(made_with)}.",
        *(f"{', '.join(env_ids)}: {made}" for made, env_ids in by_origin.items()),
        *results.remarks,
    ]
    path.write_text("\n".join(lines) + "\n")


def write_all(results: Results, out: Path, name: str, suite: bool, minutes: bool) -> list[Path]:
    """Write the picture, the table and the files of numbers; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}{end}" for end in (".png", ".csv", "_scores.csv", ".md")]
    picture, curves, scores, table = paths
    if suite:
        curve = mean_curve(results)
        if curve.empty:
            fail("--suite: in some environment no episode ends before the shortest run does")
        draw_suite(results, curve, picture)
        curve.to_csv(curves, index=False, float_format="%.2f")
        write_table(results, table, suite_summary(results, curve))
    else:
        draw(results, picture, minutes)
        curve_points(results.runs, results.what).to_csv(curves, index=False)
        write_table(results, table)
    score_table(results.runs).to_csv(scores, index=False)
    return paths


def main() -> int:
    """Read the runs, write the results and say where; returns the exit code."""
    args = read_args(Args, __doc__)
    results = read_results(args)
    for remark in results.remarks:
        warn(remark)
    name = args.suite or args.name or Path(results.script).stem
    for path in write_all(results, args.out, name, args.suite is not None, args.minutes):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
