"""The agent's distribution, its initial weights, and observations of all shapes and types."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.in_process import load_script, train
from probes import SPACES
from torch import Tensor, nn
from torch.distributions import Categorical

ppo = load_script("ppo.py")


def make_agent(observations: int = 4, actions: int = 4) -> Any:
    torch.manual_seed(0)
    box, discrete = gym.spaces.Box(-1, 1, (observations,)), gym.spaces.Discrete(actions)
    spaces = {"single_observation_space": box, "single_action_space": discrete}
    return ppo.Agent(SimpleNamespace(**spaces))


def linears(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def with_logits(agent: Any, logits: Tensor) -> Any:
    """The agent with a policy that is the same for every observation."""
    nn.init.zeros_(linears(agent.actor)[-1].weight)
    linears(agent.actor)[-1].bias.data = logits
    return agent


# Upper 0.1 % points of the chi-square distribution: degrees of freedom 1, 2, 3, 4.
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}


@pytest.mark.parametrize(
    "logits", [[0.0, 0.0], [1.0, -1.0, 0.5], [2.0, -1.5, 0.0, 0.3], [-30.0, -31.0, -32.0, 0, 0]]
)
def test_actions_are_sampled_from_the_softmax(logits: list[float]):
    agent = with_logits(make_agent(actions=len(logits)), torch.tensor(logits))
    samples, torch_probs = 40_000, torch.tensor(logits).softmax(-1)
    with torch.inference_mode():
        actions = agent.get_action(torch.randn(samples, 4))
    assert actions.shape == (samples,) and actions.dtype == torch.int64
    counts = torch.bincount(actions, minlength=len(logits))
    possible = torch_probs > 1e-6
    assert (counts[~possible] == 0).all()
    expected = torch_probs[possible] * samples
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    assert chi_square < CRITICAL[int(possible.sum()) - 1]
    # Rows are drawn independently of each other: neighbours agree as often as chance has it.
    agree = (actions[1:] == actions[:-1]).float().mean().item()
    assert agree == pytest.approx((torch_probs**2).sum().item(), abs=0.015)


def test_greedy_action_is_the_most_probable():
    agent = with_logits(make_agent(), torch.tensor([0.1, 0.3, 0.29, -2.0]))
    assert (agent.get_action(torch.randn(100, 4), greedy=True) == 1).all()
    agent, x = make_agent(), torch.randn(100, 4)
    torch.testing.assert_close(agent.get_action(x, greedy=True), agent.actor(x).argmax(-1))


def test_log_probability_entropy_and_value():
    agent = make_agent()
    linears(agent.actor)[-1].weight.data *= 1000  # probabilities from nearly 0 to nearly 1
    x, action = 2 * torch.randn(200, 4), torch.randint(4, (200,))
    logprob, entropy, value = agent.get_logprob_entropy_value(x, action)
    expected = Categorical(logits=agent.actor(x))
    assert expected.probs.max() > 0.99 and expected.probs.min() < 0.001
    torch.testing.assert_close(logprob, expected.log_prob(action))
    torch.testing.assert_close(entropy, expected.entropy(), rtol=1e-4, atol=1e-6)
    assert value.shape == (200,)
    torch.testing.assert_close(value, agent.critic(x)[:, 0])
    torch.testing.assert_close(value, agent.get_value(x))


def test_orthogonal_initialization():
    """The weights' rows or columns, whichever are fewer, are orthogonal and of length std."""
    for observations in (4, 100):
        agent = make_agent(observations)
        expected = {"actor": [2**0.5, 2**0.5, 0.01], "critic": [2**0.5, 2**0.5, 1.0]}
        for name, stds in expected.items():
            for layer, std in zip(linears(getattr(agent, name)), stds, strict=True):
                weight = layer.weight.detach()
                rows, columns = weight.shape
                gram = weight @ weight.T if rows <= columns else weight.T @ weight
                identity = torch.eye(len(gram))
                torch.testing.assert_close(gram / std**2, identity, rtol=0, atol=1e-4)
                assert (layer.bias == 0).all()


def test_policy_and_value_share_nothing():
    agent = make_agent()
    networks = {"actor": linears(agent.actor), "critic": linears(agent.critic)}
    for layers in networks.values():
        sizes = [(layer.in_features, layer.out_features) for layer in layers]
        assert sizes[:2] == [(4, 64), (64, 64)]
    pointers = [{p.data_ptr() for p in network.parameters()} for network in agent.children()]
    assert len(pointers) == 2 and not pointers[0] & pointers[1]
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
    space = SPACES[name]
    agent = run.agent()
    assert linears(agent.actor)[0].in_features == int(np.prod(space.shape))
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


# ------ environments ------
def test_the_environment_of_the_check_is_closed(monkeypatch: pytest.MonkeyPatch):
    """It may be a program that listens at a port, say; the training's is another one."""
    made, make_envs = [], ppo.make_envs
    monkeypatch.setattr(ppo, "make_envs", lambda *a: made.append(make_envs(*a)) or made[-1])
    ppo.check(ppo.Args())
    assert [envs.closed for envs in made] == [True]
