# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "matplotlib>=3.9",
#     "numpy>=2",
#     "pillow>=10",
#     "scipy>=1.13",
#     "tensorboard>=2.19",
#     "tyro>=0.9.20",
# ]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Learning curves and a score table from the folders of finished runs.

    uv run benchmark/plot.py --runs-dir runs/benchmark/ppo --out docs/results --name ppo
    uv run benchmark/plot.py --runs-dir runs --beside CleanRL=~/cleanrl/runs

Writes ppo.png (curves over steps and over minutes), ppo.csv (their points), ppo_scores.csv (a line
for each run) and ppo.md (the table); with --beside also ppo_cleanrl.csv, the points of the others.
Exit codes: 0 done, 2 bad input or no finished run.
"""

import csv
import io
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image
from scipy import stats
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.util import tensor_util

WINDOW = 100  # episodes in a rolling mean, and in a final score
POINTS = 200  # of a curve
PANELS_A_ROW = 4
RETURN = "charts/episodic_return"
# Scripts with another score: in self-play returns sum to zero, and what is published are lengths.
METRICS = {"ppo_pettingzoo_ma_atari.py": "charts/episodic_length-player0"}
PUBLISHED = Path(__file__).with_name("published.csv")
PUBLISHED_FROM = "[CleanRL's docs/rl-algorithms/ppo](https://docs.cleanrl.dev/rl-algorithms/ppo/)"
IGNORED_SETTINGS = {"seed", "runs_dir", "resume"}  # runs that differ in these belong together
BLUE, RED, GREY = "#1f6fb4", "#d1495b", "#6b7280"
BESIDE = ["#d97706", "#15803d", "#7c3aed"]  # colors of other programs' runs
# Published scores: dashes that fall into each other's gaps, so that equal scores stay visible.
STYLES: list[tuple[str, Any]] = [(RED, (0, (4, 6))), (GREY, (5, (4, 6)))]


@dataclass
class Args:
    runs_dir: Path  # folder that holds the run folders of one script
    out: Path = Path("docs/results")  # where the four files are written
    name: str | None = None  # their name; the script's if not given
    beside: tuple[str, ...] = ()  # NAME=FOLDER: other programs' runs to show, TensorBoard folders


@dataclass
class Run:
    """What a finished run left behind. steps, minutes, returns: (episodes,)."""

    folder: Path
    script: str
    env_id: str
    seed: int
    settings: dict[str, Any]
    made_with: str  # versions and hardware
    steps: np.ndarray  # environment steps when the episode ended
    minutes: np.ndarray  # of training until then; pauses between resumptions do not count
    returns: np.ndarray
    total_steps: int
    total_minutes: float

    @property
    def score(self) -> float:
        return float(self.returns[-WINDOW:].mean())

    def score_after(self, steps: float) -> float:
        """Mean return of the last WINDOW episodes that had ended by then; NaN if none had."""
        returns = self.returns[self.steps <= steps]
        return float(returns[-WINDOW:].mean()) if len(returns) else np.nan


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def read_events(
    folder: Path, metric: str = RETURN
) -> tuple[list[tuple[int, float, float]], int, float]:
    """Episodes as (step, minutes, return or other metric), the last step and all minutes of a run.

    A resumed run has one event file for each of its parts. Minutes run only while a part does. What
    a part wrote after the checkpoint that the next one started from is dropped: that is what
    `SummaryWriter(purge_step=...)` asks of readers.
    """
    episodes: list[tuple[int, float, float]] = []
    last_step, minutes_before, total_minutes = 0, 0.0, 0.0  # of what is kept
    for path in sorted(folder.glob("events.out.tfevents.*")):
        part_started = None
        for event in EventFileLoader(str(path)).Load():
            if part_started is None:
                part_started = event.wall_time
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                episodes = [episode for episode in episodes if episode[0] < event.step]
                last_step = min(last_step, event.step - 1)
            minutes = minutes_before + (event.wall_time - part_started) / 60
            for value in event.summary.value:
                if value.tag.startswith(
                    ("charts/", "losses/")
                ):  # a final evaluation does not count
                    last_step, total_minutes = max(last_step, event.step), minutes
                if value.tag == metric:
                    episodic_return = float(tensor_util.make_ndarray(value.tensor))
                    episodes.append((event.step, minutes, episodic_return))
        minutes_before = total_minutes
    return episodes, last_step, total_minutes


def read_run(folder: Path, facts: dict[str, Any], metric: str | None = None) -> Run:
    """The run in a folder with the given args.json; its scores are the metric, or the script's."""
    metric = metric or METRICS.get(facts["script"], RETURN)
    episodes, total_steps, total_minutes = read_events(folder, metric)
    steps, minutes, returns = np.array(episodes, float).reshape(-1, 3).T
    versions = " ".join(f"{name} {text.split()[0]}" for name, text in facts["versions"].items())
    return Run(
        folder=folder,
        script=facts["script"],
        env_id=facts["args"]["env_id"],
        seed=facts["args"]["seed"],
        settings={k: v for k, v in facts["args"].items() if k not in IGNORED_SETTINGS},
        made_with=f"{versions} on {facts.get('hardware', 'hardware that was not recorded')}",
        steps=steps,
        minutes=minutes,
        returns=returns,
        total_steps=total_steps,
        total_minutes=total_minutes,
    )


def started(folder: Path) -> tuple[str, str]:
    """Sorts run folders, <env_id>__<exp_name>__<seed>__<time>, by their time."""
    return folder.name.rpartition("__")[2], folder.name


def read_runs(runs_dir: Path) -> tuple[dict[str, list[Run]], list[str]]:
    """Finished runs by environment and seed, and what the reader of the results has to be told."""
    runs: dict[tuple[str, str, int], Run] = {}  # by script, environment and seed
    unfinished: set[tuple[str, str, int]] = set()
    silent: set[tuple[str, str, int]] = set()
    for folder in sorted((file.parent for file in runs_dir.glob("*/args.json")), key=started):
        try:
            facts = json.loads((folder / "args.json").read_text())
            key = (facts["script"], facts["args"]["env_id"], facts["args"]["seed"])
            if not (folder / "agent.pt").exists():
                unfinished.add(key)
                warn(f"{folder} is left out: not finished")
                continue
            run = read_run(folder, facts)
        except (ValueError, KeyError, TypeError) as error:
            warn(f"{folder} is left out: cannot be read: {error!r}")
            continue
        if not len(run.returns):
            silent.add(key)
            continue
        if key in runs:
            warn(f"{runs[key].folder} is left out: {folder.name} is newer")
        runs[key] = run
    remarks = []
    scripts = {script for script, _, _ in runs}  # what other scripts left behind is not of interest
    for problem, keys in (("no episode ended", silent), ("not finished", unfinished)):
        if left_out := sorted(key[1:] for key in keys - set(runs) if key[0] in scripts):
            names = ", ".join(f"{env_id} seed {seed}" for env_id, seed in left_out)
            remarks.append(f"Left out, {problem}: {names}.")
    if short := [run for run in runs.values() if len(run.returns) < WINDOW]:
        names = ", ".join(f"{run.env_id} seed {run.seed} ({len(run.returns)})" for run in short)
        remarks.append(f"Fewer than {WINDOW} episodes, all of them counted: {names}.")
    by_env: dict[str, list[Run]] = defaultdict(list)
    for run in runs.values():
        by_env[run.env_id].append(run)
    for env_id, group in by_env.items():
        group.sort(key=lambda run: run.seed)
        first = group[0].settings
        flags = {k for run in group for k in first if run.settings.get(k) != first[k]}
        if flags:
            remarks.append(f"The runs of {env_id} differ in {', '.join(sorted(flags))}.")
    for remark in remarks:
        warn(remark)
    return dict(by_env), remarks


def read_beside(given: tuple[str, ...], metric: str) -> dict[str, dict[str, list[Run]]]:
    """Other programs' runs: name -> environment id -> runs.

    given: NAME=FOLDER, a folder of run folders called <env_id>__<exp_name>__<seed>__<time>, as
    CleanRL does; whatever has logged the metric will do.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not (name and folder and Path(folder).expanduser().is_dir()):
            fail(f"--beside: {text} is not NAME=FOLDER with an existing folder")
        by_env: dict[str, list[Run]] = defaultdict(list)
        for path in sorted(Path(folder).expanduser().iterdir()):
            if match := re.fullmatch(r"(.+?)__.+__(\d+)__.+", path.name):
                args = {"env_id": match[1], "seed": int(match[2])}
                run = read_run(path, {"script": name, "args": args, "versions": {}}, metric)
                if len(run.returns):
                    by_env[run.env_id].append(run)
        if not by_env:
            fail(f"--beside: no run with {metric} in {folder}")
        found[name] = dict(by_env)
    return found


def rolling_mean(x: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Mean of each entry and up to window - 1 entries before it: (n,) -> (n,)."""
    sums = np.concatenate([[0.0], np.cumsum(x)])
    ends = np.arange(1, len(x) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def value_at(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y of the last x that is not beyond each grid point; NaN before the first x: (len(grid),)."""
    last = np.searchsorted(x, grid, side="right") - 1
    return np.where(last >= 0, y[last], np.nan)


def confidence(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of (seeds, points) curves and half its 95 % interval (Student's t): (points,) each."""
    count = len(curves)
    mean = curves.mean(0)
    if count == 1:
        return mean, np.zeros_like(mean)
    error = curves.std(0, ddof=1) / np.sqrt(count)
    return mean, stats.t.ppf(0.975, count - 1) * error


def mean_and_std(scores: Iterable[float]) -> str:
    """'mean ± sample standard deviation', without the latter for a single score."""
    values = np.array(list(scores))
    std = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{std}"


def short_number(x: float) -> str:
    """500000 -> 500k, 1000000 -> 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def read_published(script: str) -> dict[str, dict[str, dict[str, float]]]:
    """Published scores of a script: environment id -> source -> mean, std, total_timesteps."""
    published: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    with open(PUBLISHED, newline="") as file:
        for row in csv.DictReader(file):
            if row["script"] == Path(script).stem:
                numbers = {k: float(row[k]) for k in ("mean", "std", "total_timesteps")}
                published[row["env_id"]][row["source"]] = numbers
    return published


def draw_panel(
    axes: plt.Axes,
    group: list[Run],
    over: str,
    published: dict[str, dict[str, float]],
    sources: list[str],
    beside: dict[str, list[Run]],
    colors: dict[str, str],
) -> None:
    """Mean curve, band, single seeds, others' runs and published scores over steps or minutes."""
    totals = [run.total_steps if over == "steps" else run.total_minutes for run in group]
    # Seeds do the same number of steps but need different times: a finished one keeps its score.
    grid = np.linspace(0, min(totals) if over == "steps" else max(totals), POINTS + 1)
    curves = np.stack([value_at(grid, getattr(r, over), rolling_mean(r.returns)) for r in group])
    for curve in curves:
        axes.plot(grid, curve, color=BLUE, alpha=0.35, linewidth=0.8)
    mean, half = confidence(curves)
    axes.plot(grid, mean, color=BLUE, linewidth=1.9)
    lowest, highest = np.nanmin(curves), np.nanmax(curves)
    for name, runs in beside.items():
        for run in runs:
            other = value_at(grid, getattr(run, over), rolling_mean(run.returns))
            other[grid > (run.total_steps if over == "steps" else run.total_minutes)] = np.nan
            axes.plot(grid, other, color=colors[name], linewidth=1.5)
            lowest, highest = np.nanmin([lowest, *other]), np.nanmax([highest, *other])
    scores = [score["mean"] for score in published.values()]
    lowest, highest = min([lowest, *scores]), max([highest, *scores])
    axes.fill_between(grid, mean - half, mean + half, color=BLUE, alpha=0.15, linewidth=0)
    for source, score in published.items():
        color, style = STYLES[sources.index(source) % len(STYLES)]
        axes.axhline(score["mean"], color=color, linestyle=style, linewidth=1.5)
    # The band of few seeds can be far wider than the curves: it may leave the panel.
    margin = max(0.08 * (highest - lowest), 0.05 * max(abs(lowest), abs(highest)), 0.1)
    axes.set_ylim(lowest - margin, highest + margin)
    axes.set_xlim(0, grid[-1])
    if over == "steps":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short_number(x)))
    axes.set_xlabel("environment steps" if over == "steps" else "wall-clock minutes")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.grid(color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw(
    by_env: dict[str, list[Run]],
    published: dict[str, dict[str, dict[str, float]]],
    script: str,
    path: Path,
    beside: dict[str, dict[str, list[Run]]],
) -> None:
    """Write the picture: for each environment a panel over steps and one over minutes below it."""
    columns = min(len(by_env), PANELS_A_ROW)
    colors = {name: BESIDE[i % len(BESIDE)] for i, name in enumerate(beside)}
    blocks = -(-len(by_env) // columns)
    # The score of a much longer run would say nothing beside these curves; the table has it.
    limits = {env_id: 1.5 * max(run.total_steps for run in by_env[env_id]) for env_id in by_env}
    published = {
        env_id: {
            s: score for s, score in scores.items() if score["total_timesteps"] <= limits[env_id]
        }
        for env_id, scores in published.items()
        if env_id in limits
    }
    sources = list(dict.fromkeys(s for env_id in by_env for s in published.get(env_id, {})))
    plt.rcParams.update({"font.size": 10, "axes.titlesize": 11.5, "axes.edgecolor": "#9ca3af"})
    figure, grid = plt.subplots(
        2 * blocks,
        columns,
        figsize=(max(3.3 * columns, 6.6), 5.2 * blocks + 0.5),
        squeeze=False,
        layout="constrained",
    )
    for axes in grid.flat:
        axes.set_visible(False)
    for index, (env_id, group) in enumerate(by_env.items()):
        block, column = divmod(index, columns)
        for row, over in enumerate(("steps", "minutes")):
            axes = grid[2 * block + row, column]
            axes.set_visible(True)
            others = {name: runs[env_id] for name, runs in beside.items() if env_id in runs}
            draw_panel(axes, group, over, published.get(env_id, {}), sources, others, colors)
            if column == 0:
                what = "length" if script in METRICS else "return"
                axes.set_ylabel(f"{what}, rolling mean\nof the last {WINDOW} episodes")
        seeds = f"{len(group)} seed{'s' if len(group) > 1 else ''}"
        size = 11.5 if len(env_id) < 26 else 9  # a title is not wrapped, it runs into its neighbour
        title = f"{env_id}\n{seeds}"
        grid[2 * block, column].set_title(title, fontweight="bold", fontsize=size)
    handles: list[Any] = [
        Line2D([], [], color=BLUE, linewidth=1.9, label=f"{script}, mean of seeds")
    ]
    if any(len(group) > 1 for group in by_env.values()):
        handles += [
            Patch(color=BLUE, alpha=0.15, linewidth=0, label="95 % confidence band"),
            Line2D([], [], color=BLUE, alpha=0.35, linewidth=0.8, label="single seeds"),
        ]
    for name, color in colors.items():
        handles.append(Line2D([], [], color=color, linewidth=1.5, label=f"{name}, run beside it"))
    for source in sources:
        color, style = STYLES[sources.index(source) % len(STYLES)]
        label = f"{source}, published"
        handles.append(Line2D([], [], color=color, linestyle=style, linewidth=1.5, label=label))
    look: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "handlelength": 3}
    for ncols in range(min(len(handles), max(columns, 2)), 0, -1):  # as many as there is room for
        legend = figure.legend(handles=handles, ncols=ncols, **look)
        if ncols == 1 or legend.get_window_extent().width < figure.bbox.width:
            break
        legend.remove()
    image = io.BytesIO()
    figure.savefig(image, dpi=110, facecolor="white")
    plt.close(figure)
    # A palette makes the file a third as large, which the history of a repository is grateful for.
    Image.open(image).convert("RGB").quantize(128).save(path, optimize=True)


def write_curves(runs: list[Run], path: Path, what: str) -> None:
    """CSV of at most POINTS points of each run's smoothed curve; what: return or length."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env_id", "seed", "global_step", "minutes", what])
        for run in runs:
            grid = np.linspace(0, run.total_steps, POINTS + 1)[1:]
            minutes = value_at(grid, run.steps, run.minutes)
            means = value_at(grid, run.steps, rolling_mean(run.returns))
            for step, minute, mean in zip(grid, minutes, means, strict=True):
                if not np.isnan(mean):
                    row = [f"{step:.0f}", f"{minute:.3f}", f"{mean:.2f}"]
                    writer.writerow([run.env_id, run.seed, *row])


def write_scores(runs: list[Run], path: Path) -> None:
    """CSV with the final score of each run."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env_id", "seed", "score", "steps", "minutes"])
        for run in runs:
            row = [f"{run.score:.2f}", run.total_steps, f"{run.total_minutes:.2f}"]
            writer.writerow([run.env_id, run.seed, *row])


def write_table(
    by_env: dict[str, list[Run]],
    published: dict[str, dict[str, dict[str, float]]],
    script: str,
    remarks: list[str],
    path: Path,
    beside: dict[str, dict[str, list[Run]]],
) -> None:
    """Markdown table of the final scores beside the published ones."""
    sources = list(dict.fromkeys(s for env_id in by_env for s in published.get(env_id, {})))
    others = [f"{name}, run beside it" for name in beside]
    lines = [
        f"| environment | {' | '.join([f'`{script}`', *others, *sources])} | steps | minutes |",
        f"|---|{'---:|' * (len(others) + len(sources) + 3)}",
    ]
    for env_id, group in by_env.items():
        steps = float(np.mean([run.total_steps for run in group]))
        minutes = float(np.mean([run.total_minutes for run in group]))
        seeds = f"{len(group)} seed{'s' if len(group) > 1 else ''}"
        cells = [env_id, f"{mean_and_std(run.score for run in group)} ({seeds})"]
        for runs_by_env in beside.values():
            runs = runs_by_env.get(env_id, [])
            for run in runs:
                if run.total_steps < 0.98 * steps:
                    remarks.append(f"{run.folder.name} ended after {run.total_steps:,} steps.")
            number = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
            scores = mean_and_std(run.score_after(steps) for run in runs) if runs else ""
            cells.append(f"{scores} ({number})" if runs else "-")
        for source in sources:
            score = published.get(env_id, {}).get(source)
            if score is None:
                cells.append("-")
                continue
            cell = f"{score['mean']:.2f} ± {score['std']:.2f}"
            if abs(score["total_timesteps"] / steps - 1) > 0.02:
                cell += f" (after {short_number(score['total_timesteps'])} steps)"
            cells.append(cell)
        lines.append(f"| {' | '.join([*cells, short_number(steps), f'{minutes:.1f}'])} |")
    what = "length" if script in METRICS else "return"
    made_with = sorted({run.made_with for group in by_env.values() for run in group})
    lines += [
        "",
        f"Score of a run: mean {what} of its last {WINDOW} training episodes. The table has its "
        "mean ± standard deviation over the seeds, and the mean duration of a run in minutes.",
    ]
    if sources:
        lines.append(f"Published scores ({', '.join(sources)}): {PUBLISHED_FROM}.")
    lines.append(f"Ours were made with {'; '.join(made_with)}.")
    lines += remarks
    path.write_text("\n".join(lines) + "\n")


def main() -> int:
    args = tyro.cli(Args, description=(__doc__ or "").partition("\n")[0])
    if not args.runs_dir.is_dir():
        fail(f"--runs-dir: there is no folder {args.runs_dir}")
    if args.out.exists() and not args.out.is_dir():
        fail(f"--out: {args.out} is not a folder")
    by_env, remarks = read_runs(args.runs_dir)
    runs = [run for group in by_env.values() for run in group]
    if not runs:
        fail(f"--runs-dir: no finished run in {args.runs_dir}")
    scripts = sorted({run.script for run in runs})
    if len(scripts) > 1:
        fail(f"--runs-dir: runs of {', '.join(scripts)}; give each script a folder of its own")
    script = scripts[0]
    metric = METRICS.get(script, RETURN)
    published, beside = read_published(script), read_beside(args.beside, metric)
    # Environments with published scores first, in their order.
    order = [env_id for env_id in published if env_id in by_env]
    by_env = {env_id: by_env[env_id] for env_id in [*order, *sorted(set(by_env) - set(order))]}
    runs = [run for group in by_env.values() for run in group]
    name = args.name or Path(script).stem
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    draw(by_env, published, script, args.out / f"{name}.png", beside)
    what = "length" if script in METRICS else "return"
    write_curves(runs, args.out / f"{name}.csv", what)
    write_scores(runs, args.out / f"{name}_scores.csv")
    write_table(by_env, published, script, remarks, args.out / f"{name}.md", beside)
    files = [f"{name}.png", f"{name}.csv", f"{name}_scores.csv", f"{name}.md"]
    for other, runs_by_env in beside.items():
        files.append(f"{name}_{re.sub('[^a-z0-9]', '_', other.lower())}.csv")
        others = [run for env_id in by_env for run in runs_by_env.get(env_id, [])]
        write_curves(others, out / files[-1], what)
    for file in files:
        print(args.out / file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
