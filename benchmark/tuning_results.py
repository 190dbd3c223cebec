"""What a search for flags has found: words, tables and a picture.

Part of tune.py.
"""

import csv
import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import plot
import runs as run_folders
import stats as intervals
from console import Signals
from matplotlib.ticker import LogLocator, NullFormatter
from optuna.distributions import (
    CategoricalDistribution,
)
from optuna.trial import FrozenTrial, TrialState
from tasks import find_run
from tuning import REFUSED, Args, Candidate, Search, Table, shown, work

IMPORTANCE_FROM = 10  # finished trials, below which importance is a guess
CHECK_SEED = 1001  # the first seed of the check, unless the search has seen that one
UNDECIDED = (
    "Fresh seeds leave open whether the best flags are better than the defaults, "
    "0 is in the interval. The best flags:"
)
ALIKE = (
    "Fresh seeds leave open whether the best flags are better than the defaults: "
    "their scores are all alike, which tells nothing about chance. The best flags:"
)


# ------ what has been found ------


@dataclass
class Check:
    """Scores with fresh seeds, by environment: (seeds,) each."""

    defaults: dict[str, np.ndarray]
    best: dict[str, np.ndarray]


def check_seeds(args: Args) -> range:
    """The fresh seeds: behind all that the search has seen."""
    first = max(CHECK_SEED, args.start_seed + args.num_seeds)
    return range(first, first + args.check_seeds)


def check_candidates(search: Search, best: FrozenTrial) -> list[tuple[Candidate, Candidate]]:
    """For each fresh seed the command's own flags and the best ones, on all environments."""
    pairs = []
    for seed in check_seeds(search.args):
        seeds = range(seed, seed + 1)
        own = search.tasks({}, "check/defaults", seeds)
        found = search.tasks(best.params, f"check/trial-{best.number:04}", seeds)
        pair = Candidate("defaults", {}, own), Candidate("best", best.params, found)
        pairs.append(pair)
    return pairs


def scores_by_env(candidates: list[Candidate]) -> dict[str, np.ndarray]:
    """The scores of finished candidates by environment, (candidates,) each."""
    env_ids = [task.env_id for task in candidates[0].tasks]
    rows = np.array([[each.scores[task] for task in each.tasks] for each in candidates])
    return dict(zip(env_ids, rows.T, strict=True))


def run_check(search: Search, best: FrozenTrial, signals: Signals, table: Table) -> Check | None:
    """Run the best flags and the command's own with fresh seeds; None if that did not end."""
    pairs = check_candidates(search, best)
    search.waiting = [candidate for pair in pairs for candidate in pair]
    work(search, signals, search.args.workers, table)
    if not all(candidate.finished for pair in pairs for candidate in pair):
        return None
    own, found = (list(group) for group in zip(*pairs, strict=True))
    return Check(scores_by_env(own), scores_by_env(found))


def normalized_means(search: Search, scores: dict[str, np.ndarray]) -> np.ndarray:
    """Mean over the environments of the normalized scores: (seeds,)."""
    rows = [search.judge.targets[env_id].normalized(row) for env_id, row in scores.items()]
    return np.mean(rows, axis=0)


def with_interval(scores: np.ndarray, digits: int) -> str:
    """'mean ± half the 95 % interval' of (seeds,) scores."""
    mean, half = plot.confidence(scores[:, None])
    return f"{mean[0]:.{digits}f} ± {half[0]:.{digits}f}"


def check_difference(search: Search, check: Check) -> intervals.Difference:
    """How much better the best flags are with fresh seeds, normalized."""
    found = normalized_means(search, check.best)
    return intervals.welch(found, normalized_means(search, check.defaults))


def check_lines(search: Search, check: Check) -> list[str]:
    """The difference in one sentence, and the table of the check in Markdown."""
    own = normalized_means(search, check.defaults)
    found = normalized_means(search, check.best)
    value, low, high = check_difference(search, check)
    interval = f"95 %: {low:+.3f} to {high:+.3f}"
    if math.isnan(low):
        interval = "no interval: the scores are all alike"
    difference = f"{value:+.3f} ({interval})"
    sentence = (
        f"Tuned flags against defaults, {len(own)} fresh seeds: {difference}, normalized. "
        "In the table ± is half a 95 % interval."
    )
    lines = [sentence, "", "| environment | defaults | tuned |", "|---|---:|---:|"]
    for env_id, row in check.defaults.items():
        cells = with_interval(row, 1), with_interval(check.best[env_id], 1)
        lines.append(f"| {env_id} | {cells[0]} | {cells[1]} |")
    lines.append(f"| all, normalized | {with_interval(own, 3)} | {with_interval(found, 3)} |")
    return lines


def importances(search: Search) -> dict[str, float]:
    """How much of the differences between good and bad trials each flag explains, in all 1.

    PED-ANOVA (Watanabe et al., 2023), Optuna's default. Empty where there are too few trials.
    """
    if len(search.completed()) < IMPORTANCE_FROM or len(search.space) < 2:
        return {}
    return optuna.importance.get_param_importances(search.study)


def choice(search: Search, check: Check | None) -> tuple[str, dict[str, Any]]:
    """What to say of the flags to go on with, and these: none where the defaults are as good."""
    best = search.winner()
    if best is None:
        return "No trial was better than the defaults, which are:", {}
    if check is None:
        return "The best flags:", best.params
    difference = check_difference(search, check)
    if difference.value <= 0:
        return "With fresh seeds the best flags were not better than the defaults, which are:", {}
    if math.isnan(difference.low):
        return ALIKE, best.params
    if difference.low <= 0:
        return UNDECIDED, best.params
    return "The best flags, with fresh seeds better than the defaults:", best.params


def commands(search: Search, params: dict[str, Any]) -> list[str]:
    """The commands with these flags, one for each environment."""
    lines = []
    for task in search.tasks(params, "", range(1)):
        until = task.command.index("--seed")
        lines.append(shlex.join(task.command[:until]))
    return lines


def say_results(search: Search, check: Check | None, cost: float) -> None:
    """Print the best trial, what mattered, and the commands to copy."""
    best, *_ = search.completed()
    print(f"\nbest: trial {best.number}, score {best.values[0]:.3f}", end="")
    print(f"; defaults {search.judge.value(search.defaults):.3f}")
    for task, score in search.defaults.scores.items():
        print(f"  {task.name}: {best.user_attrs[task.name]:.2f}; defaults {score:.2f}")
    if found := importances(search):
        print("importance: " + ", ".join(f"{name} {x:.2f}" for name, x in found.items()))
    if check:
        print("\n".join(check_lines(search, check)))
    elif search.winner() and not search.args.check_seeds:
        print("a search overrates what it finds: --check-seeds 5 compares with fresh seeds")
    print(f"{cost / 60:.1f} minutes of one CPU core in all")
    sentence, params = choice(search, check)
    print(f"\n{sentence}\n")
    print("\n".join(commands(search, params)))


def write_trials(search: Search, path: Path) -> None:
    """CSV with a line for each trial."""
    names = [task.name for task in search.defaults.tasks]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trial", "outcome", "score", *search.space, *names, "reason"])
        for trial in sorted(search.trials, key=lambda trial: trial.number):
            reason = trial.user_attrs.get(REFUSED, "")
            outcome = "REFUSED" if reason else trial.state.name
            score = f"{trial.values[0]:.4f}" if trial.state == TrialState.COMPLETE else ""
            own = [trial.user_attrs.get(name, "") for name in names]
            reason = reason or trial.user_attrs.get("reason", "")
            params = [shown(trial.params[name]) for name in search.space]
            writer.writerow([trial.number, outcome, score, *params, *own, reason])


# ------ the picture ------


def tidy(axes: plot.plt.Axes, title: str) -> None:
    """What all panels have."""
    axes.set_title(title, fontweight="bold")
    plot.light_grid(axes)


def draw_history(axes: plot.plt.Axes, search: Search) -> None:
    """Scores in the order of the trials, and the best so far."""
    done = sorted(search.completed(), key=lambda trial: trial.number)
    order = [trial.number for trial in done]
    scores = np.array([trial.values[0] for trial in done])
    early = [t.number for t in search.ran() if t.state == TrialState.PRUNED]
    axes.plot(order, np.maximum.accumulate(scores), color=plot.BLUE, drawstyle="steps-post")
    axes.xaxis.set_major_locator(plot.MaxNLocator(5, integer=True))
    axes.plot(order, scores, "o", color=plot.BLUE, markersize=4, label="trial")
    axes.plot(early, np.full(len(early), scores.min()), "|", color=plot.GREY, label="ended early")
    defaults = search.judge.value(search.defaults)
    axes.axhline(defaults, color=plot.RED, linestyle="--", label="defaults")
    axes.set_xlabel("trial")
    axes.set_ylabel("score, normalized")
    axes.legend(frameon=False, fontsize=8)
    tidy(axes, "search")


def draw_importances(axes: plot.plt.Axes, found: dict[str, float]) -> None:
    """A bar for each flag."""
    names = list(found)[::-1]
    axes.barh(names, [found[name] for name in names], color=plot.BLUE)
    axes.set_xlim(0, 1)
    tidy(axes, "importance")


def varied(search: Search) -> list[str]:
    """The flags of which the trials that ended well have more than one value."""
    done = search.completed()
    return [name for name in search.space if len({trial.params[name] for trial in done}) > 1]


def draw_slice(axes: plot.plt.Axes, search: Search, name: str) -> None:
    """Scores over the values of one flag; the best trial in red."""
    done = search.completed()
    distribution = search.space[name]
    if isinstance(distribution, CategoricalDistribution):
        values: list[Any] = [distribution.choices.index(trial.params[name]) for trial in done]
        axes.set_xticks(range(len(distribution.choices)), map(str, distribution.choices))
    else:
        values = [trial.params[name] for trial in done]
        if getattr(distribution, "log", False):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter(plot.FuncFormatter(lambda x, _: f"{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    scores = [trial.values[0] for trial in done]
    axes.plot(values[1:], scores[1:], "o", color=plot.BLUE, markersize=4)
    axes.plot(values[:1], scores[:1], "o", color=plot.RED, markersize=6)
    tidy(axes, name)


def draw_check(axes: plot.plt.Axes, search: Search, env_id: str) -> None:
    """Learning curves of the check: means of the seeds and their 95 % bands.

    The axis is that of the single runs: the bands of few seeds go where no score can be.
    """
    best = search.completed()[0]
    lines: list[tuple[str, dict[str, Any], str, str]] = [
        ("defaults", {}, "check/defaults", plot.GREY),
        ("tuned", best.params, f"check/trial-{best.number:04}", plot.BLUE),
    ]
    seeds = check_seeds(search.args)
    heights: list[float] = []
    for label, params, folder, color in lines:
        runs = []
        for task in search.tasks(params, folder, seeds):
            found, _ = find_run(task)
            if task.env_id == env_id and found:
                facts = json.loads((found / "args.json").read_text())
                runs.append(run_folders.read_run(found, facts, search.args.metric))
        grid = np.linspace(0, min(one.total_steps for one in runs), plot.POINTS + 1)
        curves = np.stack([one.curve("steps", grid) for one in runs])
        heights += [np.nanmin(curves), np.nanmax(curves)]
        mean, half = plot.confidence(curves)
        axes.plot(grid, mean, color=color, label=label)
        axes.fill_between(grid, mean - half, mean + half, color=color, alpha=0.15, linewidth=0)
    plot.show_heights(axes, min(heights), max(heights))
    axes.xaxis.set_major_formatter(plot.FuncFormatter(lambda x, _: run_folders.short_number(x)))
    axes.set_xlabel(plot.LABELS["steps"])
    axes.set_ylabel(f"rolling mean of {run_folders.WINDOW} episodes")
    axes.legend(frameon=False, fontsize=8)
    tidy(axes, f"{env_id}, {len(seeds)} fresh seeds")


def draw(search: Search, check: Check | None, path: Path) -> None:
    """Write the picture: the check's curves, the search, what mattered, and each flag."""
    checked = list(search.judge.targets) if check else []
    found = importances(search)
    tried = varied(search)
    count = len(checked) + 1 + bool(found) + len(tried)
    columns = min(count, plot.PANELS_A_ROW)
    rows = -(-count // columns)
    plot.plt.rcParams.update(plot.LOOK)
    size = (3.3 * columns, 2.7 * rows)
    options: dict[str, Any] = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plot.plt.subplots(rows, columns, **options)
    panels = iter(grid.flat)
    for env_id in checked:
        draw_check(next(panels), search, env_id)
    draw_history(next(panels), search)
    if found:
        draw_importances(next(panels), found)
    for name in tried:
        draw_slice(next(panels), search, name)
    for panel in panels:
        panel.set_visible(False)
    plot.save(figure, path)


def write_results(search: Search, check: Check | None, cost: float, out: Path) -> list[Path]:
    """Write the picture and the table; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{search.defaults.tasks[0].script.stem}_search"
    picture, text = out / f"{name}.png", out / f"{name}.md"
    draw(search, check, picture)
    lines = [*check_lines(search, check), ""] if check else []
    lines.append(f"{len(search.ran())} trials, {cost / 60:.1f} minutes of one CPU core in all.")
    tried = varied(search)
    alike = [name for name in search.space if name not in tried]
    if alike:
        names = ", ".join(alike)
        lines.append(f"Not drawn, for it has one value in all trials that ended well: {names}.")
    sentence, params = choice(search, check)
    lines += ["", sentence, "", "```bash", *commands(search, params), "```"]
    text.write_text("\n".join(lines) + "\n")
    return [picture, text]
