"""The interval of a share, such as a pass rate.

Wilson's score interval, without continuity correction. It assumes independent trials, which
attempts at one task are not: `bootstrap` resamples whole tasks.
"""

import math
from collections.abc import Iterable
from math import sqrt
from statistics import NormalDist

import msgspec

from proctor.errors import StatisticsError

CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True, gc=False):
    """An interval with the requested confidence."""

    low: float
    high: float


def check_confidence(confidence: float) -> None:
    """Check that a confidence is a share.

    Raises:
        StatisticsError: it is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise StatisticsError(f"confidence is {confidence!r}; expected more than 0, less than 1")


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's interval of successes among n trials; None without trials.

    Raises:
        StatisticsError: more successes than trials, fewer than none, or no confidence.
    """
    check_confidence(confidence)
    if not 0 <= successes <= n:
        raise StatisticsError(f"{successes} successes in {n} trials; expected 0 to {n}")
    if n == 0:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, weight = successes / n, z * z / n
    middle = (share + weight / 2) / (1 + weight)
    half = z * sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    # The ends are exactly 0 or 1 if all trials went one way; rounding would miss that.
    low = 0.0 if successes == 0 else max(middle - half, 0.0)
    high = 1.0 if successes == n else min(middle + half, 1.0)
    return Interval(low, high)


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
