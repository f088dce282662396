"""Two sides, task by task: who is better, by how much, and whether chance would do as well.

Only tasks that both sides were scored at are compared; the others are named. Each task counts once,
however many attempts it has.
"""

from collections.abc import Mapping, Sequence

import msgspec

from proctor.errors import StatisticsError
from proctor.report.statistics.bootstrap import SEED, cluster_bootstrap
from proctor.report.statistics.intervals import CONFIDENCE, Interval
from proctor.report.statistics.signs import MCNEMAR, binomial_two_sided, sign_flip
from proctor.report.statistics.sums import finite_sum

_ALIKE = 1e-12
"""Means that differ by less are one number that was rounded twice."""


class PairedTask(msgspec.Struct, frozen=True):
    """One task, scored on both sides."""

    task: str
    mean_a: float
    mean_b: float
    n_a: int
    n_b: int
    difference: float
    """mean_a - mean_b; 0 where they differ by rounding alone."""


class Paired(msgspec.Struct, frozen=True):
    """A compared with B."""

    n_tasks: int
    """Scored on both sides."""
    difference: float | None
    """The mean over tasks of A's mean less B's; null where no task is on both sides."""
    interval: Interval | None
    """Of the difference, by drawing tasks; null below 2 tasks, and where all differ alike."""
    p_value: float | None
    """How often chance alone gives as large a difference; null without tasks."""
    method: str | None
    """mcnemar-exact, permutation-exact or permutation-monte-carlo."""
    wins: int
    """Tasks at which A's mean is greater."""
    ties: int
    losses: int
    tasks: list[PairedTask]
    only_a: list[str]
    """Tasks that only A was scored at: not compared."""
    only_b: list[str]


def compare_paired(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    *,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Paired:
    """Compare the rewards of two sides by task; a task without rewards on a side is not there.

    Exact McNemar where every task has one attempt of 0 or 1 on each side; else a sign-flip
    permutation test over the tasks' differences: exact where they are few or lie on a grid, else
    from random flips with a fixed seed.

    Raises:
        StatisticsError: a reward is not finite, or no confidence.
    """
    scored_a, scored_b = ({t for t in side if side[t]} for side in (a, b))
    tasks = [_pair(task, a[task], b[task]) for task in a if task in scored_a & scored_b]
    differences = [task.difference for task in tasks]
    wins = sum(each > 0 for each in differences)
    losses = sum(each < 0 for each in differences)
    p_value, method = None, None
    if tasks and all(_is_single_binary(a[each.task], b[each.task]) for each in tasks):
        p_value, method = binomial_two_sided(wins, losses), MCNEMAR
    elif tasks:
        p_value, method = sign_flip(differences, seed)
    return Paired(
        n_tasks=len(tasks),
        difference=finite_sum(differences) / len(tasks) if tasks else None,
        interval=cluster_bootstrap([[e] for e in differences], seed=seed, confidence=confidence),
        p_value=p_value,
        method=method,
        wins=wins,
        ties=len(tasks) - wins - losses,
        losses=losses,
        tasks=tasks,
        only_a=[task for task in a if task in scored_a - scored_b],
        only_b=[task for task in b if task in scored_b - scored_a],
    )


def _pair(task: str, a: Sequence[float], b: Sequence[float]) -> PairedTask:
    try:
        mean_a, mean_b = finite_sum(a) / len(a), finite_sum(b) / len(b)
        difference = finite_sum((mean_a, -mean_b))
    except StatisticsError as error:
        raise StatisticsError(f"task {task}: {error}") from error
    if abs(difference) <= _ALIKE * max(abs(mean_a), abs(mean_b)):
        difference = 0.0
    return PairedTask(task, mean_a, mean_b, len(a), len(b), difference)


def _is_single_binary(a: Sequence[float], b: Sequence[float]) -> bool:
    return len(a) == len(b) == 1 and a[0] in (0, 1) and b[0] in (0, 1)
