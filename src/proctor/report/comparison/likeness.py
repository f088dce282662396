"""What differs between two sides besides who sat the tasks, and what is done about it.

Tasks that are not on both sides, or of another revision there, are left out when that is asked for.
Other conditions cannot be left out: they are allowed aloud, or there is no comparison.
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


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in which the sides are not alike."""

    what: str
    """dataset, backend, profile, limits of the run, image, limits of a task, or revision."""
    a: str
    b: str
    tasks: tuple[str, ...] = ()
    """Where it is so; empty: everywhere."""

    def __str__(self) -> str:
        where = f" of {count_of(len(self.tasks), 'task')} ({name_some(self.tasks)})"
        return f"{self.what}{where if self.tasks else ''}: A has {self.a}, B has {self.b}"


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """How alike two sides are."""

    common: tuple[str, ...]
    """Tasks on both sides."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    revised: tuple[str, ...]
    """Common tasks whose revision is not the same on both sides, or not one."""
    differences: tuple[Difference, ...]
    """All other conditions that differ."""
    notes: tuple[str, ...]
    """What cannot be told."""

    @property
    def has_same_tasks(self) -> bool:
        """Whether both sat the same tasks at the same revisions."""
        return not (self.only_a or self.only_b or self.revised)


def find_likeness(a: Side, b: Side) -> Likeness:
    """Hold two sides against each other."""
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


def _revisions(attempts: Sequence[TrialRow]) -> set[str]:
    return {_conditions(attempt).revision for attempt in attempts}


def _conditions(attempt: TrialRow) -> TaskConditions:
    return attempt.task_conditions or TaskConditions(revision=UNKNOWN, image=_NOT_KNOWN)


_OF_A_RUN: dict[str, Callable[[TrialRow], str]] = {
    "dataset": lambda attempt: attempt.recorded_dataset or _NOT_KNOWN,
    "backend": lambda attempt: (
        attempt.run_conditions.backend if attempt.run_conditions else _NOT_KNOWN
    ),
    "scoring profile": lambda attempt: (
        (attempt.run_conditions.profile if attempt.run_conditions else None) or "none"
    ),
    "limits of the run": lambda attempt: _changed(attempt),
}


def _changed(attempt: TrialRow) -> str:
    changed = attempt.run_conditions.changed if attempt.run_conditions else {}
    return ", ".join(f"{name} {value}" for name, value in sorted(changed.items())) or "the default"


def _of_runs(a: Side, b: Side) -> Iterable[Difference]:
    for what, of in _OF_A_RUN.items():
        ours, theirs = ({of(each) for each in side.attempts} for side in (a, b))
        # What is not on record may be the same: that is a note.
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
_UNTOLD = frozenset({_NOT_KNOWN, "unresolved"})
"""What a record says of an image or limits that it does not know."""


def _of_tasks(a: Side, b: Side, common: Sequence[str]) -> Iterable[Difference]:
    """Conditions of single tasks; those that differ in the same way are one difference."""
    for what in _OF_A_TASK:
        found: dict[tuple[str, str], list[str]] = {}
        for task in common:
            ours, theirs = _told(what, a, task), _told(what, b, task)
            if ours != theirs and not _UNTOLD & {ours, theirs}:
                found.setdefault((ours, theirs), []).append(task)
        for (ours, theirs), tasks in found.items():
            yield Difference(what=what, a=ours, b=theirs, tasks=tuple(tasks))


def _told(what: str, side: Side, task: str) -> str:
    return _list({_OF_A_TASK[what](_conditions(each)) for each in side.tasks[task]})


def _find_notes(a: Side, b: Side, common: Sequence[str]) -> Iterable[str]:
    """What is on record on one side only, or nowhere: it may be alike or not."""
    for what, of in _OF_A_RUN.items():
        told = {side.letter: {of(each) for each in side.attempts} for side in (a, b)}
        silent = [letter for letter, values in told.items() if values == {_NOT_KNOWN}]
        if len(silent) == 1:
            yield f"the {what} of {silent[0]} is not on record"
    for what in _OF_A_TASK:
        tasks = [t for t in common if _UNTOLD & {_told(what, a, t), _told(what, b, t)}]
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
        if not _UNTOLD & {_told("image", a, task), _told("image", b, task)}
        and not all(_conditions(each).has_pinned_image for each in (*a.tasks[task], *b.tasks[task]))
    ]
    if loose:
        which = count_of(len(loose), "task")
        yield f"the image of {which} is not pinned by a digest: it may have changed in between"


def name_some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def check_likeness(likeness: Likeness, *, common: bool, allow_unlike: bool) -> None:
    """See that the sides may be compared as asked.

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
    """The tasks that are compared, once the sides were found to be alike enough."""
    left_out = set(likeness.revised) if common else set()
    return [task for task in likeness.common if task not in left_out]
