# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["filelock>=3.16", "gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1",
#     "numpy>=2", "tensorboard>=2.19", "torch>=2.11", "tqdm>=4.66", "tyro>=0.9.20",
#     "wandb>=0.30",
#     "ale-py>=0.12", "pettingzoo[atari]>=1.27", "supersuit>=3.11",
#     "matplotlib>=3.9", "openskill>=6"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""A league of the checkpoints of ppo_pettingzoo_ma_atari.py: every one plays every other.

    uv run ppo/league.py runs/pong_v3__ppo_pettingzoo_ma_atari__1__<time>
    uv run ppo/league.py runs/... runs/... --checkpoints 5 --games 4

In self-play the score says nothing: an agent that plays itself wins as often as it loses. Here the
checkpoints that a run kept with --keep-checkpoints, or several runs, play each other, on both sides
of the game, and get ratings from the results. Prints a table and writes league.csv and league.png
(rating over training steps) into the folder of the first run. Nothing that a run contains is
executed.
"""

import csv
import dataclasses
import itertools
import random
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import tyro
from evaluate import fail, import_script, warn_if_edited
from matplotlib.ticker import EngFormatter
from openskill.models import PlackettLuce

SCRIPT = Path(__file__).resolve().with_name("ppo_pettingzoo_ma_atari.py")
ORDERS = 100  # in which the same games are rated


@dataclasses.dataclass
class Args:
    runs: tyro.conf.Positional[list[Path]]  # run folders whose checkpoints play each other
    checkpoints: int = 10  # of each run that take part, evenly spaced; 0: all
    games: int = 1  # games of each two checkpoints on each side
    max_steps: int = 20_000  # steps after which a game is stopped and counts as it stands
    greedy: bool = False  # most probable actions instead of sampled ones
    seed: int = 1  # of the sampled actions
    device: str = "cpu"  # cpu, cuda, cuda:1, mps
    out: Path | None = None  # folder for league.csv and league.png; the first run's if not given
    script: Path = SCRIPT  # script that made the runs; it is executed


@dataclasses.dataclass
class Entrant:
    """A checkpoint, what it has achieved, and how it is rated (on openskill's scale)."""

    run: Path
    step: int
    agent: Any
    won: int = 0
    drawn: int = 0
    lost: int = 0
    rating: float = 0.0
    uncertainty: float = 0.0  # standard deviation of the rating


def kept_checkpoints(run: Path, most: int) -> list[Path]:
    """Files of the checkpoints that a run kept, in the order of their steps.

    most: how many are wanted, the first, the last and evenly spaced ones between; 0: all of them.
    """
    files = [file for file in run.glob("checkpoint-*.pt") if file.stem[11:].isdigit()]
    files.sort(key=lambda file: int(file.stem[11:]))
    if not most or most >= len(files):
        return files
    return [files[round(i * (len(files) - 1) / (most - 1))] for i in range(most)]


@torch.no_grad()
def play(envs: Any, agents: tuple[Any, Any], args: Args) -> np.ndarray:
    """Points of both agents in each game: (games, 2).

    envs: the games, as rows of their players. The first agent has the first, third, ... player of
    the first, third, ... game and the second, fourth, ... player of the others: they swap sides.
    """
    games, players = len(envs.obs), envs.players
    owner = np.add.outer(np.arange(games), np.arange(players)) % 2  # of each player of each game
    device = next(agents[0].parameters()).device
    obs, _ = envs.reset(seed=args.seed)
    points = np.zeros((games, players))
    over = np.zeros(games, bool)
    for _ in range(args.max_steps):
        actions = np.zeros(games * players, int)
        for i, agent in enumerate(agents):
            own = owner.ravel() == i
            x = agent.features(torch.from_numpy(obs[own]).to(device))
            actions[own] = agent.get_action(x, args.greedy).cpu().numpy()
        obs, _, _, _, infos = envs.step(actions)
        points[~over] = envs.points[~over]
        if "final_info" in infos:  # envs.points is already of the next game where one has ended
            episode = infos["final_info"]["episode"]["r"].reshape(games, players)
            points[~over] = episode[~over]
            over |= infos["final_info"]["_episode"].reshape(games, players)[:, 0]
        if over.all():
            break
    return np.stack([(points * (owner == i)).sum(1) for i in (0, 1)], 1)


def rate(entrants: list[Entrant], results: list[tuple[int, int, np.ndarray]], seed: int) -> None:
    """Fills in wins, losses and ratings: those of openskill's Plackett-Luce model.

    results: indices of two entrants and their points, (games, 2). Ratings are updated game by game
    and would depend on the order; the games have none, so they are means over shuffled orders.
    """
    games = [(a, b, *row) for a, b, points in results for row in points.tolist()]
    for a, b, mine, theirs in games:
        for entrant, gap in ((entrants[a], mine - theirs), (entrants[b], theirs - mine)):
            entrant.won += gap > 0
            entrant.drawn += gap == 0
            entrant.lost += gap < 0
    model = PlackettLuce(tau=0)  # the entrants do not change from game to game
    ratings = []
    for order in range(ORDERS):
        players = [model.rating() for _ in entrants]
        for a, b, mine, theirs in random.Random(seed + order).sample(games, len(games)):
            teams = model.rate([[players[a]], [players[b]]], scores=[mine, theirs])
            (players[a],), (players[b],) = teams
        ratings.append([(player.mu, player.sigma) for player in players])
    for entrant, (mu, sigma) in zip(entrants, np.mean(ratings, 0).tolist(), strict=True):
        entrant.rating, entrant.uncertainty = mu, sigma


def draw(entrants: list[Entrant], title: str, file: Path) -> None:
    """Rating over training steps, with its uncertainty, a curve for each run."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    runs = list(dict.fromkeys(entrant.run for entrant in entrants))
    for run in runs:
        own = [entrant for entrant in entrants if entrant.run == run]
        errors = [entrant.uncertainty for entrant in own]
        steps, ratings = [entrant.step for entrant in own], [entrant.rating for entrant in own]
        axes.errorbar(steps, ratings, errors, marker="o", capsize=3, label=run.resolve().name)
    axes.set(xlabel="training steps", ylabel="rating in the league", title=title)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 500k, 1M
    axes.grid(alpha=0.3)
    if len(runs) > 1:
        axes.legend(fontsize="small")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def checkpoints_of(args: Args) -> list[tuple[Path, Path]]:
    """Run folder and file of each checkpoint that takes part; fails if the flags cannot work."""
    for name, least in (("games", 1), ("max_steps", 1), ("seed", 0), ("checkpoints", 0)):
        if getattr(args, name) < least:
            fail(f"--{name.replace('_', '-')} starts at {least}")
    if args.checkpoints == 1:
        fail("--checkpoints must be 0, for all, or at least 2: nobody plays alone")
    if args.greedy and args.games > 1:
        fail("--greedy with --games above 1: without chance the same two play the same game again")
    if not args.runs:
        fail("name at least one run folder")
    files = [(run, file) for run in args.runs for file in kept_checkpoints(run, args.checkpoints)]
    for run in args.runs:
        if run not in {owner for owner, _ in files}:
            fail(f"{run} has no checkpoint-<step>.pt: train with --keep-checkpoints")
    if len(files) < 2:
        fail(f"{args.runs[0]} has one checkpoint only: a league needs two")
    return files


def args_to_play(script: ModuleType, trained: Any, args: Args) -> Any:
    """The script's flags: those of the run, but for what concerns this machine and training."""
    run_args = dataclasses.replace(
        trained,
        torch_threads=script.Args().torch_threads,
        device=args.device,
        capture_video=False,
        async_envs=False,
    )
    script.check(run_args)
    return run_args


def make_games(script: ModuleType, run_args: Any, games: int, out: Path) -> Any:
    """Environments for two agents: `games` games with each side."""
    one = script.make_envs(dataclasses.replace(run_args, num_envs=1), out)
    num_envs = 2 * games * one.players
    one.close()
    return script.make_envs(dataclasses.replace(run_args, num_envs=num_envs), out)


def load_entrant(
    script: ModuleType, envs: Any, device: torch.device, run: Path, file: Path, state: dict
) -> Entrant:
    """A checkpoint's agent; fails if the script has another network."""
    trained = state["args"]
    precision = {"bf16": trained.bf16} if hasattr(trained, "bf16") else {}
    agent = script.Agent(envs, **precision).to(device)
    try:
        agent.load_state_dict(state["agent"])
        return Entrant(run, int(state["global_step"]), agent)
    except (KeyError, RuntimeError, TypeError, ValueError):  # other names or shapes
        name = Path(script.__file__ or "").name
        fail(f"{file} holds no agent that fits {name} and {trained.env_id}")


def play_all(entrants: list[Entrant], envs: Any, args: Args) -> list[tuple[int, int, np.ndarray]]:
    """Plays all pairs and prints a line for each.

    Returns their indices and their points, (games, 2).
    """
    pairs = list(itertools.combinations(range(len(entrants)), 2))
    results = []
    # Seeded once: if all pairs had the same random numbers, ratings would be biased.
    torch.manual_seed(args.seed)
    start = time.monotonic()
    for number, (a, b) in enumerate(pairs, start=1):
        points = play(envs, (entrants[a].agent, entrants[b].agent), args)
        results.append((a, b, points))
        left = (time.monotonic() - start) / number * (len(pairs) - number) / 60
        shown = ", ".join(f"{mine:g}:{theirs:g}" for mine, theirs in points)
        steps = f"{entrants[a].step:,} against {entrants[b].step:,}"
        print(f"{number} of {len(pairs)}: {steps} steps: {shown}; {left:.1f} min left", flush=True)
    return results


def write_csv(entrants: list[Entrant], file: Path) -> None:
    """A line for each entrant."""
    with open(file, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["run", "step", "rating", "uncertainty", "won", "drawn", "lost"])
        for one in entrants:
            ratings = [f"{one.rating:.2f}", f"{one.uncertainty:.2f}"]
            games = [one.won, one.drawn, one.lost]
            writer.writerow([one.run.resolve().name, one.step, *ratings, *games])


def print_table(entrants: list[Entrant]) -> None:
    """The entrants, the best first."""
    print("\n|   rating   |      steps | won | drawn | lost | run\n|---|---:|---:|---:|---:|---|")
    for one in sorted(entrants, key=lambda entrant: -entrant.rating):
        rating = f"{one.rating:4.1f} ± {one.uncertainty:.1f}"
        games = f"{one.won:3} | {one.drawn:5} | {one.lost:4}"
        print(f"| {rating} | {one.step:10,} | {games} | {one.run.resolve().name}")


def main() -> None:
    """Loads the checkpoints, lets them play, rates them, prints and writes the results."""
    args = tyro.cli(Args, description=__doc__)
    files = checkpoints_of(args)
    out = (args.out or args.runs[0]).expanduser()  # shells leave the ~ in --out=~/league
    if out.exists() and not out.is_dir():
        fail(f"--out: {out} is not a folder")

    if not args.script.is_file():
        fail(f"no script at {args.script}")
    script = import_script(args.script)
    if args.script == SCRIPT:
        for run in args.runs:
            warn_if_edited(SCRIPT, run)
    states = [script.load_checkpoint(file) for _, file in files]
    env_ids = {state["args"].env_id for state in states}
    if len(env_ids) > 1:
        fail(f"the runs play different games: {', '.join(sorted(env_ids))}")
    run_args = args_to_play(script, states[0]["args"], args)
    device = script.setup_torch(run_args)
    envs = make_games(script, run_args, args.games, out)
    entrants = [
        load_entrant(script, envs, device, run, file, state)
        for (run, file), state in zip(files, states, strict=True)
    ]
    del states  # the agents hold the weights now
    out.mkdir(parents=True, exist_ok=True)
    results = play_all(entrants, envs, args)
    envs.close()
    rate(entrants, results, args.seed)

    write_csv(entrants, out / "league.csv")
    draw(entrants, f"{run_args.env_id}: every checkpoint against every other", out / "league.png")
    print_table(entrants)
    print(f"\n{out / 'league.csv'}\n{out / 'league.png'}")


if __name__ == "__main__":
    main()
