"""Small environments whose right answers are known; `probes:<id>` makes Gymnasium import them."""

from typing import Any

import gymnasium as gym
import numpy as np

# ------ Probe environments of andyljones.com/posts/rl-debugging.html, and one more ------
# kind: number of actions, whether the observation is drawn from -1 and 1, steps, reward.
PROBES: dict[str, tuple[int, bool, int, Any]] = {
    "Constant": (1, False, 1, lambda obs, action, last: 1.0),
    "Observation": (1, True, 1, lambda obs, action, last: obs),
    "Discount": (1, False, 2, lambda obs, action, last: float(last)),
    "Action": (2, False, 1, lambda obs, action, last: 2.0 * action - 1),
    "Both": (2, True, 1, lambda obs, action, last: obs * (2.0 * action - 1)),
    # Nothing for the first step, then an endless stream of ones that a time limit soon cuts off.
    "TimeLimit": (1, False, 3, lambda obs, action, last: float(obs == 1)),
}


class Probe(gym.Env):
    def __init__(self, kind: str):
        self.kind = kind
        actions, self.random, self.length, self.reward = PROBES[kind]
        self.observation_space = gym.spaces.Box(-1, 1, (1,))
        self.action_space = gym.spaces.Discrete(actions)

    def observe(self) -> np.ndarray:
        if self.random:
            self.obs = self.np_random.choice([-1.0, 1.0])
        elif self.kind == "Discount":  # zero, then one; the last state looks like the first
            self.obs = float(self.t == 1)
        elif self.kind == "TimeLimit":
            self.obs = 1.0 if self.t > 0 else -1.0
        else:
            self.obs = 0.0
        return np.array([self.obs], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        last = self.t == self.length
        reward = self.reward(self.obs, action, last)
        limit = self.kind == "TimeLimit"
        return self.observe(), reward, last and not limit, last and limit, {}


# ------ An environment whose observations tell which episode and step they belong to ------
# (seed, episode, step, action) of each step that was executed, in order.
EXECUTED: list[tuple[int, int, int, int]] = []


def plan(seed: int, episode: int) -> tuple[int, bool, bool]:
    """Length of an episode (1 to 5 steps) and whether it ends terminated, truncated or both."""
    return 1 + (seed * 3 + episode * 2) % 5, *[(1, 0), (0, 1), (1, 1)][(seed + episode) % 3]


def reward_of(episode: int, step: int) -> float:
    """Of a step, counted from 0 in its episode."""
    return 1.0 + step + 8 * (episode % 3)


class Counter(gym.Env):
    """Observes (seed, episode, step, whether the episode is over), always in the same array."""

    observation_space = gym.spaces.Box(0, 1e7, (4,))
    action_space = gym.spaces.Discrete(4)

    def __init__(self):
        self.buffer = np.zeros(4, np.float32)

    def observe(self) -> np.ndarray:
        over = self.t == plan(self.number, self.episode)[0]
        self.buffer[:] = self.number, self.episode, self.t, over
        return self.buffer

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self.number, self.episode = seed, -1
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        length, terminates, truncates = plan(self.number, self.episode)
        assert self.t < length, "stepped beyond the end"
        EXECUTED.append((self.number, self.episode, self.t, int(action)))
        reward = reward_of(self.episode, self.t)
        self.t += 1
        over = self.t == length
        return self.observe(), reward, over and bool(terminates), over and bool(truncates), {}


# ------ Observation spaces of all shapes and types ------
SPACES = {
    "Vector": gym.spaces.Box(-1, 1, (4,)),
    "Matrix": gym.spaces.Box(-1, 1, (2, 3)),
    "Bytes": gym.spaces.Box(0, 255, (2, 3), np.uint8),
    "Double": gym.spaces.Box(-1, 1, (3,), np.float64),
}


class Shaped(gym.Env):
    """Random observations; rewards action 1; episodes of three steps."""

    def __init__(self, space: str):
        self.observation_space = SPACES[space]
        self.action_space = gym.spaces.Discrete(3)

    def observe(self) -> np.ndarray:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return np.asarray(self.observation_space.sample())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return self.observe(), float(action == 1), self.t == 3, False, {}


for name in PROBES:
    gym.register(f"{name}-v0", Probe, kwargs={"kind": name})
for name in SPACES:
    gym.register(f"{name}-v0", Shaped, kwargs={"space": name})
gym.register("Counter-v0", Counter, disable_env_checker=True)  # it dislikes the array
