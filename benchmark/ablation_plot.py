"""What each implementation detail is worth, from the runs that ablation.py has made.

    uv run benchmark/ablation_plot.py --runs-dir runs/benchmark/ablation/ppo --out results

Runs that are not finished are left out, so that this can be called while others still go on.
Writes ablation_ppo.csv (the effect of each detail in each environment on the mean score of the
training), ablation_ppo_scores.csv (a line for each run, also with its final score), ablation_ppo.md
(a table), and from all such files of effects in --out the picture ablation.png and .svg. What those
files say of environments that have no runs in --runs-dir stays: they can be trained one after the
other, on different machines. Of an environment that has runs it must have them of all details that
--out has numbers of. Exit codes: 0 done, 2 bad input or no finished run of the baseline.
"""

import csv
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import plot
import runs as run_folders
import tyro
from console import check_folder, fail, warn
from matplotlib.colors import LinearSegmentedColormap, Normalize
from stats import p_value, welch
from tasks import diverged

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from ablations import SAME, Effect, label, read_effects, table, write_effects
from undo import ablations

BASELINE = "baseline"  # the variant that has all details, as in ablation.py
SCORE_COLUMNS = [
    *("variant", "env_id", "seed", "score", "training_mean", "steps", "minutes", "diverged"),
    *("script", *run_folders.Provenance.columns()),
]
BEGINNING = 10  # episodes from which the score of an untrained agent is taken
DARK = 0.6  # share from which on a background wants white text
EXPLANATION = (
    "What is lost (red) or gained (blue) without a detail: the difference of the mean score",
    "over the whole training, in percent of what all details add to it. Below it the 95 %",
    "interval; no colour where 0 is in it.",
)
# From "nothing is learned any more" over "makes no difference" to "twice as much is learned".
COLORS = LinearSegmentedColormap.from_list("worth", ["#b2182b", "#ffffff", "#2166ac"])


@dataclass
class Args:
    runs_dir: Path  # --runs-dir of ablation.py
    out: Path = Path("results")  # where the files are written


@dataclass(frozen=True)
class Trained:
    """A run that counts."""

    variant: str  # the folder's name: of an ablation, or BASELINE
    run: run_folders.Run
    diverged: bool

    @property
    def score(self) -> float:
        """Mean over the whole training: what is learned later, or less, lowers it.

        A run that diverged counts with its last score for the steps that it did not do.
        """
        return self.run.mean_score(self.run.settings.get("total_timesteps", self.run.total_steps))

    @property
    def start(self) -> float:
        """Mean score of the first episodes."""
        return float(self.run.scores[:BEGINNING].mean())


# ------ reading ------


def script_in(runs_dir: Path) -> Path:
    """The script as it was when ablation.py copied it; fails if it did not."""
    scripts = sorted((runs_dir / BASELINE).glob("*.py"))
    if len(scripts) != 1:
        fail(f"--runs-dir: {runs_dir} is no folder that ablation.py has made")
    return scripts[0]


def read_variant(folder: Path) -> list[Trained]:
    """The runs of a variant that are finished or have diverged, by environment and seed."""
    found = {}
    for args_file in sorted(
        folder.glob("*/args.json"), key=lambda f: run_folders.start_time(f.parent)
    ):
        try:
            run = run_folders.read_run(args_file.parent, json.loads(args_file.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            warn(f"{args_file.parent} is left out: cannot be read: {error!r}")
            continue
        finished = (run.folder / "agent.pt").exists()
        missing = run_folders.steps_missing(run)
        if finished and missing:
            warn(f"{run.folder} is left out: {missing}: damaged")
            continue
        ended = not finished and diverged(run.folder)
        if (finished or ended) and len(run.scores):
            found[run.env_id, run.seed] = Trained(folder.name, run, ended)
    return [found[key] for key in sorted(found)]


def with_baseline(
    found: dict[tuple[str, str], list[Trained]],
) -> dict[tuple[str, str], list[Trained]]:
    """What was found in environments that have runs of the baseline; warns of the others.

    Nothing can be said of those yet, so what --out has of them stays.
    """
    env_ids = {env_id for variant, env_id in found if variant == BASELINE}
    for env_id in sorted({env_id for _, env_id in found} - env_ids):
        warn(f"{env_id} is left out: no finished run of the {BASELINE}")
    return {key: runs for key, runs in found.items() if key[1] in env_ids}


def warn_of_unlike_runs(found: dict[tuple[str, str], list[Trained]]) -> None:
    """Tells where runs differ from the baseline's in more than the detail: in flags or steps."""
    for (variant, env_id), runs in found.items():
        beside = [trained.run for trained in found.get((BASELINE, env_id), []) + runs]
        for remark in run_folders.remarks_on_settings({env_id: beside}):
            warn(f"{variant}: {remark}")


def read_all(runs_dir: Path, variants: list[str]) -> dict[tuple[str, str], list[Trained]]:
    """What counts of each variant in each environment."""
    found = defaultdict(list)
    for variant in variants:
        for trained in read_variant(runs_dir / variant):
            found[variant, trained.run.env_id].append(trained)
    return dict(found)


# ------ numbers ------


def all_the_same(runs: list[Trained], baseline: list[Trained]) -> bool:
    """Whether each run has the score of the baseline with its seed."""
    before = {trained.run.seed: trained.score for trained in baseline}
    return all(trained.score == before.get(trained.run.seed) for trained in runs)


def effect_of(tag: str, env_id: str, runs: list[Trained], baseline: list[Trained]) -> Effect:
    """The effect of leaving out a detail in an environment; NaN if there are no runs without it."""
    scores = np.array([trained.score for trained in runs])
    before = np.array([trained.score for trained in baseline])
    difference, low, high = welch(scores, before) if runs else (math.nan,) * 3
    return Effect(
        tag=tag,
        env_id=env_id,
        runs=len(runs),
        diverged=sum(trained.diverged for trained in runs),
        score=float(scores.mean()) if runs else math.nan,
        baseline_runs=len(baseline),
        baseline=float(before.mean()),
        start=float(np.mean([trained.start for trained in baseline])),
        difference=difference,
        low=low,
        high=high,
        p=p_value(scores, before),
        same=bool(runs) and all_the_same(runs, baseline),
    )


# ------ the picture ------


def percent(x: float) -> str:
    """-0.318 -> −32; nothing for NaN."""
    if math.isnan(x):
        return ""
    return f"{100 * x:+.0f}".replace("-", "\u2212") if round(100 * x) else "0"


def by_importance(effects: list[Effect]) -> list[str]:
    """The details that have been measured, by what is lost without them, most first."""
    shares: dict[str, list[float]] = defaultdict(list)
    for effect in effects:
        if effect.runs:
            shares[effect.tag].append(effect.share(effect.difference))
    means = {tag: np.nan_to_num(found).mean() for tag, found in shares.items()}
    return sorted(means, key=lambda tag: means[tag])


def interval_of(effect: Effect) -> str:
    """What stands below the difference: its interval, or why there is none."""
    if not effect.gain > 0:
        return "nothing learned"
    if effect.same:
        return SAME
    if math.isnan(effect.low):
        return "one run" if min(effect.runs, effect.baseline_runs) < 2 else "no spread"
    return f"{percent(effect.share(effect.low))} to {percent(effect.share(effect.high))}"


def draw_cell(axes: plt.Axes, column: int, row: int, effect: Effect) -> None:
    """The share that is lost, with its interval; in colour if the interval leaves out 0."""
    lost = effect.share(effect.difference)
    color, weight = plot.GREY, "normal"
    if effect.certain and not math.isnan(lost):
        background = COLORS(Normalize(-1, 1)(lost))
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(plt.Rectangle(corner, 1, 1, color=background, linewidth=0))
        color, weight = ("white" if abs(lost) > DARK else "black"), "bold"
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": color}
    text = percent(lost) + ("\u2020" if effect.diverged else "")
    axes.text(column, row - 0.13, text, weight=weight, **look)
    axes.text(column, row + 0.27, interval_of(effect), fontsize=6.5, **look)


def draw_script(axes: plt.Axes, script: str, effects: list[Effect]) -> None:
    """The details of a script as rows, its environments as columns."""
    tags = by_importance(effects)
    measured = [effect for effect in effects if effect.runs]
    env_ids = list(dict.fromkeys(effect.env_id for effect in measured))
    for effect in measured:
        draw_cell(axes, env_ids.index(effect.env_id), tags.index(effect.tag), effect)
    axes.set_xlim(-0.5, len(env_ids) - 0.5)
    axes.set_ylim(len(tags) - 0.5, -0.5)
    axes.set_xticks(range(len(env_ids)), env_ids, weight="bold")
    names = [label(tag).replace("`", "").partition(",")[0] for tag in tags]
    axes.set_yticks(range(len(tags)), names)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.set_title(f"{script} without ...", loc="left", fontsize=11.5, pad=10)
    for edge in range(1, len(tags)):
        axes.axhline(edge - 0.5, color="#e5e7eb", linewidth=0.7)
    axes.spines[:].set_visible(False)


def draw(by_script: dict[str, list[Effect]], out: Path) -> list[Path]:
    """Writes the picture, as PNG and SVG; returns their paths."""
    plt.rcParams.update({**plot.LOOK, "svg.hashsalt": "ablation"})
    counts = [len(by_importance(effects)) for effects in by_script.values()]
    size = (8.8, 0.38 * sum(counts) + 1.1 * len(counts) + 0.8)
    options: dict[str, Any] = {"squeeze": False, "layout": "constrained", "figsize": size}
    figure, grid = plt.subplots(len(counts), 1, height_ratios=counts, **options)
    for axes, (script, effects) in zip(grid.flat, by_script.items(), strict=True):
        draw_script(axes, script, effects)
    lines = [*EXPLANATION]
    if any(effect.diverged for effects in by_script.values() for effect in effects):
        lines.append("† Runs ended early, with a loss that was not finite.")
    figure.suptitle("\n".join(lines), fontsize=10, x=0.01, ha="left")
    vector = out / "ablation.svg"
    figure.savefig(vector, metadata={"Date": None})
    picture = out / "ablation.png"
    plot.save(figure, picture)
    return [picture, vector]


# ------ the files ------


def effects_before(path: Path) -> list[Effect]:
    """The effects in a file of --out; none if there is no file. Fails if it is another one."""
    try:
        return read_effects(path)
    except ValueError as error:
        fail(f"--out: {error}")


def refuse_to_lose(new: list[Effect], before: list[Effect], path: Path) -> None:
    """Fails where a file has numbers of a detail that the new runs of an environment lack."""
    had = {(effect.tag, effect.env_id) for effect in before if effect.runs}
    for effect in new:
        if not effect.runs and (effect.tag, effect.env_id) in had:
            detail = f"{effect.tag} in {effect.env_id}"
            reason = "of which --runs-dir has no finished run: write elsewhere"
            fail(f"--out: {path} has {detail}, {reason}")


def with_effects_before(new: list[Effect], before: list[Effect], tags: list[str]) -> list[Effect]:
    """The new effects, and of those before the ones in other environments; ordered by tag."""
    env_ids = {effect.env_id for effect in new}
    kept = [effect for effect in before if effect.env_id not in env_ids and effect.tag in tags]
    return sorted(kept + new, key=lambda effect: (tags.index(effect.tag), effect.env_id))


def with_rows_before(
    new: list[dict[str, str]], before: list[dict[str, str]], variants: list[str]
) -> list[dict[str, str]]:
    """The same of the runs' scores; ordered by variant."""
    env_ids = {row["env_id"] for row in new}
    kept = [row for row in before if row["env_id"] not in env_ids and row["variant"] in variants]
    return sorted(
        kept + new,
        key=lambda row: (variants.index(row["variant"]), row["env_id"], int(row["seed"])),
    )


def score_row(trained: Trained) -> dict[str, str]:
    """What the file of scores says of a run, and what rerun.py needs to make it again."""
    run = trained.run
    made = {name: str(value) for name, value in asdict(run.provenance).items()}
    return {
        "variant": trained.variant,
        "env_id": run.env_id,
        "seed": str(run.seed),
        "score": f"{run.score:.2f}",
        "training_mean": f"{trained.score:.2f}",
        "steps": str(run.total_steps),
        "minutes": f"{run.total_minutes:.2f}",
        "diverged": "yes" if trained.diverged else "no",
        "script": run.script,
        **made,
    }


def read_scores(path: Path) -> list[dict[str, str]]:
    """The lines of a file of scores; none if there is no file. Fails if it is another one."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != SCORE_COLUMNS:
            fail(f"--out: {path}: the columns are not {', '.join(SCORE_COLUMNS)}")
        return list(reader)


def write_scores(rows: list[dict[str, str]], path: Path) -> None:
    """CSV with the score of each run, at the end and over the whole training."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, SCORE_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def effects_in(out: Path) -> dict[str, list[Effect]]:
    """The measured effects of all scripts in a folder."""
    found = {}
    for path in sorted(out.glob("ablation_*.csv")):
        if match := re.fullmatch(r"ablation_(.+?)(?<!_scores)\.csv", path.name):
            try:
                effects = read_effects(path)
            except ValueError:
                warn(f"{path} is left out of the picture: other columns than those of an ablation")
                continue
            if any(effect.runs for effect in effects):
                found[f"{match[1]}.py"] = effects
    return found


def main() -> int:
    """Read the runs, write the results and say where; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    check_folder("--out", args.out)
    script = script_in(args.runs_dir)
    wanted = ablations(script.name, script.read_text())
    trained = [ablation for ablation in wanted.values() if ablation.edits]
    variants = [BASELINE, *(ablation.name for ablation in trained)]
    found = with_baseline(read_all(args.runs_dir, variants))
    warn_of_unlike_runs(found)
    env_ids = [env_id for variant, env_id in found if variant == BASELINE]
    if not env_ids:
        fail(f"--runs-dir: no finished run of the script as it is in {args.runs_dir}/{BASELINE}")
    stem = f"ablation_{script.stem}"
    paths = [args.out / f"{stem}{end}" for end in (".csv", "_scores.csv", ".md")]
    effects = [
        effect_of(one.tag, env_id, found.get((one.name, env_id), []), found[BASELINE, env_id])
        for one in trained
        for env_id in env_ids
    ]
    before = effects_before(paths[0])
    refuse_to_lose(effects, before, paths[0])
    effects = with_effects_before(effects, before, list(wanted))
    rows = [score_row(trained) for group in found.values() for trained in group]
    rows = with_rows_before(rows, read_scores(paths[1]), variants)
    args.out.mkdir(parents=True, exist_ok=True)
    write_effects(effects, paths[0])
    write_scores(rows, paths[1])
    paths[2].write_text(f"{table(wanted.values(), effects)}\n")
    if by_script := effects_in(args.out):
        paths += draw(by_script, args.out)
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
