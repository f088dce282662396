"""Rewards of many trials side by side."""

from proctor.reward.column import RewardColumn
from proctor.reward.number import Rewards

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
