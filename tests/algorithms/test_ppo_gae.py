"""compute_gae against the definition of the estimator, episode by episode."""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.in_process import load_script

ppo = load_script("ppo.py")


@dataclass
class Episode:
    rewards: np.ndarray  # (length,)
    values: np.ndarray  # (length + 1,), the last one of the state in which the episode ended
    terminated: bool
    truncated: bool


def random_episode(rng: np.random.Generator) -> Episode:
    length = rng.integers(1, 9)
    terminated, truncated = [(True, False), (False, True), (True, True)][rng.integers(3)]
    return Episode(rng.normal(size=length), rng.normal(size=length + 1), terminated, truncated)


def advantage(episode: Episode, t: int, stop: int, gamma: float, lam: float) -> float:
    """Advantage of an episode's step t if nothing after step `stop` is known.

    The definition: A_t = sum over k of (gamma lambda)^k delta_{t+k}, where delta is the one-step
    error of the value, and the value after a terminal state is 0.
    """
    total = 0.0
    for k in range(stop - t):
        ends_here = t + k + 1 == len(episode.rewards) and episode.terminated
        value_after = 0.0 if ends_here else episode.values[t + k + 1]
        delta = episode.rewards[t + k] + gamma * value_after - episode.values[t + k]
        total += (gamma * lam) ** k * delta
    return total


def column(rng: np.random.Generator, num_steps: int, gamma: float, lam: float) -> np.ndarray:
    """What one environment answers in a rollout that begins and ends anywhere: (num_steps, 6).

    A row: reward, value, next value, terminated, truncated, and the advantage. The next value of a
    step that terminates is any number: it must not matter.
    """
    skip = int(rng.integers(9))
    rows: list[tuple[float, ...]] = []
    while len(rows) < skip + num_steps:
        episode = random_episode(rng)
        length = len(episode.rewards)
        stop = min(length, skip + num_steps - len(rows))
        for t in range(length):
            ends = t + 1 == length
            flags = (ends and episode.terminated, ends and episode.truncated)
            known = advantage(episode, t, stop, gamma, lam)
            rows.append((episode.rewards[t], *episode.values[t : t + 2], *flags, known))
    return np.array(rows[skip : skip + num_steps])


def rollout(seed: int, gamma: float, lam: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Arguments of compute_gae, and the advantages that must come out."""
    rng = np.random.default_rng(seed)
    num_steps, num_envs = rng.integers(1, 30), rng.integers(1, 6)
    columns = np.stack([column(rng, num_steps, gamma, lam) for _ in range(num_envs)], axis=1)
    types = (np.float32, np.float32, np.float32, bool, bool)
    return [columns[..., i].astype(dtype) for i, dtype in enumerate(types)], columns[..., 5]


def args_of(gamma: float, lam: float) -> object:
    return ppo.Args(gamma=gamma, gae_lambda=lam)


@pytest.mark.parametrize(
    ("gamma", "lam"), [(0.99, 0.95), (0.9, 0.5), (1.0, 0.9), (0.5, 0.0), (0.97, 1.0), (0.0, 0.3)]
)
def test_equals_the_definition(gamma: float, lam: float):
    seen = {"terminated": 0, "truncated": 0, "both": 0, "end last": 0}
    for seed in range(200):
        arguments, expected = rollout(seed, gamma, lam)
        before = [array.copy() for array in arguments]
        advantages, returns = ppo.compute_gae(*arguments, args_of(gamma, lam))
        rewards, values, _, terminated, truncated = arguments
        assert advantages.dtype == returns.dtype == np.float32
        assert advantages.shape == returns.shape == rewards.shape
        np.testing.assert_allclose(advantages, expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(returns, expected + values, rtol=2e-5, atol=2e-5)
        for array, copy in zip(arguments, before, strict=True):
            np.testing.assert_array_equal(array, copy)  # a pure function
        seen["terminated"] += (terminated & ~truncated).sum()
        seen["truncated"] += (truncated & ~terminated).sum()
        seen["both"] += (terminated & truncated).sum()
        seen["end last"] += (terminated | truncated)[-1].sum()
    assert min(seen.values()) > 20, seen  # the cases really occurred


def as_column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


def test_hand_computed():
    # gamma = lambda = 0.5, so that a later delta counts a quarter of the one before.
    # Step 2 terminates, step 3 is truncated in a state that is worth 10.
    rewards = as_column(1, 2, 3, 1, 4)
    values = as_column(2, 4, 8, 6, 2)
    next_values = as_column(4, 8, 100, 10, 16)
    terminated = as_column(0, 0, 1, 0, 0).astype(bool)
    truncated = as_column(0, 0, 0, 1, 0).astype(bool)
    # delta 0: 1 + 4/2 - 2 = 1     1: 2 + 8/2 - 4 = 2     2: 3 + 0 - 8 = -5
    # delta 3: 1 + 10/2 - 6 = 0    4: 4 + 16/2 - 2 = 10
    # advantage 2: -5    1: 2 - 5/4 = 0.75    0: 1 + 0.75/4 = 1.1875
    arguments = (rewards, values, next_values, terminated, truncated)
    advantages, returns = ppo.compute_gae(*arguments, args_of(0.5, 0.5))
    np.testing.assert_allclose(advantages[:, 0], [1.1875, 0.75, -5, 0, 10])
    np.testing.assert_allclose(returns[:, 0], [3.1875, 4.75, 3, 6, 12])


def test_lambda_1_is_the_discounted_sum_of_rewards():
    # gamma = 0.5; truncated in a state that is worth 8. Values on the way do not matter.
    ends = as_column(0, 0, 1).astype(bool)
    arguments = (as_column(1, 2, 4), as_column(-7, 5, 1), as_column(5, 1, 8), ends & False, ends)
    _, returns = ppo.compute_gae(*arguments, args_of(0.5, 1.0))
    np.testing.assert_allclose(returns[:, 0], [1 + 2 / 2 + 4 / 4 + 8 / 8, 2 + 4 / 2 + 8 / 4, 8])
