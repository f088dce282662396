"""From trials to a task's score, and from tasks to a job's score, by a named policy.

Which tasks are kept changes the score only: how many tasks there are and how many passed is
always counted over all of them. No policy draws lots, and none guesses at a misspelt name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from proctor.errors import InvalidAggregationModeError, InvalidKeepPolicyError
from proctor.reward.number import exact_sum


class Aggregation(StrEnum):
    """How the trials of one task become its score."""

    MEAN = "mean"
    BEST_OF_K = "best-of-k"


class KeepPolicy(StrEnum):
    """Which tasks count for the job's score."""

    OFF = "off"
    DROP_LOWEST_N = "drop-lowest-n"
    THRESHOLD_BAND = "threshold-band"
    BEST_OF_K = "best-of-k"
    """The single best task. Legacy: a scoring policy document may not name it."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A keep policy with its parameter. A parameter of another policy is not looked at.

    Raises:
        InvalidKeepPolicyError: the policy's parameter is out of its range.
    """

    policy: KeepPolicy = KeepPolicy.OFF
    drop_lowest_n: int = 0
    """Tasks to leave out; the best one stays, however large this is."""
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
    """The aggregation of that name, in any case and with blanks around it; None is the mean."""
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
    """The keep policy of that name, in any case and with blanks around it; None keeps all."""
    if text is None:
        return KeepPolicy.OFF
    try:
        return KeepPolicy(text.strip().lower())
    except ValueError as error:
        names = ", ".join(KeepPolicy)
        raise InvalidKeepPolicyError(f"keep policy is {text!r}; expected one of {names}") from error


def aggregate_trials(scores: Sequence[float], aggregation: Aggregation = Aggregation.MEAN) -> float:
    """One score for a task.

    Raises:
        InvalidAggregationModeError: there are no trials, which is not a score of 0.
    """
    if not scores:
        raise InvalidAggregationModeError("a task has no trials; expected at least one score")
    return float(max(scores)) if aggregation is Aggregation.BEST_OF_K else _mean(scores)


def keep_scores(scores: Sequence[float], keep: Keep) -> list[float]:
    """The task scores that count, in the order given."""
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
    """The mean over the tasks that are kept; 0.0 if none is."""
    kept = keep_scores(scores, keep)
    return _mean(kept) if kept else 0.0


def passed_task(score: float) -> bool:
    """Whether a task with this score counts as solved."""
    return score >= 1.0


def _drop_lowest(scores: list[float], count: int) -> list[float]:
    """Without the lowest; of equal ones the earlier goes first. The last one left stays."""
    ascending = sorted(range(len(scores)), key=scores.__getitem__)
    dropped = set(ascending[:-1][:count])
    return [score for index, score in enumerate(scores) if index not in dropped]


def _mean(scores: Sequence[float]) -> float:
    return float(exact_sum(float(score) for score in scores)) / len(scores)
