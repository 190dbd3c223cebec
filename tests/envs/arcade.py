"""Small environments with the interface of ALE's games, for `train`: env_id="arcade:<id>"."""

from typing import Any

import gymnasium as gym
import numpy as np


class Arcade(gym.Env):
    """Frames of one brightness. Subclasses say what is shown, and what is paid."""

    observation_space = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
    action_space = gym.spaces.Discrete(4)
    frames = 120  # of an episode

    def __init__(self, frameskip: int = 1, render_mode: str | None = None) -> None:
        assert frameskip == 1

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "UP", "RIGHT", "LEFT"]

    def brightness(self) -> float:
        return 255 * self.t / self.length

    def lives(self) -> int:
        return 0

    def reward(self, action: int) -> float:
        return float(action == 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t, self.length = 0, self.frames
        return self.observe(), {"lives": self.lives()}

    def observe(self) -> np.ndarray:
        return np.full((210, 160, 3), self.brightness(), np.uint8)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        over = self.t == self.length
        return self.observe(), self.reward(action), over, False, {"lives": self.lives()}


class Short(Arcade):
    """Episodes of 40 to 76 frames, brighter from frame to frame; up to 30 pass before acting."""

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        obs, info = super().reset(**kwargs)
        self.length = 40 + 4 * int(self.np_random.integers(10))
        return obs, info


class Recall(Arcade):
    """Bright or dark at first, then gray; 1 for the last action if it names what it was at first.

    However many frames pass before acting, the first observation shows it and the last four do not.
    """

    frames, bright = 64, False

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        super().reset(**kwargs)
        self.bright = bool(self.np_random.integers(2))
        return self.observe(), {"lives": 0}

    def brightness(self) -> float:
        return 255.0 * self.bright if self.t <= 36 else 127

    def reward(self, action: int) -> float:
        return float(self.t == self.length and action == 2 + self.bright)


# A time limit cuts episodes off when they are half as bright as they could be.
gym.register("Cut-v0", Arcade, max_episode_steps=60, disable_env_checker=True)
gym.register("Short-v0", Short, disable_env_checker=True)
gym.register("Recall-v0", Recall, disable_env_checker=True)
