"""Which steps of a trial count, and what they make together."""

import math

import pytest

from proctor.reward.number import Number, Rewards, same_number
from proctor.reward.steps import (
    DEFAULT_STRATEGY,
    MinReward,
    Step,
    Stop,
    Verdict,
    find_stop,
    trial_verdict,
)

nan = math.nan


def step(rewards: Rewards | None, name: str = "s", minimum: MinReward | None = None) -> Step:
    return Step(name, Verdict(rewards), min_reward=minimum)


def unverified(name: str = "s", exception: str | None = None) -> Step:
    return Step(name, None, exception)


def test_a_failed_step_that_was_not_verified_ends_the_trial() -> None:
    stop = find_stop(unverified("build", "RuntimeError"))
    assert stop == Stop("warning", "Step 'build' failed, aborting remaining steps")


def test_a_failed_step_ends_the_trial_even_when_nothing_is_verified() -> None:
    failed = Step("build", None, "RuntimeError", min_reward=0.5)
    assert find_stop(failed, verifying=False) == find_stop(failed)


def test_a_failed_step_that_was_verified_goes_on() -> None:
    assert find_stop(Step("s", Verdict(None), "AgentTimeoutError")) is None


def test_an_unverified_step_without_an_exception_goes_on() -> None:
    assert find_stop(unverified()) is None


BELOW: list[tuple[Rewards | None, MinReward, str]] = [
    ({"reward": 0.4}, 0.5, "reward=0.4 below min_reward 0.5"),
    ({"reward": 0}, 1, "reward=0 below min_reward 1.0"),
    ({"reward": 0}, 5e-324, "reward=0 below min_reward 5e-324"),
    ({"x": 1}, 0.0, "reward=-inf below min_reward 0.0"),
    ({}, 0.0, "reward=-inf below min_reward 0.0"),
    (None, -1e308, "reward=-inf below min_reward -1e+308"),
    ({"a": 1, "b": 0.1}, {"a": 1.0, "b": 0.2}, "b=0.1 below min_reward 0.2"),
    ({"a": 0, "b": 0}, {"b": 0.5, "a": 0.5}, "b=0 below min_reward 0.5"),
    ({"a": 1}, {"b": 1}, "b=-inf below min_reward 1.0"),
]


@pytest.mark.parametrize(("rewards", "minimum", "shortfall"), BELOW)
def test_a_reward_under_the_minimum_ends_the_trial(
    rewards: Rewards | None, minimum: MinReward, shortfall: str
) -> None:
    stop = find_stop(step(rewards, "s1", minimum))
    assert stop == Stop("debug", f"Step 's1' {shortfall}, aborting remaining steps")


REACHED: list[tuple[Rewards | None, MinReward]] = [
    ({"reward": 0.5}, 0.5),
    ({"reward": 1}, 0.5),
    ({"reward": -0.0}, 0.0),
    ({"reward": nan}, 0.5),
    ({"reward": 0}, nan),
    ({"a": 1, "b": 1}, {"a": 1, "b": 0.5}),
    ({}, {}),
    (None, {}),
    (None, -math.inf),
    # As a float the minimum is 2**53, which this reaches.
    ({"reward": 2**53}, 2**53 + 1),
]


@pytest.mark.parametrize(("rewards", "minimum"), REACHED)
def test_a_reward_that_is_not_under_the_minimum_goes_on(
    rewards: Rewards | None, minimum: MinReward
) -> None:
    assert find_stop(step(rewards, minimum=minimum)) is None


def test_a_step_without_verdict_is_under_any_minimum() -> None:
    stop = find_stop(Step("s", None, min_reward=0.0))
    assert stop is not None
    assert stop.message == "Step 's' reward=-inf below min_reward 0.0, aborting remaining steps"


def test_no_minimum_is_looked_at_when_nothing_is_verified() -> None:
    assert find_stop(Step("s", None, min_reward=0.5), verifying=False) is None


def mean_of(*steps: Step) -> Rewards | None:
    verdict = trial_verdict(steps, "mean")
    return None if verdict is None else verdict.rewards


def test_the_mean_is_the_default() -> None:
    assert DEFAULT_STRATEGY == "mean"
    steps = [step({"r": 1}), step({"r": 0})]
    assert trial_verdict(steps) == trial_verdict(steps, "mean") == Verdict({"r": 0.5})


MEANS: list[tuple[list[Number], float]] = [
    ([1], 1.0),
    ([0.1, 0.2, 0.3], 0.19999999999999998),
    ([0, 1, 1], 2 / 3),
    ([1e16, 1, 1, -1e16], 0.0),
    ([1e16, 1.0, 1.0, -1e16], 0.5),
    ([nan, 1], nan),
]


@pytest.mark.parametrize(("values", "mean"), MEANS)
def test_a_mean_is_a_compensated_sum_over_the_verified_steps(
    values: list[Number], mean: float
) -> None:
    rewards = mean_of(*(step({"r": value}) for value in values))
    assert rewards is not None
    assert same_number(rewards["r"], mean)


def test_a_missing_key_counts_0_and_keys_keep_their_order() -> None:
    rewards = mean_of(step({"b": 1, "a": 0.5}), step({"a": 0.5, "c": 1}))
    assert list((rewards or {}).items()) == [("b", 0.5), ("a", 0.5), ("c", 0.5)]


def test_an_unverified_step_is_not_in_the_denominator() -> None:
    assert mean_of(step({"r": 1}), unverified()) == {"r": 1.0}


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_verified_step_without_rewards_is_in_the_denominator(nothing: Rewards | None) -> None:
    assert mean_of(step({"r": 1}), step(nothing)) == {"r": 0.5}


def test_no_key_at_all_gives_no_verdict() -> None:
    assert trial_verdict([], "mean") is None
    assert mean_of(unverified()) is None
    assert mean_of(step(None), step({})) is None


def test_the_final_strategy_takes_the_last_verdict_as_it_is() -> None:
    assert trial_verdict([step({"r": 0}), step({"r": 1})], "final") == Verdict({"r": 1})
    last = trial_verdict([step({"r": 1})], "final")
    assert last is not None
    assert type((last.rewards or {})["r"]) is int


def test_the_final_strategy_has_nothing_when_the_last_step_has_no_verdict() -> None:
    assert trial_verdict([step({"r": 1}), unverified()], "final") is None
    assert trial_verdict([], "final") is None
    assert trial_verdict([step({"r": 1}), step(None)], "final") == Verdict(None)
