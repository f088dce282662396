"""The interval of a mean over few tasks, from Student's t: needs scipy (`proctor[stats]`).

The variance is the cluster-robust one, tasks as clusters, with one degree of freedom less than
there are tasks. It is wider than the bootstrap's where tasks are few, which is where that one is
too narrow; it knows nothing of the range of rewards and may leave it.
"""

import math
from collections.abc import Sequence

from scipy.stats import t as student

from proctor.errors import StatisticsError
from proctor.report.statistics.intervals import CONFIDENCE, Interval, check_confidence


def cluster_student(
    clusters: Sequence[Sequence[float]], *, confidence: float = CONFIDENCE
) -> Interval | None:
    """The interval of the mean of all values; None below 2 clusters, or where all are alike.

    Raises:
        StatisticsError: a value is not finite, or no confidence.
    """
    check_confidence(confidence)
    filled = [cluster for cluster in clusters if cluster]
    n_values, total = sum(map(len, filled)), math.fsum(map(math.fsum, filled))
    if not math.isfinite(total):
        raise StatisticsError(f"a value is {total!r}; expected finite numbers")
    means = {math.fsum(cluster) / len(cluster) for cluster in filled}
    if len(means) < 2:
        return None
    mean, n = total / n_values, len(filled)
    squares = math.fsum((math.fsum(cluster) - mean * len(cluster)) ** 2 for cluster in filled)
    error = math.sqrt(n / (n - 1) * squares) / n_values
    half = float(student.ppf(0.5 + confidence / 2, n - 1)) * error
    return Interval(mean - half, mean + half)
