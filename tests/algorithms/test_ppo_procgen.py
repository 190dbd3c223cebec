"""ppo_procgen.py: the IMPALA-CNN, normalized rewards, same-step resets, levels.

Here Procgen is the stand-in in tests/envs/stand_ins/, but for the last tests: they run the script,
and the real Procgen, in the script's own environment.
"""

import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import procgen
import pytest
import torch
from helpers import command_line, newcomer
from helpers.checks import (
    assert_bf16_rounds,
    assert_first_ratio_is_1,
    assert_next_values_are_the_next_rows,
    assert_orthogonal,
    input_of,
    new_agent,
)
from helpers.definitions import assert_rewards_are_scaled, discounted_sums, two_pass
from helpers.in_process import load_script, record_calls, record_waiting_signals, train
from helpers.strides import eager_and_compiled, watch_strides
from moviepy import VideoFileClip
from torch import Tensor, nn
from torch.nn import functional

script = load_script("ppo_procgen.py")
FILE = command_line.PPO / "ppo_procgen.py"
SHORT = {"num_envs": 3, "num_steps": 16, "num_minibatches": 3, "update_epochs": 1, "gamma": 0.9}
SHORT |= {"total_timesteps": 48 * 6, "seed": 11, "torch_threads": 1, "cuda": False}


def make_agent() -> Any:
    images = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    return new_agent(script, images, gym.spaces.Discrete(15))


def pictures(count: int) -> Tensor:
    return torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8)


# ------ network ------
def test_impala_cnn():
    """Espeholt et al. (2018), figure 3, the large network without LSTM: 15 convolutions."""
    agent, sizes = make_agent(), []
    convolutions = [module for module in agent.modules() if isinstance(module, nn.Conv2d)]
    for convolution in convolutions:
        convolution.register_forward_hook(lambda *told: sizes.append(tuple(told[2].shape[1:])))
    obs, seen = pictures(3), input_of(agent.network)
    features = agent.features(obs)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    first, blocks = [(16, 64, 64), (32, 32, 32), (32, 16, 16)], [(16, 32, 32), (32, 16, 16)]
    blocks += [(32, 8, 8)]
    assert sizes == [s for i in range(3) for s in (first[i], *[blocks[i]] * 4)]
    assert features.shape == (3, 256)

    def convolve(x: Tensor) -> Tensor:
        return functional.conv2d(x, next(weights), next(weights), padding=1)

    weights, x = agent.network.parameters(), obs.permute(0, 3, 1, 2) / 255
    for _ in range(3):
        x = functional.max_pool2d(convolve(x), 3, stride=2, padding=1)
        for _ in range(2):
            x = x + convolve(convolve(x.relu()).relu())
    x = functional.linear(x.relu().flatten(1), next(weights), next(weights)).relu()
    torch.testing.assert_close(features, x, rtol=1e-4, atol=1e-4)


def test_initial_weights():
    """The heads' are orthogonal; the others are torch's: uniform up to 1/sqrt(inputs)."""
    agent = make_agent()
    assert_orthogonal([agent.critic.weight, agent.actor.weight], [1.0, 0.01])
    assert not agent.critic.bias.any() and not agent.actor.bias.any()
    for weight in (p for p in agent.network.parameters() if p.dim() > 1):
        bound = weight[0].numel() ** -0.5
        assert 0.9 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_bf16_rounds_the_convolutions():
    assert_bf16_rounds(make_agent(), pictures(8))


# ------ training ------
@eager_and_compiled
def test_gradients_lie_in_memory_as_their_weights(
    compile: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(script, "optim", script.optim)  # given back afterwards
    right = watch_strides(script)
    train(script, tmp_path, **SHORT | {"total_timesteps": 48, "compile": compile})
    assert right == [True] * 3


@pytest.fixture
def rollouts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, np.ndarray]]:
    """For each iteration: rewards and ends of the games, and what compute_gae got and returned."""
    seen: list[dict[str, np.ndarray]] = []
    step, compute_gae = script.Procgen.step, script.compute_gae
    results: list[Any] = []

    def spy_step(envs: Any, actions: np.ndarray) -> Any:
        results.append(step(envs, actions))
        return results[-1]

    def spy_gae(rewards: np.ndarray, *arguments: Any) -> Any:
        paid, ends = (np.array([result[i] for result in results[-16:]]) for i in (1, 2))
        _, returns = compute_gae(rewards, *arguments)
        seen.append({"paid": paid, "ends": ends, "rewards": rewards.copy(), "returns": returns})
        seen[-1] |= {"terminated": arguments[2].copy(), "truncated": arguments[3].copy()}
        return compute_gae(rewards, *arguments)

    monkeypatch.setattr(script.Procgen, "step", spy_step)
    monkeypatch.setattr(script, "compute_gae", spy_gae)
    return seen


def test_rewards_are_scaled_and_clipped(rollouts: list, tmp_path: Path):
    run = train(script, tmp_path, **SHORT)
    paid, ends = (
        np.concatenate([rollout[name] for rollout in rollouts]) for name in ("paid", "ends")
    )
    assert_rewards_are_scaled([rollout["rewards"] for rollout in rollouts], paid, ends, gamma=0.9)
    expected = two_pass(discounted_sums(paid, ends, gamma=0.9).reshape(-1, 1))
    np.testing.assert_allclose(run.state["agent"]["return_stats"], expected, rtol=1e-4)
    assert len(rollouts) == 6


def test_ends_cut_episodes(rollouts: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The reset comes on the same step: the row after an end is the first of an episode."""
    calls = record_calls(script, "compute_gradient", monkeypatch)
    train(script, tmp_path, **SHORT)
    for rollout, (_, batch, *_) in zip(rollouts, calls[::3], strict=True):
        ends = rollout["ends"]
        np.testing.assert_array_equal(rollout["terminated"], ends)
        assert not rollout["truncated"].any()
        steps = batch["obs"].view(16, 3, 64, 64, 3)[..., -1, 0, 0].numpy() // 30
        assert (steps[1:][ends[:-1]] == 0).all()
        assert (steps[1:] == steps[:-1] + 1)[~ends[:-1]].all()
        # Nothing of the next episode is in an episode's last return.
        np.testing.assert_allclose(rollout["returns"][ends], rollout["rewards"][ends], rtol=1e-4)
    assert sum(rollout["ends"].sum() for rollout in rollouts) > 30


def test_first_ratio_is_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert_first_ratio_is_1(script, monkeypatch, tmp_path, **SHORT, learning_rate=0.003)


def test_next_values_are_the_next_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert_next_values_are_the_next_rows(script, monkeypatch, tmp_path, **SHORT)


# ------ Procgen as a vector ------
def make(folder: Path, **flags: Any) -> Any:
    return script.make_envs(script.Args(**{"num_envs": 4, **flags}), folder)


def play(envs: Any, steps: int) -> list[tuple[Any, ...]]:
    """What each step with random actions answered."""
    rng = np.random.default_rng(0)
    return [envs.step(rng.integers(15, size=4)) for _ in range(steps)]


def test_what_procgen_is_asked_for(tmp_path: Path):
    flags = {"num_levels": 5, "start_level": 70, "distribution_mode": "hard"}
    envs = make(tmp_path, **flags, env_id="coinrun", env_threads=2)
    obs, _ = envs.reset(seed=7)
    assert obs.shape == (4, *envs.single_observation_space.shape) == (4, 64, 64, 3)
    assert obs.dtype == envs.single_observation_space.dtype == np.uint8
    assert envs.single_action_space == gym.spaces.Discrete(15)
    game = procgen.made[-1]
    expected = flags | {"env_name": "coinrun", "num_threads": 2, "rand_seed": 7}
    assert game.num == 4 and game.options == expected
    make(tmp_path, env_threads=9).reset(seed=2**31 + 3)  # Procgen wants 31 bits
    assert procgen.made[-1].options["rand_seed"] == 3
    assert procgen.made[-1].options["num_threads"] == 4
    defaults = {"env_name": "starpilot", "num_levels": 0, "start_level": 0}
    assert procgen.made[-1].options.items() >= (defaults | {"distribution_mode": "easy"}).items()


def test_whole_episodes_are_reported(tmp_path: Path):
    """Scores are sums of the game's own rewards, at the step that shows the next episode."""
    envs = make(tmp_path)
    envs.reset(seed=1)
    scores, lengths, reports = np.zeros(4), np.zeros(4, int), 0
    for _, rewards, terminated, truncated, infos in play(envs, 60):
        scores, lengths = scores + rewards, lengths + 1
        final_info = infos.get("final_info", {})
        reported = final_info.get("_episode", np.zeros(4, bool))
        np.testing.assert_array_equal(reported, terminated)
        assert not truncated.any()
        for env in np.flatnonzero(reported):
            assert final_info["episode"]["r"][env] == scores[env] >= 100
            assert final_info["episode"]["l"][env] == lengths[env]
            assert 3 <= lengths[env] <= 8
            scores[env] = lengths[env] = 0
            reports += 1
    assert reports > 30


@pytest.mark.parametrize("num_levels", [0, 5])
def test_evaluation_is_on_all_levels_and_on_those_of_the_training(
    num_levels: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    before = len(procgen.made)
    levels = {"num_levels": num_levels, "start_level": 7 * num_levels}
    scalars = train(script, tmp_path, **SHORT, **levels, eval_episodes=12).scalars()
    games = procgen.made[before:]
    played = [(game.num, game.options["num_levels"], game.options["start_level"]) for game in games]
    everywhere = (1, 0, 0)
    if not num_levels:
        assert played == [(3, 0, 0), everywhere]
        assert "eval/episodic_return-train-levels" not in scalars
        return
    assert played == [(3, 5, 35), everywhere, (1, 5, 35)]
    assert games[0].seen == set(range(35, 40)) >= games[2].seen
    assert len(games[1].seen) >= 12 and not games[1].seen & games[0].seen
    ((_, unseen),) = scalars["eval/episodic_return"]
    ((_, seen),) = scalars["eval/episodic_return-train-levels"]
    assert unseen > 100 and 100 < seen < 220 and seen != unseen
    shown = capsys.readouterr().out
    for name in ("return", "return-train-levels"):
        assert re.search(rf"^evaluation: \S*{name} \S+ ± \S+ over 12 ep", shown, re.MULTILINE)


def test_films_show_whole_episodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    waiting = record_waiting_signals(monkeypatch)
    envs = make(tmp_path, capture_video=True, video_every=2)
    envs.reset(seed=1)
    told = play(envs, 40)
    games = sum(answer[2][0] for answer in told)
    films = {path.name for path in tmp_path.glob("*.mp4")}
    assert films == {f"rl-video-episode-{n}.mp4" for n in range(0, games, 2)} and len(films) > 1
    assert all(signal.SIGINT in signals for signals in waiting) and len(waiting) == len(films)
    assert VideoFileClip(tmp_path / "rl-video-episode-0.mp4").size == [256, 256]


# ------ the real one ------
TINY = ("--num-envs", 2, "--num-steps", 16, "--torch-threads", 1, "--eval-episodes", 1)
needs_procgen = pytest.mark.skipif(
    not shutil.which("uv") or sys.platform != "linux", reason="Procgen needs uv and Linux"
)


@needs_procgen
@pytest.mark.slow("uv installs packages")
def test_procgen_is_learned_resumed_and_evaluated(tmp_path: Path):
    flags = (*TINY, "--no-cuda", "--env-id", "bigfish", "--num-levels", 2, "--capture-video")
    done = newcomer.uv_run(FILE, *flags, "--total-timesteps", 1024, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "evaluation: episodic_return-train-levels " in done.stdout
    folder = command_line.the_folder(tmp_path / "runs")
    assert list(folder.glob("videos/evaluation-*-train-levels/*.mp4"))
    lengths = [length for _, length in command_line.curve(folder, "charts/episodic_length")]
    assert lengths and 1 < max(lengths) <= 1000
    args = ("--resume", folder, "--total-timesteps", 1088)
    again = newcomer.uv_run(FILE, *args, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert command_line.checkpoint(folder)["agent"]["return_stats"][0, 0] == 1088
    played = newcomer.run(
        *("uv", "run", command_line.EVALUATE, folder, "--episodes", 1), cwd=tmp_path
    )
    assert played.returncode == 0, played.stderr
    assert "over 1 episodes" in played.stdout
