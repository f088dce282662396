"""Mean, Max, Min and Sum, with harbor's names, types and ties."""

import math
import re

import pytest

from proctor.reward.metric import (
    DEFAULT_METRIC,
    METRICS,
    RewardColumn,
    compute_metric,
    mean,
    operands,
)
from proctor.reward.number import Number, Rewards, same_number

nan = math.nan


def metric_of(name: str, *values: Number | None) -> Number:
    column = RewardColumn(None if value is None else {"reward": value} for value in values)
    (label, result), *others = compute_metric(name, column).items()
    assert label == name
    assert not others
    return result


def test_the_metrics_are_these_and_the_mean_is_the_default() -> None:
    assert list(METRICS) == ["mean", "max", "min", "sum"]
    assert DEFAULT_METRIC == "mean"


CASES: list[tuple[str, list[Number | None], Number]] = [
    ("mean", [1, 0], 0.5),
    ("mean", [1, 1], 1.0),
    ("mean", [0.1, 0.2, 0.3], 0.19999999999999998),
    ("mean", [1, None, None], 1 / 3),
    ("mean", [2**53 + 1, 0], (2**53 + 1) / 2),
    ("mean", [10**400, -(10**400)], 0.0),
    ("mean", [nan, 1], nan),
    ("max", [1, 1.0], 1),
    ("max", [1.0, 1], 1.0),
    ("max", [0, -0.0], 0),
    ("max", [-0.0, 0.0], -0.0),
    ("max", [nan, 1], nan),
    ("max", [1, nan], 1),
    ("max", [-1.5, None], 0),
    ("min", [1, 1.0], 1),
    ("min", [0.0, -0.0], 0.0),
    ("min", [nan, 1], nan),
    ("min", [1, nan], 1),
    ("min", [1, None], 0),
    ("sum", [1, 0, 1], 2),
    ("sum", [0.1] * 10, 1.0),
    ("sum", [-0.0], 0.0),
    ("sum", [None, None], 0),
    ("sum", [], 0),
]


@pytest.mark.parametrize(("name", "values", "result"), CASES)
def test_a_metric_has_harbors_value_and_type(
    name: str, values: list[Number | None], result: Number
) -> None:
    assert same_number(metric_of(name, *values), result)


def test_a_sum_may_have_more_digits_than_python_prints() -> None:
    large = 9 * 10**4299
    assert metric_of("sum", large, large) == 2 * large


def test_a_mean_is_always_a_float() -> None:
    assert type(mean([2, 2])) is float
    assert mean([2, 2]) == 2


EMPTY = [
    ("mean", ZeroDivisionError, "division by zero"),
    ("max", ValueError, "max() iterable argument is empty"),
    ("min", ValueError, "min() iterable argument is empty"),
]


@pytest.mark.parametrize(("name", "error", "message"), EMPTY)
def test_no_trials_have_no_metric_but_the_sum(
    name: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        compute_metric(name, RewardColumn())


def test_a_mean_beyond_a_double_overflows() -> None:
    with pytest.raises(OverflowError, match="integer division result too large for a float"):
        metric_of("mean", 10**400)


@pytest.mark.parametrize("name", METRICS)
def test_one_key_in_the_whole_group_is_named_after_the_metric(name: str) -> None:
    assert list(compute_metric(name, RewardColumn([{"score": 1}, None, {}]))) == [name]


def test_no_key_at_all_counts_as_zeros() -> None:
    assert compute_metric("mean", RewardColumn([None, {}])) == {"mean": 0.0}


TWO_KEYS: list[Rewards | None] = [{"b": 1, "a": 0.5}, None, {"a": 1.5}, {}]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("mean", {"a": 0.5, "b": 0.25}),
        ("max", {"a": 1.5, "b": 1}),
        ("min", {"a": 0, "b": 0}),
        ("sum", {"a": 2.0, "b": 1}),
    ],
)
def test_several_keys_are_named_after_themselves_sorted(name: str, result: Rewards) -> None:
    found = compute_metric(name, RewardColumn(TWO_KEYS))
    assert list(found) == ["a", "b"]
    assert all(same_number(found[key], result[key]) for key in result)


def test_two_different_single_keys_are_several_keys() -> None:
    assert compute_metric("sum", RewardColumn([{"x": 1}, {"y": 2}])) == {"x": 1, "y": 2}


def test_keys_are_sorted_by_code_point() -> None:
    column = RewardColumn([{"é": 1, "a": 1, "B": 1, "": 1}])
    assert list(compute_metric("sum", column)) == ["", "B", "a", "é"]


def test_operands_are_what_is_added_in_trial_order() -> None:
    assert operands(RewardColumn([{"r": 1}, None]), "mean") == {"mean": [1, 0]}
    assert operands(RewardColumn(TWO_KEYS), "mean") == {"a": [0.5, 0, 1.5, 0], "b": [1, 0, 0, 0]}


# Columns


TRIALS: list[Rewards | None] = [{"b": 1, "a": 0.5}, None, {}, {"a": 2}, {"c": -0.0}]


def test_every_trial_keeps_its_rewards_in_order() -> None:
    assert RewardColumn(TRIALS).rewards == TRIALS


def test_the_first_reward_is_the_first_written_and_0_where_there_is_none() -> None:
    assert list(map(repr, RewardColumn(TRIALS).first)) == ["1", "0", "0", "2", "-0.0"]


def test_keys_come_in_order_of_appearance_once() -> None:
    keys = RewardColumn(TRIALS).keys
    assert list(keys) == ["b", "a", "c"]
    assert keys == dict.fromkeys("bac")


def test_null_is_not_scored_and_an_empty_map_is() -> None:
    assert RewardColumn([None]).n_scored == 0
    assert RewardColumn([{}]).n_scored == 1
    assert RewardColumn(TRIALS).n_scored == 4


def test_single_counts_trials_with_exactly_one_reward() -> None:
    assert RewardColumn(TRIALS).n_single == 2
    assert RewardColumn([None, {}]).n_single == 0


def test_values_under_a_key_are_0_where_a_trial_has_none() -> None:
    column = RewardColumn(TRIALS)
    assert column.values("a") == [0.5, 0, 0, 2, 0]
    assert column.values("nowhere") == [0, 0, 0, 0, 0]


def test_a_column_is_as_long_as_its_trials() -> None:
    assert len(RewardColumn()) == 0
    assert len(RewardColumn(TRIALS)) == 5


def test_appending_one_by_one_gives_the_same_column() -> None:
    column = RewardColumn()
    for rewards in TRIALS:
        column.append(rewards)
    whole = RewardColumn(iter(TRIALS))
    for name in RewardColumn.__slots__:
        assert getattr(column, name) == getattr(whole, name)


def test_counts_are_plain_ints() -> None:
    column = RewardColumn([{}])
    assert type(column.n_scored) is type(column.n_single) is int
