"""Sums over clusters drawn with replacement, thousands of replicates at once.

Each replicate has a lane of 64 bits in one long integer: adding two such integers adds all
replicates at once. Integer sums are exact, so that results are equal on every machine; and only
`random()` of the generator is used, whose sequence Python guarantees for a seed.
"""

import math
import struct
from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from random import Random

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
