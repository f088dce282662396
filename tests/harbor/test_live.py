"""Trials that come and go: harbor's counters, its negative ones and its empty lists too."""

from typing import Any

import pytest

from proctor.harbor.stats import (
    GroupStats,
    JobStats,
    Trial,
    TrialTable,
    Usage,
    assemble_live,
    count_trial,
    uncount_trial,
)
from proctor.reward.steps import Verdict
from tests.harbor.job_cases import replace_trial


def trial(name: str, rewards: Any = None, **changes: Any) -> Trial:
    verdict = None if rewards is None else Verdict(rewards)
    return Trial(name, "a", "ag", **{"model": "m", "source": "ds", "verdict": verdict} | changes)


def counted(*trials: Trial) -> JobStats:
    stats = JobStats()
    for each in trials:
        count_trial(stats, each)
    return stats


PASSED = trial("1", {"reward": 1.0, "b": 2}, usage=Usage(1, 2, 3, 0.5))
ERRORED = trial("2", exception="RuntimeError", usage=Usage(n_input_tokens=7))
CANCELLED = trial("3", exception="CancelledError")


def test_counting_trial_by_trial_gives_what_assembling_them_gives() -> None:
    trials = [PASSED, ERRORED, CANCELLED, trial("4", {}), trial("5", source=None, model=None)]
    assert counted(*trials) == assemble_live(TrialTable(trials), {})


def test_a_trial_taken_away_leaves_its_group_and_empty_lists() -> None:
    stats = counted(PASSED, ERRORED, CANCELLED)
    for each in (PASSED, ERRORED, CANCELLED):
        uncount_trial(stats, each)
    left = GroupStats(
        reward_stats={"reward": {1.0: []}, "b": {2: []}},
        exception_stats={"RuntimeError": [], "CancelledError": []},
    )
    expected = JobStats(evals={"ag__m__ds": left}, n_input_tokens=0)
    expected.n_cache_tokens, expected.n_output_tokens, expected.cost_usd = 0, 0, 0.0
    assert stats == expected
    assert repr(stats.cost_usd) == "0.0"


def test_a_trial_that_was_never_counted_makes_counters_negative() -> None:
    stats = JobStats()
    uncount_trial(stats, PASSED)
    uncount_trial(stats, CANCELLED)
    assert (stats.n_completed_trials, stats.n_errored_trials) == (-2, -1)
    assert stats.n_cancelled_trials == -1
    assert stats.evals == {"ag__m__ds": GroupStats(n_trials=-1, n_errors=-1)}
    assert (stats.n_input_tokens, stats.cost_usd) == (None, None)


def test_tokens_and_money_stop_at_zero_with_their_type() -> None:
    stats = counted(PASSED)
    uncount_trial(stats, trial("x", usage=Usage(100, 100, 100, 100.0)))
    totals = [stats.n_input_tokens, stats.n_cache_tokens, stats.n_output_tokens, stats.cost_usd]
    assert repr(totals) == "[0, 0, 0, 0.0]"


def test_what_is_taken_away_again_leaves_the_drift_of_the_fold() -> None:
    stats = counted(trial("1", usage=Usage(cost_usd=0.1)), trial("2", usage=Usage(cost_usd=0.2)))
    uncount_trial(stats, trial("1", usage=Usage(cost_usd=0.1)))
    assert stats.cost_usd == 0.20000000000000004


def test_another_trial_of_equal_reward_keeps_its_name() -> None:
    stats = counted(trial("1", {"reward": 1}), trial("2", {"reward": 1.0}))
    uncount_trial(stats, trial("3", {"reward": 1}))
    uncount_trial(stats, trial("1", {"reward": 1}))
    assert stats.evals["ag__m__ds"].reward_stats == {"reward": {1: ["2"]}}
    assert stats.evals["ag__m__ds"].n_trials == 0


def test_a_nan_is_taken_away_only_as_the_same_object() -> None:
    nan = float("nan")
    stats = counted(trial("1", {"reward": nan}), trial("2", {"reward": nan}))
    uncount_trial(stats, trial("1", {"reward": float("nan")}))
    assert list(stats.evals["ag__m__ds"].reward_stats["reward"].values()) == [["1", "2"]]
    uncount_trial(stats, trial("1", {"reward": nan}))
    assert list(stats.evals["ag__m__ds"].reward_stats["reward"].values()) == [["2"]]


def test_a_retried_trial_replaces_its_earlier_attempt() -> None:
    stats = counted(ERRORED)
    passed = trial("2", {"reward": 1.0})
    replace_trial(stats, passed, ERRORED)
    assert (stats.n_completed_trials, stats.n_errored_trials) == (1, 0)
    entry = stats.evals["ag__m__ds"]
    assert entry.reward_stats == {"reward": {1.0: ["2"]}}
    assert entry.exception_stats == {"RuntimeError": []}
    assert (entry.n_trials, entry.n_errors, stats.n_input_tokens) == (1, 0, 0)


def test_a_trial_without_an_earlier_attempt_is_just_counted() -> None:
    stats = JobStats()
    replace_trial(stats, PASSED, None)
    assert stats == counted(PASSED)


@pytest.mark.parametrize("verdict", [None, Verdict(None), Verdict({})])
def test_only_rewards_that_are_there_are_counted(verdict: Verdict | None) -> None:
    stats = counted(trial("1", verdict=verdict))
    has_rewards = verdict is not None and verdict.rewards is not None
    assert stats.evals["ag__m__ds"] == GroupStats(n_trials=int(has_rewards))
    uncount_trial(stats, trial("1", verdict=verdict))
    assert stats.evals["ag__m__ds"] == GroupStats()
