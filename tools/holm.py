"""Holm's correction: which of many differences are more than chance explains.

Part of ablations.py and of benchmark/comparison.py.
"""

import math
from collections.abc import Sequence

ALPHA = 0.05  # probability that chance alone makes any difference look real


def beyond_chance(p_values: Sequence[float]) -> list[int]:
    """Places of the p-values that Holm's step-down correction rejects, the smallest first.

    One that is NaN belongs to a difference that was not tested and does not count. See Holm (1979),
    A simple sequentially rejective multiple test procedure.
    """
    tested = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    tested.sort(key=lambda place: p_values[place])
    for rank, place in enumerate(tested):
        if p_values[place] > ALPHA / (len(tested) - rank):
            return tested[:rank]
    return tested
