"""The cluster bootstrap against scipy, against its own slow way, and on data of known mean."""

import random
from typing import Any

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proctor.errors import StatisticsError
from proctor.report.statistics.bootstrap import cluster_bootstrap, resample
from proctor.report.statistics.intervals import Interval
from tests.examples import examples
from tests.lazy_imports import LazyModule

SCIPY = LazyModule("scipy.stats")

rewards = st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3)) | st.sampled_from([0, 1.0])
clustered = st.lists(st.lists(rewards, min_size=1, max_size=6), min_size=2, max_size=20)


def drawn_by_scipy(clusters: list[list[float]]) -> tuple[float, float]:
    places = numpy.arange(len(clusters))
    sums = numpy.array([sum(cluster) for cluster in clusters])
    sizes = numpy.array([len(cluster) for cluster in clusters])

    def mean(chosen: Any, axis: int) -> Any:
        return sums[chosen].sum(axis=axis) / sizes[chosen].sum(axis=axis)

    found = SCIPY.bootstrap(
        (places,), mean, n_resamples=20_000, method="percentile", rng=numpy.random.default_rng(7)
    )
    return found.confidence_interval.low, found.confidence_interval.high


@pytest.mark.parametrize("n", [5, 30, 150])
@pytest.mark.parametrize("even", [True, False])
def test_scipy_finds_the_same_ends_up_to_chance(n: int, even: bool) -> None:
    draw = random.Random(n)
    clusters = [
        [draw.random() + draw.random() for _ in range(5 if even else draw.randint(1, 6))]
        for _ in range(n)
    ]
    found = cluster_bootstrap(clusters, replicates=20_000)
    assert found is not None
    width = found.high - found.low
    assert (found.low, found.high) == pytest.approx(drawn_by_scipy(clusters), abs=0.04 * width)


@given(clustered)
@settings(max_examples=examples(40))
def test_the_ends_lie_among_the_values_and_order_does_not_matter(
    clusters: list[list[float]],
) -> None:
    found = cluster_bootstrap(clusters, replicates=50)
    assume(found is not None)
    assert found is not None
    means = [sum(cluster) / len(cluster) for cluster in clusters]
    assert min(means) - 1e-9 <= found.low <= found.high <= max(means) + 1e-9
    turned = [cluster[::-1] for cluster in reversed(clusters)]
    assert cluster_bootstrap(turned, replicates=50) == found


@given(clustered, st.integers(0, 3))
@settings(max_examples=examples(20))
def test_lanes_add_up_what_plain_additions_do(clusters: list[list[float]], seed: int) -> None:
    columns = [
        [round(1000 * (sum(cluster) + 100)) for cluster in clusters],
        [len(cluster) for cluster in clusters],
    ]
    draw, n = random.Random(seed).random, len(clusters)
    chosen = [[int(draw() * n) for _ in range(n)] for _ in range(30)]
    expected = [[sum(column[place] for place in row) for row in chosen] for column in columns]
    assert resample(columns, n, 30, seed) == expected


def test_many_clusters_are_drawn_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = [[float(i % 7 == 0), float(i % 3)] for i in range(40)]
    in_lanes = cluster_bootstrap(clusters)
    monkeypatch.setattr("proctor.report.statistics.bootstrap._MANY", 10)
    assert cluster_bootstrap(clusters) == in_lanes


def test_the_same_numbers_come_out_on_every_machine() -> None:
    clusters = [[(i * 37 % 11) / 10, (i * 17 % 7) / 7] for i in range(25)]
    assert cluster_bootstrap(clusters) == Interval(0.37057142857142855, 0.5411428571428571)
    uneven = [cluster[: 1 + i % 2] for i, cluster in enumerate(clusters)]
    assert cluster_bootstrap(uneven, seed=5) == Interval(0.3717842902711324, 0.5471515444015443)


def test_tasks_are_the_units_not_attempts() -> None:
    # Attempts at one task always agree here, so a hundred of each say no more than one.
    few = [[float(i < 5)] for i in range(10)]
    many = [cluster * 100 for cluster in few]
    assert cluster_bootstrap(many) == cluster_bootstrap(few)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(11)
    held = 0
    for _ in range(200):
        # Each task has a chance of its own; over all tasks their mean is one half.
        chances = [draw.random() for _ in range(40)]
        clusters = [[float(draw.random() < chance) for _ in range(3)] for chance in chances]
        found = cluster_bootstrap(clusters, replicates=400)
        assert found is not None
        held += found.low <= 0.5 <= found.high
    assert 0.90 <= held / 200 <= 0.99


@pytest.mark.parametrize("clusters", [[], [[1.0, 0.0]], [[1.0], []]])
def test_fewer_than_two_clusters_have_no_interval(clusters: list[list[float]]) -> None:
    assert cluster_bootstrap(clusters) is None


def test_clusters_that_are_all_alike_cannot_tell() -> None:
    assert cluster_bootstrap([[0.5, 0.5], [0.5], [0.0, 1.0]]) is None


def test_very_large_and_very_small_values_keep_their_size() -> None:
    large = cluster_bootstrap([[1e300], [2e300], [3e300]])
    small = cluster_bootstrap([[1e-300], [2e-300], [3e-300]])
    assert large is not None
    assert small is not None
    assert 1e300 <= large.low < large.high <= 3e300
    assert 1e-300 <= small.low < small.high <= 3e-300


@pytest.mark.parametrize(
    "cluster", [[float("nan")], [float("inf")], [float("inf"), -float("inf")], [1e308] * 20]
)
def test_values_without_a_finite_sum_are_refused(cluster: list[float]) -> None:
    with pytest.raises(StatisticsError, match="expected finite numbers"):
        cluster_bootstrap([cluster, [1.0]])
    with pytest.raises(StatisticsError, match="expected finite numbers"):
        cluster_bootstrap([[-1e308], [1e308], [1e308]])


def test_no_replicates_are_refused() -> None:
    with pytest.raises(StatisticsError, match="0 replicates"):
        cluster_bootstrap([[0.0], [1.0]], replicates=0)
