"""Every attempt is counted once, and both means are there."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import StatisticsError
from proctor.ledger.counting import account_for, check_account
from proctor.ledger.query import with_restarted
from proctor.record.reasons import outcome_of
from tests.report.statistics.attempts import attempt

statuses = st.sampled_from(
    ["sealed", "diagnostic", "unsealed", "superseded", "withheld", "set aside"]
)
facts = st.tuples(statuses, st.none() | st.sampled_from([0.0, 0.5, 1.0]))


def test_each_kind_is_told_apart() -> None:
    found = account_for(
        [
            attempt(reward=1.0),
            attempt(reward=0.5, status="diagnostic"),
            attempt(reason_code="harbor_reward_missing"),
            attempt(status="unsealed", reason_code="harbor_trial_failed"),
            attempt(reward=1.0, status="set aside"),
            attempt(reward=1.0, status="superseded"),
            attempt(status="withheld"),
        ],
        planned=8,
    )
    assert (found.planned, found.listed, found.counted, found.not_run) == (8, 7, 4, 3)
    assert (found.superseded, found.withheld) == (1, 1)
    assert (found.sealed, found.diagnostic, found.unsealed) == (2, 1, 1)
    assert (found.scored, found.zero_by_missing, found.set_aside) == (2, 2, 1)
    assert found.reasons == {"harbor_reward_missing": 1, "harbor_trial_failed": 1}
    assert found.mean_errors_as_zero == 0.375
    assert found.mean_errors_excluded == 0.75


@given(st.lists(facts, max_size=20), st.none() | st.integers(0, 5))
def test_the_parts_add_up(told: list[tuple[str, float | None]], more: int | None) -> None:
    attempts = [attempt(status=status, reward=reward) for status, reward in told]
    there = sum(status not in ("superseded", "set aside") for status, _ in told)
    found = account_for(attempts, None if more is None else there + more)
    check_account(found)
    assert found.not_run == more
    for mean in (found.mean_errors_as_zero, found.mean_errors_excluded):
        assert mean is None or 0 <= mean <= 1
    if found.mean_errors_as_zero is not None and found.mean_errors_excluded is not None:
        assert found.mean_errors_as_zero <= found.mean_errors_excluded


def test_an_earlier_attempt_does_not_count_beside_the_trial_that_does() -> None:
    found = account_for(
        with_restarted(
            [
                attempt(trial_id="a__1.attempt-1", reason_code="harbor_trial_failed"),
                attempt(trial_id="a__1", reward=1.0),
                attempt(trial_id="b__1.attempt-1", reward=0.0),
                attempt(trial_id="b__1", experiment_id="another", reward=1.0),
            ]
        ),
        planned=3,
    )
    assert (found.listed, found.begun_again, found.counted, found.not_run) == (4, 1, 3, 0)
    assert (found.scored, found.zero_by_missing) == (3, 0)


def test_a_score_without_a_number_is_a_score_and_0_by_no_rule() -> None:
    trials = [attempt(reward=1.0), attempt(), attempt(reason_code="agent_timeout")]
    assert list(map(outcome_of, trials)) == ["scored", "without a number", "not scored"]
    found = account_for(trials)
    assert (found.scored, found.zero_by_missing, found.no_number) == (2, 1, 1)
    assert (found.mean_errors_as_zero, found.mean_errors_excluded) == (None, 1.0)
    assert found.why_no_mean is not None


def test_nothing_has_no_mean() -> None:
    found = account_for([])
    assert (found.mean_errors_as_zero, found.mean_errors_excluded) == (None, None)


def test_errors_alone_are_0_by_one_rule_and_nothing_by_the_other() -> None:
    found = account_for([attempt(reason_code="agent_timeout")])
    assert (found.mean_errors_as_zero, found.mean_errors_excluded) == (0.0, None)


def test_more_than_planned_is_refused() -> None:
    with pytest.raises(StatisticsError, match="1 trials were planned but 2 found"):
        account_for([attempt(), attempt()], planned=1)


def test_a_status_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StatisticsError, match="counted by record"):
        account_for([attempt(status="lost")])


@pytest.mark.parametrize("part", ["listed", "scored", "sealed", "zero_by_missing"])
def test_an_account_that_was_changed_no_longer_adds_up(part: str) -> None:
    found = account_for([attempt(reward=1.0), attempt(reason_code="agent_timeout")])
    changed = msgspec.structs.replace(found, **{part: getattr(found, part) + 1})
    with pytest.raises(StatisticsError, match="their parts add"):
        check_account(changed)
