"""Weights & Biases in offline mode, TensorBoard, and films."""

import json
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wandb
from helpers.command_line import SCRIPT, checkpoint, curve, resume_command, train_command
from helpers.in_process import load_script, record_waiting_signals, train
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


def frames(film: Path) -> list[np.ndarray]:
    """Every frame of a film, as it is played."""
    with VideoFileClip(str(film)) as clip:
        return list(clip.iter_frames())


@pytest.mark.slow("Weights & Biases")
def test_weights_and_biases_gets_everything(tmp_path: Path) -> None:
    """Offline: what would be uploaded. A resumed run goes on under the same name."""
    folder = train_command(
        *("--track", "--wandb-project-name", "a-project", "--wandb-entity", "a-team"),
        *("--capture-video", "--video-every", 8, "--total-timesteps", 2048, "--eval-episodes", 1),
        *("--exp-name", "a:name,b#1"),  # W&B wants no colons, which --env-id module:Env-v0 has, too
        cwd=tmp_path,
        WANDB_MODE="offline",
    ).folder
    (file,) = tmp_path.rglob("*.wandb")
    (run,) = [record.run for record in records(file) if record.HasField("run")]
    assert (run.entity, run.project) == ("a-team", "a-project")
    assert run.display_name == run.run_id == folder.name
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config.items() >= checkpoint(folder)["args"].items()
    for name in (SCRIPT.name, "args.json"):
        assert (file.parent / "files" / name).read_bytes() == (folder / name).read_bytes()

    rows = [
        {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records(file)
    ]
    for tag in ("charts/episodic_return", "charts/learning_rate", "charts/SPS"):
        points = curve(folder, tag)
        sent = [(row["global_step"], np.float32(row[tag])) for row in rows if tag in row]
        steps = [step for step, _ in sent]  # of several values at a step W&B keeps the last
        assert sorted(set(steps)) == steps == sorted({step for step, _ in points})
        assert set(sent) <= {(step, np.float32(value)) for step, value in points}
    films = [file.parent / "files" / row["videos/path"] for row in rows if "videos/path" in row]
    made = {film.read_bytes() for film in folder.glob("videos/*/*.mp4")}
    assert len(made) > 2 and made == {film.read_bytes() for film in films}

    flags = ("--total-timesteps", 2560, "--eval-episodes", 0)
    resume_command(folder, *flags, cwd=tmp_path, WANDB_MODE="offline")
    (resumed,) = set(tmp_path.rglob("*.wandb")) - {file}
    (again,) = [record.run for record in records(resumed) if record.HasField("run")]
    assert (again.run_id, again.entity, again.project) == (folder.name, "a-team", "a-project")


def test_weights_and_biases_appends_to_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without `resume` it would begin the curves again. A run folder may be called `.`."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options))
    monkeypatch.setattr(wandb, "save", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    script = load_script("ppo.py")
    script.start_wandb(script.Args(), Path())
    assert (asked["id"], asked["resume"], asked["dir"]) == (tmp_path.name, "allow", tmp_path.parent)


@pytest.mark.slow("Weights & Biases")
def test_weights_and_biases_gets_the_metrics_of_a_script_in_jax(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All else is the same text in ppo.py; its writer for TensorBoard is torch's."""
    pytest.importorskip("jax")
    pytest.importorskip("envpool")
    script = load_script("ppo_atari_envpool_xla_jax.py")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CONSOLE", "off")  # its hooks would stay on stdout, and keep the run
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "run"
    try:
        run = script.Run(script.Args(device="cpu", track=True), folder, {})
        run.log({"losses/entropy": 0.5}, 0.0, 0.1, 1024)
        run.writer.close()
    finally:
        wandb.teardown()
        wandb.tensorboard.unpatch()
    (file,) = tmp_path.rglob("*.wandb")
    sent = {
        "/".join(item.nested_key): json.loads(item.value_json)
        for record in records(file)
        for item in record.history.item
    }
    assert sent.items() >= {"global_step": 1024, "losses/entropy": 0.5}.items()


def test_every_eighth_episode_and_the_evaluation_are_filmed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C waits for each film: ffmpeg would get it as well, and training would end there."""
    waiting = record_waiting_signals(monkeypatch)
    flags = {"total_timesteps": 1536, "eval_episodes": 2, "capture_video": True, "video_every": 8}
    run = train(load_script("ppo.py"), tmp_path, **flags)
    names = [path.stem for path in tmp_path.glob("videos/from-step-0/*.mp4")]
    episodes = sorted(int(name.rsplit("-", 1)[1]) for name in names)
    assert episodes == list(range(0, episodes[-1] + 1, 8))
    assert len(episodes) > 1
    assert len(list(tmp_path.glob("videos/evaluation-1536/*.mp4"))) == 1
    for film in tmp_path.glob("videos/*/*.mp4"):
        shown = frames(film)
        assert len(shown) > 5  # and no film of the one frame after the last episode
        assert shown[0].shape == (400, 600, 3)
        assert any(np.any(frame != shown[0]) for frame in shown)
    assert [step for step, _ in run.scalars()["eval/episodic_return"]] == [1536]
    assert all(signals >= {signal.SIGINT, signal.SIGTERM} for signals in waiting)
    assert len(waiting) == len(episodes) + 1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_long_episodes_are_filmed_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their frames would fill the memory."""
    script = load_script("ppo.py")
    monkeypatch.setattr(script, "LONGEST_FILM", 12)
    flags = {"num_envs": 2, "num_steps": 32, "total_timesteps": 64}
    train(script, tmp_path, **flags, capture_video=True, video_every=1)
    counts = [len(frames(film)) for film in tmp_path.glob("videos/*/*.mp4")]
    assert abs(max(counts) - 12) <= 1
