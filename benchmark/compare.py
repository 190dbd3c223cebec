# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "matplotlib>=3.9",
#     "numpy>=2",
#     "pandas<3",
#     "pillow>=10",
#     "rliable>=1.2",
#     "scipy>=1.13",
#     "tensorboard>=2.19",
#     "tyro>=0.9.20",
# ]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Did an edit help? Two or more folders of runs: a sentence, a table, a picture.

    uv run benchmark/compare.py before=runs/before after=runs/after
    uv run benchmark/compare.py "CleanRL=~/cleanrl/runs" ppo.py=runs/ours --out results/cleanrl

Each group is compared with the first one. A group is a folder with the runs of one script and one
set of flags, ours or another program's TensorBoard runs; the names of run folders are
<env_id>__<name>__<seed>__<time>. More is better. Writes compare.md, .png, .svg and .csv, the
numbers over all environments to compare_overall.csv and those of each run to compare_scores.csv.
Exit codes: 0 done, whatever the answer; 2 bad input or nothing to compare.
"""

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from comparison import (
    NAN,
    RESAMPLES,
    Comparison,
    Estimate,
    Group,
    Results,
    Scores,
    all_runs,
    evaluate,
    in_percent,
    sentence,
)
from comparison_picture import draw
from console import fail, seeds, warn
from run_folders import (
    METRICS,
    RETURN,
    WINDOW,
    Run,
    find_runs,
    mean_and_std,
    read_other_runs,
    remarks_on_missing,
    remarks_on_settings,
    runs_by_env,
    short_number,
)

ATARI_SOURCE = "[dqn_zoo](https://github.com/google-deepmind/dqn_zoo)"
FEW_SEEDS = 10  # with fewer the bootstrap's intervals are clearly too narrow


@dataclass
class Args:
    groups: tyro.conf.Positional[tuple[str, ...]]  # NAME=FOLDER, two or more; first the baseline
    out: Path = Path("results")  # where the files are written
    name: str = "compare"  # their name
    # What is 0 and what is 1: human (random and human play, Atari alone), range (the worst and the
    # best run) or a CSV file with the columns env_id,low,high. auto: human for Atari, else range
    normalize: str = "auto"
    metric: str | None = None  # TensorBoard name of an episode's score; the script's if not given


# ------ reading ------


def split_groups(given: tuple[str, ...]) -> dict[str, Path]:
    """Folders by name; fails if they are not two or more of the form NAME=FOLDER."""
    folders: dict[str, Path] = {}
    for text in given:
        name, _, path = text.partition("=")
        folder = Path(path).expanduser()
        if not (name and path):
            fail(f"{text} is not of the form NAME=FOLDER")
        if not folder.is_dir():
            fail(f"{name}: there is no folder {path}")
        if name in folders:
            fail(f"two groups are called {name}")
        folders[name] = folder
    if len(folders) < 2:
        fail("give two groups or more, each as NAME=FOLDER")
    return folders


def read_groups(args: Args) -> list[Group]:
    """The groups in the order given; fails if there is nothing in one of them."""
    folders = split_groups(args.groups)
    found: dict[str, Group] = {}
    ours = [name for name, folder in folders.items() if any(folder.glob("*/args.json"))]
    for name in ours:
        found[name] = read_group(name, folders[name], args.metric)
    scripts = {name: {run.script for run in all_runs(group)} for name, group in found.items()}
    for name, names in scripts.items():
        if len(names) > 1:
            fail(
                f"{name}: runs of {', '.join(sorted(names))}; give each script a folder of its own"
            )
    # Another program's runs are measured by what ours are.
    known = [METRICS[script] for names in scripts.values() for script in names & METRICS.keys()]
    metric = args.metric or (known[0] if known else RETURN)
    for name in folders.keys() - found.keys():
        found[name] = Group(name, read_other_runs(folders[name], name, metric))
    for name, folder in folders.items():
        if not found[name].by_env:
            expected = "" if name in ours else f" with {args.metric or metric} in a folder called"
            expected += "" if name in ours else " <env_id>__<name>__<seed>__<time>"
            fail(f"{name}: no finished run{expected} in {folder}")
    return [found[name] for name in folders]


def read_group(name: str, folder: Path, metric: str | None) -> Group:
    """The runs of one of our scripts."""
    found = find_runs(folder, metric)
    by_env = runs_by_env(found)
    remarks = [*remarks_on_missing(found), *remarks_on_settings(by_env)]
    diverged = found.diverged - found.runs.keys()
    unfinished = found.unfinished - found.runs.keys()
    return Group(name, by_env, remarks, len(unfinished), len(diverged))


# ------ the table ------


def values_of(name: str, runs: list[Run]) -> str:
    """The values that a flag has in some runs."""
    return ", ".join(sorted({str(run.settings.get(name)) for run in runs}))


def changed_flags(baseline: Group, group: Group) -> list[str]:
    """Flags that differ in an environment that both have: "`gamma` 0.99 → 0.9 (X-v0)"."""
    shared = [env_id for env_id in baseline.by_env if env_id in group.by_env]
    runs = [run for env_id in shared for run in baseline.by_env[env_id] + group.by_env[env_id]]
    where: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        for env_id in shared if name not in ("env_id", "exp_name") else []:
            before = values_of(name, baseline.by_env[env_id])
            after = values_of(name, group.by_env[env_id])
            if before != after:
                where[f"`{name}` {before} → {after}"].append(env_id)
    return [
        change if len(env_ids) == len(shared) else f"{change} ({', '.join(env_ids)})"
        for change, env_ids in where.items()
    ]


def what_differs(baseline: Group, group: Group) -> str:
    """Flags and script in which the runs of a group differ from the baseline's."""
    first, other = all_runs(baseline)[0], all_runs(group)[0]
    if not (first.settings.keys() & other.settings.keys() - {"env_id"}):
        return f"What {group.name} does otherwise than {baseline.name} is not recorded."
    changed = changed_flags(baseline, group)
    hashes = [
        sorted({run.provenance.script_hash for run in all_runs(one)}) for one in (baseline, group)
    ]
    if hashes[0] != hashes[1]:
        changed.append(f"the script, SHA-256 {', '.join(hashes[0])} → {', '.join(hashes[1])}")
    if not changed:
        return f"{group.name} has the script and the flags of {baseline.name}."
    return f"{group.name} beside {baseline.name}: {'; '.join(changed)}."


def env_rows(scores: Scores, comparisons: list[Comparison], env_id: str) -> list[str]:
    """The lines of an environment in the table: a line for each group."""
    title = f"{env_id}, {short_number(scores.steps[env_id])} steps"
    rows = []
    for name, of in scores.raw.items():
        cells = ["-", "", "", ""]
        if env_id in of:
            cells[0] = f"{mean_and_std(of[env_id])} ({seeds(len(of[env_id]))})"
        for comparison in comparisons:
            if comparison.group == name and env_id in comparison.by_env:
                found = comparison.by_env[env_id]
                relative = in_percent(scores, comparison, env_id)
                percent = relative.text("+.1f") if relative else "-"
                chance = f"{comparison.improvement[env_id]:.2f}"
                cells[1:] = [found.text(), percent, chance]
        rows.append(f"| {' | '.join([title, name, *cells])} |")
        title = ""
    return rows


def explain(scores: Scores) -> list[str]:
    """How the numbers of the tables were made."""
    kinds = {scores.scales[env_id].kind for env_id in scores.shared}
    meaning = {
        "human": f"0 is random and 1 is human play ({ATARI_SOURCE})",
        "range": "0 is the worst and 1 the best of all these runs",
        "file": "0 and 1 are as the file given says",
    }
    normalized = "; ".join(meaning[kind] for kind in sorted(kinds))
    lines = [
        f"Score of a run: mean of the last {WINDOW} training episodes. Differences: of mean "
        "scores, with Welch's 95 % interval; over all environments of normalized scores, the "
        "variances of the environments added up. Probability of improvement: that a run of the "
        "group is better than one of the baseline, a tie counting half.",
        f"Normalized scores: {normalized}. Interquartile mean, optimality gap, probability of "
        f"improvement and their intervals are those of rliable, from {RESAMPLES} resamples of the "
        "runs within each environment.",
    ]
    counts = [len(of[env_id]) for of in scores.raw.values() for env_id in scores.shared]
    if min(counts) < FEW_SEEDS:
        lines.append(
            f"With fewer than {FEW_SEEDS} seeds intervals by resampling are too narrow; those of "
            "the differences are not, for scores that are about normally distributed. A rare run "
            "that fails is in none of them unless it was drawn."
        )
    if len(scores.raw) > 2:
        lines.append("Each group is compared for itself: of 20 that do nothing, one looks as if.")
    return lines


def table(results: Results) -> str:
    """The answer and the two tables, in Markdown."""
    scores, baseline = results.scores, results.baseline
    lines = [sentence(scores, comparison) for comparison in results.comparisons]
    lines += ["", *(what_differs(baseline, group) for group in results.groups[1:]), ""]
    lines.append(
        f"| environment | runs | score | difference to {baseline.name} (95 %) | "
        f"the same in % of {baseline.name}'s mean | probability of improvement |"
    )
    lines.append("|---|---|---:|---:|---:|---:|")
    for env_id in scores.scales:
        lines += env_rows(scores, results.comparisons, env_id)
    count = len(scores.shared)
    where = scores.shared[0] if count == 1 else f"all {count} environments"
    lines += ["", f"| {where}, normalized | {' | '.join(scores.raw)} |"]
    lines.append(f"|---|{'---:|' * len(scores.raw)}")
    for measure, of in results.overall.items():
        cells = [of[name].text(".2f") if name in of else "" for name in scores.raw]
        lines.append(f"| {' | '.join([measure, *cells])} |")
    lines += ["", *explain(scores), *scores.remarks]
    return "\n".join(lines) + "\n"


# ------ the files of numbers ------


def write_rows(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    """A CSV file; numbers with six digits, empty where there is none."""

    def cell(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return "" if np.isnan(value) else f"{value:.6g}"

    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([cell(value) for value in row] for row in rows)


def write_environments(scores: Scores, comparisons: list[Comparison], path: Path) -> None:
    """CSV: a line for each group in each environment."""
    found = {(one.group, env_id): one for one in comparisons for env_id in one.by_env}
    rows: list[list[Any]] = []
    for name, of in scores.raw.items():
        for env_id, runs in of.items():
            std = float(runs.std(ddof=1)) if len(runs) > 1 else NAN
            row = [env_id, name, scores.steps[env_id], len(runs), float(runs.mean()), std]
            if one := found.get((name, env_id)):
                by = one.by_env[env_id]
                row += [by.value, by.low, by.high, one.improvement[env_id]]
            rows.append(row + [""] * (10 - len(row)))
    header = ["env_id", "group", "steps", "seeds", "mean", "std", "difference", "low", "high"]
    write_rows(path, [*header, "probability_of_improvement"], rows)


def write_overall(overall: dict[str, dict[str, Estimate]], path: Path) -> None:
    """CSV: a line for each group and measure over the environments that all have."""
    rows = [
        [measure, name, of.value, of.low, of.high]
        for measure, by_group in overall.items()
        for name, of in by_group.items()
    ]
    write_rows(path, ["measure", "group", "value", "low", "high"], rows)


def write_runs(scores: Scores, path: Path) -> None:
    """CSV: a line for each run."""
    rows: list[list[Any]] = []
    for name, of in scores.raw.items():
        for env_id, raw in of.items():
            columns = (scores.seeds[name][env_id], raw, scores.normalized(name, env_id))
            for seed, score, normalized in zip(*columns, strict=True):
                rows.append([env_id, name, seed, float(score), float(normalized)])
    write_rows(path, ["env_id", "group", "seed", "score", "normalized"], rows)


# ------ the program ------


def write_all(results: Results, out: Path, name: str) -> list[Path]:
    """Write picture, table and files of numbers; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    ends = (".md", ".png", ".svg", ".csv", "_overall.csv", "_scores.csv")
    paths = [out / f"{name}{end}" for end in ends]
    text, png, svg, environments, overall, runs = paths
    text.write_text(table(results))
    draw(results, png, svg)
    write_environments(results.scores, results.comparisons, environments)
    write_overall(results.overall, overall)
    write_runs(results.scores, runs)
    return paths


def main() -> int:
    """Read the groups, answer, write the files and say where; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    if args.out.exists() and not args.out.is_dir():
        fail(f"--out: {args.out} is not a folder")
    groups = read_groups(args)
    results = evaluate(groups, args.normalize)
    for remark in results.scores.remarks:
        warn(remark)
    paths = write_all(results, args.out, args.name)
    print(paths[0].read_text())
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
