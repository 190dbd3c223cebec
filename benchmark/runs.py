"""What finished runs left behind, read from their folders.

Part of plot.py, compare.py and rerun.py.
"""

import hashlib
import json
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from console import fail, warn
from tasks import OWN_FLAGS, diverged, file_name, without_flags
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.util import tensor_util

WINDOW = 100  # episodes in a rolling mean, and in a final score
RETURN = "charts/episodic_return"
# CleanRL's scripts in JAX log no single episodes, but the mean of each game's last one.
MEAN_RETURN = "charts/avg_episodic_return"
EPISODES = "charts/episodes"  # beside a metric: how many episodes the point is the mean of
# Scripts with another score: in self-play returns sum to zero, and what is published are lengths.
METRICS = {"ppo_pettingzoo_ma_atari.py": "charts/episodic_length-player0"}
TRAINING = ("charts/", "losses/")  # names of what is logged in training, not in an evaluation
IGNORED_SETTINGS = {"seed", "runs_dir", "resume"}  # runs that differ in these belong together
CURVE_POINTS = 200  # of a learning curve whose mean is taken
HASH_DIGITS = 12  # of a script's SHA-256, as sha256sum prints it; enough to tell versions apart
# Packages whose versions may matter to a score; args.json has those of all that are installed.
MATTER = ["python", "torch", "jax", "flax", "optax", "numpy", "gymnasium", "ale-py", "ale_py"]
MATTER += ["envpool", "gymnax", "mujoco", "mujoco-mjx", "mujoco.mjx", "playground"]
MATTER += ["mujoco_playground", "pettingzoo", "procgen", "procgen-mirror"]
SAME_STEPS = 0.02  # relative difference up to which runs count as equally long
MOST_FOLDERS = 3  # that a sentence lists
WHOLE = 0.9  # share of its steps that the event files of a finished run have at least
# What became of runs that are left out, as their remarks say it.
NO_EPISODE, DIVERGED, UNFINISHED = "no episode ended", "diverged", "not finished"
DAMAGED, UNREADABLE = "damaged event files", "cannot be read"
# Names of other programs' run folders; tensorboard_log of Stable-Baselines3 appends _1, _2, ...
OTHER_NAMES = (r"(.+?)__(.+)__(\d+)__.+", r"(.+?)__(.+)__(\d+)_\d+")
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


@dataclass(frozen=True)
class Provenance:
    """What is needed to do a run again; '' where it was not recorded."""

    script_hash: str = ""  # first digits of the SHA-256 of the script's copy in the run folder
    flags: str = ""  # of the command, less those that each run has of its own
    processes: int = 1  # that trained together, by torchrun
    versions: str = ""  # "python 3.11.7 gymnasium 1.4.0 ..."
    hardware: str = ""

    @classmethod
    def columns(cls) -> list[str]:
        """What the files of scores call its fields; their values are those of `astuple`."""
        return [one.name for one in fields(cls)]

    @property
    def made_with(self) -> str:
        """Versions and hardware."""
        return f"{self.versions} on {self.hardware or 'hardware that was not recorded'}"


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

    def mean_score(self, steps: int) -> float:
        """Mean of the learning curve from the start to a step, the area under it as a score.

        After the end of the run, and before its first episode ended, the nearest score counts.
        """
        grid = np.linspace(0, steps, CURVE_POINTS + 1)[1:]
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
        with suppress(ValueError):  # one that was not written to its end: nothing was done with it
            parts.append((file.parent, json.loads(file.read_text())))
    return sorted(parts, key=lambda part: int(part[0].name.partition("resumed_at_")[2] or 0))


def in_turn(texts: Iterable[str]) -> str:
    """The different ones among the texts, in their order; usually there is only one."""
    return " then ".join(dict.fromkeys(texts))


def hash_of(script: Path) -> str:
    """First digits of the SHA-256 of a script; empty if there is none."""
    if not script.is_file():
        return ""
    return hashlib.sha256(script.read_bytes()).hexdigest()[:HASH_DIGITS]


def read_provenance(folder: Path, facts: dict[str, Any]) -> Provenance:
    """How the run in a folder with the given args.json was made, all of its parts."""
    parts = parts_of(folder, facts)
    versions = []
    flags = [without_flags(facts.get("argv", []), OWN_FLAGS)]
    for _, part in parts:
        installed = part["versions"]
        known = [name for name in MATTER if name in installed]
        versions.append(" ".join(f"{name} {installed[name].split()[0]}" for name in known))
        more = without_flags(part.get("argv", []), OWN_FLAGS)
        if more and more not in flags:
            flags.append(more)  # given when it was resumed; later ones count
    return Provenance(
        script_hash=in_turn(hash_of(where / part["script"]) for where, part in parts),
        flags=shlex.join(word for words in flags for word in words),
        processes=int(facts.get("processes", 1)),
        versions=in_turn(versions),
        hardware=in_turn(part.get("hardware", "") for _, part in parts),
    )


def window_of(metric: str) -> int:
    """How many of a metric's last points are a score: one if each is a mean of episodes already."""
    return 1 if metric.endswith("_mean") else WINDOW


def read_run(folder: Path, facts: dict[str, Any], metric: str | None = None) -> Run:
    """The run in a folder with the given args.json; its scores are the metric, or the script's."""
    metric = metric or METRICS.get(facts["script"], RETURN)
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


def parse_name(name: str) -> re.Match[str] | None:
    """Environment, name and seed in the name of another program's run folder, if it has them."""
    cleanrl, sb3 = OTHER_NAMES
    return re.fullmatch(cleanrl, name) or re.fullmatch(sb3, name)


class RunKey(NamedTuple):
    """Of the runs that agree in this the newest one counts."""

    script: str
    env_id: str
    seed: int


@dataclass
class Found:
    """What is in a folder of runs."""

    runs: dict[RunKey, Run] = field(default_factory=dict)  # finished ones
    left_out: dict[RunKey, str] = field(default_factory=dict)  # what became of the others

    @property
    def lost(self) -> dict[RunKey, str]:
        """Runs that were left out and not made again.

        What other scripts left is not of interest, once there are runs of one. Where the script is
        unknown, so is how the environment is written.
        """
        scripts = {key.script for key in self.runs}
        finished = {(key.env_id, key.seed) for key in self.runs}
        env_ids = {file_name(key.env_id): key.env_id for key in self.runs}
        lost = {}
        for key, why in self.left_out.items():
            if not key.script:
                key = key._replace(env_id=env_ids.get(key.env_id, key.env_id))
            elif scripts and key.script not in scripts:
                continue
            if (key.env_id, key.seed) not in finished:
                lost[key] = why
        return lost


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


def key_of(folder: Path) -> RunKey | None:
    """What the name of a run folder tells of a run whose args.json cannot be read."""
    name = parse_name(folder.name)
    return RunKey("", name[1], int(name[3])) if name else None


def read_folder(folder: Path, metric: str | None, found: Found) -> None:
    """Add a run to what was found before; warns if it is left out.

    Raises OSError, ValueError, KeyError or TypeError if a file of it cannot be opened or read.
    """
    facts = json.loads((folder / "args.json").read_text())
    key = RunKey(facts["script"], facts["args"]["env_id"], facts["args"]["seed"])
    if not (folder / "agent.pt").exists():
        ended = diverged(folder)
        found.left_out[key] = DIVERGED if ended else UNFINISHED
        warn(f"{folder} is left out: {found.left_out[key]}")
        return
    if facts["args"].get("num_seeds", 1) > 1:
        warn(f"{folder} is left out: it has one curve for all its seeds; see run.py")
        return
    run = read_run(folder, facts, metric)
    missing = steps_missing(run)
    if missing:
        found.left_out[key] = DAMAGED
        warn(f"{folder} is left out: {missing}: damaged")
        return
    if not len(run.scores):
        found.left_out[key] = NO_EPISODE
        if older := found.runs.pop(key, None):
            warn(f"{older.folder} is left out: in the newer {folder.name} no episode ended")
        return
    if key in found.runs:
        warn(f"{found.runs[key].folder} is left out: {folder.name} is newer")
    found.runs[key] = run


def find_runs(runs_dir: Path, metric: str | None = None, pattern: str = "*") -> Found:
    """The runs in a folder whose folders match a pattern; warns of those that are left out."""
    found = Found()
    files = runs_dir.glob(f"{pattern}/args.json")
    for folder in sorted((file.parent for file in files), key=start_time):
        try:
            read_folder(folder, metric, found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            warn(f"{folder} is left out: cannot be read: {error!r}")
            key = key_of(folder)
            if key:
                found.left_out[key] = UNREADABLE
    return found


def remarks_on_missing(found: Found) -> list[str]:
    """What is not in the results, and where they rest on little."""
    remarks = []
    for problem in (NO_EPISODE, DIVERGED, UNFINISHED, DAMAGED, UNREADABLE):
        keys = sorted(key for key, why in found.lost.items() if why == problem)
        if found.runs and keys:
            names = ", ".join(f"{key.env_id} seed {key.seed}" for key in keys)
            remarks.append(f"Left out, {problem}: {names}.")
    if short := [run for run in found.runs.values() if len(run.scores) < run.window]:
        names = ", ".join(f"{run.name} ({len(run.scores)})" for run in short)
        remarks.append(f"Fewer than {WINDOW} episodes, all of them counted: {names}.")
    return remarks


def remarks_on_settings(by_env: dict[str, list[Run]]) -> list[str]:
    """Which runs are averaged though their flags differ."""
    remarks = []
    for env_id, group in by_env.items():
        first = group[0].settings
        names = {name for run in group for name in run.settings}
        flags = {k for k in names for run in group if run.settings.get(k) != first.get(k)}
        if flags:
            remarks.append(f"The runs of {env_id} differ in {', '.join(sorted(flags))}.")
    return remarks


def remarks_on_versions(by_env: dict[str, list[Run]]) -> list[str]:
    """Which runs are averaged though the script was edited between them."""
    remarks = []
    for env_id, group in by_env.items():
        versions = {run.provenance.script_hash for run in group}
        if len(versions) > 1:
            remarks.append(f"The runs of {env_id} are of {len(versions)} versions of the script.")
    return remarks


def remarks_on(found: Found) -> list[str]:
    """All that the reader of the results has to be told of the runs."""
    by_env = runs_by_env(found)
    settings = remarks_on_settings(by_env)
    return [*remarks_on_missing(found), *settings, *remarks_on_versions(by_env)]


def runs_by_env(found: Found) -> dict[str, list[Run]]:
    """Finished runs by environment, those of an environment by seed."""
    by_env: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(found.runs.values(), key=lambda run: run.seed):
        by_env[run.env_id].append(run)
    return {env_id: by_env[env_id] for env_id in dict.fromkeys(key.env_id for key in found.runs)}


def read_runs(runs_dir: Path, metric: str | None = None) -> tuple[dict[str, list[Run]], list[str]]:
    """Finished runs by environment and seed, and what the reader of the results has to be told.

    Their scores are the metric, or what the script is measured by.
    """
    found = find_runs(runs_dir, metric)
    remarks = remarks_on(found)
    for remark in remarks:
        warn(remark)
    return runs_by_env(found), remarks


def other_folders(folder: Path, pattern: str = "*") -> dict[Path, re.Match[str]]:
    """Another program's run folders that match a pattern, the oldest first, with their names.

    A name is what `parse_name` finds in it; folders called otherwise are left out. An environment's
    id may have a slash, which makes two folders of it: the pattern's * stands for slashes, too.
    """
    names = {}
    folders = {file.parent for file in folder.rglob("events.out.tfevents.*")}
    for path in sorted(folders, key=start_time):
        text = path.relative_to(folder).as_posix()
        name = parse_name(text)
        if name and fnmatchcase(text, pattern):
            names[path] = name
    return names


def refuse_own_runs(what: str, folder: Path, pattern: str = "*") -> None:
    """Fails if there are runs of ours among the sub-folders that are taken for another program's.

    Those would count that did not finish, in environments called x/CartPole-v1.
    """
    own = [path for path in other_folders(folder, pattern) if (path / "args.json").exists()]
    if own:
        parents = sorted({str(path.parent) for path in own})
        more = ", ..." if len(parents) > MOST_FOLDERS else ""
        listed = ", ".join(parents[:MOST_FOLDERS])
        fail(f"{what}: runs of ours are in sub-folders: {listed}{more}; name one of them")


def find_other_runs(folder: Path, program: str, metric: str, pattern: str = "*") -> Found:
    """Another program's runs in a folder; fails if they are runs of several algorithms.

    They are in folders called <env_id>__<exp_name>__<seed>__<time>, as CleanRL's, or
    <env_id>__<exp_name>__<seed>_<number>, as Stable-Baselines3's; whatever has logged the metric
    will do. Of two runs of a seed the newer one counts.
    """
    found = Found()
    names = set()
    for path, name in other_folders(folder, pattern).items():
        key = RunKey(program, name[1], int(name[3]))
        args = {"env_id": key.env_id, "seed": key.seed}
        facts = {"script": program, "args": args, "versions": {}}
        run = read_run(path, facts, metric)
        if metric == RETURN and not len(run.scores):
            run = read_run(path, facts, MEAN_RETURN)
            if len(run.scores):
                warn(f"{path} has not logged {RETURN}: {MEAN_RETURN} stands in for it")
        if not len(run.scores):
            warn(f"{path} is left out: it has not logged {metric}")
            found.left_out[key] = NO_EPISODE
            continue
        names.add(name[2])
        if key in found.runs:
            warn(f"{found.runs[key].folder} is left out: {path.name} is newer")
        found.runs[key] = run
    if len(names) > 1:
        fail(f"{program}: runs of {', '.join(sorted(names))} in {folder}; give each its own folder")
    leave_out_cut_off_runs(found)
    return found


def leave_out_cut_off_runs(found: Found) -> None:
    """Keep another program's runs that did a tenth of the steps of an environment's longest.

    Nothing else tells whether such a run was finished.
    """
    for runs in runs_by_env(found).values():
        longest = max(run.total_steps for run in runs)
        for run in runs:
            if 10 * run.total_steps < longest:
                warn(f"{run.folder} is left out: {run.total_steps:,} of {longest:,} steps")
                key = RunKey(run.script, run.env_id, run.seed)
                found.left_out[key] = UNFINISHED
                del found.runs[key]


def rolling_mean(x: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Mean of each entry and up to window - 1 entries before it: (n,) -> (n,)."""
    sums = np.concatenate([[0.0], np.cumsum(x)])
    ends = np.arange(1, len(x) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def value_at(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y of the last x that is not beyond each grid point; NaN before the first x: (len(grid),)."""
    last = np.searchsorted(x, grid, side="right") - 1
    return np.where(last >= 0, y[last], np.nan)


def mean_and_std(scores: Iterable[float]) -> str:
    """'mean ± sample standard deviation', without the latter for a single score."""
    values = np.array(list(scores))
    std = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{std}"


def short_number(x: float) -> str:
    """500000 -> 500k, 1000000 -> 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"
