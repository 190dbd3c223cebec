"""What the pages "How to" show: an environment, a network, the parameters of SB3."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command_line import (
    EVALUATE,
    checkpoint,
    curve,
    finished_run,
    run_command,
    train_command,
)
from helpers.in_process import load_file, load_script, train
from helpers.metadata import header
from sync import ROOT

EXAMPLES = ROOT / "docs" / "examples"
DOCKING = "docking:Docking-v0"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch):
    """docs/examples can be imported from."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.slow("training")
def test_ppo_learns_in_the_example(tmp_path: Path):
    flags = ("--env-id", DOCKING, "--total-timesteps", 20480, "--checkpoint-every", 0)
    path = str(EXAMPLES)
    run = train_command(*flags, "--eval-episodes", 5, cwd=tmp_path, PYTHONPATH=path)
    returns = [value for _, value in curve(run.folder, "charts/episodic_return")]
    assert np.mean(returns[:20]) < 0 and np.mean(returns[-50:]) > 1.5
    words = (run.folder, "--episodes", 2, "--capture-video")
    played = run_command(*words, cwd=tmp_path, script=EVALUATE, PYTHONPATH=path)
    assert played.returncode == 0, played.stderr
    assert len(list(run.folder.glob("videos/*/*.mp4"))) == 2


def test_the_lake_is_shown_as_a_row_with_a_one(examples: None, tmp_path: Path):
    script = load_script("ppo.py")
    args = script.Args(env_id="flat_lake:FlatLake-v0", num_envs=1)
    script.check(args)
    obs, _ = script.make_envs(args, tmp_path).reset()
    assert obs.tolist() == [[1.0] + [0.0] * 15]


def patched(source: str, diff: str) -> str:
    """The source with a diff of one hunk applied; its lines must be there, once."""
    lines = diff.partition("\n@@")[2].splitlines()[1:]
    before = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
    after = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
    assert source.count(before) == 1, "docs/examples/own_network.diff is stale"
    return source.replace(before, after)


def test_the_edited_network_trains_and_plays(tmp_path: Path):
    script = tmp_path / "my_ppo.py"
    diff = (EXAMPLES / "own_network.diff").read_text()
    script.write_text(patched((ROOT / "ppo" / "ppo.py").read_text(), diff))
    flags = ("--total-timesteps", 1024, "--eval-episodes", 0)
    run = train_command(*flags, cwd=tmp_path, script=script)
    weight = checkpoint(run.folder)["agent"]["trunk.1.weight"]
    assert weight.shape == (128, 4)
    # Its columns were orthogonal; training has changed that.
    assert (weight.T @ weight - 2 * torch.eye(4)).abs().max() > 1e-3
    words = (run.folder, "--episodes", 1, "--script", script)
    played = run_command(*words, cwd=tmp_path, script=EVALUATE)
    assert played.returncode == 0, played.stderr


@pytest.mark.parametrize("name", ["ppo_atari.py", "ppo_atari_lstm.py"])
def test_other_widths_of_the_network_need_no_edit_but_those_in_the_agent(name: str, tmp_path: Path):
    pytest.importorskip("ale_py", reason="needs the extra `atari`")
    agent = re.search(r"^class Agent.*?(?=^\S)", (ROOT / "ppo" / name).read_text(), re.M | re.S)
    assert agent
    narrow = agent[0].replace("512", "48").replace("128", "24")
    copy = tmp_path / name
    copy.write_text(agent.string.replace(agent[0], narrow))
    sizes = {"num_envs": 2, "num_steps": 8, "total_timesteps": 16, "eval_episodes": 1}
    run = train(
        load_file(copy, f"narrow_{name}"), tmp_path / "run", env_id="arcade:Short-v0", **sizes
    )
    assert run.state["agent"]["critic.weight"].shape[1] in (48, 24)


def test_the_program_that_acts_plays_the_evaluations_episode(tmp_path: Path):
    run = finished_run()
    (tmp_path / "ppo").symlink_to(ROOT / "ppo")
    played = run_command(run.folder, cwd=tmp_path, script=EXAMPLES / "play.py")
    assert played.returncode == 0, played.stderr
    script = load_script("ppo.py")
    state = script.load_checkpoint(run.folder / "agent.pt")
    args = replace(state["args"], seed=1 - 1_000_000, eval_episodes=1)  # the evaluation adds them
    agent = script.Agent(script.make_envs(args, tmp_path))
    agent.load_state_dict(state["agent"])
    (expected,) = script.evaluate(agent, args, tmp_path, greedy=True)["episodic_return"]
    assert played.stdout == f"return {expected:.1f}\n"


def test_the_example_keeps_to_ppos_packages():
    assert header("docs/examples/play.py") == header("ppo/ppo.py")


def test_defaults_of_stable_baselines3_and_of_ppo_are_those_in_the_table():
    from stable_baselines3 import PPO

    text = (ROOT / "docs" / "howto" / "from-sb3.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| `--([\w-]+)` \| (\S+) \|", text, re.MULTILINE)
    assert len(rows) == 15
    theirs = inspect.signature(PPO).parameters
    ours = load_script("ppo.py").Args()
    for name, their_default, flag, our_default in rows:
        assert str(theirs[name].default) == their_default, name
        assert str(getattr(ours, flag.replace("-", "_"))) == our_default, flag
