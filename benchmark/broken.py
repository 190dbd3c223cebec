"""Train scripts that are broken on purpose, beside healthy ones: the curves of docs/debugging.md.

    uv run benchmark/broken.py                               trains what is left, then draws
    uv run benchmark/broken.py --redraw                      draws what is in --out
    uv run benchmark/broken.py --faults no-reset --workers 2

The mistakes stand in benchmark/broken.toml. Each gets a folder in --runs-dir with an edited copy of
the script and its run. Writes into --out, of what is finished: broken.csv (curves of all runs),
broken_healthy.md (ranges of the metrics in the healthy runs) and broken_<fault>.png. Exit codes: 0
when all is done, 1 if a run failed, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import csv
import json
import math
import shlex
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import plot
import run
import tyro
from console import Signals, check_folder, fail
from matplotlib.ticker import FuncFormatter, MaxNLocator
from runs import RETURN, short_number
from tasks import Task, find_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from undo import Undoing, edits_of

SCRIPTS = Path(__file__).resolve().parents[1] / "ppo"
TABLE = Path(__file__).with_suffix(".toml")
POINTS = 100  # of a curve: so many equal parts of the run, and the mean of each
BEGINNING = 0.1  # share of a run that the ranges leave out
LENGTH = "charts/episodic_length"
EPISODES = (RETURN, LENGTH)  # logged when an episode ends, not once an iteration
LOSSES = (
    "losses/policy_loss",
    "losses/value_loss",
    "losses/entropy",
    "losses/old_approx_kl",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/grad_norm",
    "losses/explained_variance",
)
METRICS = (*EPISODES, *LOSSES)  # in the file of curves; speed and learning rate are no symptoms
WIDE = 100  # times that the largest value of a positive metric is the smallest: then logarithmic

Curves = dict[str, dict[str, np.ndarray]]  # metric by run, "step" among them: (points,) each


@dataclass
class Args:
    faults: tuple[str, ...] = ()  # names in benchmark/broken.toml, with their healthy runs; or all
    seed: int = 1  # of every run
    workers: int = 1  # runs at a time
    command: str = "uv run"  # what starts a script
    runs_dir: Path = Path("runs/benchmark/broken")  # a folder for each run is made in it
    out: Path = Path("docs/results")  # where curves, ranges and figures are written
    redraw: bool = False  # train nothing, draw the curves that are in --out


@dataclass(frozen=True)
class Healthy:
    """A script as it is."""

    name: str
    script: str  # file name
    env_id: str
    flags: str


@dataclass(frozen=True)
class Fault(Undoing):
    """A mistake in a script; its tag is its name."""

    run: Healthy  # the run that it is drawn beside
    mistake: str  # what the edited script does
    shows: tuple[str, ...]  # the two metrics that betray it

    @property
    def table(self) -> str:
        """The file that it stands in."""
        return f"benchmark/{TABLE.name}"


def read_table() -> tuple[dict[str, Healthy], dict[str, Fault]]:
    """What stands in benchmark/broken.toml, by name."""
    table = tomllib.loads(TABLE.read_text())
    healthy = {row["name"]: Healthy(**row) for row in table["healthy"]}
    faults = {}
    for row in table["fault"]:
        run_beside = healthy[row["run"]]
        faults[row["name"]] = Fault(
            script=run_beside.script,
            tag=row["name"],
            edits=edits_of(row),
            run=run_beside,
            mistake=row["mistake"],
            shows=tuple(row["shows"]),
        )
    return healthy, faults


def chosen(args: Args) -> tuple[list[Healthy], list[Fault]]:
    """What is to be trained or drawn; fails if --faults names something else."""
    healthy, faults = read_table()
    for name in args.faults:
        if name not in faults:
            fail(f"--faults: {name} is none of {' '.join(faults)}")
    if not args.faults:
        return list(healthy.values()), list(faults.values())
    wanted = [faults[name] for name in args.faults]
    return list(dict.fromkeys(fault.run for fault in wanted)), wanted


# ------ training ------


def task_of(args: Args, name: str, healthy: Healthy, script: Path) -> Task:
    """The run of a script, in a folder of that name."""
    folder = args.runs_dir / name
    own = ["--env-id", healthy.env_id, "--seed", str(args.seed), "--runs-dir", str(folder)]
    flags = ["--no-cuda", "--eval-episodes", "0", *shlex.split(healthy.flags)]
    command = [*shlex.split(args.command), str(script), *flags]
    return Task(
        env_id=healthy.env_id,
        seed=args.seed,
        command=(*command, *own),
        resume_command=(*command, "--resume"),
        argv=(*flags, *own),
        script=script,
        runs_dir=folder,
        threads=1,
        variant=name,
    )


def make_tasks(args: Args, runs: list[Healthy], faults: list[Fault]) -> list[Task]:
    """The runs; writes the edited scripts. ValueError if an edit does not fit any more."""
    tasks = [task_of(args, one.name, one, SCRIPTS / one.script) for one in runs]
    for fault in faults:
        copy = args.runs_dir / fault.tag / fault.script
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(fault.apply((SCRIPTS / fault.script).read_text()))
        tasks.append(task_of(args, fault.tag, fault.run, copy))
    return tasks


# ------ curves ------


def read_curves(folder: Path) -> dict[str, np.ndarray]:
    """The metrics of a run, each as the means of POINTS parts of it; NaN where none was logged."""
    log = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    total = json.loads((folder / "args.json").read_text())["args"]["total_timesteps"]
    curves = {"step": total * np.arange(1, POINTS + 1) / POINTS}
    for metric in METRICS:
        found = log.Scalars(metric) if metric in log.Tags()["scalars"] else []
        parts = [math.ceil(POINTS * point.step / total) - 1 for point in found]
        counts = np.bincount(parts, minlength=POINTS)
        sums = np.bincount(parts, [point.value for point in found], minlength=POINTS)
        curves[metric] = np.divide(sums, counts, np.full(POINTS, np.nan), where=counts > 0)
    return curves


def write_csv(curves: Curves, path: Path) -> None:
    """One line for each point of each run."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "step", *METRICS])
        for name, columns in curves.items():
            for row in zip(columns["step"], *(columns[metric] for metric in METRICS), strict=True):
                cells = ["" if math.isnan(x) else f"{x:.4g}" for x in row[1:]]
                writer.writerow([name, f"{row[0]:.0f}", *cells])


def read_csv(path: Path) -> Curves:
    """The curves that `write_csv` has written; none if there is no such file."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            name = row.pop("run")
            for metric, cell in row.items():
                found[name][metric].append(float(cell or "nan"))
    return {
        name: {metric: np.array(cells) for metric, cells in columns.items()}
        for name, columns in found.items()
    }


def ranges(curves: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Where the middle 90 % of a metric's points are, the beginning of the run left out."""
    after = curves["step"] > BEGINNING * curves["step"][-1]
    found = {}
    for metric in LOSSES:
        low, high = np.nanpercentile(curves[metric][after], [5, 95])
        found[metric] = (float(low), float(high))
    return found


def ranges_table(runs: list[Healthy], curves: Curves) -> str:
    """The ranges of the healthy runs: a row for each metric, a column for each run."""
    runs = [one for one in runs if one.name in curves]
    found = [ranges(curves[one.name]) for one in runs]
    lines = [
        f"| | {' | '.join(f'{one.env_id}, `{one.script}`' for one in runs)} |",
        f"|---|{'---:|' * len(runs)}",
    ]
    for metric in LOSSES:
        cells = [f"{one[metric][0]:.2g} to {one[metric][1]:.2g}" for one in found]
        lines.append(f"| `{metric}` | {' | '.join(cells)} |")
    return "\n".join(lines)


# ------ figures ------


def draw_metric(axes: plt.Axes, metric: str, by_label: dict[str, dict[str, np.ndarray]]) -> None:
    """One metric of the healthy run and of the broken one; logarithmic where that is needed."""
    colors = dict(zip(by_label, (plot.GREY, plot.RED), strict=True))
    everything = np.concatenate([curves[metric] for curves in by_label.values()])
    everything = everything[np.isfinite(everything)]
    for label, curves in by_label.items():
        seen = np.isfinite(curves[metric])  # an episode does not end in every part of the run
        axes.plot(curves["step"][seen], curves[metric][seen], color=colors[label], label=label)
    positive = everything.min() > 0
    if positive and everything.max() > WIDE * everything.min():
        axes.set_yscale("log")
    axes.set_title(metric.partition("/")[2], loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short_number(x)))
    plot.light_grid(axes)


def draw(fault: Fault, curves: Curves, path: Path) -> None:
    """Writes the picture of a fault: the return and the metrics that betray it, from left."""
    plt.rcParams.update(plot.LOOK)
    by_label = {"healthy": curves[fault.run.name], "broken": curves[fault.tag]}
    figure, grid = plt.subplots(1, 3, figsize=(8.8, 2.3), layout="constrained")
    for axes, metric in zip(grid, (RETURN, *fault.shows), strict=True):
        draw_metric(axes, metric, by_label)
    grid[0].legend(frameon=False, fontsize=9)
    plot.save(figure, path)


def write_results(curves: Curves, faults: list[Fault], out: Path) -> list[Path]:
    """Writes curves, ranges and figures of what is there; returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "broken.csv", out / "broken_healthy.md"]
    write_csv(curves, paths[0])
    curves = read_csv(paths[0])  # rounded, so that --redraw gives the same
    paths[1].write_text(f"{ranges_table(list(read_table()[0].values()), curves)}\n")
    for fault in faults:
        if fault.tag in curves and fault.run.name in curves:
            path = out / f"broken_{fault.tag}.png"
            draw(fault, curves, path)
            paths.append(path)
    return paths


def main() -> int:
    """Parse the command line and do what it asks for; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    if args.workers < 1:
        fail(f"--workers must be at least 1, not {args.workers}")
    check_folder("--runs-dir", args.runs_dir)
    check_folder("--out", args.out)
    runs, faults = chosen(args)
    curves = read_csv(args.out / "broken.csv")
    exit_code = 0
    if args.redraw:
        if not curves:
            fail(f"--redraw: there is no {args.out / 'broken.csv'}")
    else:
        try:
            tasks = make_tasks(args, runs, faults)
        except ValueError as error:
            fail(str(error))
        run.check_versions(tasks, keep_old=True)
        signals = Signals()
        exit_code = run.run_locally(tasks, args.workers, signals)
        signals.release()
        for task in tasks:
            folder, finished = find_run(task)
            if folder is not None and finished:
                curves[task.variant] = read_curves(folder)
    for path in write_results(curves, faults, args.out):
        print(path)
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
