"""How far apart groups of runs are: Welch's intervals and tests, and Holm's correction.

Part of tune.py, ablation.py, compare.py and suite.py, and of tools/ablations.py.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

ALPHA = 0.05  # probability that chance alone makes any difference look real


class Difference(NamedTuple):
    """Of two means, and its 95 % interval: NaN where there is none."""

    value: float
    low: float
    high: float


class WeightedSum(NamedTuple):
    """A weighted sum of means, its standard error and Satterthwaite's degrees of freedom.

    The last two are NaN where runs do not vary or a sample has one run: nothing is known of chance
    then.
    """

    value: float
    error: float
    df: float

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval."""
        half = self.error * float(stats.t.ppf(0.975, self.df))
        return self.value - half, self.value + half

    @property
    def p_value(self) -> float:
        """Of the two-sided t test whose interval this is, against a sum of 0."""
        return float(2 * stats.t.sf(abs(self.value) / self.error, self.df))


def variance(sample: np.ndarray) -> float:
    """Of (runs,) scores; NaN of a single one.

    Of equal scores it is 0, and not what rounding leaves of it: the mean of three times 0.1 is not
    0.1.
    """
    if len(sample) < 2:
        return math.nan
    return 0.0 if np.ptp(sample) == 0 else float(sample.var(ddof=1))


def degrees_of_freedom(variances: np.ndarray, counts: np.ndarray) -> float:
    """Satterthwaite's approximation for a sum of means of samples, (samples,) each.

    With two samples it is that of Welch's test.
    """
    shares = variances / counts
    return float(shares.sum() ** 2 / (shares**2 / (counts - 1)).sum())


def weighted_sum(samples: Sequence[np.ndarray], weights: Sequence[float]) -> WeightedSum:
    """Weighted sum of the means of independent samples, each (runs,), with their own variances.

    With the weights 1 and -1 its interval and test are Welch's.
    """
    value = sum(weight * sample.mean() for sample, weight in zip(samples, weights, strict=True))
    variances = np.array([variance(sample) for sample in samples]) * np.square(weights)
    counts = np.array([len(sample) for sample in samples])
    if not variances.sum() > 0:
        return WeightedSum(float(value), math.nan, math.nan)
    error = math.sqrt((variances / counts).sum())
    return WeightedSum(float(value), error, degrees_of_freedom(variances, counts))


def both_alike(scores: np.ndarray, baseline: np.ndarray) -> bool:
    """Whether there are several runs on both sides, (runs,) each, and all have one score."""
    together = np.concatenate([scores, baseline])
    return min(len(scores), len(baseline)) > 1 and np.ptp(together) == 0


def welch(scores: np.ndarray, baseline: np.ndarray) -> Difference:
    """How much higher the mean of the scores is, (runs,) and (runs of the baseline,).

    Welch's t interval: the groups are independent and have variances of their own. There is none of
    a single score, nor of two groups that differ and do not vary: they tell nothing about chance.
    """
    if both_alike(scores, baseline):
        return Difference(0.0, 0.0, 0.0)
    found = weighted_sum([scores, baseline], [1, -1])
    return Difference(found.value, *found.interval)


def p_value(scores: np.ndarray, baseline: np.ndarray) -> float:
    """Of Welch's test of (runs,) and (runs of the baseline,), whose interval is that of `welch`.

    NaN where there is none; 1 of scores that are all the same.
    """
    if both_alike(scores, baseline):
        return 1.0
    if not len(scores):
        return math.nan
    return weighted_sum([scores, baseline], [1, -1]).p_value


def beyond_chance(p_values: Sequence[float]) -> list[int]:
    """Indices of the p-values that Holm's step-down correction rejects, the smallest first.

    One that is NaN belongs to a difference that was not tested and does not count. See Holm (1979),
    A simple sequentially rejective multiple test procedure.
    """
    tested = [index for index, p in enumerate(p_values) if not math.isnan(p)]
    tested.sort(key=lambda index: p_values[index])
    for rank, index in enumerate(tested):
        if p_values[index] > ALPHA / (len(tested) - rank):
            return tested[:rank]
    return tested
