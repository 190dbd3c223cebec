"""Run a published row again: does its score come out?

    uv run benchmark/rerun.py ppo/CartPole-v1
    uv run benchmark/rerun.py ppo/Acrobot-v1 --num-seeds 5 --start-seed 11 --workers 2
    uv run benchmark/rerun.py presets/ppo/LunarLander-v3
    uv run benchmark/rerun.py ablation_ppo/CartPole-v1/core-7

A row is <file>/<environment>: the runs of an environment in docs/results/<file>_scores.csv, which
also says with which flags and by which script they were made. Rows of compare.py and ablation.py
have a third part, the group or the detail that was left out. The script is the published one, by
its SHA-256, where git has it, else the present one. Without a detail it is the present one, edited.

A run with a published seed is the same run again: its score should be the published one, digit for
digit. Otherwise the scores agree if the 95 % interval of the difference (Welch) contains 0.
Exit codes: 0 they agree, 1 they do not, too few runs to tell, or a run failed or has no score, 2
bad input, 130 and 143 when stopped.
"""

import difflib
import hashlib
import math
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import run
import tyro
from common import Signals, fail, file_name, read_args, warn
from edits import ablations
from runs import HASH_DIGITS, find_runs, mean_and_std
from stats import welch

ROOT = Path(__file__).resolve().parents[1]
BASELINE = "baseline"  # the variant of an ablation that is the script as it is


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


def published(results: Path) -> dict[str, pd.DataFrame]:
    """The runs in all files of scores, also in folders of `results`, as text, by their row."""
    rows: dict[str, pd.DataFrame] = {}
    for path in sorted(results.rglob("*_scores.csv")):
        table = path.relative_to(results).as_posix().removesuffix("_scores.csv")
        scores = pd.read_csv(path, dtype=str, keep_default_na=False)
        third = [name for name in ("group", "variant") if name in scores]
        for words, lines in scores.groupby(["env_id", *third], sort=False):
            rows["/".join([table, *words])] = lines
    return rows


def digest(source: str) -> str:
    """First digits of a script's SHA-256, as in the published rows."""
    return hashlib.sha256(source.encode()).hexdigest()[:HASH_DIGITS]


def in_git(script: Path, script_hash: str) -> str | None:
    """The version of a script with this hash, if there is one in the history."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(script.parent), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout

    for commit in git("log", "--format=%H", "--", script.name).split():
        source = git("show", f"{commit}:./{script.name}")
        if digest(source) == script_hash:
            return source
    return None


def source_of(script: Path, row: pd.Series) -> str:
    """The source that a row's runs are made with; warns if it is not the published one."""
    source = script.read_text()
    variant = row.get("variant", BASELINE)
    if variant != BASELINE:
        by_name = {one.name: one for one in ablations(script.name, source).values()}
        if variant not in by_name:
            fail(f"{script.name} has no detail {variant} that can be left out")
        source = by_name[variant].apply(source)
    elif digest(source) != row["script_hash"]:
        source = in_git(script, row["script_hash"]) or source
    if digest(source) != row["script_hash"]:
        warn(f"{script.name} has changed: published with {row['script_hash']}, run as it is now")
    return source


def launcher(python: str | None, processes: int) -> list[str]:
    """The words before the script; fails if several processes are to train and uv starts them."""
    if processes == 1:
        return [python] if python else ["uv", "run"]
    if python is None:
        fail(f"{processes} processes trained together: give --python, where torchrun is found")
    counts = ["--standalone", "--nnodes=1", f"--nproc-per-node={processes}"]
    return [python, "-m", "torch.distributed.run", *counts]


def tell(name: str, before: dict[int, str], now: dict[int, float]) -> bool:
    """Print the scores by seed and how they differ; returns whether they agree."""
    for seed, score in now.items():
        print(
            f"seed {seed}: {score:.2f}" + (f", published {before[seed]}" if seed in before else "")
        )
    if all(f"{score:.2f}" == before.get(seed) for seed, score in now.items()):
        print(f"{name}: the same scores")
        return True
    old, new = np.array([float(text) for text in before.values()]), np.array(list(now.values()))
    value, low, high, _ = welch(new, old)
    interval = f"95 %: {low:+.2f} to {high:+.2f}"
    if math.isnan(low):
        interval = "no interval: a single run, or runs that are all alike"
    print(f"{name}: {mean_and_std(old)} published, {mean_and_std(new)} now")
    print(f"difference {value:+.2f} ({interval})")
    return low <= 0 <= high


def versions(text: str) -> dict[str, str]:
    """Packages and their versions; of a resumed run ("... then ...") the last ones."""
    words = text.replace(" then ", " ").split()
    return dict(zip(words[::2], words[1::2], strict=True))


def main() -> int:
    """Run the row again and compare; returns the exit code."""
    args = read_args(Args, __doc__)
    rows = published(args.results)
    if args.row not in rows:
        nearest = difflib.get_close_matches(args.row, rows, n=6, cutoff=0)
        fail(f"{args.row} is no row in {args.results}; the nearest: {', '.join(nearest)}")
    lines = rows[args.row]
    row = lines.iloc[0]
    if lines["script_hash"].nunique() > 1:
        warn("several versions of the script made this row; the first seed's runs here")
    before = {int(seed): score for seed, score in zip(lines["seed"], lines["score"], strict=True)}
    first = min(before) if args.start_seed is None else args.start_seed
    count = len(before) if args.num_seeds is None else args.num_seeds
    seeds = range(first, first + count)

    start = launcher(args.python, int(row["processes"]))
    source = source_of(args.scripts / row["script"], row)
    script = args.runs_dir / f"{file_name(args.row)}-{digest(source)}" / row["script"]
    runner = run.Args(
        command=f"{shlex.join([*start, str(script)])} {row['flags']}",
        env_ids=[row["env_id"]],
        num_seeds=count,
        start_seed=first,
        workers=args.workers,
        runs_dir=script.parent,
    )
    run.check(runner)
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(source)
    # Old scripts do not know that a run is finished: for them --resume auto begins another one.
    left = [
        task
        for task in run.expand(runner)
        if not any(script.parent.glob(f"*__{task.seed}__*/agent.pt"))
    ]
    if exit_code := run.run_locally(left, args.workers, Signals()):
        return exit_code

    found = find_runs(script.parent)
    ours = {one.seed: one for one in found.runs.values()}
    if not ours.keys() >= set(seeds):
        warn(f"{args.row}: not all runs in {script.parent} have a score, so no answer")
        return 1
    steps = max(map(int, lines["steps"]))
    agrees = tell(args.row, before, {seed: ours[seed].score_after(steps) for seed in seeds})
    made = ours[first].provenance
    now = versions(made.versions)
    for package, version in versions(row["versions"]).items():
        if now.get(package) != version:
            print(f"{package}: {version} when published, {now.get(package, 'none')} now")
    if made.hardware != row["hardware"]:
        print(f"hardware: {row['hardware']} when published, {made.hardware} now")
    return 0 if agrees else 1


if __name__ == "__main__":
    raise SystemExit(main())
