"""Sums of values that must be finite."""

import math
from collections.abc import Iterable

from proctor.errors import StatisticsError


def finite_sum(values: Iterable[float]) -> float:
    """The sum, rounded once; the order of the values does not matter.

    Raises:
        StatisticsError: a value is not finite, or the sum too large for a float.
    """
    try:
        total = math.fsum(values)
    except (OverflowError, ValueError):  # too large, or both infinities
        total = math.inf
    if not math.isfinite(total):
        raise StatisticsError("a reward is not finite; expected finite numbers")
    return total
