"""Costs that are not known are not 0; a point that nothing beats is in the Pareto set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.report.statistics.efficiency import efficiency_of, pareto
from tests.report.statistics.attempts import attempt

amounts = st.none() | st.integers(0, 4).map(float)
points = st.lists(st.tuples(amounts, amounts), max_size=12)


def test_a_success_carries_the_cost_of_the_failures() -> None:
    found = efficiency_of(
        [
            attempt(reward=1.0, cost_usd=1.0, tokens_in=10, tokens_out=5, seconds=2.0),
            attempt(reward=0.0, cost_usd=2.0, tokens_in=20, tokens_out=5, seconds=2.0),
            attempt(reward=None, cost_usd=3.0, tokens_in=0, tokens_out=0, seconds=2.0),
        ]
    )
    assert (found.n_trials, found.n_successes) == (3, 1)
    assert found.cost_usd.per_success == 6.0
    assert found.tokens.per_success == 40
    assert found.seconds.total == 6.0


def test_one_unknown_cost_makes_the_sum_unknown_and_is_counted() -> None:
    found = efficiency_of([attempt(reward=1.0, cost_usd=1.0), attempt(reward=1.0)]).cost_usd
    assert (found.total, found.per_success) == (None, None)
    assert (found.n_known, found.n_unknown, found.known) == (1, 1, 1.0)


def test_tokens_are_unknown_where_half_of_them_are() -> None:
    found = efficiency_of([attempt(reward=1.0, tokens_in=10)]).tokens
    assert (found.total, found.n_unknown) == (None, 1)


def test_without_a_success_there_is_no_cost_of_one() -> None:
    found = efficiency_of([attempt(reward=0.0, cost_usd=1.0)]).cost_usd
    assert (found.total, found.per_success) == (1.0, None)
    assert efficiency_of([]).cost_usd.total is None


@pytest.mark.parametrize(("mark", "successes"), [(1.0, 1), (0.5, 2), (0.0, 3)])
def test_what_is_a_success_is_the_pass_mark(mark: float, successes: int) -> None:
    listed = [attempt(reward=reward) for reward in (0.0, 0.5, 1.0, None)]
    assert efficiency_of(listed, mark).n_successes == successes


@given(points)
def test_the_set_is_what_no_other_point_beats(
    given_points: list[tuple[float | None, float | None]],
) -> None:
    known = [
        (place, cost, score)
        for place, (cost, score) in enumerate(given_points)
        if cost is not None and score is not None
    ]
    expected = [
        place
        for place, cost, score in known
        if not any(c <= cost and s >= score and (c, s) != (cost, score) for _, c, s in known)
    ]
    assert pareto(given_points) == expected


def test_points_that_are_alike_are_all_in() -> None:
    assert pareto([(1, 0.5), (2, 0.4), (1, 0.5), (3, 0.9), (None, 1.0), (0.5, None)]) == [0, 2, 3]
