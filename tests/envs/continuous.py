"""Environments with continuous actions whose right answers are known: --env-id continuous:<id>."""

from typing import Any

import gymnasium as gym
import numpy as np

# (seed, action) of each step that was executed, in order.
EXECUTED: list[tuple[int, np.ndarray]] = []


class Walk(gym.Env):
    """Random features of different scales; episodes of 1 to 6 steps end in either way.

    The last feature is constant. Rewards differ in scale between episodes, one is huge. An action
    beyond the bounds is an error, so that whoever forgets to clip is told.
    """

    observation_space: gym.Space[Any] = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space: gym.Space[Any] = gym.spaces.Box(-0.5, 0.25, (2,), np.float32)

    def __init__(self, render_mode: str | None = None):
        pass

    def observe(self) -> Any:
        self.x = self.x + self.np_random.normal(size=2) * [50, 0.01]
        return np.array([*self.x, 3.0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self.number, self.episode = seed, 0
        self.x, self.t, self.episode = np.array([1000.0, 0.5]), 0, self.episode + 1
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        EXECUTED.append((self.number, action.copy()))
        self.t += 1
        over = self.t > (self.number + self.episode) % 6
        rare = over and (self.number, self.episode) == (5, 18)
        reward = 1e6 if rare else 7.0 * self.t * self.episode
        return self.observe(), reward, over and self.episode % 2 == 0, over and self.episode % 2, {}


class Unpaid(Walk):
    """The same; nothing is paid."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        observation, _, *rest = super().step(action)
        return observation, 0.0, *rest


class InfWalk(Walk):
    """The same; the first feature is infinite in the tenth episode of each copy."""

    def observe(self) -> Any:
        observation = super().observe()
        if self.episode == 10:
            observation[0] = np.inf
        return observation


class DictWalk(Walk):
    """The same, observed as a dictionary."""

    observation_space = gym.spaces.Dict(
        {"x": gym.spaces.Box(-np.inf, np.inf, (2,)), "y": gym.spaces.Box(-np.inf, np.inf, ())}
    )

    def observe(self) -> Any:
        x, y, z = super().observe().astype(np.float32)
        return {"x": np.array([x, y]), "y": np.array(z)}


class WholeNumbers(Walk):
    """The same, with actions that are whole numbers."""

    action_space = gym.spaces.Box(-3, 3, (2,), np.int32)


class Target(gym.Env):
    """One step; the reward falls with the distance to a target, which is half of what is seen."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space: gym.Space[Any]
    shape: tuple[int, ...] = (1,)

    def __init__(self, shape: tuple[int, ...] = (1,), render_mode: str | None = None):
        self.action_space = gym.spaces.Box(-2, 2, shape, np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.obs = self.np_random.choice([-1.0, 1.0])
        return np.array([self.obs], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = -float(np.sum((action - self.obs / 2) ** 2))
        return np.array([self.obs], np.float32), reward, True, False, {}


gym.register("Walk-v0", Walk, disable_env_checker=True)
gym.register("WholeNumbers-v0", WholeNumbers, disable_env_checker=True)
gym.register("Unpaid-v0", Unpaid, disable_env_checker=True)
gym.register("InfWalk-v0", InfWalk, disable_env_checker=True)
gym.register("DictWalk-v0", DictWalk, disable_env_checker=True)
gym.register("Target-v0", Target, disable_env_checker=True)
for name, shape in {"Scalar": (), "Matrix": (2, 2)}.items():
    gym.register(f"{name}Target-v0", Target, kwargs={"shape": shape}, disable_env_checker=True)
