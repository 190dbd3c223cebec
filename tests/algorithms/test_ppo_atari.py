"""ppo_atari.py: its wrappers beside Stable-Baselines3's, its network, whole games in its log."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from arcade import Arcade
from helpers.checks import (
    assert_bf16_rounds,
    assert_first_ratio_is_1,
    assert_next_values_are_the_next_rows,
    assert_orthogonal,
    input_of,
    new_agent,
)
from helpers.in_process import load_script, record_calls, train
from helpers.strides import eager_and_compiled, watch_strides
from torch import nn

pytest.importorskip("ale_py", reason="needs the extra `atari`")
script = load_script("ppo_atari.py")
SHORT = {"num_envs": 2, "num_steps": 32, "total_timesteps": 128, "torch_threads": 1}


def ours(env_id: str, folder: Path) -> gym.Env:
    """One environment as the script makes it, without the vector around it."""
    return script.make_envs(script.Args(env_id=env_id, num_envs=1), folder).envs[0]


def theirs(env_id: str) -> gym.Env:
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    return gym.wrappers.FrameStackObservation(AtariWrapper(gym.make(env_id)), 4)


# ------ wrappers ------
@pytest.mark.parametrize(
    ("game", "steps", "least_ends"), [("Breakout", 800, 8), ("Pong", 300, 0), ("Qbert", 500, 3)]
)
def test_frames_rewards_and_ends_equal_stable_baselines3(
    game: str, steps: int, least_ends: int, tmp_path: Path
):
    env_id = f"{game}NoFrameskip-v4"
    us, them = ours(env_id, tmp_path), theirs(env_id)
    rng, ends, rewards = np.random.default_rng(0), 0, set[float]()
    a, b = us.reset(seed=3)[0], them.reset(seed=3)[0]
    for _ in range(steps):
        np.testing.assert_array_equal(a, b[..., 0])
        action = int(rng.integers(us.action_space.n))
        (a, *us_said, _), (b, *they_said, _) = us.step(action), them.step(action)
        assert us_said == they_said
        rewards.add(float(us_said[0]))
        if us_said[1] or us_said[2]:
            ends += 1
            np.testing.assert_array_equal(a, b[..., 0])
            a, b = us.reset()[0], them.reset()[0]
    assert a.shape == (4, 84, 84) and a.dtype == np.uint8
    assert ends >= least_ends
    assert rewards >= ({0.0, -1.0} if game == "Pong" else {0.0, 1.0})


class Game(Arcade):
    """A game whose frames are all of the colour of their number; it notes the actions."""

    def __init__(self, ends: int = 40, no_lives: int = 40) -> None:
        """The game is over after so many frames; lives are lost at 10, at 20 and at no_lives."""
        super().__init__()
        self.frames, self.no_lives = ends, no_lives
        self.actions: list[list[int]] = []  # of each game

    def brightness(self) -> float:
        return self.t

    def lives(self) -> int:
        return 3 - (self.t >= 10) - (self.t >= 20) - (self.t >= self.no_lives)

    def reset(self, **kwargs: Any) -> Any:
        self.actions.append([])
        return super().reset(**kwargs)

    def step(self, action: int) -> Any:
        assert self.t < self.frames, "stepped beyond the end"
        self.actions[-1].append(action)
        return super().step(action)


def test_no_op_reset_waits_1_to_30_frames():
    game = Game()
    env = script.NoopReset(game)
    env.reset(seed=0)
    for _ in range(299):
        env.reset()
    waits = [len(actions) for actions in game.actions]
    assert set(waits) == set(range(1, 31))
    assert all(action == 0 for actions in game.actions for action in actions)


def test_no_ops_that_end_the_game_begin_anew():
    game = Game(ends=3)
    env = script.NoopReset(game)
    remainders = set()
    for seed in range(20):
        game.actions.clear()
        obs, _ = env.reset(seed=seed)
        *ended, last = [len(actions) for actions in game.actions]
        assert set(ended) <= {3}
        assert obs[0, 0, 0] == last < 3
        remainders.add(last)
    assert remainders == {0, 1, 2}


@pytest.mark.parametrize(
    ("ends", "actions", "shown"),
    [(40, [[1, 2]], 2), (2, [[1, 2], []], 0), (1, [[1], [2], []], 0)],
    ids=["neither", "second", "both"],
)
def test_fire_and_the_next_button_begin_a_life(ends: int, actions: list[list[int]], shown: int):
    """Where one of them ends the game, a new one begins."""
    game = Game(ends)
    obs, _ = script.FireReset(game).reset(seed=0)
    assert game.actions == actions
    assert obs[0, 0, 0] == shown


@pytest.mark.parametrize(
    ("ends", "no_lives", "shown"),
    [
        # A no-op begins the next life, a reset the next game.
        (40, 40, [10, 11, 20, 21, 40, 0]),
        # Qbert shows zero lives some frames before a game is over: they still belong to it.
        (40, 30, [10, 11, 20, 21, 40, 0]),
        # The no-op ends the game: a new one begins.
        (11, 11, [10, 0, 10, 0, 10, 0]),
    ],
    ids=["lives", "no lives left", "no-op"],
)
def test_life_is_an_episode_and_the_game_goes_on(ends: int, no_lives: int, shown: list[int]):
    game = Game(ends, no_lives)
    env = script.EpisodicLife(game)
    env.reset(seed=0)
    seen = []
    for _ in range(3):
        terminated = False
        while not terminated:
            obs, _, terminated, _, _ = env.step(2)
        seen += [obs[0, 0, 0], env.reset()[0][0, 0, 0]]
    assert seen == shown


@pytest.mark.parametrize("env_id", ["BreakoutNoFrameskip-v4", "ALE/Breakout-v5"])
def test_both_names_of_a_game_show_every_fourth_frame(env_id: str, tmp_path: Path):
    env = ours(env_id, tmp_path)
    env.reset(seed=1)
    before = env.unwrapped.ale.getEpisodeFrameNumber()
    env.step(0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() - before == 4


@pytest.mark.slow("whole games")
def test_score_of_the_whole_game_is_logged_unclipped(tmp_path: Path):
    """Of Seaquest, whose points come in twenties; a game has four lives."""
    flags = {"num_envs": 4, "num_steps": 640, "total_timesteps": 2560, "update_epochs": 1}
    flags |= {"env_id": "SeaquestNoFrameskip-v4", "eval_episodes": 1, "torch_threads": 1}
    run = train(script, tmp_path, **flags)
    scalars = run.scalars()
    scores = [score for _, score in scalars["charts/episodic_return"]]
    lengths = [length for _, length in scalars["charts/episodic_length"]]
    assert max(scores) >= 40 and all(score % 20 == 0 for score in scores)
    assert min(lengths) > 500  # frames of four lives
    ((_, evaluation),) = scalars["eval/episodic_return"]
    assert evaluation >= 40 and evaluation % 20 == 0


# ------ agent ------
def make_agent() -> Any:
    images = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    return new_agent(script, images, gym.spaces.Discrete(6))


def test_nature_cnn():
    """Shapes as in the paper (Mnih et al., 2015), shared by policy and value."""
    agent = make_agent()
    shapes = [tuple(p.shape) for p in agent.parameters() if p.dim() > 1]
    assert shapes == [
        (32, 4, 8, 8),
        (64, 32, 4, 4),
        (64, 64, 3, 3),
        (512, 3136),
        (1, 512),
        (6, 512),
    ]
    relus = sum(isinstance(module, nn.ReLU) for module in agent.modules())
    assert relus == 4
    obs = torch.randint(0, 256, (5, 4, 84, 84), dtype=torch.uint8)
    for output in (agent.get_value(agent.features(obs)), agent.actor(agent.features(obs))):
        agent.zero_grad()
        output.sum().backward()
        assert all(p.grad is not None for p in agent.network.parameters())


def test_initial_weights_are_orthogonal():
    agent = make_agent()
    assert_orthogonal([p for p in agent.parameters() if p.dim() > 1], [2**0.5] * 4 + [1.0, 0.01])


def test_images_are_scaled_to_1():
    agent = make_agent()
    seen = input_of(agent.network)
    shades = torch.tensor([0, 51, 255], dtype=torch.uint8)
    agent.features(shades.view(3, 1, 1, 1).expand(3, 4, 84, 84))
    torch.testing.assert_close(seen[0][:, 0, 0, 0], torch.tensor([0, 0.2, 1]))


def test_bf16_rounds_the_convolutions():
    assert_bf16_rounds(make_agent(), torch.randint(0, 256, (16, 4, 84, 84), dtype=torch.uint8))


def test_first_ratio_is_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """What the rollout kept of the network's outputs is what the network says in the update."""
    assert_first_ratio_is_1(script, monkeypatch, tmp_path, **SHORT, learning_rate=0.01)


def test_next_values_are_the_next_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert_next_values_are_the_next_rows(script, monkeypatch, tmp_path, **SHORT)


def test_truncated_episodes_are_bootstrapped_from_their_last_frames(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Not from those that the step returned: they are the first of the next episode, and dark."""
    passes: list[tuple[torch.Tensor, torch.Tensor]] = []  # frames and values
    features, gae = script.Agent.features, record_calls(script, "compute_gae", monkeypatch)

    def spy_features(agent: Any, obs: torch.Tensor) -> torch.Tensor:
        x = features(agent, obs)
        passes.append((obs.clone(), agent.get_value(x).detach()))
        return x

    monkeypatch.setattr(script.Agent, "features", spy_features)
    flags = SHORT | {"total_timesteps": 64, "env_id": "arcade:Cut-v0"}
    train(script, tmp_path, **flags)
    _, _, next_values, terminated, truncated, _ = gae[0]
    assert truncated.sum() > 2 and not terminated.any()
    in_order = iter(passes)
    for t in range(32):
        next(in_order)  # acts
        if truncated[t].any():
            frames, final_values = next(in_order)
            assert (frames[:, -1] > 110).all()
            np.testing.assert_array_equal(next_values[t, truncated[t]], final_values)


@eager_and_compiled
def test_gradients_lie_in_memory_as_their_weights(
    compile: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(script, "optim", script.optim)  # given back afterwards
    right = watch_strides(script)
    flags = SHORT | {"total_timesteps": 64, "update_epochs": 1, "compile": compile}
    train(script, tmp_path, **flags)
    assert right == [True] * 4
