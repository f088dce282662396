"""Student's interval over tasks against statsmodels' cluster-robust one."""

import random

import numpy
import pytest

from proctor.errors import StatisticsError
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.student import cluster_student
from tests.lazy_imports import LazyModule

STATSMODELS = LazyModule("statsmodels.regression.linear_model")


@pytest.mark.parametrize("n", [2, 3, 10, 40])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_statsmodels_finds_the_same_with_uneven_clusters(n: int, confidence: float) -> None:
    draw = random.Random(n)
    clusters = [[draw.gauss(i % 3) for _ in range(draw.randint(1, 5))] for i in range(n)]
    values = numpy.array([value for cluster in clusters for value in cluster])
    groups = numpy.repeat(numpy.arange(n), [len(cluster) for cluster in clusters])
    fitted = STATSMODELS.OLS(values, numpy.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": groups}, use_t=True
    )
    found = cluster_student(clusters, confidence=confidence)
    assert found is not None
    (expected,) = fitted.conf_int(alpha=1 - confidence)
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_over_few_tasks_it_is_wider_than_the_bootstrap() -> None:
    clusters = [[0.0], [1.0], [1.0], [0.0], [1.0]]
    wide, narrow = cluster_student(clusters), cluster_bootstrap(clusters)
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low > narrow.high - narrow.low


@pytest.mark.parametrize("clusters", [[], [[1.0, 0.0]], [[0.5], [0.0, 1.0]], [[1.0], []]])
def test_where_nothing_can_be_said_there_is_no_interval(clusters: list[list[float]]) -> None:
    assert cluster_student(clusters) is None


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(StatisticsError, match="expected finite numbers"):
        cluster_student([[float("inf")], [1.0]])
