"""The JAX scripts: their equations equal torch's, their loop and their scan are the same training.

What a run does is watched with `Clockwork` in place of EnvPool, a small network, and `proportional`
in place of the gradient: known functions, which compile in no time.
"""

import dataclasses
import os
import pickle
import re
import shutil
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.in_process import Run, flags_shown, load_script, train

jax = pytest.importorskip("jax", reason="needs the extra `jax`")
envpool = pytest.importorskip("envpool", reason="needs the extra `envpool`")
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from flax import nnx, serialization  # noqa: E402
from helpers.jax_command_line import (  # noqa: E402
    assert_stopped_and_resumed,
    played,
    state_of,
)
from helpers.random_keys import Keys  # noqa: E402

jax.config.update("jax_platforms", "cpu")
LOOP, SCAN = "ppo_atari_envpool_xla_jax.py", "ppo_atari_envpool_xla_jax_scan.py"
SCRIPTS = [load_script(LOOP), load_script(SCAN)]
both = pytest.mark.parametrize("script", SCRIPTS, ids=["loop", "scan"])
their = load_script("ppo_atari_envpool.py")
STEPS, ENVS = 10, 2  # of a rollout with Clockwork
TINY = {"num_envs": ENVS, "num_steps": STEPS, "num_minibatches": 2, "update_epochs": 2}
TINY |= {"env_threads": 1}


def rollout(seed: int = 0, steps: int = 40, envs: int = 3) -> tuple[np.ndarray, ...]:
    """Rewards, values before and after steps, terminations, truncations: what compute_gae takes."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(steps, envs)).astype(np.float32)
    values = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < 0.1
    return rewards, values[:-1], values[1:], terminated, truncated


# ------ equations ------
@both
def test_advantages_equal_torchs_and_the_definition(script: ModuleType):
    args = script.Args(gamma=0.9, gae_lambda=0.8)
    numbers = rollout()
    found, returns = script.compute_gae(*numbers, args)
    wanted, wanted_returns = their.compute_gae(*numbers, args)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns, wanted_returns, rtol=1e-5, atol=1e-5)
    rewards, values, next_values, terminated, truncated = numbers
    for env in range(3):
        for first in range(len(rewards)):
            total, weight = 0.0, 1.0
            for t in range(first, len(rewards)):
                last = 0.0 if terminated[t, env] else next_values[t, env]
                total += weight * (rewards[t, env] + 0.9 * last - values[t, env])
                if terminated[t, env] or truncated[t, env]:
                    break
                weight *= 0.9 * 0.8
            assert found[first, env] == pytest.approx(total, abs=1e-4)


def minibatch(rows: int = 32) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Outputs of a network, and a minibatch."""
    rng = np.random.default_rng(1)
    outputs = [rng.normal(size=rows).astype(np.float32) * scale for scale in (0.3, 1, 0.3)]
    names = ("logprobs", "values", "advantages", "returns")
    mb = {name: rng.normal(size=rows).astype(np.float32) * 0.3 for name in names}
    return outputs, mb


@both
@pytest.mark.parametrize("norm_adv", [True, False])
@pytest.mark.parametrize("clip_vloss", [True, False])
def test_loss_statistics_and_gradient_equal_torchs(
    script: ModuleType, norm_adv: bool, clip_vloss: bool
):
    args = script.Args(norm_adv=norm_adv, clip_vloss=clip_vloss, clip_coef=0.2, ent_coef=0.1)
    outputs, mb = minibatch()

    def loss(*outputs: Any) -> Any:
        return script.ppo_loss(*outputs, jax.tree.map(jnp.asarray, mb), args)

    computed = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    (found, stats), gradient = computed(*map(jnp.asarray, outputs))
    tensors = [torch.from_numpy(x).requires_grad_() for x in outputs]
    wanted, wanted_stats = their.ppo_loss(
        *tensors, {k: torch.from_numpy(v) for k, v in mb.items()}, args
    )
    wanted.backward()
    assert found == pytest.approx(wanted.item(), rel=1e-4)
    assert stats.keys() == wanted_stats.keys()
    for name, value in wanted_stats.items():
        assert stats[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-6), name
    for tensor, array in zip(tensors, gradient, strict=True):
        np.testing.assert_allclose(array, tensor.grad, rtol=1e-3, atol=1e-6)


class Space:
    """What an agent asks of its environments."""

    single_action_space = type("Discrete", (), {"n": 5})


@cache
def agent_of(script: ModuleType, seed: int = 3) -> Any:
    return jax.jit(lambda: script.Agent(Space(), nnx.Rngs(seed)))()


def torch_weights(named: dict[str, Any]) -> dict[str, torch.Tensor]:
    """An agent's arrays, or their gradient, as torch's agent has them: images with channels first.

    named: `network.layers.0.kernel` and so on.
    """
    places = {"layers.0": "0", "layers.2": "2", "layers.4": "4", "layers.7": "7"}
    found = {}
    for name, value in named.items():
        array = np.asarray(value)
        name = name.removesuffix(".value")
        for here, there in places.items():
            name = name.replace(here, there)
        if name == "network.7.kernel":
            array = array.reshape(7, 7, 64, 512).transpose(2, 0, 1, 3).reshape(3136, 512)
        if name.endswith("kernel"):
            name = name.replace("kernel", "weight")
            array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        found[name] = torch.from_numpy(array.copy())
    return found


@both
@pytest.mark.parametrize("max_grad_norm", [0.1, 1e6])
def test_network_and_clipped_gradient_equal_torchs(script: ModuleType, max_grad_norm: float):
    agent, rng = agent_of(script), np.random.default_rng(0)
    args = script.Args(max_grad_norm=max_grad_norm)
    _, batch = minibatch(8)
    batch |= {"obs": rng.integers(0, 256, (8, 4, 84, 84), dtype=np.uint8)}
    batch |= {"actions": rng.integers(0, 5, 8)}
    twin = their.Agent(Space())
    twin.load_state_dict(torch_weights(script.named(agent)))
    tensors = {name: torch.from_numpy(rows) for name, rows in batch.items()}
    stats = their.compute_gradient(twin, tensors, torch.arange(8), args)
    arrays = jax.tree.map(jnp.asarray, batch)
    gradient, found = jax.jit(partial(script.compute_gradient, args=args))(
        agent, arrays, jnp.arange(8)
    )
    for name, value in stats.items():
        assert found[name] == pytest.approx(value.item(), rel=1e-3, abs=1e-5), name
    named = torch_weights(script.named(gradient))
    for name, parameter in twin.named_parameters():
        largest = parameter.grad.abs().max().item()
        torch.testing.assert_close(named[name], parameter.grad, rtol=1e-3, atol=1e-3 * largest)


@both
def test_initial_weights_are_orthogonal(script: ModuleType):
    gains = {"network": 2**0.5, "critic": 1.0, "actor": 0.01}
    for name, array in script.named(agent_of(script)).items():
        if "bias" in name:
            assert not np.asarray(array).any()
            continue
        matrix = np.asarray(array).reshape(-1, array.shape[-1])
        matrix = matrix.T if matrix.shape[0] < matrix.shape[1] else matrix
        gain = gains[name.split(".")[0]]
        wanted = gain**2 * np.eye(matrix.shape[1])
        np.testing.assert_allclose(matrix.T @ matrix, wanted, atol=1e-4 * gain**2)


@both
def test_actions_are_sampled_from_the_policy(script: ModuleType):
    agent = agent_of(script)
    x = jax.random.normal(jax.random.key(0), (1, 512)) * 5
    many = jnp.repeat(x, 20_000, 0)
    every = jnp.arange(5)
    probabilities = jnp.exp(agent.get_logprob_entropy_value(jnp.repeat(x, 5, 0), every)[0])
    counts = np.bincount(agent.get_action(many, jax.random.key(1)), minlength=5)
    np.testing.assert_allclose(counts / len(many), probabilities, atol=0.015)
    assert (agent.get_action(many, jax.random.key(1), True) == probabilities.argmax()).all()


@both
def test_gradients_add_nothing_up_by_index(script: ModuleType):
    """With deterministic results a GPU would do that one row after the other."""
    agent, x, actions = agent_of(script), jnp.ones((8, 512)), jnp.arange(8) % 5

    def loss(agent: Any) -> Any:
        return agent.get_logprob_entropy_value(x, actions)[0].sum()

    assert "scatter" not in str(jax.make_jaxpr(nnx.grad(loss))(agent))


# ------ EnvPool ------
def test_what_envpool_is_asked_for(tmp_path: Path):
    for script in SCRIPTS:
        envs = script.make_envs(script.Args(num_envs=3), tmp_path)
        _, obs = envs.reset(seed=7)
        assert obs.shape == (3, 4, 84, 84) and obs.dtype == np.uint8
        wanted = {"num_envs": 3, "noop_max": 30, "frame_skip": 4, "episodic_life": True}
        wanted |= {"use_fire_reset": True, "img_height": 84, "img_width": 84, "gray_scale": True}
        wanted |= {"reward_clip": True, "stack_num": 4, "seed": 7}
        wanted |= {"repeat_action_probability": 0.0}
        config = envs.pool.spec.config._asdict()
        assert {name: config[name] for name in wanted} == wanted
        envs.close()


@pytest.mark.slow("JAX compiles")
@pytest.mark.parametrize(("game", "limit"), [("Breakout", 27000), ("SpaceInvaders", 90)])
def test_compiled_steps_are_envpools_own(
    game: str, limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Against the same pool stepped from Python; games end with the last life or at the limit.

    A hit in Space Invaders is worth 5 to 30 points, of which the agent sees one.
    """
    script, make_pool = SCRIPTS[0], envpool.make
    monkeypatch.setattr(
        envpool, "make", lambda *a, **flags: make_pool(*a, **flags, max_episode_steps=limit)
    )
    args = script.Args(num_envs=4, env_id=f"{game}-v5")
    envs, other = (script.make_envs(args, tmp_path) for _ in range(2))
    (state, obs), (_, first) = envs.reset(seed=3), other.reset(seed=3)
    assert (obs == first).all()
    step, rng, ends = jax.jit(envs.step), np.random.default_rng(0), 0
    scores, lengths, reset = np.zeros(4), np.zeros(4, int), np.zeros(4, bool)
    for _ in range(500):
        actions = rng.integers(4, size=4).astype(np.int32)
        state, obs, rows = step(state, actions)
        their_obs, rewards, terminated, truncated, told = other.pool.step(actions)
        np.testing.assert_array_equal(obs, their_obs)
        for name, wanted in (
            ("rewards", rewards),
            ("terminated", terminated),
            ("truncated", truncated),
        ):
            np.testing.assert_array_equal(rows[name], wanted)
        scores, lengths = scores + told["reward"], lengths + ~reset
        reset = terminated | truncated
        over = (told["lives"] == 0) & terminated | truncated
        np.testing.assert_array_equal(rows["over"], over)
        np.testing.assert_array_equal(np.asarray(rows["score"])[over], scores[over])
        np.testing.assert_array_equal(np.asarray(rows["length"])[over], lengths[over])
        ends += over.sum()
        scores[over] = lengths[over] = 0
    assert ends >= 8
    envs.close()
    other.close()


@pytest.mark.slow("JAX compiles")
def test_films_show_whole_games(tmp_path: Path):
    script = SCRIPTS[0]
    args = script.Args(num_envs=2, capture_video=True, video_every=2)
    envs = script.make_envs(args, tmp_path)
    state, _ = envs.reset(seed=1)

    @jax.jit
    def play(state: dict, key: Any) -> Any:
        def one(state: dict, key: Any) -> Any:
            state, _, rows = envs.step(state, jax.random.randint(key, 2, 0, 4, jnp.int32))
            return state, rows["over"][0]

        return jax.lax.scan(one, state, jax.random.split(key, 100))

    games = 0
    for number in range(30):
        state, over = play(state, jax.random.key(number))
        games += int(over.sum())
        if games >= 3:
            break
    films = sorted(path.name for path in tmp_path.glob("*.mp4"))
    assert films[:2] == ["rl-video-episode-0.mp4", "rl-video-episode-2.mp4"]
    assert len(films) == (games + 1) // 2
    envs.close()


# ------ a run, watched ------
class Clockwork:
    """Environment 0 terminates at step 3 of five, environment 1 is truncated at step 1 of five.

    The next step is a reset; `late` moves all that by some steps. Observations are the number of
    steps so far, in every pixel; after the end of a rollout everything begins anew. Reset steps pay
    100, to be seen if they are learned.
    """

    single_action_space, late = Space.single_action_space, 0

    def reset(self, seed: int) -> tuple[dict, Any]:
        return {"t": jnp.zeros((), int)}, self.observe(0)

    def observe(self, t: Any) -> Any:
        return jnp.full((ENVS, 4, 84, 84), t, jnp.uint8)

    def step(self, state: dict, actions: Any) -> tuple[dict, Any, dict]:
        t, turn = state["t"], (state["t"] - self.late) % 5
        ends = turn == jnp.array([3, 1])
        env = jnp.arange(ENVS)
        rows = {"rewards": jnp.where(turn == jnp.array([4, 2]), 100.0, 1.0 + t)}
        rows |= {"terminated": ends & (env == 0), "truncated": ends & (env == 1), "over": ends}
        rows |= {"score": t + 10.0 * env, "length": jnp.full(ENVS, t)}
        t = (t + 1) % STEPS
        return {"t": t}, self.observe(t), rows

    def close(self) -> None:
        pass


SEEN: list[tuple[dict[str, np.ndarray], np.ndarray]] = []  # batch and rows of each minibatch


def see(batch: dict[str, Any], mb_inds: Any) -> None:
    SEEN.append(jax.device_get((batch, mb_inds)))


def proportional(agent: Any, batch: dict, mb_inds: Any, args: Any) -> tuple[Any, dict]:
    """In place of `compute_gradient`: a gradient that depends on agent, advantages and actions."""
    jax.debug.callback(see, batch, mb_inds, ordered=True)
    size = batch["advantages"][mb_inds].mean() + batch["actions"][mb_inds].mean()
    gradient = jax.tree.map(lambda p: 1e-3 * size * (p + 1), agent)
    return gradient, {"losses/approx_kl": 0.5 + 0 * size, "losses/policy_loss": size}


def small(script: ModuleType) -> type:
    """The script's agent with a network of two layers that sees one pixel."""

    class Small(script.Agent):  # type: ignore[misc, name-defined]
        def __init__(self, envs: Any, rngs: Any, bf16: bool = False):
            self.network = script.layer_init(nnx.Linear(1, 8, rngs=rngs), rngs)
            self.critic = script.layer_init(nnx.Linear(8, 1, rngs=rngs), rngs, std=1.0)
            self.actor = script.layer_init(nnx.Linear(8, 5, rngs=rngs), rngs, std=0.01)

        def features(self, obs: Any) -> Any:
            return self.network(obs[:, 0, :1, 0] / 255.0)

    return Small


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    for script in SCRIPTS:
        monkeypatch.setattr(script, "make_envs", lambda *arguments: Clockwork())
        monkeypatch.setattr(script, "compute_gradient", proportional)
        monkeypatch.setattr(script, "Agent", small(script))


def same(a: dict[str, Any], b: dict[str, Any], **tolerance: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], **(tolerance or {"rtol": 0}), err_msg=name)


@pytest.mark.slow("JAX compiles")
@both
def test_rows_are_paired_and_all_are_learned_from(
    script: ModuleType, watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(Clockwork, "late", 1)  # the last step of a rollout ends an episode
    args = train(script, tmp_path, **TINY, total_timesteps=60, gamma=0.9, gae_lambda=0.8).args
    jax.effects_barrier()
    assert len(SEEN) == 3 * 4
    t = np.arange(STEPS)[:, None]
    terminated = np.hstack([t % 5 == 4, t < 0])
    done = np.hstack([t % 5 == 4, t % 5 == 2])
    assert done[-1].any()
    for batch, _ in SEEN:
        rows = {k: v.reshape(STEPS, ENVS, *v.shape[1:]) for k, v in batch.items()}
        assert batch["obs"].dtype == np.uint8
        assert (rows["obs"] == t[..., None, None, None]).all()
        # What must come out for each row, from rewards and values alone.
        rewards = np.where(np.hstack([t % 5 == 0, t % 5 == 3]), 100.0, 1.0 + t)
        values, advantages = rows["values"], rows["advantages"]
        np.testing.assert_allclose(advantages + values, rows["returns"], rtol=1e-5, atol=1e-5)
        for first in range(STEPS - 1):
            for env in range(ENVS):
                if done[first, env]:
                    last = 0.0 if terminated[first, env] else values[first + 1, env]
                    wanted = rewards[first, env] + args.gamma * last - values[first, env]
                else:
                    wanted = rewards[first, env] - values[first, env]
                    wanted += args.gamma * values[first + 1, env]
                    wanted += args.gamma * args.gae_lambda * advantages[first + 1, env]
                assert advantages[first, env] == pytest.approx(wanted, rel=1e-4, abs=1e-4)


@pytest.mark.slow("JAX compiles")
@both
def test_no_key_is_of_weights_and_of_an_iteration(
    script: ModuleType, watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    keys = Keys()
    keys.spy_on_weights(monkeypatch, script.nnx)
    keys.spy(monkeypatch, script, "update_ppo", 2)
    train(script, tmp_path, **TINY, total_timesteps=60)
    keys.assert_distinct({"weights", "update_ppo"})


@pytest.mark.slow("JAX compiles")
@both
def test_minibatches_partition_each_epoch(script: ModuleType, watched: None, tmp_path: Path):
    train(script, tmp_path, **TINY, total_timesteps=40)
    jax.effects_barrier()
    assert [len(rows) for _, rows in SEEN] == [STEPS * ENVS // 2] * 8
    epochs = [np.concatenate([rows for _, rows in SEEN[i : i + 2]]) for i in range(0, 8, 2)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(STEPS * ENVS)) and sorted(epoch) != list(epoch)
    assert len({tuple(epoch) for epoch in epochs}) == 4


@pytest.mark.parametrize("epochs", [1, 2])
def test_loops_of_any_length_are_unrolled_on_a_cpu(
    epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More minibatches are more lines for the compiler, not a loop."""
    script = SCRIPTS[1]
    monkeypatch.setattr(
        script, "compute_gradient", lambda agent, *_: (agent, {"loss": jnp.zeros(())})
    )
    optimizer = optax.scale_by_adam()
    train_state = {"agent": {"weight": jnp.zeros(3)}}
    train_state["opt_state"] = optimizer.init(train_state["agent"])
    loops = []
    for num_minibatches in (1, 2):
        args = script.Args(num_minibatches=num_minibatches, update_epochs=epochs)
        lowered = script.update_ppo.lower(train_state, {}, jax.random.key(0), 0.1, optimizer, args)
        loops.append(lowered.as_text().count("stablehlo.while"))
    assert loops[0] == loops[1]


@pytest.mark.slow("JAX compiles")
@both
def test_target_kl_ends_the_update(script: ModuleType, watched: None, tmp_path: Path):
    for target, epochs in ((0.0, 1), (0.4, 1), (0.6, 3)):
        folder = tmp_path / str(target)
        folder.mkdir()
        flags = TINY | {"update_epochs": 3, "target_kl": target}
        run = train(script, folder, **flags, total_timesteps=40)
        assert state_of(folder)["train_state"]["opt_state"]["count"] == 2 * 2 * epochs
        assert run.scalars()["losses/approx_kl"][0][1] == pytest.approx(0.5)


def test_an_epoch_that_is_thrown_away_is_in_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its statistics are no numbers."""
    script = SCRIPTS[1]

    def compute_gradient(agent: dict, *_: Any) -> tuple[dict, dict]:
        loss = jnp.where(agent["weight"] == 0, 3.0, jnp.nan)  # the second epoch's is not a number
        return {"weight": jnp.ones(())}, {"losses/approx_kl": jnp.ones(()), "loss": loss}

    monkeypatch.setattr(script, "compute_gradient", compute_gradient)
    args = script.Args(num_minibatches=1, update_epochs=3, target_kl=0.5)
    optimizer = optax.scale_by_adam()
    train_state: dict[str, Any] = {"agent": {"weight": jnp.zeros(())}}
    train_state["opt_state"] = optimizer.init(train_state["agent"])
    learned, means = script.update_ppo(train_state, {}, jax.random.key(0), 0.1, optimizer, args)
    assert learned["agent"]["weight"] == pytest.approx(-0.1, 1e-4) and means["loss"] == 3


@pytest.mark.slow("JAX compiles")
@both
def test_learning_rate_is_annealed_as_in_torch(script: ModuleType, watched: None, tmp_path: Path):
    run = train(script, tmp_path, **TINY, total_timesteps=100, learning_rate=0.01)
    found = run.scalars()["charts/learning_rate"]
    wanted = [(1 - (i - 1) / 5) * 0.01 for i in range(1, 6)]
    assert [step for step, _ in found] == [20, 40, 60, 80, 100]
    np.testing.assert_allclose([value for _, value in found], wanted, rtol=1e-6)


@pytest.mark.slow("JAX compiles")
@both
def test_a_gradient_step_is_adams(script: ModuleType, watched: None, tmp_path: Path):
    flags = TINY | {"num_minibatches": 1, "update_epochs": 1, "learning_rate": 0.1}
    train(script, tmp_path, **flags, total_timesteps=20, seed=5)
    weights_key, _ = jax.random.split(jax.random.key(5))
    before = jax.jit(lambda: script.Agent(Space(), nnx.Rngs(weights_key)))()
    state = state_of(tmp_path)["train_state"]
    for name, array in script.named(before).items():
        gradient = state["opt_state"][f"mu.{name}"] / 0.1
        wanted = array - 0.1 * gradient / (np.abs(gradient) + 1e-5)
        np.testing.assert_allclose(state["agent"][name], wanted, atol=1e-5, err_msg=name)


@pytest.mark.slow("JAX compiles")
@both
def test_games_are_reported_at_their_step(script: ModuleType, watched: None, tmp_path: Path):
    run = train(script, tmp_path, **TINY, total_timesteps=40)
    assert flags_shown(run.folder) == {k: str(v) for k, v in dataclasses.asdict(run.args).items()}
    scalars = run.scalars()
    ends = [(2 * (t + 1), env, t) for t in range(10) for env in range(2) if t % 5 == (3, 1)[env]]
    ends += [(20 + step, env, t) for step, env, t in ends]
    assert scalars["charts/episodic_return"] == [(s, t + 10.0 * env) for s, env, t in ends]
    assert scalars["charts/episodic_length"] == [(s, t) for s, _, t in ends]
    mean = np.mean([t + 10.0 * env for _, env, t in ends[:4]])
    assert scalars["charts/avg_episodic_return"] == [(20, mean), (40, mean)]
    assert scalars["charts/avg_episodic_length"] == [(20, 4.5), (40, 4.5)]
    recent = [[t + 10.0 * env, t] for _, env, t in ends]
    assert state_of(run.folder)["recent"] == recent


@pytest.mark.slow("JAX compiles")
def test_nothing_is_reported_without_a_game(watched: None, tmp_path: Path):
    for script in SCRIPTS:
        folder = tmp_path / script.__name__
        folder.mkdir()
        run = train(script, folder, **(TINY | {"num_steps": 1}), total_timesteps=2)
        assert not {name for name in run.scalars() if "episodic" in name}


def test_scan_is_the_loop(watched: None, tmp_path: Path):
    states = []
    for script in SCRIPTS:
        folder = tmp_path / script.__name__
        folder.mkdir()
        train(script, folder, **TINY, total_timesteps=100)
        states.append(state_of(folder)["train_state"])
    for part in ("agent", "opt_state"):
        same(states[0][part], states[1][part], rtol=1e-3, atol=1e-5)


@pytest.mark.slow("JAX compiles")
@both
def test_resumed_equals_uninterrupted(script: ModuleType, watched: None, tmp_path: Path):
    """After each rollout Clockwork begins anew, but for the resets, of which nothing is left."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    flags: dict[str, Any] = TINY | {"anneal_lr": False}
    uninterrupted = train(script, whole, **flags, total_timesteps=80)
    train(script, parts, **flags, total_timesteps=40)
    checkpoint = script.load_checkpoint(parts / "checkpoint.pt")
    assert script.train(uninterrupted.args, parts, checkpoint) == 0
    for part in ("agent", "opt_state"):
        same(*(state_of(folder)["train_state"][part] for folder in (whole, parts)))
    resumed = Run(script, uninterrupted.args, parts).scalars()
    points, wanted = (run["losses/policy_loss"] for run in (resumed, uninterrupted.scalars()))
    assert points == wanted


@pytest.mark.slow("JAX compiles")
@both
def test_resume_auto_goes_on_with_the_run_that_was_killed(
    script: ModuleType, watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    flags = "--num-envs 2 --num-steps 10 --num-minibatches 2 --update-epochs 1 --env-threads 1 "
    flags += "--total-timesteps 60 --checkpoint-every 1 --eval-episodes 0 --resume auto"
    monkeypatch.setattr("sys.argv", [script.SCRIPT.name, *flags.split()])
    monkeypatch.setattr(script, "check", lambda args: None)  # EnvPool does not know Clockwork
    monkeypatch.chdir(tmp_path)
    save = script.Run.save

    def killed(run: Any, train_state: Any, iteration: int) -> None:
        if iteration == 2:
            raise KeyboardInterrupt
        save(run, train_state, iteration)

    with monkeypatch.context() as first, pytest.raises(KeyboardInterrupt):
        first.setattr(script.Run, "save", killed)
        script.main()
    folder = command_line.the_folder(tmp_path / "runs")
    assert state_of(folder)["global_step"] == 20
    assert script.main() == 0
    assert command_line.the_folder(tmp_path / "runs") == folder
    assert state_of(folder, "agent.pt")["global_step"] == 60
    steps = [step for step, _ in command_line.curve(folder, "losses/policy_loss")]
    assert steps == [20, 40, 60], "each iteration once"


# ------ real runs ------
# One minibatch of all rows an iteration: its losses are those of the policy that played.
REAL: dict[str, Any] = {"num_envs": 2, "num_steps": 8, "num_minibatches": 1, "update_epochs": 1}
REAL |= {"env_threads": 1, "total_timesteps": 48}


@cache
def real_runs() -> list[Run]:
    """Both scripts, the same three iterations of Breakout with everything real."""
    return [
        train(script, command_line.shared_folder(script.__name__), **REAL) for script in SCRIPTS
    ]


@pytest.mark.slow("JAX compiles")
def test_scan_is_the_loop_in_breakout():
    loop, scan = (state_of(run.folder)["train_state"] for run in real_runs())
    for part in ("agent", "opt_state"):
        same(loop[part], scan[part], rtol=1e-2, atol=1e-4)
    loop_points, scan_points = (run.scalars() for run in real_runs())
    assert loop_points.keys() == scan_points.keys()
    for name in loop_points.keys() - {"charts/SPS"}:
        a, b = (np.array(points[name]) for points in (loop_points, scan_points))
        np.testing.assert_allclose(a, b, rtol=0.01, atol=1e-3, err_msg=name)


@pytest.mark.slow("JAX compiles")
def test_metrics_are_torchs_and_ratios_begin_at_1(tmp_path: Path):
    wanted = train(their, tmp_path, **REAL, torch_threads=1).scalars().keys()
    for run in real_runs():
        found = run.scalars()
        assert found.keys() == wanted
        for name in ("losses/approx_kl", "losses/old_approx_kl", "losses/clipfrac"):
            np.testing.assert_allclose([value for _, value in found[name]], 0, atol=1e-5)


@pytest.mark.slow("JAX compiles")
@both
def test_divergence_ends_the_run(
    script: ModuleType,
    watched: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    def diverging(agent: Any, *arguments: Any) -> tuple[Any, dict]:
        return agent, {"losses/approx_kl": jnp.array(0.0), "losses/grad_norm": jnp.array(jnp.nan)}

    monkeypatch.setattr(script, "compute_gradient", diverging)
    args = script.Args(**TINY, total_timesteps=100, checkpoint_every=1)
    with pytest.raises(SystemExit) as stopped:
        script.train(args, tmp_path, {})
    assert stopped.value.code == 1 and "diverged at step 20" in capsys.readouterr().err
    assert not (tmp_path / "checkpoint.pt").exists()


SHORT = ("--num-envs", 2, "--num-steps", 8, "--num-minibatches", 1, "--update-epochs", 1)
SHORT += ("--env-threads", 1)


@pytest.mark.slow("JAX's command line")
@pytest.mark.parametrize("name", [LOOP, SCAN], ids=["loop", "scan"])
def test_command_line(name: str, tmp_path: Path):
    """A run that Ctrl-C stops, is resumed and then played."""
    folder = assert_stopped_and_resumed(
        *(*SHORT, "--total-timesteps", 100_000),
        cwd=tmp_path,
        script=command_line.PPO / name,
        multiple=16,
        more=("--eval-episodes", 1, "--capture-video"),
    )
    assert len(list(folder.glob("videos/evaluation-*/*.mp4"))) == 1
    if name == LOOP:
        assert "episode   1: return" in played(folder, "--episodes", 1, cwd=tmp_path)


# ------ bad input ------
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"env_id": "CartPole-v1"}, r"CartPole-v1 is not an Atari game, see ppo\.py"),
        ({"env_id": "Brekout-v5"}, "EnvPool has no Brekout-v5; its games .*Breakout-v5"),
        ({"env_threads": 0}, "--env-threads must be at least 1"),
        ({"num_minibatches": 3}, "--num-minibatches must divide"),
        ({"device": "cuda"}, "--device cuda: .*cuda"),
        ({"device": "toaster"}, "--device toaster: .*toaster"),
        ({"seed": 2**31}, "--seed must be from 0 to"),
        ({"learning_rate": float("nan")}, "--learning-rate must be from 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    flags: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
):
    for script in SCRIPTS:
        with pytest.raises(SystemExit) as refused:
            script.check(script.Args(**flags))
        assert refused.value.code == 2
        stderr = capsys.readouterr().err
        lines = [line for line in stderr.splitlines() if line.startswith("ppo_atari_envpool_xla")]
        assert len(lines) == 1 and "Traceback" not in stderr
        assert re.search(message, lines[0]), lines[0]


def test_systems_without_compiled_steps_are_told_another_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.platform", "darwin")
    for script in SCRIPTS:
        with pytest.raises(SystemExit) as refused:
            script.check(script.Args())
        assert refused.value.code == 2
        told = "EnvPool has compiled steps on Linux alone, see ppo_atari_envpool.py\n"
        assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize("asked", [True, False])
def test_determinism_leaves_autotuning_on(asked: bool, monkeypatch: pytest.MonkeyPatch):
    given = "--xla_dump_max_hlo_modules=1"
    for script in SCRIPTS:
        monkeypatch.setenv("XLA_FLAGS", given)
        script.setup_jax(script.Args(torch_deterministic=asked, device="cpu"))
        ours = " --xla_gpu_exclude_nondeterministic_ops=true" if asked else ""
        assert os.environ["XLA_FLAGS"] == given + ours


class BoobyTrap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.folder,)


@both
@pytest.mark.parametrize(
    "kind", ["missing", "empty", "cut", "random", "list", "pickle", "torch", "other", "newer"]
)
def test_what_is_no_checkpoint_is_refused(
    script: ModuleType, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    state = {"script": f"{script.__name__.removeprefix('script_')}.py"}
    state |= {"train_state": {"agent": {"a": np.ones(9)}}}
    state |= {"args": dataclasses.asdict(script.Args())}
    file, save = tmp_path / "checkpoint.pt", serialization.msgpack_serialize
    file.write_bytes(save(state))
    assert script.load_checkpoint(file)["args"] == script.Args()
    contents = {
        "empty": b"",
        "cut": save(state)[:-5],
        "random": bytes(range(256)),
        "list": save([1, 2]),
        "pickle": pickle.dumps(BoobyTrap(tmp_path / "sprung")),
        "other": save(state | {"script": "ppo.py"}),
        "newer": save(state | {"args": {"flag_of_tomorrow": 1}}),
    }
    if kind == "missing":
        file.unlink()
    elif kind == "torch":
        torch.save({"agent": BoobyTrap(tmp_path / "sprung")}, file)
    else:
        file.write_bytes(contents[kind])
    with pytest.raises(SystemExit) as refused:
        script.load_checkpoint(file)
    stderr = capsys.readouterr().err
    assert refused.value.code == 2 and stderr.count("\n") == 1
    assert "is not a checkpoint that can be used here" in stderr
    assert not (tmp_path / "sprung").exists()


@both
def test_arrays_of_another_network_are_refused(script: ModuleType):
    tree = {"a": jnp.zeros(2), "b": jnp.zeros(3)}
    found = script.with_arrays(tree, {"b": np.ones(3), "a": np.full(2, 5)})
    assert found["a"].tolist() == [5, 5] and found["b"].tolist() == [1, 1, 1]
    for arrays in ({"a": np.ones(2)}, {"a": np.ones(3), "b": np.ones(3)}):
        with pytest.raises(ValueError, match="other names or shapes"):
            script.with_arrays(tree, arrays)


@pytest.mark.slow("JAX compiles")
@both
def test_a_kill_while_saving_leaves_the_old_checkpoint(
    script: ModuleType, watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    train(script, tmp_path, **TINY, total_timesteps=20)
    good, checkpoint = (tmp_path / "checkpoint.pt").read_bytes(), {}
    shutil.copy(tmp_path / "checkpoint.pt", tmp_path / "copy")
    checkpoint = script.load_checkpoint(tmp_path / "copy")
    write = Path.write_bytes

    def killed(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        script.train(script.Args(**TINY, total_timesteps=40, eval_episodes=0), tmp_path, checkpoint)
    assert (tmp_path / "checkpoint.pt").read_bytes() == good
