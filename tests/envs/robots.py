"""Tasks as MuJoCo Playground has them, without physics: --env-id robots:<name>."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from flax import struct
from ml_collections import config_dict
from mujoco_playground import MjxEnv, State, dm_control_suite

HINGE = "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"
NAN = jnp.nan


@struct.dataclass
class Data:
    """What a task remembers: a number that its start drew, the steps since; and a pose."""

    birth: Any
    t: Any
    qpos: Any
    qvel: Any
    mocap_pos: Any
    mocap_quat: Any


def config() -> config_dict.ConfigDict:
    """Episodes of six steps at most."""
    return config_dict.create(ctrl_dt=0.02, sim_dt=0.02, episode_length=6, impl="jax")


class Drill(MjxEnv):
    """Shows the number that an episode was born with, the step, the action executed, and a 3.

    By its number an episode terminates after 1 to 6 steps, or does not; what ends it may be a
    simulation that blew up. One episode in a hundred pays a huge reward at its end.
    """

    action_size = 2
    xml_path = ""
    mjx_model = None
    mj_model = mujoco.MjModel.from_xml_string(HINGE)

    def __init__(self, config: Any, config_overrides: Any = None):
        super().__init__(config, config_overrides)

    def state(self, birth: Any, t: Any, action: Any) -> State:
        number = jnp.floor(birth)
        over = t == 1 + number % 10
        blown_up = over & (number % 7 == 0)
        obs = jnp.array([birth, t, action[0], action[1], 3.0])
        obs = jnp.where(blown_up, NAN, obs)
        reward = t * (1 + number % 3)
        reward = jnp.where((number % 100 == 5) & over, 1e5, reward)
        reward = jnp.where(blown_up, NAN, reward)
        pose = {"mocap_pos": jnp.zeros((0, 3)), "mocap_quat": jnp.zeros((0, 4))}
        data = Data(birth, t, qpos=jnp.full(1, t, float), qvel=jnp.ones(1), **pose)
        return State(data, obs, reward, over.astype(float), {}, {"_steps": t, "total": 0.0})

    def reset(self, rng: Any) -> State:
        birth = jax.random.uniform(rng, maxval=1000.0)
        return self.state(birth, jnp.zeros((), int), jnp.zeros(2))

    def step(self, state: State, action: Any) -> State:
        # Some of Playground's tasks count in `info`, which an episode's end does not reset.
        return self.state(state.data.birth, state.info["_steps"] + 1, action)


class Unpaid(Drill):
    """The same; nothing is paid."""

    def state(self, *arguments: Any) -> State:
        return super().state(*arguments).replace(reward=jnp.zeros(()))


class DictDrill(Drill):
    """The same, with more for the critic to see."""

    def state(self, *arguments: Any) -> State:
        state = super().state(*arguments)
        return state.replace(obs={"state": state.obs, "privileged_state": jnp.ones(99)})


class Explosion(Drill):
    """All episodes alike: 1 is paid and threes are shown, then 1e20, then what is not a number."""

    def state(self, birth: Any, t: Any, action: Any) -> State:
        grown = jnp.where(t < 2, 1.0, jnp.where(t == 2, 1e20, NAN))
        over = (t == 3).astype(float)
        state = super().state(birth, t, action)
        return state.replace(obs=jnp.full(5, 3.0) * grown, reward=grown, done=over)


class UnnoticedExplosion(Explosion):
    """The same, but the task does not see that its speed is not a number any more.

    It pays according to a sum that it keeps, in which what is not a number stays.
    """

    def step(self, state: State, action: Any) -> State:
        after = super().step(state, action)
        total = state.info["total"] + after.reward
        return after.replace(reward=after.reward + 0 * total, info=after.info | {"total": total})

    def state(self, birth: Any, t: Any, action: Any) -> State:
        state = super().state(birth, t, action)
        data = state.data.replace(qvel=jnp.where(t == 3, NAN, jnp.ones(1)))
        return state.replace(data=data, done=jnp.zeros(()))


class Metronome(Drill):
    """All episodes alike, each as long as a rollout of 16 steps."""

    def reset(self, rng: Any) -> State:
        return self.state(jnp.array(29.0), jnp.zeros((), int), jnp.zeros(2))

    def state(self, birth: Any, t: Any, action: Any) -> State:
        reward = 1.0 + t - jnp.sum(action**2)
        return super().state(birth, t, action).replace(reward=reward, done=jnp.zeros(()))


class Target(Drill):
    """One step; the reward falls with the distance to a target, which is half of what is seen."""

    def reset(self, rng: Any) -> State:
        side = jnp.where(jax.random.bernoulli(rng), 1.0, -1.0)
        return self.at(side, jnp.zeros((), int), jnp.zeros(()))

    def step(self, state: State, action: Any) -> State:
        side = state.data.birth
        return self.at(side, state.data.t + 1, -jnp.sum((action - side / 2) ** 2))

    def at(self, side: Any, t: Any, reward: Any) -> State:
        state = self.state(side, t, jnp.zeros(2))
        return state.replace(obs=side[None], reward=reward, done=(t > 0).astype(float))


def long_config() -> config_dict.ConfigDict:
    """Episodes of 16 steps at most, of a task that does not let one choose its physics."""
    return config_dict.create(ctrl_dt=0.02, sim_dt=0.02, episode_length=16)


for task in (Drill, Unpaid, DictDrill, Explosion, UnnoticedExplosion, Target):
    dm_control_suite.register_environment(task.__name__, task, config)
dm_control_suite.register_environment("Metronome", Metronome, long_config)
