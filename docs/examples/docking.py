"""An environment of one's own: a ship has to stop at a station. Registered on import.

PYTHONPATH=docs/examples uv run ppo/ppo.py --env-id docking:Docking-v0
"""

from typing import Any

import gymnasium as gym
import numpy as np

HEIGHT, WIDTH = 64, 320  # of a film, in pixels


class Docking(gym.Env):
    """A ship on a line, without friction. It docks where it is near the station and slow.

    Observation: position and velocity; the station is at 0. Actions: thrust to the left, none, to
    the right. Reward: by how much the ship comes closer, 1 for docking, -1 for getting lost.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space = gym.spaces.Box(-3, 3, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.position = 0.0
        self.velocity = 0.0

    def observation(self) -> np.ndarray:
        """(2,): position and velocity, both of the order of 1."""
        return np.array([self.position, 10 * self.velocity], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Puts the ship somewhere, drifting."""
        super().reset(seed=seed)  # seeds self.np_random
        self.position = self.np_random.choice([-1, 1]) * self.np_random.uniform(0.5, 1)
        self.velocity = self.np_random.uniform(-0.05, 0.05)
        return self.observation(), {}

    def step(self, action: int) -> Any:
        """Moves the ship for one unit of time."""
        distance = abs(self.position)
        self.velocity += 0.005 * (action - 1)
        self.position += self.velocity
        docked = abs(self.position) < 0.05 and abs(self.velocity) < 0.02
        lost = abs(self.position) > 2
        reward = distance - abs(self.position) + docked - lost
        # Terminated, as the episode is over. The time limit below truncates.
        return self.observation(), float(reward), bool(docked or lost), False, {}

    def render(self) -> np.ndarray:
        """(HEIGHT, WIDTH, 3): the ship is white, the station is green."""
        frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        frame[16:48, WIDTH // 2 - 8 : WIDTH // 2 + 8] = (0, 160, 80)
        ship = int(np.interp(self.position, [-2, 2], [4, WIDTH - 4]))
        frame[28:36, ship - 4 : ship + 4] = 255
        return frame


gym.register("Docking-v0", Docking, max_episode_steps=200)
