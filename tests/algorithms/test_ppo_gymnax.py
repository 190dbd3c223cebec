"""ppo_gymnax.py: equations against torch's, episodes against their dynamics, seeds side by side."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.checks import assert_orthogonal
from helpers.definitions import advantages_by_definition
from helpers.in_process import Run, load_script, train

jax = pytest.importorskip("jax", reason="needs the extra `jax`")
pytest.importorskip("gymnax", reason="needs the extra `gymnax`")
jax.config.update("jax_platforms", "cpu")
import gymnax_envs  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402
from helpers import jax_command_line, jax_equations  # noqa: E402
from helpers.jax_command_line import state_of  # noqa: E402
from helpers.random_keys import Keys  # noqa: E402

NAME = "ppo_gymnax.py"
script = load_script(NAME)
their = load_script("ppo.py")
CORRIDOR: dict[str, Any] = {"env_id": "Corridor-test", "num_envs": 3, "num_steps": 8}
CORRIDOR |= {"num_minibatches": 2, "update_epochs": 2, "log_every": 1, "learning_rate": 1e-3}
BATCH = 24  # steps of an iteration


# ------ equations ------
def test_advantages_are_those_of_the_definition():
    jax_equations.assert_gae_is_the_definition(script)


def test_update_visits_every_row_and_stops_at_the_target_kl(monkeypatch: pytest.MonkeyPatch):
    jax_equations.assert_update_is_ppos(script, monkeypatch)


class Spaces:
    """What an agent asks of its environments."""

    def __init__(self, shape: tuple[int, ...]):
        self.single_observation_space = type("Box", (), {"shape": shape})
        self.single_action_space = type("Discrete", (), {"n": 3})


@cache
def agent_of(shape: tuple[int, ...]) -> Any:
    return jax.jit(lambda: script.Agent(Spaces(shape), nnx.Rngs(0)))()


@pytest.mark.slow("JAX compiles")
def test_networks_loss_and_clipped_gradient_equal_torchs():
    rng = np.random.default_rng(1)
    batch = jax_equations.random_minibatch(16)
    batch["obs"] = rng.normal(size=(16, 4)).astype(np.float32)
    batch["actions"] = rng.integers(0, 3, 16)
    agent, twin = agent_of((4,)), their.Agent(Spaces((4,)))
    jax_equations.assert_gradient_is_torchs(
        script, their, agent, twin, batch, first_layer=1, max_grad_norm=0.1
    )


@pytest.mark.parametrize(
    ("shape", "stds"),
    [
        ((10, 10, 4), [0.01, 1.0, 2**0.5, 2**0.5]),
        ((4,), [2**0.5, 2**0.5, 0.01, 2**0.5, 2**0.5, 1.0]),
    ],
)
def test_initial_weights_are_orthogonal(shape: tuple[int, ...], stds: list[float]):
    """The actor's layers come first, then the critic's and the shared ones."""
    weights = jax_equations.torch_weights(script.named(agent_of(shape)))
    assert not any(x.any() for name, x in weights.items() if name.endswith("bias"))
    assert_orthogonal([x for name, x in weights.items() if name.endswith("weight")], stds)


@pytest.mark.parametrize(("shape", "size"), [((10, 10, 4), 128), ((10, 5), 50), ((), 1)])
def test_the_network_fits_the_shape_of_the_observations(shape: tuple[int, ...], size: int):
    agent = agent_of(shape)
    x = agent.features(jnp.ones((2, *shape), int))
    assert x.shape == (2, size) and agent.get_value(x).shape == (2,)
    assert ("network.layers.1.kernel.value" in script.named(agent)) == (len(shape) == 3)
    logprob, _, _ = agent.get_logprob_entropy_value(x, jnp.array([0, 2]))
    np.testing.assert_allclose(np.exp(logprob), 1 / 3, atol=0.05)  # the last layer begins small


def test_a_linear_layer_of_patches_is_a_convolution():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, 6, 5, 4)).astype(np.float32)
    kernel = rng.normal(size=(3, 3, 4, 7)).astype(np.float32)
    found = script.patches(jnp.asarray(images)) @ kernel.reshape(36, 7)
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2)
    weight = torch.from_numpy(kernel).permute(3, 2, 0, 1)
    wanted = torch.nn.functional.conv2d(channels_first, weight).permute(0, 2, 3, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# ------ an iteration, against the dynamics of the corridor ------
@cache
def iteration() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """An iteration whose update only hands out what it was given: args, what it logs, states.

    logged["stats"] has the whole trajectory; "led_to" in it is what each step led to.
    """

    def update(train_state: dict, batch: dict, key: Any, learning_rate: Any, *_: Any) -> tuple:
        return train_state, {**batch, "learning_rate": jnp.asarray(learning_rate)}

    def step(*arguments: Any) -> Any:
        state, obs, outcome = original_step(*arguments)
        return state, obs, outcome | {"led_to": outcome["final_obs"]}

    args = script.Args(**CORRIDOR | {"num_steps": 40}, total_timesteps=1200, gamma=0.9)
    envs = script.make_envs(args, Path())
    original_step = envs.step
    optimizer = script.optax.scale_by_adam()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(script, "update_ppo", update)
        patched.setattr(envs, "step", step)

        @jax.jit
        def run() -> tuple:
            runner_state = script.make_runner_state(envs, optimizer, args)
            before = jax.tree.map(lambda x: x[0], runner_state)
            after, logged = script.train_step(envs, before, jnp.array(3), optimizer, args)
            return before, after, logged

        before, after, logged = jax.device_get(run())
    return args, logged, {"before": before, "after": after}


@pytest.mark.slow("JAX compiles")
def test_rows_are_what_happened_in_the_corridor():
    args, logged, states = iteration()
    rows = logged["stats"]
    ends = {"terminated": 0, "truncated": 0}
    for env in range(args.num_envs):
        score, length = 0.0, 0
        for t in range(args.num_steps):
            place, clock = rows["obs"][t, env]
            place, clock = place + 2 * rows["actions"][t, env] - 1, clock + 1
            score, length = score + place, length + 1
            assert rows["led_to"][t, env].tolist() == [place, clock]
            assert rows["rewards"][t, env] == place
            assert rows["terminated"][t, env] == (abs(place) >= 3)
            assert rows["truncated"][t, env] == (clock >= 5)
            over = abs(place) >= 3 or clock >= 5
            found = {name: x[t, env] for name, x in logged["episodes"].items()}
            assert found["over"] == over
            if over:
                assert (found["score"], found["length"]) == (score, length)
            last = t + 1 == args.num_steps
            shown = states["after"]["obs"][env] if last else rows["obs"][t + 1, env]
            if over:
                assert shown[1] == 0 and abs(shown[0]) <= 1, "another episode has begun"
                ends["terminated" if abs(place) >= 3 else "truncated"] += 1
                score, length = 0.0, 0
            else:
                assert shown.tolist() == [place, clock]
    assert min(ends.values()) >= 3
    starts = {rows["obs"][t, 0, 0] for t in range(args.num_steps) if rows["obs"][t, 0, 1] == 0}
    assert len(starts) > 1, "episodes begin in places of their own"
    assert (states["before"]["obs"][:, 1] == 0).all()


@pytest.mark.slow("JAX compiles")
def test_advantages_bootstrap_from_the_episodes_own_last_observation():
    args, logged, states = iteration()
    agent, batch = states["before"]["agent"], logged["stats"]
    shape = batch["rewards"].shape
    obs, led_to = (agent.features(batch[name].reshape(-1, 2)) for name in ("obs", "led_to"))
    logprobs, _, values = agent.get_logprob_entropy_value(obs, batch["actions"].ravel())
    np.testing.assert_allclose(batch["logprobs"].ravel(), logprobs, atol=1e-5)
    values = np.asarray(values).reshape(shape)
    next_values = np.asarray(agent.get_value(led_to)).reshape(shape)
    found = batch["advantages"]
    wanted = advantages_by_definition(
        batch["rewards"], values, next_values, batch["terminated"], batch["truncated"], args
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(batch["returns"], found + values, atol=1e-4)
    np.testing.assert_allclose(batch["values"], values, atol=1e-5)
    unexplained = found.var() / (found + values).var()
    assert batch["losses/explained_variance"] == pytest.approx(1 - unexplained, abs=1e-4)


@pytest.mark.slow("JAX compiles")
def test_the_learning_rate_is_annealed():
    args, logged, _ = iteration()
    assert args.num_iterations == 10
    assert logged["stats"]["learning_rate"] == pytest.approx(0.8 * 1e-3)
    assert logged["stats"]["charts/learning_rate"] == pytest.approx(0.8 * 1e-3)


# ------ runs ------
def saved(run: Run) -> dict[str, Any]:
    """The runner_state of a run's last checkpoint."""
    return state_of(run.folder)["train_state"]


def new_agents(args: Any, envs: Any) -> Any:
    return script.make_runner_state(envs, optax.scale_by_adam(), args)["agent"]


@cache
def run_of(**flags: int) -> Run:
    """Five iterations in the corridor, of seed 1 unless the flags say otherwise."""
    what = "-".join(f"{name}{value}" for name, value in flags.items())
    folder = command_line.shared_folder(f"gymnax-{what}")
    return train(script, folder, **CORRIDOR | {"total_timesteps": 5 * BATCH} | flags)


@pytest.mark.slow("JAX compiles")
def test_seeds_side_by_side_are_the_same_seeds_alone():
    together, alone = run_of(num_seeds=2), [run_of(), run_of(seed=2)]
    for number, run in enumerate(alone):
        found = jax.tree.map(lambda x, n=number: x[n : n + 1], saved(together))
        jax_command_line.assert_same(found, saved(run), rtol=1e-3, atol=1e-5)
    first, second = (run.scalars() for run in alone)
    assert first["losses/value_loss"] != second["losses/value_loss"]
    band = together.scalars()
    for step in range(BATCH, 6 * BATCH, BATCH):
        means = [
            np.mean(
                [x for end, x in curves["charts/episodic_return"] if step - BATCH < end <= step]
            )
            for curves in (first, second)
        ]
        wanted = {"": np.mean(means), "_min": min(means), "_max": max(means)}
        for name, mean in wanted.items():
            found = dict(band[f"charts/episodic_return{name}"])[step]
            assert found == pytest.approx(mean, rel=1e-4), f"{name} at {step}"
    for name in ("losses/value_loss", "losses/explained_variance"):
        means = np.mean([[x for _, x in curves[name]] for curves in (first, second)], 0)
        np.testing.assert_allclose([x for _, x in band[name]], means, rtol=1e-3, atol=1e-5)


@pytest.mark.slow("JAX compiles")
def test_seeds_in_one_batch_are_the_same_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As on a GPU; on a CPU one is trained after the other."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    flags = CORRIDOR | {"total_timesteps": 5 * BATCH, "num_seeds": 2}
    batched = train(script, tmp_path, **flags)
    jax_command_line.assert_same(saved(run_of(num_seeds=2)), saved(batched), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("flags", "iterations"),
    [({}, 47), ({"total_timesteps": 50_000}, 33), ({"log_every": 1}, 1), ({"num_envs": 500}, 1)],
)
def test_calls_are_equal_so_that_few_iterations_are_left_over(flags: dict, iterations: int):
    """By default 976 in 21 calls, as 48 are at most 25,000 steps; then 97 in 3."""
    assert script.Args(**flags).iterations_per_call == iterations


@pytest.mark.slow("JAX compiles")
def test_several_iterations_a_call_are_the_same_training():
    """Of the second call's three iterations only two are left to do."""
    one, three = run_of(), run_of(log_every=3 * BATCH + 1)
    assert three.args.iterations_per_call == 3
    jax_command_line.assert_same(saved(one), saved(three), rtol=1e-5, atol=1e-6)
    assert saved(one)["opt_state"]["count"] == 5 * 2 * 2
    fine, coarse = one.scalars(), three.scalars()
    losses = [x for _, x in fine["losses/value_loss"]]
    wanted = [(3 * BATCH, np.mean(losses[:3])), (5 * BATCH, np.mean(losses[3:]))]
    for (step, found), (wanted_step, mean) in zip(coarse["losses/value_loss"], wanted, strict=True):
        assert step == wanted_step and found == pytest.approx(mean, rel=1e-4)
    for name in ("charts/episodic_return", "charts/episodic_length"):
        assert coarse[name] == fine[name]
    rates = [x for _, x in fine["charts/learning_rate"]]
    np.testing.assert_allclose(rates, 1e-3 * np.linspace(1, 0.2, 5), rtol=1e-5)
    assert [x for _, x in coarse["charts/learning_rate"]] == [rates[2], rates[4]]


@pytest.mark.slow("JAX compiles")
def test_resumed_equals_uninterrupted(tmp_path: Path):
    jax_command_line.assert_resumed_equals(script, run_of(), tmp_path, 2 * BATCH)


@pytest.mark.slow("JAX compiles")
@pytest.mark.parametrize("flags", [{"num_envs": 2, "num_steps": 12}, {"num_seeds": 2}])
def test_what_a_resumed_run_must_keep(flags: dict[str, int], tmp_path: Path):
    checkpoint = script.load_checkpoint(run_of().folder / "checkpoint.pt")
    with pytest.raises(ValueError, match="other names or shapes"):
        script.train(script.Args(**CORRIDOR | flags), tmp_path, checkpoint)


@pytest.mark.slow("JAX compiles")
def test_no_random_key_is_used_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """By weights, episodes, iterations, actions, steps and shuffles, in training and evaluation."""
    keys = Keys()
    keys.spy_on_weights(monkeypatch, script.nnx)
    keys.spy(monkeypatch, gymnax_envs.Corridor, "reset_env", 1)
    keys.spy(monkeypatch, gymnax_envs.Corridor, "step_env", 1)
    keys.spy(monkeypatch, script.Agent, "get_action", 2)
    keys.spy(monkeypatch, script, "rollout", 4)
    keys.spy(monkeypatch, script, "update_ppo", 2)
    flags = CORRIDOR | {"num_steps": 6, "num_envs": 4, "num_seeds": 2, "log_every": 48}
    train(script, tmp_path, **flags, total_timesteps=96, eval_episodes=3)
    purposes = {"weights", "reset_env", "step_env", "get_action", "rollout"}
    keys.assert_distinct(purposes | {"update_ppo"})


@pytest.mark.slow("JAX compiles")
def test_a_seed_that_diverges_is_in_no_mean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The others go on; once all have diverged, the run ends."""
    train_steps = script.train_steps
    counts: list[int] = []  # episodes of the first seed

    def diverging(*arguments: Any) -> Any:
        after, logged = train_steps(*arguments)
        last = int(arguments[2][0]) == 4
        logged["stats"]["losses/value_loss"] = np.array([[np.nan if last else 2.0], [np.nan]])
        counts.append(0 if last else int(logged["episodes"]["over"][0].sum()))
        return after, logged

    monkeypatch.setattr(script, "train_steps", diverging)
    args = script.Args(**CORRIDOR | {"num_seeds": 2, "total_timesteps": 5 * BATCH})
    with pytest.raises(SystemExit) as ended:
        script.train(args, tmp_path, {})
    assert ended.value.code == 1
    message = capsys.readouterr().err
    assert f"{NAME}: diverged at step {4 * BATCH}: " in message
    assert message.count("nan") == 1, "which loss it was can be seen"
    points = Run(script, args, tmp_path).scalars()
    assert [x for _, x in points["losses/value_loss"][:3]] == [2.0] * 3
    means, lowest = (points[f"charts/episodic_return{x}"] for x in ("", "_min"))
    assert means and means == lowest == points["charts/episodic_return_max"], "of one seed"
    episodes = [count for _, count in points["charts/episodes"]]
    assert max(episodes) <= BATCH and sum(episodes) == sum(counts)


@pytest.mark.slow("JAX compiles")
def test_a_seed_that_has_diverged_is_evaluated_as_nan():
    args = script.Args(**CORRIDOR | {"num_seeds": 2, "eval_episodes": 3}, seed=2**31 - 1)
    agents = jax.tree.map(
        lambda x: x.at[1].set(jnp.nan), new_agents(args, script.make_envs(args, Path()))
    )
    returns = script.evaluate(agents, args, Path())["episodic_return"].reshape(2, 3)
    assert np.isfinite(returns[0]).all() and np.isnan(returns[1]).all()


def first_episodes(agent: Any, args: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Returns, lengths and first states of the first episode in each place, step by step."""
    envs = script.make_envs(args, Path())
    reset_key, key = jax.random.split(jax.random.PRNGKey(args.seed + 1_000_000))
    state, obs = envs.reset(jax.random.split(reset_key, args.eval_episodes))
    starts = state.env_state
    returns = np.full(args.eval_episodes, np.nan)
    lengths = np.zeros(args.eval_episodes, int)
    for _ in range(5):  # the longest episode
        key, act_key, step_key = jax.random.split(key, 3)
        actions = agent.get_action(agent.features(obs), act_key)
        state, obs, rows = envs.step(state, actions, jax.random.split(step_key, len(obs)))
        ended = np.asarray(rows["over"]) & np.isnan(returns)
        returns[ended] = np.asarray(rows["score"])[ended]
        lengths[ended] = np.asarray(rows["length"])[ended]
    return returns, lengths, starts


@pytest.mark.slow("JAX compiles")
def test_evaluation_plays_and_films_one_episode_in_each_place(monkeypatch: pytest.MonkeyPatch):
    films: dict[int, list[Any]] = {}
    monkeypatch.setattr(script.Gymnax, "film", lambda _, states, i: films.update({i: states}))
    run = run_of()
    agents = jax.tree.map(jnp.asarray, run_agents(run))
    args = replace(run.args, eval_episodes=40, capture_video=True, video_every=3)
    returns = script.evaluate(agents, args, Path())["episodic_return"]
    expected, lengths, starts = first_episodes(jax.tree.map(lambda x: x[0], agents), args)
    assert list(films) == list(range(0, 40, 3))
    for episode, states in films.items():
        assert len(states) == lengths[episode]
        first = jax.tree.map(lambda x, i=episode: x[i], starts)
        assert jax.tree.leaves(states[0]) == jax.tree.leaves(first)
    again = script.evaluate(agents, args, Path())["episodic_return"]
    assert (returns == again).all()
    assert returns.tolist() == expected.tolist()
    greedy = script.evaluate(agents, args, Path(), greedy=True)["episodic_return"]
    assert len(set(greedy)) <= 3, "one for each place to begin at"


def run_agents(run: Run) -> Any:
    envs = script.make_envs(run.args, Path())
    empty = jax.eval_shape(lambda: new_agents(run.args, envs))
    return script.with_arrays(empty, saved(run)["agent"])


# ------ learning ------
@pytest.mark.slow("JAX compiles")
def test_weights_of_several_seeds_are_drawn_one_after_the_other():
    """A batch of QR decompositions can wait forever for the threads of a CPU."""
    args = script.Args(num_seeds=5)
    envs = script.make_envs(args, Path())
    program = str(jax.make_jaxpr(lambda: nnx.split(new_agents(args, envs))[1])())
    shapes = re.findall(r"f32\[([\d,]+)\] \w+:f32\[[\d,]+\] = qr\[", program)
    assert shapes
    assert {shape.count(",") for shape in shapes} == {1}, "matrices, not stacks of them"


@pytest.mark.slow("JAX compiles")
def test_the_better_action_is_learned_and_a_time_limit_takes_nothing_of_its_value(tmp_path: Path):
    """An endless stream of ones is worth 1 / (1 - gamma), wherever it is cut off."""
    flags: dict[str, Any] = {"learning_rate": 0.01, "total_timesteps": 300 * BATCH, "gamma": 0.5}
    flags |= {"env_id": "Stream-test", "num_seeds": 2, "log_every": 240}
    run = train(script, tmp_path, **CORRIDOR | flags)
    returns = [x for _, x in run.scalars()["charts/episodic_return_min"]]
    assert returns[0] < 2.6 and returns[-1] > 2.9
    agents = run_agents(run)
    for seed in range(2):
        agent = jax.tree.map(lambda x, seed=seed: x[seed], agents)
        value = agent.get_value(agent.features(jnp.zeros((1, 2))))
        assert value[0] == pytest.approx(2.0, abs=0.05)


# ------ what is logged ------
def test_many_episodes_share_points(tmp_path: Path):
    run = script.Run(script.Args(total_timesteps=10_000), tmp_path, {})
    over = np.ones((130, 2), bool)
    score = np.arange(260.0).reshape(130, 2)
    run.log_episodes({"over": over, "score": score, "length": score + 1}, 260)
    run.log({}, 0.0, 0.1, 260)
    run.writer.close()
    points = Run(script, run.args, tmp_path).scalars()
    returns = points["charts/episodic_return"]
    assert len(returns) == script.MOST_POINTS and returns[0] == (6, 2.5)
    assert [step for step, _ in returns] == sorted({step for step, _ in returns})
    counts = [count for _, count in points["charts/episodes"]]
    assert sum(counts) == 260 and counts[0] == 6, "the mean of 0 to 5 is 2.5"
    weighted = np.average([x for _, x in returns], weights=counts)
    assert weighted == pytest.approx(np.mean(score))
    assert np.mean(score) == pytest.approx(points["charts/avg_episodic_return"][0][1])
    assert run.recent == [[x, x + 1] for x in range(160, 260)]


def test_points_of_several_seeds(tmp_path: Path):
    run = script.Run(script.Args(total_timesteps=10_000, num_seeds=2), tmp_path, {})
    calls = [([10, 20], [30]), ([], []), ([], [40])]  # returns of each seed's episodes
    for call, seeds in enumerate(calls):
        score = np.zeros((2, 5))
        over = np.zeros((2, 5), bool)
        for number, returns in enumerate(seeds):
            score[number, : len(returns)] = returns
            over[number, : len(returns)] = True
        episodes = {"over": over, "score": score, "length": score + 1}
        script.log_seeds(run, episodes, 100 * (call + 1))
    run.writer.close()
    points = Run(script, run.args, tmp_path).scalars()
    assert points["charts/episodic_return"] == [(100, 22.5), (300, 40.0)]
    assert points["charts/episodic_length"] == [(100, 23.5), (300, 41.0)]
    assert points["charts/episodic_return_min"] == [(100, 15.0), (300, 40.0)]
    assert points["charts/episodic_return_max"] == [(100, 30.0), (300, 40.0)]
    assert points["charts/episodes"] == [(100, 3.0), (300, 1.0)]


def test_checkpoints_are_written_when_so_many_iterations_have_passed(tmp_path: Path):
    run = script.Run(script.Args(total_timesteps=512 * 100, checkpoint_every=10), tmp_path, {})
    saved_at = []
    for iteration in (7, 14, 18, 24, 29, 45, 100):
        (tmp_path / "checkpoint.pt").unlink(missing_ok=True)
        run.save({}, iteration)
        if (tmp_path / "checkpoint.pt").exists():
            saved_at.append(iteration)
    assert saved_at == [14, 24, 45, 100]
    run.writer.close()


# ------ environments ------
KNOWN = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "SpaceInvaders-MinAtar"]
KNOWN += ["FourRooms-misc", "DeepSea-bsuite", "BernoulliBandit-misc"]


@pytest.mark.parametrize("env_id", KNOWN)
def test_environments_of_gymnax_are_compiled_once(env_id: str):
    """What an iteration returns has the types of what it takes, also where gymnax's are weak."""
    args = script.Args(env_id=env_id, num_envs=2, num_steps=4)
    envs, optimizer = script.make_envs(args, Path()), optax.scale_by_adam()
    _, obs = jax.eval_shape(envs.reset, jax.random.split(jax.random.PRNGKey(0), 2))
    assert obs.shape == (2, *envs.single_observation_space.shape)
    before = jax.eval_shape(lambda: script.make_runner_state(envs, optimizer, args))
    assert before["obs"].shape == (1, args.num_envs, *envs.single_observation_space.shape)
    after, _ = jax.eval_shape(
        lambda state: script.train_steps(envs, state, jnp.arange(2), optimizer, args), before
    )
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)


@pytest.mark.slow("JAX compiles")
def test_command_line(tmp_path: Path):
    """Two seeds that Ctrl-C stops are resumed, then played and filmed."""
    flags = ("--num-steps", 16, "--num-minibatches", 1, "--update-epochs", 1, "--log-every", 640)
    flags += ("--num-seeds", 2, "--total-timesteps", 50_000_000)
    folder = jax_command_line.assert_stopped_and_resumed(
        *flags,
        cwd=tmp_path,
        script=command_line.PPO / NAME,
        multiple=640,
        more=("--eval-episodes", 2),
    )
    playing = ("--episodes", 1, "--capture-video")
    assert "over 2 episodes" in jax_command_line.played(folder, *playing, cwd=tmp_path)
    assert len(list(folder.glob("videos/*/*.mp4"))) == 1
