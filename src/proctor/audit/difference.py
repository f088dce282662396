"""Compare two runs task by task: reward, status, reason and resolved, exactly.

Attempts at a task are compared in order. nan equals nan. If each side has one agent, the agents'
names are ignored; otherwise tasks are matched within their groups.
"""

from collections.abc import Iterator, Sequence

import msgspec

from proctor.harbor.job import Job
from proctor.harbor.stats import Trial
from proctor.record.reasons import reason_for_exception
from proctor.reward.number import Number


class Attempt(msgspec.Struct, frozen=True):
    """The result of one attempt."""

    reward: Number | None
    """The reward named `reward`, else the only one; None if there is no such reward."""
    status: str
    """completed, or errored when there was an exception."""
    reason: str | None
    """Reason code of the exception."""
    resolved: bool


class RunDifference(msgspec.Struct, frozen=True):
    """One difference between two runs."""

    task: str
    attempt: int
    """Number of the attempt, from 1; 0 for the task as a whole."""
    field: str
    left: str
    right: str


def compare_runs(left: Job, right: Job, epsilon: float = 0.0) -> list[RunDifference]:
    """List the differences between two jobs, in the order of the left one's tasks."""
    one_group = len(_keys(left)) <= 1 and len(_keys(right)) <= 1
    ours, theirs = (_attempts(job, one_group=one_group) for job in (left, right))
    found: list[RunDifference] = []
    for task in ours | theirs:
        found.extend(_compare_task(task, ours.get(task), theirs.get(task), epsilon))
    return found


def _compare_task(
    task: str, left: Sequence[Attempt] | None, right: Sequence[Attempt] | None, epsilon: float
) -> Iterator[RunDifference]:
    if left is None or right is None:
        sides = (
            "missing" if left is None else "present",
            "missing" if right is None else "present",
        )
        yield RunDifference(task, 0, "task", *sides)
        return
    if len(left) != len(right):
        yield RunDifference(task, 0, "attempts", str(len(left)), str(len(right)))
    for number, (ours, theirs) in enumerate(zip(left, right, strict=False), 1):
        if not _same_reward(ours.reward, theirs.reward, epsilon):
            yield RunDifference(task, number, "reward", repr(ours.reward), repr(theirs.reward))
        for field in ("status", "reason", "resolved"):
            mine, other = getattr(ours, field), getattr(theirs, field)
            if mine != other:
                yield RunDifference(task, number, field, str(mine), str(other))


def _same_reward(left: Number | None, right: Number | None, epsilon: float) -> bool:
    if left is None or right is None:
        return left is right
    if left == right or (left != left and right != right):
        return True
    try:
        return abs(left - right) <= epsilon
    except OverflowError:  # an int beyond the range of floats
        return False


def _attempts(job: Job, *, one_group: bool) -> dict[str, list[Attempt]]:
    attempts: dict[str, list[Attempt]] = {}
    for found in job.trials:
        trial = found.trial
        name = trial.task if one_group else f"{trial.evals_key} {trial.task}"
        attempts.setdefault(name, []).append(attempt_of(trial))
    return attempts


def attempt_of(trial: Trial) -> Attempt:
    """The result of a trial."""
    rewards = (trial.verdict.rewards if trial.verdict else None) or {}
    reward = rewards.get("reward")
    if reward is None and len(rewards) == 1:
        (reward,) = rewards.values()
    reason = reason_for_exception(trial.exception)
    return Attempt(
        reward=reward,
        status="completed" if trial.exception is None else "errored",
        reason=None if reason is None else str(reason),
        resolved=reward is not None and reward >= 1.0,
    )


def _keys(job: Job) -> set[str]:
    return {found.trial.evals_key for found in job.trials}
