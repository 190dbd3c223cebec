"""Weights & Biases in offline mode, TensorBoard, and films."""

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import (
    SCRIPT,
    CommandRun,
    checkpoint,
    curve,
    resume_command,
    train_command,
)
from helpers.in_process import load_script, train
from moviepy import VideoFileClip
from wandb.proto.wandb_internal_pb2 import Record


def records(file: Path) -> Iterator[Any]:
    """Records of a .wandb file, which is a LevelDB log: blocks of 32 KiB that hold chunks."""
    data, at, whole = file.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:  # too little for a chunk's header
            at += left
            continue
        _checksum, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last chunk of one
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> CommandRun:
    """A short run with everything that can be recorded."""
    return train_command(
        *("--track", "--capture-video", "--video-every", 8, "--wandb-project-name", "a-project"),
        *("--total-timesteps", 2048, "--eval-episodes", 2),
        *("--wandb-entity", "a-team"),
        *("--exp-name", "a:name"),  # W&B wants no colons, which --env-id module:Env-v0 has, too
        cwd=tmp_path_factory.mktemp("tracked"),
        WANDB_MODE="offline",
    )


@pytest.fixture(scope="module")
def wandb_folder(tracked: CommandRun) -> Path:
    """Where Weights & Biases keeps what it will upload: in the run's folder or beside it."""
    (file,) = tracked.folder.parent.parent.rglob("*.wandb")
    return file.parent


@pytest.fixture(scope="module")
def logged(wandb_folder: Path) -> dict[str, list[Any]]:
    """What Weights & Biases was told: of every setting, metric and film each value in turn."""
    (file,) = wandb_folder.glob("*.wandb")
    values: dict[str, list[Any]] = {}
    for record in records(file):
        row = {"/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
        row |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.HasField("run"):
            row |= {"project": record.run.project, "name": record.run.display_name}
            row |= {"entity": record.run.entity, "id": record.run.run_id}
        for key, value in row.items():
            values.setdefault(key, []).append(value)
            values.setdefault(f"step of {key}", []).append(row.get("global_step"))
    return values


def test_offline_run_has_name_and_configuration(
    tracked: CommandRun, logged: dict[str, list[Any]]
) -> None:
    assert logged["project"] == ["a-project"]
    assert logged["entity"] == ["a-team"]
    assert logged["name"] == logged["id"] == [tracked.folder.name]
    args = checkpoint(tracked.folder)["args"]
    assert {name: logged[name][-1] for name in args} == args


@pytest.mark.parametrize("name", [SCRIPT.name, "args.json"])
def test_offline_run_has_what_made_it(name: str, tracked: CommandRun, wandb_folder: Path) -> None:
    sent = wandb_folder / "files" / name
    assert sent.read_bytes() == (tracked.folder / name).read_bytes()


def test_a_resumed_run_goes_on_in_the_same_one(tracked: CommandRun, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tracked.folder, tmp_path / "runs" / tracked.folder.name))
    flags = ("--total-timesteps", 2560, "--eval-episodes", 0)
    resume_command(folder, *flags, cwd=tmp_path, WANDB_MODE="offline")
    (file,) = tmp_path.rglob("*.wandb")
    started = [record.run for record in records(file) if record.HasField("run")]
    assert {(run.run_id, run.entity, run.project) for run in started} == {
        (folder.name, "a-team", "a-project")
    }


@pytest.mark.parametrize(
    "tag", ["charts/episodic_return", "charts/learning_rate", "losses/value_loss", "charts/SPS"]
)
def test_offline_run_has_the_curves(
    tag: str, tracked: CommandRun, logged: dict[str, list[Any]]
) -> None:
    points = curve(tracked.folder, tag)
    sent = list(zip(logged[f"step of {tag}"], logged[tag], strict=True))
    assert {step for step, _ in sent} == {step for step, _ in points}
    assert {(step, np.float32(value)) for step, value in sent} <= {
        (step, np.float32(value)) for step, value in points
    }
    # Weights & Biases keeps one value for each step, and gets none of them twice.
    assert 1 < len(sent) == len({step for step, _ in points})


def test_offline_run_has_the_films(
    tracked: CommandRun, wandb_folder: Path, logged: dict[str, list[Any]]
) -> None:
    made = [
        path
        for path in tracked.folder.glob("videos/*/*.mp4")
        if "evaluation" not in path.parent.name
    ]
    assert set(logged["videos/_type"]) == {"video-file"}
    sent = [wandb_folder / "files" / path for path in logged["videos/path"]]
    assert len(made) > 1
    assert {path.read_bytes() for path in sent} >= {path.read_bytes() for path in made}


def test_tensorboard_has_the_evaluation(tracked: CommandRun) -> None:
    """The other metrics are those of tests/algorithms/test_ppo.py."""
    assert [step for step, _ in curve(tracked.folder, "eval/episodic_return")] == [2048]


def test_films_can_be_played(tracked: CommandRun) -> None:
    films = sorted(tracked.folder.glob("videos/*/*.mp4"))
    of_the_evaluation = [path for path in films if path.parent.name.startswith("evaluation-")]
    assert 0 < len(of_the_evaluation) < len(films)
    for film in films:
        with VideoFileClip(str(film)) as clip:
            frames = list(clip.iter_frames())
        assert len(frames) > 5  # and no film of the one frame after the last episode
        assert frames[0].shape == (400, 600, 3)
        assert any(np.any(frame != frames[0]) for frame in frames)


@pytest.mark.slow("films")
def test_long_episodes_are_filmed_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their frames would fill the memory."""
    script = load_script("ppo.py")
    monkeypatch.setattr(script, "LONGEST_FILM", 12)
    flags = {"num_envs": 2, "num_steps": 64, "total_timesteps": 256}
    run = train(script, tmp_path, **flags, capture_video=True, video_every=1)
    films = list(run.folder.glob("videos/*/*.mp4"))
    counts = []
    for film in films:
        with VideoFileClip(str(film)) as clip:
            counts.append(clip.n_frames)
    assert len(films) >= 4
    assert abs(max(counts) - 12) <= 1


def test_every_nth_episode_is_filmed(tracked: CommandRun) -> None:
    names = [path.stem for path in tracked.folder.glob("videos/from-step-0/*.mp4")]
    episodes = sorted(int(name.rsplit("-", 1)[1]) for name in names)
    assert episodes == list(range(0, episodes[-1] + 1, 8))
    assert len(episodes) > 1
