"""How far apart groups of runs are: Welch's intervals and tests, and Holm's correction.

And how tables write large numbers. Part of the programs that compare runs, and of tools/.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

ALPHA = 0.05  # probability that chance alone makes any difference look real


class Estimate(NamedTuple):
    """A number, its 95 % interval and the p-value of a test against 0; NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan


def variance(sample: np.ndarray) -> float:
    """Of (runs,) scores; NaN of a single one.

    Of equal scores it is 0, and not what rounding leaves of it: the mean of three times 0.1 is not
    0.1.
    """
    if len(sample) < 2:
        return math.nan
    return 0.0 if np.ptp(sample) == 0 else float(sample.var(ddof=1))


def weighted_sum(samples: Sequence[np.ndarray], weights: Sequence[float]) -> Estimate:
    """Weighted sum of the means of independent samples, each (runs,), with their own variances.

    By a t test with Satterthwaite's degrees of freedom; with the weights 1 and -1 it is Welch's.
    There is no interval if a sample has one run or none varies: nothing is known of chance then.
    """
    value = sum(weight * sample.mean() for sample, weight in zip(samples, weights, strict=True))
    variances = np.array([variance(sample) for sample in samples]) * np.square(weights)
    if not variances.sum() > 0:
        return Estimate(float(value))
    counts = np.array([len(sample) for sample in samples])
    shares = variances / counts
    error = math.sqrt(shares.sum())
    df = shares.sum() ** 2 / (shares**2 / (counts - 1)).sum()
    half = error * float(stats.t.ppf(0.975, df))
    p = float(2 * stats.t.sf(abs(value) / error, df))
    return Estimate(float(value), value - half, value + half, p)


def welch(scores: np.ndarray, baseline: np.ndarray) -> Estimate:
    """How much higher the mean of the scores is, (runs,) and (runs of the baseline,).

    0, and certain, of several runs on both sides that all have one score.
    """
    if min(len(scores), len(baseline)) > 1 and np.ptp([*scores, *baseline]) == 0:
        return Estimate(0.0, 0.0, 0.0, 1.0)
    return weighted_sum([scores, baseline], [1, -1])


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


def short_number(x: float) -> str:
    """500000 -> 500k, 1000000 -> 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"
