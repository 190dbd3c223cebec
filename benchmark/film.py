# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["moviepy>=2.1", "numpy>=2", "pillow>=10", "tyro>=0.9.20"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""A film of an agent that learns: episodes of one run side by side, from the first to the last.

    uv run ppo/ppo.py --env-id LunarLander-v3 --capture-video
    uv run benchmark/film.py runs/<run> --out learning.gif

Each panel repeats its last picture until the longest one ends. Exit codes: 0 done, 2 bad input.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import tyro
from moviepy import VideoFileClip
from PIL import Image, ImageDraw, ImageFont

EPISODE = re.compile(r"episode-(\d+)\.mp4$")
COLORS = 64  # of the picture: fewer make a smaller file


@dataclass
class Args:
    run: tyro.conf.Positional[Path]  # folder of a run with --capture-video
    out: Path = Path("learning.gif")  # what is written
    episodes: tuple[int, ...] = ()  # of the training, to be shown; four spread evenly if not given
    seconds: float = 8.0  # of each film at most
    fps: int = 12  # pictures a second
    width: int = 240  # pixels of each film


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def training_films(run: Path) -> list[Path]:
    """The films of a run's training, from the first to the last; of a resumed run of all parts."""
    films = [path for path in run.glob("videos/*/*.mp4") if path.parent.name[0].isdigit()]
    return sorted(films, key=lambda path: (path.parent.name, episode_of(path)))


def episode_of(film: Path) -> int:
    """The number of the filmed episode of the first environment."""
    found = EPISODE.search(film.name)
    return int(found[1]) if found else 0


def title_of(film: Path, films: list[Path]) -> str:
    """The episode, from 1 on; of a resumed run with its part, as each part counts from 1."""
    parts = list(dict.fromkeys(each.parent for each in films))
    title = f"episode {episode_of(film) + 1:,}"
    return title if len(parts) == 1 else f"part {parts.index(film.parent) + 1}, {title}"


def chosen(films: list[Path], episodes: tuple[int, ...]) -> list[Path]:
    """The films of these episodes, or four that are spread evenly; fails if one is not there."""
    if not episodes:
        places = np.linspace(0, len(films) - 1, min(4, len(films))).round().astype(int)
        return [films[place] for place in places]
    by_episode = {episode_of(film): film for film in reversed(films)}  # the first, if resumed
    if missing := [episode for episode in episodes if episode not in by_episode]:
        there = " ".join(str(episode) for episode in sorted(by_episode))
        fail(f"--episodes: {missing[0]} was not filmed; of these there are films: {there}")
    return [by_episode[episode] for episode in episodes]


def pictures(film: Path, args: Args) -> list[Image.Image]:
    """The pictures of a film, scaled to --width."""
    with VideoFileClip(str(film), audio=False) as clip:
        height = round(clip.h * args.width / clip.w)
        frames = clip.subclipped(0, min(args.seconds, clip.duration)).iter_frames(fps=args.fps)
        return [Image.fromarray(frame).resize((args.width, height)) for frame in frames]


def side_by_side(columns: list[list[Image.Image]], titles: list[str]) -> list[Image.Image]:
    """One picture a moment, with a title above each column."""
    width, height = columns[0][0].size
    font = ImageFont.load_default(size=width // 16)
    top = width // 9
    moments = []
    for moment in range(max(len(column) for column in columns)):
        whole = Image.new("RGB", (width * len(columns), top + height), "white")
        draw = ImageDraw.Draw(whole)
        for place, (column, title) in enumerate(zip(columns, titles, strict=True)):
            whole.paste(column[min(moment, len(column) - 1)], (place * width, top))
            draw.text((place * width + 8, top // 4), title, "black", font)
        moments.append(whole)
    return moments


def write_gif(moments: list[Image.Image], out: Path, fps: int) -> None:
    """Writes the pictures with the same colours in all, which keeps what stands still small."""
    palette = moments[len(moments) // 2].quantize(COLORS)
    frames = [moment.quantize(palette=palette, dither=Image.Dither.NONE) for moment in moments]
    out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0)


def main() -> int:
    """Parse the command line and write the film; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    if args.out.suffix != ".gif":
        fail(f"--out: {args.out} does not end with .gif")
    films = training_films(args.run)
    if not films:
        fail(f"{args.run} has no films: train with --capture-video")
    shown = chosen(films, args.episodes)
    titles = [title_of(film, films) for film in shown]
    moments = side_by_side([pictures(film, args) for film in shown], titles)
    write_gif(moments, args.out, args.fps)
    print(f"{args.out}: {len(moments)} pictures, {args.out.stat().st_size / 1e3:,.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
