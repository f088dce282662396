"""pass@k: which k, which groups, and the last bit."""

import math
import operator
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.reward.metric import RewardColumn
from proctor.reward.number import Number, Rewards
from proctor.reward.passk import eligible_ks, estimate, pass_at_k

K_TABLE = {
    0: [],
    1: [],
    2: [2],
    3: [2],
    4: [2, 4],
    5: [2, 4, 5],
    6: [2, 4, 5],
    7: [2, 4, 5],
    8: [2, 4, 5, 8],
    9: [2, 4, 5, 8],
    10: [2, 4, 5, 8, 10],
    11: [2, 4, 5, 8, 10],
    12: [2, 4, 5, 8, 10],
    13: [2, 4, 5, 8, 10],
    14: [2, 4, 5, 8, 10],
    15: [2, 4, 5, 8, 10, 15],
    16: [2, 4, 5, 8, 10, 15, 16],
    17: [2, 4, 5, 8, 10, 15, 16],
    18: [2, 4, 5, 8, 10, 15, 16],
    19: [2, 4, 5, 8, 10, 15, 16],
    20: [2, 4, 5, 8, 10, 15, 16, 20],
}


@pytest.mark.parametrize(("attempts", "ks"), K_TABLE.items())
def test_the_reported_k_are_powers_of_two_and_multiples_of_five(
    attempts: int, ks: list[int]
) -> None:
    assert eligible_ks(attempts) == ks


ESTIMATES = [
    (5, 1, 2, "0x1.9999999999998p-2"),
    (10, 3, 5, "0x1.d555555555556p-1"),
    (2, 1, 2, "0x1.0000000000000p+0"),
    (2, 0, 2, "0x0.0p+0"),
    (2, 2, 1, "0x1.0000000000000p+0"),
    (4, 2, 2, "0x1.aaaaaaaaaaaabp-1"),
    (4, 1, 3, "0x1.8000000000000p-1"),
    (4, 1, 4, "0x1.0000000000000p+0"),
    (1, 0, 1, "0x0.0p+0"),
]


@pytest.mark.parametrize(("attempts", "successes", "k", "result"), ESTIMATES)
def test_one_task_has_harbors_last_bit(attempts: int, successes: int, k: int, result: str) -> None:
    assert estimate(attempts, successes, k).hex() == result


def harbors_estimate(attempts: int, successes: int, k: int) -> float:
    if attempts - successes < k:
        return 1.0
    product = 1.0
    for i in range(k):
        product *= (attempts - successes - i) / (attempts - i)
    return 1.0 - product


@given(st.integers(2, 45).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_one_running_product_serves_every_k(counts: tuple[int, int]) -> None:
    attempts, successes = counts
    rewards: list[Rewards | None] = [{"r": int(at < successes)} for at in range(attempts)]
    found = pass_at_k(["t"] * attempts, RewardColumn(rewards))
    assert list(found) == eligible_ks(attempts)
    assert found == {k: harbors_estimate(attempts, successes, k) for k in found}
    assert all(smaller <= larger for smaller, larger in pairwise(found.values()))


def passes(**attempts: list[Number | None]) -> dict[int, float]:
    """pass@k of tasks whose attempts got these rewards."""
    tasks = [task for task, rewards in attempts.items() for _ in rewards]
    rewards = [reward for task in attempts.values() for reward in task]
    column = RewardColumn(None if reward is None else {"reward": reward} for reward in rewards)
    return pass_at_k(tasks, column)


def test_the_group_is_the_mean_over_its_tasks() -> None:
    assert passes(a=[1, 0], b=[0, 0]) == {2: 0.5}


def test_the_sum_over_tasks_is_compensated() -> None:
    third: list[Number | None] = [1, 0, 0]
    tenth: list[Number | None] = [1, *[0] * 9]
    group = {f"t{at}": third for at in range(6)} | {f"u{at}": tenth for at in range(5)}
    estimates = [estimate(3, 1, 2)] * 6 + [estimate(10, 1, 2)] * 5
    assert passes(**group) == {2: math.fsum(estimates) / 11}
    assert passes(**group) != {2: reduce(operator.add, estimates) / 11}


def test_the_task_with_the_fewest_attempts_decides_the_k() -> None:
    assert list(passes(a=[1] * 5, b=[0] * 4)) == [2, 4]


def test_one_attempt_at_a_task_leaves_no_k() -> None:
    assert passes(a=[1, 1], b=[1]) == {}


def test_no_trials_have_no_pass_at_k() -> None:
    assert pass_at_k([], RewardColumn()) == {}


def test_a_trial_without_rewards_is_a_failure() -> None:
    assert passes(a=[1, None, None]) == passes(a=[1, 0, 0])
    assert passes(a=[None, None]) == {2: 0.0}


@pytest.mark.parametrize("ones", [[1, 1.0], [True, 1]])
@pytest.mark.parametrize("zeros", [[0, 0.0], [-0.0, False]])
def test_one_and_zero_count_in_every_type(ones: list[Number], zeros: list[Number]) -> None:
    assert passes(a=[*ones, *zeros]) == passes(a=[1, 1, 0, 0])


@pytest.mark.parametrize(
    "value", [0.5, 2, -1, 5e-324, math.nan, math.inf, 10**400, 1.0000000000000002]
)
def test_any_other_value_leaves_the_group_without(value: Number) -> None:
    assert passes(a=[1, 0], b=[1, value]) == {}


@pytest.mark.parametrize("rewards", [{}, {"a": 1, "b": 1}])
def test_a_trial_with_no_or_two_rewards_leaves_the_group_without(rewards: Rewards) -> None:
    assert pass_at_k(["t", "t"], RewardColumn([{"a": 1}, rewards])) == {}


def test_the_single_keys_may_differ_between_trials() -> None:
    assert pass_at_k(["t", "t"], RewardColumn([{"x": 1}, {"y": 0}])) == {2: 1.0}


def test_the_attempts_of_a_task_need_not_stand_together() -> None:
    column = RewardColumn({"r": reward} for reward in [1, 0, 0, 0])
    assert pass_at_k(["a", "b", "a", "b"], column) == {2: 0.5}


def test_the_results_are_floats_under_whole_k() -> None:
    found = passes(a=[1, 1])
    assert [(type(k), type(value)) for k, value in found.items()] == [(int, float)]
