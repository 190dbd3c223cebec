"""How far apart two groups of runs are.

Part of tune.py and ablation_plot.py.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
from scipy import stats


class Difference(NamedTuple):
    """Of two means, and its 95 % interval: NaN where there is none."""

    value: float
    low: float
    high: float


def welch(scores: np.ndarray, baseline: np.ndarray) -> Difference:
    """How much higher the mean of the scores is, (runs,) and (runs of the baseline,).

    Welch's t interval: the groups are independent and have variances of their own. A single score
    gives no interval. Scores that are all alike have no variance: then the difference is exact.
    """
    value = float(scores.mean() - baseline.mean())
    if min(len(scores), len(baseline)) < 2:
        return Difference(value, math.nan, math.nan)
    if np.ptp(scores) == np.ptp(baseline) == 0:
        return Difference(value, value, value)
    with warnings.catch_warnings(action="ignore"):  # of one side alike, as 500 in CartPole often is
        interval = stats.ttest_ind(scores, baseline, equal_var=False).confidence_interval()
    return Difference(value, float(interval.low), float(interval.high))
