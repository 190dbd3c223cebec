"""ppo_multidiscrete.py and ppo_multidiscrete_mask.py: what they do otherwise than their parents."""

import shutil
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import levers
import numpy as np
import pytest
import torch
from helpers import command_line, newcomer
from helpers.checks import (
    assert_compiled_is_the_same,
    assert_first_ratio_is_1,
    assert_orthogonal,
    assert_refused,
    assert_same_weights,
    new_agent,
)
from helpers.in_process import load_script, record_calls, train
from scipy.stats import chisquare
from torch import Tensor
from torch.distributions import Categorical

NAMES = ("ppo_multidiscrete.py", "ppo_multidiscrete_mask.py")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the second one registers the same environments again
    plain, masking = map(load_script, NAMES)
LEVERS = {"num_envs": 3, "num_steps": 16, "num_minibatches": 3, "total_timesteps": 48 * 6}
LEVERS |= {"env_id": "levers:Levers-v0", "seed": 5, "update_epochs": 2, "learning_rate": 0.003}
LOOSE = LEVERS | {"env_id": "levers:LeversLoose-v0"}
NVEC = [2, 5, 3]
MASK = torch.tensor([1, 1, 0, 1, 1, 0, 1, 0, 1, 0], dtype=torch.bool)
BOTH = pytest.mark.parametrize("script", (plain, masking), ids=NAMES)


def make_agent(script: ModuleType, nvec: list[int] | None = None) -> Any:
    """An agent that observes four numbers, with weights far from the small initial ones."""
    actions = gym.spaces.MultiDiscrete(nvec or NVEC)
    agent = new_agent(script, gym.spaces.Box(-1, 1, (4,)), actions)
    agent.actor[-1].weight.data.normal_()
    agent.actor[-1].bias.data.normal_()
    return agent


def all_valid(script: ModuleType, rows: int, nvec: list[int]) -> dict[str, Tensor]:
    """The argument `mask` with which nothing is masked, of the agent that has one."""
    return {"mask": torch.ones(rows, sum(nvec), dtype=torch.bool)} if script is masking else {}


def categoricals(agent: Any, x: Tensor, nvec: list[int]) -> list[Categorical]:
    """torch's own distribution of each component."""
    return [Categorical(logits=part) for part in agent.actor(x).split(nvec, -1)]


# ------ the distribution ------
@BOTH
@pytest.mark.parametrize("nvec", [[2, 5, 3], [4], [1, 7], [3, 3]], ids=str)
def test_log_probability_entropy_and_value(script: ModuleType, nvec: list[int]):
    agent, x = make_agent(script, nvec), 3 * torch.randn(200, 4)
    assert agent.actor[-1].out_features == sum(nvec)
    action = torch.stack([torch.randint(n, (200,)) for n in nvec], -1)
    valid = all_valid(script, 200, nvec)
    logprob, entropy, value = agent.get_logprob_entropy_value(x, action, **valid)
    parts = categoricals(agent, x, nvec)
    expected = sum(part.log_prob(a) for part, a in zip(parts, action.T, strict=True))
    torch.testing.assert_close(logprob, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, sum(part.entropy() for part in parts), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(value, agent.critic(x)[:, 0])
    best = torch.stack([part.probs.argmax(-1) for part in parts], -1)
    assert torch.equal(agent.get_action(x, greedy=True, **valid), best)


@BOTH
def test_actions_are_sampled_from_the_product_of_the_components(script: ModuleType):
    agent, samples = make_agent(script), 60_000
    # The biases alone: no probability is too small to be tested.
    agent.actor[-1].weight.data.zero_()
    x = torch.randn(1, 4)
    with torch.inference_mode():
        actions = agent.get_action(x.expand(samples, 4), **all_valid(script, samples, NVEC))
    assert actions.shape == (samples, 3) and actions.dtype == torch.int64
    first, second, third = (part.probs[0].detach() for part in categoricals(agent, x, NVEC))
    joint = torch.einsum("a,b,c->abc", first, second, third).flatten()
    index = (actions[:, 0] * 5 + actions[:, 1]) * 3 + actions[:, 2]
    expected = joint.double() / joint.double().sum() * samples
    assert expected.min() > 5
    assert chisquare(torch.bincount(index, minlength=30), expected).pvalue > 0.001


@BOTH
def test_final_layer_is_orthogonal_and_small(script: ModuleType):
    agent = new_agent(script, gym.spaces.Box(-1, 1, (4,)), gym.spaces.MultiDiscrete(NVEC))
    assert agent.actor[-1].out_features == 10
    assert_orthogonal([agent.actor[-1].weight], [0.01])


@BOTH
def test_components_in_rows_and_columns(script: ModuleType, tmp_path: Path):
    """An action space of two dimensions: the largest entries pay most."""
    flags = LEVERS | {"env_id": "levers:Levers2D-v0", "total_timesteps": 48 * 40}
    agent = train(script, tmp_path, **flags, ent_coef=0.0).agent()
    nvec = [2, 3, 4, 1]
    x = torch.ones(1, 2)
    valid = all_valid(script, 1, nvec)
    action = agent.get_action(x, greedy=True, **valid)
    assert action.tolist() == [[[1, 2], [3, 0]]]
    logprob, _, _ = agent.get_logprob_entropy_value(x, action, **valid)
    parts = categoricals(agent, x, nvec)
    expected = sum(part.log_prob(a) for part, a in zip(parts, action.flatten(), strict=True))
    torch.testing.assert_close(logprob, expected)
    assert logprob.exp() > 0.5  # learned


# ------ masks ------
def test_masked_distribution_is_torchs_over_the_valid_actions():
    agent, x = make_agent(masking), 3 * torch.randn(200, 4)
    valid = [part.nonzero()[:, 0] for part in MASK.split(NVEC)]
    action = torch.stack([part[torch.randint(len(part), (200,))] for part in valid], -1)
    logprob, entropy, _ = agent.get_logprob_entropy_value(x, action, MASK.expand(200, 10))
    expected, entropies = torch.zeros(200), torch.zeros(200)
    logits = agent.actor(x).split(NVEC, -1)
    for part, choices, chosen in zip(logits, valid, action.T, strict=True):
        alone = Categorical(logits=part[:, choices])  # over the valid choices, and no others
        expected += alone.log_prob((choices == chosen[:, None]).int().argmax(-1))
        entropies += alone.entropy()
    torch.testing.assert_close(logprob, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, entropies, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30], ids=str)
def test_masked_actions_have_no_probability_and_get_no_gradient(scale: float):
    """Exactly, however great the logits of the invalid actions are; and nothing becomes NaN."""
    agent = make_agent(masking)
    mask = MASK.expand(500, 10)
    bias = agent.actor[-1].bias
    bias.data = torch.where(MASK, bias.data, scale)
    x = torch.randn(500, 4)
    probs = agent.get_logits(x, mask).softmax(-1)  # (batch, components, max n)
    for component, part in enumerate(MASK.split(NVEC)):
        n = len(part)
        assert (probs[:, component, :n][:, ~part] == 0).all()
        assert (probs[:, component, :n][:, part] > 0).all()
        assert (probs[:, component, n:] == 0).all()
    torch.testing.assert_close(probs.sum(-1), torch.ones(500, 3))
    for greedy in (False, True):
        action = agent.get_action(x, mask, greedy)
        chosen = action + torch.tensor([0, 2, 7])
        assert MASK[chosen].all()
    logprob, entropy, _ = agent.get_logprob_entropy_value(x, action, mask)
    assert logprob.isfinite().all() and entropy.isfinite().all()
    (logprob * torch.randn(500)).sum().backward(retain_graph=True)
    entropy.sum().backward()
    for gradient in (bias.grad, agent.actor[-1].weight.grad):
        assert (gradient[~MASK] == 0).all()
        assert gradient.isfinite().all()
    assert (bias.grad[:2] != 0).all()  # both choices of the first component are valid
    # The second component has three valid choices, the third one a single one: it is certain.
    assert bias.grad[3] != 0 and bias.grad[8] == 0


@BOTH
def test_first_ratio_is_1(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Log-probabilities are recomputed with the masks that the actions were sampled with."""
    assert_first_ratio_is_1(script, monkeypatch, tmp_path, **LOOSE)


@pytest.mark.parametrize("gives", ["", "Tuple", "Method"])
def test_stored_masks_are_the_environments(
    gives: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """However they are told. The environment itself refuses invalid actions."""
    calls = record_calls(masking, "compute_gradient", monkeypatch)
    train(masking, tmp_path, **(LEVERS | {"env_id": f"levers:Levers{gives}-v0"}))
    expected = np.stack([levers.mask_of(state) for state in range(levers.STATES)])
    for _, batch, *_ in calls[::6]:  # one of each iteration
        masks = batch["masks"].numpy()
        assert masks.dtype == bool and masks.shape == (48, sum(levers.NVEC))
        np.testing.assert_array_equal(masks, expected[batch["obs"].argmax(-1)])
        chosen = batch["actions"].numpy() + np.cumsum((0, *levers.NVEC[:-1]))
        assert np.take_along_axis(masks, chosen, -1).all()


def test_a_component_without_a_valid_choice_gets_its_first():
    env = masking.ActionMask(gym.make("levers:LeversEmpty-v0"))
    env.reset(seed=1)
    for step in range(1, 4):
        _, _, _, _, info = env.step(np.array(levers.right_of(env.unwrapped.state)))
        first, second, third = np.split(info["action_mask"], np.cumsum(levers.NVEC)[:-1])
        assert first.sum() == 1 and third.sum() == 2
        assert np.flatnonzero(second).tolist() == [0] if step == 3 else second.sum() == 2


def test_worker_processes_change_nothing(tmp_path: Path):
    runs = [train(masking, tmp_path / str(i), **LEVERS, async_envs=bool(i)) for i in range(2)]
    assert_same_weights(*runs)


@pytest.mark.slow("learning")
def test_the_right_levers_are_learned_with_masks(tmp_path: Path):
    """Points per step of the last 100 episodes; at most 1, by chance 1/4."""
    flags = LEVERS | {"total_timesteps": 48 * 60, "num_minibatches": 4}
    scalars = train(masking, tmp_path, **flags).scalars()
    returns, lengths = (
        sum(value for _, value in scalars[f"charts/episodic_{name}"][-100:])
        for name in ("return", "length")
    )
    assert returns / lengths > 0.85


@pytest.mark.slow("torch.compile")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_compiled_run_is_the_same(tmp_path: Path):
    assert_compiled_is_the_same(masking, tmp_path, **LEVERS | {"total_timesteps": 48 * 3})


# ------ Gym-µRTS ------
@BOTH
@pytest.mark.parametrize(("java", "async_envs"), [(None, False), ("/usr/bin/java", True)])
def test_java_is_needed_and_in_one_process(
    script: ModuleType,
    java: str | None,
    async_envs: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(shutil, "which", lambda name: java)
    assert_refused(script, {"async_envs": async_envs}, "needs Java.*async", capsys)


needs_java = pytest.mark.skipif(
    not (shutil.which("uv") and shutil.which("java")), reason="Gym-µRTS needs uv and Java"
)


@needs_java
@pytest.mark.slow("uv installs packages")
def test_gym_microrts_is_learned_and_evaluated(tmp_path: Path):
    """With masks; without them the environment is the same text, but for the masks."""
    args = ("--no-cuda", "--total-timesteps", 2048, "--eval-episodes", 1)
    done = newcomer.uv_run("ppo_multidiscrete_mask.py", *args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "evaluation: episodic_return" in done.stdout
    folder = command_line.the_folder(tmp_path / "runs")
    lengths = [length for _, length in command_line.curve(folder, "charts/episodic_length")]
    assert max(lengths) == 200 and len(lengths) >= 8  # the limit; who wins is done earlier
    returns = [value for _, value in command_line.curve(folder, "charts/episodic_return")]
    assert all(value == int(value) >= 0 for value in returns)
    assert np.mean(returns) >= 1  # valid actions alone gather something
    played = newcomer.uv_run("evaluate.py", folder, "--episodes", 1, cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    assert "over 1 episodes" in played.stdout
