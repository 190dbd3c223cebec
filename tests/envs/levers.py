"""Environments with several actions at a time, most of them invalid: --env-id levers:Levers-v0."""

from typing import Any

import gymnasium as gym
import numpy as np

NVEC = (3, 12, 5)
STATES = 4


def mask_of(state: int) -> np.ndarray:
    """What is valid in a state: one choice of the first component, two of each other one."""
    parts = [np.zeros(n, bool) for n in NVEC]
    for component, part in enumerate(parts):
        for k in range(1 + (component > 0)):
            part[(3 * state + 2 * component + 2 * k) % len(part)] = True
    return np.concatenate(parts)


def right_of(state: int) -> tuple[int, ...]:
    """The action that is rewarded in a state: the last valid choice of each component."""
    cuts = np.split(mask_of(state), np.cumsum(NVEC)[:-1])
    return tuple(int(np.flatnonzero(part)[-1]) for part in cuts)


class Levers(gym.Env):
    """Observes one of four states; pays a point for the state's right action, episodes of 4 to 8.

    gives: how masks are told. info: in every info but an episode's last one, as int8; tuple: the
    same, an array for each component; method: by action_mask() alone; none: not at all; empty: by
    masks that leave the second component no choice from the third step on; short: by masks of the
    first component alone. With `strict` an invalid action is an error, else it just does not pay.
    """

    def __init__(self, gives: str = "info", strict: bool = True, render_mode: str | None = None):
        self.observation_space = gym.spaces.Box(0, 1, (STATES,))
        self.action_space: gym.Space[Any] = gym.spaces.MultiDiscrete(NVEC)
        self.gives, self.strict = gives, strict
        if gives == "method":
            self.action_mask = self.valid

    def valid(self) -> np.ndarray:
        assert self.t < self.length, "asked for the mask of an episode that is over"
        return mask_of(self.state)

    def observe(self) -> tuple[np.ndarray, dict]:
        self.state = int(self.np_random.integers(STATES))
        mask, info = mask_of(self.state), {}
        if self.gives == "empty" and self.t >= 3:
            mask[NVEC[0] : NVEC[0] + NVEC[1]] = False
        if self.gives in ("info", "empty", "short") and self.t < self.length:
            info["action_mask"] = mask.astype(np.int8)[: NVEC[0] if self.gives == "short" else None]
        if self.gives == "tuple" and self.t < self.length:
            info["action_mask"] = tuple(np.split(mask.astype(np.int8), np.cumsum(NVEC)[:-1]))
        return np.eye(STATES, dtype=np.float32)[self.state], info

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(4, 9))
        return self.observe()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        valid = mask_of(self.state)[np.cumsum((0, *NVEC[:-1])) + action].all()
        assert valid or not self.strict, f"{action} is invalid in state {self.state}"
        reward = float(tuple(action) == right_of(self.state))
        self.t += 1
        obs, info = self.observe()
        over, limit = self.t == self.length, bool(self.length % 2)
        return obs, reward, over and not limit, over and limit, info


class Table(gym.Env):
    """Acts in any MultiDiscrete space; pays the sum of the action's entries, episodes of 5.

    It takes no argument `render_mode`, as some environments do not.
    """

    def __init__(self, space: gym.Space[Any]):
        self.observation_space = gym.spaces.Box(0, 1, (2,))
        self.action_space = space

    def action_mask(self) -> np.ndarray:
        return np.ones(self.action_space.nvec.sum(), np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.ones(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
        self.t += 1
        return np.ones(2, np.float32), float(action.sum()), self.t == 5, False, {}


for gives in ("info", "tuple", "method", "none", "empty", "short"):
    name = "Levers" if gives == "info" else f"Levers{gives.title()}"
    gym.register(f"{name}-v0", Levers, kwargs={"gives": gives})
gym.register("LeversLoose-v0", Levers, kwargs={"strict": False})
gym.register("Levers2D-v0", Table, kwargs={"space": gym.spaces.MultiDiscrete([[2, 3], [4, 1]])})
