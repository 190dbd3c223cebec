"""What leaving out a detail of a script does to its scores, as docs/results/ablation_*.csv has it.

Part of ablation.py, which writes those files, and of tools/ablations.py, which makes tables.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Effect:
    """What it does to the score of an environment that a detail is left out.

    Scores are means over the runs, of which each has the mean of its learning curve; low and high
    are the ends of the 95 % interval of the difference. A number that is not known is NaN: the
    difference if some runs have no score, the interval and p of a single run.
    """

    tag: str
    env_id: str
    runs: int  # without the detail
    diverged: int  # of these, ended by a loss that was not finite, and so without a score
    score: float
    baseline_runs: int  # of the script as it is
    baseline: float  # their score
    start: float  # score of the baseline's first episodes, before anything was learned
    difference: float  # score less baseline
    low: float
    high: float
    p: float = math.nan  # of the test whose interval this is
    same: bool = False  # with each seed the score is the baseline's

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def share(self, difference: float) -> float:
        """A difference of scores as a share of what the script as it is learns; NaN if none.

        In this unit environments are comparable.
        """
        gain = self.baseline - self.start
        return difference / gain if gain > 0 else math.nan

    @property
    def lost(self) -> float:
        """The share that is lost (below 0: gained) without the detail; 0 if that may be chance."""
        return -self.share(self.difference) if self.certain else 0.0


def read_effects(path: Path) -> list[Effect]:
    """The effects in a file; none if there is no such file."""
    if not path.exists():
        return []
    table = pd.read_csv(path)
    return [Effect(**row) for row in table.to_dict("records")]


def write_effects(effects: Iterable[Effect], path: Path) -> None:
    """Write the file that `read_effects` reads."""
    pd.DataFrame(effects).to_csv(path, index=False, float_format="%.6g")
