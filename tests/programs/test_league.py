"""league.py: who plays whom on which side, what counts, and how it is rated."""

import csv
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.in_process import load_script, train
from torch import Tensor, nn
from toy_game import Toy

pytest.importorskip("openskill", reason="needs the extra `league`")
pytest.importorskip("supersuit", reason="needs the extra `pettingzoo`")
league = load_script("league.py")
script = load_script("ppo_pettingzoo_ma_atari.py")
FLAGS = {"env_id": "toy_v0", "num_envs": 2, "num_steps": 8, "total_timesteps": 48}
FLAGS |= {"torch_threads": 1, "num_minibatches": 1, "update_epochs": 1, "checkpoint_every": 1}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> type[Toy]:
    return Toy.for_a_test(monkeypatch)


class Always(nn.Module):
    """An agent that always takes the same action: 1 earns points in the toy game, 2 costs some."""

    def __init__(self, action: int):
        super().__init__()
        self.action, self.weight = action, nn.Parameter(torch.zeros(1))

    def features(self, obs: Tensor) -> Tensor:
        return obs

    def get_action(self, x: Tensor, greedy: bool = False) -> Tensor:
        assert greedy
        return torch.full((len(x),), self.action)


def play(folder: Path, first: int, second: int, players: int = 2, **flags: Any) -> np.ndarray:
    """Points of two such agents in one game on each side."""
    Toy.made = -1
    args = script.Args(env_id="toy_v0", num_envs=2 * players)
    envs = script.make_envs(args, folder)
    return league.play(
        envs, (Always(first), Always(second)), league.Args([folder], greedy=True, **flags)
    )


# ------ games ------
def test_agents_swap_sides(tmp_path: Path):
    """The first player of the toy game gets 1 for action 1, the second 2; games last 7, 4 steps."""
    points = play(tmp_path, 1, 2)
    np.testing.assert_array_equal(points, 4 * np.array([[1 * 7, -2 * 7], [2 * 4, -2 * 4]]))


def test_every_second_of_four_players_is_an_agents(toy: type[Toy], tmp_path: Path):
    toy.players = 4
    points = play(tmp_path, 1, 0, players=4)
    np.testing.assert_array_equal(points, 4 * np.array([[(1 + 3) * 7, 0], [(2 + 4) * 4, 0]]))


def test_game_that_is_stopped_counts_as_it_stands(tmp_path: Path):
    points = play(tmp_path, 1, 2, max_steps=5)  # the second game ends after 4 steps, by itself
    np.testing.assert_array_equal(points, 4 * np.array([[1 * 5, -2 * 5], [2 * 4, -2 * 4]]))


# ------ ratings ------
def entrants(count: int) -> list[Any]:
    return [league.Entrant(Path("run"), 100 * i, None) for i in range(count)]


def test_who_wins_more_is_rated_higher():
    """The i-th beats all before it, but draws once with the one right before it."""
    players = entrants(5)
    results = [(a, b, np.array([[0.0, 1.0], [0.0, b - a - 1]])) for b in range(5) for a in range(b)]
    league.rate(players, results, seed=0)
    ratings = [player.rating for player in players]
    assert ratings == sorted(ratings) and np.diff(ratings).min() > 0.5
    assert [player.won for player in players] == [0, 1, 3, 5, 7]
    assert [player.drawn for player in players] == [1, 2, 2, 2, 1]
    assert [player.lost for player in players] == [7, 5, 3, 1, 0]
    assert all(2 < player.uncertainty < 25 / 3 for player in players)


def test_order_of_games_hardly_matters():
    rng = np.random.default_rng(0)
    results = [(a, b, rng.normal(size=(4, 2))) for b in range(6) for a in range(b)]
    found = []
    for shuffled in (results, results[::-1]):
        players = entrants(6)
        league.rate(players, shuffled, seed=len(found))
        found.append([player.rating for player in players])
    assert np.ptp(found[0]) > 2
    np.testing.assert_allclose(found[0], found[1], atol=0.8)


# ------ the program ------
@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that kept its checkpoints after 0, 16, 32 and 48 steps."""
    folder = tmp_path_factory.mktemp("league") / "run"
    train(script, folder, **FLAGS, keep_checkpoints=True)
    return folder


def main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """Runs the program in this process, where the toy game is known."""
    beside = [] if "--script" in arguments else ["--script", str(script.__file__)]
    monkeypatch.setattr(sys, "argv", ["league.py", *map(str, arguments), *beside])
    league.main()


def table(file: Path) -> list[dict[str, str]]:
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_checkpoint_plays_every_other(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    before = command_line.contents(run)
    main(monkeypatch, run, "--games", 2, "--out", tmp_path / "new" / "out")
    rows = table(tmp_path / "new/out/league.csv")
    assert [row["step"] for row in rows] == ["0", "16", "32", "48"]
    assert all(row["run"] == run.name for row in rows)
    assert {sum(int(row[name]) for name in ("won", "drawn", "lost")) for row in rows} == {3 * 2 * 2}
    assert sum(int(row["won"]) - int(row["lost"]) for row in rows) == 0
    assert (tmp_path / "new/out/league.png").stat().st_size > 5000
    shown = capsys.readouterr().out
    assert shown.count(" of 6: ") == 6 and shown.count(f"| {run.name}\n") == 4 + 1  # and a header
    assert command_line.contents(run) == before


def test_the_same_seed_plays_the_same_league(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    flags = ("--checkpoints", 3, "--max-steps", 2)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        main(monkeypatch, run, *flags, "--seed", seed, "--out", tmp_path / name)
    assert table(tmp_path / "a/league.csv") == table(tmp_path / "b/league.csv")
    assert table(tmp_path / "a/league.csv") != table(tmp_path / "c/league.csv")


def test_chance_differs_from_pair_to_pair(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """Otherwise the luck of one game would favor the earlier of two equal agents in all pairs."""
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    for file in copied.glob("checkpoint-*.pt"):
        shutil.copy(run / "checkpoint-48.pt", file)
    main(monkeypatch, copied, "--max-steps", 2)  # so many games have in any case
    results = re.findall(r" steps: (.*);", capsys.readouterr().out)
    assert len(results) == 6 and len(set(results)) > 1


def test_how_a_run_was_trained_does_not_matter(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Compiled where there is a compiler, into a folder of somebody else, in many processes."""
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    for file in copied.glob("checkpoint-*.pt"):
        state = torch.load(file, weights_only=True)
        state["args"] |= {"compile": True, "async_envs": True, "runs_dir": "/dev/null/runs"}
        state["args"] |= {"resume": "/dev/null/runs/run"}
        torch.save(state, file)
    monkeypatch.setenv("PATH", "")
    made, make_envs = [], script.make_envs
    monkeypatch.setattr(league, "import_script", lambda _: script)
    monkeypatch.setattr(script, "make_envs", lambda *a: made.append(a[0]) or make_envs(*a))
    main(monkeypatch, copied, "--checkpoints", 2, "--max-steps", 2)
    assert made and not any(args.async_envs for args in made)
    assert len(table(copied / "league.csv")) == 2


def test_runs_play_each_other(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """A line says which of them another version of the script has made: its games may be others."""
    monkeypatch.setattr(league, "SCRIPT", Path(script.__file__))
    other = Path(shutil.copytree(run, tmp_path / "other"))
    (other / league.SCRIPT.name).write_text("another version")
    main(monkeypatch, other, run, "--checkpoints", 2, "--max-steps", 2)
    rows = table(other / "league.csv")
    expected = [("other", "0"), ("other", "48"), (run.name, "0"), (run.name, "48")]
    assert [(row["run"], row["step"]) for row in rows] == expected
    (told,) = capsys.readouterr().err.splitlines()
    assert f"is not the version that made {other}" in told


def test_checkpoints_are_chosen_evenly_by_their_steps(tmp_path: Path):
    for step in (0, 500, 1000, 20000, 3000, 4000, 5000):
        (tmp_path / f"checkpoint-{step}.pt").touch()
    for name in ("checkpoint.pt", "checkpoint-9.tmp", "checkpoint-best.pt", "agent.pt"):
        (tmp_path / name).touch()

    def steps(most: int) -> list[int]:
        return [int(file.stem[11:]) for file in league.kept_checkpoints(tmp_path, most)]

    assert steps(0) == steps(7) == steps(9) == [0, 500, 1000, 3000, 4000, 5000, 20000]
    assert steps(2) == [0, 20000]
    assert steps(3) == [0, 3000, 20000]
    assert steps(4) == [0, 1000, 4000, 20000]


def rewrite(folder: Path, **changes: Any) -> None:
    """Replaces entries of the last checkpoint that the run kept."""
    file = folder / "checkpoint-48.pt"
    torch.save(torch.load(file, weights_only=True) | changes, file)


def play_another_game(folder: Path) -> None:
    state = torch.load(folder / "checkpoint-48.pt", weights_only=True)
    rewrite(folder, args=state["args"] | {"env_id": "pong_v3"})


def keep_one(folder: Path) -> None:
    for file in sorted(folder.glob("checkpoint-*.pt"))[1:]:
        file.unlink()


# Name: what is done to the run folder, arguments after it, what the line must say.
ROWS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no run": (shutil.rmtree, "", r"run has no checkpoint-<step>\.pt: train with --keep"),
    "one kept": (keep_one, "", "a league needs two"),
    "damaged": (lambda run: (run / "checkpoint-16.pt").write_bytes(b"PK"), "", "checkpoint-16.pt"),
    "foreign weights": (lambda run: rewrite(run, agent={"a": torch.ones(1)}), "", "no agent that"),
    "two games": (play_another_game, "", "different games: pong_v3, toy_v0"),
    "one checkpoint": (lambda _: None, "--checkpoints 1", "--checkpoints"),
    "a game again": (lambda _: None, "--games 2 --greedy", "--greedy with --games"),
    "no games": (lambda _: None, "--games 0", "--games starts at 1"),
    "no such script": (lambda _: None, "--script nowhere.py", "nowhere.py"),
    "out is a file": (lambda _: None, "--out @/run/agent.pt", "--out"),
}


@pytest.mark.parametrize(
    ("damage", "arguments", "message"), ROWS.values(), ids=[name.replace(" ", "-") for name in ROWS]
)
def test_bad_input_is_refused_in_one_line(
    damage: Callable[[Path], object],
    arguments: str,
    message: str,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    damage(copied)
    before = command_line.contents(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(monkeypatch, copied, *arguments.replace("@", str(tmp_path)).split())
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert re.search(message, shown.err), shown.err
    assert command_line.contents(tmp_path) == before


def test_agents_play_with_the_precision_that_they_were_trained_with(run: Path):
    file = run / "checkpoint-48.pt"
    state = script.load_checkpoint(file)
    state["args"].bf16 = True
    envs = script.make_envs(state["args"], run)
    entrant = league.load_entrant(script, envs, torch.device("cpu"), run, file, state)
    assert entrant.agent.bf16 and entrant.step == 48
