"""ppo_continuous_action_mjx.py: what it does otherwise than its parent, the scan script.

Most tests use the tasks of tests/envs/robots.py, which have no physics and compile in no time.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import command_line
from helpers.checks import assert_refused
from helpers.definitions import (
    advantages_by_definition,
    assert_rewards_are_scaled,
    discounted_sums,
    two_pass,
)
from helpers.in_process import Run, load_script, record_calls, train

jax = pytest.importorskip("jax", reason="needs the extra `jax`")
pytest.importorskip("mujoco_playground", reason="needs the extra `mjx`")
import jax.numpy as jnp  # noqa: E402
import robots  # noqa: E402
from flax import nnx  # noqa: E402
from helpers import jax_command_line, jax_equations  # noqa: E402
from helpers.jax_command_line import state_of  # noqa: E402
from helpers.random_keys import Keys  # noqa: E402

jax.config.update("jax_platforms", "cpu")
script = load_script("ppo_continuous_action_mjx.py")
their = load_script("ppo_continuous_action.py")
STEPS, ENVS, LIMIT = 16, 99, 6
DRILL = {"env_id": "robots:Drill", "num_envs": ENVS, "num_steps": STEPS, "num_minibatches": 3}
DRILL |= {"total_timesteps": STEPS * ENVS * 6, "seed": 4, "gamma": 0.9, "update_epochs": 2}


class Space:
    """What an agent asks of its environments; the first two are for torch's."""

    single_observation_space = type("Box", (), {"shape": (5,)})
    single_action_space = type("Box", (), {"shape": (3,)})
    obs_size, action_size = 5, 3


def make_agent(moved: float = 0.4) -> Any:
    """An agent whose weights are far from the small initial ones, unless `moved` is 0."""
    agent = jax.jit(lambda: script.Agent(Space(), nnx.Rngs(3)))()
    if moved:
        rng = np.random.default_rng(0)
        new = {n: rng.normal(size=x.shape) * moved for n, x in script.named(agent).items()}
        for name in new:
            if "stats" in name:  # count, mean and deviation
                new[name] = np.abs(new[name]) + 0.5
        agent = script.with_arrays(agent, {n: x.astype(np.float32) for n, x in new.items()})
    return agent


# ------ policy and equations ------
def test_actions_are_sampled_from_a_normal_distribution():
    agent, samples = make_agent(), 40_000
    x = jnp.ones((1, 5))
    actions = agent.get_action(jnp.repeat(x, samples, 0), jax.random.key(0))
    mean = agent.actor(agent.normalize(x))
    assert (agent.get_action(x, jax.random.key(0), True) == mean).all()
    z = np.asarray((actions - mean) / jnp.exp(agent.actor_logstd[...]))
    assert np.abs(z.mean(0)).max() < 5 / samples**0.5
    assert np.abs(z.var(0) - 1).max() < 5 * (2 / samples) ** 0.5
    assert np.abs(np.corrcoef(z.T) - np.eye(3)).max() < 5 / samples**0.5


def test_initial_policy():
    """Mean near 0, standard deviation 1, the same for every observation."""
    agent = make_agent(moved=0)
    assert hasattr(agent.critic, "layers") and hasattr(agent.actor, "layers")
    assert agent.actor_logstd[...].tolist() == [0, 0, 0]
    for part, outputs in ((agent.critic, 1), (agent.actor, 3)):
        shapes = [layer.kernel.shape for layer in part.layers[::2]]
        assert shapes == [(5, 64), (64, 64), (64, outputs)]
    weight = agent.actor.layers[-1].kernel[...]
    np.testing.assert_allclose(weight.T @ weight, 0.01**2 * np.eye(3), atol=1e-8)


@pytest.mark.parametrize("max_grad_norm", [0.1, 1e6])
def test_loss_and_clipped_gradient_equal_torchs(max_grad_norm: float):
    """Through the normalized, clipped observations, whose statistics have no gradient."""
    agent, twin = make_agent(), their.Agent(Space())
    rng = np.random.default_rng(0)
    batch = jax_equations.random_minibatch(32)
    batch["obs"] = 3 * rng.normal(size=(32, 5)).astype(np.float32)
    batch["obs"][:2, 0] = 99, -99
    batch["actions"] = rng.normal(size=(32, 3)).astype(np.float32)
    logprobs = agent.get_logprob_entropy_value(batch["obs"], batch["actions"])[0]
    batch["logprobs"] += np.asarray(logprobs)
    flags = {"max_grad_norm": max_grad_norm, "ent_coef": 0.01}
    jax_equations.assert_gradient_is_torchs(
        script, their, agent, twin, batch, first_layer=1, **flags
    )


def test_update_visits_every_row_and_stops_at_the_target_kl(monkeypatch: pytest.MonkeyPatch):
    jax_equations.assert_update_is_ppos(script, monkeypatch)


# ------ statistics ------
def test_rounding_does_not_add_up_over_many_merges():
    """Spreads of 0.1 and 0.3 in turn: in 200,000 merges 7e-5 of the deviation are lost."""
    rows = jnp.array([[-0.1], [0.1]] * 32)

    def merge(stats: Any, _: None) -> tuple[Any, None]:
        for one in (rows, 3 * rows):
            stats = script.merge_stats(stats, one)
        return stats, None

    stats, _ = jax.lax.scan(merge, jnp.array([[0.0], [0.0], [1.0]]), None, length=100_000)
    np.testing.assert_allclose(stats.ravel(), [12_800_000, 0, 0.05**0.5], rtol=1e-4, atol=1e-7)


def in_step(_key: Any, shape: tuple[int], low: int, high: int) -> Any:
    """In place of jax.random.randint: all first episodes have the greatest length, are whole."""
    return jnp.full(shape, high - 1)


@pytest.fixture(scope="module")
def iterations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """A run: of each iteration the rows, what compute_gae got, the batch and the statistics."""
    seen: list[dict[str, Any]] = []
    rollout, compute_gae, update_ppo = script.rollout, script.compute_gae, script.update_ppo
    copied = partial(jax.tree.map, np.array)

    def spy_rollout(envs: Any, agent: Any, *arguments: Any, greedy: bool) -> Any:
        answer = rollout(envs, agent, *arguments, greedy=greedy)  # runner_state, trajectory
        seen.append({"rows": copied(answer[1]), "stats": np.array(agent.obs_stats[...])})
        seen[-1]["acted"] = agent
        return answer

    def spy_gae(*arguments: Any) -> Any:
        seen[-1]["gae"] = copied(arguments[:5])
        last = seen[-1]["acted"].get_value(seen[-1]["rows"]["next_obs"])
        seen[-1]["final_values"] = np.array(last)
        return compute_gae(*arguments)

    def spy_update(train_state: Any, batch: Any, *arguments: Any) -> Any:
        seen[-1] |= {"batch": copied(batch), "learning_rate": arguments[1]}
        rows = batch["obs"], batch["actions"]
        logprobs, _, values = train_state["agent"].get_logprob_entropy_value(*rows)
        seen[-1]["at_first"] = copied((logprobs, values))
        train_state, stats = update_ppo(train_state, batch, *arguments)
        seen[-1]["agent"] = copied(script.named(train_state["agent"]))
        return train_state, stats

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "rollout", spy_rollout)
        patch.setattr(script, "compute_gae", spy_gae)
        patch.setattr(script, "update_ppo", spy_update)
        patch.setattr(jax.random, "randint", in_step)
        folder = tmp_path_factory.mktemp("run")
        run = train(script, folder, **DRILL)
    seen[0]["run"] = run
    return seen


def joined(iterations: list[dict[str, Any]], part: str, name: str) -> np.ndarray:
    """All steps of the run: (6 * STEPS, ENVS, ...)."""
    return np.concatenate([seen[part][name] for seen in iterations])


def saved_stats(folder: Path, name: str) -> np.ndarray:
    return state_of(folder)["train_state"]["agent"][f"{name}.value"]


def trained_agent(run: Run) -> Any:
    """The agent of a run's last checkpoint."""
    envs = script.make_envs(run.args, run.folder)
    agent = jax.jit(lambda: script.Agent(envs, nnx.Rngs(0)))()
    return script.with_arrays(agent, state_of(run.folder)["train_state"]["agent"])


def is_done(iterations: list[dict[str, Any]]) -> np.ndarray:
    """Where an episode ended: (6 * STEPS, ENVS)."""
    return joined(iterations, "rows", "terminated") | joined(iterations, "rows", "truncated")


def test_statistics_cover_all_rows(iterations: list[dict[str, Any]]):
    rewards, obs = joined(iterations, "rows", "rewards"), joined(iterations, "rows", "obs")
    folder = iterations[0]["run"].folder
    found = saved_stats(folder, "obs_stats")
    np.testing.assert_allclose(found, two_pass(obs.reshape(-1, 5)), rtol=1e-3, atol=1e-3)
    wanted = two_pass(discounted_sums(rewards, is_done(iterations), 0.9).reshape(-1, 1))
    np.testing.assert_allclose(saved_stats(folder, "return_stats"), wanted, rtol=1e-3)


@pytest.mark.slow("JAX compiles")
def test_rewards_may_all_be_zero(tmp_path: Path):
    flags = {"env_id": "robots:Unpaid", "total_timesteps": STEPS * ENVS}
    train(script, tmp_path, **DRILL | flags)


def test_rewards_are_scaled_and_clipped(iterations: list[dict[str, Any]]):
    raw, scaled = joined(iterations, "rows", "rewards"), [seen["gae"][0] for seen in iterations]
    assert_rewards_are_scaled(scaled, raw, is_done(iterations), gamma=0.9, rtol=1e-3)


def test_observations_are_normalized_by_the_rollouts_before(iterations: list[dict[str, Any]]):
    """By the statistics of the rollouts before, the same in rollout and update.

    In the first rollout there are none; the first update has those of this rollout.
    """
    before = np.zeros((0, 5))
    for i, seen in enumerate(iterations):
        obs = seen["batch"]["obs"].reshape(-1, 5)
        if i:
            np.testing.assert_allclose(seen["stats"], two_pass(before), rtol=1e-3, atol=1e-3)
        else:
            assert seen["stats"].tolist() == [[0] * 5, [0] * 5, [1] * 5]
        in_update = seen["agent"]["obs_stats.value"]
        np.testing.assert_allclose(in_update, two_pass(before if i else obs), rtol=1e-3, atol=1e-3)
        before = np.concatenate([before, obs])


def test_the_first_ratio_is_1(iterations: list[dict[str, Any]]):
    for seen in iterations:
        logprobs, values = seen["at_first"]
        np.testing.assert_allclose(seen["batch"]["logprobs"], logprobs, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(seen["batch"]["values"], values, rtol=1e-4, atol=1e-4)


def test_the_learning_rate_is_annealed(iterations: list[dict[str, Any]]):
    wanted = 3e-4 * np.array([6, 5, 4, 3, 2, 1]) / 6
    np.testing.assert_allclose([seen["learning_rate"] for seen in iterations], wanted, rtol=1e-6)
    logged = iterations[0]["run"].scalars()["charts/learning_rate"]
    np.testing.assert_allclose([x for _, x in logged], wanted, rtol=1e-6)


def test_advantages_bootstrap_from_the_true_last_observation(iterations: list[dict[str, Any]]):
    """Brute force over the definition, from scaled rewards and the critic's values."""
    args = iterations[0]["run"].args
    truncated = joined(iterations, "rows", "truncated")
    assert (truncated & ~joined(iterations, "rows", "terminated")).sum() > 5
    for seen in iterations:
        _, _, next_values, terminated, truncated = seen["gae"]
        np.testing.assert_array_equal(terminated, seen["rows"]["terminated"])
        np.testing.assert_array_equal(truncated, seen["rows"]["truncated"])
        wanted = advantages_by_definition(*seen["gae"], args)
        np.testing.assert_allclose(seen["batch"]["advantages"], wanted, rtol=1e-3, atol=1e-3)
        # The value after a step is that of what the step led to, before any reset.
        np.testing.assert_allclose(next_values, seen["final_values"], rtol=1e-3, atol=1e-3)
    batches = [seen["batch"] for seen in iterations]
    explained = [1 - x["advantages"].var() / x["returns"].var() for x in batches]
    logged = iterations[0]["run"].scalars()["losses/explained_variance"]
    np.testing.assert_allclose([x for _, x in logged], explained, rtol=1e-3, atol=1e-4)


# ------ environments ------
def test_episodes_end_and_begin_as_they_should(iterations: list[dict[str, Any]]):
    """What was stored, against the rules by which Drill numbers, pays and ends its episodes."""
    names = ("obs", "next_obs", "actions", "rewards", "terminated", "truncated", "over")
    rows = {name: joined(iterations, "rows", name) for name in (*names, "score", "length")}
    births, kinds = set(), set()
    for env in range(ENVS):
        row = [{name: x[t, env] for name, x in rows.items()} for t in range(len(rows["obs"]))]
        birth, step, score = row[0]["obs"][0], 0, 0.0
        births.add(birth)
        number = np.floor(birth)
        for t in range(len(row) - 1):
            step += 1
            terminated = step == 1 + number % 10
            blown_up = terminated and number % 7 == 0
            reward = 1e5 if number % 100 == 5 and terminated else step * (1 + number % 3)
            reward = 0.0 if blown_up else reward
            score += reward
            executed = row[t]["actions"].clip(-1, 1)
            last = np.zeros(5) if blown_up else [birth, step, *executed, 3]
            np.testing.assert_array_equal(row[t]["next_obs"], np.array(last, np.float32))
            assert row[t]["rewards"] == reward and row[t]["score"] == score
            assert row[t]["terminated"] == terminated
            assert row[t]["truncated"] == (step == LIMIT) and row[t]["length"] == step
            over = terminated or step == LIMIT
            assert row[t]["over"] == over
            kinds |= {"blown up"} if blown_up else set()
            kinds |= {(row[t]["terminated"].item(), row[t]["truncated"].item())}
            shown = row[t + 1]["obs"]
            if over:  # back to the robot's first state
                assert shown.tolist() == [birth, 0, 0, 0, 3]
                step, score = 0, 0.0
            else:
                np.testing.assert_array_equal(shown, row[t]["next_obs"])
    assert len(births) == ENVS
    assert kinds >= {"blown up", (True, False), (False, True), (False, False)}
    assert (np.abs(rows["actions"]) > 1).mean() > 0.2


def test_first_episodes_end_out_of_step_and_are_not_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    seen = []

    def spy(envs: Any, agent: Any, runner_state: Any, *arguments: Any, greedy: bool) -> Any:
        after, trajectory = rollout(envs, agent, runner_state, *arguments, greedy=greedy)
        seen.append((np.asarray(runner_state[0]["limit"]), jax.tree.map(np.asarray, trajectory)))
        return after, trajectory

    rollout = script.rollout
    monkeypatch.setattr(script, "rollout", spy)
    train(script, tmp_path, **DRILL | {"env_id": "robots:Metronome", "update_epochs": 1})
    first = seen[0][0]
    assert set(first.tolist()) == set(range(1, 17))
    truncated = np.concatenate([rows["truncated"] for _, rows in seen])
    reported = np.concatenate([rows["over"] for _, rows in seen])
    for robot in range(ENVS):
        ends = 1 + np.flatnonzero(truncated[:, robot])
        assert ends[:2].tolist() == [first[robot], first[robot] + 16]
        told = 1 + np.flatnonzero(reported[:, robot])
        assert told.tolist() == ends[int(first[robot] < 16) :].tolist()


@pytest.mark.parametrize("task", ["Explosion", "UnnoticedExplosion"])
def test_a_simulation_that_blows_up_leaves_the_statistics_alone(
    task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """What counts in each episode: threes, threes and zeros are seen; 1, 0 and 0 are paid."""
    monkeypatch.setattr(jax.random, "randint", in_step)
    run = train(script, tmp_path, **DRILL | {"env_id": f"robots:{task}", "num_steps": 18})
    episodes = 5 * 18 * ENVS // 3
    seen = np.repeat([3.0, 3.0, 0.0], episodes)[:, None].repeat(5, 1)
    np.testing.assert_allclose(saved_stats(run.folder, "obs_stats"), two_pass(seen), rtol=1e-4)
    sums = np.repeat([1.0, 0.9, 0.81], episodes)[:, None]
    np.testing.assert_allclose(saved_stats(run.folder, "return_stats"), two_pass(sums), rtol=1e-4)
    assert {x for _, x in run.scalars()["charts/episodic_return"]} == {1.0}


def test_a_step_clips_actions_and_shows_the_state_of_a_dictionary(tmp_path: Path):
    args = script.Args(**(DRILL | {"env_id": "robots:DictDrill"}))
    envs = script.make_envs(args, tmp_path)
    assert (envs.obs_size, envs.action_size) == (5, 2)
    state, obs = envs.reset(jax.random.key(1))
    assert obs.shape == (5,)
    _, _, transition = jax.jit(envs.step)(state, jnp.array([3.0, -0.5]))
    assert not transition["terminated"]
    assert transition["next_obs"][1:].tolist() == [1.0, 1.0, -0.5, 3.0]


def test_the_rollout_is_compiled_once(tmp_path: Path):
    """What a step returns has the types of what it takes, also where a task's are weak."""
    envs = script.make_envs(script.Args(**DRILL | {"env_id": "robots:Explosion"}), tmp_path)
    start = jax.eval_shape(envs.task.reset, jax.random.PRNGKey(0))
    assert jax.eval_shape(envs.task.step, start, jnp.zeros(2)).reward.weak_type
    before, _ = jax.eval_shape(envs.reset, jax.random.key(1))
    after, _, _ = jax.eval_shape(envs.step, before, jnp.zeros(2))
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.dtype, old.weak_type) == (new.dtype, new.weak_type)


def test_robots_are_simulated_in_full_precision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Whatever JAX's default is: GPUs would use fewer digits."""
    asked, task_state = [], robots.Drill.state

    def spy(*arguments: Any) -> Any:
        asked.append(jax.config.jax_default_matmul_precision)
        return task_state(*arguments)

    envs = script.make_envs(script.Args(env_id="robots:Drill"), tmp_path)
    monkeypatch.setattr(robots.Drill, "state", spy)
    state, _ = envs.reset(jax.random.key(1))
    envs.step(state, jnp.zeros(2))
    assert asked == ["highest"] * 2


@pytest.mark.parametrize("greedy", [False, True])
def test_evaluation_counts_the_first_episode_of_each_robot_and_changes_nothing(
    greedy: bool,
    iterations: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    run = iterations[0]["run"]
    args = replace(run.args, eval_episodes=7)
    envs, agent = script.make_envs(args, tmp_path), trained_agent(run)
    before = jax.tree.map(np.array, script.named(agent))
    calls = record_calls(script.Agent, "get_action", monkeypatch)
    returns = script.evaluate(agent, args, tmp_path, greedy)["episodic_return"]
    assert {asked for *_, asked in calls} == {greedy}
    for name, array in script.named(agent).items():
        np.testing.assert_array_equal(array, before[name])
    reset_key, act_key = jax.random.split(jax.random.key(args.seed + 1_000_000))
    state, obs = jax.vmap(envs.reset)(jax.random.split(reset_key, 7))
    wanted, step = [None] * 7, jax.jit(jax.vmap(envs.step))
    for key in jax.random.split(act_key, LIMIT):
        state, obs, rows = step(state, agent.get_action(obs, key))
        for robot in range(7):
            if rows["over"][robot] and wanted[robot] is None:
                wanted[robot] = rows["score"][robot].item()
    assert returns.tolist() == wanted
    none = script.evaluate(agent, replace(args, eval_episodes=0), tmp_path)
    assert len(none["episodic_return"]) == 0


class Renderer:
    """In place of MuJoCo's: notes the pose that it is to draw."""

    drawn: list[float] = []  # noqa: RUF012

    def __init__(self, model: Any):
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update_scene(self, data: Any, camera: int) -> None:
        self.drawn.append(data.qpos[0])

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)


def test_every_nth_episode_of_an_evaluation_is_filmed(
    iterations: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """With about 30 pictures for a second: every other pose, at 50 of them in a second."""
    monkeypatch.setattr(script.mujoco, "Renderer", Renderer)
    Renderer.drawn = []
    flags = {"eval_episodes": 5, "capture_video": True, "video_every": 2}
    run = iterations[0]["run"]
    script.evaluate(trained_agent(run), replace(run.args, **flags), tmp_path)
    films = sorted(path.name for path in tmp_path.glob("*.mp4"))
    assert films == [f"rl-video-episode-{number}.mp4" for number in (0, 2, 4)]
    starts = [i for i, t in enumerate(Renderer.drawn) if t == 1]  # after the first step
    assert starts[0] == 0 and len(starts) == 3
    assert set(Renderer.drawn) > {1, 3} and set(Renderer.drawn) <= {1, 3, 5}


# ------ runs ------
@pytest.mark.slow("JAX compiles")
def test_no_random_key_is_used_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """By weights, starts, iterations, actions and shuffles, before and after it is resumed."""
    keys, rngs = Keys(), nnx.Rngs
    keys.spy(monkeypatch, robots.Drill, "reset", 1)
    keys.spy(monkeypatch, script.Agent, "get_action", 2)
    keys.spy(monkeypatch, jax.random, "permutation", 0)
    keys.spy(monkeypatch, script, "rollout", 3)
    keys.spy_on_weights(monkeypatch, script.nnx)
    flags = DRILL | {"num_steps": 12, "num_envs": 4, "anneal_lr": False}
    train(script, tmp_path, **flags | {"total_timesteps": 96})
    checkpoint = script.load_checkpoint(tmp_path / "checkpoint.pt")
    with monkeypatch.context() as resumed:
        resumed.setattr(script.nnx, "Rngs", rngs)  # the same weights again, then replaced
        args = script.Args(**flags | {"total_timesteps": 192, "eval_episodes": 3})
        assert script.train(args, tmp_path, checkpoint) == 0
    keys.assert_distinct({"reset", "get_action", "permutation", "rollout", "weights"})


def test_resumed_equals_uninterrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(jax.random, "randint", in_step)
    flags = DRILL | {"env_id": "robots:Metronome", "total_timesteps": STEPS * ENVS * 4}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    run = train(script, whole, **flags)
    jax_command_line.assert_resumed_equals(script, run, parts, STEPS * ENVS * 2)


@pytest.mark.slow("learning")
def test_probe_mean_moves_to_the_target(tmp_path: Path):
    flags = {"num_envs": 16, "num_steps": 64, "total_timesteps": 1024 * 30, "num_minibatches": 4}
    run = train(script, tmp_path, env_id="robots:Target", learning_rate=3e-3, **flags)
    agent = trained_agent(run)
    x = jnp.array([[-1.0], [1.0]])
    actions = agent.get_action(x, jax.random.key(0), True)
    np.testing.assert_allclose(actions, [[-0.5, -0.5], [0.5, 0.5]], atol=0.15)
    assert (agent.actor_logstd[...] < -0.4).all()  # it has become surer


@pytest.mark.slow("MuJoCo's physics compile")
def test_a_real_task(tmp_path: Path):
    """The pole stands at first, for which CartpoleBalance pays almost 1."""
    flags = {"env_id": "CartpoleBalance", "num_envs": 4, "num_steps": 8, "num_minibatches": 2}
    run = train(script, tmp_path, **flags, total_timesteps=96)
    stats = saved_stats(run.folder, "obs_stats")
    assert stats[0, 0] == 96 and np.isfinite(stats).all()
    assert stats[1, 1] > 0.9  # cosine of the pole's angle
    assert 0.5 < saved_stats(run.folder, "return_stats")[1, 0] < 20


SHORT = ("--env-id", "robots:Drill", "--num-envs", 2, "--num-steps", 8, "--num-minibatches", 1)
SHORT += ("--update-epochs", 1)


@pytest.mark.slow("JAX's command line")
def test_command_line(tmp_path: Path):
    """A run that Ctrl-C stops, is resumed and then played."""
    folder = jax_command_line.assert_stopped_and_resumed(
        *(*SHORT, "--total-timesteps", 100_000_000),
        cwd=tmp_path,
        script=command_line.PPO / script.SCRIPT.name,
        multiple=16,
        more=("--eval-episodes", 2),
    )
    printed = jax_command_line.played(folder, "--episodes", 2, cwd=tmp_path)
    assert "episode   2: return" in printed


def test_films_need_something_to_draw_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def without_screen(model: Any) -> None:
        raise script.mujoco.FatalError("an OpenGL platform library has not been loaded")

    monkeypatch.setattr(script.mujoco, "Renderer", without_screen)
    flags = {"env_id": "robots:Drill", "capture_video": True}
    assert_refused(script, flags, "put MUJOCO_GL=egl before", capsys)
