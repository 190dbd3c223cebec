"""ppo_loss and its gradients: against Stable-Baselines3's code; its statistics by hand."""

from typing import Any

import gymnasium as gym
import pytest
import torch
from helpers.in_process import load_script
from helpers.sb3_update import ROWS, assert_update_equals_sb3

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


def statistics(*ratios: float) -> dict[str, float]:
    """Of rows with these ratios; the clip range is 0.2."""
    zeros = torch.zeros(len(ratios))
    batch = dict.fromkeys(("logprobs", "advantages", "values", "returns"), zeros)
    _, stats = ppo.ppo_loss(torch.tensor(ratios).log(), zeros, zeros, batch, ppo.Args())
    return {name.removeprefix("losses/"): x.item() for name, x in stats.items()}


def test_statistics():
    stats = statistics(1.0, 1.5, 0.5, 0.9)  # their logarithms: 0, 0.4055, -0.6931, -0.1054
    assert stats["old_approx_kl"] == pytest.approx(0.3930426 / 4)
    # The rows' terms: 0; 0.5 - 0.4055; -0.5 + 0.6931; -0.1 + 0.1054.
    assert stats["approx_kl"] == pytest.approx(0.2930426 / 4)
    assert stats["clipfrac"] == pytest.approx(0.5)  # 1.5 and 0.5; 0.9 is within
    stats = statistics(1.0, 1.0)
    assert stats["old_approx_kl"] == stats["approx_kl"] == stats["clipfrac"] == 0
