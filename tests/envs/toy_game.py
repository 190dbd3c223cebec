"""A toy game with the interface of PettingZoo's parallel Atari games: --env-id toy_v0.

Player p, counted from 0, gets p + 1 points for each frame in which it takes action 1, and -2 for
action 2. Frames show the number of the game and how far it is. A game ends after 4 * LENGTHS[k]
frames, where k counts objects and their games; what else may end it is in the class's attributes.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo import ParallelEnv, register

LENGTHS = (3, 7, 4, 5, 6)  # in steps of four frames


class Toy(ParallelEnv):
    """Class attributes are settings, for all that are made afterwards."""

    players = 2
    outs: dict[int, int] = {}  # noqa: RUF012  # after how many frames a player is out
    limit: int | None = None  # frames after which a game is truncated
    home = 0  # points that the first player gets in each frame for being the first
    made = 0

    metadata = {"render_modes": ["human", "rgb_array"], "name": "toy", "render_fps": 60}  # noqa: RUF012

    @classmethod
    def for_a_test(cls, monkeypatch: pytest.MonkeyPatch) -> type["Toy"]:
        """The class, whose settings are as before again when the test has ended."""
        for name in ("players", "outs", "limit", "home"):
            monkeypatch.setattr(cls, name, getattr(cls, name))
        monkeypatch.setattr(cls, "made", -1)  # one is made to count its players
        return cls

    def __init__(self, **options: Any) -> None:
        Toy.made += 1
        self.options, self.number, self.games = options, Toy.made, 0
        self.possible_agents = [f"{i}_0" for i in range(self.players)]
        self.render_mode = options["render_mode"]

    def observation_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)

    def action_space(self, agent: str) -> gym.Space:
        return gym.spaces.Discrete(3)

    def answer(self) -> dict[str, np.ndarray]:
        frame = np.full((210, 160, 3), self.t, np.uint8)
        frame[:105] = 100 + self.number
        return dict.fromkeys(self.agents, frame)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t = self.possible_agents[:], 0
        self.length = 4 * LENGTHS[(self.number + self.games) % len(LENGTHS)]
        self.games += 1
        return self.answer(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert self.agents and set(actions) == set(self.agents), "stepped beyond the end"
        self.t += 1
        frames = self.answer()
        rewards = {}
        for p, agent in enumerate(self.possible_agents):
            if agent in self.agents:
                paid = {0: 0, 1: p + 1, 2: -2}[int(actions[agent])]
                rewards[agent] = paid + self.home * (p == 0)
        over = self.t >= self.length
        gone = {a: over or self.outs.get(p) == self.t for p, a in enumerate(self.possible_agents)}
        terminated = {agent: gone[agent] for agent in self.agents}
        truncated = dict.fromkeys(self.agents, self.t == self.limit)
        self.agents = [agent for agent in self.agents if not terminated[agent]]
        return frames, rewards, terminated, truncated, {agent: {} for agent in frames}

    def render(self) -> np.ndarray:
        return np.full((210, 160, 3), self.t, np.uint8)


register("parallel", "atari/toy_v0", entry_point=Toy)
