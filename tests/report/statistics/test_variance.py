"""Spread within and between tasks against scipy's analysis of variance."""

import random
from statistics import variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.report.statistics.variance import spread_of
from tests.lazy_imports import LazyModule

SCIPY = LazyModule("scipy.stats")

tasks = st.dictionaries(
    st.text(max_size=3), st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=5), max_size=8
)


def test_the_split_is_that_of_an_analysis_of_variance() -> None:
    draw = random.Random(2)
    tasks = {str(i): [i + draw.gauss() for _ in range(6)] for i in range(8)}
    found = spread_of(tasks)
    assert found.within == pytest.approx(sum(map(variance, tasks.values())) / 8)
    assert found.within is not None
    assert found.between is not None
    # F is the mean square between tasks over the one within; with six attempts a task.
    assert (6 * found.between + found.within) / found.within == pytest.approx(
        SCIPY.f_oneway(*tasks.values()).statistic
    )


def test_what_was_put_in_comes_out_with_uneven_attempts() -> None:
    draw = random.Random(3)
    tasks = {}
    for i in range(400):
        middle = draw.gauss(0, 2)
        tasks[str(i)] = [draw.gauss(middle, 1) for _ in range(draw.randint(1, 5))]
    found = spread_of(tasks)
    assert found.within == pytest.approx(1, rel=0.15)
    assert found.between == pytest.approx(4, rel=0.15)


@given(tasks)
def test_flaky_tasks_are_those_whose_attempts_differ(tasks: dict[str, list[float]]) -> None:
    found = spread_of(tasks)
    assert {task.task for task in found.flaky} == {t for t, v in tasks.items() if len(set(v)) > 1}
    assert found.n_tasks == sum(map(bool, tasks.values()))
    assert found.n_trials == sum(map(len, tasks.values()))
    assert found.within is None or found.within >= 0
    assert found.between is None or found.between >= 0


def test_single_attempts_cannot_tell() -> None:
    found = spread_of({"a": [1.0], "b": [0.0]})
    assert (found.within, found.between, found.flaky) == (None, None, [])
    assert [task.variance for task in found.tasks] == [None, None]
