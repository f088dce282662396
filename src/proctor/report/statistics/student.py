"""The interval of a mean over few tasks, by Student's t: needs scipy (`proctor[stats]`).

Uses the cluster-robust variance with tasks as clusters, and one degree of freedom less than there
are tasks. For few tasks it is wider than the bootstrap's interval, which is too narrow then; it
ignores the range of rewards and may exceed it.
"""

import math
from collections.abc import Sequence

# scipy.stats takes three times as long to import, and asks this function.
from scipy.special import stdtrit

from proctor.report.statistics.intervals import CONFIDENCE, Interval, check_confidence, finite_sum


def cluster_student(
    clusters: Sequence[Sequence[float]], *, confidence: float = CONFIDENCE
) -> Interval | None:
    """The interval of the mean of all values; None below 2 clusters, or if all are equal."""
    check_confidence(confidence)
    filled = [cluster for cluster in clusters if cluster]
    totals = [(finite_sum(cluster), len(cluster)) for cluster in filled]
    if len({total / size for total, size in totals}) < 2:
        return None
    n, n_values = len(filled), sum(map(len, filled))
    mean = finite_sum(total for total, _ in totals) / n_values
    rests = [total - mean * size for total, size in totals]
    squares = finite_sum(rest * rest for rest in rests)
    error = math.sqrt(n / (n - 1) * squares) / n_values
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * error
    return Interval(mean - half, mean + half)
