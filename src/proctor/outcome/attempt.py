"""The trials of one task to the outcome of its attempt, as agent-challenge's platform decides it.

Results come in as bytes and readings. Nothing here looks for directories, keeps attempts or
starts the next one; it says only whether there should be one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proctor.json_values import MOST_VALUES, check_values
from proctor.outcome.consumer import RunReading
from proctor.outcome.policy import Aggregation, aggregate_trials, passed_task
from proctor.outcome.reasons import ReasonCode, classify, is_retryable, normalize_reason

type TrialStatus = Literal["completed", "errored", "failed"]

_STATUS_WORDS: Mapping[str, TrialStatus] = {
    "completed": "completed",
    "passed": "completed",
    "success": "completed",
    "resolved": "completed",
    "errored": "errored",
    "error": "errored",
    "failed": "failed",
    "fail": "failed",
    "unresolved": "failed",
}
_SCORE_KEYS = ("score", "accuracy", "pass_rate")
_VERDICT_KEYS = ("resolved", "is_resolved", "passed", "success")


@dataclass(frozen=True, slots=True)
class TrialReading:
    """What one trial of an attempt counts as."""

    task_id: str
    name: str
    status: TrialStatus
    score: float | None
    """None if there was no result to take it from."""
    reason_code: str | None
    """As the result gives it; foreign text stays as it is."""
    error: str | None = None
    """Why the result could not be read, in Python's words."""


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """What an attempt at one task counts as."""

    status: Literal["completed", "failed_retryable", "failed", "stale"]
    score: float
    """0.0 unless completed."""
    reason_code: str | None
    """A completed attempt keeps the reason its line gave."""
    trials: tuple[TrialReading, ...] = ()
    """What it rests on, the stand-in included."""


STALE = AttemptOutcome("stale", 0.0, ReasonCode.TERMINAL_BENCH_ATTEMPT_NOT_RUNNING)
"""The outcome of finishing an attempt that is not running any more."""


def read_trial(data: bytes | None, *, directory: str, task_id: str) -> TrialReading:
    """A trial by the bytes of its result.json (None: no file).

    The directory's name and the task's id stand in where the result names neither.
    """
    if data is None:
        missing = ReasonCode.HARBOR_TRIAL_RESULT_MISSING
        return TrialReading(task_id, directory, "errored", None, missing)
    try:
        check_values(data, 4 * MOST_VALUES)
        document: object = json.loads(data.decode("utf-8"))
        if isinstance(document, dict):
            return _read_document(document, directory, task_id)
        error = "the trial result is not a JSON object"
    except (ValueError, OverflowError, RecursionError) as problem:
        error = str(problem)
    malformed = ReasonCode.HARBOR_TRIAL_RESULT_MALFORMED
    return TrialReading(task_id, directory, "errored", None, malformed, error)


def find_score(document: Mapping[str, object]) -> float:
    """The score in a trial result of whatever make; 0.0 if there is none.

    (1) The first number of score, accuracy, pass_rate.
    (2) The first yes or no of resolved, is_resolved, passed, success.
    (3) The first number among the metrics.
    """
    for key in _SCORE_KEYS:  # (1)
        if (score := _number(document.get(key))) is not None:
            return score
    for key in _VERDICT_KEYS:  # (2)
        verdict = document.get(key)
        if isinstance(verdict, bool):
            return float(verdict)
    metrics = document.get("metrics")  # (3)
    numbers = map(_number, metrics.values()) if isinstance(metrics, dict) else ()
    return next((number for number in numbers if number is not None), 0.0)


def find_status(document: Mapping[str, object], score: float) -> TrialStatus:
    """The status in a trial result; by the score if the word is missing or not known."""
    word = document.get("status") or document.get("result")
    if isinstance(word, str) and (status := _STATUS_WORDS.get(word.strip().lower())):
        return status
    return "completed" if passed_task(score) else "failed"


def stand_in_trial(run: RunReading, task_id: str) -> TrialReading:
    """The one trial of an attempt that left none: the line's own word, or a missing result."""
    if run.status == "completed":
        return TrialReading(task_id, "stdout-summary", "completed", run.score, None)
    if run.status == "failed" and run.reason_code is None:
        return TrialReading(task_id, "stdout-summary", "failed", run.score, None)
    return read_trial(None, directory=task_id, task_id=task_id)


def finish_attempt(
    run: RunReading,
    trials: Sequence[TrialReading],
    *,
    task_id: str,
    attempt: int,
    planned: int | None = None,
    aggregation: Aggregation = Aggregation.MEAN,
) -> AttemptOutcome:
    """The outcome of an attempt (counted per task, from 1) by its run and its trials, in order.

    It is completed only if all its trials are, and as many as planned. Otherwise its reason is
    the run's, else the first that a trial gives, else that trials failed or are too few.
    """
    counted = tuple(trials) or (stand_in_trial(run, task_id),)
    reason = normalize_reason(run.reason_code) or _first_reason(counted)
    as_planned = planned is None or len(counted) == planned
    if as_planned and all(trial.status == "completed" for trial in counted):
        score = aggregate_trials([trial.score or 0.0 for trial in counted], aggregation)
        return AttemptOutcome("completed", score, reason, counted)
    code = classify(reason or ReasonCode.HARBOR_RESULT_PARTIAL)
    retry = is_retryable(code, attempt)
    return AttemptOutcome("failed_retryable" if retry else "failed", 0.0, code, counted)


def _read_document(document: dict[str, object], directory: str, task_id: str) -> TrialReading:
    score = find_score(document)
    reason = document.get("reason_code")
    return TrialReading(
        task_id=str(document.get("task_id") or document.get("task_name") or task_id),
        name=str(document.get("trial_name") or document.get("name") or directory),
        status=find_status(document, score),
        score=score,
        reason_code=reason if isinstance(reason, str) and reason else None,
    )


def _first_reason(trials: Sequence[TrialReading]) -> str | None:
    """The first that any trial gives, or that one failed without giving any."""
    given = next((trial.reason_code for trial in trials if trial.reason_code), None)
    if given is None and any(trial.status != "completed" for trial in trials):
        return ReasonCode.HARBOR_TRIAL_FAILED
    return given


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
