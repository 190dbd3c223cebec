"""Did an edit help? Two or more folders of runs: a sentence, a table, a picture.

    uv run benchmark/compare.py before=runs/before after=runs/after
    uv run benchmark/compare.py "CleanRL=~/cleanrl/runs" ppo.py=runs/ours --out results/cleanrl
    uv run benchmark/compare.py before='runs/*__ppo__*' after='runs/*__mine__*' --steps 100000

Each group is compared with the first one. A group is a folder with the runs of one script and one
set of flags, or a pattern of run folders; ours or another program's TensorBoard runs. The names of
run folders are <env_id>__<name>__<seed>__<time>. More is better. Writes compare.md, .png, .svg and
.csv, the numbers over all environments to compare_overall.csv and those of each run to
compare_scores.csv.
Exit codes: 0 done, whatever the answer; 2 bad input or nothing to compare.
"""

import csv
import dataclasses
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
from plot import check_results
from runs import (
    METRICS,
    NO_EPISODE,
    RETURN,
    WINDOW,
    Found,
    Provenance,
    Run,
    find_other_runs,
    find_runs,
    mean_and_std,
    other_folders,
    parse_name,
    refuse_own_runs,
    remarks_on,
    remarks_on_missing,
    runs_by_env,
    short_number,
    window_of,
)

ATARI_SOURCE = "[dqn_zoo](https://github.com/google-deepmind/dqn_zoo)"
FEW_SEEDS = 10  # with fewer the bootstrap's intervals are clearly too narrow


@dataclass
class Args:
    # NAME=FOLDER or NAME=PATTERN of run folders, two or more; first the baseline
    groups: tyro.conf.Positional[tuple[str, ...]]
    out: Path = Path("results")  # where the files are written
    name: str = "compare"  # their name
    # What is 0 and what is 1: human (random and human play, Atari alone), range (the worst and the
    # best run) or a CSV file with the columns env_id,low,high. auto: human for Atari, else range
    normalize: str = "auto"
    steps: int | None = None  # after which scores are compared; if not given, the shortest run's
    # TensorBoard name of an episode's score, for all groups or as NAME=METRIC for one; several may
    # follow. The script's if not given. Of a name that ends in _mean the last point is the score
    metric: tuple[str, ...] = ()


# ------ reading ------


@dataclass(frozen=True)
class Source:
    """Where the runs of a group are."""

    given: str  # as the user has it
    folder: Path
    pattern: str = "*"  # of the run folders in it


def read_source(name: str, given: str) -> Source:
    """A group's folder, or the folder before the first part of a path that has a *.

    Fails if there is no such folder.
    """
    path = Path(given).expanduser()
    first = next((i for i, part in enumerate(path.parts) if "*" in part), len(path.parts))
    folder = Path(*path.parts[:first])
    if not folder.is_dir():
        fail(f"{name}: there is no folder {folder}")
    return Source(given, folder, "/".join(path.parts[first:]) or "*")


def split_groups(given: tuple[str, ...]) -> dict[str, Source]:
    """Folders by name; fails if they are not two or more of the form NAME=FOLDER."""
    sources: dict[str, Source] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not (name and path):
            fail(f"{text} is not of the form NAME=FOLDER")
        if name in sources:
            fail(f"two groups are called {name}")
        sources[name] = read_source(name, path)
    if len(sources) < 2:
        fail("give two groups or more, each as NAME=FOLDER")
    return sources


def split_metrics(given: tuple[str, ...], names: list[str]) -> dict[str, str]:
    """Metrics by group, of those that were given one; fails at a group that is not there."""
    metrics: dict[str, str] = {}
    for text in sorted(given, key=lambda text: "=" in text):  # that of a single group counts more
        name, _, metric = text.rpartition("=")
        if name and name not in names:
            fail(f"--metric {text}: there is no group {name}")
        metrics |= dict.fromkeys([name] if name else names, metric)
    return metrics


def refuse_a_mixture(name: str, source: Source, exp_names: set[str]) -> None:
    """Fails if the runs of a group are of several programs."""
    if len(exp_names) > 1:
        listed = sorted(exp_names)
        fail(
            f"{name}: runs of {', '.join(listed)} in {source.given}; choose by a pattern, as "
            f"{name}='{source.folder}/*__{listed[0]}__*'"
        )


def read_groups(args: Args) -> list[Group]:
    """The groups in the order given; fails if there is nothing in one of them."""
    sources = split_groups(args.groups)
    metrics = split_metrics(args.metric, list(sources))
    found: dict[str, Group] = {}
    ours = [name for name, source in sources.items() if any(own_folders(source))]
    for name in ours:
        found[name] = read_group(name, sources[name], metrics.get(name))
    scripts = {name: {run.script for run in all_runs(group)} for name, group in found.items()}
    for name, names in scripts.items():
        if len(names) > 1:
            fail(
                f"{name}: runs of {', '.join(sorted(names))}; give each script a folder of its own"
            )
    # Another program's runs are measured by what ours are.
    known = [METRICS[script] for names in scripts.values() for script in names & METRICS.keys()]
    metric = known[0] if known else RETURN
    for name in [name for name in sources if name not in found]:
        found[name] = read_other_group(name, sources[name], metrics.get(name, metric))
    for name, source in sources.items():
        found[name].metric = metrics.get(name, "")
        if not found[name].by_env:
            wanted = metrics.get(name, metric)
            expected = f" with {wanted} in a folder called <env_id>__<name>__<seed>__<time>"
            fail(f"{name}: no finished run{expected} in {source.given}")
        if name in metrics and window_of(metrics[name]) == 1:
            found[name].remarks.append(
                f"{metrics[name]} is a mean of episodes; a run's score is the last one."
            )
    return [found[name] for name in sources]


def own_folders(source: Source) -> list[Path]:
    """The run folders of a group, if they are of our scripts."""
    return [file.parent for file in source.folder.glob(f"{source.pattern}/args.json")]


def read_group(name: str, source: Source, metric: str | None) -> Group:
    """The runs of one of our scripts; fails if there is none with a score."""
    parsed = [parse_name(folder.name) for folder in own_folders(source)]
    refuse_a_mixture(name, source, {match[2] for match in parsed if match})
    found = find_runs(source.folder, metric, source.pattern)
    if not found.runs:
        logged = f" has logged {metric or 'an episode'}"
        silent = NO_EPISODE in found.lost.values()
        fail(f"{name}: no finished run in {source.given}{logged if silent else ''}")
    return Group(name, runs_by_env(found), remarks_on(found), lost_by_env(found))


def lost_by_env(found: Found) -> dict[str, list[str]]:
    """What became of the runs without a score, by environment."""
    lost: dict[str, list[str]] = defaultdict(list)
    for key, why in found.lost.items():
        lost[key.env_id].append(why)
    return dict(lost)


def read_other_group(name: str, source: Source, metric: str) -> Group:
    """The runs of another program."""
    refuse_own_runs(name, source.folder, source.pattern)
    names = other_folders(source.folder, source.pattern).values()
    if not names and source.pattern != "*":
        fail(f"{name}: no run folder matches {source.given}")
    refuse_a_mixture(name, source, {match[2] for match in names})
    found = find_other_runs(source.folder, name, metric, source.pattern)
    return Group(name, runs_by_env(found), remarks_on_missing(found), lost_by_env(found))


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


def packages(runs: list[Run]) -> dict[str, set[str]]:
    """The versions of each package that some runs were made with."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for part in run.provenance.versions.split(" then "):  # each time that it was resumed
            words = part.split()
            for name, version in zip(words[::2], words[1::2], strict=True):
                found[name].add(version)
    return found


def from_to(what: str, before: set[str], after: set[str]) -> str:
    """'torch 2.12.0 → 2.13.0'."""
    texts = [", ".join(sorted(one - {""})) or "not recorded" for one in (before, after)]
    return f"{what} {texts[0]} → {texts[1]}"


def changed_machines(baseline: Group, group: Group) -> list[str]:
    """Packages and hardware that differ: "torch 2.12.0 → 2.13.0", "hardware cpu → cuda"."""
    shared = baseline.by_env.keys() & group.by_env.keys()  # others may need more packages
    before, after = [
        [run for env_id in shared for run in one.by_env[env_id]] for one in (baseline, group)
    ]
    old, new = packages(before), packages(after)
    changed = [
        from_to(name, old.get(name, set()), new.get(name, set()))
        for name in old | new
        if old.get(name) != new.get(name)
    ]
    hardware = [{run.provenance.hardware for run in runs} for runs in (before, after)]
    if hardware[0] != hardware[1]:
        changed.append(from_to("hardware", *hardware))
    return changed


def what_differs(baseline: Group, group: Group) -> str:
    """Flags, script, packages and hardware in which a group's runs differ from the baseline's."""
    first, other = all_runs(baseline)[0], all_runs(group)[0]
    if not (first.settings.keys() & other.settings.keys() - {"env_id"}):
        return f"What {group.name} does otherwise than {baseline.name} is not recorded."
    changed = changed_flags(baseline, group)
    hashes = [{run.provenance.script_hash for run in all_runs(one)} for one in (baseline, group)]
    if hashes[0] != hashes[1]:
        changed.append(from_to("the script, SHA-256", *hashes))
    changed += changed_machines(baseline, group)
    if not changed:
        return f"{group.name} has the script, flags, packages and hardware of {baseline.name}."
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
    over_all = "normalized scores, the variances of the environments added up"
    if scores.by_middle:
        over_all = "interquartile means of normalized scores, by resampling; whether that is "
        over_all += "more than chance a permutation test says, within each environment"
    lines = [
        f"Score of a run: mean of the last {WINDOW} training episodes. Differences: of mean "
        f"scores, with Welch's 95 % interval; over all environments of {over_all}. Probability of "
        "improvement: that a run of the group is better than one of the baseline, a tie counting "
        "half.",
        f"Normalized scores: {normalized}. Interquartile mean, optimality gap, probability of "
        f"improvement and their intervals are those of rliable, from {RESAMPLES} resamples of the "
        "runs within each environment.",
    ]
    counts = [len(of[env_id]) for of in scores.raw.values() for env_id in scores.shared]
    if min(counts) < FEW_SEEDS:
        single = " in an environment" if scores.by_middle else ""
        lines.append(
            f"With fewer than {FEW_SEEDS} seeds intervals by resampling are too narrow; those of "
            f"the differences{single} are not, for scores that are about normally distributed. A "
            "rare run that fails is in none of them unless it was drawn."
        )
    if len(scores.scales) > 1:
        lines.append(
            "Each environment's interval is its own: of 20 without an effect, one leaves out 0. "
            "The answer names those that Holm's correction leaves."
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


def write_runs(groups: list[Group], scores: Scores, path: Path) -> None:
    """CSV: a line for each run, with what rerun.py needs to make it again.

    The metric is a column if --metric has named one.
    """
    named = any(group.metric for group in groups)
    rows: list[list[Any]] = []
    for group in groups:
        for env_id, raw in scores.raw[group.name].items():
            runs = {run.seed: run for run in group.by_env[env_id]}
            seeds_of = scores.seeds[group.name][env_id]
            columns = (seeds_of, raw, scores.normalized(group.name, env_id))
            for seed, score, normalized in zip(*columns, strict=True):
                # Digits as plot.py writes them: rerun.py compares with those that are there.
                row = [env_id, group.name, seed, f"{score:.2f}", float(normalized)]
                row += [scores.steps[env_id], runs[seed].script]
                row += dataclasses.astuple(runs[seed].provenance)
                rows.append([*row, group.metric] if named else row)
    header = ["env_id", "group", "seed", "score", "normalized", "steps", "script"]
    header += Provenance.columns()
    write_rows(path, [*header, "metric"] if named else header, rows)


# ------ the program ------


def write_all(groups: list[Group], results: Results, out: Path, name: str) -> list[Path]:
    """Write picture, table and files of numbers; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    ends = (".md", ".png", ".svg", ".csv", "_overall.csv", "_scores.csv")
    paths = [out / f"{name}{end}" for end in ends]
    text, png, svg, environments, overall, runs = paths
    text.write_text(table(results))
    draw(results, png, svg)
    write_environments(results.scores, results.comparisons, environments)
    write_overall(results.overall, overall)
    write_runs(groups, results.scores, runs)
    return paths


def main() -> int:
    """Read the groups, answer, write the files and say where; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    check_results(args.out, args.name)
    if args.steps is not None and args.steps < 1:
        fail(f"--steps must be at least 1, not {args.steps}")
    groups = read_groups(args)
    results = evaluate(groups, args.normalize, args.steps)
    for remark in results.scores.remarks:
        warn(remark)
    paths = write_all(groups, results, args.out, args.name)
    print(paths[0].read_text())
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
