"""Two sides by task: against statsmodels, and what must hold for any rewards."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import StatisticsError
from proctor.report.statistics.paired import EXACT, MCNEMAR, compare_paired
from tests.examples import examples
from tests.lazy_imports import LazyModule

STATSMODELS = LazyModule("statsmodels.stats.contingency_tables")

sides = st.dictionaries(
    st.sampled_from("abcdefghij"),
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=3),
)


@pytest.mark.parametrize("table", [(10, 5, 1, 9), (3, 0, 0, 4), (0, 12, 2, 0), (5, 7, 7, 5)])
def test_statsmodels_finds_the_same_by_mcnemar(table: tuple[int, int, int, int]) -> None:
    both, wins, losses, neither = table
    kinds = [(1, 1)] * both + [(1, 0)] * wins + [(0, 1)] * losses + [(0, 0)] * neither
    found = compare_paired(
        {str(i): [a] for i, (a, _) in enumerate(kinds)},
        {str(i): [b] for i, (_, b) in enumerate(kinds)},
    )
    assert found.method == MCNEMAR
    assert (found.wins, found.ties, found.losses) == (wins, both + neither, losses)
    expected = STATSMODELS.mcnemar(
        numpy.array([[both, wins], [losses, neither]]), exact=True
    ).pvalue
    assert found.p_value == pytest.approx(expected)


def test_several_attempts_are_compared_by_their_means() -> None:
    a = {"x": [1.0, 0.0], "y": [1.0, 1.0], "z": [0.3]}
    b = {"z": [0.1, 0.5], "y": [0.0], "x": [0.5]}
    found = compare_paired(a, b)
    assert [(each.task, each.difference) for each in found.tasks] == [
        ("x", 0.0), ("y", 1.0), ("z", 0.0),
    ]  # fmt: skip
    assert (found.wins, found.ties, found.losses) == (1, 2, 0)
    assert found.difference == pytest.approx(1 / 3)
    assert (found.p_value, found.method) == (1.0, EXACT)


def test_only_tasks_scored_on_both_sides_count_and_the_others_are_named() -> None:
    found = compare_paired({"x": [1], "y": [1], "w": []}, {"x": [0], "z": [1], "y": []})
    assert (found.n_tasks, found.difference, found.interval) == (1, 1.0, None)
    assert (found.only_a, found.only_b) == (["y"], ["z"])


def test_nothing_in_common_is_no_comparison() -> None:
    found = compare_paired({"x": [1]}, {"y": [1]})
    assert (found.n_tasks, found.difference, found.p_value, found.method) == (0, None, None, None)


@given(sides, sides)
@settings(max_examples=examples(60))
def test_turning_the_sides_round_turns_the_sign_round(
    a: dict[str, list[float]], b: dict[str, list[float]]
) -> None:
    one, other = compare_paired(a, b), compare_paired(b, a)
    assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)
    assert one.wins + one.ties + one.losses == one.n_tasks == len(one.tasks)
    assert one.p_value == other.p_value
    assert one.p_value is None or 0 < one.p_value <= 1
    assert one.difference == (None if other.difference is None else -other.difference)
    assert (one.only_a, one.only_b) == (other.only_b, other.only_a)


@given(sides, sides)
@settings(max_examples=examples(30))
def test_the_order_of_tasks_and_attempts_does_not_matter(
    a: dict[str, list[float]], b: dict[str, list[float]]
) -> None:
    turned = {task: values[::-1] for task, values in reversed(a.items())}
    one, other = compare_paired(a, b), compare_paired(turned, b)
    assert (one.difference, one.interval, one.p_value) == (
        other.difference, other.interval, other.p_value,
    )  # fmt: skip


def test_a_reward_that_is_not_finite_is_refused() -> None:
    with pytest.raises(StatisticsError, match="task x: a reward is not finite"):
        compare_paired({"x": [float("nan")]}, {"x": [1.0]})
