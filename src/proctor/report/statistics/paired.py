"""Compares two sides task by task: the difference, its interval, and a p-value.

Only tasks with scores on both sides are compared; the others are listed. Each task counts once,
however many attempts it has.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from proctor.errors import StatisticsError
from proctor.report.statistics.bootstrap import SEED, cluster_bootstrap
from proctor.report.statistics.intervals import CONFIDENCE, Interval
from proctor.report.statistics.signs import MCNEMAR, binomial_two_sided, sign_flip
from proctor.report.statistics.sums import finite_sum

FEWEST_TASKS: Final = 6
"""Fewer tasks cannot show a difference at 95%: a side that wins all of 5 does so by chance in one
of 16 cases (p = 0.0625)."""

# Means that differ by less are equal except for rounding.
_ALIKE = 1e-12


class PairedTask(msgspec.Struct, frozen=True):
    """One task with scores on both sides."""

    task: str
    mean_a: float
    mean_b: float
    n_a: int
    n_b: int
    difference: float
    """mean_a - mean_b; 0 if they differ only by rounding."""


class Paired(msgspec.Struct, frozen=True):
    """A compared with B."""

    n_tasks: int
    """Tasks with scores on both sides."""
    difference: float | None
    """The mean over tasks of mean_a - mean_b; null if there are none."""
    interval: Interval | None
    """Of the difference, by resampling tasks; null below 2 tasks, or if all differences are
    equal."""
    p_value: float | None
    """The probability of such a difference by chance; null without tasks."""
    method: str | None
    """mcnemar-exact, permutation-exact or permutation-monte-carlo."""
    wins: int
    """Tasks with a greater mean of A."""
    ties: int
    losses: int
    tasks: list[PairedTask]
    only_a: list[str]
    """Tasks with scores of A only: not compared."""
    only_b: list[str]

    @property
    def has_enough_tasks(self) -> bool:
        """Whether there are enough tasks for a conclusion."""
        return self.n_tasks >= FEWEST_TASKS


def compare_paired(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    *,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Paired:
    """Compare the rewards of two sides by task; a task without rewards counts as missing."""
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
