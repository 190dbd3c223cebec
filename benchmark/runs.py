"""What finished runs left behind: the only reader of run folders, ours and other programs'."""

import hashlib
import json
import math
import re
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from common import warn
from run import OWN_FLAGS
from scripts import SCRIPTS
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.util import tensor_util

WINDOW = 100  # episodes in a rolling mean, and in a final score
RETURN = "charts/episodic_return"
# What other programs call it: CleanRL's scripts in JAX log the mean of each game's last episode,
# Stable-Baselines3 that of the last hundred episodes.
RETURNS = (RETURN, "charts/avg_episodic_return", "rollout/ep_rew_mean")
EPISODES = "charts/episodes"  # beside a metric: how many episodes the point is the mean of
TRAINING = ("charts/", "losses/")  # names of what is logged in training, not in an evaluation
IGNORED_SETTINGS = {"seed", "runs_dir", "resume"}  # runs that differ in these belong together
CURVE_POINTS = 200  # of a learning curve whose mean is taken
HASH_DIGITS = 12  # of a script's SHA-256, as sha256sum prints it; enough to tell versions apart
# What may matter to a score, where the script's header names it; args.json has all versions.
MATTER = ["python", "torch", "jax", "flax", "optax", "numpy", "gymnasium", "ale-py", "envpool"]
MATTER += ["gymnax", "mujoco", "playground", "pettingzoo", "procgen-mirror"]
SAME_STEPS = 0.02  # relative difference up to which runs count as equally long
WHOLE = 0.9  # share of its steps that the event files of a finished run have at least
# Why runs are left out.
NO_EPISODE, UNFINISHED, DAMAGED = "no episode ended", "not finished", "damaged event files"
DIVERGED = "diverged"
# Environment, name and seed in the name of another program's run folder. Behind them CleanRL puts
# the time; tensorboard_log of Stable-Baselines3 appends _1, _2, ...
OTHER_NAME = re.compile(r"(.+?)__(.+?)__(\d+)_[^/]+")
Axis = Literal["steps", "minutes"]


class Episode(NamedTuple):
    """An episode of the training, or one of several that share a point: their mean."""

    step: int  # of the environments, when it ended
    minutes: float  # of training until then
    score: float  # its return, or what the script is measured by


@dataclass
class Events:
    """What the event files of a run say."""

    episodes: list[Episode] = field(default_factory=list)
    last_step: int = 0
    minutes: float = 0.0  # of training; pauses between resumptions do not count
    started: float = 0.0  # seconds since the epoch, of the first event


@dataclass(frozen=True)
class Provenance:
    """What is needed to do a run again; '' where it was not recorded."""

    script_hash: str = ""  # first digits of the SHA-256 of the script's copy in the run folder
    flags: str = ""  # of the command, less those that each run has of its own
    processes: int = 1  # that trained together, by torchrun
    versions: str = ""  # "python 3.11.7 gymnasium 1.4.0 ..."
    hardware: str = ""
    commit: str = ""  # that brought this version of the script; '' for one that was edited

    @property
    def made_with(self) -> str:
        """Versions and hardware."""
        versions = self.versions or "packages that were not recorded"
        return f"{versions} on {self.hardware or 'hardware that was not recorded'}"


@dataclass
class Run:
    """What a finished run left behind. steps, minutes, scores: (episodes,)."""

    folder: Path
    script: str
    env_id: str
    seed: int
    settings: dict[str, Any]
    provenance: Provenance
    steps: np.ndarray  # environment steps when the episode ended
    minutes: np.ndarray  # of training until then; pauses between resumptions do not count
    scores: np.ndarray  # of the episodes: returns, or what the script is measured by
    total_steps: int
    total_minutes: float
    window: int = WINDOW  # how many of the last scores are averaged

    @property
    def name(self) -> str:
        """What the reader of a remark is told."""
        return f"{self.env_id} seed {self.seed}"

    @property
    def score(self) -> float:
        """Mean score of the last episodes."""
        return float(self.scores[-self.window :].mean())

    def score_after(self, steps: float) -> float:
        """Mean score of the last episodes that had ended by then; NaN if none had.

        A run that is about as long is scored at its own end. Where each point is a mean already,
        with many steps between two of them, the nearest point is the score.
        """
        before = self.scores[self.steps <= steps]
        if not len(before):
            return np.nan
        if abs(self.total_steps - steps) <= SAME_STEPS * steps:
            return self.score
        if self.window == 1:
            return float(self.scores[np.abs(self.steps - steps).argmin()])
        return float(before[-self.window :].mean())

    @property
    def training_mean(self) -> float:
        """Mean of the learning curve, the area under it as a score: learning late lowers it.

        Before the first episode ended, its score counts.
        """
        grid = np.linspace(0, self.total_steps, CURVE_POINTS + 1)[1:]
        curve = self.curve("steps", grid)
        return float(np.where(np.isnan(curve), self.scores[0], curve).mean())

    def total(self, over: Axis) -> float:
        """How many steps or minutes the run took."""
        return self.total_steps if over == "steps" else self.total_minutes

    def curve(self, over: Axis, grid: np.ndarray) -> np.ndarray:
        """Rolling mean of the scores at points of an axis, (points,) -> (points,)."""
        x = self.steps if over == "steps" else self.minutes
        return value_at(grid, x, rolling_mean(self.scores, self.window))


def read_part(path: Path, metric: str, events: Events) -> None:
    """Add an event file to what the earlier files of the run have said.

    What they wrote after the checkpoint that this part started from is dropped: that is what
    `SummaryWriter(purge_step=...)` asks of readers.
    """
    minutes_before = events.minutes
    part_started = None
    for event in EventFileLoader(str(path)).Load():
        if part_started is None:
            part_started = event.wall_time
            events.started = events.started or part_started
        if event.HasField("session_log") and event.session_log.status == SessionLog.START:
            events.episodes = [one for one in events.episodes if one.step < event.step]
            events.last_step = min(events.last_step, event.step - 1)
        minutes = minutes_before + (event.wall_time - part_started) / 60
        numbers = {}
        for value in event.summary.value:
            if value.tag == metric or value.tag.startswith(TRAINING):
                events.last_step = max(events.last_step, event.step)
                events.minutes = minutes
            if value.tag in (metric, EPISODES):
                numbers[value.tag] = float(tensor_util.make_ndarray(value.tensor))
        if metric in numbers:
            episode = Episode(event.step, minutes, numbers[metric])
            events.episodes += [episode] * int(numbers.get(EPISODES, 1))


def read_events(folder: Path, metric: str = RETURN) -> Events:
    """What the event files of a run say; a resumed run has one for each of its parts."""
    events = Events()
    for path in sorted(folder.glob("events.out.tfevents.*")):
        read_part(path, metric, events)
    return events


def parts_of(folder: Path, facts: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Folder and args.json of a run's start, then those of each time that it was resumed."""
    parts = [(folder, facts)]
    for file in folder.glob("resumed_at_*/args.json"):
        parts.append((file.parent, json.loads(file.read_text())))
    return sorted(parts, key=lambda part: int(part[0].name.partition("resumed_at_")[2] or 0))


def flags_of(argv: Iterable[str]) -> dict[str, list[str]]:
    """The words of each flag by its name; of a flag that is given twice the last ones."""
    name = ""
    flags: dict[str, list[str]] = {name: []}  # words before the first flag
    for word in argv:
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-").replace("--no-", "--")
            flags[name] = []
        flags[name].append(word)
    return flags


def in_turn(texts: Iterable[str]) -> str:
    """The different ones among the texts, in their order; usually there is only one."""
    return " then ".join(dict.fromkeys(texts))


def hash_of(script: Path) -> str:
    """First digits of the SHA-256 of a script; empty if there is none."""
    if not script.is_file():
        return ""
    return hashlib.sha256(script.read_bytes()).hexdigest()[:HASH_DIGITS]


def commit_of(script: Path) -> str:
    """The commit that brought these bytes of a script into this repository; empty if none did."""
    if not script.is_file():
        return ""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        words = [*git, "hash-object", str(script.resolve())]
        blob = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        words = [*git, "log", "--format=%h", f"--find-object={blob}"]
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return ""
    return found[-1] if found else ""


def packages_of(script: Path, installed: dict[str, str]) -> str:
    """The versions of the packages that a script is for."""
    header = script.read_text().partition('"""')[0] if script.is_file() else ""
    named = [name for name in MATTER if name in header] or MATTER
    installed = {name.replace("_", "-"): version for name, version in installed.items()}
    return " ".join(f"{name} {installed[name].split()[0]}" for name in named if name in installed)


def read_provenance(folder: Path, facts: dict[str, Any]) -> Provenance:
    """How the run in a folder with the given args.json was made, all of its parts."""
    parts = [(where / part["script"], part) for where, part in parts_of(folder, facts)]
    flags: dict[str, list[str]] = {}
    for _, part in parts:
        flags |= flags_of(part.get("argv", []))  # resumed with others: the last ones count
    words = [word for name, words in flags.items() if name not in OWN_FLAGS for word in words]
    return Provenance(
        script_hash=in_turn(hash_of(script) for script, _ in parts),
        flags=shlex.join(words),
        processes=int(facts.get("processes", 1)),
        versions=in_turn(packages_of(script, part["versions"]) for script, part in parts),
        hardware=in_turn(part.get("hardware", "") for _, part in parts),
        commit=in_turn(commit_of(script) for script, _ in parts),
    )


def metric_of(script: str) -> str:
    """What a script is measured by, or CleanRL's of that name."""
    row = SCRIPTS.get(f"{Path(script).stem}.py")
    return row.metric if row else RETURN


def window_of(metric: str) -> int:
    """How many of a metric's last points are a score: one if each is a mean of episodes already."""
    return 1 if metric.endswith("_mean") else WINDOW


def read_run(folder: Path, facts: dict[str, Any], metric: str | None = None) -> Run:
    """The run in a folder with the given args.json; its scores are the metric, or the script's."""
    metric = metric or metric_of(facts["script"])
    events = read_events(folder, metric)
    steps, minutes, scores = np.array(events.episodes, float).reshape(-1, 3).T
    last_facts = parts_of(folder, facts)[-1][1]
    return Run(
        folder=folder,
        script=facts["script"],
        env_id=facts["args"]["env_id"],
        seed=facts["args"]["seed"],
        settings={k: v for k, v in last_facts["args"].items() if k not in IGNORED_SETTINGS},
        provenance=read_provenance(folder, facts),
        steps=steps,
        minutes=minutes,
        scores=scores,
        total_steps=events.last_step,
        total_minutes=events.minutes,
        window=window_of(metric),
    )


def start_time(folder: Path) -> tuple[str, str]:
    """Sorts run folders, <env_id>__<exp_name>__<seed>__<time>, by their time; 9 is before 10."""
    time = folder.name.rpartition("__")[2]
    return re.sub(r"\d+", lambda number: number[0].zfill(20), time), folder.name


class RunKey(NamedTuple):
    """Of the runs that agree in this the newest one counts."""

    script: str
    env_id: str
    seed: int


@dataclass
class Found:
    """What is in a folder of runs."""

    runs: dict[RunKey, Run] = field(default_factory=dict)  # finished ones
    left_out: dict[RunKey, str] = field(default_factory=dict)  # why others are not among them

    def add(self, key: RunKey, run: Run) -> None:
        """A finished run; it is newer than those before."""
        if key in self.runs:
            warn(f"{self.runs[key].folder} is left out: {run.folder.name} is newer")
        self.runs[key] = run

    def leave_out(self, key: RunKey, folder: Path, why: str) -> None:
        """A run without a score. An older one is left out as well: the newest counts."""
        older = self.runs.pop(key, None)
        warn(f"{folder} is left out: {why}{'; older runs do not count' if older else ''}")
        self.left_out[key] = why

    @property
    def lost(self) -> dict[RunKey, str]:
        """Runs that were left out and not made again, of the scripts that have runs."""
        scripts = {key.script for key in self.runs}
        return {
            key: why
            for key, why in self.left_out.items()
            if key not in self.runs and (key.script in scripts or not scripts)
        }


def steps_missing(run: Run) -> str:
    """'its event files end after 5,060 of 20,000 steps'; empty if they have all of a finished run.

    A run ends with the last whole rollout that its steps have room for.
    """
    names = ("num_envs", "num_steps")
    rollout = run.provenance.processes * math.prod(run.settings.get(name, 0) for name in names)
    wanted = run.settings.get("total_timesteps", 0)
    if run.total_steps >= min(WHOLE * wanted, wanted - rollout):
        return ""
    return f"its event files end after {run.total_steps:,} of {wanted:,} steps"


def read_folder(folder: Path, metric: str | None, found: Found) -> None:
    """Add a run of ours to what was found before; warns if it is left out.

    Raises OSError, ValueError, KeyError or TypeError if its args.json cannot be opened or read.
    """
    facts = json.loads((folder / "args.json").read_text())
    key = RunKey(facts["script"], facts["args"]["env_id"], facts["args"]["seed"])
    if facts["args"].get("num_seeds", 1) > 1:
        warn(f"{folder} is left out: it has one curve for all its seeds; see run.py")
        return
    if not (folder / "agent.pt").exists():
        found.leave_out(key, folder, DIVERGED if (folder / "diverged").exists() else UNFINISHED)
        return
    try:
        run = read_run(folder, facts, metric)
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.leave_out(key, folder, f"cannot be read: {error!r}")
        return
    if missing := steps_missing(run):
        warn(f"{folder}: {missing}")
        found.leave_out(key, folder, DAMAGED)
    elif not len(run.scores):
        why = NO_EPISODE if metric in (None, RETURN) else f"{metric} was not logged"
        found.leave_out(key, folder, why)
    else:
        found.add(key, run)


def read_other_folder(folder: Path, name: re.Match[str], metric: str, found: Found) -> None:
    """Add a run of another program to what was found before. name: matches OTHER_NAME."""
    key = RunKey(name[2], name[1], int(name[3]))
    args = {"env_id": key.env_id, "seed": key.seed}
    facts = {"script": key.script, "args": args, "versions": {}}
    for tag in RETURNS if metric == RETURN else (metric,):
        run = read_run(folder, facts, tag)
        if len(run.scores):
            found.add(key, run)
            return
    found.leave_out(key, folder, f"{metric} was not logged")


def find_runs(folder: Path, metric: str | None = None, pattern: str = "*") -> Found:
    """The runs in a folder whose folders match a pattern; warns of those that are left out.

    Ours, if there is one; else another program's, whatever has logged the metric into folders
    called <env_id>__<name>__<seed>__<time>, as CleanRL's, or <env_id>__<name>__<seed>_<number>, as
    Stable-Baselines3's. (An environment's id may have a slash, which makes two folders of it.)
    """
    found = Found()
    own = [file.parent for file in folder.glob(f"{pattern}/args.json")]
    # A run that was resumed has more of these files in folders of its own.
    own = [path for path in own if not path.name.startswith("resumed_at_")]
    for path in sorted(own, key=start_time):
        try:
            read_folder(path, metric, found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            warn(f"{path} is left out: cannot be read: {error!r}")
    others = {file.parent for file in folder.rglob("events.out.tfevents.*")}
    for path in sorted(others, key=start_time):
        text = path.relative_to(folder).as_posix()
        name = OTHER_NAME.fullmatch(text)
        ours = (path / "args.json").exists()  # in a folder of the folder
        ours = ours or "wandb" in text.split("/")  # copies of W&B's
        if not name or ours or not fnmatchcase(text, pattern):
            continue
        if own:
            warn(f"{path} is left out: another program's run; give those a folder of their own")
        else:
            read_other_folder(path, name, metric or metric_of(name[2]), found)
    return found


def remarks_on(found: Found) -> list[str]:
    """All that the reader of the results has to be told of the runs."""
    remarks = []
    for key, why in sorted(found.lost.items()):
        remarks.append(f"Left out, {why}: {key.env_id} seed {key.seed}.")
    for env_id, group in runs_by_env(found).items():
        for run in group:
            if len(run.scores) < run.window:
                remarks.append(f"{run.name} has only {len(run.scores)} episodes.")
        names = {name for run in group for name in run.settings}
        different = [n for n in sorted(names) if len({str(r.settings.get(n)) for r in group}) > 1]
        if different:
            remarks.append(f"The runs of {env_id} differ in {', '.join(different)}.")
        versions = {run.provenance.script_hash for run in group}
        if len(versions) > 1:
            remarks.append(f"The runs of {env_id} are of {len(versions)} versions of the script.")
    return remarks


def runs_by_env(found: Found) -> dict[str, list[Run]]:
    """Finished runs by environment, those of an environment by seed."""
    by_env: dict[str, list[Run]] = {key.env_id: [] for key in found.runs}
    for run in sorted(found.runs.values(), key=lambda run: run.seed):
        by_env[run.env_id].append(run)
    return by_env


def score_table(runs: Iterable[Run]) -> pd.DataFrame:
    """A row for each run: its score, and what rerun.py needs to make it again."""
    rows = []
    for run in runs:
        row = {"env_id": run.env_id, "seed": run.seed, "score": f"{run.score:.2f}"}
        row |= {"steps": run.total_steps, "minutes": f"{run.total_minutes:.2f}"}
        rows.append({**row, "script": run.script, **asdict(run.provenance)})
    return pd.DataFrame(rows)


def rolling_mean(x: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Mean of each entry and up to window - 1 entries before it: (n,) -> (n,)."""
    return pd.Series(x).rolling(window, min_periods=1).mean().to_numpy()


def value_at(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y of the last x that is not beyond each grid point; NaN before the first x: (len(grid),)."""
    last = np.searchsorted(x, grid, side="right") - 1
    return np.where(last >= 0, y[last], np.nan)


def mean_and_std(scores: Iterable[float]) -> str:
    """'mean ± sample standard deviation', without the latter for a single score."""
    values = np.array(list(scores))
    std = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{std}"
