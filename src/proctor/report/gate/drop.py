"""A run against another one, task by task: how far did it drop?

Only tasks that both ran are compared, and only where both ran the same revision of it; the others
are named. A trial without a reward is 0 on both sides, as in the mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import InputError
from proctor.record.comparable import UNKNOWN_REVISION
from proctor.report.gate.limits import Limits
from proctor.report.gate.measured import Measured, MeasuredTrial
from proctor.report.gate.numbers import group_by_task, values_of
from proctor.report.statistics.paired import Paired, compare_paired


@dataclass(frozen=True, slots=True)
class Drop:
    """A group compared with one of the baseline."""

    baseline: str
    paired: Paired
    changed: list[str]
    """Tasks of which the two ran different revisions: not compared."""


def find_baseline(key: str, measured: Measured, baseline: Measured) -> list[MeasuredTrial]:
    """The trials of the baseline that a group is compared with: its only group, or the same one.

    Raises:
        InputError: it has several groups, and not this one.
    """
    groups = baseline.groups
    if len(groups) == 1:
        return next(iter(groups.values()))
    if key not in groups:
        raise InputError(
            f"{baseline.name}: has the groups {', '.join(groups) or '-'}; expected one, or the "
            f"groups of {measured.name}: {', '.join(measured.groups)}"
        )
    return groups[key]


def compare_with(
    trials: Sequence[MeasuredTrial], baseline: Sequence[MeasuredTrial], name: str, limits: Limits
) -> Drop:
    """How a group compares with one of the baseline.

    Raises:
        InputError: which reward counts is not said, or one is not finite.
    """
    sides = [group_by_task(side, values_of(side, limits)[1]) for side in (trials, baseline)]
    ours, theirs = _find_revisions(trials), _find_revisions(baseline)
    changed = [
        task for task, known in ours.items() if known and theirs.get(task) and known != theirs[task]
    ]
    kept: list[Mapping[str, Sequence[float]]] = [
        {task: values for task, values in side.items() if task not in changed} for side in sides
    ]
    return Drop(name, compare_paired(*kept), changed)


def _find_revisions(trials: Sequence[MeasuredTrial]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for trial in trials:
        known = found.setdefault(trial.task, set())
        if trial.revision is not None and trial.revision != UNKNOWN_REVISION:
            known.add(trial.revision)
    return found
