"""Aggregate trials to a task's score, and task scores to a job's score, by a named policy.

Keep policies change only the score: the numbers of tasks and of passed tasks always include all of
them. No policy is random, and misspelt names are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from proctor.errors import InvalidAggregationModeError, InvalidKeepPolicyError
from proctor.reward.number import exact_sum


class Aggregation(StrEnum):
    """How the trials of one task are aggregated to its score."""

    MEAN = "mean"
    BEST_OF_K = "best-of-k"


class KeepPolicy(StrEnum):
    """Which tasks count for the job's score."""

    OFF = "off"
    DROP_LOWEST_N = "drop-lowest-n"
    THRESHOLD_BAND = "threshold-band"
    BEST_OF_K = "best-of-k"
    """Only the best task. Legacy: not allowed in a scoring policy document."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A keep policy with its parameter. Parameters of other policies are ignored.

    Raises:
        InvalidKeepPolicyError: the policy's parameter is out of its range.
    """

    policy: KeepPolicy = KeepPolicy.OFF
    drop_lowest_n: int = 0
    """Number of tasks to drop; the best one always stays."""
    threshold: float = 0.0
    """The lowest score that is kept."""

    def __post_init__(self) -> None:
        if self.policy is KeepPolicy.DROP_LOWEST_N and self.drop_lowest_n < 0:
            raise InvalidKeepPolicyError(
                f"drop-lowest-n has n = {self.drop_lowest_n}; expected 0 or more"
            )
        if self.policy is KeepPolicy.THRESHOLD_BAND and not 0.0 <= self.threshold <= 1.0:
            raise InvalidKeepPolicyError(
                f"threshold-band has threshold {self.threshold}; expected 0 to 1"
            )


def parse_aggregation(text: str | None) -> Aggregation:
    """Parse an aggregation, ignoring case and surrounding blanks; None means the mean."""
    if text is None:
        return Aggregation.MEAN
    try:
        return Aggregation(text.strip().lower())
    except ValueError as error:
        names = ", ".join(Aggregation)
        raise InvalidAggregationModeError(
            f"aggregation is {text!r}; expected one of {names}"
        ) from error


def parse_keep_policy(text: str | None) -> KeepPolicy:
    """Parse a keep policy, ignoring case and surrounding blanks; None keeps all tasks."""
    if text is None:
        return KeepPolicy.OFF
    try:
        return KeepPolicy(text.strip().lower())
    except ValueError as error:
        names = ", ".join(KeepPolicy)
        raise InvalidKeepPolicyError(f"keep policy is {text!r}; expected one of {names}") from error


def aggregate_trials(scores: Sequence[float], aggregation: Aggregation = Aggregation.MEAN) -> float:
    """Aggregate the scores of a task's trials.

    Raises:
        InvalidAggregationModeError: there are no trials, which is not a score of 0.
    """
    if not scores:
        raise InvalidAggregationModeError("a task has no trials; expected at least one score")
    return float(max(scores)) if aggregation is Aggregation.BEST_OF_K else _mean(scores)


def keep_scores(scores: Sequence[float], keep: Keep) -> list[float]:
    """Return the task scores that count, in the given order."""
    kept = [float(score) for score in scores]
    match keep.policy:
        case KeepPolicy.DROP_LOWEST_N:
            return _drop_lowest(kept, keep.drop_lowest_n)
        case KeepPolicy.THRESHOLD_BAND:
            return [score for score in kept if score >= keep.threshold]
        case KeepPolicy.BEST_OF_K:
            return [max(kept)] if kept else []
        case _:
            return kept


def job_score(scores: Sequence[float], keep: Keep) -> float:
    """The mean over the kept tasks; 0.0 if none is kept."""
    kept = keep_scores(scores, keep)
    return _mean(kept) if kept else 0.0


def passed_task(score: float) -> bool:
    """Whether a task with this score counts as solved."""
    return score >= 1.0


def _drop_lowest(scores: list[float], count: int) -> list[float]:
    """Drop the lowest scores, the earlier first among equals; the best score always stays."""
    ascending = sorted(range(len(scores)), key=scores.__getitem__)
    dropped = set(ascending[:-1][:count])
    return [score for index, score in enumerate(scores) if index not in dropped]


def _mean(scores: Sequence[float]) -> float:
    return float(exact_sum(float(score) for score in scores)) / len(scores)
