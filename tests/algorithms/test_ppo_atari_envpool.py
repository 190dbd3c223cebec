"""ppo_atari_envpool.py: what it asks EnvPool for, and what it reports of whole games."""

import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.checks import (
    assert_envpool_is_asked,
    assert_first_ratio_is_1,
    assert_next_values_are_the_next_rows,
)
from helpers.in_process import load_script, record_calls, record_waiting_signals

envpool = pytest.importorskip("envpool", reason="needs the extra `envpool`")
script = load_script("ppo_atari_envpool.py")
SHORT = {"num_envs": 4, "num_steps": 32, "total_timesteps": 256, "torch_threads": 1}


def make(folder: Path, **flags: Any) -> Any:
    return script.make_envs(script.Args(**{"num_envs": 4, **flags}), folder)


def play(envs: Any, steps: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """What each step with random actions answered."""
    rng = np.random.default_rng(seed)
    return [envs.step(rng.integers(4, size=4)) for _ in range(steps)]


def limit_games(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on games are cut off after so many steps."""
    make_pool = partial(envpool.make, max_episode_steps=limit)
    monkeypatch.setattr(envpool, "make", make_pool)


def test_what_envpool_is_asked_for(tmp_path: Path):
    envs = make(tmp_path)
    obs, _ = envs.reset(seed=2**31 + 7)  # EnvPool wants 31 bits
    assert obs.shape == (4, 4, 84, 84) and obs.dtype == np.uint8
    assert_envpool_is_asked(envs, num_envs=4, seed=7)
    assert envs.single_observation_space.shape == obs.shape[1:]
    assert envs.single_action_space.n == 4
    envs.close()


@pytest.mark.parametrize(("game", "limit"), [("Breakout", 27000), ("SpaceInvaders", 90)])
def test_whole_games_are_reported(
    game: str, limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Told from EnvPool's own answers: a game ends with its last life, or at the time limit.

    A hit in Space Invaders is worth 5 to 30 points, of which the agent sees one.
    """
    limit_games(limit, monkeypatch)
    envs = make(tmp_path, env_id=f"{game}-v5")
    envs.reset(seed=3)
    raw, step = [], envs.pool.step
    recorder = SimpleNamespace(step=lambda actions: raw.append(step(actions)) or raw[-1])
    monkeypatch.setattr(envs, "pool", recorder)
    answers = play(envs, 900)
    scores, clipped, lives, ends = np.zeros(4), 0.0, 0, 0
    lengths, reset = np.zeros(4, int), np.zeros(4, bool)
    for (_, rewards, terminated, truncated, told), answer in zip(raw, answers, strict=True):
        assert not rewards[reset].any()  # a reset step
        scores, clipped = scores + told["reward"], clipped + rewards.sum()
        lengths += ~reset
        reset = terminated | truncated
        lives += terminated.sum()
        over = (told["lives"] == 0) & terminated | truncated
        final_info = answer[4].get("final_info", {"_episode": np.zeros(4, bool)})
        np.testing.assert_array_equal(final_info["_episode"], over)
        for env in np.flatnonzero(over):
            ends += 1
            assert final_info["episode"]["r"][env] == scores[env]
            assert final_info["episode"]["l"][env] == lengths[env]
            assert lengths[env] == 90 or limit > 90
            scores[env] = lengths[env] = 0
    assert ends >= 8
    if game == "Breakout":
        assert lives > ends
    else:
        paid = sum(answer[4]["reward"].sum() for answer in raw)
        assert paid > 4 * clipped > 0


def test_first_ratio_is_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    calls = record_calls(script, "compute_gradient", monkeypatch)
    assert_first_ratio_is_1(script, monkeypatch, tmp_path, **SHORT, learning_rate=0.01)
    assert not calls[0][1]["obs"].equal(calls[16][1]["obs"])  # EnvPool fills an array of its own


def test_truncated_games_are_bootstrapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A reset is a step later: the next row has the observation after each step, also the last."""
    limit_games(20, monkeypatch)
    calls = record_calls(script, "compute_gae", monkeypatch)
    assert_next_values_are_the_next_rows(script, monkeypatch, tmp_path, **SHORT)
    for _, values, next_values, _, truncated, _ in calls:
        assert truncated[:-1].any()
        np.testing.assert_array_equal(next_values[:-1], values[1:])


def test_films_show_whole_games(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    waiting = record_waiting_signals(monkeypatch)
    envs = make(tmp_path, num_envs=2, capture_video=True, video_every=2)
    envs.reset(seed=1)
    rng, games = np.random.default_rng(0), 0
    while games < 3:
        _, _, _, _, infos = envs.step(rng.integers(4, size=2))
        games += int("final_info" in infos and infos["final_info"]["_episode"][0])
    films = sorted(path.name for path in tmp_path.glob("*.mp4"))
    assert films == ["rl-video-episode-0.mp4", "rl-video-episode-2.mp4"]
    assert all(signal.SIGINT in signals for signals in waiting) and len(waiting) == 2
