"""The trials of one task and what the attempt counts as."""

import json

import pytest

from proctor.record.outcome import (
    AttemptOutcome,
    AttemptTrial,
    RunReading,
    find_trial_score,
    find_trial_status,
    finish_attempt,
    read_trial,
    stand_in_trial,
)
from proctor.record.policy import Aggregation

COMPLETED = RunReading("completed", 0.5, None, {})
FAILED = RunReading("failed", 0.0, None, {})


def trial(
    status: str = "completed", score: float | None = 1.0, reason: str | None = None
) -> AttemptTrial:
    document = {"status": status, "score": score, "reason_code": reason}
    return read_trial(json.dumps(document).encode(), directory="d", task_id="t")


def finish(
    *trials: AttemptTrial,
    run: RunReading = COMPLETED,
    attempt: int = 1,
    planned: int | None = None,
) -> AttemptOutcome:
    return finish_attempt(run, trials, task_id="t", attempt=attempt, planned=planned)


def verdict(outcome: AttemptOutcome) -> tuple[str, float, str | None]:
    return outcome.status, outcome.score, outcome.reason_code


def test_a_trial_without_result_is_errored() -> None:
    assert read_trial(None, directory="d", task_id="t") == AttemptTrial(
        "t", "d", "errored", None, "harbor_trial_result_missing", None
    )


@pytest.mark.parametrize("data", [b"null", b"[]", b"1", b'"x"'])
def test_a_result_that_is_no_object_is_malformed(data: bytes) -> None:
    assert read_trial(data, directory="d", task_id="t") == AttemptTrial(
        "t",
        "d",
        "errored",
        None,
        "harbor_trial_result_malformed",
        "the trial result is not a JSON object",
    )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b'{"score": 1' + b"0" * 400 + b"}", "int too large to convert to float"),
    ],
)
def test_a_result_that_cannot_be_read_is_malformed_and_says_why(data: bytes, error: str) -> None:
    assert read_trial(data, directory="d", task_id="t") == AttemptTrial(
        "t", "d", "errored", None, "harbor_trial_result_malformed", error
    )


def test_a_result_nested_beyond_reason_is_malformed() -> None:
    reading = read_trial(b"[" * 200_000, directory="d", task_id="t")
    assert reading.reason_code == "harbor_trial_result_malformed"


@pytest.mark.parametrize(
    ("document", "task_id", "name"),
    [
        ({}, "t", "d"),
        ({"task_id": "a", "task_name": "b", "trial_name": "c", "name": "e"}, "a", "c"),
        ({"task_id": "", "task_name": "b", "trial_name": None, "name": "e"}, "b", "e"),
        ({"task_id": 7, "trial_name": 8}, "7", "8"),
    ],
)
def test_names_come_from_the_result_or_stand_in(
    document: dict[str, object], task_id: str, name: str
) -> None:
    reading = read_trial(json.dumps(document).encode(), directory="d", task_id="t")
    assert (reading.task_id, reading.name) == (task_id, name)


@pytest.mark.parametrize(("reason", "code"), [("x y", "x y"), ("", None), (None, None), (5, None)])
def test_a_trials_reason_is_its_own_words(reason: object, code: str | None) -> None:
    data = json.dumps({"reason_code": reason}).encode()
    assert read_trial(data, directory="d", task_id="t").reason_code == code


@pytest.mark.parametrize(
    ("document", "score"),
    [
        ({"score": 0.25, "accuracy": 0.5, "pass_rate": 0.75}, 0.25),
        ({"score": True, "accuracy": 0.5, "pass_rate": 0.75}, 0.5),
        ({"score": "1", "pass_rate": 0.75, "resolved": True}, 0.75),
        ({"score": 0, "accuracy": 1}, 0.0),
        ({"resolved": False, "is_resolved": True}, 0.0),
        ({"resolved": 1, "is_resolved": True, "passed": False}, 1.0),
        ({"passed": True, "success": False}, 1.0),
        ({"success": True, "metrics": {"a": 0.5}}, 1.0),
        ({"success": False, "metrics": {"a": 0.5}}, 0.0),
        ({"metrics": {"a": True, "b": None, "c": 0.5, "d": 0.75}}, 0.5),
        ({"metrics": {"a": 0, "b": 0.5}}, 0.0),
        ({"metrics": {"a": "x"}}, 0.0),
        ({"metrics": [0.5]}, 0.0),
        ({"metrics": None}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_score_is_the_first_there_is(document: dict[str, object], score: float) -> None:
    found = find_trial_score(document)
    assert found == score
    assert isinstance(found, float)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("completed", "completed"),
        ("passed", "completed"),
        ("success", "completed"),
        ("resolved", "completed"),
        ("errored", "errored"),
        ("error", "errored"),
        ("failed", "failed"),
        ("fail", "failed"),
        ("unresolved", "failed"),
    ],
)
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_known_word_is_the_status_whatever_the_score(
    word: str, status: str, score: float
) -> None:
    assert find_trial_status({"status": f" {word.upper()}\n"}, score) == status
    assert find_trial_status({"status": "", "result": word}, score) == status


@pytest.mark.parametrize(
    "document", [{}, {"status": "odd", "result": "failed"}, {"status": 5, "result": "errored"}]
)
def test_without_a_known_word_the_score_decides(document: dict[str, object]) -> None:
    scores = (0.0, 0.9999999999999999, 1.0, 2.0)
    found = [find_trial_status(document, score) for score in scores]
    assert found == ["failed", "failed", "completed", "completed"]


def test_an_attempt_without_trials_rests_on_its_line() -> None:
    assert stand_in_trial(COMPLETED, "t") == AttemptTrial(
        "t", "stdout-summary", "completed", 0.5, None
    )
    assert stand_in_trial(FAILED, "t") == AttemptTrial("t", "stdout-summary", "failed", 0.0, None)


@pytest.mark.parametrize(
    "run",
    [RunReading("failed", 0.0, "x", {}), RunReading("timed_out", 0.0, None, {})],
)
def test_without_a_word_from_the_line_the_trial_is_missing(run: RunReading) -> None:
    assert stand_in_trial(run, "t") == read_trial(None, directory="t", task_id="t")


def test_an_attempt_is_the_mean_of_its_trials() -> None:
    trials = (trial(score=1.0), trial(score=0.5), trial(score=0.0))
    outcome = finish(*trials, planned=3)
    assert outcome == AttemptOutcome("completed", 0.5, None, trials)


def test_an_attempt_can_be_its_best_trial() -> None:
    trials = [trial(score=0.5), trial(score=0.25)]
    outcome = finish_attempt(
        COMPLETED, trials, task_id="t", attempt=1, aggregation=Aggregation.BEST_OF_K
    )
    assert outcome.score == 0.5


def test_a_completed_attempt_keeps_its_reason() -> None:
    run = RunReading("completed", 1.0, "Odd Thing", {})
    assert verdict(finish(trial(), run=run)) == ("completed", 1.0, "odd_thing")
    assert verdict(finish(trial(reason="x"))) == ("completed", 1.0, "x")


def test_a_stand_in_makes_the_attempt_and_is_kept_with_it() -> None:
    assert finish() == AttemptOutcome("completed", 0.5, None, (stand_in_trial(COMPLETED, "t"),))
    assert verdict(finish(run=FAILED)) == ("failed", 0.0, "harbor_trial_failed")


@pytest.mark.parametrize("planned", [1, 3])
def test_too_few_or_too_many_trials_are_a_partial_result(planned: int) -> None:
    outcome = finish(trial(), trial(), planned=planned)
    assert verdict(outcome) == ("failed", 0.0, "harbor_result_partial")


@pytest.mark.parametrize("status", ["errored", "failed"])
def test_one_trial_that_is_not_completed_fails_the_attempt(status: str) -> None:
    outcome = finish(trial(), trial(status), trial())
    assert verdict(outcome) == ("failed", 0.0, "harbor_trial_failed")
    assert len(outcome.trials) == 3
    assert verdict(finish(trial(status), planned=2)) == ("failed", 0.0, "harbor_trial_failed")


def test_the_runs_reason_comes_before_the_trials() -> None:
    run = RunReading("failed", 0.0, "harbor_nonzero_exit", {})
    outcome = finish(trial("failed", reason="harbor_reward_empty"), run=run)
    assert verdict(outcome) == ("failed", 0.0, "harbor_nonzero_exit")


def test_the_first_reason_of_a_trial_is_the_attempts() -> None:
    outcome = finish(
        trial("failed"), trial("failed", reason="Reward empty"), trial(reason="CancelledError")
    )
    assert verdict(outcome) == ("failed", 0.0, "harbor_reward_empty")


@pytest.mark.parametrize(
    ("reason", "attempt", "status"),
    [
        ("harbor_cancelled_error", 1, "failed_retryable"),
        ("harbor_cancelled_error", 2, "failed_retryable"),
        ("harbor_cancelled_error", 3, "failed"),
        ("odd", 2, "failed_retryable"),
        ("odd", 3, "failed"),
        ("harbor_trial_failed", 1, "failed"),
    ],
)
def test_a_failed_attempt_is_tried_again_by_its_reason(
    reason: str, attempt: int, status: str
) -> None:
    outcome = finish(trial("errored", reason=reason), attempt=attempt)
    assert verdict(outcome) == (status, 0.0, reason)


def test_a_time_out_is_tried_again() -> None:
    run = RunReading("timed_out", 0.0, "timed_out", {})
    assert verdict(finish(run=run)) == ("failed_retryable", 0.0, "timed_out")


def test_a_trial_without_score_counts_zero() -> None:
    reading = AttemptTrial("t", "d", "completed", None, None)
    assert finish(reading, trial(score=1.0)).score == 0.5
