"""Differences between two sides other than agent and model.

Tasks that are not on both sides in the same revision can be left out on request. Other differences
cannot be left out: they must be allowed explicitly, or there is no comparison.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from proctor.errors import InputError
from proctor.ledger.row import TrialRow
from proctor.record.comparable import UNKNOWN, TaskConditions
from proctor.report.comparison.sides import Side
from proctor.sentence import count_of

_NAMED = 5
_NOT_KNOWN = "not known"


# Images of trials that ran on the machine's own system.
_HOST = "host:"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between the sides."""

    what: str
    """dataset, backend, profile, limits of the run, image, limits of a task, or revision."""
    a: str
    b: str
    tasks: tuple[str, ...] = ()
    """Tasks that it applies to; empty: all."""

    def __str__(self) -> str:
        where = f" of {count_of(len(self.tasks), 'task')} ({name_some(self.tasks)})"
        return f"{self.what}{where if self.tasks else ''}: A has {self.a}, B has {self.b}"


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between two sides."""

    common: tuple[str, ...]
    """Tasks on both sides."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    revised: tuple[str, ...]
    """Common tasks whose revision differs between the sides, or is not unique."""
    differences: tuple[Difference, ...]
    """All other conditions that differ."""
    notes: tuple[str, ...]
    """What is not known."""

    @property
    def has_same_tasks(self) -> bool:
        """Whether both ran the same tasks at the same revisions."""
        return not (self.only_a or self.only_b or self.revised)


def compare_conditions(a: Side, b: Side) -> Likeness:
    """Compare the conditions of two sides."""
    common = tuple(task for task in a.tasks if task in b.tasks)
    revised = tuple(
        task for task in common if _revisions(a.tasks[task]) != _revisions(b.tasks[task])
    )
    return Likeness(
        common=common,
        only_a=tuple(task for task in a.tasks if task not in b.tasks),
        only_b=tuple(task for task in b.tasks if task not in a.tasks),
        revised=revised,
        differences=(*_of_runs(a, b), *_of_tasks(a, b, common)),
        notes=tuple(_find_notes(a, b, common)),
    )


def _revisions(rows: Sequence[TrialRow]) -> set[str]:
    return {_conditions(row).revision for row in rows}


def _conditions(row: TrialRow) -> TaskConditions:
    return row.task_conditions or TaskConditions(revision=UNKNOWN, image=_NOT_KNOWN)


_OF_A_RUN: dict[str, Callable[[TrialRow], str]] = {
    "dataset": lambda row: row.recorded_dataset or _NOT_KNOWN,
    "backend": lambda row: row.run_conditions.backend if row.run_conditions else _NOT_KNOWN,
    "scoring profile": lambda row: (
        (row.run_conditions.profile if row.run_conditions else None) or "none"
    ),
    "limits of the run": lambda row: _changed(row),
}


def _changed(row: TrialRow) -> str:
    changed = row.run_conditions.changed if row.run_conditions else {}
    return ", ".join(f"{name} {value}" for name, value in sorted(changed.items())) or "the default"


def _of_runs(a: Side, b: Side) -> Iterable[Difference]:
    for what, of in _OF_A_RUN.items():
        ours, theirs = ({of(each) for each in side.trials} for side in (a, b))
        # Conditions that are not on record may be equal: that is only a note.
        if ours != theirs and {_NOT_KNOWN} not in (ours, theirs):
            yield Difference(what=what, a=_list(ours), b=_list(theirs))


def _list(values: Iterable[str]) -> str:
    return " and ".join(sorted(values))


_OF_A_TASK: dict[str, Callable[[TaskConditions], str]] = {
    "image": lambda found: found.image,
    "limits": lambda found: (
        ", ".join(f"{name} {value}" for name, value in sorted(found.limits.items())) or _NOT_KNOWN
    ),
}
# Values in records for an unknown image or limit.
_UNKNOWN_VALUES = frozenset({_NOT_KNOWN, "unresolved"})


def _of_tasks(a: Side, b: Side, common: Sequence[str]) -> Iterable[Difference]:
    """Differences in the conditions of tasks; equal differences are combined."""
    for what in _OF_A_TASK:
        found: dict[tuple[str, str], list[str]] = {}
        for task in common:
            ours, theirs = _condition(what, a, task), _condition(what, b, task)
            if ours != theirs and not _UNKNOWN_VALUES & {ours, theirs}:
                found.setdefault((ours, theirs), []).append(task)
        for (ours, theirs), tasks in found.items():
            yield Difference(what=what, a=ours, b=theirs, tasks=tuple(tasks))


def _condition(what: str, side: Side, task: str) -> str:
    return _list({_OF_A_TASK[what](_conditions(each)) for each in side.tasks[task]})


def _find_notes(a: Side, b: Side, common: Sequence[str]) -> Iterable[str]:
    """Conditions that are on record on one side only, or on none."""
    for what, of in _OF_A_RUN.items():
        by_side = {side.letter: {of(each) for each in side.trials} for side in (a, b)}
        silent = [letter for letter, values in by_side.items() if values == {_NOT_KNOWN}]
        if len(silent) == 1:
            yield f"the {what} of {silent[0]} is not on record"
    for what in _OF_A_TASK:
        tasks = [
            t for t in common if _UNKNOWN_VALUES & {_condition(what, a, t), _condition(what, b, t)}
        ]
        if tasks:
            which = count_of(len(tasks), "task")
            yield f"not on record on both sides: the {what} of {which} ({name_some(tasks)})"
    revisions = {task: _revisions(a.tasks[task]) | _revisions(b.tasks[task]) for task in common}
    unknown = [task for task in common if UNKNOWN in revisions[task]]
    if unknown:
        which = count_of(len(unknown), "task")
        yield f"the revision of {which} is not on record: {name_some(unknown)}"
    yield from _find_loose(a, b, common)
    uneven = [task for task in common if len(a.tasks[task]) != len(b.tasks[task])]
    if uneven:
        which = count_of(len(uneven), "task")
        yield f"{which} with unlike numbers of attempts, counting once each: {name_some(uneven)}"


def _find_loose(a: Side, b: Side, common: Sequence[str]) -> Iterable[str]:
    loose = [
        task
        for task in common
        if not _UNKNOWN_VALUES & {_condition("image", a, task), _condition("image", b, task)}
        and not all(_conditions(each).has_pinned_image for each in (*a.tasks[task], *b.tasks[task]))
    ]
    if loose:
        which = count_of(len(loose), "task")
        yield f"the image of {which} is not pinned by a digest: it may have changed in between"


def name_some(names: Sequence[str]) -> str:
    """The first few names, and the number of others."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def check_likeness(likeness: Likeness, *, common: bool, allow_unlike: bool) -> None:
    """Check that the sides may be compared.

    Raises:
        InputError: they may not; the sentence lists what differs and what can be done.
    """
    if not likeness.common:
        raise InputError(
            f"A and B have no task in common: A has {name_some(likeness.only_a)}; "
            f"B has {name_some(likeness.only_b)}"
        )
    if common and len(likeness.revised) == len(likeness.common):
        raise InputError(
            "every task that A and B have in common is of another revision there; "
            "--allow-unlike without --common compares them anyway"
        )
    found: list[str] = []
    advice: list[str] = []
    if not likeness.has_same_tasks and not common:
        found += _tell_tasks(likeness, allow_unlike=allow_unlike)
        if found:
            advice.append(
                "--common compares the tasks that both have at one revision "
                f"({len(likeness.common) - len(likeness.revised)})"
            )
    if not allow_unlike and likeness.differences:
        found += [str(each) for each in likeness.differences]
        if any(
            each.a.startswith(_HOST) and each.b.startswith(_HOST) for each in likeness.differences
        ):
            advice.append("an image host:… is the machine's own system, whose packages changed")
        advice.append("--allow-unlike compares under unlike conditions, and says so")
    if found:
        raise InputError(f"A and B are not alike: {'; '.join(found)}. {'; '.join(advice)}")


def _tell_tasks(likeness: Likeness, *, allow_unlike: bool) -> Iterable[str]:
    for letter, names in (("A", likeness.only_a), ("B", likeness.only_b)):
        if names:
            yield f"{count_of(len(names), 'task')} only in {letter} ({name_some(names)})"
    if likeness.revised and not allow_unlike:
        which = count_of(len(likeness.revised), "task")
        yield f"{which} of another revision ({name_some(likeness.revised)})"


def choose_tasks(likeness: Likeness, *, common: bool) -> list[str]:
    """The tasks to compare, after `check_likeness`."""
    left_out = set(likeness.revised) if common else set()
    return [task for task in likeness.common if task not in left_out]
