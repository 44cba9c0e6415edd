"""When a measurement may end: the warm-up is cut off, and the interval of the mean is narrow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Student's t for 95 %, two-sided, by degrees of freedom.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09)
_NORMAL = 1.96
FEWEST = 4
"""Means of chunks below which no interval is believed."""


def spread(means: Sequence[float]) -> float:
    """Returns half the width of the 95 % interval of a mean, divided by the mean; infinite for fewer than two values.

    Args:
        means: of chunks of steps, so that they are nearly independent.
    """
    if len(means) < 2:
        return math.inf
    freedom = len(means) - 2
    t = _T[freedom] if freedom < len(_T) else _NORMAL
    return t * statistics.stdev(means) / math.sqrt(len(means)) / statistics.fmean(means)


def is_enough(means: Sequence[float], precision: float) -> bool:
    """Says whether the mean is known to a relative precision."""
    return len(means) >= FEWEST and spread(means) <= precision


def length(step: float, seconds: float = 0.4) -> int:
    """Returns how many steps a chunk has, so that it takes about so many seconds."""
    return max(2, min(200, round(seconds / max(step, 1e-6))))
