"""pass@k and pass^k against going through every choice of k attempts."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import StatisticsError
from proctor.report.statistics.intervals import Interval
from proctor.report.statistics.passk import pass_all, pass_at
from tests.examples import examples

attempts = st.lists(st.booleans(), min_size=1, max_size=8)


@given(attempts, st.integers(1, 8))
def test_each_task_is_the_share_of_all_choices(passed: list[bool], k: int) -> None:
    chosen = list(combinations(passed, k))
    at, everyone = pass_at(k, {"a": passed}), pass_all(k, {"a": passed})
    if not chosen:
        assert (at.value, at.n_tasks, at.too_few) == (None, 0, ["a"])
        return
    assert at.value == pytest.approx(float(Fraction(sum(map(any, chosen)), len(chosen))))
    assert everyone.value == pytest.approx(float(Fraction(sum(map(all, chosen)), len(chosen))))


@given(st.dictionaries(st.sampled_from("abcdef"), attempts, min_size=1), st.integers(1, 4))
@settings(max_examples=examples(50))
def test_both_lie_in_0_to_1_in_their_intervals_and_are_one_at_k_1(
    tasks: dict[str, list[bool]], k: int
) -> None:
    at, everyone = pass_at(k, tasks), pass_all(k, tasks)
    assert at.n_tasks + len(at.too_few) == len(tasks)
    if at.value is None or everyone.value is None:
        return
    assert 0 <= everyone.value <= at.value + 1e-12 <= 1 + 1e-12
    if k == 1:
        assert at.value == pytest.approx(everyone.value)
    for found in (at, everyone):
        assert found.interval is None or found.n_tasks > 1
        if found.interval is not None:
            assert 0 <= found.interval.low <= found.interval.high <= 1


def test_tasks_with_too_few_attempts_are_named_and_left_out() -> None:
    found = pass_at(2, {"a": [True, False], "b": [True], "c": [False, False]})
    assert (found.value, found.n_tasks, found.n_trials) == (0.5, 2, 4)
    assert found.too_few == ["b"]
    assert found.interval == Interval(0.0, 1.0)


def test_k_below_1_is_refused() -> None:
    with pytest.raises(StatisticsError, match="k is 0"):
        pass_at(0, {"a": [True]})
