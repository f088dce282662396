"""The interval of a mean by a bootstrap that resamples whole tasks: attempts at one task are alike.

The percentile bootstrap over clusters. It is too narrow for few tasks, and shows nothing if all of
them have the same score.
"""

import math
import struct
from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from random import Random

from proctor.errors import StatisticsError
from proctor.report.statistics.intervals import CONFIDENCE, Interval, check_confidence, finite_sum

REPLICATES = 2000
SEED = 1
FEW_TASKS = 20
"""Below this number of tasks the interval is too narrow: the page of statistics shows how much."""


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


# Sums over clusters drawn with replacement, thousands of replicates at once
#
# Each replicate has a lane of 64 bits in one long integer: adding two such integers adds all
# replicates at once. Integer sums are exact, so that results are equal on every machine; and only
# `random()` of the generator is used, whose sequence Python guarantees for a seed.


_LANE_BYTES = 8
# Bits of a lane that are used: no sum may overflow into the next lane.
_BITS_USED = 62
# Numbers of clusters up to which draws are cached between calls: at most 32 MB for each of the two
# caches.
_FEW, _MANY = 128, 1024


def scale(values: Sequence[float], terms: int) -> tuple[list[int], int]:
    """Non-negative values as integers of 2**-exponent; `terms` of them fit into a lane.

    Integers are kept, with exponent 0. Otherwise each is off by at most half a unit.
    """
    largest = max(values)
    if terms * largest < 1 << _BITS_USED and all(value.is_integer() for value in values):
        return [int(value) for value in values], 0
    _, bits = math.frexp(largest)
    exponent = _BITS_USED - bits - terms.bit_length()
    return [round(math.ldexp(value, exponent)) for value in values], exponent


def _weigh(weights: Sequence[int], lanes: Sequence[int]) -> int:
    """The weighted sum of long integers; equal weights are multiplied once."""
    by_weight: dict[int, int] = defaultdict(int)
    for weight, lane in zip(weights, lanes, strict=True):
        if weight:
            by_weight[weight] += lane
    return sum(weight * lane for weight, lane in by_weight.items())


def _unpack(lanes: int, replicates: int) -> list[int]:
    """The numbers in the lanes of a long integer."""
    return list(
        struct.unpack(f"<{replicates}Q", lanes.to_bytes(_LANE_BYTES * replicates, "little"))
    )


def resample(
    columns: Sequence[Sequence[int]], n_clusters: int, replicates: int, seed: int
) -> list[list[int]]:
    """Sums of each column over n clusters drawn with replacement, one for each replicate.

    A column has a number for each cluster. The draws are the same for all columns, and for all
    calls with the same numbers of clusters and replicates and the same seed.
    """
    if n_clusters <= _MANY:
        count = _count_few if n_clusters <= _FEW else _count_many
        lanes = count(n_clusters, replicates, seed)
        return [_unpack(_weigh(column, lanes), replicates) for column in columns]
    # S311: reproducible numbers for a simulation.
    random = Random(seed).random  # noqa: S311
    sums: list[list[int]] = [[] for _ in columns]
    for _ in range(replicates):
        drawn = [int(random() * n_clusters) for _ in repeat(None, n_clusters)]
        for column, found in zip(columns, sums, strict=True):
            found.append(sum(map(column.__getitem__, drawn)))
    return sums


def _count_draws(n_clusters: int, replicates: int, seed: int) -> tuple[int, ...]:
    """For each cluster, how often it is drawn in each replicate, as lanes."""
    random = Random(seed).random  # noqa: S311 - as above
    counts = [array("Q", bytes(_LANE_BYTES * replicates)) for _ in repeat(None, n_clusters)]
    for replicate in range(replicates):
        for _ in repeat(None, n_clusters):
            counts[int(random() * n_clusters)][replicate] += 1
    return tuple(int.from_bytes(struct.pack(f"<{replicates}Q", *row), "little") for row in counts)


_count_few = lru_cache(maxsize=16)(_count_draws)
_count_many = lru_cache(maxsize=2)(_count_draws)
