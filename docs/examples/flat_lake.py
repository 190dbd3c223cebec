"""FrozenLake with its square as a row of zeros and a one: observations as ppo.py takes them."""

from typing import Any

import gymnasium as gym


def make_lake(**options: Any) -> gym.Env:
    """The lake; the options are those of gym.make."""
    return gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1", **options))


gym.register("FlatLake-v0", make_lake)
