"""When a training has solved its task: read off its TensorBoard files while it writes them.

Part of speed.py.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

WINDOW = 100  # episodes, whose mean return has to reach the score
RETURN = "charts/episodic_return"
EPISODES = "charts/episodes"  # beside a return: how many episodes the point is the mean of


@dataclass(frozen=True)
class Moment:
    """When an episode ended."""

    time: float  # seconds since the epoch
    step: int  # of the environments


class Watch:
    """Follows the event files below a folder, which belong to one run.

    solved: when the mean return of the last WINDOW episodes was first as high as the score, if it
    has been. last_step: the step of the last episode.
    """

    def __init__(self, folder: Path, score: float):
        self.folder = folder
        self.score = score
        self.solved: Moment | None = None
        self.last_step = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.loaders: dict[Path, Any] = {}

    def look(self) -> bool:
        """Reads what has been written since the last look; whether the task is solved by now."""
        for path in sorted(self.folder.rglob("events.out.tfevents.*")):
            if path not in self.loaders:
                self.loaders[path] = EventFileLoader(str(path))
            for event in self.loaders[path].Load():
                numbers = {
                    value.tag: float(tensor_util.make_ndarray(value.tensor))
                    for value in event.summary.value
                    if value.tag in (RETURN, EPISODES)
                }
                if RETURN in numbers:
                    count = int(numbers.get(EPISODES, 1))
                    self.add_point(numbers[RETURN], count, Moment(event.wall_time, event.step))
        return self.solved is not None

    def add_point(self, mean_return: float, count: int, end: Moment) -> None:
        """Takes in one more episode, or several that are logged as their mean."""
        self.last_step = end.step
        self.returns.extend([mean_return] * count)
        enough = len(self.returns) == WINDOW
        if self.solved is None and enough and sum(self.returns) / WINDOW >= self.score:
            self.solved = end
