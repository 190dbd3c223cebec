"""ppo_continuous_action.py: what it does otherwise than ppo.py."""

import ctypes.util
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import continuous
import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.checks import (
    assert_compiled_is_the_same,
    assert_first_ratio_is_1,
    assert_orthogonal,
    assert_refused,
    new_agent,
)
from helpers.definitions import assert_rewards_are_scaled, discounted_sums, two_pass
from helpers.in_process import load_script, record_calls, train
from helpers.sb3_update import OBS, ROWS, assert_update_equals_sb3, make_batch, moved_agent
from scipy.stats import kstest
from torch import Tensor
from torch.distributions import Independent, Normal

script = load_script("ppo_continuous_action.py")
FILE = command_line.PPO / "ppo_continuous_action.py"
WALK = {"env_id": "continuous:Walk-v0", "num_envs": 3, "num_steps": 16, "num_minibatches": 3}
WALK |= {"total_timesteps": 48 * 6, "seed": 5, "gamma": 0.9, "update_epochs": 2}
ACTIONS = gym.spaces.Box(-1, 1, (3,))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """For each iteration: the batch, what compute_gae got, and the statistics of the update."""
    seen: list[dict[str, Any]] = []
    compute_gae, compute_gradient = script.compute_gae, script.compute_gradient

    def spy_gae(rewards: np.ndarray, *arguments: Any) -> Any:
        *_, terminated, truncated, _ = arguments
        seen.append({"rewards": rewards.copy(), "done": terminated | truncated})
        return compute_gae(rewards, *arguments)

    def spy_gradient(agent: Any, batch: dict, mb_inds: Tensor, args: Any) -> Any:
        if "batch" not in seen[-1]:
            seen[-1]["batch"] = {name: x.clone() for name, x in batch.items()}
            seen[-1]["stats"] = agent.obs_stats.clone()
        return compute_gradient(agent, batch, mb_inds, args)

    monkeypatch.setattr(script, "compute_gae", spy_gae)
    monkeypatch.setattr(script, "compute_gradient", spy_gradient)
    return seen


# ------ policy ------
def test_log_probability_entropy_and_value_are_those_of_a_normal_distribution():
    agent = moved_agent(script, ACTIONS)
    x, action = torch.randn(200, 5), 2 * torch.randn(200, 3)
    logprob, entropy, value = agent.get_logprob_entropy_value(x, action)
    normal = Independent(Normal(agent.actor(x), agent.actor_logstd.exp()), 1)
    torch.testing.assert_close(logprob, normal.log_prob(action), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, normal.entropy(), rtol=1e-4, atol=1e-5)
    assert logprob.shape == entropy.shape == value.shape == (200,)
    torch.testing.assert_close(value, agent.get_value(x))
    torch.testing.assert_close(agent.get_action(x, greedy=True), normal.mean)


def test_actions_are_sampled_from_that_distribution():
    agent, samples = moved_agent(script, ACTIONS), 40_000
    x = torch.randn(1, 5)
    with torch.inference_mode():
        actions = agent.get_action(x.expand(samples, 5))
    mean, std = agent.actor(x)[0], agent.actor_logstd.exp()
    z = ((actions - mean) / std).detach()
    for component in z.T:
        assert kstest(component, "norm").pvalue > 0.001
    correlations = torch.corrcoef(z.T) - torch.eye(3)  # components are independent,
    assert correlations.abs().max() < 5 / samples**0.5
    assert (z[1:] * z[:-1]).mean(0).abs().max() < 5 / samples**0.5  # and so are rows


def test_initial_policy():
    """Mean near 0, standard deviation 1, the same for every observation."""
    agent = new_agent(script, OBS, ACTIONS)
    assert agent.actor_logstd.tolist() == [0, 0, 0]
    assert isinstance(agent.actor_logstd, torch.nn.Parameter)
    assert_orthogonal([agent.actor[-1].weight], [0.01])
    _, entropy, _ = agent.get_logprob_entropy_value(torch.randn(9, 5), torch.zeros(9, 3))
    assert len(entropy.unique()) == 1


def test_update_equals_stable_baselines3():
    actions = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(1))
    assert_update_equals_sb3(script, ACTIONS, actions, "to", ent_coef=0.3)


def test_first_ratio_is_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert_first_ratio_is_1(script, monkeypatch, tmp_path, **WALK | {"learning_rate": 0.01})


# ------ actions ------
def test_the_environment_sees_clipped_actions_and_the_batch_holds_unclipped_ones(
    batches: list, tmp_path: Path
):
    continuous.EXECUTED.clear()
    run = train(script, tmp_path, **WALK)  # an action out of bounds would have ended it
    stored = torch.cat([seen["batch"]["actions"] for seen in batches])
    assert ((stored < -0.5) | (stored > 0.25)).float().mean() > 0.5
    for env in range(3):
        executed = [action for seed, action in continuous.EXECUTED if seed == run.args.seed + env]
        np.testing.assert_array_equal(stored[env::3].clip(-0.5, 0.25), executed)


def test_robust_policy_optimization_moves_the_mean_and_leaves_the_batch(
    monkeypatch: pytest.MonkeyPatch,
):
    """By noise on each action, uniform between -rpo_alpha and rpo_alpha."""
    agent, actions = moved_agent(script, ACTIONS), torch.randn(ROWS, 3)
    batch = make_batch(agent, actions.clone(), "to")
    calls = record_calls(script.Agent, "get_logprob_entropy_value", monkeypatch)
    for _ in range(400):
        script.compute_gradient(agent, batch, torch.arange(ROWS), script.Args(rpo_alpha=0.5))
    assert torch.equal(batch["actions"], actions)
    z = torch.stack([given - actions for _, _, given in calls])
    assert z.abs().max() == pytest.approx(0.5, abs=1e-3)
    assert z.var().item() == pytest.approx(1 / 12, rel=0.05)
    assert abs(z.mean().item()) < 0.01


# ------ statistics ------
@pytest.mark.parametrize("sizes", [[100], [1, 99], [3, 7, 50, 40], [1] * 100], ids=str)
def test_merge_stats_equals_a_two_pass_computation(sizes: list[int]):
    x = np.random.default_rng(0).normal([1, -300, 0.01], [2, 40, 0.001], (100, 3))
    stats, start = torch.tensor([[0.0], [0.0], [1.0]]).repeat(1, 3), 0
    for size in sizes:
        script.merge_stats(stats, torch.from_numpy(x[start : start + size]).float())
        start += size
    np.testing.assert_allclose(stats, two_pass(x), rtol=2e-4)


def test_statistics_cover_all_steps_and_rewards_are_scaled(
    batches: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Those of all environments, each once."""
    paid, step = [], gym.vector.SyncVectorEnv.step

    def spy(envs: Any, actions: np.ndarray) -> Any:
        answer = step(envs, actions)
        paid.append(answer[1].copy())
        return answer

    monkeypatch.setattr(gym.vector.SyncVectorEnv, "step", spy)
    run = train(script, tmp_path, **WALK)
    raw = np.array(paid)
    obs = torch.cat([seen["batch"]["obs"] for seen in batches]).numpy()
    stats = run.state["agent"]["obs_stats"]
    np.testing.assert_allclose(stats, two_pass(obs), rtol=1e-4, atol=1e-5)
    done = np.concatenate([seen["done"] for seen in batches])
    assert 0.1 < done.mean() < 0.5
    sums = discounted_sums(raw, done, gamma=0.9)
    expected = two_pass(sums.reshape(-1, 1))
    np.testing.assert_allclose(run.state["agent"]["return_stats"], expected, rtol=1e-4)
    assert_rewards_are_scaled([seen["rewards"] for seen in batches], raw, done, gamma=0.9)


def test_rewards_may_all_be_zero(tmp_path: Path):
    train(script, tmp_path, **WALK | {"env_id": "continuous:Unpaid-v0", "total_timesteps": 48})


def test_observations_are_normalized_and_clipped(batches: list, tmp_path: Path):
    """By the statistics of the rollouts before; in the first update by those of the first."""
    agent = train(script, tmp_path, **WALK).agent()
    obs = [seen["batch"]["obs"] for seen in batches]
    for i, seen in enumerate(batches):
        expected = two_pass(torch.cat(obs[: max(i, 1)]).numpy())
        np.testing.assert_allclose(seen["stats"], expected, rtol=1e-4, atol=1e-5)
        agent.obs_stats.copy_(seen["stats"])
        _, mean, std = expected
        normalized = ((obs[i].numpy() - mean) / std.clip(1e-4)).clip(-10, 10)
        np.testing.assert_allclose(agent.normalize(obs[i]), normalized, rtol=1e-3, atol=1e-3)
    far = torch.tensor([[1e9, -1e9, 3.0]])
    assert agent.normalize(far).tolist() == [[10.0, -10.0, 0.0]]  # the third has always been 3
    # Whoever asks the agent shows it observations as they are.
    normalized = agent.normalize(obs[0])
    actions = batches[0]["batch"]["actions"]
    means, values = agent.actor(normalized), agent.critic(normalized).squeeze(-1)
    torch.testing.assert_close(agent.get_action(obs[0], greedy=True), means)
    torch.testing.assert_close(agent.get_value(obs[0]), values)
    expected_logprob = Independent(Normal(means, agent.actor_logstd.exp()), 1).log_prob(actions)
    logprob, _, also_values = agent.get_logprob_entropy_value(obs[0], actions)
    torch.testing.assert_close(logprob, expected_logprob)
    torch.testing.assert_close(also_values, values)


def test_an_infinite_observation_ends_the_run_before_it_is_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """Clamped, it does not show in the losses; but no statistics ever forget it."""
    with pytest.raises(SystemExit):
        train(script, tmp_path, **WALK | {"env_id": "continuous:InfWalk-v0", "checkpoint_every": 1})
    assert "an observation is not finite" in capsys.readouterr().err
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["global_step"] > 0 and saved["agent"]["obs_stats"].isfinite().all()


# ------ environments ------
@pytest.mark.slow("learning")
@pytest.mark.parametrize("env_id", ["Target", "ScalarTarget", "MatrixTarget"])
def test_probe_mean_moves_to_the_target(env_id: str, tmp_path: Path):
    flags = {"num_envs": 8, "num_steps": 32, "total_timesteps": 256 * 30, "num_minibatches": 4}
    run = train(script, tmp_path, env_id=f"continuous:{env_id}-v0", learning_rate=1e-2, **flags)
    agent = run.agent()
    actions = agent.get_action(torch.tensor([[-1.0], [1.0]]), greedy=True)
    expected = torch.tensor([-0.5, 0.5]).view(2, *[1] * (actions.dim() - 1)).expand_as(actions)
    torch.testing.assert_close(actions.detach(), expected, rtol=0, atol=0.15)
    assert (agent.actor_logstd < -0.4).all()  # it has become surer


def test_dict_observations_are_flattened(batches: list, tmp_path: Path):
    train(script, tmp_path, **(WALK | {"env_id": "continuous:DictWalk-v0"}))
    obs = batches[0]["batch"]["obs"]
    assert obs.shape == (48, 3) and (obs[:, 2] == 3).all() and (obs[:, 0] > 100).all()


@pytest.mark.slow("torch.compile")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_compiled_run_is_the_same(tmp_path: Path):
    """Without RPO's noise, which compiled code draws from a stream of its own."""
    assert_compiled_is_the_same(script, tmp_path, **WALK)


@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("HalfCheetah-v4", "mujoco"),
        ("LunarLanderContinuous-v3", "Box2D"),
        ("dm_control/cartpole-balance-v0", "dm_control"),
    ],
)
def test_simulators(env_id: str, package: str, tmp_path: Path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    flags = ["--num-steps", 64, "--num-minibatches", 2, "--update-epochs", 1, "--seed", 3]
    flags += ["--env-id", env_id, "--total-timesteps", 128, "--eval-episodes", 0]
    run = command_line.train_command(*flags, cwd=tmp_path, script=FILE)
    assert command_line.checkpoint(run.folder)["global_step"] == 128


def test_films_need_something_to_draw_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    mujoco = pytest.importorskip("mujoco")

    def without_screen(model: Any) -> None:
        raise mujoco.FatalError("an OpenGL platform library has not been loaded")

    monkeypatch.setattr(mujoco, "Renderer", without_screen)
    flags = {"env_id": "Hopper-v5", "capture_video": True}
    assert_refused(script, flags, "put MUJOCO_GL=egl before the command", capsys)
    script.check(script.Args(env_id="Hopper-v5"))  # nothing is drawn


def test_dm_control_needs_an_older_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "version_info", (3, 13))
    flags = {"env_id": "dm_control/walker-walk-v0"}
    assert_refused(script, flags, "dm_control needs Python 3.11 or 3.12", capsys)


@pytest.mark.slow("torch is imported anew")
def test_dm_control_draws_without_a_screen(tmp_path: Path):
    """dm_control starts Mesa when it is imported; torch's own LLVM must be there before.

    Else the program crashes with the first frame.
    """
    if not ctypes.util.find_library("EGL") or importlib.util.find_spec("dm_control") is None:
        pytest.skip("needs libegl1 and dm_control")
    flags = ["--num-steps", 8, "--num-minibatches", 2, "--update-epochs", 1, "--eval-episodes", 0]
    flags += ["--env-id", "dm_control/cartpole-balance-v0", "--total-timesteps", 16]
    flags += ["--capture-video"]
    done = command_line.run_command(*flags, cwd=tmp_path, script=FILE, cold=True, MUJOCO_GL="egl")
    assert done.returncode == 0, done.stderr
