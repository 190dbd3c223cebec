"""What benchmark/same_numbers.py tells of scripts that are called CleanRL's."""

import ast
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.benchmark_runs import BENCHMARK
from helpers.command_line import run_command
from helpers.in_process import load_program

same_numbers = load_program("same_numbers.py")
PPO = Path(__file__).resolve().parents[2] / "ppo"
OURS = (PPO / "ppo.py").read_text()
# As CleanRL's script draws actions and minibatches, and something more before the training.
DRAWN_OTHERWISE = {
    "        self.critic = mlp(": "        torch.rand(3)\n        self.critic = mlp(",
    "        exponential = torch.empty_like(logits).exponential_()\n": "",
    "        gumbel = -exponential.log()\n": "",
    "(logits + gumbel).argmax(-1)": "torch.distributions.Categorical(logits=logits).sample()",
    "shuffled = torch.randperm(args.batch_size, device=device)": (
        "order = np.arange(args.batch_size)\n"
        "            np.random.shuffle(order)\n"
        "            shuffled = torch.from_numpy(order)"
    ),
}


def edited(source: str, edits: dict[str, str]) -> str:
    for old, new in edits.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


def compare(
    clone: Path, peer: str, *flags: str, name: str = "ppo.py"
) -> subprocess.CompletedProcess[str]:
    """Runs the program on a clone whose script is this text."""
    (clone / "cleanrl").mkdir()
    (clone / "cleanrl" / name).write_text(peer)
    program = BENCHMARK / "same_numbers.py"
    return run_command(name, "--cleanrl", clone, *flags, cwd=clone, script=program)


def test_continuous_actions_are_compared_too(tmp_path):
    """Drawn by the distribution's own method, as CleanRL draws them."""
    name = "ppo_continuous_action.py"
    peer = same_numbers.comparable((PPO / name).read_text(), name)
    ours = "mean + self.actor_logstd.exp() * torch.randn_like(mean)"
    theirs = "torch.distributions.Normal(mean, self.actor_logstd.exp()).sample()"
    peer = edited(peer, {ours: theirs})
    done = compare(tmp_path, peer, "--iterations", "2", "--env-id", "Pendulum-v1", name=name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(": the same numbers for 2 of 2 iterations")


def test_envpool_looks_as_it_did_to_gym():
    """A reset without options, four results of a step; an end of either kind is one."""
    obs, rewards = np.zeros((2, 4)), np.array([1.0, 2.0, 3.0])
    ends = np.array([True, False, False]), np.array([False, True, False])
    envs = SimpleNamespace(
        single_action_space=3,
        single_observation_space=4,
        args=SimpleNamespace(seed=7),
        reset=lambda seed: (obs + seed, {}),
        step=lambda actions: (obs, rewards, *ends, {}),
    )
    old = same_numbers.OldWrapper(same_numbers.OldVector(envs))
    assert (old.action_space, old.observation_space) == (3, 4)
    assert (old.reset() == 7).all()
    seen, paid, done, infos = old.step(np.zeros(3))
    assert seen is obs and paid is rewards and done.tolist() == [True, True, False]
    assert infos["reward"] is rewards
    assert not infos["terminated"].any() and infos["lives"].all(), "nobody has ended a game"


def test_weights_come_in_one_order(monkeypatch):
    """Critic and actor or actor and critic, a row or a matrix of one row."""
    critic, actor, row = torch.ones(1, 3), torch.zeros(2, 3), torch.full((2,), 2.0)
    for name, value in {"history": [], "seed": 1}.items():
        monkeypatch.setattr(same_numbers.Recorder, name, value, raising=False)
    same_numbers.Recorder([critic, actor, row])
    same_numbers.Recorder([actor, row[None], critic])
    one, other = same_numbers.Recorder.history
    assert one.tolist() == other.tolist() == [2, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1]


def test_first_weights_do_not_depend_on_what_was_drawn_before():
    weights = [same_numbers.orthogonal(torch.empty(3, 4), gain) for gain in (1.0, 1.0, 2.0)]
    assert torch.equal(weights[0], weights[1])
    assert torch.allclose(2 * weights[0], weights[2])


def test_an_edit_is_told_and_another_way_to_draw_is_not(tmp_path):
    """The edit anneals as before in the first two iterations."""
    other = {"1 - (iteration - 1) /": "1 - (1 + 0.01 * (iteration > 2)) * (iteration - 1) /"}
    peer = edited(same_numbers.comparable(OURS, "ppo.py"), DRAWN_OTHERWISE | other)
    done = compare(tmp_path, peer, "--iterations", "4", "--env-id", "Acrobot-v1")
    assert done.returncode == 1, done.stderr
    _header, *rows, told = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4"]
    assert told == "ppo.py, 9,476 weights: other numbers from iteration 3 on"


GROWN = "; what differs later may be rounding that has grown"


@pytest.mark.parametrize(
    ("first", "differences", "text", "same"),
    [
        (0.0, [1e-16, 1e-15, 1e-13], "the same numbers for 3 of 3 iterations", True),
        (0.0, [1e-15, 1e-12, 1e-9, 1.0], f"the same numbers for 2 of 4 iterations{GROWN}", True),
        (0.0, [1e-15, 1e-14, 1e-10, 1.0], f"the same numbers for 3 of 4 iterations{GROWN}", True),
        (0.0, [1e-15, 0.0, 2e-6, 1.0], "other numbers from iteration 3 on", False),
        (0.0, [1e-15, 1e-15, 1e-14, 1.0], "other numbers from iteration 4 on", False),
        (0.0, [1e-15, 1e-15, np.nan], "other numbers from iteration 3 on", False),
        (0.0, [1e-15, 1e-8], "other numbers", False),
        (0.0, [np.nan, 1e-15], "other numbers", False),
        (1e-16, [1e-15, 1e-15], "other numbers", False),
    ],
)
def test_a_jump_is_a_fault_and_growth_is_not(first, differences, text, same):
    assert same_numbers.verdict(first, np.array(differences)) == (text, same)


def test_a_program_that_ends_early_shows_why(tmp_path):
    done = compare(tmp_path, "raise SystemExit('no such game')", "--iterations", "2")
    assert done.returncode == 1
    assert "no such game" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("cleanrl/ppo.py ended before iteration 2")


@pytest.mark.parametrize("script", same_numbers.UNDONE)
def test_everything_that_differs_on_purpose_is_undone(script):
    source = (PPO / script).read_text()
    undone = same_numbers.comparable(source, script)
    ast.parse(undone)
    assert "float32" not in undone.split("# ====== plumbing")[0]
