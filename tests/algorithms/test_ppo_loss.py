"""ppo_loss and its gradients: against Stable-Baselines3's code and against numbers by hand."""

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.in_process import load_script
from torch import Tensor

ppo = load_script("ppo.py")
OBS = gym.spaces.Box(-10, 10, (5,))
ACTIONS = gym.spaces.Discrete(3)
ROWS = 24


def make_agent() -> Any:
    """An agent whose weights are far from the small initial ones."""
    torch.manual_seed(0)
    agent = ppo.Agent(SimpleNamespace(single_observation_space=OBS, single_action_space=ACTIONS))
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.normal_(std=0.4)
    return agent


def make_batch(agent: Any, value_moved: str) -> dict[str, Tensor]:
    """A batch whose ratios and values have moved, in some rows further than the clip range of 0.2.

    value_moved: where the value has moved since the rollout: "to" the return or "away" from it.
    """
    generator = torch.Generator().manual_seed(1)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    obs = normal(ROWS, *OBS.shape)
    actions = torch.randint(int(ACTIONS.n), (ROWS,), generator=generator)
    with torch.no_grad():
        logprobs, _, values = agent.get_logprob_entropy_value(obs, actions)
    change = 0.4 * normal(ROWS)
    distance = change.sign() * (change.abs() + 0.5)  # from the old value to the return
    batch = {"obs": obs, "actions": actions, "values": values - change}
    batch["returns"] = batch["values"] + (distance if value_moved == "to" else -distance)
    batch["logprobs"] = logprobs - 0.3 * normal(ROWS)
    batch["advantages"] = 1 + 2 * normal(ROWS)
    return batch


def among_others(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """A batch of twice as many rows, and a minibatch of the given ones, in random order."""
    more = {name: torch.zeros_like(x) + 7 * x.is_floating_point() for name, x in batch.items()}
    both = {name: torch.cat([x, more[name]]) for name, x in batch.items()}
    return both, torch.randperm(ROWS, generator=torch.Generator().manual_seed(2))


def sb3_update(agent: Any, batch: dict[str, Tensor], **flags: Any) -> tuple[list[Tensor], dict]:
    """Stable-Baselines3's train() on the batch: gradients, in our agent's order, and its log."""
    # Imported here because it takes seconds and the other tests of this file do without it.
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger

    class Spaces(gym.Env):
        observation_space = OBS
        action_space = ACTIONS

    network = {"activation_fn": torch.nn.Tanh, "net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    flags |= {"n_steps": len(batch["obs"]), "batch_size": len(batch["obs"]), "n_epochs": 1}
    # A step of size 0 leaves the weights and the gradients as they are.
    policy = network | {"optimizer_class": torch.optim.SGD}
    model = PPO("MlpPolicy", Spaces(), 0.0, policy_kwargs=policy, device="cpu", **flags)
    model.set_logger(Logger(None, []))
    actor = [*model.policy.mlp_extractor.policy_net.parameters()]
    actor += model.policy.action_net.parameters()
    critic = [*model.policy.mlp_extractor.value_net.parameters()]
    critic += model.policy.value_net.parameters()
    with torch.no_grad():
        for theirs, ours in zip(
            actor + critic, [*agent.actor.parameters(), *agent.critic.parameters()], strict=True
        ):
            theirs.copy_(ours)
    buffer = model.rollout_buffer
    ours_to_theirs = {"obs": "observations", "logprobs": "log_probs"}
    for name in ("obs", "actions", "values", "logprobs", "advantages", "returns"):
        array = getattr(buffer, ours_to_theirs.get(name, name))
        array[:] = batch[name].numpy().reshape(array.shape)
    buffer.full = True
    model.train()
    return [p.grad for p in actor + critic], model.logger.name_to_value


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"norm_adv": False},
        {"ent_coef": 0.0},
        {"ent_coef": 0.3, "vf_coef": 0.1},
        {"vf_coef": 2.0, "clip_coef": 0.05},
        {"max_grad_norm": 0.01},
        {"clip_vloss": False},
        {"clip_vloss": False, "norm_adv": False, "ent_coef": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("value_moved", ["to", "away"])
def test_equals_stable_baselines3(flags: dict[str, Any], value_moved: str):
    args = ppo.Args(**({"max_grad_norm": 1e9} | flags))
    agent = make_agent()
    batch = make_batch(agent, value_moved)
    # With clipping, our error of a value is the greater one of the clipped and the unclipped (as in
    # openai/baselines), and theirs the clipped one. The clipped error is the greater one where the
    # value has moved towards the return, the unclipped where it has moved away.
    clips = args.clip_vloss and value_moved == "to"
    theirs, log = sb3_update(
        agent,
        batch,
        clip_range=args.clip_coef,
        clip_range_vf=args.clip_coef if clips else None,
        normalize_advantage=args.norm_adv,
        ent_coef=args.ent_coef,
        vf_coef=0.5 * args.vf_coef,  # their value loss is a mean of squares, ours half of it
        max_grad_norm=args.max_grad_norm,
    )
    stats = ppo.compute_gradient(agent, *among_others(batch), args)
    stats = {name: x.item() for name, x in stats.items()}
    ours = [p.grad for p in [*agent.actor.parameters(), *agent.critic.parameters()]]
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-3, atol=1e-5 * float(their.abs().max()))
    assert 0.1 < log["train/clip_fraction"] < 0.99  # the clipping was tested
    norm = torch.stack([g.norm() for g in theirs]).norm().item()
    assert (norm < 0.99 * stats["losses/grad_norm"]) == ("max_grad_norm" in flags)
    assert stats["losses/policy_loss"] == pytest.approx(log["train/policy_gradient_loss"], abs=1e-5)
    assert stats["losses/value_loss"] == pytest.approx(0.5 * log["train/value_loss"], rel=1e-4)
    assert stats["losses/entropy"] == pytest.approx(-log["train/entropy_loss"], rel=1e-4)
    assert stats["losses/approx_kl"] == pytest.approx(log["train/approx_kl"], rel=1e-3)
    assert stats["losses/clipfrac"] == pytest.approx(log["train/clip_fraction"], rel=1e-4)
    total = stats["losses/policy_loss"] - args.ent_coef * stats["losses/entropy"]
    total += args.vf_coef * stats["losses/value_loss"]
    assert total == pytest.approx(log["train/loss"], abs=1e-4)


# ------ numbers by hand: ratios 1, 1.5, 0.5, 0.9; clip range 0.2 ------
RATIO = torch.tensor([1.0, 1.5, 0.5, 0.9])
ENTROPY = torch.tensor([0.5, 0.6, 0.7, 0.2])
NEW_VALUE = torch.tensor([0.1, 0.5, 0.5, 0.5])
BATCH = {
    "logprobs": torch.tensor([-1.0, -2.0, -0.5, -0.1]),
    "advantages": torch.tensor([1.0, 2.0, -1.0, -2.0]),
    "values": torch.tensor([0.0, 0.0, 1.0, 0.0]),
    "returns": torch.tensor([1.0, 1.0, 0.0, -0.5]),
}


def loss_by_hand(changes: dict[str, Tensor], **flags: Any) -> tuple[float, dict]:
    """Loss and statistics of the four rows."""
    batch = BATCH | changes
    new = {"logprob": batch["logprobs"] + batch.pop("ratio", RATIO).log()}
    new |= {"entropy": ENTROPY, "value": NEW_VALUE}
    args = ppo.Args(**({"norm_adv": False, "ent_coef": 0.0, "vf_coef": 0.0} | flags))
    loss, stats = ppo.ppo_loss(new["logprob"], new["entropy"], new["value"], batch, args)
    return loss.item(), {name.removeprefix("losses/"): x.item() for name, x in stats.items()}


class TestByHand:
    def test_policy_loss(self):
        # Gains: min(1, 1) = 1; min(3, 2.4) = 2.4; min(-0.5, -0.8) = -0.8; min(-1.8, -1.8) = -1.8.
        # Their mean is 0.8 / 4.
        loss, stats = loss_by_hand({})
        assert loss == stats["policy_loss"] == pytest.approx(-0.2)

    def test_wider_clip_range(self):
        # Nothing is clipped: (1 + 3 - 0.5 - 1.8) / 4.
        assert loss_by_hand({}, clip_coef=0.6)[0] == pytest.approx(-0.425)

    def test_normalization_of_advantages(self):
        # Of 2, 4, 6, 8: mean 5, unbiased variance 20/3; the last one becomes 3 / sqrt(20/3). The
        # normalized ones add up to 0, so that only the last ratio's surplus of 0.1 is left over.
        advantages = torch.tensor([2.0, 4.0, 6.0, 8.0])
        changes = {"advantages": advantages, "ratio": torch.tensor([1.0, 1.0, 1.0, 1.1])}
        loss, _ = loss_by_hand(changes, norm_adv=True)
        assert loss == pytest.approx(-0.1 * 3 / (20 / 3) ** 0.5 / 4, rel=1e-4)
        # Without normalization, the mean of 2, 4, 6 and 8.8.
        assert loss_by_hand(changes)[0] == pytest.approx(-5.2)

    def test_value_loss(self):
        # Row 0: 0.9^2 = 0.81, clipped the same. Row 1: 0.5^2, clipped (0.2 - 1)^2 = 0.64.
        # Row 2: 0.5^2, clipped (0.8 - 0)^2 = 0.64. Row 3: 1^2, clipped (0.2 + 0.5)^2 = 0.49.
        loss, stats = loss_by_hand({"advantages": torch.zeros(4)}, vf_coef=2.0)
        assert stats["value_loss"] == pytest.approx((0.81 + 0.64 + 0.64 + 1) / 4 / 2)
        assert loss == pytest.approx(2 * stats["value_loss"])
        _, stats = loss_by_hand({}, clip_vloss=False)
        assert stats["value_loss"] == pytest.approx((0.81 + 0.25 + 0.25 + 1) / 4 / 2)

    def test_entropy_and_sum(self):
        loss, stats = loss_by_hand({}, ent_coef=0.1, vf_coef=0.5)
        assert stats["entropy"] == pytest.approx(0.5)
        # More entropy makes the loss smaller.
        assert loss == pytest.approx(-0.2 - 0.1 * 0.5 + 0.5 * 3.09 / 4 / 2)

    def test_statistics(self):
        _, stats = loss_by_hand({})
        logs = np.log([1, 1.5, 0.5, 0.9])  # 0, 0.4055, -0.6931, -0.1054
        assert stats["old_approx_kl"] == pytest.approx(0.3930426 / 4) == pytest.approx(-logs.mean())
        # The rows' terms: 0; 0.5 - 0.4055; -0.5 + 0.6931; -0.1 + 0.1054.
        assert stats["approx_kl"] == pytest.approx(0.2930426 / 4)
        assert stats["clipfrac"] == pytest.approx(0.5)  # 1.5 and 0.5; 0.9 is within
        assert all(name in stats for name in ("policy_loss", "value_loss", "entropy"))

    def test_statistics_before_the_first_step(self):
        _, stats = loss_by_hand({"ratio": torch.ones(4)})
        assert stats["old_approx_kl"] == stats["approx_kl"] == stats["clipfrac"] == 0


def test_gradient_is_clipped_over_all_parameters_together():
    norms = {}
    for limit in (1e9, 0.02):
        agent = make_agent()
        args = ppo.Args(max_grad_norm=limit)
        batch = make_batch(agent, "to")
        stats = ppo.compute_gradient(agent, batch, torch.arange(ROWS), args)
        gradient = torch.cat([p.grad.flatten() for p in agent.parameters()])
        norms[limit] = gradient, stats["losses/grad_norm"]
    whole, clipped = norms[1e9], norms[0.02]
    assert whole[0].norm() > 0.1
    torch.testing.assert_close(clipped[0], whole[0] * 0.02 / whole[0].norm(), rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(clipped[1], whole[0].norm())  # logged as it was before
