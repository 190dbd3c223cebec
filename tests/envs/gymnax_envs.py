"""Small gymnax environments whose right answers are known; importing this registers them."""

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces


@struct.dataclass
class State(environment.EnvState):
    time: int
    x: float


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: int = 5


class Corridor(environment.Environment):
    """Action 1 goes up, action 0 down; at 3 and -3 it terminates, after five steps it is cut off.

    Observes place and time; the reward is the place.
    """

    @property
    def default_params(self) -> Params:
        return Params()

    def step_env(self, key: Any, state: State, action: Any, params: Params) -> tuple:
        state = State(time=state.time + 1, x=state.x + 2.0 * action - 1.0)
        return self.get_obs(state), state, state.x, jnp.abs(state.x) >= 3, {}

    def reset_env(self, key: Any, params: Params) -> tuple[Any, State]:
        state = State(time=0, x=jax.random.randint(key, (), -1, 2).astype(float))
        return self.get_obs(state), state

    def get_obs(self, state: State, params: Any = None, key: Any = None) -> Any:
        return jnp.array([state.x, state.time], float)

    def action_space(self, params: Any = None) -> spaces.Discrete:
        return spaces.Discrete(2)

    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-3, 5, (2,))


class Stream(Corridor):
    """Action 1 earns 1, action 0 costs 1; cut off every third step, never over; shows always 0."""

    @property
    def default_params(self) -> Params:
        return Params(max_steps_in_episode=3)

    def step_env(self, key: Any, state: State, action: Any, params: Params) -> tuple:
        state = State(time=state.time + 1, x=state.x)
        return self.get_obs(state), state, 2.0 * action - 1.0, jnp.array(False), {}

    def get_obs(self, state: State, params: Any = None, key: Any = None) -> Any:
        return jnp.zeros(2)


for env in (Corridor, Stream):
    gymnax.register(f"{env.__name__}-test", env)
