"""The equations of the scripts in JAX beside their definition and beside torch's agents."""

import re
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from helpers.definitions import advantages_by_definition


def assert_gae_is_the_definition(script: ModuleType) -> None:
    """In a rollout of random numbers, with terminations and truncations anywhere."""
    rng = np.random.default_rng(0)
    args = script.Args(gamma=0.9, gae_lambda=0.8)
    rewards, values, next_values = rng.normal(size=(3, 40, 3)).astype(np.float32)
    terminated, truncated = rng.random((2, 40, 3)) < 0.1
    rollout = (rewards, values, next_values, terminated, truncated)
    advantages, returns = script.compute_gae(*rollout, args)
    wanted = advantages_by_definition(*rollout, args)
    np.testing.assert_allclose(advantages, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns, advantages + values, rtol=1e-5, atol=1e-5)


def random_minibatch(rows: int) -> dict[str, np.ndarray]:
    """What ppo_loss asks of a rollout, (rows,) each."""
    rng = np.random.default_rng(1)
    names = ("logprobs", "values", "advantages", "returns")
    return {name: rng.normal(size=rows).astype(np.float32) * 0.3 for name in names}


def torch_weights(named: dict[str, Any], first_layer: int = 0) -> dict[str, torch.Tensor]:
    """An agent's arrays, or their gradient, with the names and shapes of torch's agent.

    named: `network.layers.0.kernel.value` and so on. first_layer: torch's number of layer 0.
    """
    found = {}
    for name, value in named.items():
        array = np.array(value)
        name = name.removesuffix(".value").replace("kernel", "weight")
        name = re.sub(r"layers\.(\d)", lambda match: str(int(match[1]) + first_layer), name)
        if name == "network.7.weight":  # torch flattens images with channels first
            array = array.reshape(7, 7, 64, 512).transpose(2, 0, 1, 3).reshape(3136, 512)
        if name.endswith("weight"):
            array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        found[name] = torch.from_numpy(array.copy())
    return found


def assert_gradient_is_torchs(
    script: ModuleType,
    their: ModuleType,
    agent: Any,
    twin: Any,
    batch: dict[str, np.ndarray],
    first_layer: int = 0,
    **flags: Any,
) -> None:
    """Of a minibatch: the statistics, and the clipped gradient of each parameter.

    twin: torch's agent, which gets the weights of `agent`. flags: of both scripts.
    """
    weights = torch_weights(script.named(agent), first_layer)
    assert weights.keys() == twin.state_dict().keys()
    twin.load_state_dict(weights)
    rows = len(batch["values"])
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    wanted = their.compute_gradient(twin, tensors, torch.arange(rows), their.Args(**flags))
    compute_gradient = jax.jit(partial(script.compute_gradient, args=script.Args(**flags)))
    gradient, found = compute_gradient(agent, jax.tree.map(jnp.asarray, batch), jnp.arange(rows))
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value.item(), rel=1e-3, abs=1e-4), name
    named = torch_weights(script.named(gradient), first_layer)
    parameters = dict(twin.named_parameters())
    for name, array in named.items():
        if name in parameters:
            wanted_array = parameters[name].grad
            atol = 1e-3 * wanted_array.abs().max().item()
            torch.testing.assert_close(array, wanted_array, rtol=1e-3, atol=atol)
        else:  # statistics
            assert not array.any()
    assert parameters.keys() <= named.keys()


def assert_update_is_ppos(script: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Each epoch visits every row once, shuffled; the KL of its last minibatch may be the end.

    The gradient is always 1, so each of Adam's steps takes the learning rate, 0.1, off the weight.
    """
    visited: list[list[int]] = []

    def compute_gradient(agent: dict, batch: dict, mb_inds: Any, args: Any) -> tuple[dict, dict]:
        jax.debug.callback(lambda x: visited.append(x.tolist()), batch["x"][mb_inds], ordered=True)
        weight = agent["weight"]
        stats = {
            "weight": weight,
            "losses/approx_kl": jnp.where(weight < -0.25, 1.0, 0.0),  # from the fourth step on
            "losses/policy_loss": jnp.where(weight < -0.35, jnp.nan, 3.0),  # from the fifth step on
        }
        return {"weight": jnp.ones(())}, stats

    def update(target_kl: float | None) -> tuple[float, dict]:
        """The weight after three epochs of two steps, or less, and the means of the statistics."""
        optimizer = optax.scale_by_adam()
        agent = {"weight": jnp.zeros(())}
        train_state = {"agent": agent, "opt_state": optimizer.init(agent)}
        args = script.Args(
            num_envs=2, num_steps=10, num_minibatches=2, update_epochs=3, target_kl=target_kl
        )
        batch = {"x": jnp.arange(20)}
        train_state, means = script.update_ppo(
            train_state, batch, jax.random.key(0), 0.1, optimizer, args
        )
        jax.effects_barrier()
        return float(train_state["agent"]["weight"]), means

    patch.setattr(script, "compute_gradient", compute_gradient)
    weight, means = update(None)
    assert weight == pytest.approx(-0.6, abs=1e-5)
    assert means["weight"] == pytest.approx(-0.25, abs=1e-5)
    assert [len(rows) for rows in visited] == [10] * 6
    epochs = [visited[i] + visited[i + 1] for i in (0, 2, 4)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, sorted(epochs[0])]}) == 4
    weight, means = update(0.6)
    assert weight == pytest.approx(-0.4, abs=1e-5), "two epochs"
    assert means["weight"] == pytest.approx(-0.15, abs=1e-5)
    assert means["losses/policy_loss"] == 3, "what is thrown away is in no mean"
    assert update(0.0)[0] == weight, "0 is a limit, too"
