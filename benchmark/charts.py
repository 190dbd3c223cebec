"""Figures of what speed.py and scaling.py have measured, from their CSV files in a folder.

    uv run benchmark/charts.py                                  those in docs/results/
    uv run benchmark/charts.py --results results

speed*.csv become a bar chart each, and speeds.svg has all of them; a table with nothing beside the
script is left out. solved*.csv become solved.svg, and scaling.csv becomes scaling.svg. Exit codes:
0 done, 2 bad input.
"""

import csv
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import speed
import tyro
from console import fail, warn
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

BLUE, PALE_BLUE, GREY = "#1f6fb4", "#7fb2dd", "#9ca3af"
# White behind everything, so that the figure is as legible on dark pages; texts remain texts.
LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.edgecolor": GREY,
    "svg.fonttype": "none",
    "svg.hashsalt": "charts",
}
KNOBS = {
    "num_envs": "environments, --num-envs",
    "num_steps": "rollout, --num-steps",
    "width": "width of the hidden layers",
}


@dataclass
class Args:
    results: Path = Path("docs/results")  # folder of the CSV files; the figures are put beside them


@dataclass(frozen=True)
class Bar:
    """One bar: its length, what stands beside it, and whether it is ours."""

    name: str
    length: float
    text: str
    color: str


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Fail, with the name of the file, if what is read there is not what was expected."""
    try:
        yield
    except (KeyError, ValueError, IndexError) as error:
        fail(f"--results: {path} is not what speed.py or scaling.py writes: {error!r}")


def distinct(titles: dict[Path, str]) -> dict[Path, str]:
    """The titles of files; those that several have, with the name of the file."""
    count = Counter(titles.values())
    return {
        path: title if count[title] == 1 else f"{title}, {path.name}"
        for path, title in titles.items()
    }


def save(figure: plt.Figure, path: Path) -> Path:
    """Write the figure, the same bytes each time; returns its path."""
    figure.savefig(path, facecolor="white", metadata={"Date": None})
    plt.close(figure)
    return path


# ------ bars ------


def draw_bars(axes: plt.Axes, bars: list[Bar], title: str, longest: float) -> None:
    """Bars from top to bottom, each with its number; longest: the one for which there is room."""
    rows = range(len(bars))
    axes.barh(rows, [bar.length for bar in bars], color=[bar.color for bar in bars], height=0.72)
    for row, bar in zip(rows, bars, strict=True):
        axes.text(bar.length + 0.01 * longest, row, bar.text, va="center", fontsize=9)
    axes.set_yticks(rows, [bar.name for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * longest)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_xticks([])
    axes.set_title(title, loc="left", fontweight="bold")


def bar_chart(
    groups: dict[str, list[Bar]], path: Path, caption: str, one_scale: bool = False
) -> Path:
    """A picture of groups of bars, one below the other; returns its path.

    one_scale: equal bars of all groups have equal lengths, and there is a line at 1. Else each
    group has its own scale.
    """
    heights = [len(bars) + 1 for bars in groups.values()]
    size = (6.6, 0.27 * sum(heights) + 0.35)
    longest = {title: max(bar.length for bar in bars) for title, bars in groups.items()}
    options: dict[str, Any] = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(len(groups), 1, height_ratios=heights, **options)
    for axes, (title, bars) in zip(grid[:, 0], groups.items(), strict=True):
        draw_bars(axes, bars, title, max(longest.values()) if one_scale else longest[title])
        if one_scale:
            axes.axvline(1, color="#4b5563", linewidth=0.8, linestyle=":")
    figure.supxlabel(caption, fontsize=9, color="#4b5563")
    return save(figure, path)


def short_name(name: str) -> str:
    """A contender without the name of its script, which the title has: ours --compile, CleanRL."""
    words = [word for word in name.split() if not word.endswith(".py")]
    return " ".join(["ours", *words] if name.split()[0].endswith(".py") else words)


def speed_bars(cells: speed.Cells) -> list[Bar]:
    """Each contender's speed as a multiple of the first peer's; nothing if there is no peer.

    Ours are the medians of the rounds' ratios, and so are the other peers', by way of ours. Raises
    ValueError or KeyError if it is no table of speeds.
    """
    measured = {speed.SPEED, speed.MEMORY}
    ours = [name for name, row in cells.items() if row.keys() == measured]
    peers = [name for name, row in cells.items() if row.keys() > measured]  # and ratios
    if not ours or len(ours) + len(peers) < len(cells):
        raise ValueError("no row of a script's speed and memory")
    if not peers:
        return []
    reference = cells[peers[0]]
    columns = [column for column in reference if column not in (speed.SPEED, speed.MEMORY)]
    times = [reference[column].median for column in columns]
    colors = [BLUE] + [PALE_BLUE] * (len(ours) - 1)
    bars = [
        Bar(name, length, f"{length:.2f}", color)
        for name, length, color in zip(ours, times, colors, strict=True)
    ]
    for name in peers:
        length = times[0] / cells[name][columns[0]].median
        bars.append(Bar(name, length, f"{length:.2f}", GREY))
    return bars


def draw_speeds(folder: Path) -> list[Path]:
    """A chart of each table of speeds, and one of all."""
    tables: dict[Path, list[Bar]] = {}
    titles: dict[Path, str] = {}
    peers = []  # that are 1
    drawn = []
    for path in sorted(folder.glob("speed*.csv")):
        with reading(path):
            bars = speed_bars(speed.read_summary(path))
        if not bars:
            warn(f"{path} is left out: nothing is beside the script")
            continue
        script = bars[0].name
        titles[path] = script
        tables[path] = [replace(bar, name=short_name(bar.name)) for bar in bars]
        peer = next(bar.name for bar in bars if bar.color == GREY)
        peers.append(peer.removesuffix(script).strip())  # CleanRL's is called "CleanRL ppo.py"
        caption = f"steps per second; {peer}: 1"
        drawn.append(bar_chart({script: tables[path]}, path.with_suffix(".svg"), caption))
    if tables:
        groups = {title: tables[path] for path, title in distinct(titles).items()}
        caption = f"steps per second; {' or '.join(dict.fromkeys(peers))}: 1"
        drawn.append(bar_chart(groups, folder / "speeds.svg", caption, one_scale=True))
    return drawn


def race_bars(rows: list[dict[str, str]]) -> list[Bar]:
    """Each contender's median processor time until it was stopped at the score, or at its end."""
    by_name: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_name[row["contender"]].append(row)
    bars: list[Bar] = []
    for name, runs in by_name.items():
        seconds = statistics.median(float(run["processor"]) for run in runs)
        reached = sum(run["reached"] == "True" for run in runs)
        text = f"{seconds:,.0f} s"
        if reached < len(runs):
            text += f", reached by {reached} of {len(runs)} seeds"
        color = GREY
        if ".py" in name.split()[0]:
            color = PALE_BLUE if bars else BLUE
        bars.append(Bar(name, seconds, text, color))
    return bars


def read_rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def draw_races(folder: Path) -> list[Path]:
    """One chart of all tasks that were trained until a score."""
    titles = {}
    races = {}
    for path in sorted(folder.glob("solved*.csv")):
        with reading(path):
            rows = read_rows(path)
            titles[path] = f"{rows[0]['task']} at {float(rows[0]['score']):g}"
            races[path] = race_bars(rows)
    groups = {title: races[path] for path, title in distinct(titles).items()}
    caption = "processor seconds of the whole run, stopped at this mean return of 100 episodes"
    return [bar_chart(groups, folder / "solved.svg", caption)] if groups else []


# ------ lines ------


def draw_line(axes: plt.Axes, rows: list[dict[str, str]], column: str) -> None:
    """Medians over the rounds, and their range, on logarithmic axes."""
    by_value: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        by_value[int(row["value"])].append(float(row[column]))
    x = sorted(by_value)
    axes.plot(x, [statistics.median(by_value[value]) for value in x], color=BLUE, marker="o", ms=4)
    lows, highs = [min(by_value[value]) for value in x], [max(by_value[value]) for value in x]
    axes.fill_between(x, lows, highs, color=BLUE, alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_scaling(folder: Path) -> list[Path]:
    """Speed and memory over each knob that was turned."""
    path = folder / "scaling.csv"
    if not path.exists():
        return []
    with reading(path):
        return [draw_lines(read_rows(path), path.with_suffix(".svg"))]


def draw_lines(rows: list[dict[str, str]], path: Path) -> Path:
    """A picture with a column for each knob; returns its path."""
    knobs = list(dict.fromkeys(row["knob"] for row in rows))
    labels = {"steps_per_second": "steps per second", "memory_mib": "peak memory, MiB"}
    size = (3.4 * len(knobs), 5.4)
    options: dict[str, Any] = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(len(labels), len(knobs), sharex="col", sharey="row", **options)
    for column, knob in enumerate(knobs):
        chosen = [row for row in rows if row["knob"] == knob]
        for line, measured in enumerate(labels):
            draw_line(grid[line, column], chosen, measured)
            values = [float(row[measured]) for row in rows]
            grid[line, column].set_ylim(min(values) / 2, max(values) * 2)
        grid[-1, column].set_xlabel(KNOBS[knob])
    for line, label in enumerate(labels.values()):
        grid[line, 0].set_ylabel(label)
    return save(figure, path)


def main() -> int:
    """Draws all that there are numbers for; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    if not args.results.is_dir():
        fail(f"--results: there is no folder {args.results}")
    plt.rcParams.update(LOOK)
    drawn = [*draw_speeds(args.results), *draw_races(args.results), *draw_scaling(args.results)]
    if not drawn:
        fail(f"--results: nothing of speed.py or scaling.py to draw in {args.results}")
    for path in drawn:
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
