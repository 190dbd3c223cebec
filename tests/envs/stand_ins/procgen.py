"""A stand-in for the package Procgen, whose simulator does not run everywhere: one toy game.

It answers as Procgen does, with which test_ppo_procgen.py trains as well: what a step did is seen
after it, and where an episode ended, the next one's first observation is seen at once. An episode
lasts 3 to 8 steps, a number that its level decides; a step pays the action, the last one 100 more,
and on one level in 32 the last one 10,000. The upper half of the picture shows which level it is,
the lower half the step.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

env = SimpleNamespace(ENV_NAMES=["bigfish", "coinrun", "starpilot"])
made: list["ProcgenGym3Env"] = []  # those of this process, the latest one last


def length_of(level: int) -> int:
    """Steps of an episode on the level."""
    return 3 + level % 6


class ProcgenGym3Env:
    """`num` games on levels that `rand_seed` draws."""

    def __init__(self, num: int, env_name: str, **options: Any) -> None:
        self.num, self.options = num, {"env_name": env_name, **options}
        self.generator = np.random.default_rng(options["rand_seed"])
        self.level = [self.draw() for _ in range(num)]
        self.step, self.reward = np.zeros(num, int), np.zeros(num, np.float32)
        self.first = np.ones(num, bool)
        self.seen = set(self.level)
        made.append(self)

    def draw(self) -> int:
        start, count = self.options["start_level"], self.options["num_levels"]
        end = start + count if count else 2**31 - 1
        return int(self.generator.integers(start if count else 0, end))

    def observe(self) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        picture = np.zeros((self.num, 64, 64, 3), np.uint8)
        for i in range(self.num):
            picture[i, :32], picture[i, 32:] = self.level[i] % 256, 30 * self.step[i]
        return self.reward.copy(), {"rgb": picture}, self.first.copy()

    def act(self, action: np.ndarray) -> None:
        assert action.shape == (self.num,)
        self.step, self.reward = self.step + 1, action.astype(np.float32)
        self.first = self.step == [length_of(level) for level in self.level]
        for i in np.flatnonzero(self.first):
            self.reward[i] += 10_000 if self.level[i] % 32 == 0 else 100
            self.step[i], self.level[i] = 0, self.draw()
            self.seen.add(self.level[i])
