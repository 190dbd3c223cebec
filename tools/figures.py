# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["matplotlib>=3.9", "numpy>=2"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Draws the figures of docs/read-ppo.md.

    uv run tools/figures.py                writes clip.svg, gae.svg and rollout.svg
    uv run tools/figures.py --out /tmp     elsewhere than into docs/reading

Exit code: 0.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

OUT = Path(__file__).resolve().parents[1] / "docs" / "reading"
BLUE, RED, GREY, LIGHT = "#1f6fb4", "#d1495b", "#6b7280", "#e5e7eb"
CLIP_COEF = 0.2
GAMMA = 0.99
STEPS = 8  # of the rollout that is shown
# White also where the page is dark; fixed ids, so that the same figure is the same file.
LOOK: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": "#9ca3af",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.facecolor": "white",
    "svg.hashsalt": "reading",
}


def clipped_objective(ratio: np.ndarray, advantage: float) -> np.ndarray:
    """Equation 7 of the PPO paper for a row: what an update gains by that ratio."""
    clipped_ratio = np.clip(ratio, 1 - CLIP_COEF, 1 + CLIP_COEF)
    return np.minimum(ratio * advantage, clipped_ratio * advantage)


def draw_clip() -> plt.Figure:
    """The gain of a row over its ratio, for a good action and for a bad one."""
    figure, panels = plt.subplots(1, 2, figsize=(6.4, 2.5), layout="constrained")
    ratio = np.linspace(0.4, 1.6, 241)
    for axes, advantage, color in zip(panels, (1.0, -1.0), (BLUE, RED), strict=True):
        axes.plot(ratio, ratio * advantage, color=GREY, linestyle=":", label="not clipped")
        axes.plot(ratio, clipped_objective(ratio, advantage), color=color, linewidth=2.2)
        axes.plot([1], [advantage], "o", color=color)
        axes.set_xticks([1 - CLIP_COEF, 1, 1 + CLIP_COEF], ["1 − ε", "1", "1 + ε"])
        axes.grid(axis="x", color=LIGHT)
        axes.set_xlabel("ratio")
        axes.legend(frameon=False, loc="upper left" if advantage > 0 else "upper right")
    panels[0].set_ylabel("gain")
    panels[0].set_title("good action, advantage 1", loc="left")
    panels[1].set_title("bad action, advantage −1", loc="left")
    panels[0].set_yticks([0, 1])
    panels[1].set_yticks([-1, 0])
    panels[0].set_ylim(0.3, 1.7)
    panels[1].set_ylim(-1.7, -0.3)
    return figure


def draw_gae() -> plt.Figure:
    """How much the one-step error counts that comes so many steps later."""
    figure, axes = plt.subplots(figsize=(6.4, 2.5), layout="constrained")
    steps = np.arange(61)
    # Each with the place of its label.
    shown = ((1.0, GREY, (38, 0.76)), (0.95, BLUE, (17, 0.42)), (0.8, RED, (7, 0.27)))
    for gae_lambda, color, place in shown:
        axes.plot(steps, (GAMMA * gae_lambda) ** steps, color=color, linewidth=2.2)
        axes.annotate(f"λ = {gae_lambda:g}", place, color=color)
    axes.plot([0], [1], "o", color="black", clip_on=False)
    axes.annotate("λ = 0: this one alone", (1.2, 1.02))
    axes.set_ylim(0, 1.12)
    axes.set_xlim(0, 60)
    axes.set_xlabel("steps later")
    axes.set_ylabel("weight of the error")
    axes.grid(color=LIGHT)
    return figure


def draw_rollout() -> plt.Figure:
    """Rows of two environments: two ends of episodes, and the reset steps that follow."""
    ends = {(0, 2): "terminated", (1, 5): "truncated"}
    figure, axes = plt.subplots(figsize=(6.4, 1.9), layout="constrained")
    for i in range(2):
        for t in range(STEPS):
            end = ends.get((i, t))
            reset = (i, t - 1) in ends
            face = "white" if reset else ("#f6d5d9" if end else "#d5e5f3")
            edge = GREY if reset else "white"
            style = "--" if reset else "-"
            box = plt.Rectangle((t, -i), 0.94, 0.8, facecolor=face, edgecolor=edge, linestyle=style)
            axes.add_patch(box)
            text = "reset" if reset else (end or "")
            axes.text(t + 0.47, 0.52 - i, text, ha="center", va="center", fontsize=7.2)
            axes.text(t + 0.47, 0.2 - i, f"valid {int(not reset)}", ha="center", fontsize=7.2)
    axes.set_xticks(np.arange(STEPS) + 0.47, [f"t = {t}" for t in range(STEPS)])
    axes.set_yticks([0.4, -0.6], ["environment 0", "environment 1"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlim(0, STEPS)
    axes.set_ylim(-1.1, 0.9)
    return figure


FIGURES = {"clip": draw_clip, "gae": draw_gae, "rollout": draw_rollout}


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the figures")
    args = parser.parse_args(argv)
    plt.rcParams.update(LOOK)
    for name, draw in FIGURES.items():
        path = args.out / f"{name}.svg"
        figure = draw()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
