"""A gradient of Stable-Baselines3's PPO beside one of ours, on the same minibatch."""

from types import ModuleType
from typing import Any

import gymnasium as gym
import pytest
import torch
from helpers.checks import new_agent
from torch import Tensor

OBS = gym.spaces.Box(-10, 10, (5,))
ROWS = 24


def moved_agent(script: ModuleType, actions: gym.Space[Any]) -> Any:
    """An agent whose weights are far from the small initial ones."""
    agent = new_agent(script, OBS, actions)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.normal_(std=0.4)
    return agent


def make_batch(agent: Any, actions: Tensor, value_moved: str) -> dict[str, Tensor]:
    """A batch whose ratios and values have moved, in some rows further than the clip range of 0.2.

    value_moved: where the value has moved since the rollout: "to" the return or "away" from it.
    """
    obs = torch.randn(ROWS, *OBS.shape)
    with torch.no_grad():
        logprobs, _, values = agent.get_logprob_entropy_value(obs, actions)
    change = 0.4 * torch.randn(ROWS)
    distance = change.sign() * (change.abs() + 0.5)  # from the old value to the return
    batch = {"obs": obs, "actions": actions, "values": values - change}
    batch["returns"] = batch["values"] + (distance if value_moved == "to" else -distance)
    batch["logprobs"] = logprobs - 0.3 * torch.randn(ROWS)
    batch["advantages"] = 1 + 2 * torch.randn(ROWS)
    return batch


def among_others(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """A batch of twice as many rows, and a minibatch of the given ones, in random order."""
    more = {name: torch.zeros_like(x) + 7 * x.is_floating_point() for name, x in batch.items()}
    return {name: torch.cat([x, more[name]]) for name, x in batch.items()}, torch.randperm(ROWS)


def sb3_update(
    agent: Any, batch: dict[str, Tensor], actions: gym.Space[Any], **flags: Any
) -> tuple[list[Tensor], dict[str, float]]:
    """Stable-Baselines3's train() on the batch: gradients, in our agent's order, and its log."""
    # Imported here because it takes seconds and most tests do without it.
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger

    class Spaces(gym.Env):
        observation_space = OBS
        action_space = actions

    policy = {"activation_fn": torch.nn.Tanh, "net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    policy["optimizer_class"] = torch.optim.SGD
    flags |= {"n_steps": ROWS, "batch_size": ROWS, "n_epochs": 1, "device": "cpu"}
    # A step of size 0 leaves the weights and the gradients as they are.
    model = PPO("MlpPolicy", Spaces(), 0.0, policy_kwargs=policy, **flags)
    model.set_logger(Logger(None, []))
    extractor = model.policy.mlp_extractor
    theirs = [*extractor.value_net.parameters(), *model.policy.value_net.parameters()]
    theirs += [*extractor.policy_net.parameters(), *model.policy.action_net.parameters()]
    if hasattr(agent, "actor_logstd"):
        theirs.append(model.policy.log_std)
    with torch.no_grad():
        for their, our in zip(theirs, our_parameters(agent), strict=True):
            their.copy_(our)
    buffer = model.rollout_buffer
    ours_to_theirs = {"obs": "observations", "logprobs": "log_probs"}
    for name, rows in batch.items():
        array = getattr(buffer, ours_to_theirs.get(name, name))
        array[:] = rows.numpy().reshape(array.shape)
    buffer.full = True
    model.train()
    return [p.grad for p in theirs], model.logger.name_to_value


def our_parameters(agent: Any) -> list[Tensor]:
    """The critic's, the actor's, and the logarithm of the standard deviations if there is one."""
    parameters = [*agent.critic.parameters(), *agent.actor.parameters()]
    if hasattr(agent, "actor_logstd"):
        parameters.append(agent.actor_logstd)
    return parameters


def assert_update_equals_sb3(
    script: ModuleType, space: gym.Space[Any], actions: Tensor, value_moved: str, **flags: Any
) -> None:
    """Gradient and statistics of a minibatch in which much is clipped.

    With clipping, our error of a value is the greater one of the clipped and the unclipped (as in
    openai/baselines), and theirs the clipped one. The clipped error is the greater one where the
    value has moved towards the return, the unclipped where it has moved away.
    """
    args = script.Args(**({"max_grad_norm": 1e9} | flags))
    agent = moved_agent(script, space)
    batch = make_batch(agent, actions, value_moved)
    theirs, log = sb3_update(
        agent,
        batch,
        space,
        clip_range=args.clip_coef,
        clip_range_vf=args.clip_coef if args.clip_vloss and value_moved == "to" else None,
        normalize_advantage=args.norm_adv,
        ent_coef=args.ent_coef,
        vf_coef=0.5 * args.vf_coef,  # their value loss is a mean of squares, ours half of it
        max_grad_norm=args.max_grad_norm,
    )
    stats = script.compute_gradient(agent, *among_others(batch), args)
    stats = {name.removeprefix("losses/"): x.item() for name, x in stats.items()}
    for our, their in zip(our_parameters(agent), theirs, strict=True):
        close = {"rtol": 1e-3, "atol": 1e-5 * float(their.abs().max())}
        torch.testing.assert_close(our.grad, their, **close)
    assert 0.1 < log["train/clip_fraction"] < 0.99  # the clipping was tested
    norm = torch.stack([g.norm() for g in theirs]).norm().item()
    assert (norm < 0.99 * stats["grad_norm"]) == ("max_grad_norm" in flags)
    if "max_grad_norm" not in flags:
        assert stats["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert stats["policy_loss"] == pytest.approx(log["train/policy_gradient_loss"], abs=1e-5)
    assert stats["value_loss"] == pytest.approx(0.5 * log["train/value_loss"], rel=1e-4)
    assert stats["entropy"] == pytest.approx(-log["train/entropy_loss"], rel=1e-4)
    assert stats["approx_kl"] == pytest.approx(log["train/approx_kl"], rel=1e-3)
    assert stats["clipfrac"] == pytest.approx(log["train/clip_fraction"], rel=1e-4)
