"""Learning curves and a score table from the folders of finished runs.

    uv run benchmark/plot.py --runs-dir runs/benchmark/ppo --out results --name ppo
    uv run benchmark/plot.py --runs-dir runs --beside CleanRL=~/cleanrl/runs

Writes ppo.png (curves over steps and over minutes), ppo.csv (their points), ppo_scores.csv (a line
for each run) and ppo.md (the table); with --beside also ppo_cleanrl.csv, the points of the others.
Exit codes: 0 done, 2 bad input or no finished run.
"""

import csv
import dataclasses
import io
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro
from console import check_folder, check_name, fail, seeds
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image
from runs import (
    METRICS,
    RETURN,
    SAME_STEPS,
    WINDOW,
    Axis,
    Provenance,
    Run,
    find_other_runs,
    mean_and_std,
    read_runs,
    refuse_own_runs,
    runs_by_env,
    short_number,
    value_at,
)
from scipy import stats

POINTS = 200  # of a curve
PANELS_A_ROW = 4
PUBLISHED = Path(__file__).with_name("published.csv")
CLEANRLS_PAGE = "[CleanRL's docs/rl-algorithms/ppo](https://docs.cleanrl.dev/rl-algorithms/ppo/)"
CLEANRLS_TABLES = "[docs/benchmark](https://github.com/vwxyzjn/cleanrl/tree/master/docs/benchmark)"
PUBLISHED_IN = {  # by source
    "CleanRL": f"{CLEANRLS_PAGE} and {CLEANRLS_TABLES}, the newer where both have one",
    "openai/baselines": CLEANRLS_PAGE,
    "gymnax-blines": "[checkpoints of one seed](https://github.com/RobertTLange/gymnax-blines)",
}
LONGER = 1.5  # published runs of more than so many times our steps are not drawn
BLUE, RED, GREY = "#1f6fb4", "#d1495b", "#6b7280"
BESIDE_COLORS = ["#d97706", "#15803d", "#7c3aed"]  # of other programs' runs
# Published scores: dashes that fall into each other's gaps, so that equal scores stay visible.
STYLES: list[tuple[str, Any]] = [(RED, (0, (4, 6))), (GREY, (5, (4, 6)))]
LOOK: dict[Any, Any] = {"font.size": 10, "axes.titlesize": 11.5, "axes.edgecolor": "#9ca3af"}

LABELS: dict[Axis, str] = {"steps": "environment steps", "minutes": "wall-clock minutes"}


@dataclass
class Args:
    runs_dir: Path  # folder that holds the run folders of one script
    out: Path = Path("results")  # where the four files are written
    name: str | None = None  # their name; the script's if not given
    beside: tuple[str, ...] = ()  # NAME=FOLDER: runs to show with them, also another program's


@dataclass(frozen=True)
class PublishedScore:
    """A score that somebody has published of an environment."""

    source: str
    mean: float
    std: float  # NaN: of a single seed
    total_timesteps: float


@dataclass
class OtherProgram:
    """Runs of another program to show beside ours."""

    name: str
    color: str
    by_env: dict[str, list[Run]]

    @property
    def label(self) -> str:
        """What stands in the legend and above its column."""
        return f"{self.name}, run beside it"

    @property
    def in_legend(self) -> str:
        """The same in the legend, where several runs are drawn as their mean."""
        several = any(len(group) > 1 for group in self.by_env.values())
        return f"{self.name}, mean of seeds" if several else self.label


@dataclass
class Results:
    """All that is drawn and written: finished runs of one script, and what they are compared with.

    The environments are in the order in which they are shown.
    """

    script: str
    by_env: dict[str, list[Run]]
    published: dict[str, list[PublishedScore]]
    beside: list[OtherProgram]
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
        return "length" if self.script in METRICS else "return"

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


def beside_ending(name: str) -> str:
    """How the name of the file with another program's numbers ends."""
    return f"_{re.sub('[^a-z0-9]', '_', name.lower())}.csv"


def read_beside(given: tuple[str, ...], metric: str, remarks: list[str]) -> list[OtherProgram]:
    """Other programs, given as NAME=FOLDER; fails if that is not so or there is no run in it.

    Or runs of ours: of these what the reader has to be told is added to the remarks.
    """
    found: dict[str, OtherProgram] = {}
    for text in given:
        name, _, path = text.partition("=")
        folder = Path(path).expanduser()
        if not (name and path and folder.is_dir()):
            fail(f"--beside: {text} is not NAME=FOLDER with an existing folder")
        if beside_ending(name) in {"_scores.csv", *map(beside_ending, found)}:
            fail(f"--beside: the numbers of {name} need a file of their own: choose another name")
        if any(folder.glob("*/args.json")):
            by_env, told = read_runs(folder, metric)
            remarks += [f"{name}: {remark}" for remark in told]
        else:
            refuse_own_runs(f"--beside: {name}", folder)
            by_env = runs_by_env(find_other_runs(folder, name, metric))
        if not by_env:
            fail(f"--beside: no run with {metric} in {path}")
        color = BESIDE_COLORS[len(found) % len(BESIDE_COLORS)]
        found[name] = OtherProgram(name, color, by_env)
    return list(found.values())


def read_published(script: str) -> dict[str, list[PublishedScore]]:
    """Published scores of a script by environment."""
    published: dict[str, list[PublishedScore]] = defaultdict(list)
    with open(PUBLISHED, newline="") as file:
        for row in csv.DictReader(file):
            if row["script"] == Path(script).stem:
                numbers = {k: float(row[k] or "nan") for k in ("mean", "std", "total_timesteps")}
                published[row["env_id"]].append(PublishedScore(row["source"], **numbers))
    return dict(published)


def read_results(args: Args) -> Results:
    """All that is to be shown; fails if there is nothing, or the runs of several scripts."""
    by_env, remarks = read_runs(args.runs_dir)
    scripts = sorted({run.script for group in by_env.values() for run in group})
    if not scripts:
        fail(f"--runs-dir: no finished run in {args.runs_dir}")
    if len(scripts) > 1:
        fail(f"--runs-dir: runs of {', '.join(scripts)}; give each script a folder of its own")
    script = scripts[0]
    published = read_published(script)
    # Environments with published scores first, in their order.
    order = [env_id for env_id in published if env_id in by_env]
    order += sorted(set(by_env) - set(order))
    return Results(
        script=script,
        by_env={env_id: by_env[env_id] for env_id in order},
        published=published,
        beside=read_beside(args.beside, METRICS.get(script, RETURN), remarks),
        remarks=remarks,
    )


# ------ numbers ------


def confidence(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of (seeds, points) curves and half its 95 % interval (Student's t): (points,) each."""
    count = len(curves)
    mean = curves.mean(0)
    if count == 1:
        return mean, np.zeros_like(mean)
    error = curves.std(0, ddof=1) / np.sqrt(count)
    return mean, stats.t.ppf(0.975, count - 1) * error


def mean_steps(group: list[Run]) -> float:
    """Environment steps of a run."""
    return float(np.mean([run.total_steps for run in group]))


def nearest(scores: list[PublishedScore], steps: float) -> list[PublishedScore]:
    """Of each source the score after a number of steps that is nearest to ours, by its ratio."""
    found: dict[str, PublishedScore] = {}
    for score in sorted(scores, key=lambda score: abs(np.log(score.total_timesteps / steps))):
        found.setdefault(score.source, score)
    return list(found.values())


# ------ the picture ------


def light_grid(axes: plt.Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Pale lines behind the data, across one axis or both; no frame above and at the right."""
    axes.grid(axis=axis, color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def show_heights(axes: plt.Axes, lowest: float, highest: float) -> None:
    """Limits of the y axis around what must be seen; wide bands of few seeds may leave them."""
    margin = max(0.08 * (highest - lowest), 0.05 * max(abs(lowest), abs(highest)), 0.1)
    axes.set_ylim(lowest - margin, highest + margin)


@dataclass
class Panel:
    """One environment over steps or minutes."""

    axes: plt.Axes
    over: Axis
    group: list[Run]
    grid: np.ndarray = field(init=False)  # (POINTS + 1,), where curves are drawn
    heights: list[float] = field(default_factory=list)  # that must be seen

    def __post_init__(self) -> None:
        totals = [run.total(self.over) for run in self.group]
        # Seeds do the same number of steps but need different times: a finished one keeps its
        # score.
        end = min(totals) if self.over == "steps" else max(totals)
        self.grid = np.linspace(0, end, POINTS + 1)

    def draw_seeds(self) -> None:
        """The runs, their mean and its confidence band."""
        curves = np.stack([run.curve(self.over, self.grid) for run in self.group])
        for curve in curves:
            self.axes.plot(self.grid, curve, color=BLUE, alpha=0.35, linewidth=0.8)
        mean, half = confidence(curves)
        self.axes.plot(self.grid, mean, color=BLUE, linewidth=1.9)
        band = (mean - half, mean + half)
        self.axes.fill_between(self.grid, *band, color=BLUE, alpha=0.15, linewidth=0)
        # The band of few seeds can be far wider than the curves: it may leave the panel.
        self.heights += [np.nanmin(curves), np.nanmax(curves)]

    def draw_beside(self, runs: list[Run], color: str) -> None:
        """Runs of another program, each up to its end.

        Of several their mean and its confidence band, up to the end of the shortest.
        """
        look: dict[str, Any] = (
            {"linewidth": 1.5} if len(runs) == 1 else {"linewidth": 0.8, "alpha": 0.35}
        )
        curves = []
        for run in runs:
            curve = run.curve(self.over, self.grid)
            curve[self.grid > run.total(self.over)] = np.nan
            self.axes.plot(self.grid, curve, color=color, **look)
            self.heights += [height for height in curve if not np.isnan(height)]
            curves.append(curve)
        if len(runs) > 1:
            mean, half = confidence(np.stack(curves))
            self.axes.plot(self.grid, mean, color=color, linewidth=1.9)
            band = (mean - half, mean + half)
            self.axes.fill_between(self.grid, *band, color=color, alpha=0.15, linewidth=0)

    def draw_published(self, scores: list[PublishedScore], sources: list[str]) -> None:
        """A line for each published score, in the style of its source."""
        for score in scores:
            color, style = STYLES[sources.index(score.source) % len(STYLES)]
            self.axes.axhline(score.mean, color=color, linestyle=style, linewidth=1.5)
            self.heights.append(score.mean)

    def finish(self) -> None:
        """Limits, labels and lines of the axes."""
        show_heights(self.axes, min(self.heights), max(self.heights))
        self.axes.set_xlim(0, self.grid[-1])
        if self.over == "steps":
            self.axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short_number(x)))
        self.axes.set_xlabel(LABELS[self.over])
        self.axes.xaxis.set_major_locator(MaxNLocator(5))
        self.axes.yaxis.set_major_locator(MaxNLocator(6))
        light_grid(self.axes)


def draw_panel(axes: plt.Axes, results: Results, env_id: str, over: Axis) -> None:
    """All that is known of an environment over steps or minutes."""
    panel = Panel(axes, over, results.by_env[env_id])
    panel.draw_seeds()
    for program in results.beside:
        panel.draw_beside(program.by_env.get(env_id, []), program.color)
    panel.draw_published(results.published.get(env_id, []), results.sources)
    panel.finish()


def without_longer_ones(results: Results) -> Results:
    """The results less the published scores of much longer runs.

    Beside our curves those would say nothing; the table has them.
    """
    kept = {}
    for env_id, group in results.by_env.items():
        limit = LONGER * max(run.total_steps for run in group)
        scores = nearest(results.published.get(env_id, []), mean_steps(group))
        kept[env_id] = [score for score in scores if score.total_timesteps <= limit]
    return dataclasses.replace(results, published=kept)


def legend_entries(results: Results) -> list[Any]:
    """Matplotlib's handles of what the panels show."""
    several = any(len(group) > 1 for group in results.by_env.values())
    label = f"{results.label}, mean of seeds" if several else results.label
    handles: list[Any] = [Line2D([], [], color=BLUE, linewidth=1.9, label=label)]
    drawn = [results.by_env, *(program.by_env for program in results.beside)]
    if any(len(group) > 1 for by_env in drawn for group in by_env.values()):
        handles += [
            Patch(color=BLUE, alpha=0.15, linewidth=0, label="95 % confidence band"),
            Line2D([], [], color=BLUE, alpha=0.35, linewidth=0.8, label="single seeds"),
        ]
    for program in results.beside:
        handles.append(Line2D([], [], color=program.color, linewidth=1.5, label=program.in_legend))
    for number, source in enumerate(results.sources):
        color, style = STYLES[number % len(STYLES)]
        label = f"{source}, published"
        handles.append(Line2D([], [], color=color, linestyle=style, linewidth=1.5, label=label))
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
    """Write the picture with a palette.

    That makes the file a third as large, which the history of a repository is grateful for.
    """
    image = io.BytesIO()
    figure.savefig(image, dpi=110, facecolor="white")
    plt.close(figure)
    Image.open(image).convert("RGB").quantize(128).save(path, optimize=True)


def draw(results: Results, path: Path) -> None:
    """Write the picture: for each environment a panel over steps and one over minutes below it."""
    results = without_longer_ones(results)
    columns = min(len(results.by_env), PANELS_A_ROW)
    blocks = -(-len(results.by_env) // columns)
    plt.rcParams.update(LOOK)
    size = (max(3.3 * columns, 6.6), 5.2 * blocks + 0.5)
    options: dict[str, Any] = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(2 * blocks, columns, **options)
    for axes in grid.flat:
        axes.set_visible(False)
    for index, (env_id, group) in enumerate(results.by_env.items()):
        block, column = divmod(index, columns)
        pair = grid[2 * block : 2 * block + 2, column]
        for axes, over in zip(pair, LABELS, strict=True):
            axes.set_visible(True)
            draw_panel(axes, results, env_id, over)
            if column == 0:
                axes.set_ylabel(f"{results.what}, rolling mean\nof the last {WINDOW} episodes")
        fontsize = 11.5 if len(env_id) < 26 else 9  # a title is not wrapped, it runs into others
        pair[0].set_title(f"{env_id}\n{seeds(len(group))}", fontweight="bold", fontsize=fontsize)
    add_legend(figure, legend_entries(results), max(columns, 2))
    save(figure, path)


# ------ the files of numbers ------


def write_curves(runs: list[Run], path: Path, what: str) -> None:
    """CSV of at most POINTS points of each run's smoothed curve; what: return or length."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env_id", "seed", "global_step", "minutes", what])
        for run in runs:
            grid = np.linspace(0, run.total_steps, POINTS + 1)[1:]
            minutes = value_at(grid, run.steps, run.minutes)
            means = run.curve("steps", grid)
            for step, minute, mean in zip(grid, minutes, means, strict=True):
                if not np.isnan(mean):
                    row = [f"{step:.0f}", f"{minute:.3f}", f"{mean:.2f}"]
                    writer.writerow([run.env_id, run.seed, *row])


def write_scores(runs: list[Run], path: Path) -> None:
    """CSV with the final score of each run, and what rerun.py needs to make it again."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = ["env_id", "seed", "score", "steps", "minutes", "script"]
        writer.writerow([*columns, *Provenance.columns()])
        for run in runs:
            row = [run.env_id, run.seed, f"{run.score:.2f}", run.total_steps]
            row += [f"{run.total_minutes:.2f}", run.script]
            row += dataclasses.astuple(run.provenance)
            writer.writerow(row)


def published_cell(scores: list[PublishedScore], source: str, steps: float) -> str:
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
    for program in results.beside:
        runs = program.by_env.get(env_id, [])
        if runs:
            scores = mean_and_std(run.score_after(steps) for run in runs)
            cells.append(f"{scores} ({seeds(len(runs))})")
        else:
            cells.append("-")
    for source in results.sources:
        cells.append(published_cell(results.published.get(env_id, []), source, steps))
    minutes = float(np.mean([run.total_minutes for run in group]))
    cells += [short_number(steps), f"{minutes:.1f}"]
    return f"| {' | '.join(cells)} |"


def remarks_on_beside(results: Results) -> list[str]:
    """Which runs of other programs ended before ours."""
    remarks = []
    for env_id, group in results.by_env.items():
        enough = (1 - SAME_STEPS) * mean_steps(group)
        for program in results.beside:
            for run in program.by_env.get(env_id, []):
                if run.total_steps < enough:
                    remarks.append(f"{run.folder.name} ended after {run.total_steps:,} steps.")
    return remarks


def origin(run: Run) -> str:
    """Script and flags of a run."""
    made = run.provenance
    version = f"SHA-256 `{made.script_hash}`" if made.script_hash else "version not recorded"
    flags = f"flags `{made.flags}`" if made.flags else "default flags"
    return f"`{run.script}`, {version}, {flags}"


def remarks_on_origin(results: Results) -> list[str]:
    """Script, flags and seeds: a line for the environments that agree in all of them."""
    by_origin: dict[str, list[str]] = defaultdict(list)
    for env_id, group in results.by_env.items():
        made = " or ".join(sorted({origin(run) for run in group}))
        numbers = f"seed{'s' if len(group) > 1 else ''} {', '.join(str(run.seed) for run in group)}"
        by_origin[f"{made}, {numbers}."].append(env_id)
    return [f"{', '.join(env_ids)}: {made}" for made, env_ids in by_origin.items()]


def write_table(results: Results, path: Path) -> None:
    """Markdown table of the final scores beside the published ones."""
    columns = [f"`{results.label}`", *(one.label for one in results.beside), *results.sources]
    made_with = sorted({run.provenance.made_with for run in results.runs})
    lines = [
        f"| environment | {' | '.join(columns)} | steps | minutes |",
        f"|---|{'---:|' * (len(columns) + 2)}",
        *(table_row(results, env_id) for env_id in results.by_env),
        "",
        f"Score of a run: mean {results.what} of its last {WINDOW} training episodes. The table "
        "has its mean ± standard deviation over the seeds, and the mean duration of a run in "
        "minutes.",
    ]
    if results.sources:
        named = dict.fromkeys(PUBLISHED_IN.get(source, source) for source in results.sources)
        pages = [page for page in named if not any(page in more for more in named if more != page)]
        lines.append(f"Published scores ({', '.join(results.sources)}): {', '.join(pages)}.")
    lines.append(f"Ours were made with {'; '.join(made_with)}.")
    lines += remarks_on_origin(results)
    lines += [*results.remarks, *remarks_on_beside(results)]
    path.write_text("\n".join(lines) + "\n")


def write_all(results: Results, out: Path, name: str) -> list[Path]:
    """Write the picture, the table and the files of numbers; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}{end}" for end in (".png", ".csv", "_scores.csv", ".md")]
    picture, curves, scores, table = paths
    draw(results, picture)
    write_curves(results.runs, curves, results.what)
    write_scores(results.runs, scores)
    write_table(results, table)
    for program in results.beside:
        runs = [run for env_id in results.by_env for run in program.by_env.get(env_id, [])]
        paths.append(out / f"{name}{beside_ending(program.name)}")
        write_curves(runs, paths[-1], results.what)
    return paths


def check_results(out: Path, name: str | None) -> None:
    """Exit with one line and code 2 if files of that name cannot be written into that folder."""
    check_folder("--out", out)
    if name is not None:
        check_name("--name", name)


def check_folders(runs_dir: Path, out: Path, name: str | None) -> None:
    """Exit with one line and code 2 if there are no runs or the results cannot be written."""
    if not runs_dir.is_dir():
        fail(f"--runs-dir: there is no folder {runs_dir}")
    check_results(out, name)


def main() -> int:
    """Read the runs, write the results and say where; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    check_folders(args.runs_dir, args.out, args.name)
    results = read_results(args)
    for path in write_all(results, args.out, args.name or Path(results.script).stem):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
