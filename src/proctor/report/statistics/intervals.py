"""The interval of a share: how far a pass rate of few trials can be trusted.

Wilson's score interval, without continuity correction. It takes the trials for independent, which
attempts at one task are not: `bootstrap` draws whole tasks.
"""

from math import sqrt
from statistics import NormalDist

import msgspec

from proctor.errors import StatisticsError

CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True, gc=False):
    """Where a number lies with the confidence that was asked for."""

    low: float
    high: float


def check_confidence(confidence: float) -> None:
    """See that a confidence is a share.

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
    # The ends are 0 and 1 exactly where every trial went one way; rounding would miss them.
    low = 0.0 if successes == 0 else max(middle - half, 0.0)
    high = 1.0 if successes == n else min(middle + half, 1.0)
    return Interval(low, high)
