"""benchmark/runs.py reads what runs leave behind, as TensorBoard would."""

import json
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import runs
from helpers.fake_runs import episodes, make_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ONE = {"start": 0, "episodes": episodes(np.ones(3)), "last": (30, 2.0)}


def test_resumed_run_drops_superseded_episodes_and_the_pause(tmp_path):
    first = {
        "start": 0,
        "episodes": [(100, 60.0, 1.0), (200, 120.0, 2.0), (300, 180.0, 3.0)],
        "last": (300, 180.0),
    }
    second = {  # an hour later, from the checkpoint at step 200
        "start": 3600,
        "purge_step": 201,
        "episodes": [(290, 60.0, 30.0), (390, 120.0, 40.0)],
        "last": (400, 180.0),
    }
    folder = make_run(tmp_path, "CartPole-v1", 1, [first, second])
    events = runs.read_events(folder)
    found = [(episode.step, episode.score) for episode in events.episodes]
    assert found == [(100, 1), (200, 2), (290, 30), (390, 40)]
    assert [episode.minutes for episode in events.episodes] == pytest.approx([1, 2, 4, 5])
    assert events.last_step == 400 and events.minutes == pytest.approx(6)

    accumulator = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    expected = [(e.step, e.value) for e in accumulator.Scalars("charts/episodic_return")]
    assert found == expected


def test_a_point_of_several_episodes_counts_as_that_many(tmp_path):
    """The last hundred are 50 that had 3 on average and 50 of the 80 before them, which had 2."""
    points = [(100, 60.0, 1.0, 30), (200, 120.0, 2.0, 80), (300, 180.0, 3.0, 50)]
    make_run(tmp_path, "X-v0", 1, [{"start": 0, "episodes": points, "last": (300, 180.0)}])
    (run,) = runs.find_runs(tmp_path).runs.values()
    assert run.score == pytest.approx(2.5) and len(run.scores) == 160
    assert run.score_after(200) == pytest.approx((80 * 2 + 20 * 1) / 100)
    curve = run.curve("steps", np.array([100, 250, 300]))
    assert curve == pytest.approx([1.0, 1.8, 2.5])


def test_rolling_mean_and_held_values():
    x = np.random.default_rng(0).normal(size=250)
    expected = [x[max(0, i - 99) : i + 1].mean() for i in range(250)]
    assert np.allclose(runs.rolling_mean(x), expected)
    held = runs.value_at(np.array([0, 1, 2.5, 9]), np.array([1, 2, 3]), np.array([10, 20, 30]))
    assert np.array_equal(held, [np.nan, 10, 20, 30], equal_nan=True)


def test_the_newest_finished_run_counts_and_lost_ones_are_told(tmp_path, capsys):
    for ended, value in (("20261120-9", 1.0), ("20261120-10", 2.0)):
        part = {"start": 0, "episodes": episodes(np.full(3, value)), "last": (30, 2.0)}
        make_run(tmp_path, "X-v0", 1, [part], ended=ended)
    make_run(tmp_path, "X-v0", 2, [ONE], finished=False)
    make_run(tmp_path, "X-v0", 3, [ONE | {"episodes": []}])
    cut = make_run(tmp_path, "X-v0", 4, [ONE])
    facts = json.loads((cut / "args.json").read_text())
    facts["args"] |= {"total_timesteps": 1000, "num_envs": 1, "num_steps": 10}
    (cut / "args.json").write_text(json.dumps(facts))
    resumed = make_run(tmp_path, "X-v0", 5, [ONE]) / "resumed_at_10"
    resumed.mkdir()
    (resumed / "args.json").touch()  # emptied by a loss of power
    (make_run(tmp_path, "X-v0", 6, [ONE], finished=False) / "diverged").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "args.json").write_text("{")

    found = runs.find_runs(tmp_path)
    assert [run.score for run in found.runs.values()] == [2.0]
    assert {key.seed: why.partition(":")[0] for key, why in found.lost.items()} == {
        2: runs.UNFINISHED,
        3: runs.NO_EPISODE,
        4: runs.DAMAGED,
        5: "cannot be read",
        6: runs.DIVERGED,
    }
    warnings = capsys.readouterr().err
    assert "20261120-9 is left out" in warnings and "cannot be read" in warnings
    assert sum("Left out" in remark for remark in runs.remarks_on(found)) == 5

    make_run(tmp_path, "X-v0", 1, [ONE], finished=False, ended="20261120-11")
    found = runs.find_runs(tmp_path)  # of an edited script, perhaps: older runs are of another one
    assert not found.runs and found.lost[runs.RunKey("ppo.py", "X-v0", 1)] == runs.UNFINISHED


def test_other_programs_runs_are_found_by_their_folders(tmp_path, capsys):
    tags = {
        "CartPole-v1__ppo__1__17": "charts/episodic_return",
        "ALE/Pong-v5__ppo__2__17": "charts/avg_episodic_return",
        "X-v0__sb3__1_1": "rollout/ep_rew_mean",
        "X-v0__my_ppo__2__20261120_120000": "rollout/ep_rew_mean",
        "X-v0__ppo__2__17_1": "rollout/ep_rew_mean",
    }
    folder = tmp_path / "wandb" / "theirs"  # above the folder the name means nothing
    for name, tag in tags.items():
        part = {"start": 0, "episodes": episodes(np.arange(9.0)), "last": (6000, 360.0)}
        made = make_run(tmp_path / "made", name.partition("__")[0], 1, [part], tag=tag)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        made.rename(target)
        (target / "args.json").unlink()
    found = runs.find_runs(folder)
    assert {tuple(key): run.score for key, run in found.runs.items()} == {
        ("ppo", "CartPole-v1", 1): 4.0,
        ("ppo", "ALE/Pong-v5", 2): 4.0,
        ("sb3", "X-v0", 1): 8.0,  # the last point, a mean already
        ("my_ppo", "X-v0", 2): 8.0,
        ("ppo", "X-v0", 2): 8.0,
    }
    # What `add_hparams` writes, or a second writer for an evaluation.
    assert runs.OTHER_NAME.fullmatch("X-v0__ppo__2__17/1764000000.5") is None
    assert len(runs.find_runs(folder, pattern="Cart*").runs) == 1
    assert not runs.find_runs(folder, "charts/absent").runs
    assert "charts/absent was not logged" in capsys.readouterr().err
    shutil.copytree(folder / "X-v0__sb3__1_1", folder / "wandb/X-v0__sb3__2_1")
    make_run(folder, "CartPole-v1", 3, [ONE])  # ours among them
    assert [key.seed for key in runs.find_runs(folder).runs] == [3]
    assert capsys.readouterr().err.count("another program's run") == 5


def test_a_resumed_run_is_described_by_all_its_parts(tmp_path):
    run = make_run(tmp_path / "runs", "CartPole-v1", 1, [ONE])
    (run / "ppo.py").write_text("one version of the script")
    facts = json.loads((run / "args.json").read_text())
    later = {
        "resumed_at_200": ["--total-timesteps", "2000", "--resume", str(run)],
        "resumed_at_1000": ["--resume", str(run), "--total_timesteps=3000", "--cuda", "--no-cuda"],
    }
    for name, argv in later.items():
        (run / name).mkdir()
        (run / name / "ppo.py").write_text(f'# "torch>=2"\n"""The script of {name}."""')
        versions = {"python": "3.12.1", "torch": "2.13.0", "jax": "0.10.2"}
        facts |= {"argv": argv, "versions": versions}
        facts["args"] |= {"gamma": facts["args"]["gamma"] - 0.1}
        (run / name / "args.json").write_text(json.dumps(facts))
    (found,) = runs.find_runs(tmp_path, pattern="**").runs.values()  # not the parts one by one
    assert found.settings["gamma"] == pytest.approx(0.79)
    made = found.provenance
    assert made.flags == "--total_timesteps=3000 --no-cuda" and made.commit == ""
    # Of the packages that its header names; the first version of the script has no header.
    assert made.versions == "python 3.11.7 torch 2.13.0 then torch 2.13.0"
    digests = [sha256(path.read_bytes()).hexdigest()[:12] for path in sorted(run.glob("**/ppo.py"))]
    assert len(digests) == 3
    in_time = [digests[0], digests[2], digests[1]]  # sorted as words, 1000 comes before 200
    assert made.script_hash == " then ".join(in_time)


def test_the_commit_of_a_script_is_found(tmp_path, monkeypatch):
    """The one that brought its bytes, also after later edits."""
    (tmp_path / "benchmark").mkdir()
    script = tmp_path / "ppo.py"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b"]

    def commit(text: str) -> str:
        script.write_text(text)
        subprocess.run([*git, "add", "ppo.py"], check=True)
        subprocess.run([*git, "commit", "-qm", text], check=True)
        words = [*git, "log", "-1", "--format=%h"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    subprocess.run([*git, "init", "-q"], check=True)
    first, _ = commit("one"), commit("two")
    monkeypatch.setattr(runs, "__file__", str(tmp_path / "benchmark" / "runs.py"))
    (tmp_path / "copy.py").write_text("one")
    assert runs.commit_of(tmp_path / "copy.py") == first
    (tmp_path / "copy.py").write_text("edited")
    assert runs.commit_of(tmp_path / "copy.py") == "" == runs.commit_of(Path("absent.py"))
