"""ppo_pettingzoo_ma_atari.py: frames beside SuperSuit's, rows of players, statistics of each."""

import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers import command_line, newcomer
from helpers.checks import assert_first_ratio_is_1, input_of
from helpers.in_process import load_program, load_script, record_calls, train
from helpers.newcomer import needs_uv

pytest.importorskip("supersuit", reason="needs the extra `pettingzoo`")
import ale_py
import pettingzoo
import supersuit
from toy_game import LENGTHS, Toy

script = load_script("ppo_pettingzoo_ma_atari.py")
FILE = command_line.PPO / "ppo_pettingzoo_ma_atari.py"
run_folders = load_program("runs.py")
ARGS = {"env_id": "toy_v0", "seed": 1}
SHORT = {"num_envs": 4, "num_steps": 32, "total_timesteps": 256, "torch_threads": 1}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> type[Toy]:
    return Toy.for_a_test(monkeypatch)


def make(folder: Path, env_id: str = "toy_v0", **flags: Any) -> Any:
    return script.make_envs(script.Args(**{"num_envs": 4, "env_id": env_id, **flags}), folder)


# ------ what the players see, and what they are paid ------
def their_game(env_id: str) -> Any:
    """The game in SuperSuit's wrappers for several players, as CleanRL lists them."""
    roms = str(Path(ale_py.__file__).with_name("roms"))
    env = pettingzoo.make("parallel", f"atari/{env_id}", auto_rom_install_path=roms)
    env = supersuit.max_observation_v0(env, 2)
    env = supersuit.frame_skip_v0(env, 4)
    env = supersuit.clip_reward_v0(env, lower_bound=-1, upper_bound=1)
    env = supersuit.color_reduction_v0(env, mode="B")
    env = supersuit.resize_v1(env, x_size=84, y_size=84)
    env = supersuit.frame_stack_v1(env, 4)
    return supersuit.agent_indicator_v0(env, type_only=False)


@pytest.mark.parametrize(
    ("env_id", "players", "seed", "steps", "ends", "paid"),
    [
        ("space_invaders_v2", 2, 2, 260, 2, {0, 1}),  # 5 points and more for a hit
        ("warlords_v3", 4, 0, 440, 1, {-1, 0}),  # one is out before the game is over
    ],
)
def test_rows_equal_supersuits(
    env_id: str, players: int, seed: int, steps: int, ends: int, paid: set[int], tmp_path: Path
):
    us, them = make(tmp_path, env_id, num_envs=players), their_game(env_id)
    rows, _ = us.reset(seed=3)
    theirs, _ = them.reset(seed=3)
    agents, rng, seen, ended = them.possible_agents, np.random.default_rng(seed), set[float](), 0
    out = np.zeros(players, bool)
    for _ in range(steps):
        assert rows.shape == (players, 4 + players, 84, 84) and rows.dtype == np.uint8
        for p, agent in enumerate(agents):
            if agent in theirs:
                np.testing.assert_array_equal(rows[p], theirs[agent].transpose(2, 0, 1))
        actions = rng.integers(us.single_action_space.n, size=players)
        rows, rewards, terminated, truncated, _ = us.step(actions)
        alive = dict(zip(agents, actions, strict=True))
        theirs, paid_them, over, _, _ = them.step({a: alive[a] for a in them.agents})
        np.testing.assert_array_equal(rewards, [paid_them.get(agent, 0) for agent in agents])
        np.testing.assert_array_equal(terminated, [over.get(agent, True) for agent in agents])
        assert not truncated.any()
        seen, ended = seen | set(rewards), ended + (terminated & ~out).sum()
        out = terminated & ~terminated.all()
        np.testing.assert_array_equal(us.out, [out])
        if terminated.all():
            theirs, _ = them.reset()
    assert seen >= paid and ended >= ends


# ------ rows of players ------
# Worker processes that are not forked do not know this process's modules.
FORKED = pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="needs fork")
sync_and_async = pytest.mark.parametrize(
    "asynchronous", [False, pytest.param(True, marks=FORKED)], ids=["sync", "async"]
)


@sync_and_async
def test_players_stay_aligned_under_resets(asynchronous: bool, toy: type[Toy], tmp_path: Path):
    """Told from the toy game's rules: whose game a row shows, whose points it is paid, and when.

    The points of a game's last step are paid by their sign, though the game has been reset.
    """
    toy.players = 3
    envs = make(tmp_path, num_envs=9, async_envs=asynchronous)
    rows, _ = envs.reset(seed=0)
    rng, ends, last_rewards = np.random.default_rng(1), 0, set[float]()
    step, games = np.zeros(3, int), np.zeros(3, int)  # of this game; finished games
    points, numbers = np.zeros((3, 3)), rows[::3, 3, 0, 0].astype(int) - 100
    assert asynchronous or numbers.tolist() == [1, 2, 3]  # worker processes count for themselves

    def assert_shown(rows: np.ndarray, game: int, step: int) -> None:
        images = rows.reshape(3, 3, 7, 84, 84)[game]
        assert (images[:, 3, 0, 0] == 100 + numbers[game]).all()
        assert (images[:, 3, -1, 0] == 4 * step).all()
        np.testing.assert_array_equal(images[:, 4:, 50, 50], 255 * np.eye(3))
        assert images[:, 4:].sum() == 255 * 3 * 84 * 84

    for _ in range(40):
        for game in range(3):
            assert_shown(rows, game, step[game])
        actions = rng.integers(3, size=9)
        paid = np.where(actions == 1, np.tile([1, 2, 3], 3), np.where(actions == 2, -2, 0))
        rows, rewards, terminated, truncated, infos = envs.step(actions)
        lengths = np.array(LENGTHS)[(numbers + games) % len(LENGTHS)]
        step += 1
        over = step == lengths
        points += 4 * paid.reshape(3, 3)  # each of the four frames pays
        np.testing.assert_array_equal(rewards, np.sign(paid))
        np.testing.assert_array_equal(terminated, over.repeat(3))
        assert not truncated.any() and over.any() == ("final_info" in infos)
        if over.any():
            final_info = infos["final_info"]
            np.testing.assert_array_equal(final_info["_episode"], over.repeat(3))
            for game in np.flatnonzero(over):
                assert_shown(infos["final_obs"], game, step[game])
                of_game = slice(3 * game, 3 * game + 3)
                np.testing.assert_array_equal(final_info["episode"]["r"][of_game], points[game])
                assert (final_info["episode"]["l"][of_game] == lengths[game]).all()
                last_rewards |= set(rewards[of_game])
        ends += over.sum()
        games, step, points = games + over, step * ~over, points * ~over[:, None]
    assert ends >= 15 and last_rewards == {-1, 0, 1}
    envs.close()


def test_player_who_is_out_stays_out(toy: type[Toy], tmp_path: Path):
    toy.outs = {1: 6}  # in the second of 7 steps
    envs = make(tmp_path, num_envs=2)
    envs.reset(seed=0)
    outs, results = [], []
    for _ in range(8):
        outs.append(envs.out[0, 1])  # before the step
        results.append(envs.step(np.array([1, 1])))
    terminated = np.array([result[2] for result in results])
    rewards = np.array([result[1] for result in results])
    np.testing.assert_array_equal(terminated[:, 0], [0, 0, 0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(terminated[:, 1], [0, 1, 1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(rewards[:, 0], [1] * 8)
    np.testing.assert_array_equal(rewards[:, 1], [1, 1, 0, 0, 0, 0, 0, 1])
    assert outs == [0, 0, 1, 1, 1, 1, 1, 0]
    (final_info,) = [result[4]["final_info"] for result in results if result[4]]
    np.testing.assert_array_equal(final_info["episode"]["r"], [28, 12])
    np.testing.assert_array_equal(final_info["episode"]["l"], [7, 2])


@sync_and_async
def test_time_limit_is_not_an_end(asynchronous: bool, toy: type[Toy], tmp_path: Path):
    """But for players who are out, one of them since this very step. What they saw last stays."""
    toy.players, toy.outs, toy.limit = 3, {1: 12, 2: 5}, 12
    envs = make(tmp_path, num_envs=3, async_envs=asynchronous)
    envs.reset(seed=0)
    results = [envs.step(np.array([1, 1, 1])) for _ in range(5)]
    terminated, truncated = (np.array([result[i] for result in results]) for i in (2, 3))
    np.testing.assert_array_equal(terminated, [[0] * 3, [0, 0, 1], [0, 1, 1], [0] * 3, [0, 0, 1]])
    np.testing.assert_array_equal(truncated, np.tile([[0], [0], [1], [0], [0]], 3))
    (infos,) = [result[4] for result in results if result[4]]
    np.testing.assert_array_equal(infos["final_info"]["episode"]["l"], [3, 3, 2])
    for rows, t in ((infos["final_obs"], 12), (results[-1][0], 8)):  # kept, while games go on
        assert (rows[:, 3, -1, 0] == t).all()
        np.testing.assert_array_equal(rows[:, 4:, 50, 50], 255 * np.eye(3))
    envs.close()


# ------ training ------
def test_statistics_of_each_player_are_logged(toy: type[Toy], tmp_path: Path):
    """Unclipped points of the whole game, under the player's number, and its steps."""
    toy.players, toy.home = 2, 3
    run = train(script, tmp_path, env_id="toy_v0", **SHORT, update_epochs=1)
    scalars = run.scalars()
    returns = [scalars[f"charts/episodic_return-player{p}"] for p in range(2)]
    lengths = [scalars[f"charts/episodic_length-player{p}"] for p in range(2)]
    assert len(returns[0]) == len(returns[1]) > 10
    assert [step for step, _ in returns[0]] == [step for step, _ in returns[1]]
    for (_, mine), (_, theirs), (_, length) in zip(*returns, lengths[0], strict=True):
        frames = 4 * length
        assert -2 * frames + 3 * frames <= mine <= 4 * frames  # 3 a frame for being the first
        assert -2 * frames <= theirs <= 2 * frames
    assert {length for _, length in lengths[1]} <= set(map(float, LENGTHS))
    assert not {"charts/episodic_return", "charts/episodic_length"} & scalars.keys()
    plotted = run_folders.read_run(tmp_path, {"script": FILE.name, "args": ARGS, "versions": {}})
    assert plotted.scores.tolist() == [length for _, length in lengths[0]]


def test_evaluation_is_of_whole_games_player_by_player(
    toy: type[Toy], capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """The first player of the toy game is paid for being it: returns tell who is who."""
    toy.players, toy.home = 4, 1000
    run = train(script, tmp_path, env_id="toy_v0", **SHORT, eval_episodes=3)
    toy.made = -1
    results = script.evaluate(run.agent(), run.args, tmp_path)
    returns = np.stack([results.pop(f"episodic_return-player{p}") for p in range(4)], 1)
    lengths = np.stack([results.pop(f"episodic_length-player{p}") for p in range(4)], 1)
    assert not results  # no other ones
    assert returns.shape == lengths.shape == (3, 4)  # games, players
    np.testing.assert_array_equal(lengths, np.tile(lengths[:, :1], 4))
    assert set(lengths[:, 0]) <= set(LENGTHS)
    np.testing.assert_allclose(returns[:, 0] / lengths[:, 0], 4 * 1000, atol=4 * 2)
    assert (abs(returns[:, 1:]) < 200).all() and returns[:, 1:].any()
    scalars = run.scalars()
    shown = capsys.readouterr().out
    for player in range(4):
        ((_, score),) = scalars[f"eval/episodic_return-player{player}"]
        ((_, length),) = scalars[f"eval/episodic_length-player{player}"]
        assert f"return-player{player} {score:.1f} ± " in shown
        assert f"length-player{player} {length:.1f} ± " in shown
        assert length > 2
    assert "eval/episodic_return" not in scalars
    greedy = script.evaluate(run.agent(), run.args, tmp_path, greedy=True)
    assert len(greedy["episodic_return-player0"]) == 1  # another game would be the same


def test_first_ratio_is_1_and_players_who_are_out_are_left_out(
    toy: type[Toy], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    toy.outs = {1: 5}
    calls = record_calls(script, "compute_gradient", monkeypatch)
    flags = SHORT | {"env_id": "toy_v0", "learning_rate": 0.01}
    run = assert_first_ratio_is_1(script, monkeypatch, tmp_path, **flags)
    logged = run.scalars()["losses/explained_variance"]
    playing = np.ones((64, 2, 2), bool)
    for game in range(2):
        begin, played = 0, 0
        while begin < 64:
            length = LENGTHS[(game + 1 + played) % len(LENGTHS)]
            playing[begin + 2 : begin + length, game, 1] = False  # out since the second step
            begin, played = begin + length, played + 1
    for epoch in range(8):  # four of each rollout
        minibatches = [mb_inds for _, _, mb_inds, _ in calls[4 * epoch : 4 * epoch + 4]]
        assert np.ptp([len(rows) for rows in minibatches]) <= 1
        expected = np.flatnonzero(playing[32 * (epoch // 4) :][:32])
        assert sorted(torch.cat(minibatches).tolist()) == expected.tolist()
        values, returns = (calls[4 * epoch][1][name][expected] for name in ("values", "returns"))
        explained = 1 - (returns - values).var() / returns.var()
        assert logged[epoch // 4][1] == pytest.approx(explained.item(), abs=1e-4)


def test_truncated_games_are_worth_what_their_last_frames_are(
    toy: type[Toy], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The first rollout's values are those of the weights before training."""
    toy.limit = 8  # two steps
    seen = record_calls(script, "compute_gae", monkeypatch)
    flags = SHORT | {"total_timesteps": 128, "learning_rate": 0.0}
    run = train(script, tmp_path, env_id="toy_v0", **flags)
    _, values, next_values, terminated, truncated, _ = seen[0]
    agent = run.agent()
    assert truncated[1::2].all() and not truncated[::2].any() and not terminated.any()
    toy.made = -1
    envs = make(tmp_path)
    envs.reset(seed=1)
    envs.step(np.zeros(4, int))
    infos = envs.step(np.zeros(4, int))[4]  # no action changes what is seen
    with torch.no_grad():
        last = agent.get_value(agent.features(torch.from_numpy(infos["final_obs"]))).numpy()
    np.testing.assert_allclose(next_values[1::2], np.tile(last, (16, 1)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(next_values[::2], values[1::2], rtol=1e-4, atol=1e-6)
    assert (abs(next_values[1:-1:2] - values[2::2]) > 1e-4).all()


# ------ agent ------
def make_agent(players: int) -> Any:
    torch.manual_seed(0)
    moves = gym.spaces.Discrete(6)
    return script.Agent(SimpleNamespace(players=players, single_action_space=moves))


@pytest.mark.parametrize("players", [2, 4])
def test_network_sees_pixels_and_players_scaled(players: int):
    agent = make_agent(players)
    seen = input_of(agent.network)
    assert tuple(agent.network[0].weight.shape) == (32, 4 + players, 8, 8)
    shapes = [tuple(p.shape) for p in agent.parameters() if p.dim() > 1][1:]
    assert shapes == [(64, 32, 4, 4), (64, 64, 3, 3), (512, 3136), (1, 512), (6, 512)]
    obs = torch.zeros(players, 4 + players, 84, 84, dtype=torch.uint8)
    obs[:, :4] = torch.tensor([0, 51, 204, 255], dtype=torch.uint8).view(4, 1, 1)
    obs[range(players), range(4, 4 + players)] = 255
    agent.features(obs)
    pixels = torch.tensor([0, 0.2, 0.8, 1]).expand(players, 4)
    expected = torch.cat([pixels, torch.eye(players)], 1)
    torch.testing.assert_close(seen[0][:, :, 40, 40], expected)


# ------ command line ------
@needs_uv
@pytest.mark.slow("uv installs packages")
def test_uv_run_installs_trains_and_lets_checkpoints_play(tmp_path: Path):
    def uv_run(script: str, *args: object) -> str:
        done = newcomer.uv_run(script, *args, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    flags = ["--num-envs", 4, "--num-steps", 16, "--total-timesteps", 64, "--keep-checkpoints"]
    uv_run(FILE.name, "--env-id", "space_invaders_v2", *flags, "--eval-episodes", 2)
    folder = command_line.the_folder(tmp_path / "runs")
    assert "1 of 1: " in uv_run("league.py", folder, "--max-steps", 50)
    assert (folder / "league.png").exists()
