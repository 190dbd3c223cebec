"""The search for flags: what is searched, how it is scored, which trials are run.

Part of tune.py.
"""

import hashlib
import json
import math
import shlex
import signal
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
import plot
import run
import runs as run_folders
from console import Progress, Signals, clock, fail, last_output
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState
from tasks import (
    BUSY,
    OWN_FLAGS,
    REFUSAL,
    Children,
    Result,
    Task,
    find_run,
    hash_of,
    run_task,
)

PLACES = 10  # of each run, at which trials are compared
WARM_UP = 2  # places at the beginning of a trial: too early to tell
STARTUP = 5  # finished trials before one may end early
DRAWS = 30  # of flags that have been drawn before, until there are no new ones
PATIENCE = 10  # trials in a row that fail or are refused, before the search gives up
GRACE = 30.0  # seconds in which a run that is not needed any more may end by itself
READING = 0.05  # most of the time that is spent on reading events
SHOWN = 5  # best trials in the table
SQLITE = b"SQLite format 3"  # how a file of SQLite begins
UNKNOWN_FLAG = "unrecognized"  # in what tyro and argparse say of a flag that the script has not
FRAME = "─│╭╮╰╯ "  # that tyro draws around an error
REFUSED = "refused"  # attribute of a trial that the script did not want to run: why
DOUBLE = "double"  # attribute of a trial that was not run: another one has the same flags


@dataclass
class Args:
    command: str  # how the script is run, with the flags that all runs share
    target_scores: tuple[str, ...]  # ENV_ID=LOW:HIGH; of one environment alone just ENV_ID
    space: tuple[str, ...]  # the flags to search, see above
    study: Path = Path("runs/tune")  # folder of the search: study.db, trials.csv, all runs
    trials: int = 30  # in all, those of earlier calls included
    workers: int = 1  # trials at a time, each of them one run at a time
    num_seeds: int = 1  # runs of each environment in a trial
    start_seed: int = 1  # the first seed; the others follow it
    score: Literal["final", "curve"] = "final"  # of the last 100 episodes, or mean over all steps
    metric: str | None = None  # TensorBoard name of what is scored; the script's own if not given
    prune_below: int = 40  # end trials below this percentile of the others at a place; 0: none
    minutes: float = math.inf  # a run that takes longer is ended, and its trial failed
    env_flags: tuple[str, ...] = ()  # "ENV_ID=FLAGS": more flags, for the runs of one environment
    check_seeds: int = 0  # fresh seeds to compare the best flags with the command's own
    plot: Path | None = None  # folder for the picture and the table of the search
    seed: int = 1  # of Optuna's sampler
    dry_run: bool = False  # print what would be searched, and run nothing


# ------ what is searched, and how it is scored ------


@dataclass(frozen=True)
class Target:
    """The scores of an environment that count 0 and 1."""

    low: float = 0.0
    high: float = 1.0

    def normalized(self, score: Any) -> Any:
        """Where a score, or an array of them, is between low (0) and high (1), or beyond them."""
        return (score - self.low) / (self.high - self.low)


def numbers(words: list[str]) -> list[float]:
    """The words as finite numbers; ValueError if one of them is not."""
    found = [float(word) for word in words]
    if not all(map(math.isfinite, found)):
        raise ValueError("not a finite number")
    return found


def parse_targets(given: tuple[str, ...]) -> dict[str, Target]:
    """--target-scores by environment; fails if they do not make scores comparable."""
    targets: dict[str, Target] = {}
    for text in given:
        env_id, _, bounds = text.rpartition("=") if "=" in text else (text, "", "0:1")
        if env_id in targets:
            fail(f"--target-scores names {env_id} twice")
        if "=" not in text and len(given) > 1:
            fail(f"--target-scores: {text} needs =LOW:HIGH, to be averaged with the others")
        try:
            low, high = numbers(bounds.split(":"))
        except ValueError:
            fail(f"--target-scores: {text} is not of the form ENV_ID=LOW:HIGH")
        if low == high or not env_id:
            fail(f"--target-scores: {text} is not of the form ENV_ID=LOW:HIGH")
        targets[env_id] = Target(low, high)
    return targets


def parse_distribution(text: str) -> BaseDistribution:
    """What follows a flag's name in --space; ValueError if it is none of the forms."""
    kind, *bounds = text.split(":")
    if not bounds:
        choices = text.split(",")
        if len(choices) < 2 or not all(choices) or len(set(choices)) < len(choices):
            raise ValueError("there is no choice")
        return CategoricalDistribution(choices)
    if kind not in ("int", "log"):
        bounds = [kind, *bounds]
    low, high = numbers(bounds)
    if low >= high:
        raise ValueError("there is no choice")
    if kind == "int":
        return IntDistribution(int(bounds[0]), int(bounds[1]))
    return FloatDistribution(low, high, log=kind == "log")


def parse_space(given: tuple[str, ...]) -> dict[str, BaseDistribution]:
    """--space by name of the flag; fails if a word of it is no flag with its values."""
    space: dict[str, BaseDistribution] = {}
    for text in given:
        flag, _, values = text.partition("=")
        name = flag.removeprefix("--").replace("_", "-")
        if f"--{name}" in OWN_FLAGS:
            fail(f"--space must not contain {name}: it is set for each run")
        if name in space:
            fail(f"--space names {name} twice")
        try:
            space[name] = parse_distribution(values)
        except ValueError:
            fail(f"--space: {text} is not FLAG=A,B,C or LOW:HIGH, int:LOW:HIGH, log:LOW:HIGH")
    return space


def check_env_flags(args: Args) -> None:
    """Fail if one of --env-flags is searched, too: it would win over what is tried."""
    space = parse_space(args.space)
    for env_id, words in run.flags_by_env(args.env_flags).items():
        for word in words:
            flag = word.partition("=")[0].replace("_", "-")
            for name in space:
                if flag in (f"--{name}", f"--no-{name}"):
                    fail(f"--env-flags sets {name} of {env_id}, which is in --space, too")


def shown(value: Any) -> str:
    """A parameter as it is written: numbers have four digits, in the command line, too."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def flags(params: dict[str, Any]) -> list[str]:
    """The words of a command line that set these parameters."""
    words = []
    for name, value in params.items():
        if value in ("yes", "no"):
            words.append(f"--{name}" if value == "yes" else f"--no-{name}")
        else:
            words += [f"--{name}", shown(value)]
    return words


def score_at(
    events: run_folders.Events,
    step: float,
    kind: Literal["final", "curve"],
    window: int = run_folders.WINDOW,
) -> float:
    """Score of a run up to a step, before it was normalized; NaN if no episode had ended.

    final: mean of the last `window` episodes then; curve: mean of that over all steps until then.
    """
    steps, _, scores = np.array(events.episodes, float).reshape(-1, 3).T
    known = steps <= step
    if not known.any():
        return math.nan
    if kind == "final":
        return float(scores[known][-window:].mean())
    grid = np.linspace(0, step, plot.POINTS + 1)[1:]
    curve = run_folders.rolling_mean(scores, window)
    return float(np.nanmean(run_folders.value_at(grid, steps, curve)))


# ------ a trial ------


@dataclass(eq=False)
class Candidate:
    """Runs with the same flags, one after the other, and what they have scored."""

    name: str
    params: dict[str, Any]
    tasks: list[Task]
    trial: optuna.Trial | None = None  # None: it is no part of the search
    children: Children = field(default_factory=Children)
    scores: dict[Task, float] = field(default_factory=dict)  # of its finished runs, not normalized
    reported: dict[int, float] = field(default_factory=dict)  # scores by place, as in Optuna
    current: float = math.nan  # score of the candidate so far, normalized
    began: float = 0.0  # when its run did, by time.monotonic()
    look_again: float = 0.0  # when the events of its run are to be read again
    ending: float = math.inf  # when it was told to end, by time.monotonic()
    pruned: bool = False
    refused: bool = False
    reason: str = ""  # of a failure

    @property
    def task(self) -> Task:
        """The run that is going on, or is the next."""
        return self.tasks[len(self.scores)]

    @property
    def finished(self) -> bool:
        """Whether all its runs have ended well."""
        return len(self.scores) == len(self.tasks)

    @property
    def outcome(self) -> str:
        """How it ended, as the user reads it."""
        if self.refused:
            return "refused"
        if self.reason:
            return "FAILED"
        if self.pruned:
            return "ended early"
        return "done" if self.finished else "stopped"

    def end(self) -> None:
        """Let its run save and end; kill it if it still runs some time later."""
        now = time.monotonic()
        if self.ending == math.inf:
            self.ending = now
            self.children.stop(signal.SIGTERM)
        elif now - self.ending > GRACE:
            self.ending = now
            self.children.stop(signal.SIGTERM, kill=True)


def run_when_free(task: Task, children: Children) -> Result:
    """The task, as soon as no other process runs it: a search that was killed leaves its runs."""
    while True:
        result = run_task(task, children)
        if result.reason != BUSY:
            return result
        if children.signum:
            return Result("stopped")
        time.sleep(1)


def last_words(task: Task) -> str:
    """The last line that a run has printed, or all lines of the frame in which it stands."""
    lines = last_output(task.log)[1:] if task.log.exists() else []
    lines = [line.strip() for line in lines if line.strip()]
    if not lines:
        return "it printed nothing"
    if not lines[-1].startswith("╰"):
        return lines[-1]
    framed: list[str] = []
    for line in reversed(lines[:-1]):
        if line.startswith("╭"):  # with a title, which the lines below it say again
            break
        framed.insert(0, line.strip(FRAME))
    return " ".join(text for text in framed if text)


class Judge:
    """Reads what runs have logged and scores candidates by it."""

    def __init__(self, args: Args):
        self.args = args
        self.targets = parse_targets(args.target_scores)

    def normalized(self, task: Task, score: float) -> float:
        """A run's score between the targets of its environment."""
        return self.targets[task.env_id].normalized(score)

    def value(self, candidate: Candidate) -> float:
        """Mean of a candidate's normalized scores, all of its runs counted."""
        done = [self.normalized(task, score) for task, score in candidate.scores.items()]
        return sum(done) / len(candidate.tasks)

    def look(self, candidate: Candidate, over: bool = False) -> float:
        """Report how the running task does at the places it has reached, all of them if it is over.

        Returns its score so far, NaN if there is none yet.
        """
        started = time.monotonic()
        task = candidate.task
        folder, _ = find_run(task)
        if folder is None:
            return math.nan
        facts = json.loads((folder / "args.json").read_text())
        metric = self.args.metric or run_folders.METRICS.get(task.script.name, run_folders.RETURN)
        events = run_folders.read_events(folder, metric)
        window = run_folders.window_of(metric)
        total = facts["args"]["total_timesteps"]
        for place in range(1, PLACES + 1):
            step = total * place / PLACES
            if over or events.last_step >= step:
                self.report(candidate, place, score_at(events, step, self.args.score, window))
        end = total if over else events.last_step
        score = score_at(events, end, self.args.score, window)
        candidate.current = self.mean_so_far(candidate, score)
        took = time.monotonic() - started
        candidate.look_again = started + max(1.0, took / READING)
        return score

    def mean_so_far(self, candidate: Candidate, score: float) -> float:
        """Mean of the normalized scores of the runs that have begun; this one has `score`."""
        if math.isnan(score):
            return candidate.current
        done = self.value(candidate) * len(candidate.tasks)
        return (done + self.normalized(candidate.task, score)) / (len(candidate.scores) + 1)

    def report(self, candidate: Candidate, place: int, score: float) -> None:
        """Tell Optuna the score at a place of the running task, once."""
        step = len(candidate.scores) * PLACES + place
        if candidate.trial is None or math.isnan(score) or step in candidate.reported:
            return
        value = self.mean_so_far(candidate, score)
        candidate.trial.report(value, step)
        candidate.reported[step] = value


# ------ the search ------


def runner_arguments(
    args: Args, params: dict[str, Any], folder: str, seeds: range | None = None
) -> run.Args:
    """What the runner of benchmarks would be given for these parameters; None: the usual seeds."""
    if seeds is None:
        seeds = range(args.start_seed, args.start_seed + args.num_seeds)
    return run.Args(
        command=shlex.join([*run.split_words("--command", args.command), *flags(params)]),
        env_ids=list(parse_targets(args.target_scores)),
        env_flags=args.env_flags,
        num_seeds=len(seeds),
        start_seed=seeds.start,
        workers=args.workers,
        runs_dir=args.study / folder,
    )


def identity(args: Args) -> dict[str, Any]:
    """What must not change while a search goes on: else scores would not be comparable."""
    words = run.split_words("--command", args.command)
    script = next(i for i, word in enumerate(words) if word.endswith(".py"))
    return {
        "script": hashlib.sha256(Path(words[script]).read_bytes()).hexdigest()[:12],
        "command": [Path(words[script]).name, *words[script + 1 :]],
        "target-scores": list(args.target_scores),
        "space": list(args.space),
        "env-flags": list(args.env_flags),
        "num-seeds": args.num_seeds,
        "start-seed": args.start_seed,
        "score": args.score,
        "metric": args.metric,
    }


def open_study(args: Args) -> tuple[optuna.Study, optuna.storages.RDBStorage]:
    """The study in its SQLite file, a new one if there is none; fails if it is another search."""
    file = args.study / "study.db"
    if file.exists() and not file.read_bytes().startswith(SQLITE):
        fail(f"--study: {file} is not a file of SQLite")
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    study = optuna.create_study(
        storage=storage,
        study_name="tune",
        direction="maximize",
        load_if_exists=True,
    )
    # Another seed each time: the same one would draw again what has been drawn.
    study.sampler = optuna.samplers.TPESampler(seed=args.seed + len(study.trials))
    now = identity(args)
    before = study.user_attrs.get("search", {})
    for name, value in now.items():
        if before.get(name, value) != value:
            fail(f"--study: {args.study} has a search with another {name}: {before[name]}")
    study.set_user_attr("search", now)
    return study, storage


class Search:
    """The trials: which is next, how they end, and what has been found.

    All of it happens in the main thread; others only wait for processes.
    """

    def __init__(self, args: Args, study: optuna.Study, storage: optuna.storages.BaseStorage):
        self.args = args
        self.judge = Judge(args)
        self.space = parse_space(args.space)
        usual = run.expand(runner_arguments(args, {}, "defaults"))
        self.script_hash = hash_of(usual[0].script)  # no other version is run
        self.study = study
        self.storage = storage
        self.defaults = Candidate("defaults", {}, self.tasks({}, "defaults"))
        self.waiting = [self.defaults]  # to run before new trials are drawn
        known = [trial for trial in study.trials if DOUBLE not in trial.user_attrs]
        interrupted = [trial for trial in known if trial.state == TrialState.RUNNING]
        self.waiting += [self.interrupted(trial) for trial in interrupted]
        self.open = len(interrupted)  # trials that have been begun and have not ended
        self.trials = [trial for trial in known if trial.state.is_finished()]
        self.drawn = {tuple(flags(trial.params)) for trial in known}
        self.in_a_row = 0  # trials that failed or were refused since one did not
        self.exhausted = False  # no new flags are drawn any more
        self.given_up = ""  # why

    def tasks(self, params: dict[str, Any], folder: str, seeds: range | None = None) -> list[Task]:
        """The runs with these parameters in a folder of the study."""
        tasks = run.expand(runner_arguments(self.args, params, folder, seeds))
        return [replace(task, script_hash=self.script_hash) for task in tasks]

    def candidate(self, trial: optuna.Trial) -> Candidate:
        """The runs of a trial."""
        tasks = self.tasks(trial.params, f"trial-{trial.number:04}")
        return Candidate(f"trial {trial.number}", trial.params, tasks, trial)

    def interrupted(self, frozen: FrozenTrial) -> Candidate:
        """A trial that an earlier call has left unfinished."""
        study_id = self.storage.get_study_id_from_name(self.study.study_name)
        number = frozen.number
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
        candidate = self.candidate(optuna.Trial(self.study, trial_id))
        candidate.reported = dict(frozen.intermediate_values)
        return candidate

    def ran(self) -> list[FrozenTrial]:
        """The trials that have ended and were not refused."""
        return [trial for trial in self.trials if REFUSED not in trial.user_attrs]

    def completed(self) -> list[FrozenTrial]:
        """The trials that have ended well, the best first."""
        done = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        return sorted(done, key=lambda trial: -trial.values[0])

    def winner(self) -> FrozenTrial | None:
        """The best trial, if it is better than the command's own flags."""
        if not (self.completed() and self.defaults.finished):
            return None
        best = self.completed()[0]
        return best if best.values[0] > self.judge.value(self.defaults) else None

    def next(self) -> Candidate | None:
        """What to run next; None if there is nothing."""
        if self.given_up:
            return None
        if self.waiting:
            return self.waiting.pop(0)
        if self.exhausted or len(self.ran()) + self.open >= self.args.trials:
            return None
        for _ in range(DRAWS):
            trial = self.study.ask(self.space)
            drawn = tuple(flags(trial.params))
            if drawn not in self.drawn:
                self.drawn.add(drawn)
                self.open += 1
                return self.candidate(trial)
            trial.set_user_attr(DOUBLE, True)
            self.study.tell(trial, state=TrialState.FAIL)
        self.exhausted = True
        return None

    def supervise(self, candidate: Candidate) -> None:
        """Read how a running candidate does, and end it if it is behind or takes too long."""
        now = time.monotonic()
        if candidate.ending < math.inf:
            candidate.end()
            return
        if now - candidate.began > 60 * self.args.minutes:
            candidate.reason = f"{candidate.task.name}: no end after {self.args.minutes:g} minutes"
            candidate.end()
        elif now > candidate.look_again:
            candidate.look_again = now + 1
            self.judge.look(candidate)
            if self.is_behind(candidate):
                candidate.end()

    def is_behind(self, candidate: Candidate) -> bool:
        """Whether a trial is to end early; then it is marked so.

        The score at its last place, or a better one that it had before in the same run, is compared
        with what the trials that have ended well had at that place. Optuna's pruners take the best
        of all places: that of a good first run would hide a second one that fails.
        """
        place = max(candidate.reported, default=0)
        if candidate.trial is None or not self.args.prune_below or place <= WARM_UP:
            return candidate.pruned
        reported = [trial.intermediate_values for trial in self.completed()]
        others = [values[place] for values in reported if place in values]
        if len(others) < STARTUP:
            return candidate.pruned
        run_began = PLACES * ((place - 1) // PLACES)
        best = max(score for at, score in candidate.reported.items() if at > run_began)
        candidate.pruned = best < float(np.percentile(others, self.args.prune_below))
        return candidate.pruned

    def goes_on(self, candidate: Candidate, result: Result) -> bool:
        """Note how a run of a candidate ended; returns whether its next run is to start."""
        task = candidate.task
        if candidate.reason or candidate.pruned or result.outcome == "stopped":
            return False
        if result.outcome == "left out":  # the script is another one: what is left is as stopped
            self.given_up = result.reason
            return False
        if result.outcome == "failed":
            candidate.refused = result.reason == REFUSAL
            candidate.reason = f"{task.name}: {result.reason}: {last_words(task)}"
            return False
        score = self.judge.look(candidate, over=True)
        if math.isnan(score):
            candidate.reason = f"{task.name}: no episode ended"
            return False
        candidate.scores[task] = score
        return not candidate.finished and not self.is_behind(candidate)

    def conclude(self, candidate: Candidate) -> None:
        """Record how a candidate ended; one that was stopped is left for the next call."""
        if candidate.trial is None:
            if candidate.reason:
                self.given_up = f"{candidate.name}: {candidate.reason}"
            return
        self.open -= 1
        if candidate.outcome == "stopped":
            return
        for task, score in candidate.scores.items():
            candidate.trial.set_user_attr(task.name, score)
        self.in_a_row = self.in_a_row + 1 if candidate.reason else 0
        if self.in_a_row >= PATIENCE:
            self.given_up = f"{PATIENCE} trials in a row did not run, the last: {candidate.reason}"
        if candidate.refused and UNKNOWN_FLAG in candidate.reason.lower():
            self.given_up = candidate.reason  # all trials have this flag
        result: dict[str, Any] = {"values": self.judge.value(candidate)}
        if candidate.refused:
            # Without a value and without reports it counts as worse than all others.
            candidate.trial.set_user_attr(REFUSED, candidate.reason)
            result = {"state": TrialState.PRUNED}
        elif candidate.reason:
            candidate.trial.set_user_attr("reason", candidate.reason)
            result = {"state": TrialState.FAIL}
        elif candidate.pruned:
            result = {"state": TrialState.PRUNED}
        self.trials.append(self.study.tell(candidate.trial, **result))


class Table(Progress):
    """The live table: the running candidates, and below them the best trials."""

    def __init__(self, search: Search):
        super().__init__([])
        self.search = search
        self.running: dict[Task, Candidate] = {}

    def summary(self) -> str:
        """One line: how many trials there are, how they ended, and the best score."""
        count = {state: 0 for state in TrialState}
        for trial in self.search.ran():
            count[trial.state] += 1
        ended = f"{len(self.search.ran())} of {self.search.args.trials} trials"
        parts = [
            f"{count[TrialState.COMPLETE]} done",
            f"{count[TrialState.PRUNED]} ended early",
            f"{count[TrialState.FAIL]} failed",
        ]
        if refused := len(self.search.trials) - len(self.search.ran()):
            parts.append(f"{refused} refused besides")
        if self.search.defaults.finished:
            parts.append(f"defaults {self.search.judge.value(self.search.defaults):.3f}")
        for best in self.search.completed()[:1]:
            parts.append(f"best {best.values[0]:.3f}")
        return f"{ended}: {', '.join(parts)}, {clock(time.monotonic() - self.started)}"

    def state(self, task: Task) -> str:
        """Where a running candidate is, and what it is worth so far."""
        candidate = self.running[task]
        score = "  -  " if math.isnan(candidate.current) else f"{candidate.current:.3f}"
        return f"{candidate.name:10} {score}  {super().state(task)}  {short(candidate.params)}"

    def ranking(self) -> list[str]:
        """The best trials."""
        best = self.search.completed()[:SHOWN]
        lines = [f"trial {t.number:<4} {t.values[0]:.3f}  {short(t.params)}" for t in best]
        return ["best so far:", *lines] if lines else []

    def say_ended(self, candidate: Candidate) -> None:
        """A line that stays: how a candidate ended."""
        if candidate.outcome == "stopped":
            return
        score = f"{candidate.current:.3f}" if not math.isnan(candidate.current) else "  -  "
        line = f"{candidate.outcome:11} {candidate.name:10} {score}  {short(candidate.params)}"
        if candidate.reason:
            line += f"\n            {candidate.reason}"
        self.say(line.rstrip(), error=candidate.outcome == "FAILED")


def short(params: dict[str, Any]) -> str:
    """Parameters in a table."""
    return " ".join(flags(params)).replace("--", "")


def work(search: Search, signals: Signals, workers: int, table: Table) -> None:
    """Run what the search has next, `workers` candidates at a time, until nothing is left."""
    running: dict[Future[Result], Candidate] = {}

    with ThreadPoolExecutor(workers) as pool:

        def start(candidate: Candidate) -> None:
            task = candidate.task
            candidate.began = table.since[task] = time.monotonic()
            candidate.look_again = 0.0
            table.running[task] = candidate
            running[pool.submit(run_when_free, task, candidate.children)] = candidate

        while True:
            while len(running) < workers and not signals.received:
                candidate = search.next()
                if candidate is None:
                    break
                start(candidate)
            if not running:
                return
            finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                candidate = running.pop(future)
                if search.goes_on(candidate, run.outcome(future)) and not signals.received:
                    start(candidate)
                else:
                    search.conclude(candidate)
                    table.say_ended(candidate)
            if demand := signals.demand():
                signum = signals.received[0]
                # A training script knows how to stop on SIGTERM; a lost terminal is news to it.
                forwarded = signum if signum == signal.SIGINT else signal.SIGTERM
                for candidate in running.values():
                    candidate.children.stop(forwarded, kill=demand == "kill")
                if demand == "save":
                    table.say("stopping: the runs save what they have; again to kill them")
            if not signals.received:
                for candidate in running.values():
                    search.supervise(candidate)
            table.draw([candidate.task for candidate in running.values()])
