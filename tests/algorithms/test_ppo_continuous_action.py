"""ppo_continuous_action.py: what it does otherwise than ppo.py."""

import ctypes.util
import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import continuous
import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.in_process import load_script, record_ratios, train
from torch import Tensor
from torch.distributions import Independent, Normal

script = load_script("ppo_continuous_action.py")
FILE = command_line.PPO / "ppo_continuous_action.py"
WALK = {"env_id": "continuous:Walk-v0", "num_envs": 3, "num_steps": 16, "num_minibatches": 3}
WALK |= {"total_timesteps": 48 * 6, "seed": 5, "gamma": 0.9, "update_epochs": 2}
OBS = gym.spaces.Box(-10, 10, (5,))
ACTIONS = gym.spaces.Box(-1, 1, (3,))


def make_agent(actions: gym.spaces.Box = ACTIONS, moved: float = 0.4) -> Any:
    """An agent whose weights are far from the small initial ones, unless `moved` is 0."""
    torch.manual_seed(0)
    spaces = {"single_observation_space": OBS, "single_action_space": actions}
    agent = script.Agent(SimpleNamespace(**spaces))
    with torch.no_grad():
        for parameter in agent.parameters() if moved else ():
            parameter.normal_(std=moved)
    return agent


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
    agent = make_agent()
    x, action = torch.randn(200, 5), 2 * torch.randn(200, 3)
    logprob, entropy, value = agent.get_logprob_entropy_value(x, action)
    normal = Independent(Normal(agent.actor(x), agent.actor_logstd.exp()), 1)
    torch.testing.assert_close(logprob, normal.log_prob(action), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, normal.entropy(), rtol=1e-4, atol=1e-5)
    assert logprob.shape == entropy.shape == value.shape == (200,)
    torch.testing.assert_close(value, agent.get_value(x))
    torch.testing.assert_close(agent.get_action(x, greedy=True), normal.mean)


def test_actions_are_sampled_from_that_distribution():
    agent, samples = make_agent(), 40_000
    x = torch.randn(1, 5)
    with torch.inference_mode():
        actions = agent.get_action(x.expand(samples, 5))
    mean, std = agent.actor(x)[0], agent.actor_logstd.exp()
    z = ((actions - mean) / std).detach()
    assert z.mean(0).abs().max() < 5 / samples**0.5
    assert (z.var(0) - 1).abs().max() < 5 * (2 / samples) ** 0.5
    assert (z**3).mean(0).abs().max() < 0.15 and ((z**4).mean(0) - 3).abs().max() < 0.25
    correlations = torch.corrcoef(z.T) - torch.eye(3)  # components are independent,
    assert correlations.abs().max() < 5 / samples**0.5
    assert (z[1:] * z[:-1]).mean(0).abs().max() < 5 / samples**0.5  # and so are rows


def test_initial_policy():
    """Mean near 0, standard deviation 1, the same for every observation; networks apart."""
    agent = make_agent(moved=0)
    assert agent.actor_logstd.tolist() == [0, 0, 0]
    assert isinstance(agent.actor_logstd, torch.nn.Parameter)
    weight = agent.actor[-1].weight.detach()
    torch.testing.assert_close(weight @ weight.T, 0.01**2 * torch.eye(3), rtol=0, atol=1e-8)
    _, entropy, value = agent.get_logprob_entropy_value(torch.randn(9, 5), torch.zeros(9, 3))
    assert len(entropy.unique()) == 1
    value.sum().backward(retain_graph=True)
    assert all(p.grad is None for p in [*agent.actor.parameters(), agent.actor_logstd])
    agent.zero_grad()
    agent.get_action(torch.randn(9, 5), greedy=True).sum().backward()
    assert all(p.grad is None for p in agent.critic.parameters())


@pytest.mark.parametrize("value_moved", ["to", "away"])
@pytest.mark.parametrize("flags", [{}, {"ent_coef": 0.3, "vf_coef": 0.1}, {"norm_adv": False}])
def test_update_equals_stable_baselines3(flags: dict[str, Any], value_moved: str):
    """Loss and gradient of a minibatch: of discrete actions: test_ppo_loss.py."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger

    rows, agent = 24, make_agent()
    obs, actions = torch.randn(rows, 5), torch.randn(rows, 3)
    with torch.no_grad():
        logprobs, _, values = agent.get_logprob_entropy_value(obs, actions)
    change = 0.4 * torch.randn(rows)
    distance = change.sign() * (change.abs() + 0.5)  # from the old value to the return
    batch = {"obs": obs, "actions": actions, "values": values - change}
    batch["returns"] = batch["values"] + (distance if value_moved == "to" else -distance)
    batch |= {"logprobs": logprobs - 0.3 * torch.randn(rows), "advantages": torch.randn(rows)}

    class Spaces(gym.Env):
        observation_space = OBS
        action_space = ACTIONS

    args = script.Args(max_grad_norm=1e9, **flags)
    network = {"activation_fn": torch.nn.Tanh, "net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    model = PPO(
        "MlpPolicy",
        Spaces(),
        0.0,
        n_steps=rows,
        batch_size=rows,
        n_epochs=1,
        clip_range=args.clip_coef,
        # Where the value has moved away, the unclipped error is the greater: test_ppo_loss.py.
        clip_range_vf=args.clip_coef if value_moved == "to" else None,
        normalize_advantage=args.norm_adv,
        ent_coef=args.ent_coef,
        vf_coef=0.5 * args.vf_coef,
        max_grad_norm=1e9,
        policy_kwargs=network | {"optimizer_class": torch.optim.SGD},
        device="cpu",
    )
    model.set_logger(Logger(None, []))
    extractor, policy = model.policy.mlp_extractor, model.policy
    theirs = [policy.log_std, *extractor.policy_net.parameters(), *policy.action_net.parameters()]
    theirs += [*extractor.value_net.parameters(), *policy.value_net.parameters()]
    ours = [agent.actor_logstd, *agent.actor.parameters(), *agent.critic.parameters()]
    with torch.no_grad():
        for their, our in zip(theirs, ours, strict=True):
            their.copy_(our)
    for name in ("obs", "actions", "values", "logprobs", "advantages", "returns"):
        renamed = {"obs": "observations", "logprobs": "log_probs"}.get(name, name)
        array = getattr(model.rollout_buffer, renamed)
        array[:] = batch[name].numpy().reshape(array.shape)
    model.rollout_buffer.full = True
    model.train()
    stats = script.compute_gradient(agent, batch, torch.arange(rows), args)
    log = model.logger.name_to_value
    assert 0.1 < log["train/clip_fraction"] < 0.99
    for our, their in zip(ours, theirs, strict=True):
        close = {"rtol": 1e-3, "atol": 1e-5 * float(their.grad.abs().max())}
        torch.testing.assert_close(our.grad, their.grad, **close)
    assert stats["losses/policy_loss"].item() == pytest.approx(
        log["train/policy_gradient_loss"], abs=1e-5
    )
    assert stats["losses/entropy"].item() == pytest.approx(-log["train/entropy_loss"], rel=1e-4)


def test_first_ratio_is_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    ratios = record_ratios(script, monkeypatch)
    train(script, tmp_path, **(WALK | {"learning_rate": 0.01}))
    assert len(ratios) == 6 * 2 * 3
    for first in ratios[::6]:
        torch.testing.assert_close(first, torch.ones_like(first), rtol=0, atol=1e-5)
    assert (ratios[5] - 1).abs().max() > 1e-3  # later ones are not


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


def test_robust_policy_optimization_moves_the_mean_in_the_update_only(
    batches: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The log-probabilities of the update are those of a mean moved by at most rpo_alpha."""
    moved: list[Tensor] = []
    evaluate = script.Agent.get_logprob_entropy_value

    def spy(self: Any, x: Tensor, action: Tensor) -> Any:
        moved.append(action.clone())
        return evaluate(self, x, action)

    monkeypatch.setattr(script.Agent, "get_logprob_entropy_value", spy)
    flags = WALK | {"total_timesteps": 48, "num_minibatches": 1, "update_epochs": 1}
    for alpha in (0.0, 0.5):
        moved.clear()
        torch.manual_seed(0)
        train(script, tmp_path / str(alpha), **flags, rpo_alpha=alpha)
        in_rollout, in_update = moved
        distance = (in_update.sort(0)[0] - in_rollout.sort(0)[0]).abs()
        assert (distance.max() > 0) == (alpha > 0)
        torch.testing.assert_close(batches[-1]["batch"]["actions"], in_rollout)  # stays stored
    # Seen one by one: uniform between -alpha and alpha.
    batch, args = batches[-1]["batch"], script.Args(rpo_alpha=0.5)
    noise = []
    agent = make_agent(gym.spaces.Box(-1, 1, (2,)))
    batch["obs"] = torch.zeros(48, 5)
    for _ in range(200):
        moved.clear()
        script.compute_gradient(agent, batch, torch.arange(48), args)
        noise.append(moved[0] - batch["actions"])
    z = torch.stack(noise)
    assert z.abs().max() <= 0.5 and z.abs().max() > 0.499
    assert z.var().item() == pytest.approx(1 / 12, rel=0.05)
    assert abs(z.mean().item()) < 0.01


# ------ statistics ------
def two_pass(x: np.ndarray) -> np.ndarray:
    return np.stack([np.full(x.shape[1], len(x)), x.mean(0), x.std(0)])


@pytest.mark.parametrize("sizes", [[100], [1, 99], [3, 7, 50, 40], [1] * 100], ids=str)
def test_merge_stats_equals_a_two_pass_computation(sizes: list[int]):
    x = np.random.default_rng(0).normal([1, -300, 0.01], [2, 40, 0.001], (100, 3))
    stats, start = torch.tensor([[0.0], [0.0], [1.0]]).repeat(1, 3), 0
    for size in sizes:
        script.merge_stats(stats, torch.from_numpy(x[start : start + size]).float())
        start += size
    np.testing.assert_allclose(stats, two_pass(x), rtol=2e-4)


def discounted_sums(rewards: np.ndarray, done: np.ndarray, gamma: float) -> np.ndarray:
    """Of each row: rewards of its episode up to it, each discounted by its age."""
    sums = np.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        first = 0
        for t in range(len(rewards)):
            ages = t - np.arange(first, t + 1)
            sums[t, env] = gamma**ages @ rewards[first : t + 1, env]
            if done[t, env]:
                first = t + 1
    return sums


def run_and_raw_rewards(folder: Path, monkeypatch: pytest.MonkeyPatch, **flags: Any) -> Any:
    """A run, and what its environments paid: (all steps, num_envs)."""
    paid, make_envs = [], script.make_envs

    def spy(*arguments: Any) -> Any:
        envs = make_envs(*arguments)
        step = envs.step

        def record(actions: np.ndarray) -> Any:
            result = step(actions)
            paid.append(result[1].copy())
            return result

        envs.step = record
        return envs

    monkeypatch.setattr(script, "make_envs", spy)
    return train(script, folder, **flags), np.array(paid)


def test_statistics_cover_all_steps(batches: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Of all environments, each once."""
    run, raw = run_and_raw_rewards(tmp_path, monkeypatch, **WALK)
    obs = torch.cat([seen["batch"]["obs"] for seen in batches]).numpy()
    stats = run.state["agent"]["obs_stats"]
    np.testing.assert_allclose(stats, two_pass(obs), rtol=1e-4, atol=1e-5)
    done = np.concatenate([seen["done"] for seen in batches])
    assert 0.1 < done.mean() < 0.5
    sums = discounted_sums(raw, done, gamma=0.9)
    expected = two_pass(sums.reshape(-1, 1))
    np.testing.assert_allclose(run.state["agent"]["return_stats"], expected, rtol=1e-4)


def test_rewards_are_scaled_and_clipped(
    batches: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """By the deviation of the discounted sums up to and including this rollout."""
    _, raw = run_and_raw_rewards(tmp_path, monkeypatch, **WALK)
    sums = discounted_sums(raw, np.concatenate([seen["done"] for seen in batches]), gamma=0.9)
    clipped = 0
    for i, seen in enumerate(batches):
        expected = raw[16 * i : 16 * (i + 1)] / sums[: 16 * (i + 1)].std()
        clipped += (expected > 10).sum()
        np.testing.assert_allclose(seen["rewards"], expected.clip(-10, 10), rtol=1e-4)
    assert clipped > 0


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


def test_an_evaluation_changes_nothing_in_the_agent(tmp_path: Path):
    """The statistics of observations least of all."""
    agent = train(script, tmp_path, **WALK).agent()
    before = {name: array.clone() for name, array in agent.state_dict().items()}
    args = script.Args(env_id=WALK["env_id"], eval_episodes=3)
    assert len(script.evaluate(agent, args, tmp_path)["episodic_return"]) == 3
    assert before["obs_stats"][0, 0] > 0
    for name, array in agent.state_dict().items():
        assert torch.equal(array, before[name]), name


def test_statistics_survive_resume(tmp_path: Path):
    flags = ["--num-envs", 2, "--num-steps", 32, "--num-minibatches", 4, "--update-epochs", 1]
    flags += ["--env-id", "continuous:Walk-v0", "--eval-episodes", 3]
    first = command_line.train_command(*flags, "--total-timesteps", 640, cwd=tmp_path, script=FILE)
    before = command_line.checkpoint(first.folder)["agent"]
    assert before["obs_stats"][0, 0] == before["return_stats"][0, 0] == 640
    more = "--total-timesteps", 1280
    command_line.resume_command(first.folder, *more, cwd=tmp_path, script=FILE)
    after = command_line.checkpoint(first.folder)["agent"]
    assert after["obs_stats"][0, 0] == after["return_stats"][0, 0] == 1280
    # Merged, not begun anew: the mean has moved by the new rows' share at most.
    drift = (after["obs_stats"][1] - before["obs_stats"][1]).abs() / before["obs_stats"][2]
    assert drift[:2].max() < 0.5


def test_a_lone_agent_plays_with_its_statistics(tmp_path: Path):
    """Those are in the file, and an evaluation leaves them as they are."""
    run = train(script, tmp_path, **WALK)
    state = run.state
    assert state["agent"]["obs_stats"][0, 0] == 288
    lone = tmp_path / "lone" / "agent.pt"
    lone.parent.mkdir()
    flags = ["--script", FILE, "--episodes", 5, "--greedy"]
    played = []
    for moved in (0.0, 0.0, 1000.0):
        state["agent"]["obs_stats"][1] += moved
        torch.save(state, lone)
        done = command_line.run_command(lone, *flags, cwd=tmp_path, script=command_line.EVALUATE)
        assert done.returncode == 0, done.stderr
        played.append(done.stdout)
    assert played[0] == played[1]


# ------ environments ------
@pytest.mark.slow("learning")
@pytest.mark.parametrize("env_id", ["Target", "ScalarTarget", "MatrixTarget"])
def test_probe_mean_moves_to_the_target(env_id: str, tmp_path: Path):
    flags = {"num_envs": 8, "num_steps": 64, "total_timesteps": 512 * 40, "num_minibatches": 4}
    run = train(script, tmp_path, env_id=f"continuous:{env_id}-v0", learning_rate=3e-3, **flags)
    agent = run.agent()
    actions = agent.get_action(torch.tensor([[-1.0], [1.0]]), greedy=True)
    expected = torch.tensor([-0.5, 0.5]).view(2, *[1] * (actions.dim() - 1)).expand_as(actions)
    torch.testing.assert_close(actions.detach(), expected, rtol=0, atol=0.15)
    assert (agent.actor_logstd < -0.4).all()  # it has become surer


def test_dict_observations_are_flattened(batches: list, tmp_path: Path):
    train(script, tmp_path, **(WALK | {"env_id": "continuous:DictWalk-v0"}))
    obs = batches[0]["batch"]["obs"]
    assert obs.shape == (48, 3) and (obs[:, 2] == 3).all() and (obs[:, 0] > 100).all()


def test_worker_processes_and_a_second_run_change_nothing(tmp_path: Path):
    runs = [train(script, tmp_path / str(i), **WALK, async_envs=i == 1) for i in range(3)]
    states = [run.state["agent"] for run in runs]
    for other in states[1:]:
        assert all(torch.equal(states[0][name], other[name]) for name in states[0])


@pytest.mark.slow("torch.compile")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_compiled_run_is_the_same(tmp_path: Path):
    """Without RPO's noise, which compiled code draws from a stream of its own."""
    runs = [train(script, tmp_path / str(i), **WALK, compile=bool(i)) for i in range(2)]
    eager, compiled = (run.state["agent"] for run in runs)
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4, msg=str)


@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("HalfCheetah-v4", "mujoco"),
        ("Hopper-v5", "mujoco"),
        ("BipedalWalker-v3", "Box2D"),
        ("LunarLanderContinuous-v3", "Box2D"),
        ("Pendulum-v1", "gymnasium"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--env-id CartPole-v1", r"Discrete\(2\): ppo\.py is for it"),
        ("--env-id clockwork:MultiDiscreteAction-v0", r"ppo_multidiscrete\.py is for it"),
        ("--env-id HalfCheeta-v5", "HalfCheetah"),
        ("--env-id dm_control/no-such-task-v0", "no-such-task"),
        (
            "--env-id continuous:WholeNumbers-v0",
            r"a Box of whole numbers: make a MultiDiscrete of it",
        ),
        ("--rpo-alpha -0.1", "--rpo-alpha starts at 0"),
        ("--rpo-alpha nan", "--rpo-alpha starts at 0"),
        ("--num-minibatches 33", "--num-minibatches must divide"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: str, message: str, tmp_path: Path):
    if "dm_control" in arguments and importlib.util.find_spec("dm_control") is None:
        pytest.skip("needs dm_control")
    flags = arguments.split()
    if "--env-id" not in flags:
        flags += ["--env-id", "continuous:Walk-v0"]
    command_line.assert_refused(*flags, message=message, cwd=tmp_path / "cwd", script=FILE)


def test_films_need_something_to_draw_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    mujoco = pytest.importorskip("mujoco")

    def without_screen(model: Any) -> None:
        raise mujoco.FatalError("an OpenGL platform library has not been loaded")

    monkeypatch.setattr(mujoco, "Renderer", without_screen)
    with pytest.raises(SystemExit) as refused:
        script.check(script.Args(env_id="Hopper-v5", capture_video=True))
    assert refused.value.code == 2
    assert "put MUJOCO_GL=egl before the command" in capsys.readouterr().err
    script.check(script.Args(env_id="Hopper-v5"))  # nothing is drawn


@pytest.mark.slow("torch is imported anew")
def test_films_without_a_screen(tmp_path: Path):
    """dm_control starts Mesa when it is imported; torch's own LLVM must be there before."""
    if not ctypes.util.find_library("EGL") or importlib.util.find_spec("dm_control") is None:
        pytest.skip("needs libegl1 and dm_control")
    flags = ["--num-steps", 64, "--num-minibatches", 2, "--update-epochs", 1, "--capture-video"]
    flags += ["--env-id", "dm_control/cartpole-balance-v0", "--total-timesteps", 1024]
    done = command_line.run_command(
        *flags, "--eval-episodes", 0, cwd=tmp_path, script=FILE, cold=True, MUJOCO_GL="egl"
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/*/videos/*/*.mp4"))
