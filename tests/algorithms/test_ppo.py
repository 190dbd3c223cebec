"""train() as a whole: which rows it learns from, how it steps, what it logs, what it can solve."""

import gc
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from helpers.checks import (
    assert_compiled_is_the_same,
    assert_first_ratio_is_1,
    assert_same_weights,
)
from helpers.in_process import load_script, record_gradients_left, train

ppo = load_script("ppo.py")
# Small rollouts of an environment whose episodes have 1 to 5 steps: they end anywhere.
COUNTER = {"env_id": "probes:Counter-v0", "num_envs": 3, "num_steps": 7, "num_minibatches": 3}
COUNTER |= {"total_timesteps": 21 * 8, "seed": 5, "gamma": 0.9, "update_epochs": 2}
CARTPOLE = {"num_envs": 2, "num_steps": 32, "total_timesteps": 64 * 6}
METRICS = {
    "charts/SPS",
    "charts/episodic_length",
    "charts/episodic_return",
    "charts/learning_rate",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/entropy",
    "losses/explained_variance",
    "losses/grad_norm",
    "losses/old_approx_kl",
    "losses/policy_loss",
    "losses/value_loss",
}


class Spy:
    """What train() passes to its functions, copied; one element for each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.gae: list[tuple[np.ndarray, ...]] = []  # compute_gae's arrays, advantages, returns
        self.batches: list[dict[str, torch.Tensor]] = []  # one for each iteration
        self.mb_inds: list[list[torch.Tensor]] = []  # of each iteration
        self.stats: list[list[dict[str, float]]] = []
        self.parameters: list[list[torch.Tensor]] = []  # before each gradient step
        self.gradients: list[list[torch.Tensor]] = []
        compute_gae, compute_gradient = ppo.compute_gae, ppo.compute_gradient

        def spy_gae(*arguments: Any) -> Any:
            result = compute_gae(*arguments)
            self.gae.append(tuple(np.array(x) for x in (*arguments[:5], *result)))
            return result

        def spy_gradient(agent: Any, batch: dict, mb_inds: torch.Tensor, args: Any) -> Any:
            if len(self.batches) < len(self.gae):
                self.batches.append({name: rows.clone() for name, rows in batch.items()})
                self.mb_inds.append([])
                self.stats.append([])
            self.mb_inds[-1].append(mb_inds.clone())
            self.parameters.append([p.detach().clone() for p in agent.parameters()])
            stats = compute_gradient(agent, batch, mb_inds, args)
            self.gradients.append([p.grad.clone() for p in agent.parameters()])
            self.stats[-1].append({name: x.item() for name, x in stats.items()})
            return stats

        monkeypatch.setattr(ppo, "compute_gae", spy_gae)
        monkeypatch.setattr(ppo, "compute_gradient", spy_gradient)

    def columns(self, name: str, args: Any) -> np.ndarray:
        """A batch's rows over all rollouts, in time order: (all steps, num_envs, ...)."""
        rows = [b[name].unflatten(0, (args.num_steps, args.num_envs)) for b in self.batches]
        return torch.cat(rows).numpy()


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def scalars_but_speed(run: Any) -> dict[str, list[tuple[int, float]]]:
    return {name: points for name, points in run.scalars().items() if name != "charts/SPS"}


# ------ rows ------
def test_environments_are_stepped_side_by_side_and_reset_on_the_same_step(tmp_path: Path):
    """The last observation is kept, also of an environment that overwrites its only array."""
    envs = ppo.make_envs(ppo.Args(**COUNTER), tmp_path)
    obs, _ = envs.reset(seed=5)
    assert envs.num_envs == len(obs) == 3
    assert obs.tolist() == [[seed, 0, 0, 0] for seed in (5, 6, 7)]  # a seed of its own for each
    ended = []
    counts = [[0, 0] for _ in range(3)]  # episode and step
    for _ in range(20):
        obs, rewards, terminated, truncated, infos = envs.step(np.zeros(3, int))
        for env, count in enumerate(counts):
            episode, step = count
            length, *ends = probes.plan(5 + env, episode)
            last = step + 1 == length
            count[:] = [episode + 1, 0] if last else [episode, step + 1]
            assert obs[env].tolist() == [5 + env, *count, 0]
            assert rewards[env] == probes.reward_of(episode, step)
            assert [terminated[env], truncated[env]] == (ends if last else [0, 0])
            if last:
                assert infos["final_obs"][env].tolist() == [5 + env, episode, length, 1]
                assert infos["final_info"]["episode"]["l"][env] == length
                ended.append(env)
    assert set(ended) == {0, 1, 2} and len(ended) > 15
    envs.close()


def test_every_row_is_a_step_that_was_taken(spy: Spy, tmp_path: Path):
    """With its own observation, action and reward, also from one rollout to the next."""
    probes.EXECUTED.clear()
    run = train(ppo, tmp_path, **COUNTER)
    obs, actions = (spy.columns(name, run.args) for name in ("obs", "actions"))
    rewards = np.concatenate([gae[0] for gae in spy.gae])
    assert obs.shape == (7 * 8, 3, 4)
    for env in range(3):
        executed = [step[1:] for step in probes.EXECUTED if step[0] == 5 + env]
        rows = [(*obs[t, env, 1:3], actions[t, env]) for t in range(7 * 8)]
        assert executed == rows
        assert rewards[:, env].tolist() == [probes.reward_of(*step[:2]) for step in executed]


def test_truncated_episodes_are_bootstrapped_from_their_last_observation(spy: Spy, tmp_path: Path):
    """A step's return is its reward and the value after it; 0 if it terminates, whatever else.

    Rows of the batch belong together: nothing is transposed on the way.
    """
    run = train(ppo, tmp_path, **COUNTER | {"gae_lambda": 0.0, "total_timesteps": 21})
    torch.manual_seed(run.args.seed)
    envs = ppo.make_envs(run.args, tmp_path)
    initial = ppo.Agent(envs)  # the values are those before the first gradient step
    envs.close()
    names = ("obs", "values", "advantages", "returns")
    obs, values, advantages, returns = (spy.columns(name, run.args) for name in names)
    seen = set()
    for t, env in np.ndindex(7, 3):
        seed, episode, step, _ = (int(x) for x in obs[t, env])
        length, terminates, truncates = probes.plan(seed, episode)
        ends = step + 1 == length
        after = torch.tensor([[seed, episode, step + 1, float(ends)]])
        value = 0.0 if ends and terminates else initial.get_value(after).item()
        expected = probes.reward_of(episode, step) + 0.9 * value
        before = initial.get_value(torch.from_numpy(obs[t, env])[None]).item()
        assert values[t, env] == pytest.approx(before, rel=1e-4, abs=1e-5)
        assert returns[t, env] == pytest.approx(expected, rel=1e-4)
        assert advantages[t, env] == pytest.approx(expected - before, rel=1e-4, abs=1e-4)
        seen.add((ends, bool(terminates), bool(truncates)) if ends else "within")
    assert len(seen) == 4  # within an episode, terminated, truncated, both


# ------ updates ------
def test_first_ratio_is_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert_first_ratio_is_1(ppo, monkeypatch, tmp_path, **COUNTER | {"learning_rate": 0.01})


def test_minibatches_are_a_new_partition_in_each_epoch(spy: Spy, tmp_path: Path):
    flags = {**COUNTER, "num_minibatches": 3, "update_epochs": 4}
    run = train(ppo, tmp_path, **flags)
    assert len(spy.mb_inds) == run.args.num_iterations == 8
    orders = []
    for calls in spy.mb_inds:
        assert len(calls) == 4 * 3
        for epoch in range(4):
            minibatches = calls[3 * epoch : 3 * epoch + 3]
            assert [len(inds) for inds in minibatches] == [7, 7, 7]
            orders.append(torch.cat(minibatches).tolist())
            assert sorted(orders[-1]) == list(range(21))
    assert len({tuple(order) for order in orders}) == len(orders)  # shuffled, anew each time
    assert list(range(21)) not in orders


def test_gradients_of_minibatches_do_not_add_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    left = record_gradients_left(ppo, monkeypatch)
    train(ppo, tmp_path, **COUNTER)
    assert len(left) == 8 * 2 * 3 and not any(left)


def test_first_step_is_adams(spy: Spy, tmp_path: Path):
    """Adam's first step is lr * g / (|g| + eps), whatever its other constants are; eps is 1e-5."""
    train(ppo, tmp_path, **(CARTPOLE | {"learning_rate": 0.1, "total_timesteps": 64}))
    before, after, gradients = spy.parameters[0], spy.parameters[1], spy.gradients[0]
    differences = []
    for old, new, g in zip(before, after, gradients, strict=True):
        expected = old - 0.1 * g / (g.abs() + 1e-5)
        torch.testing.assert_close(new, expected, rtol=0, atol=1e-5)
        differences.append((0.1 * g.sign() - 0.1 * g / (g.abs() + 1e-5)).abs().max())
    assert max(differences) > 0.01  # some gradients are so small that eps matters


@pytest.mark.parametrize("anneal_lr", [True, False])
def test_learning_rate(anneal_lr: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Lowered linearly before each iteration: from the whole to the last N-th, never to 0."""
    used = []

    class Adam(torch.optim.Adam):
        def step(self, *arguments: Any) -> Any:
            used.append(self.param_groups[0]["lr"])
            return super().step(*arguments)

    monkeypatch.setattr(ppo.optim, "Adam", Adam)
    run = train(ppo, tmp_path, **CARTPOLE, learning_rate=0.006, anneal_lr=anneal_lr)
    expected = [0.006, 0.005, 0.004, 0.003, 0.002, 0.001] if anneal_lr else [0.006] * 6
    np.testing.assert_allclose(used, np.repeat(expected, 16), rtol=1e-6)
    logged = [value for _, value in run.scalars()["charts/learning_rate"]]
    np.testing.assert_allclose(logged, expected, rtol=1e-6)


@pytest.mark.parametrize(("target_kl", "epochs"), [(None, 4), (5.0, 2), (0.5, 1), (10.0, 4)])
def test_target_kl(
    target_kl: float | None, epochs: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """An update ends after an epoch in whose last minibatch the divergence is too great."""
    divergences, calls = [9, 0, 1, 0, 0, 6, 0, 0, 2, 0, 0, 3], []
    ppo_loss, compute_gae = ppo.ppo_loss, ppo.compute_gae

    def with_divergence(*arguments: Any) -> Any:
        loss, stats = ppo_loss(*arguments)
        divergence = torch.tensor(float(divergences[len(calls[-1])]))
        calls[-1].append(divergence)
        return loss, stats | {"losses/approx_kl": divergence}

    def begin(*arguments: Any) -> Any:
        calls.append([])
        return compute_gae(*arguments)

    monkeypatch.setattr(ppo, "ppo_loss", with_divergence)
    monkeypatch.setattr(ppo, "compute_gae", begin)
    flags = {**COUNTER, "update_epochs": 4, "target_kl": target_kl, "total_timesteps": 42}
    train(ppo, tmp_path, **flags)
    assert [len(iteration) for iteration in calls] == [3 * epochs, 3 * epochs]


# ------ reproducibility ------
def test_the_seed_decides_and_worker_processes_change_nothing(tmp_path: Path):
    changes = {"again": {}, "workers": {"async_envs": True}, "other": {"seed": 4}}
    run = train(ppo, tmp_path, **COUNTER)
    again, workers, other = (
        train(ppo, tmp_path / name, **COUNTER | change) for name, change in changes.items()
    )
    for same in (again, workers):
        assert_same_weights(run, same)
        assert scalars_but_speed(run) == scalars_but_speed(same)
    with pytest.raises(AssertionError):
        assert_same_weights(run, other)


def test_a_resumed_part_has_episodes_and_noise_of_its_own(tmp_path: Path):
    """Of four actions of an agent that learns nothing, about one is the first part's."""
    probes.EXECUTED.clear()
    run = train(ppo, tmp_path, **COUNTER | {"learning_rate": 0.0})
    first = probes.EXECUTED.copy()
    probes.EXECUTED.clear()
    gc.collect()  # gives back the lock of the first part
    more = replace(run.args, total_timesteps=2 * run.args.total_timesteps)
    assert ppo.train(more, tmp_path, ppo.load_checkpoint(tmp_path / "checkpoint.pt")) == 0
    pairs = list(zip(first, probes.EXECUTED, strict=True))
    assert not {a[0] for a, _ in pairs} & {b[0] for _, b in pairs}  # seeds of the episodes
    assert 0.15 < np.mean([a[3] == b[3] for a, b in pairs]) < 0.35


@pytest.mark.slow("torch.compile")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_compiled_run_is_the_same(tmp_path: Path):
    assert_compiled_is_the_same(ppo, tmp_path, **CARTPOLE | {"total_timesteps": 64 * 3})


# ------ logs ------
def test_episodes_are_logged(tmp_path: Path):
    """Returns and lengths as counted by hand, at the step at which the episodes ended."""
    run = train(ppo, tmp_path, **COUNTER)
    steps, expected = 7 * 8, []
    for env in range(3):
        step, episode = 0, 0
        while step + (length := probes.plan(5 + env, episode)[0]) <= steps:
            score = sum(probes.reward_of(episode, i) for i in range(length))
            expected.append(((step + length) * 3, env, score, length))
            step, episode = step + length, episode + 1
    expected.sort()
    scalars = run.scalars()
    assert scalars["charts/episodic_return"] == [(step, score) for step, _, score, _ in expected]
    assert scalars["charts/episodic_length"] == [(step, length) for step, _, _, length in expected]
    assert len(expected) > 30
    assert run.state["recent"] == [[score, length] for _, _, score, length in expected][-100:]


def test_every_metric_is_logged(spy: Spy, tmp_path: Path):
    """One point per iteration; losses are means over all minibatches of the iteration."""
    run = train(ppo, tmp_path, **CARTPOLE)
    scalars = run.scalars()
    assert set(scalars) == METRICS
    steps = [64, 128, 192, 256, 320, 384]
    for name in METRICS - {"charts/episodic_return", "charts/episodic_length", "charts/SPS"}:
        assert [step for step, _ in scalars[name]] == steps, name
    assert [step for step, _ in scalars["charts/SPS"]] == steps[1:]
    assert len(spy.stats) == 6 and all(len(stats) == 16 for stats in spy.stats)
    for name in spy.stats[0][0]:
        expected = [np.mean([stats[name] for stats in iteration]) for iteration in spy.stats]
        logged = [value for _, value in scalars[name]]
        np.testing.assert_allclose(logged, expected, rtol=1e-4, atol=1e-8, err_msg=name)
    for (_, logged), gae in zip(scalars["losses/explained_variance"], spy.gae, strict=True):
        values, returns = gae[1], gae[6]
        assert logged == pytest.approx(1 - (returns - values).var() / returns.var(), abs=1e-4)


@pytest.mark.parametrize("greedy", [True, False])
def test_evaluation_plays_whole_episodes_of_its_own(greedy: bool, tmp_path: Path):
    args = ppo.Args(**COUNTER, eval_episodes=6)
    envs = ppo.make_envs(args, tmp_path)
    agent = ppo.Agent(envs)
    envs.close()
    probes.EXECUTED.clear()
    results = ppo.evaluate(agent, args, tmp_path, greedy)
    seeds, _, _, actions = zip(*probes.EXECUTED, strict=True)
    assert set(seeds) == {1_000_005}  # not the games of the training
    assert (len(set(actions)) == 1) == greedy
    lengths = [probes.plan(1_000_005, episode)[0] for episode in range(6)]
    expected = [sum(probes.reward_of(i, t) for t in range(n)) for i, n in enumerate(lengths)]
    assert results["episodic_return"].tolist() == expected


# ------ probe environments: solved in seconds, or something is wrong ------
@pytest.mark.parametrize(
    ("kind", "gamma", "observations", "values", "actions"),
    [
        ("Constant", 0.99, [0], [1], [0]),
        ("Observation", 0.99, [-1, 1], [-1, 1], [0, 0]),
        ("Discount", 0.5, [0, 1], [0.5, 1], [0, 0]),
        ("Action", 0.99, [0], [1], [1]),
        ("Both", 0.99, [-1, 1], [1, 1], [0, 1]),
        # After the first state the stream of ones goes on: 1 + 1/2 + 1/4 + ... = 2. If a time limit
        # were an end, or what follows it the next episode, both values were smaller.
        ("TimeLimit", 0.5, [-1, 1], [1, 2], [0, 0]),
    ],
)
def test_probe(
    kind: str,
    gamma: float,
    observations: list[float],
    values: list[float],
    actions: list[int],
    tmp_path: Path,
):
    flags = {"num_envs": 8, "num_steps": 16, "total_timesteps": 128 * 60, "learning_rate": 5e-3}
    flags |= {"env_id": f"probes:{kind}-v0", "ent_coef": 0.0, "gamma": gamma}
    agent = train(ppo, tmp_path, **flags).agent()
    obs = torch.tensor(observations, dtype=torch.float32)[:, None]
    assert agent.get_value(obs).tolist() == pytest.approx(values, abs=0.12)
    probabilities = agent.actor(obs).softmax(-1)
    assert (probabilities[range(len(actions)), actions] > 0.95).all()


# ------ learning ------
@pytest.mark.slow("learning")
def test_cartpole(tmp_path: Path):
    """The last 50 episodes of a short run, out of 500 at most.

    With these flags seeds 1, 2 and 3 ended at 388, 475 and 487.
    """
    flags = {"learning_rate": 2.5e-3, "gamma": 0.98, "num_envs": 8, "num_steps": 32}
    run = train(ppo, tmp_path, env_id="CartPole-v1", total_timesteps=50_000, **flags)
    returns = [value for _, value in run.scalars()["charts/episodic_return"]]
    assert np.mean(returns[:20]) < 50  # it had something to learn
    assert np.mean(returns[-50:]) > 300
