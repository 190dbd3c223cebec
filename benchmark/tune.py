"""Search for flags with which a script learns better, on several environments at once.

    uv run benchmark/tune.py --command "uv run ppo/ppo.py --total-timesteps 100000" \\
        --target-scores CartPole-v1=0:500 Acrobot-v1=-500:0 --space learning-rate=log:3e-4:1e-2 \\
        num-steps=32,64,128 gae-lambda=0.8:1.0 --trials 30 --workers 2 --check-seeds 5
    benchmark/tune.sh                                   the example of docs/search.md

A search space is one word for each flag:
    num-steps=32,64,128            one of these
    norm-adv=yes,no                with the flag, --norm-adv, or without, --no-norm-adv
    update-epochs=int:1:10         a whole number, both ends included
    gae-lambda=0.9:1.0             a number
    learning-rate=log:1e-4:1e-2    a number, on a logarithmic scale

A trial trains seed after seed, on each environment. Its score is the mean over its runs, where
ENV_ID=LOW:HIGH says which scores of an environment count as 0 and 1; LOW may be the larger one.
After each seed but the last a trial ends if it is below the median of earlier trials (Optuna's
MedianPruner). A run that fails, or whose flags the script refuses, fails its trial.

Ctrl-C saves the runs and stops; a second one kills them. The same call again finishes what is left.
Exit codes: 0 when all is done, 1 if no trial succeeded or a run of the check failed, 2 for bad
input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import fcntl
import hashlib
import math
import shlex
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import optuna
import pandas as pd
import run
import runs
from common import Signals, fail, file_name, read_args, say, warn
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FixedTrial, FrozenTrial, TrialState
from stats import welch

CHECK_SEED = 1001  # the first seed of the check, unless the search goes as far
LONGEST_NAME = 200  # characters of a folder; file systems allow 255
REASON = "reason"  # attribute of a trial that failed: why
# Arguments that may change while a search goes on: the scores of its trials do not depend on them.
FREE = ("study", "trials", "workers", "check_seeds", "plot", "dry_run")


@dataclass
class Args:
    command: str  # how the script is run, with the flags that all runs share
    target_scores: tuple[str, ...]  # "ENV_ID=LOW:HIGH": environment, scores that count as 0 and 1
    space: tuple[str, ...]  # the flags to search, see above
    env_flags: tuple[str, ...] = ()  # "ENV_ID=FLAGS": more flags, for the runs of one environment
    study: Path = Path("runs/tune")  # folder of the search: study.log and all runs
    trials: int = 30  # in all, those of earlier calls included
    workers: int = 1  # trials at a time, each of them one run at a time
    num_seeds: int = 3  # runs of each environment in a trial
    start_seed: int = 1  # the first seed; the others follow it
    score: Literal["final", "curve"] = "final"  # of the last 100 episodes, or mean over all steps
    metric: str | None = None  # TensorBoard name of what is scored; the script's own if not given
    check_seeds: int = 0  # fresh seeds to compare the best flags with the command's own
    plot: Path | None = None  # folder for the figure and the tables; --study if not given
    dry_run: bool = False  # print the runs of one trial, and run nothing


def suggest(trial: optuna.Trial | FixedTrial, space: tuple[str, ...]) -> list[str]:
    """The flags of a trial, numbers with four digits; ValueError if the space is not as above."""
    flags = []
    for text in space:
        name, _, values = text.partition("=")
        if not values:
            raise ValueError(f"{text} is not FLAG=VALUES")
        kind, *bounds = values.split(":")
        if not bounds:
            value = trial.suggest_categorical(name, values.split(","))
        elif kind == "int":
            first, last = map(int, bounds)
            value = str(trial.suggest_int(name, first, last))
        else:
            low, high = map(float, bounds if kind == "log" else [kind, *bounds])
            value = f"{trial.suggest_float(name, low, high, log=kind == 'log'):.4g}"
        if value in ("yes", "no"):
            flags.append(f"--{name}" if value == "yes" else f"--no-{name}")
        else:
            flags += [f"--{name}", value]
    return flags


class Search:
    """Trains with flags and scores them."""

    def __init__(self, args: Args):
        self.args = args
        self.targets: dict[str, tuple[float, float]] = {}
        for text in args.target_scores:
            env_id, _, bounds = text.partition("=")
            low, high = map(float, bounds.split(":"))
            if low == high or env_id in self.targets:
                raise ValueError(
                    f"{text}: LOW and HIGH are equal, or the environment is named twice"
                )
            self.targets[env_id] = (low, high)
        self.script = run.script_of(run.split_words("--command", args.command))
        self.source = self.script.read_bytes()
        self.seeds = range(args.start_seed, args.start_seed + args.num_seeds)
        self.children = run.Children(args.workers)
        self.progress = run.Progress([])

    def folder(self, flags: list[str]) -> Path:
        """Where the runs with these flags are kept, so that none of them is made twice."""
        name = file_name("_".join(flags).replace("--", "") or "defaults")
        if len(name) > LONGEST_NAME:
            name = hashlib.sha256(name.encode()).hexdigest()
        return self.args.study / name

    def tasks(self, flags: list[str], seeds: range, label: str) -> list[run.Task]:
        """The runs with these flags, each seed on all environments; label: begins their names."""
        runner = run.Args(
            command=f"{self.args.command} {shlex.join(flags)}",
            env_ids=list(self.targets),
            env_flags=self.args.env_flags,
            num_seeds=len(seeds),
            start_seed=seeds.start,
            runs_dir=self.folder(flags),
        )
        return run.expand(runner, label)

    def scores(self, flags: list[str], seed: int) -> pd.DataFrame:
        """A row for each finished run: env_id, seed, score, and normalized between its targets."""
        found = runs.find_runs(self.folder(flags), self.args.metric, f"*__{seed}__*")
        rows = []
        for one in found.runs.values():
            score = one.score if self.args.score == "final" else one.training_mean
            low, high = self.targets[one.env_id]
            rows.append((one.env_id, one.seed, score, (score - low) / (high - low)))
        return pd.DataFrame(rows, columns=["env_id", "seed", "score", "normalized"])

    def train(self, trial: optuna.Trial, task: run.Task) -> bool:
        """Bring a run of a trial to its end; returns whether it ended well."""
        if self.script.read_bytes() != self.source:
            fail(f"{self.script} has been edited: its scores would not be comparable")
        result = run.run_task(task, self.children)
        self.progress.report(task, result)
        if result.outcome == "stopped":
            trial.study.enqueue_trial(trial.params)  # for the same command again
            trial.study.stop()
        elif result.outcome == "failed":
            trial.set_user_attr(REASON, f"{task.name}: {result.reason}, {task.log}")
        return result.outcome == "done"

    def objective(self, trial: optuna.Trial) -> float:
        """Mean of the normalized scores of a trial's runs; NaN fails the trial."""
        flags = suggest(trial, self.args.space)
        means: list[float] = []
        for seed in self.seeds:
            tasks = self.tasks(flags, range(seed, seed + 1), f"trial {trial.number}")
            if not all(self.train(trial, task) for task in tasks):
                return math.nan
            scores = self.scores(flags, seed)["normalized"]
            if len(scores) < len(tasks):
                trial.set_user_attr(REASON, f"no episode ended in a run of seed {seed}")
                warn(f"trial {trial.number}: no episode ended in a run of seed {seed}")
                return math.nan
            means.append(scores.mean())
            trial.report(float(np.mean(means)), seed)
            if seed < self.seeds[-1] and trial.should_prune():
                raise optuna.TrialPruned
        return float(np.mean(means))


def open_study(search: Search) -> optuna.Study:
    """The study in its journal, a new one if there is none; fails if it is another search."""
    # Not in SQLite: there two workers may be given the same trial of the queue. An absolute path,
    # or the lock that a killed search has left would never be seen as too old.
    journal = JournalFileBackend(str(search.args.study.resolve() / "study.log"))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(journal),
        study_name="tune",
        direction="maximize",
        load_if_exists=True,
    )
    # Another seed each time: the same one would draw again what has been drawn.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    settings = {name: str(value) for name, value in vars(search.args).items() if name not in FREE}
    settings["script"] = hashlib.sha256(search.source).hexdigest()
    for name, value in settings.items():
        if study.user_attrs.get(name, value) != value:
            fail(f"--study: {search.args.study} has a search with another {name}")
        study.set_user_attr(name, value)
    for trial in study.get_trials(states=[TrialState.RUNNING]):  # of a search that was killed
        study.enqueue_trial(trial.params)
        study.tell(trial.number, state=TrialState.FAIL)
    return study


def tell(_study: optuna.Study, trial: FrozenTrial) -> None:
    """Say how a trial ended; of one that failed its run has been shown."""
    if trial.value is not None:
        ending = "pruned at" if trial.state == TrialState.PRUNED else "done, score"
        params = ", ".join(f"{name} {value}" for name, value in trial.params.items())
        say(f"trial {trial.number} {ending} {trial.value:.3f}: {params}")


def run_trials(search: Search, study: optuna.Study, signals: Signals) -> None:
    """Run the trials that are left, and pass signals on to their runs."""
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    # A trial that failed without a reason was cut off and stands in the queue again.
    ended = [one for one in study.trials if one.state in states or REASON in one.user_attrs]
    left = max(0, search.args.trials - len(ended))
    with ThreadPoolExecutor(1) as pool:
        workers = search.args.workers
        future = pool.submit(
            study.optimize, search.objective, n_trials=left, n_jobs=workers, callbacks=[tell]
        )
        while not future.done():
            if demand := signals.demand():
                search.children.stop(kill=demand == "kill")
                if demand == "save":
                    say("stopping: the runs save; Ctrl-C again kills them")
            time.sleep(0.2)
        future.result()


def run_check(search: Search, tuned: list[str], signals: Signals) -> pd.DataFrame:
    """Train with fresh seeds; returns the rows of `Search.scores`, flags: defaults or tuned.

    Exits with code 1 if not all runs end well, or no episode ended in one.
    """
    if search.script.read_bytes() != search.source:
        fail(f"{search.script} has been edited: no check of what was searched with another version")
    first = max(CHECK_SEED, search.seeds.stop)
    seeds = range(first, first + search.args.check_seeds)
    kinds: dict[str, list[str]] = {"defaults": [], "tuned": tuned}
    tasks = [task for kind, flags in kinds.items() for task in search.tasks(flags, seeds, kind)]
    if exit_code := run.run_locally(tasks, search.args.workers, signals):
        raise SystemExit(exit_code)
    tables = [
        search.scores(flags, seed).assign(flags=kind)
        for kind, flags in kinds.items()
        for seed in seeds
    ]
    if missing := len(tasks) - sum(map(len, tables)):
        warn(f"no check: no episode ended in {missing} of its {len(tasks)} runs; train longer")
        raise SystemExit(1)
    return pd.concat(tables)


def check_lines(scores: pd.DataFrame) -> list[str]:
    """What fresh seeds say of the tuned flags, with a table in Markdown."""
    means = scores.groupby(["flags", "seed"])["normalized"].mean()
    defaults, tuned = means["defaults"].to_numpy(), means["tuned"].to_numpy()
    value, low, high, _ = welch(tuned, defaults)
    interval = "no interval" if math.isnan(low) else f"95 %: {low:+.3f} to {high:+.3f}"
    lines = [
        f"Tuned flags against defaults, {len(tuned)} fresh seed{'s' * (len(tuned) > 1)}: "
        f"{value:+.3f} ({interval}), normalized. In the table ± is the standard deviation.",
        "",
        "| environment | defaults | tuned |",
        "|---|---:|---:|",
    ]
    for env_id, rows in scores.groupby("env_id", sort=False):
        cells = rows.groupby("flags")["score"].agg(runs.mean_and_std)
        lines.append(f"| {env_id} | {cells['defaults']} | {cells['tuned']} |")
    return [*lines, ""]


def conclude(search: Search, study: optuna.Study, signals: Signals) -> None:
    """Check the best flags; print the result and write it, as text, tables and a figure."""
    tuned = suggest(FixedTrial(study.best_params), search.args.space)
    out = search.args.plot or search.args.study
    out.mkdir(parents=True, exist_ok=True)
    name = f"{search.script.stem}_search"
    lines = []
    if search.args.check_seeds:
        scores = run_check(search, tuned, signals)
        scores.to_csv(out / f"{name}_check.csv", index=False, float_format="%.6g")
        lines += check_lines(scores)
    lines += [f"The best flags, score {study.best_value:.3f} in the search:", "", "```bash"]
    for task in search.tasks(tuned, range(1), ""):
        lines.append(shlex.join(task.command[: task.command.index("--seed")]))
    text = "\n".join([*lines, "```"])
    (out / f"{name}.md").write_text(f"{text}\n")
    columns = ("number", "state", "value", "params", "user_attrs")
    trials = study.trials_dataframe(columns)
    trials.to_csv(out / f"{name}_trials.csv", index=False, float_format="%.4g")
    panels = optuna.visualization.matplotlib.plot_slice(study)
    figure = np.ravel(np.asarray(panels))[0].figure
    figure.savefig(out / f"{name}.png", dpi=150, bbox_inches="tight")
    print(f"\n{text}\n\nwritten: {out}/{name}*")


def search_flags(search: Search) -> int:
    """Run the search to its end; returns the exit code."""
    study = open_study(search)
    signals = Signals()
    run_trials(search, study, signals)
    if signals.received:
        say("the same command again continues from here")
        return 128 + signals.received[0]
    if not study.get_trials(states=[TrialState.COMPLETE]):
        warn("no trial has ended well")
        return 1
    conclude(search, study, signals)
    return 0


def main() -> int:
    """Parse the command line and do what it asks for; returns the exit code."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    args = read_args(Args, __doc__)
    if not args.target_scores:
        fail("--target-scores is empty")
    try:
        search = Search(args)
        flags = suggest(optuna.create_study().ask(), args.space)
    except ValueError as error:
        fail(f"--target-scores or --space: {error}; --help has their forms")
    run.check(
        run.Args(
            args.command,
            list(search.targets),
            args.env_flags,
            num_seeds=args.num_seeds,
            workers=args.workers,
            runs_dir=args.study,
            plot=args.plot,
        )
    )
    tasks = search.tasks(flags, search.seeds, "")  # fails if --command is wrong
    if args.dry_run:
        for task in tasks:
            print(shlex.join(task.command))
        return 0
    args.study.mkdir(parents=True, exist_ok=True)
    with open(args.study / "lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"--study: another process is searching in {args.study}")
        return search_flags(search)


if __name__ == "__main__":
    raise SystemExit(main())
