"""ppo_loss and its gradients: against Stable-Baselines3's code and against numbers by hand."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.in_process import load_script
from helpers.sb3_update import ROWS, assert_update_equals_sb3
from torch import Tensor

ppo = load_script("ppo.py")


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"norm_adv": False, "ent_coef": 0.3, "vf_coef": 0.1},
        {"clip_vloss": False, "clip_coef": 0.05},
        {"max_grad_norm": 0.01},
    ],
    ids=str,
)
@pytest.mark.parametrize("value_moved", ["to", "away"])
def test_equals_stable_baselines3(flags: dict[str, Any], value_moved: str):
    actions = torch.randint(3, (ROWS,), generator=torch.Generator().manual_seed(1))
    assert_update_equals_sb3(ppo, gym.spaces.Discrete(3), actions, value_moved, **flags)


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


def test_policy_loss():
    # Gains: min(1, 1) = 1; min(3, 2.4) = 2.4; min(-0.5, -0.8) = -0.8; min(-1.8, -1.8) = -1.8.
    # Their mean is 0.8 / 4.
    loss, stats = loss_by_hand({})
    assert loss == stats["policy_loss"] == pytest.approx(-0.2)
    # With a wider range nothing is clipped: (1 + 3 - 0.5 - 1.8) / 4.
    assert loss_by_hand({}, clip_coef=0.6)[0] == pytest.approx(-0.425)


def test_normalization_of_advantages():
    # Of 2, 4, 6, 8: mean 5, unbiased variance 20/3; the last one becomes 3 / sqrt(20/3). The
    # normalized ones add up to 0, so that only the last ratio's surplus of 0.1 is left over.
    advantages = torch.tensor([2.0, 4.0, 6.0, 8.0])
    changes = {"advantages": advantages, "ratio": torch.tensor([1.0, 1.0, 1.0, 1.1])}
    loss, _ = loss_by_hand(changes, norm_adv=True)
    assert loss == pytest.approx(-0.1 * 3 / (20 / 3) ** 0.5 / 4, rel=1e-4)
    # Without normalization, the mean of 2, 4, 6 and 8.8.
    assert loss_by_hand(changes)[0] == pytest.approx(-5.2)


def test_value_loss():
    # Row 0: 0.9^2 = 0.81, clipped the same. Row 1: 0.5^2, clipped (0.2 - 1)^2 = 0.64.
    # Row 2: 0.5^2, clipped (0.8 - 0)^2 = 0.64. Row 3: 1^2, clipped (0.2 + 0.5)^2 = 0.49.
    loss, stats = loss_by_hand({"advantages": torch.zeros(4)}, vf_coef=2.0)
    assert stats["value_loss"] == pytest.approx((0.81 + 0.64 + 0.64 + 1) / 4 / 2)
    assert loss == pytest.approx(2 * stats["value_loss"])
    _, stats = loss_by_hand({}, clip_vloss=False)
    assert stats["value_loss"] == pytest.approx((0.81 + 0.25 + 0.25 + 1) / 4 / 2)


def test_entropy_and_sum():
    loss, stats = loss_by_hand({}, ent_coef=0.1, vf_coef=0.5)
    assert stats["entropy"] == pytest.approx(0.5)
    # More entropy makes the loss smaller.
    assert loss == pytest.approx(-0.2 - 0.1 * 0.5 + 0.5 * 3.09 / 4 / 2)


def test_statistics():
    _, stats = loss_by_hand({})
    logs = np.log([1, 1.5, 0.5, 0.9])  # 0, 0.4055, -0.6931, -0.1054
    assert stats["old_approx_kl"] == pytest.approx(0.3930426 / 4) == pytest.approx(-logs.mean())
    # The rows' terms: 0; 0.5 - 0.4055; -0.5 + 0.6931; -0.1 + 0.1054.
    assert stats["approx_kl"] == pytest.approx(0.2930426 / 4)
    assert stats["clipfrac"] == pytest.approx(0.5)  # 1.5 and 0.5; 0.9 is within
    _, stats = loss_by_hand({"ratio": torch.ones(4)})
    assert stats["old_approx_kl"] == stats["approx_kl"] == stats["clipfrac"] == 0
