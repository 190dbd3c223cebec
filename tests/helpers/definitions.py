"""What the scripts compute step by step, by its definition: advantages, statistics, rewards."""

from typing import Any

import numpy as np


def advantages_by_definition(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    args: Any,
) -> np.ndarray:
    """What compute_gae must return for the same arguments, (num_steps, num_envs) each.

    Of each step: the one-step errors of the rest of its episode, summed up with the weights
    (gamma lambda)^k.
    """
    advantages = np.zeros(rewards.shape)
    for first, env in np.ndindex(rewards.shape):
        weight = 1.0
        for t in range(first, len(rewards)):
            after = 0.0 if terminated[t, env] else next_values[t, env]
            error = rewards[t, env] + args.gamma * after - values[t, env]
            advantages[first, env] += weight * error
            if terminated[t, env] or truncated[t, env]:
                break
            weight *= args.gamma * args.gae_lambda
    return advantages


def two_pass(x: np.ndarray) -> np.ndarray:
    """Count, mean and deviation of each column: (rows, columns) -> (3, columns)."""
    return np.stack([np.full(x.shape[1], len(x)), x.mean(0), x.std(0)])


def discounted_sums(rewards: np.ndarray, done: np.ndarray, gamma: float) -> np.ndarray:
    """Of each row: the rewards of its episode up to it, each discounted by its age.

    rewards, done, and what is returned: (steps, environments).
    """
    sums = np.zeros(rewards.shape)
    for env in range(rewards.shape[1]):
        first = 0
        for t in range(len(rewards)):
            ages = t - np.arange(first, t + 1)
            sums[t, env] = gamma**ages @ rewards[first : t + 1, env]
            if done[t, env]:
                first = t + 1
    return sums


def assert_rewards_are_scaled(
    scaled: list[np.ndarray], paid: np.ndarray, done: np.ndarray, gamma: float, rtol: float = 1e-4
) -> None:
    """By the deviation of the discounted sums up to and including their rollout; then clipped.

    scaled: of each rollout, (num_steps, environments); paid, done: of all of them.
    """
    sums, end, clipped = discounted_sums(paid, done, gamma), 0, 0
    for rewards in scaled:
        start, end = end, end + len(rewards)
        expected = paid[start:end] / sums[:end].std()
        clipped += (expected > 10).sum()
        np.testing.assert_allclose(rewards, expected.clip(-10, 10), rtol=rtol, atol=1e-5)
    assert end == len(paid) and clipped > 0
