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


def advantages_of(episode: Episode, start: int, stop: int, gamma: float, lam: float) -> list[float]:
    """Advantages of an episode's steps start..stop-1, of which nothing after `stop` is known.

    The definition: A_t = sum over k of (gamma lambda)^k delta_{t+k}, where delta is the one-step
    error of the value, and the value after a terminal state is 0.
    """
    length, result = len(episode.rewards), []
    for t in range(start, stop):
        total = 0.0
        for k in range(stop - t):
            ends_here = t + k + 1 == length and episode.terminated
            value_after = 0.0 if ends_here else episode.values[t + k + 1]
            delta = episode.rewards[t + k] + gamma * value_after - episode.values[t + k]
            total += (gamma * lam) ** k * delta
        result.append(total)
    return result


@dataclass
class Column:
    """What one environment answers, reset steps included, and the advantages of a rollout."""

    rewards: list[float]
    values: list[float]
    terminated: list[bool]
    truncated: list[bool]
    expected: list[float]  # nan: a reset step


def column(rng: np.random.Generator, num_steps: int, gamma: float, lam: float) -> Column:
    """A rollout that begins and ends anywhere: within an episode, at its end, at a reset step."""
    skip = int(rng.integers(10))
    rows = Column([], [], [], [], [])
    while len(rows.values) < skip + num_steps + 1:  # one more, for the last row's next value
        episode = random_episode(rng)
        first, length = len(rows.values), len(episode.rewards)
        start = min(max(skip - first, 0), length)
        stop = max(min(skip + num_steps - first, length), start)
        rows.rewards += [*episode.rewards, 0.0]  # the reset step's reward
        rows.values += [*episode.values]  # its row observes the state in which the episode ended
        rows.terminated += [False] * (length - 1) + [episode.terminated, False]
        rows.truncated += [False] * (length - 1) + [episode.truncated, False]
        known = advantages_of(episode, start, stop, gamma, lam)
        rows.expected += [*[np.nan] * start, *known, *[np.nan] * (length - stop + 1)]
    end = skip + num_steps
    return Column(
        rows.rewards[skip:end],
        rows.values[skip : end + 1],
        rows.terminated[skip:end],
        rows.truncated[skip:end],
        rows.expected[skip:end],
    )


def rollout(seed: int, gamma: float, lam: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Arguments of compute_gae, and the advantages that must come out; nan: any number will do."""
    rng = np.random.default_rng(seed)
    num_steps, num_envs = rng.integers(1, 30), rng.integers(1, 6)
    columns = [column(rng, num_steps, gamma, lam) for _ in range(num_envs)]
    names = {"rewards": np.float32, "values": np.float32, "terminated": bool, "truncated": bool}
    arrays = [
        np.array([getattr(c, name) for c in columns], dtype).T for name, dtype in names.items()
    ]
    return arrays, np.array([c.expected for c in columns]).T


def args_of(gamma: float, lam: float) -> object:
    return ppo.Args(gamma=gamma, gae_lambda=lam)


@pytest.mark.parametrize(
    ("gamma", "lam"), [(0.99, 0.95), (0.9, 0.5), (1.0, 0.9), (0.5, 0.0), (0.97, 1.0), (0.0, 0.3)]
)
def test_equals_the_definition(gamma: float, lam: float):
    seen = {"terminated": 0, "truncated": 0, "both": 0, "reset first": 0, "end last": 0}
    for seed in range(200):
        (rewards, values, terminated, truncated), expected = rollout(seed, gamma, lam)
        before = [array.copy() for array in (rewards, values, terminated, truncated)]
        arguments = rewards, values, terminated, truncated
        advantages, returns = ppo.compute_gae(*arguments, args_of(gamma, lam))
        assert advantages.dtype == returns.dtype == np.float32
        assert advantages.shape == returns.shape == rewards.shape
        valid = ~np.isnan(expected)
        np.testing.assert_allclose(advantages[valid], expected[valid], rtol=2e-5, atol=2e-5)
        value_targets = (expected + values[:-1])[valid]
        np.testing.assert_allclose(returns[valid], value_targets, rtol=2e-5, atol=2e-5)
        for array, copy in zip(arguments, before, strict=True):
            np.testing.assert_array_equal(array, copy)  # a pure function
        seen["terminated"] += (terminated & ~truncated).sum()
        seen["truncated"] += (truncated & ~terminated).sum()
        seen["both"] += (terminated & truncated).sum()
        seen["reset first"] += (~valid[0]).sum()
        seen["end last"] += (terminated | truncated)[-1].sum()
    assert min(seen.values()) > 20, seen  # the cases really occurred


def test_hand_computed():
    # gamma = lambda = 0.5, so that a later delta counts a quarter of the one before.
    # Step 2 terminates and step 3 is its reset step; step 4 is truncated, step 5 the reset step.
    rewards = [1.0, 2.0, 3.0, 0.0, 1.0, 0.0, 4.0]
    values = [2.0, 4.0, 8.0, 100.0, 6.0, 10.0, 2.0, 16.0]
    terminated = [0, 0, 1, 0, 0, 0, 0]
    truncated = [0, 0, 0, 0, 1, 0, 0]
    # delta 0: 1 + 4/2 - 2 = 1     1: 2 + 8/2 - 4 = 2     2: 3 + 0 - 8 = -5
    # delta 4: 1 + 10/2 - 6 = 0    6: 4 + 16/2 - 2 = 10
    # advantage 2: -5    1: 2 - 5/4 = 0.75    0: 1 + 0.75/4 = 1.1875    4: 0    6: 10
    as_column = [np.array(x, np.float32)[:, None] for x in (rewards, values)]
    ends = [np.array(x, bool)[:, None] for x in (terminated, truncated)]
    advantages, returns = ppo.compute_gae(*as_column, *ends, args_of(0.5, 0.5))
    rows = [0, 1, 2, 4, 6]
    np.testing.assert_allclose(advantages[rows, 0], [1.1875, 0.75, -5, 0, 10])
    np.testing.assert_allclose(returns[rows, 0], [3.1875, 4.75, 3, 6, 12])


def test_lambda_0_is_the_one_step_error():
    for seed in range(20):
        (rewards, values, terminated, truncated), expected = rollout(seed, 0.9, 0.0)
        arguments = rewards, values, terminated, truncated
        _, returns = ppo.compute_gae(*arguments, args_of(0.9, 0.0))
        targets = np.where(terminated, rewards, rewards + 0.9 * values[1:])
        valid = ~np.isnan(expected)
        np.testing.assert_allclose(returns[valid], targets[valid], rtol=1e-5, atol=1e-5)


def test_lambda_1_is_the_discounted_sum_of_rewards():
    # Two environments, gamma = 0.5. The first terminates at once and is reset in row 1; the second
    # is truncated by row 2, in a state that is worth 8. Values of the other rows must not matter.
    rewards = np.array([[4, 1], [0, 2], [6, 4]], np.float32)
    values = np.array([[3, -7], [9, 5], [-2, 1], [2, 8]], np.float32)
    terminated = np.array([[1, 0], [0, 0], [0, 0]], bool)
    truncated = np.array([[0, 0], [0, 0], [0, 1]], bool)
    _, returns = ppo.compute_gae(rewards, values, terminated, truncated, args_of(0.5, 1.0))
    np.testing.assert_allclose(returns[:, 1], [1 + 2 / 2 + 4 / 4 + 8 / 8, 2 + 4 / 2 + 8 / 4, 8])
    np.testing.assert_allclose(returns[[0, 2], 0], [4, 6 + 2 / 2])


@pytest.mark.parametrize("seed", range(20))
def test_reset_rows_reach_no_other_row(seed: int):
    """Their rewards never matter; their values only as what a truncated episode goes on to earn."""
    (rewards, values, terminated, truncated), expected = rollout(seed, 0.99, 0.95)
    valid = ~np.isnan(expected)
    args = args_of(0.99, 0.95)
    before, _ = ppo.compute_gae(rewards, values, terminated, truncated, args)
    rewards[~valid] = 1e6
    after_terminal = np.vstack([np.zeros_like(terminated[:1]), terminated])
    values[after_terminal] = -1e6  # the row after a termination is a reset row, or the last value
    after, _ = ppo.compute_gae(rewards, values, terminated, truncated, args)
    np.testing.assert_array_equal(after[valid], before[valid])
