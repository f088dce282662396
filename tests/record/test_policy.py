"""Per-task aggregation, keep policies and the job's score."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import InvalidAggregationModeError, InvalidKeepPolicyError
from proctor.record.policy import (
    Aggregation,
    Keep,
    KeepPolicy,
    aggregate_trials,
    job_score,
    keep_scores,
    parse_aggregation,
    parse_keep_policy,
    passed_task,
)

scores_in_range = st.lists(st.floats(0, 1), max_size=8)


def drop(count: int) -> Keep:
    return Keep(KeepPolicy.DROP_LOWEST_N, drop_lowest_n=count)


def band(threshold: float) -> Keep:
    return Keep(KeepPolicy.THRESHOLD_BAND, threshold=threshold)


def test_the_policies_have_these_names() -> None:
    assert list(Aggregation) == ["mean", "best-of-k"]
    assert list(KeepPolicy) == ["off", "drop-lowest-n", "threshold-band", "best-of-k"]


@pytest.mark.parametrize("name", list(Aggregation))
def test_an_aggregation_is_read_in_any_case(name: Aggregation) -> None:
    assert parse_aggregation(f" {name.title()}\t") is name


@pytest.mark.parametrize("name", list(KeepPolicy))
def test_a_keep_policy_is_read_in_any_case(name: KeepPolicy) -> None:
    assert parse_keep_policy(f" {name.upper()}\n") is name


def test_no_name_is_the_default() -> None:
    assert parse_aggregation(None) is Aggregation.MEAN
    assert parse_keep_policy(None) is KeepPolicy.OFF


def test_an_unknown_aggregation_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidAggregationModeError) as caught:
        parse_aggregation("median")
    assert str(caught.value) == "aggregation is 'median'; expected one of mean, best-of-k"


@pytest.mark.parametrize("name", ["median", "", "best_of_k"])
def test_an_unknown_keep_policy_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(InvalidKeepPolicyError) as caught:
        parse_keep_policy(name)
    assert str(caught.value) == (
        f"keep policy is {name!r}; expected one of off, drop-lowest-n, threshold-band, best-of-k"
    )


@pytest.mark.parametrize("mode", list(Aggregation))
@pytest.mark.parametrize("score", [0.0, 1.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_unanimous_trials_give_their_score_in_every_mode(
    mode: Aggregation, score: float, k: int
) -> None:
    assert aggregate_trials([score] * k, mode) == score


def test_the_mean_is_the_default_and_best_of_k_is_the_largest() -> None:
    assert aggregate_trials([0.0, 1.0, 0.0, 0.0]) == 0.25
    assert aggregate_trials([0.0, 1.0, 0.0, 0.0], Aggregation.MEAN) == 0.25
    assert aggregate_trials([0.0, 1.0, 0.0, 0.0], Aggregation.BEST_OF_K) == 1.0


@pytest.mark.parametrize("mode", list(Aggregation))
def test_whole_numbers_give_doubles(mode: Aggregation) -> None:
    assert isinstance(aggregate_trials([1, 1], mode), float)


def test_the_mean_is_the_compensated_one() -> None:
    assert aggregate_trials([0.1, 0.2, 0.3]) == 0.19999999999999998
    assert aggregate_trials([0.1] * 10) == 0.1


def test_the_mean_is_not_that_of_statistics() -> None:
    scores = [0.1, 0.2, 0.3]
    assert aggregate_trials(scores) != statistics.mean(scores)


@pytest.mark.parametrize("mode", list(Aggregation))
def test_a_task_without_trials_has_no_score(mode: Aggregation) -> None:
    with pytest.raises(InvalidAggregationModeError) as caught:
        aggregate_trials([], mode)
    assert str(caught.value) == "a task has no trials; expected at least one score"


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        (0, [0.2, 0.9, 0.1, 0.8]),
        (1, [0.2, 0.9, 0.8]),
        (2, [0.9, 0.8]),
        (3, [0.9]),
        (4, [0.9]),
        (99, [0.9]),
    ],
)
def test_the_lowest_are_dropped_and_the_best_stays(count: int, kept: list[float]) -> None:
    assert keep_scores([0.2, 0.9, 0.1, 0.8], drop(count)) == kept


def test_of_equal_scores_the_earlier_is_dropped() -> None:
    # 0.0 and -0.0 are equal but can be told apart.
    assert repr(keep_scores([0.0, -0.0, 1.0], drop(1))) == "[-0.0, 1.0]"
    assert repr(keep_scores([-0.0, 0.0, 1.0], drop(1))) == "[0.0, 1.0]"


def test_a_score_at_the_threshold_is_kept() -> None:
    assert keep_scores([1.0, 0.4, 0.5, 0.0], band(0.5)) == [1.0, 0.5]
    assert keep_scores([0.0, 1.0], band(0.0)) == [0.0, 1.0]
    assert keep_scores([0.9999999999999999, 1.0], band(1.0)) == [1.0]


def test_best_of_k_keeps_one_task() -> None:
    best = Keep(KeepPolicy.BEST_OF_K)
    assert keep_scores([0.5, 0.9, 0.9], best) == [0.9]
    assert repr(keep_scores([-0.0, 0.0], best)) == "[-0.0]"
    assert job_score([0.5, 0.9, 0.7], best) == 0.9


@pytest.mark.parametrize("policy", list(KeepPolicy))
def test_a_job_without_tasks_scores_zero(policy: KeepPolicy) -> None:
    assert keep_scores([], Keep(policy)) == []
    assert job_score([], Keep(policy)) == 0.0


def test_a_job_below_the_threshold_scores_zero() -> None:
    assert job_score([0.1, 0.2], band(0.5)) == 0.0


def test_a_jobs_score_is_the_mean_of_what_is_kept() -> None:
    assert job_score([1.0, 0.0, 0.5, 1.0], Keep()) == 0.625
    assert job_score([0.2, 0.9, 0.1, 0.8], drop(2)) == 0.8500000000000001
    assert job_score([1.0, 0.4, 0.5, 0.0], band(0.5)) == 0.75


@pytest.mark.parametrize("policy", list(KeepPolicy))
def test_scores_are_kept_as_doubles(policy: KeepPolicy) -> None:
    assert repr(keep_scores([1], Keep(policy))) == "[1.0]"


def test_keeping_all_is_the_default() -> None:
    assert Keep() == Keep(KeepPolicy.OFF, drop_lowest_n=0, threshold=0.0)


def test_a_negative_number_to_drop_is_refused() -> None:
    with pytest.raises(InvalidKeepPolicyError) as caught:
        drop(-1)
    assert str(caught.value) == "drop-lowest-n has n = -1; expected 0 or more"


@pytest.mark.parametrize("threshold", [-5e-324, 1.0000000000000002, 1.5, float("nan")])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(InvalidKeepPolicyError) as caught:
        band(threshold)
    assert str(caught.value) == f"threshold-band has threshold {threshold}; expected 0 to 1"


@pytest.mark.parametrize(
    "policy", [KeepPolicy.OFF, KeepPolicy.BEST_OF_K, KeepPolicy.THRESHOLD_BAND]
)
def test_the_number_to_drop_matters_to_its_own_policy_only(policy: KeepPolicy) -> None:
    keep = Keep(policy, drop_lowest_n=-1)
    assert keep_scores([0.5], keep) == [0.5]


@pytest.mark.parametrize("policy", [KeepPolicy.OFF, KeepPolicy.BEST_OF_K, KeepPolicy.DROP_LOWEST_N])
def test_the_threshold_matters_to_its_own_policy_only(policy: KeepPolicy) -> None:
    assert keep_scores([0.5], Keep(policy, threshold=7.0)) == [0.5]


def test_a_task_is_passed_at_one() -> None:
    assert [passed_task(score) for score in (0.0, 0.9999999999999999, 1.0, 1.5)] == [
        False,
        False,
        True,
        True,
    ]


@given(scores_in_range)
def test_dropping_none_and_the_lowest_band_are_the_same_as_off(scores: list[float]) -> None:
    plain = repr(job_score(scores, Keep()))
    assert repr(job_score(scores, drop(0))) == plain
    assert repr(job_score(scores, band(0.0))) == plain


@given(scores_in_range, st.integers(0, 9))
def test_what_is_dropped_is_never_better_than_what_is_kept(scores: list[float], count: int) -> None:
    kept = keep_scores(scores, drop(count))
    assert len(kept) == max(len(scores) - count, min(len(scores), 1))
    assert sorted(kept) == sorted(scores)[len(scores) - len(kept) :]


@given(scores_in_range)
def test_kept_scores_keep_their_order(scores: list[float]) -> None:
    for keep in (drop(2), band(0.5)):
        remaining = itertools.chain(scores)
        assert all(score in remaining for score in keep_scores(scores, keep))
