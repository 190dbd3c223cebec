"""Draws what the agent of each script sees, from the environments that the script itself makes.

    uv run --extra dev python tools/observations.py               of all scripts but the three below
    uv run --extra dev python tools/observations.py ppo ppo_atari  of some
    uv run --extra procgen --extra microrts --extra benchmark python tools/observations.py \
        ppo_procgen ppo_multidiscrete ppo_multidiscrete_mask

Writes docs/observations/<script>.svg. Procgen and Gym-µRTS have packages of their own, and the
latter needs Java. Pictures of robots need a screen, or MUJOCO_GL=egl (or osmesa) before the
command. Exit codes: 0 done, 2 bad input.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray as Array
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "observations"
BLUE, PALE_BLUE, RED, GREY, LIGHT = "#1f6fb4", "#7fb2dd", "#d1495b", "#6b7280", "#e5e7eb"
COLORS = 32  # of a coloured picture: fewer make a smaller file
SMALL = 9  # points: what stands at a panel
# White also where the page is dark; texts remain texts; ids are not drawn by chance.
LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": "#9ca3af",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "observations",
}

# ------ panels ------


def show_image(axes: plt.Axes, image: Array, title: str = "") -> None:
    """A picture, pixel by pixel: gray, (height, width), or coloured, (height, width, 3); uint8."""
    if image.ndim == 3:
        image = np.asarray(Image.fromarray(image).quantize(COLORS).convert("RGB"))
    # "none" puts the pixels themselves into the file, however large they are shown.
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="none")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=SMALL)


def show_bars(axes: plt.Axes, names: Sequence[str], values: Array, title: str) -> None:
    """A vector: a bar for each number, its name on the left, its value at its end."""
    places = range(len(values))
    reach = 2 * np.abs(values).max()  # room for the numbers
    axes.barh(places, values, color=BLUE, height=0.7)
    axes.axvline(0, color=GREY, linewidth=0.8)
    for place, value in zip(places, values, strict=True):
        side = 1 if value >= 0 else -1
        at = value + 0.03 * reach * side
        align = "left" if side > 0 else "right"
        axes.text(at, place, f"{value:.2f}", va="center", ha=align, fontsize=SMALL)
    axes.set_yticks(places, names, fontsize=SMALL)
    axes.set_xlim(-reach, reach)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=SMALL)


def show_cells(axes: plt.Axes, plane: Array, title: str) -> None:
    """A plane of zeros and ones, (height, width): the ones are blue."""
    colors = [matplotlib.colors.to_rgb(color) for color in (LIGHT, BLUE)]
    image = (255 * np.array(colors)).astype(np.uint8)[plane.astype(int)]
    image = image.repeat(8, 0).repeat(8, 1)  # each cell has 8 × 8 pixels, with white between them
    image[::8] = 255
    image[:, ::8] = 255
    show_image(axes, image)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=SMALL - 1)


def new_figure(height: float) -> plt.Figure:
    """An empty figure of the pages' width; height: in inches."""
    return plt.figure(figsize=(6.4, height), layout="constrained")


# ------ playing ------


def load(name: str) -> ModuleType:
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "ppo" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def play_at_random(envs: Any, reset: Any, steps: int) -> Array:
    """What the environments show after so many steps of random actions, always the same ones."""
    random = np.random.default_rng(0)
    obs = reset[0]
    choices = envs.single_action_space.n
    for _ in range(steps):
        obs = envs.step(random.integers(0, choices, len(obs)))[0]
    return obs


def play_envpool(script: ModuleType, args: Any, steps: int, seed: int = 1) -> Array:
    """What the games of a pool show after so many random steps: (num_envs, 4, 84, 84)."""
    envs = script.make_envs(args, Path())
    obs = play_at_random(envs, envs.reset(seed), steps).copy()
    envs.close()
    return obs


def play_ale(script: ModuleType, args: Any, steps: int, seed: int = 1) -> tuple[Array, Array]:
    """What ale-py's games show after so many random steps, and the first game's own picture."""
    envs = script.make_envs(args, Path())
    obs = play_at_random(envs, envs.reset(seed=seed), steps).copy()
    return obs, envs.envs[0].unwrapped.ale.getScreenRGB()


# ------ vectors ------

LEG = ("thigh", "shin", "foot")
CHEETAH = ["height", "angle"]
CHEETAH += [f"{side} {part}" for side in ("back", "front") for part in LEG]
CHEETAH += ["speed forward", "speed up", "turning"]
CHEETAH += [f"{side} {part}, speed" for side in ("back", "front") for part in LEG]


def draw_classic(script: ModuleType) -> plt.Figure:
    """The cart and its pole beside the four numbers that the network gets."""
    import gymnasium as gym

    env = gym.make(script.Args().env_id, render_mode="rgb_array")
    obs, _ = env.reset(seed=3)
    while abs(obs[2]) < 0.15:  # to the right until the pole tilts
        obs = env.step(1)[0]
    figure = new_figure(2.3)
    picture, vector = figure.subplots(1, 2, width_ratios=[1, 1.2])
    show_image(picture, env.render()[120:340, 100:500], "the game: push the cart left or right")
    names = ["position of the cart", "speed of the cart", "angle of the pole", "angular speed"]
    show_bars(vector, names, obs, "what the agent sees: 4 numbers")
    return figure


def draw_continuous(script: ModuleType) -> plt.Figure:
    """The robot, its vector as the simulator gives it, and normalized."""
    import gymnasium as gym
    import torch

    args = script.Args()
    envs = script.make_envs(args, Path())
    agent = script.Agent(envs)
    random = np.random.default_rng(0)
    rows = [envs.reset(seed=1)[0].copy()]
    for _ in range(args.num_steps):
        rows.append(envs.step(random.uniform(-1, 1, (1, 6)))[0].copy())
    script.merge_stats(agent.obs_stats, torch.from_numpy(np.concatenate(rows)).float())
    env = gym.make(args.env_id, render_mode="rgb_array", width=320, height=320)
    env.reset(seed=1)
    for _ in range(25):
        obs = env.step(random.uniform(-1, 1, 6))[0]
    figure = new_figure(3.4)
    picture, raw, scaled = figure.subplots(1, 3, width_ratios=[1.1, 1, 1])
    show_image(picture, env.render(), "the robot: torques at 6 joints")
    show_bars(raw, CHEETAH, obs, "the agent's 17 numbers")
    normalized = agent.features(torch.from_numpy(obs[None]))[0].numpy()
    show_bars(scaled, [""] * 17, normalized, "normalized")
    return figure


def draw_robots(script: ModuleType) -> plt.Figure:
    """One of the robots, and what all of them see: a row each."""
    import jax
    import mujoco

    args = script.Args(num_envs=64, capture_video=True, device="cpu")
    envs = script.make_envs(args, Path())
    state, obs = envs.reset(jax.random.key(1))
    step = jax.jit(envs.step)
    for t in range(60):
        actions = jax.random.uniform(jax.random.key(t), (64, 6), minval=-1)
        state, obs, rows = step(state, actions)
    data = mujoco.MjData(envs.task.mj_model)
    for name in script.POSE:
        setattr(data, name, np.asarray(rows[name][0]))
    mujoco.mj_forward(envs.task.mj_model, data)
    with mujoco.Renderer(envs.task.mj_model, 240, 240) as renderer:
        renderer.update_scene(data, camera=0)
        frame = renderer.render()
    x = np.asarray(obs)
    figure = new_figure(3.2)
    picture, table = figure.subplots(1, 2, width_ratios=[1, 1.5])
    show_image(picture, frame, "one robot: torques at 6 joints")
    scaled = (x - x.mean(0)) / x.std(0)
    table.imshow(scaled, cmap="RdBu", vmin=-3, vmax=3, aspect="auto", interpolation="none")
    table.set_xticks(range(17), CHEETAH, rotation=90, fontsize=SMALL - 1)
    table.set_yticks([0, 63], ["robot 1", "robot 64"], fontsize=SMALL)
    table.tick_params(length=0)
    table.set_title("a step of 64 robots: 17 numbers each, normalized", fontsize=SMALL)
    return figure


# ------ Atari ------


def draw_frames(script: ModuleType) -> plt.Figure:
    """The game's screen beside the last four frames, gray and small."""
    obs, screen = play_ale(script, script.Args(num_envs=1), 36)
    figure = new_figure(2.0)
    panels = figure.subplots(1, 5, width_ratios=[1.2, 1, 1, 1, 1])
    show_image(panels[0], screen, "the game, 210 × 160")
    titles = ["3 steps ago", "2 steps ago", "1 step ago", "now"]
    for axes, frame, title in zip(panels[1:], obs[0], titles, strict=True):
        show_image(axes, frame, title)
    figure.suptitle("what the agent sees: 4 × 84 × 84 bytes", x=0.6, fontsize=SMALL)
    return figure


def draw_memory(script: ModuleType) -> plt.Figure:
    """The game's screen, the one frame that is seen, and the LSTM's state."""
    import torch

    torch.manual_seed(1)
    envs = script.make_envs(script.Args(num_envs=1), Path())
    agent = script.Agent(envs)
    obs = torch.from_numpy(envs.reset(seed=1)[0])
    state = torch.zeros(2, 1, 128)
    with torch.inference_mode():
        for t in range(37):
            x, state = agent.features(obs, state, torch.tensor([[t == 0]]))
            obs = torch.from_numpy(envs.step(agent.get_action(x).numpy())[0])
    figure = new_figure(2.0)
    panels = figure.subplots(1, 4, width_ratios=[1.2, 1, 1, 1])
    show_image(panels[0], envs.envs[0].unwrapped.ale.getScreenRGB(), "the game")
    show_image(panels[1], obs[0, 0].numpy(), "what it sees: one frame")
    names = ["what it remembers:\n128 hidden numbers", "and 128 in cells"]
    for axes, numbers, name in zip(panels[2:], state[:, 0].numpy(), names, strict=True):
        limit = np.abs(numbers).max()
        axes.imshow(numbers.reshape(16, 8), cmap="RdBu", vmin=-limit, vmax=limit)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(name, fontsize=SMALL)
    return figure


def draw_pool(script: ModuleType) -> plt.Figure:
    """All that one step of the pool answers: the frames of eight games."""
    obs = play_envpool(script, script.Args(num_envs=8, env_threads=1), 70)
    gap = 5  # pixels between frames
    size = 84 + gap
    sheet = np.full((4 * size - gap, 8 * size - gap), 255, np.uint8)  # one image: a smaller file
    for game in range(8):
        for frame in range(4):
            place = slice(frame * size, frame * size + 84), slice(game * size, game * size + 84)
            sheet[place] = obs[game, frame] & 0xF0
    figure = new_figure(3.4)
    axes = figure.subplots()
    show_image(axes, sheet, "one step of the pool: 8 games × 4 frames × 84 × 84 bytes")
    axes.set_xticks(np.arange(8) * size + 42, [f"game {game}" for game in range(8)])
    axes.set_yticks(np.arange(4) * size + 42, ["3 steps ago", "2", "1", "now"])
    axes.tick_params(length=0, labelsize=SMALL)
    axes.spines[:].set_visible(False)
    return figure


def draw_processes(frames: Array, titles: Sequence[str]) -> plt.Figure:
    """The games of each process, (processes, games, 84, 84), and what they send each other."""
    figure = new_figure(2.5)
    panels = figure.subplots(2, 5, width_ratios=[1, 1, 1, 1, 1.5])
    games = frames.shape[1]
    for process in range(2):
        for game in range(games):
            show_image(panels[process, game], frames[process, game])
            title = f"{titles[process]}: game 0" if game == 0 else f"game {game}"
            panels[process, game].set_title(title, fontsize=SMALL - 1)
        last = panels[process, 4]
        last.axis("off")
        last.annotate(
            "gradient of\nits 512 rows",
            (0.9, 0.5),
            (0.08, 0.5),
            va="center",
            fontsize=SMALL,
            arrowprops={"arrowstyle": "->", "color": BLUE},
        )
    figure.text(0.995, 0.5, "sum: both take the same step", rotation=90, fontsize=SMALL,
                color=BLUE, ha="right", va="center")  # fmt: skip
    return figure


def draw_gpus(script: ModuleType) -> plt.Figure:
    """Two processes, four games each, as two GPUs would have them."""
    args = script.Args(num_envs=4)
    frames = [play_ale(script, args, 70, args.seed + rank * 4)[0][:, -1] for rank in range(2)]
    return draw_processes(np.array(frames), ["process 0", "process 1"])


def draw_pools(script: ModuleType) -> plt.Figure:
    """Two processes, each with a pool of four games."""
    args = script.Args(num_envs=4, env_threads=1)
    frames = [play_envpool(script, args, 70, args.seed + rank * 4)[:, -1] for rank in range(2)]
    return draw_processes(np.array(frames), ["pool 0", "pool 1"])


def draw_calls(script: ModuleType, rollout: int, later: dict[str, int]) -> plt.Figure:
    """The frames of a rollout and the rest of an iteration: a box is a compiled call.

    rollout: how many of them a rollout takes, 1 or one for each step; later: the same of what
    follows it, of each of which at most eight are drawn.
    """
    envs = script.make_envs(script.Args(num_envs=8, env_threads=1), Path())
    state, obs = envs.reset(1)
    random = np.random.default_rng(0)
    frames = []
    for _ in range(60):
        state, obs, _ = envs.step(state, random.integers(0, 4, 8).astype(np.int32))
        frames.append(np.asarray(obs)[0, -1])
    figure, axes = plt.subplots(figsize=(6.4, 2.6))
    figure.subplots_adjust(0.01, 0.01, 0.99, 0.99)
    axes.axis("off")

    def box(x: float, y: float, width: float, height: float) -> None:
        patch = matplotlib.patches.FancyBboxPatch((x, y), width, height, "round,pad=0.1", zorder=0)
        patch.set(facecolor="#eaf2fa", edgecolor=BLUE)
        axes.add_patch(patch)

    names = ["step 1", "step 2", "step 3", "step 4", "step 128"]
    places = [1.0, 12.5, 24.0, 35.5, 52.5]
    if rollout == 1:
        box(0.6, 11, 62.6, 12.6)
    for place, name, frame in zip(places, names, frames[-5:], strict=True):
        if rollout > 1:
            box(place - 0.4, 11, 10.3, 12.6)
        axes.imshow(frame, cmap="gray", vmin=0, vmax=255, interpolation="none", aspect="auto",
                    extent=(place, place + 9.5, 11.3, 20.8))  # fmt: skip
        axes.text(place + 4.75, 21.6, name, ha="center", fontsize=SMALL)
    axes.text(49, 16, "…", ha="center", fontsize=14)
    axes.set_xlim(0, 64)  # imshow has set others
    axes.set_ylim(0, 26)
    width = 62.6 / len(later)
    for number, (name, count) in enumerate(later.items()):
        left = 0.6 + number * width
        each = (width - 1) / min(count, 8)
        for i in range(min(count, 8)):
            box(left + i * each + 0.15, 3.6, each - 0.45, 4)
        text = f"{name}: {times(count)}"
        axes.text(left + width / 2 - 0.5, 0.6, text, ha="center", fontsize=SMALL)
    axes.text(0.4, 24.3, f"rollout, network and 8 games: {times(rollout)}", fontsize=SMALL)
    return figure


def times(count: int) -> str:
    """How often something is called, in words."""
    return "1 call" if count == 1 else f"{count} calls"


def draw_loops(script: ModuleType) -> plt.Figure:
    """Python calls a compiled function for each step and each minibatch."""
    args = script.Args()
    minibatches = args.update_epochs * args.num_minibatches
    later = {"values": 1, "advantages": args.num_steps, "update": minibatches}
    return draw_calls(script, args.num_steps, later)


def draw_scan(script: ModuleType) -> plt.Figure:
    """A rollout is one call, and so is an update."""
    return draw_calls(script, 1, {"values": 1, "advantages": 1, "update": 1})


def draw_players(script: ModuleType) -> plt.Figure:
    """The game, and for each player the four frames and the planes that say who it is."""
    envs = script.make_envs(script.Args(num_envs=2), Path())
    obs = play_at_random(envs, envs.reset(seed=1), 90)
    screen = envs.env.envs[0].unwrapped.render()
    figure = new_figure(2.5)
    panels = figure.subplot_mosaic(
        [["game", *(f"0{i}" for i in range(6))], ["game", *(f"1{i}" for i in range(6))]],
        width_ratios=[2.1, 1, 1, 1, 1, 1, 1],
    )
    show_image(panels["game"], screen, "the game")
    titles = ["3 steps ago", "2", "1", "now", "I am the\nfirst", "I am the\nsecond"]
    for player in range(2):
        for plane in range(6):
            image = obs[player, plane] * (1 if plane < 4 else 255)
            title = titles[plane] if player == 0 else ""
            show_image(panels[f"{player}{plane}"], image, title)
        name = f"player {player + 1}"
        panels[f"{player}0"].set_ylabel(name, fontsize=SMALL)
    return figure


# ------ other pictures and grids ------


def draw_levels(script: ModuleType) -> plt.Figure:
    """What is seen of a game, and that levels of one game differ."""

    def look(game: str, level: int, steps: int) -> Array:
        args = script.Args(env_id=game, num_envs=1, num_levels=1, start_level=level, env_threads=1)
        envs = script.make_envs(args, Path())
        return np.array(play_at_random(envs, envs.reset(1), steps)[0])

    figure = new_figure(2.9)
    panels = figure.subplot_mosaic("abcd;aefg", width_ratios=[2.1, 1, 1, 1])
    show_image(panels["a"], look("starpilot", 4, 100), "all that the agent sees: 64 × 64 pixels")
    for names, game in (("bcd", "climber"), ("efg", "heist")):
        for level, name in enumerate(names, start=1):
            show_image(panels[name], look(game, level, 0), f"{game}, level {level}")
    return figure


def draw_channels(script: ModuleType) -> plt.Figure:
    """Two games of MinAtar: a plane of cells for each kind of thing."""
    import jax

    things = {
        "Breakout-MinAtar": ["paddle", "ball", "where it was", "bricks"],
        "SpaceInvaders-MinAtar": [
            "cannon", "aliens", "go left", "go right", "own shots", "their shots",
        ],
    }  # fmt: skip
    figure = new_figure(2.6)
    panels = figure.subplots(2, 7, width_ratios=[1.25, 1, 1, 1, 1, 1, 1])
    palette = plt.get_cmap("tab10")(range(10), bytes=True)[:, :3]
    for row, (env_id, names) in zip(panels, things.items(), strict=True):
        envs = script.make_envs(script.Args(env_id=env_id, num_envs=1, device="cpu"), Path())
        state, obs = envs.reset(jax.random.key(1))
        for t in range(3):
            action = jax.random.randint(jax.random.key(t), (1,), 0, envs.single_action_space.n)
            state, obs, _ = envs.step(state, action, jax.random.split(jax.random.key(t), 1))
        planes = np.asarray(obs[0]) > 0
        image = np.full((10, 10, 3), 255, np.uint8)
        for kind in reversed(range(len(names))):  # what moves is drawn last
            image[planes[..., kind]] = palette[kind]
        show_image(row[0], image, env_id.partition("-")[0])
        for kind, axes in enumerate(row[1:]):
            if kind < len(names):
                show_cells(axes, planes[..., kind], names[kind])
            else:
                axes.axis("off")
    return figure


# What the 27 planes of Gym-µRTS say about a cell, and the eight parts of an order with their names.
PLANES = {
    "hit points": ["0", "1", "2", "3", "4+"],
    "resources": ["0", "1", "2", "3", "4+"],
    "owner": ["none", "I", "other"],
    "what it is": ["none", "mine", "base", "barracks", "worker", "light", "heavy", "ranged"],
    "what it does": ["none", "moves", "harvests", "returns", "produces", "attacks"],
}
ORDER = ["the unit's cell", "what it does", "move to", "harvest from", "return to", "produce at",
         "produce what", "attack cell"]  # fmt: skip


def show_map(axes: plt.Axes, obs: Array) -> None:
    """The map of Gym-µRTS, drawn from its planes: who stands where."""
    kinds = obs[..., 13:21].argmax(-1)
    owners = obs[..., 10:13].argmax(-1)
    size = len(obs)
    for y in range(size):
        for x in range(size):
            color = [LIGHT, PALE_BLUE, "#e8a2ac"][owners[y, x]]
            axes.add_patch(plt.Rectangle((x, y), 0.94, 0.94, facecolor=color))
            name = PLANES["what it is"][kinds[y, x]]
            text = "" if name == "none" else name
            axes.text(x + 0.47, y + 0.47, text, ha="center", va="center", fontsize=SMALL - 1)
    axes.set_xlim(0, size)
    axes.set_ylim(size, 0)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title("the game; own units blue", fontsize=SMALL)


def draw_planes(script: ModuleType) -> plt.Figure:
    """The map, its 27 planes, and how many choices each part of an order has."""
    envs = script.make_envs(script.Args(num_envs=1), Path())
    obs = envs.reset(seed=1)[0][0]
    figure = new_figure(4.2)
    halves: Any = figure.subfigures(1, 2, width_ratios=[1, 2.1])
    left, right = halves
    game, order = left.subplots(2, 1, height_ratios=[1, 1])
    show_map(game, obs)
    order.axis("off")
    order.set_title("an order: 8 choices at a time", fontsize=SMALL)
    for line, (name, choices) in enumerate(zip(ORDER, envs.single_action_space.nvec, strict=True)):
        order.text(0.02, 0.92 - line / 8, name, fontsize=SMALL)
        order.text(0.98, 0.92 - line / 8, f"1 of {choices}", fontsize=SMALL, ha="right")
    panels = right.subplots(5, 8)
    plane = 0
    for row, (topic, names) in zip(panels, PLANES.items(), strict=True):
        for axes, name in zip(row, names, strict=False):
            show_cells(axes, obs[..., plane], name)
            plane += 1
        for axes in row[len(names) :]:
            axes.axis("off")
        row[0].set_ylabel(topic, fontsize=SMALL - 1)
    right.suptitle("what the agent sees: 27 planes of 4 × 4 cells", fontsize=SMALL)
    return figure


def draw_mask(script: ModuleType) -> plt.Figure:
    """The map, and which of the choices of each part of an order are valid there."""
    envs = script.make_envs(script.Args(num_envs=1), Path())
    obs, info = envs.reset(seed=1)
    mask = info["action_mask"][0]
    nvec = envs.single_action_space.nvec
    figure = new_figure(2.4)
    game, choices = figure.subplots(1, 2, width_ratios=[1.2, 2.6])
    show_map(game, obs[0])
    for line, part in enumerate(np.split(mask, nvec.cumsum()[:-1])):
        for place, valid in enumerate(part):
            color = BLUE if valid else LIGHT
            choices.add_patch(plt.Rectangle((place, line), 0.86, 0.8, facecolor=color))
    choices.set_xlim(0, nvec.max())
    choices.set_ylim(len(nvec), 0)
    choices.set_yticks(np.arange(len(nvec)) + 0.4, ORDER, fontsize=SMALL)
    choices.set_xticks([])
    choices.tick_params(length=0)
    choices.spines[:].set_visible(False)
    title = f"{mask.sum()} of {len(mask)} choices are valid (blue)"
    choices.set_title(title, fontsize=SMALL)
    return figure


DRAW: dict[str, Callable[[ModuleType], plt.Figure]] = {
    "ppo": draw_classic,
    "ppo_continuous_action": draw_continuous,
    "ppo_multidiscrete": draw_planes,
    "ppo_multidiscrete_mask": draw_mask,
    "ppo_atari": draw_frames,
    "ppo_atari_lstm": draw_memory,
    "ppo_atari_multigpu": draw_gpus,
    "ppo_atari_envpool": draw_pool,
    "ppo_atari_envpool_multigpu": draw_pools,
    "ppo_procgen": draw_levels,
    "ppo_pettingzoo_ma_atari": draw_players,
    "ppo_atari_envpool_xla_jax": draw_loops,
    "ppo_atari_envpool_xla_jax_scan": draw_scan,
    "ppo_gymnax": draw_channels,
    "ppo_continuous_action_mjx": draw_robots,
}
ELSEWHERE = ("ppo_procgen", "ppo_multidiscrete", "ppo_multidiscrete_mask")  # own packages


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = [name for name in DRAW if name not in ELSEWHERE]
    parser.add_argument("scripts", nargs="*", default=usual, metavar="script", help="without .py")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the figures")
    args = parser.parse_args(argv)
    for name in args.scripts:
        if name not in DRAW:
            print(f"error: no figure of {name}; there are {', '.join(DRAW)}", file=sys.stderr)
            return 2
    plt.rcParams.update(LOOK)
    for name in args.scripts:
        figure = DRAW[name](load(name))
        path = args.out / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
