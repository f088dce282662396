"""The interval of a mean by a bootstrap that resamples whole tasks: attempts at one task are alike.

The percentile bootstrap over clusters. It is too narrow for few tasks, and shows nothing if all of
them have the same score.
"""

import math
from collections.abc import Sequence

from proctor.errors import StatisticsError
from proctor.report.statistics.intervals import CONFIDENCE, Interval, check_confidence
from proctor.report.statistics.resampling import resample, scale
from proctor.report.statistics.sums import finite_sum

REPLICATES = 2000
SEED = 1
FEW_TASKS = 20
"""Below this number of tasks the interval is too narrow: docs/statistics.md shows by how much."""


def cluster_bootstrap(
    clusters: Sequence[Sequence[float]],
    *,
    replicates: int = REPLICATES,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """The interval of the mean of all values, resampling whole clusters.

    Raises:
        StatisticsError: a value is not finite, there are no replicates, or no confidence.
    """
    check_confidence(confidence)
    if replicates < 1:
        raise StatisticsError(f"{replicates} replicates; expected 1 or more")
    totals = sorted((finite_sum(cluster), len(cluster)) for cluster in clusters if cluster)
    if len(totals) < 2:
        return None
    sizes = [size for _, size in totals]
    means = [total / size for total, size in totals]
    least, greatest = min(means), max(means)
    if least == greatest:
        return None
    above = [max(total - least * size, 0.0) for total, size in totals]
    finite_sum(above)  # the difference of extreme floats may overflow
    ends = _find_ends(above, sizes, replicates, seed, confidence)
    # Rounding must not move an end beyond the values themselves.
    low, high = (min(max(least + end, least), greatest) for end in ends)
    return Interval(low, high)


def _find_ends(
    above: Sequence[float], sizes: Sequence[int], replicates: int, seed: int, confidence: float
) -> tuple[float, float]:
    """The two percentiles of the resampled means."""
    n = len(above)
    weights, exponent = scale(above, n)
    unit = math.ldexp(1.0, -exponent)
    tail = (1 - confidence) / 2
    if min(sizes) == max(sizes):
        (sums,) = resample([weights], n, replicates, seed)
        sums.sort()
        divisor = n * sizes[0]
        low, high = (percentile(sums, share) / divisor * unit for share in (tail, 1 - tail))
        return low, high
    sums, counts = resample([weights, sizes], n, replicates, seed)
    means = sorted(total / count * unit for total, count in zip(sums, counts, strict=True))
    return percentile(means, tail), percentile(means, 1 - tail)


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies, interpolated between neighbours."""
    last = len(ascending) - 1
    before = min(int(share * last), max(last - 1, 0))
    step = share * last - before
    return ascending[before] * (1 - step) + ascending[min(before + 1, last)] * step
