"""compute_gae against the definition of the estimator, and against numbers by hand."""

import numpy as np
import pytest
from helpers.definitions import advantages_by_definition
from helpers.in_process import load_script

ppo = load_script("ppo.py")


@pytest.mark.parametrize(
    ("gamma", "lam"), [(0.99, 0.95), (0.9, 0.5), (1.0, 0.9), (0.5, 0.0), (0.97, 1.0), (0.0, 0.3)]
)
def test_equals_the_definition(gamma: float, lam: float):
    """With ends of either kind, and of both, anywhere; values after a terminal state are noise."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        shape = rng.integers(1, 30), rng.integers(1, 6)
        arguments = [rng.normal(size=shape).astype(np.float32) for _ in range(3)]
        arguments += [rng.random(shape) < 0.2 for _ in range(2)]
        before = [array.copy() for array in arguments]
        args = ppo.Args(gamma=gamma, gae_lambda=lam)
        advantages, returns = ppo.compute_gae(*arguments, args)
        expected = advantages_by_definition(*arguments, args)
        assert advantages.dtype == returns.dtype == np.float32
        np.testing.assert_allclose(advantages, expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(returns, expected + arguments[1], rtol=2e-5, atol=2e-5)
        for array, copy in zip(arguments, before, strict=True):
            np.testing.assert_array_equal(array, copy)  # a pure function


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
    advantages, returns = ppo.compute_gae(*arguments, ppo.Args(gamma=0.5, gae_lambda=0.5))
    np.testing.assert_allclose(advantages[:, 0], [1.1875, 0.75, -5, 0, 10])
    np.testing.assert_allclose(returns[:, 0], [3.1875, 4.75, 3, 6, 12])
