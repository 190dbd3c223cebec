"""Run folders with event files of chosen episodes, as the scripts leave them behind."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

NOON = 1_790_000_000.0  # some wall-clock time


def make_run(
    runs_dir: Path,
    env_id: str,
    seed: int,
    parts: list[dict],
    finished: bool = True,
    name: str = "ppo",
    ended: str = "20261120-120000",
    tag: str = "charts/episodic_return",
) -> Path:
    """A run folder with one event file for each part: start (s), purge_step, episodes, last step.

    An episode is (step, seconds since the part's start, return); several that share a point have
    their number behind it.
    """
    folder = runs_dir / f"{env_id.replace('/', '-')}__{name}__{seed}__{ended}"
    folder.mkdir(parents=True)
    facts = {
        "script": f"{name.partition('-')[0]}.py",
        "argv": ["--env-id", env_id, "--seed", str(seed)],
        "args": {"env_id": env_id, "seed": seed, "gamma": 0.99},
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "hardware": "cpu",
    }
    (folder / "args.json").write_text(json.dumps(facts))
    (folder / "checkpoint.pt").touch()
    if finished:
        (folder / "agent.pt").touch()
    for number, part in enumerate(parts):
        begin = NOON + part["start"]
        with pytest.MonkeyPatch.context() as patch:  # the file's first event has the time of day
            patch.setattr(time, "time", lambda begin=begin: begin)
            writer = SummaryWriter(
                str(folder), purge_step=part.get("purge_step"), filename_suffix=f".{number}"
            )
        for step, seconds, value, *count in part["episodes"]:
            values = [Summary.Value(tag=tag, simple_value=value)]
            values += [Summary.Value(tag="charts/episodes", simple_value=x) for x in count]
            summary = Summary(value=values)
            writer.file_writer.add_summary(summary, step, walltime=begin + seconds)
        step, seconds = part["last"]
        writer.add_scalar("charts/SPS", 100.0, step, walltime=begin + seconds)
        writer.close()
    return folder


def episodes(values: np.ndarray, step: int = 10) -> list[tuple[int, float, float]]:
    return [(step * (i + 1), 0.6 * (i + 1), float(value)) for i, value in enumerate(values)]


def make_group(
    folder: Path, scores: dict[str, list[float]], name: str = "ppo", steps: int = 100
) -> Path:
    """Finished runs with these scores by environment, a seed for each."""
    for env_id, values in scores.items():
        for seed, value in enumerate(values, 1):
            part = {"start": 0, "episodes": episodes(np.full(10, value)), "last": (steps, 9.0)}
            make_run(folder, env_id, seed, [part], name=name)
    return folder
