"""Train a script without one of its implementation details at a time, and as it is.

    uv run benchmark/ablation.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 \\
        --details core-3 core-7 --num-seeds 5 --workers 2
    uv run benchmark/ablation.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 \\
        --edits benchmark/broken.toml --details no-step

The edits that leave out details are in tests/mutations/; --edits names another table, of mistakes
or ideas. For each an edited copy of the script is written into scripts/ in --runs-dir. `baseline`
is the script as it is. The same call again finishes what is left; --workers, --launcher and so on
are those of run.py. The results of the finished runs go into --plot: ablation_ppo.csv (the effect
of each detail in each environment on the mean score of the training), ablation_ppo_scores.csv (a
line for each run) and ablation_ppo.png. Exit codes: 0 when all is done, 1 if a run failed, 2 for
bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import math
import shlex
import sys
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import run
import stats
import tyro
from common import Signals, fail, read_args, warn
from edits import Ablation, ablations, read_ablations
from effects import Effect, write_effects
from plot import GREY, plt
from runs import DIVERGED, Found, Run, RunKey, find_runs, hash_of, metric_of, score_table

BASELINE = "baseline"  # the script as it is, among the variants of it
BEGINNING = 10  # episodes from which the score of an untrained agent is taken
DARK = 0.6  # share from which on a background wants white text
LABEL_WIDTH = 56  # characters in a line of a label
EXPLANATION = """\
Difference of the mean score over the whole training, in percent of what the script learns,
with its 95 % interval. Red: less is learned, blue: more, no colour: 0 is in the interval."""


@dataclass
class Args(run.Args):
    runs_dir: Path = Path("runs/benchmark/ablation")  # gets run folders, logs/ and scripts/
    plot: Path = Path("results")  # folder for the figure and the numbers of the finished runs
    suite: tyro.conf.Fixed[tyro.conf.Suppress[None]] = None  # for run.py alone
    details: tuple[str, ...] = ()  # tags or their beginnings: core-3, deviation; all if not given
    edits: Path | None = None  # table of edits to try in place of the details
    redraw: bool = False  # train nothing, only draw what is finished


# ------ what is run ------
def is_part(name: str, detail: str) -> bool:
    """Whether --details DETAIL means that ablation: core means core-1, but core-1 not core-10."""
    return f"{name}-".startswith(f"{detail}-")


def choose(args: Args, script: Path) -> list[Ablation]:
    """What is to be trained; fails if --details asks for something else."""
    if args.edits is None:
        known = ablations(script.name, script.read_text())
    else:
        if not args.edits.is_file():
            fail(f"--edits: there is no file {args.edits}")
        known = read_ablations(args.edits)
        if any("/" in one.name or one.name == BASELINE for one in known.values()):
            fail(f"--edits: a tag must not be {BASELINE} or have a slash")
    names = [ablation.name for ablation in known.values()]
    for detail in args.details:
        if not any(is_part(name, detail) for name in names):
            fail(f"--details: there is no {detail} among: {' '.join(names)}")
    wanted = []
    for ablation in known.values():
        if args.details and not any(is_part(ablation.name, detail) for detail in args.details):
            continue
        if ablation.edits:
            wanted.append(ablation)
        else:
            print(f"note: {ablation.tag} is not trained: {ablation.without}", file=sys.stderr)
    if not wanted:
        fail(f"{script} has no detail that can be left out")
    return wanted


def write_copies(args: Args, script: Path, wanted: list[Ablation]) -> dict[str, Path]:
    """Write the edited scripts; returns the scripts by the names of their variants.

    Raises ValueError if an edit does not fit. The stem of a copy is part of the names of its run
    folders.
    """
    source = script.read_text()
    edited = {ablation.name: ablation.apply(source) for ablation in wanted}
    folder = args.runs_dir / "scripts"
    folder.mkdir(parents=True, exist_ok=True)
    scripts = {BASELINE: script}
    for name, text in edited.items():
        scripts[name] = folder / f"{script.stem}_{name}.py"
        scripts[name].write_text(text)
    return scripts


def expand(args: Args, scripts: dict[str, Path]) -> list[run.Task]:
    """The tasks of all variants, whose names are their labels; all first seeds come first."""
    words = run.split_words("--command", args.command)
    place = next(index for index, word in enumerate(words) if word.endswith(".py"))
    tasks = []
    for variant, script in scripts.items():
        words[place] = str(script)
        tasks += run.expand(replace(args, command=shlex.join(words)), variant)
    return sorted(tasks, key=lambda task: task.seed)


# ------ numbers ------
@dataclass
class Results:
    """What has become of the runs, by variant and environment."""

    runs: dict[tuple[str, str], list[Run]]  # finished ones, by seed
    diverged: Counter[tuple[str, str]]  # how many others were ended by a loss that was not finite
    missing: Counter[tuple[str, str]]  # how many have no score for another reason


def read_results(tasks: list[run.Task], found: Found) -> Results:
    """The results of these tasks, from all that was found in their folder."""
    results = Results(defaultdict(list), Counter(), Counter())
    for task in tasks:
        key = RunKey(task.script.name, task.env_id, task.seed)
        group = (task.label, task.env_id)
        if key in found.runs:
            results.runs[group].append(found.runs[key])
            if found.runs[key].provenance.script_hash != hash_of(task.script):
                warn(f"{task.name} was run with another version of the script")
        elif found.left_out.get(key) == DIVERGED:
            results.diverged[group] += 1
        else:
            results.missing[group] += 1
    return results


def effect_of(
    tag: str,
    env_id: str,
    runs: list[Run],
    baseline: list[Run],
    diverged: int = 0,
    missing: int = 0,
) -> Effect:
    """The effect of leaving out a detail in an environment.

    diverged: how many runs were ended by a loss that was not finite. missing: how many others have
    no score, those of the baseline included. The rest is no fair sample then, and not compared.
    """
    scores = np.array([one.training_mean for one in runs])
    before = {one.seed: one.training_mean for one in baseline}
    all_before = np.array(list(before.values()))
    found = stats.Estimate(math.nan)
    if runs and not diverged and not missing:
        found = stats.welch(scores, all_before)
    return Effect(
        tag=tag,
        env_id=env_id,
        runs=len(runs) + diverged,
        diverged=diverged,
        score=float(scores.mean()) if runs else math.nan,
        baseline_runs=len(baseline),
        baseline=float(all_before.mean()),
        start=float(np.mean([one.scores[:BEGINNING].mean() for one in baseline])),
        difference=found.value,
        low=found.low,
        high=found.high,
        p=found.p,
        same=bool(runs)
        and not missing
        and all(one.training_mean == before.get(one.seed) for one in runs),
    )


def measure(env_ids: list[str], wanted: list[Ablation], results: Results) -> list[Effect]:
    """The effects in each environment in which the script as it is has a finished run."""
    effects = []
    for env_id in env_ids:
        baseline = results.runs.get((BASELINE, env_id), [])
        if not baseline:
            warn(f"{env_id} is left out: no finished run of the script as it is")
            continue
        lost = results.diverged[BASELINE, env_id] + results.missing[BASELINE, env_id]
        if lost:
            warn(f"{env_id}: {lost} runs of the script as it is have no score: nothing is compared")
        for ablation in wanted:
            group = (ablation.name, env_id)
            runs = results.runs.get(group, [])
            if len({one.provenance.flags for one in [*baseline, *runs]}) > 1:
                warn(f"{ablation.name} in {env_id}: runs with different flags are compared")
            missing = results.missing[group] + lost
            effects.append(
                effect_of(ablation.tag, env_id, runs, baseline, results.diverged[group], missing)
            )
    return effects


def score_rows(script: str, results: Results) -> pd.DataFrame:
    """What the file of scores says of each run of a script, and what rerun.py needs of it."""
    tables = []
    for (variant, _), runs in results.runs.items():
        rows = score_table(runs).assign(script=script)
        means = [f"{one.training_mean:.2f}" for one in runs]
        rows.insert(rows.columns.get_loc("score") + 1, "training_mean", means)
        rows.insert(0, "variant", variant)
        tables.append(rows)
    return pd.concat(tables)


def print_effects(effects: list[Effect]) -> None:
    """A table with a line for each effect, and which ones Holm's correction leaves."""
    table = pd.DataFrame(effects).drop(columns=["baseline_runs", "start", "same"])
    left = stats.beyond_chance([effect.p for effect in effects])
    table["beyond chance"] = ["yes" if index in left else "" for index in table.index]
    print(table.to_string(index=False, float_format=lambda x: f"{x:.3g}", na_rep="-"))


# ------ the figure ------
def percent(share: float) -> str:
    """-0.318 -> -32, 0.05 -> +5."""
    return f"{round(100 * share):+d}" if round(100 * share) else "0"


def text_of(effect: Effect) -> str:
    """What stands in a cell: the change as a share of what is learned, or why there is none."""
    if effect.diverged:
        return f"{effect.diverged} of {effect.runs} diverged"
    if effect.same:
        return "the same scores"
    if math.isnan(effect.difference):
        return "not finished"
    lost = effect.share(effect.difference)
    if math.isnan(lost):
        return "nothing learned"
    if math.isnan(effect.low):
        return f"{percent(lost)} (no interval)"
    low, high = (percent(effect.share(end)) for end in (effect.low, effect.high))
    return f"{percent(lost)} ({low} to {high})"


def by_importance(effects: list[Effect]) -> list[str]:
    """The tags, by the mean share over the environments that is lost without, most first."""
    shares: dict[str, list[float]] = defaultdict(list)
    for effect in effects:
        lost = -math.inf if effect.diverged else effect.share(effect.difference)
        shares[effect.tag].append(lost)
    return sorted(shares, key=lambda tag: float(np.nan_to_num(shares[tag], neginf=-1).mean()))


def draw(title: str, effects: list[Effect], labels: dict[str, str], path: Path) -> None:
    """Write the figure: a row for each detail, a column for each environment.

    labels: by tag, what the edited script does.
    """
    tags = by_importance(effects)
    env_ids = list(dict.fromkeys(effect.env_id for effect in effects))
    size = (4 + 1.8 * max(2, len(env_ids)), 0.44 * len(tags) + 1.3)
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    colored = np.full((len(tags), len(env_ids)), np.nan)
    for effect in effects:
        row, column = tags.index(effect.tag), env_ids.index(effect.env_id)
        color, weight = GREY, "normal"
        if effect.certain:
            colored[row, column] = effect.share(effect.difference)
            color = "white" if abs(effect.lost) > DARK else "black"
            weight = "bold"
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": color, "weight": weight}
        axes.text(column, row, text_of(effect), fontsize=9, **look)
    axes.imshow(colored, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    axes.set_xticks(range(len(env_ids)), env_ids, weight="bold")
    names = [textwrap.fill(f"{tag}: {labels[tag]}", LABEL_WIDTH) for tag in tags]
    axes.set_yticks(range(len(tags)), names, fontsize=9)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    figure.suptitle(f"{title}\n{EXPLANATION}", fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_results(args: Args, script: Path, wanted: list[Ablation], tasks: list[run.Task]) -> None:
    """Write numbers and figure of the finished runs, and say where; exit code 1 without any."""
    results = read_results(tasks, find_runs(args.runs_dir, metric_of(script.name)))
    effects = measure(args.env_ids, wanted, results)
    if not effects:
        raise SystemExit(1)
    args.plot.mkdir(parents=True, exist_ok=True)
    stem = args.plot / f"ablation_{script.stem}"
    paths = [Path(f"{stem}{end}") for end in (".csv", "_scores.csv", ".png")]
    write_effects(effects, paths[0])
    score_rows(script.name, results).to_csv(paths[1], index=False)
    labels = {ablation.tag: ablation.without for ablation in wanted}
    draw(f"{script.name}, edited", effects, labels, paths[2])
    print_effects(effects)
    for path in paths:
        print(path)


def main() -> int:
    """Parse the command line and run what it asks for; returns the exit code."""
    args = read_args(Args, __doc__)
    run.check(args)
    script = run.script_of(run.split_words("--command", args.command))
    try:
        wanted = choose(args, script)
        tasks = expand(args, write_copies(args, script, wanted))
    except (KeyError, ValueError) as error:  # no table of edits, or the script has other lines
        fail(f"the edits do not fit: {error!r}")
    if args.dry_run:
        for task in tasks:
            print(shlex.join(task.command))
        return 0
    if args.redraw:
        write_results(args, script, wanted, tasks)
        return 0
    if args.launcher == "slurm":
        import slurm

        return slurm.submit(tasks, args, [sys.executable, *sys.argv, "--redraw"])
    exit_code = run.run_locally(tasks, args.workers, Signals())
    if exit_code in (0, 1):  # a run that failed does not keep the others' results back
        write_results(args, script, wanted, tasks)
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
