"""Environments for the tests, registered on import: --env-id clockwork:Clockwork-v0."""

import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class Clockwork(gym.Env):
    """Deterministic; an episode is 7 steps long.

    The observation depends on all actions so far, so that two policies soon see different things.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (gymnasium's own interface)
    length = 7

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space: gym.Space[Any] = gym.spaces.Box(-10, 10, (3,), np.float32)
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(2)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.state = 0, np.array([0.3, -0.2, 0.1], np.float32)
        return self.state.copy(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.state = np.float32([0.5 * self.state[2] + action, *self.state[:2]])
        reward = float(self.state @ np.float32([1, -1, 0.5]))
        return self.state.copy(), reward, self.steps == self.length, False, {}


class NanReward(Clockwork):
    """The tenth episode of each copy pays NaN."""

    episodes = 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.episodes += terminated
        return observation, np.nan if self.episodes > 9 else reward, terminated, truncated, info


class NanObservation(Clockwork):
    """What is seen becomes NaN after the tenth episode of each copy."""

    episodes = 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.episodes += terminated
        if self.episodes > 9:
            observation = observation * np.float32(np.nan)
        return observation, reward, terminated, truncated, info


class SlowStart(Clockwork):
    """Takes a second to start, and notes in the present folder that it does."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        Path(f"starts-{time.time_ns()}").touch()
        time.sleep(1)


class FromFive(Clockwork):
    """Its actions are 5 and 6."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gym.spaces.Discrete(2, start=5)


class MultiDiscreteAction(Clockwork):
    """Takes two actions at once."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gym.spaces.MultiDiscrete([2, 3])


class DictAction(Clockwork):
    """Takes a dictionary of actions: no script of the collection can."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gym.spaces.Dict({"jump": gym.spaces.Discrete(2)})


ENVS = (
    Clockwork,
    NanReward,
    NanObservation,
    SlowStart,
    FromFive,
    MultiDiscreteAction,
    DictAction,
)
for env in ENVS:
    # Gymnasium's own check of the first steps would print warnings of its own.
    gym.register(f"{env.__name__}-v0", env, disable_env_checker=True)
