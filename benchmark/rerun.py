"""Run a published row again: does its score come out?

    uv run benchmark/rerun.py ppo/CartPole-v1
    uv run benchmark/rerun.py ppo/Acrobot-v1 --num-seeds 5 --start-seed 11 --workers 2
    uv run benchmark/rerun.py presets/ppo/LunarLander-v3
    uv run benchmark/rerun.py ablation_ppo/CartPole-v1/core-7

A row is <file>/<environment>: the runs of an environment in docs/results/<file>_scores.csv, which
also says with which flags they were made. Of compare.py and ablation.py it has a third part, the
group or the detail that was left out; without a detail an edited copy of the script is run. The
script is today's, with these flags and, if nothing else is said, these seeds. A run with a
published seed is the same run again: its score should be the published one, digit for digit. Where
it is not, the means agree if they differ by at most twice the spread of the published seeds; that
is no test. With other seeds the scores agree if Student's t-test with pooled variance does not tell
them apart at 5 %: runs of the same program have the same spread. Less than 1 % of the score is no
difference, for environments in which all runs end alike.
Exit codes: 0 they agree, 1 they do not or a run failed or has no score, 2 bad input, 130 and 143
when stopped.
"""

import csv
import difflib
import hashlib
import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from console import Signals, fail, seeds
from edits import ablations
from runs import HASH_DIGITS, Provenance, Run, mean_and_std, read_runs
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
BASELINE = "baseline"  # the variant of an ablation that is the script as it is
SMALL = 0.01  # of the published score: less is no difference
SPREADS = 2  # standard deviations that means of the same seeds may differ by
NAMES = 6  # of rows that are shown in place of one that there is not


@dataclass
class Args:
    row: tyro.conf.Positional[str]  # FILE/ENV_ID[/GROUP]: ppo/CartPole-v1 is in ppo_scores.csv
    num_seeds: int | None = None  # runs; as many as were published if not given
    start_seed: int | None = None  # the first seed; the first published one if not given
    workers: int = 1  # runs at a time
    results: Path = ROOT / "docs" / "results"  # folder of the published scores
    scripts: Path = ROOT / "ppo"  # folder of the scripts
    runs_dir: Path = Path("runs/rerun")  # where the run folders are kept
    python: str | None = None  # interpreter for the script; by default uv makes an environment
    dry_run: bool = False  # print what would be run, and run nothing


@dataclass(frozen=True)
class Row:
    """What was published of an environment."""

    env_id: str
    variant: str  # detail that was left out of the script; none if empty, or as BASELINE
    script: str
    made: Provenance
    steps: int  # of the longest run
    scores: dict[int, float]  # by seed
    digits: dict[int, str]  # the scores as they are printed
    metric: str  # of the scores, if compare.py was told one


@dataclass(frozen=True)
class Verdict:
    """Two sets of runs of what should be the same program."""

    difference: float  # of their mean scores, ours less the published ones
    limit: float  # up to which they agree
    limit_is: str  # where the limit is from

    @property
    def agrees(self) -> bool:
        """Whether the difference may be chance, or too small to matter."""
        return abs(self.difference) <= self.limit


def all_rows(results: Path) -> dict[str, list[dict[str, str]]]:
    """The lines of all files of scores, also in folders of `results`, by the name of their row."""
    found: dict[str, list[dict[str, str]]] = {}
    for path in sorted(results.rglob("*_scores.csv")):
        table = path.relative_to(results).as_posix().removesuffix("_scores.csv")
        with open(path, newline="") as file:
            for line in csv.DictReader(file):
                words = [table, line.get("env_id"), line.get("group") or line.get("variant")]
                found.setdefault("/".join(word for word in words if word), []).append(line)
    return found


def is_recorded(lines: list[dict[str, str]]) -> bool:
    """Whether the lines of a row say how its runs were made."""
    return all(line.get("script") and line.get("versions") for line in lines)


def read_row(results: Path, name: str) -> Row:
    """A published row; fails if there is none, or if it does not say how it was made."""
    rows = all_rows(results)
    if name not in rows:
        recorded = [row for row, lines in rows.items() if is_recorded(lines)]
        nearest = difflib.get_close_matches(name, recorded, NAMES, cutoff=0)
        fail(
            f"{name} is no row in {results}; the nearest: {', '.join(nearest) or 'none'}; "
            "all are in its *_scores.csv, where the column script is filled in"
        )
    lines = rows[name]
    if not is_recorded(lines):
        fail(f"{name}: how it was made is not recorded")
    ways = {(line["script"], line["flags"], line["processes"]) for line in lines}
    if len(ways) > 1:
        fail(f"{name}: its runs have different scripts or flags")
    first = lines[0]
    try:
        return Row(
            env_id=first["env_id"],
            variant=first.get("variant", ""),
            script=first["script"],
            made=Provenance(
                script_hash=first["script_hash"],
                flags=first["flags"],
                processes=int(first["processes"]),
                versions=first["versions"],
                hardware=first["hardware"],
            ),
            steps=max(int(line["steps"]) for line in lines),
            scores={int(line["seed"]): float(line["score"]) for line in lines},
            digits={int(line["seed"]): line["score"] for line in lines},
            metric=first.get("metric", ""),
        )
    except ValueError as error:
        fail(f"{name}: {error}")


def script_hash(source: str) -> str:
    """First digits of a script's SHA-256, as in the published rows."""
    return hashlib.sha256(source.encode()).hexdigest()[:HASH_DIGITS]


def source_of(args: Args, row: Row) -> str:
    """Today's script, without the detail that the row's runs were made without."""
    source = (args.scripts / row.script).read_text()
    if row.variant in ("", BASELINE):
        return source
    for ablation in ablations(row.script, source).values():
        if ablation.name == row.variant:
            return ablation.apply(source)
    fail(f"{args.row}: {row.script} has no detail {row.variant} that can be left out")


def script_to_run(args: Args, row: Row, runs_dir: Path) -> Path:
    """Today's script, or an edited copy beside the runs, which is written for a dry run, too."""
    script = args.scripts / row.script
    source = source_of(args, row)
    if source == script.read_text():
        return script
    copy = runs_dir / row.script
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(source)
    return copy


def launcher(python: str | None, processes: int) -> list[str]:
    """The words before the script; fails if several processes are to train and uv starts them."""
    if processes > 1 and python is None:
        fail(f"{processes} processes trained together: give --python, where torchrun is found")
    if processes > 1:
        counts = ["--standalone", "--nnodes=1", f"--nproc-per-node={processes}"]
        return [str(python), "-m", "torch.distributed.run", *counts]
    if python is not None:
        return [python]
    return ["uv", "run"] if shutil.which("uv") else [sys.executable]


def runner_command(args: Args, row: Row, runs_dir: Path) -> list[str]:
    """The call of the runner that makes the row again."""
    script = script_to_run(args, row, runs_dir)
    words = [*launcher(args.python, row.made.processes), str(script), *shlex.split(row.made.flags)]
    command = [sys.executable, str(Path(__file__).with_name("run.py"))]
    command += ["--command", shlex.join(words), "--env-ids", row.env_id]
    command += ["--num-seeds", str(args.num_seeds), "--start-seed", str(args.start_seed)]
    command += ["--workers", str(args.workers), "--runs-dir", str(runs_dir)]
    return [*command, "--dry-run"] if args.dry_run else command


def judge_again(row: Row, ours: dict[int, float]) -> Verdict:
    """Our scores by seed beside the published ones of these seeds; no test."""
    published = np.mean([row.scores[seed] for seed in ours])
    difference = np.mean(list(ours.values())) - published
    limit = SMALL * abs(published)
    limit_is = "1 % of the score, as one published seed has no spread"
    if len(row.scores) > 1:
        limit = max(SPREADS * np.std(list(row.scores.values()), ddof=1), limit)
        limit_is = "twice the spread of the published seeds, or 1 % of the score"
    return Verdict(float(difference), float(limit), limit_is)


def judge(published: np.ndarray, ours: np.ndarray) -> Verdict:
    """Student's t-test with pooled variance, of (published runs,) and (our runs,) scores.

    For runs of other seeds: those of the same ones are no other samples. Of one run nothing is
    known but through the others, so that there must be three in all.
    """
    counts = np.array([len(published), len(ours)])
    df = counts.sum() - 2
    squares = sum(((scores - scores.mean()) ** 2).sum() for scores in (published, ours))
    error = np.sqrt(squares / df * (1 / counts).sum())
    limit = max(stats.t.ppf(0.975, df) * error, SMALL * abs(published.mean()))
    difference = float(ours.mean() - published.mean())
    return Verdict(difference, float(limit), "Student's t at 95 %, or 1 % of the score")


def describe(scores: Iterable[float]) -> str:
    """'500.00 ± 0.00 (3 seeds)'."""
    numbers = list(scores)
    return f"{mean_and_std(numbers)} ({seeds(len(numbers))})"


def sentence(name: str, published: Iterable[float], ours: Iterable[float], verdict: Verdict) -> str:
    """The answer."""
    agrees = "agrees" if verdict.agrees else "does not agree"
    return (
        f"{name} {agrees}: {describe(published)} published, {describe(ours)} now; the difference "
        f"is {verdict.difference:+.2f} and may be up to {verdict.limit:.2f} ({verdict.limit_is})."
    )


def tell_again(name: str, row: Row, ours: dict[int, float]) -> bool:
    """Print how published seeds come out again; whether they agree. ours: scores by seed."""
    same = []
    for seed, score in ours.items():
        published = row.digits[seed]
        now = f"{score:.2f}"
        same.append(now == published)
        print(f"seed {seed}: {now}, {'as published' if same[-1] else f'published {published}'}")
    if all(same):
        print(f"{name} agrees: the same scores.")
        return True
    print("The seeds are the same, the scores are not.")
    verdict = judge_again(row, ours)
    print(sentence(name, [row.scores[seed] for seed in ours], ours.values(), verdict))
    return verdict.agrees


def tell_others(name: str, row: Row, ours: dict[int, float]) -> bool:
    """Print how seeds that were not published score; whether they agree. ours: by seed."""
    verdict = judge(np.array(list(row.scores.values())), np.array(list(ours.values())))
    print(sentence(f"{name} with other seeds", row.scores.values(), ours.values(), verdict))
    return verdict.agrees


def what_changed(row: Row, run: Run) -> list[str]:
    """What is not as it was when the row was published."""
    before, now = row.made, run.provenance
    pairs = {
        "steps": (f"{row.steps:,}", f"{run.total_steps:,}"),
        "script": (before.script_hash, now.script_hash),
        "versions": (before.versions, now.versions),
        "hardware": (before.hardware, now.hardware),
    }
    return [
        f"{what}: {old or 'not recorded'} when published, {new or 'not recorded'} now"
        for what, (old, new) in pairs.items()
        if old != new
    ]


def check(args: Args, row: Row) -> None:
    """Fill in the seeds; exit with one line and code 2 if the arguments cannot work."""
    if args.num_seeds is None:
        args.num_seeds = len(row.scores)
    if args.start_seed is None:
        args.start_seed = min(row.scores)
    if args.num_seeds < 1:
        fail(f"--num-seeds must be at least 1, not {args.num_seeds}")
    others = set(range(args.start_seed, args.start_seed + args.num_seeds)) - row.scores.keys()
    if len(others) == len(row.scores) == 1:
        fail(f"{args.row}: one published seed and one other tell nothing; try one seed more")
    if not (args.scripts / row.script).is_file():
        fail(f"--scripts: there is no {row.script} in {args.scripts}")


def main() -> int:
    """Run the row again and compare; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    row = read_row(args.results, args.row)
    check(args, row)
    # An edited script starts afresh, elsewhere.
    digest = script_hash(source_of(args, row))
    runs_dir = args.runs_dir / f"{args.row.replace('/', '-')}-{digest}"
    signals = Signals()
    exit_code = signals.run(runner_command(args, row, runs_dir))
    signals.release()
    if exit_code or args.dry_run:
        return exit_code
    by_env, _ = read_runs(runs_dir, row.metric or None)
    first, count = args.start_seed or 0, args.num_seeds or 0
    runs = [run for run in by_env.get(row.env_id, []) if first <= run.seed < first + count]
    ours = {run.seed: run.score_after(row.steps) for run in runs}
    missing = [seed for seed in range(first, first + count) if np.isnan(ours.get(seed, np.nan))]
    if missing:
        listed = ", ".join(map(str, missing))
        print(f"{args.row}: no score of seed {listed} in {runs_dir}, so no answer", file=sys.stderr)
        return 1
    again = {seed: score for seed, score in ours.items() if seed in row.scores}
    others = {seed: score for seed, score in ours.items() if seed not in row.scores}
    agrees = not again or tell_again(args.row, row, again)
    if others:
        agrees = tell_others(args.row, row, others) and agrees
    for change in what_changed(row, runs[0]):
        print(change)
    return 0 if agrees else 1


if __name__ == "__main__":
    raise SystemExit(main())
