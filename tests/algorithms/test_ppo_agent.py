"""The agent's distribution, its initial weights, and observations of all shapes and types."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from helpers.checks import assert_orthogonal, new_agent
from helpers.in_process import load_script, train
from probes import SPACES
from scipy.stats import chisquare
from torch import Tensor, nn
from torch.distributions import Categorical

ppo = load_script("ppo.py")


def make_agent(observations: int = 4, actions: int = 4) -> Any:
    return new_agent(ppo, gym.spaces.Box(-1, 1, (observations,)), gym.spaces.Discrete(actions))


def with_logits(logits: list[float]) -> Any:
    """An agent whose policy is the same for every observation."""
    agent = make_agent(actions=len(logits))
    nn.init.zeros_(agent.actor[-1].weight)
    agent.actor[-1].bias.data = torch.tensor(logits)
    return agent


@pytest.mark.parametrize(
    "logits", [[0.0, 0.0], [1.0, -1.0, 0.5], [2.0, -1.5, 0.0, 0.3], [-30.0, -31.0, -32.0, 0, 0]]
)
def test_actions_are_sampled_from_the_softmax(logits: list[float]):
    agent, samples = with_logits(logits), 40_000
    probabilities = torch.tensor(logits, dtype=torch.float64).softmax(-1)
    with torch.inference_mode():
        actions = agent.get_action(torch.randn(samples, 4))
    assert actions.shape == (samples,) and actions.dtype == torch.int64
    counts = torch.bincount(actions, minlength=len(logits))
    possible = probabilities > 1e-6
    assert (counts[~possible] == 0).all()
    expected = probabilities[possible] / probabilities[possible].sum() * samples
    assert chisquare(counts[possible], expected).pvalue > 0.001
    # Rows are drawn independently of each other: neighbours agree as often as chance has it.
    agree = (actions[1:] == actions[:-1]).float().mean().item()
    assert agree == pytest.approx((probabilities**2).sum().item(), abs=0.015)


def test_greedy_action_is_the_most_probable():
    agent = with_logits([0.1, 0.3, 0.29, -2.0])
    assert (agent.get_action(torch.randn(100, 4), greedy=True) == 1).all()
    agent, x = make_agent(), torch.randn(100, 4)
    torch.testing.assert_close(agent.get_action(x, greedy=True), agent.actor(x).argmax(-1))


def test_log_probability_entropy_and_value():
    agent = make_agent()
    agent.actor[-1].weight.data *= 1000  # probabilities from nearly 0 to nearly 1
    x, action = 2 * torch.randn(200, 4), torch.randint(4, (200,))
    logprob, entropy, value = agent.get_logprob_entropy_value(x, action)
    expected = Categorical(logits=agent.actor(x))
    assert expected.probs.max() > 0.99 and expected.probs.min() < 0.001
    torch.testing.assert_close(logprob, expected.log_prob(action))
    torch.testing.assert_close(entropy, expected.entropy(), rtol=1e-4, atol=1e-6)
    assert value.shape == (200,)
    torch.testing.assert_close(value, agent.critic(x)[:, 0])
    torch.testing.assert_close(value, agent.get_value(x))


def weights_of(network: nn.Module) -> list[Tensor]:
    return [p for p in network.parameters() if p.dim() > 1]


@pytest.mark.parametrize("observations", [4, 100])
def test_orthogonal_initialization(observations: int):
    agent = make_agent(observations)
    assert_orthogonal(weights_of(agent.actor), [2**0.5, 2**0.5, 0.01])
    assert_orthogonal(weights_of(agent.critic), [2**0.5, 2**0.5, 1.0])
    assert not any(p.any() for p in agent.parameters() if p.dim() == 1)


def test_policy_and_value_share_nothing():
    agent = make_agent()
    for network, outputs in ((agent.actor, 4), (agent.critic, 1)):
        shapes = [tuple(weight.shape) for weight in weights_of(network)]
        assert shapes == [(64, 4), (64, 64), (outputs, 64)]
    x = torch.randn(10, 4)
    _, entropy, value = agent.get_logprob_entropy_value(x, torch.zeros(10, dtype=torch.int64))
    value.sum().backward()
    assert all(p.grad is None for p in agent.actor.parameters())
    assert all(p.grad is not None for p in agent.critic.parameters())
    agent.zero_grad()
    entropy.sum().backward()
    assert all(p.grad is None for p in agent.critic.parameters())


@pytest.mark.parametrize("name", SPACES)
def test_observations_of_any_shape_and_type(name: str, tmp_path: Path):
    flags = {"num_envs": 3, "num_steps": 8, "total_timesteps": 72, "num_minibatches": 2}
    run = train(ppo, tmp_path, env_id=f"probes:{name}-v0", **flags)
    space, agent = SPACES[name], run.agent()
    envs = ppo.make_envs(run.args, tmp_path)
    torch.manual_seed(run.args.seed)
    for trained, initial in zip(agent.parameters(), ppo.Agent(envs).parameters(), strict=True):
        assert trained.isfinite().all()
        # Layer by layer something was learned; an input that is always 0 would leave the first one.
        assert (trained != initial).any()
    obs = torch.from_numpy(envs.reset(seed=0)[0].copy())
    assert obs.shape == (3, *space.shape) and obs.numpy().dtype == space.dtype
    flat = torch.stack([row.flatten().float() for row in obs])
    torch.testing.assert_close(agent.get_value(obs.float()), agent.get_value(flat))
    envs.close()


def test_the_environment_of_the_check_is_closed(monkeypatch: pytest.MonkeyPatch):
    """It may be a program that listens at a port, say; the training's is another one."""
    made, make_envs = [], ppo.make_envs
    monkeypatch.setattr(ppo, "make_envs", lambda *a: made.append(make_envs(*a)) or made[-1])
    ppo.check(ppo.Args())
    assert [envs.closed for envs in made] == [True]
