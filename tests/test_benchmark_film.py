"""The film of an agent that learns: which episodes it shows, and how they stand side by side."""

from pathlib import Path

import film
import numpy as np
import pytest
from helpers.benchmark_runs import run_program
from moviepy import ImageSequenceClip
from PIL import Image


def write_film(path: Path, shade: int, frames: int) -> None:
    """A film of one shade of grey, ten pictures a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = [np.full((40, 64, 3), shade, np.uint8) for _ in range(frames)]
    ImageSequenceClip(pictures, fps=10).write_videofile(str(path), logger=None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three films, the last after it was resumed, and one of the final evaluation."""
    run = tmp_path_factory.mktemp("run")
    write_film(run / "videos/20260101-000000/rl-video-episode-0.mp4", 40, 5)
    write_film(run / "videos/20260101-000000/rl-video-episode-100.mp4", 120, 20)
    write_film(run / "videos/20260102-000000/rl-video-episode-20.mp4", 200, 10)
    write_film(run / "videos/evaluation-20260102-000100/rl-video-episode-0.mp4", 255, 5)
    return run


def test_films_of_the_training_in_their_order(run: Path) -> None:
    films = film.training_films(run)
    assert [film.episode_of(path) for path in films] == [0, 100, 20]
    assert film.chosen(films, ()) == films
    assert film.chosen(films * 4, ())[0] == films[0] and len(film.chosen(films * 4, ())) == 4
    assert film.chosen(films, (100, 0)) == [films[1], films[0]]
    titles = [film.title_of(path, films) for path in films]
    assert titles == ["part 1, episode 1", "part 1, episode 101", "part 2, episode 21"]
    assert film.title_of(films[1], films[:2]) == "episode 101"


def test_of_two_films_with_a_number_the_first_is_chosen(run: Path) -> None:
    films = film.training_films(run)
    again = films[2].with_name("rl-video-episode-100.mp4")
    assert film.chosen([*films, again], (100,)) == [films[1]]


def test_the_film(run: Path, tmp_path: Path) -> None:
    """Two panels; the short film's last picture stays until the long one ends."""
    out = tmp_path / "new" / "learning.gif"
    flags = ["--episodes", "0", "100", "--fps", "10", "--width", "64", "--out", str(out)]
    done = run_program("film.py", str(run), *flags)
    assert done.returncode == 0, done.stderr
    with Image.open(out) as gif:
        assert gif.info["loop"] == 0
        lasts = 0
        for moment in range(gif.n_frames):  # pictures that are the same are one, which lasts longer
            gif.seek(moment)
            lasts += gif.info["duration"]
            picture = np.array(gif.convert("L"), int)
            panels = picture[-30:, 10:50], picture[-30:, 74:118]
            assert [panel.mean() for panel in panels] == pytest.approx([40, 120], abs=8)
        assert picture.shape[1] == 128 and lasts == 2000
    assert "20 pictures" in done.stdout


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "has no films: train with --capture-video"),
        (("--out", "learning.mp4"), "--out: learning.mp4 does not end with .gif"),
        (("--episodes", "7"), "7 was not filmed; of these there are films: 0 20 100"),
    ],
)
def test_bad_input(flags: tuple, told: str, run: Path, tmp_path: Path) -> None:
    done = run_program("film.py", str(run if flags else tmp_path), *flags)
    assert done.returncode == 2 and told in done.stderr
    assert list(tmp_path.iterdir()) == []
