"""The JAX scripts: their equations equal torch's, their loop and their scan are the same training.

What a run does is watched with `Timetable` in place of EnvPool, a small network, and `proportional`
in place of the gradient: known functions, which compile in no time.
"""

import dataclasses
import os
import pickle
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from filelock import FileLock
from helpers import command_line
from helpers.checks import assert_envpool_is_asked, assert_orthogonal, assert_refused
from helpers.definitions import advantages_by_definition
from helpers.in_process import (
    Run,
    flags_shown,
    load_script,
    record_calls,
    record_waiting_signals,
    train,
)

jax = pytest.importorskip("jax", reason="needs the extra `jax`")
envpool = pytest.importorskip("envpool", reason="needs the extra `envpool`")
import jax.numpy as jnp  # noqa: E402
from flax import nnx, serialization  # noqa: E402
from helpers import jax_command_line, jax_equations  # noqa: E402
from helpers.jax_command_line import state_of  # noqa: E402
from helpers.random_keys import Keys  # noqa: E402

jax.config.update("jax_platforms", "cpu")
LOOP = load_script("ppo_atari_envpool_xla_jax.py")
SCAN = load_script("ppo_atari_envpool_xla_jax_scan.py")
both = pytest.mark.parametrize("script", [LOOP, SCAN], ids=["loop", "scan"])
their = load_script("ppo_atari_envpool.py")
STEPS, ENVS = 10, 2  # of a rollout with Timetable
TINY: dict[str, Any] = {"num_envs": ENVS, "num_steps": STEPS, "num_minibatches": 2}
TINY |= {"update_epochs": 2, "env_threads": 1}


# ------ equations; of the loop alone where the scan script has the same code ------
def test_advantages_are_those_of_the_definition():
    """The loop script's are ppo.py's."""
    jax_equations.assert_gae_is_the_definition(SCAN)


@pytest.mark.parametrize("norm_adv", [True, False])
@pytest.mark.parametrize("clip_vloss", [True, False])
def test_loss_statistics_and_gradient_equal_torchs(norm_adv: bool, clip_vloss: bool):
    args = LOOP.Args(norm_adv=norm_adv, clip_vloss=clip_vloss, clip_coef=0.2, ent_coef=0.1)
    rng = np.random.default_rng(2)
    outputs = [rng.normal(size=32).astype(np.float32) * scale for scale in (0.3, 1, 0.3)]
    mb = jax_equations.random_minibatch(32)

    def loss(*outputs: Any) -> Any:
        return LOOP.ppo_loss(*outputs, jax.tree.map(jnp.asarray, mb), args)

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


@both
def test_update_visits_every_row_and_stops_at_the_target_kl(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    jax_equations.assert_update_is_ppos(script, monkeypatch)


class Space:
    """What an agent asks of its environments."""

    single_action_space = type("Discrete", (), {"n": 5})


@cache
def new_agent() -> Any:
    return jax.jit(lambda: LOOP.Agent(Space(), nnx.Rngs(3)))()


@pytest.mark.parametrize("max_grad_norm", [0.1, 1e6])
def test_network_and_clipped_gradient_equal_torchs(max_grad_norm: float):
    rng = np.random.default_rng(0)
    batch = jax_equations.random_minibatch(8)
    batch["obs"] = rng.integers(0, 256, (8, 4, 84, 84), dtype=np.uint8)
    batch["actions"] = rng.integers(0, 5, 8)
    jax_equations.assert_gradient_is_torchs(
        LOOP, their, new_agent(), their.Agent(Space()), batch, max_grad_norm=max_grad_norm
    )


def test_initial_weights_are_orthogonal():
    """The actor's, the critic's and the shared ones."""
    weights = jax_equations.torch_weights(LOOP.named(new_agent()))
    assert not any(x.any() for name, x in weights.items() if name.endswith("bias"))
    stds = [0.01, 1.0, *[2**0.5] * 4]
    assert_orthogonal([x for name, x in weights.items() if name.endswith("weight")], stds)


def test_weights_have_a_definite_type():
    """The first gradient step would give them one, and everything would be compiled again."""
    agent = jax.eval_shape(lambda: LOOP.Agent(Space(), nnx.Rngs(3)))
    assert not any(x.weak_type for x in jax.tree.leaves(agent))


def test_bf16_rounds_the_convolutions():
    """And the features are float32 again."""
    obs = jnp.zeros((2, 4, 84, 84), jnp.uint8)
    program = jax.make_jaxpr(lambda: LOOP.Agent(Space(), nnx.Rngs(3), True).features(obs))()
    assert len(re.findall(r":bf16\[\S+\] = conv_general_dilated", str(program))) == 3
    assert [x.dtype for x in program.out_avals] == [jnp.float32]


def test_actions_are_sampled_from_the_policy():
    agent = new_agent()
    x = jax.random.normal(jax.random.key(0), (1, 512)) * 5
    many = jnp.repeat(x, 20_000, 0)
    every = jnp.arange(5)
    probabilities = jnp.exp(agent.get_logprob_entropy_value(jnp.repeat(x, 5, 0), every)[0])
    counts = np.bincount(agent.get_action(many, jax.random.key(1)), minlength=5)
    np.testing.assert_allclose(counts / len(many), probabilities, atol=0.015)
    assert (agent.get_action(many, jax.random.key(1), True) == probabilities.argmax()).all()


def test_gradients_add_nothing_up_by_index():
    """With deterministic results a GPU would do that one row after the other."""
    agent, x, actions = new_agent(), jnp.ones((8, 512)), jnp.arange(8) % 5

    def loss(agent: Any) -> Any:
        return agent.get_logprob_entropy_value(x, actions)[0].sum()

    assert "scatter" not in str(jax.make_jaxpr(nnx.grad(loss))(agent))


# ------ EnvPool ------
def test_what_envpool_is_asked_for(tmp_path: Path):
    envs = LOOP.make_envs(LOOP.Args(num_envs=3), tmp_path)
    _, obs = envs.reset(seed=7)
    assert obs.shape == (3, 4, 84, 84) and obs.dtype == np.uint8
    assert_envpool_is_asked(envs, num_envs=3, seed=7)
    envs.close()


@pytest.mark.slow("JAX compiles")
@pytest.mark.parametrize(("game", "limit"), [("Breakout", 27000), ("SpaceInvaders", 90)])
def test_compiled_steps_are_envpools_own(
    game: str, limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Against the same pool stepped from Python; games end with the last life or at the limit.

    A hit in Space Invaders is worth 5 to 30 points, of which the agent sees one.
    """
    make_pool = envpool.make
    monkeypatch.setattr(
        envpool, "make", lambda *a, **flags: make_pool(*a, **flags, max_episode_steps=limit)
    )
    args = LOOP.Args(num_envs=4, env_id=f"{game}-v5")
    envs, other = (LOOP.make_envs(args, tmp_path) for _ in range(2))
    (state, obs), (_, first) = envs.reset(seed=3), other.reset(seed=3)
    assert (obs == first).all()
    step, rng, ends = jax.jit(envs.step), np.random.default_rng(0), 0
    scores, lengths, reset = np.zeros(4), np.zeros(4, int), np.zeros(4, bool)
    for _ in range(500):
        actions = rng.integers(4, size=4).astype(np.int32)
        state, obs, found = step(state, actions)
        their_obs, rewards, terminated, truncated, told = other.pool.step(actions)
        np.testing.assert_array_equal(obs, their_obs)
        over = (told["lives"] == 0) & terminated | truncated
        wanted = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
        for name, array in (wanted | {"over": over}).items():
            np.testing.assert_array_equal(found[name], array)
        scores, lengths = scores + told["reward"], lengths + ~reset
        for name, array in (("score", scores), ("length", lengths)):
            np.testing.assert_array_equal(np.asarray(found[name])[over], array[over])
        reset = terminated | truncated
        ends += over.sum()
        scores[over] = lengths[over] = 0
    assert ends >= 8
    envs.close()
    other.close()


@pytest.mark.slow("JAX compiles")
def test_films_show_whole_games(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    waiting = record_waiting_signals(monkeypatch)
    envs = LOOP.make_envs(LOOP.Args(num_envs=2, capture_video=True, video_every=2), tmp_path)
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
    assert all(signal.SIGINT in signals for signals in waiting) and len(waiting) == len(films)
    envs.close()


# ------ a run, watched ------
class Timetable:
    """Environment 0 terminates at step 4 of five, environment 1 is truncated at step 2 of five.

    Environment 0 has two lives in a game. The next step is a reset. Observations are the number of
    steps so far, in every pixel; after the end of a rollout everything begins anew. Reset steps pay
    100, to be seen if they are learned.
    """

    single_action_space = Space.single_action_space
    seeds: ClassVar[list[int]] = []  # of all resets

    def reset(self, seed: int) -> tuple[dict, Any]:
        self.seeds.append(seed)
        return {"t": jnp.zeros((), int)}, self.observe(0)

    def observe(self, t: Any) -> Any:
        return jnp.full((ENVS, 4, 84, 84), t, jnp.uint8)

    def step(self, state: dict, actions: Any) -> tuple[dict, Any, dict]:
        t, env = state["t"], jnp.arange(ENVS)
        ends = t % 5 == jnp.array([4, 2])
        rows = {"rewards": jnp.where(t % 5 == jnp.array([0, 3]), 100.0, 1.0 + t)}
        rows |= {"terminated": ends & (env == 0), "truncated": ends & (env == 1)}
        rows |= {"over": ends & (t != 4)}
        rows |= {"score": t + 10.0 * env, "length": jnp.full(ENVS, t)}
        t = (t + 1) % STEPS
        return {"t": t}, self.observe(t), rows

    def close(self) -> None:
        pass


def proportional(agent: Any, batch: dict, mb_inds: Any, args: Any) -> tuple[Any, dict]:
    """In place of `compute_gradient`: a gradient that depends on agent, advantages and actions."""
    size = batch["advantages"][mb_inds].mean() + batch["actions"][mb_inds].mean()
    gradient = jax.tree.map(lambda p: 1e-3 * size * (p + 1), agent)
    return gradient, {"losses/approx_kl": 0.5 + 0 * size, "losses/policy_loss": size}


def small(script: ModuleType) -> type:
    """The script's agent with a network of two layers that sees one pixel."""

    class Small(script.Agent):  # type: ignore[misc, name-defined]
        def __init__(self, envs: Any, rngs: Any, bf16: bool = False):
            self.network = nnx.Linear(1, 8, rngs=rngs)
            self.critic = nnx.Linear(8, 1, rngs=rngs)
            self.actor = nnx.Linear(8, 5, kernel_init=nnx.initializers.orthogonal(0.01), rngs=rngs)

        def features(self, obs: Any) -> Any:
            return self.network(obs[:, 0, :1, 0].astype(float))

    return Small


def watch(patch: pytest.MonkeyPatch, gradient: Callable = proportional) -> None:
    """From now on both scripts play Timetable, with the small network and that gradient."""
    for script in (LOOP, SCAN):
        patch.setattr(script, "make_envs", lambda *arguments: Timetable())
        patch.setattr(script, "compute_gradient", gradient)
        patch.setattr(script, "Agent", small(script))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


@cache
def timetable_run(script: ModuleType) -> tuple[Run, list[dict[str, np.ndarray]], list[float]]:
    """Five iterations, the batch of each minibatch, and each iteration's learning rate."""
    batches: list[dict[str, np.ndarray]] = []
    rates: list[float] = []
    update_ppo = script.update_ppo

    def see_rate(*arguments: Any) -> Any:
        rates.append(arguments[3])
        return update_ppo(*arguments)

    def see(agent: Any, batch: dict, *arguments: Any) -> tuple[Any, dict]:
        jax.debug.callback(lambda x: batches.append(jax.device_get(x)), batch)
        return proportional(agent, batch, *arguments)

    folder = command_line.shared_folder(script.__name__)
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, see)
        patch.setattr(script, "update_ppo", see_rate)
        flags: dict[str, Any] = {"learning_rate": 0.01, "gamma": 0.9, "gae_lambda": 0.8}
        run = train(script, folder, **TINY, **flags, total_timesteps=100)
    jax.effects_barrier()
    return run, batches, rates


@pytest.mark.slow("JAX compiles")
@both
def test_rows_are_paired_and_all_are_learned_from(script: ModuleType):
    run, batches, _ = timetable_run(script)
    assert len(batches) == 5 * 4
    t = np.arange(STEPS)[:, None]
    terminated = np.hstack([t % 5 == 4, t < 0])
    truncated = np.hstack([t < 0, t % 5 == 2])
    rewards = np.where(np.hstack([t % 5 == 0, t % 5 == 3]), 100.0, 1.0 + t)
    for batch in batches:
        rows = {k: v.reshape(STEPS, ENVS, *v.shape[1:]) for k, v in batch.items()}
        assert batch["obs"].dtype == np.uint8
        assert (rows["obs"] == t[..., None, None, None]).all()
        values, advantages = rows["values"], rows["advantages"]
        np.testing.assert_allclose(advantages + values, rows["returns"], rtol=1e-5, atol=1e-5)
        next_values = np.roll(values, -1, axis=0)  # after the last step stands the first one's
        wanted = advantages_by_definition(
            rewards, values, next_values, terminated, truncated, run.args
        )
        np.testing.assert_allclose(advantages, wanted, rtol=1e-4, atol=1e-4)
    logged = run.scalars()["losses/explained_variance"]
    explained = [1 - x["advantages"].var() / x["returns"].var() for x in batches[::4]]
    np.testing.assert_allclose([x for _, x in logged], explained, atol=1e-5)


@pytest.mark.slow("JAX compiles")
@both
def test_learning_rate_is_annealed_as_in_torch(script: ModuleType):
    run, _, used = timetable_run(script)
    found = run.scalars()["charts/learning_rate"]
    assert [step for step, _ in found] == [20, 40, 60, 80, 100]
    wanted = 0.01 * np.array([1, 0.8, 0.6, 0.4, 0.2])
    np.testing.assert_allclose([value for _, value in found], wanted, rtol=1e-6)
    np.testing.assert_allclose(used, wanted, rtol=1e-6)


@pytest.mark.slow("JAX compiles")
@both
def test_games_are_reported_at_their_step(script: ModuleType):
    run, *_ = timetable_run(script)
    assert flags_shown(run.folder) == {k: str(v) for k, v in dataclasses.asdict(run.args).items()}
    scalars = run.scalars()
    ends = [(2, 1), (7, 1), (9, 0)]  # step and environment of the games that end in a rollout
    games = [
        (rollout + 2 * (t + 1), t + 10.0 * env, t)
        for rollout in range(0, 100, 20)
        for t, env in ends
    ]
    assert scalars["charts/episodic_return"] == [(step, score) for step, score, _ in games]
    assert scalars["charts/episodic_length"] == [(step, length) for step, _, length in games]
    assert [x for _, x in scalars["charts/avg_episodic_return"]] == [pytest.approx(38 / 3)] * 5
    assert [x for _, x in scalars["charts/avg_episodic_length"]] == [6] * 5
    assert state_of(run.folder)["recent"] == [[score, length] for _, score, length in games]


@pytest.mark.slow("JAX compiles")
def test_scan_is_the_loop():
    states = [state_of(timetable_run(script)[0].folder)["train_state"] for script in (LOOP, SCAN)]
    jax_command_line.assert_same(*states, rtol=1e-3, atol=1e-5)


@pytest.mark.slow("JAX compiles")
def test_resumed_equals_uninterrupted(watched: None, tmp_path: Path):
    """After each rollout the timetable begins anew."""
    whole, *_ = timetable_run(LOOP)
    jax_command_line.assert_resumed_equals(LOOP, whole, tmp_path, 40)
    # Other games after it is resumed, and others again in the evaluation.
    assert Timetable.seeds[-3:] == [1, 1 + 40, 1 + 1_000_000]


@pytest.mark.slow("JAX compiles")
@pytest.mark.parametrize("greedy", [False, True])
def test_evaluation_samples_actions_unless_it_is_greedy(
    greedy: bool, watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    agent = jax.jit(lambda: LOOP.Agent(Space(), nnx.Rngs(3)))()
    calls = record_calls(LOOP.Agent, "get_action", monkeypatch)
    LOOP.evaluate(agent, LOOP.Args(**TINY, eval_episodes=1), tmp_path, greedy)
    assert {asked for *_, asked in calls} == {greedy}


@pytest.mark.slow("JAX compiles")
@both
def test_no_random_key_is_used_twice(
    script: ModuleType, watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """By weights, iterations, actions and shuffles, in training and evaluation."""
    keys = Keys()
    keys.spy_on_weights(monkeypatch, script.nnx)
    keys.spy(monkeypatch, script, "rollout", 4)
    keys.spy(monkeypatch, script, "update_ppo", 2)
    keys.spy(monkeypatch, script.Agent, "get_action", 2)
    keys.spy(monkeypatch, jax.random, "permutation", 0)
    run = train(script, tmp_path, **TINY, total_timesteps=60, eval_episodes=3)
    keys.assert_distinct({"weights", "rollout", "update_ppo", "get_action", "permutation"})
    assert run.scalars()["eval/episodic_return"] == [(60, 9)], "whole games, not lives"


@pytest.mark.slow("JAX compiles")
def test_a_gradient_step_is_adams(watched: None, tmp_path: Path):
    """After one step of each environment, in which no game has ended."""
    flags = TINY | {"num_steps": 1, "num_minibatches": 1, "update_epochs": 1}
    run = train(LOOP, tmp_path, **flags, learning_rate=0.1, total_timesteps=2, seed=5)
    weights_key, _ = jax.random.split(jax.random.key(5))
    before = jax.jit(lambda: LOOP.Agent(Space(), nnx.Rngs(weights_key)))()
    state = state_of(tmp_path)["train_state"]
    for name, array in LOOP.named(before).items():
        gradient = state["opt_state"][f"mu.{name}"] / 0.1
        wanted = array - 0.1 * gradient / (np.abs(gradient) + 1e-5)
        np.testing.assert_allclose(state["agent"][name], wanted, atol=1e-5, err_msg=name)
    assert not {name for name in run.scalars() if "episodic" in name}


# ------ real runs ------
# One minibatch of all rows an iteration: its losses are those of the policy that played.
REAL: dict[str, Any] = {"num_envs": 2, "num_steps": 8, "num_minibatches": 1, "update_epochs": 1}
REAL |= {"env_threads": 1, "total_timesteps": 48}


@cache
def real_runs() -> list[Run]:
    """Both scripts, the same three iterations of Breakout with everything real."""
    folders = [command_line.shared_folder(f"real-{name}") for name in ("loop", "scan")]
    return [train(LOOP, folders[0], **REAL), train(SCAN, folders[1], **REAL)]


@pytest.mark.slow("JAX compiles")
def test_scan_is_the_loop_in_breakout():
    states = [state_of(run.folder)["train_state"] for run in real_runs()]
    jax_command_line.assert_same(*states, rtol=1e-2, atol=1e-4)
    loop, scan = (run.scalars() for run in real_runs())
    assert loop.keys() == scan.keys()
    for name in loop.keys() - {"charts/SPS"}:
        np.testing.assert_allclose(loop[name], scan[name], rtol=0.01, atol=1e-3, err_msg=name)


@pytest.mark.slow("JAX compiles")
def test_metrics_are_torchs_and_ratios_begin_at_1(tmp_path: Path):
    wanted = train(their, tmp_path, **REAL, torch_threads=1).scalars().keys()
    for run in real_runs():
        found = run.scalars()
        assert found.keys() == wanted
        for name in ("losses/approx_kl", "losses/old_approx_kl", "losses/clipfrac"):
            np.testing.assert_allclose([value for _, value in found[name]], 0, atol=1e-5)


SHORT = ("--num-envs", 2, "--num-steps", 8, "--num-minibatches", 1, "--update-epochs", 1)
SHORT += ("--env-threads", 1)


@pytest.mark.slow("JAX's command line")
def test_command_line(tmp_path: Path):
    """A run that Ctrl-C stops, is resumed and then played."""
    folder = jax_command_line.assert_stopped_and_resumed(
        *(*SHORT, "--total-timesteps", 100_000),
        cwd=tmp_path,
        script=command_line.PPO / LOOP.SCRIPT.name,
        multiple=16,
        more=("--eval-episodes", 1, "--capture-video"),
    )
    assert len(list(folder.glob("videos/evaluation-*/*.mp4"))) == 1
    printed = jax_command_line.played(folder, "--episodes", 1, cwd=tmp_path)
    assert "episode   1: return" in printed


# ------ plumbing, which is the same text in all scripts in JAX ------
def test_divergence_ends_the_run(
    watched: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    def diverging(agent: Any, *arguments: Any) -> tuple[Any, dict]:
        return agent, {"losses/approx_kl": jnp.array(0.0), "losses/grad_norm": jnp.array(jnp.nan)}

    monkeypatch.setattr(LOOP, "compute_gradient", diverging)
    args = LOOP.Args(**TINY, total_timesteps=100, checkpoint_every=1)
    with pytest.raises(SystemExit) as stopped:
        LOOP.train(args, tmp_path, {})
    assert stopped.value.code == 1 and "diverged at step 20" in capsys.readouterr().err
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_kill_while_saving_leaves_the_old_checkpoint(
    watched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    train(LOOP, tmp_path, **TINY, total_timesteps=20)
    good = (tmp_path / "checkpoint.pt").read_bytes()
    write = Path.write_bytes

    def killed(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        train(LOOP, tmp_path, **TINY, total_timesteps=40)
    assert (tmp_path / "checkpoint.pt").read_bytes() == good


def test_curves_reach_the_checkpoint_and_are_purged_beyond_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """After kill -9: what was logged until the save is there, what came later is logged again."""
    writer = LOOP.event_file_writer.RecordWriter
    write = writer.write
    # To a slow disk.
    monkeypatch.setattr(writer, "write", lambda *data: time.sleep(0.05) or write(*data))
    args = LOOP.Args(**TINY, total_timesteps=100, checkpoint_every=1)
    for part, checkpoint in ((1, {}), (2, {"global_step": 20})):
        run = LOOP.Run(args, tmp_path, checkpoint)
        for iteration in (part, part + 1):
            run.log({"losses/entropy": 10.0 * part + iteration}, 0.0, 0.1, 20 * iteration)
            run.save({}, iteration)
        points = command_line.curve(tmp_path, "losses/entropy")
        assert points[-1] == (20 * iteration, 10.0 * part + iteration)
        run.lock.release()
        time.sleep(1)  # TensorBoard orders event files by the seconds in their names
    assert points == [(20, 11.0), (40, 22.0), (60, 23.0)]


def test_only_one_process_writes_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with FileLock(tmp_path / ".lock"), pytest.raises(SystemExit) as refused:
        LOOP.Run(LOOP.Args(), tmp_path, {})
    assert refused.value.code == 2
    assert "another process is writing this run" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["missing", "cut", "list", "pickle", "torch", "other", "newer"])
def test_what_is_no_checkpoint_is_refused(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    state = {"script": LOOP.SCRIPT.name, "train_state": {"agent": {"a": np.ones(9)}}}
    state |= {"args": dataclasses.asdict(LOOP.Args())}
    file, save = tmp_path / "checkpoint.pt", serialization.msgpack_serialize
    file.write_bytes(save(state))
    assert LOOP.load_checkpoint(file)["args"] == LOOP.Args()
    trap = command_line.BoobyTrap(tmp_path / "sprung")
    contents = {
        "cut": save(state)[:-5],
        "list": save([1, 2]),
        "pickle": pickle.dumps(trap),
        "other": save(state | {"script": "ppo.py"}),
        "newer": save(state | {"args": {"flag_of_tomorrow": 1}}),
    }
    if kind == "missing":
        file.unlink()
    elif kind == "torch":
        torch.save({"agent": trap}, file)
    else:
        file.write_bytes(contents[kind])
    with pytest.raises(SystemExit) as refused:
        LOOP.load_checkpoint(file)
    assert refused.value.code == 2
    assert "is not a checkpoint that can be used here" in capsys.readouterr().err
    assert not (tmp_path / "sprung").exists()


def test_systems_without_compiled_steps_are_told_another_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.platform", "darwin")
    assert_refused(LOOP, {}, "see ppo_atari_envpool.py$", capsys)


@pytest.mark.parametrize("asked", [True, False])
def test_determinism_leaves_autotuning_on(asked: bool, monkeypatch: pytest.MonkeyPatch):
    given = "--xla_dump_max_hlo_modules=1"
    monkeypatch.setenv("XLA_FLAGS", given)
    LOOP.setup_jax(LOOP.Args(torch_deterministic=asked, device="cpu"))
    ours = " --xla_gpu_exclude_nondeterministic_ops=true" if asked else ""
    assert os.environ["XLA_FLAGS"] == given + ours


def test_jax_sees_one_gpu_alone(monkeypatch: pytest.MonkeyPatch):
    """JAX reserves three quarters of the memory of each GPU that it sees."""
    seen = []
    monkeypatch.setattr(LOOP.jax.config, "update", lambda name, value: seen.append((name, value)))
    LOOP.setup_jax(LOOP.Args(device="cpu"))
    assert ("jax_cuda_visible_devices", "0") in seen
    with suppress(RuntimeError):  # without such a GPU
        LOOP.setup_jax(LOOP.Args(device="cuda:1"))
    assert ("jax_cuda_visible_devices", "1") in seen
