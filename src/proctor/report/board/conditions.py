"""Describes conditions of runs and tasks, and how two of them differ."""

from collections.abc import Iterator, Mapping

from proctor.record.comparable import RunConditions, TaskConditions
from proctor.sentence import count_of

# Characters of a digest that are shown to people.
_SHOWN = 16


def describe_run(run: RunConditions) -> str:
    """The conditions of a run that its tasks do not set."""
    rules = run.profile or "scored elsewhere"
    # For an import path, show only the class: `apart` has the path where it matters.
    backend = run.backend.rpartition(":")[2]
    if run.has_default_limits:
        return f"{backend}, {rules}, default limits"
    changed = ", ".join(f"{name} {_spell(value)}" for name, value in sorted(run.changed.items()))
    return f"{backend}, {rules}, {changed}"


def describe_tasks(tasks: Mapping[str | None, TaskConditions]) -> str:
    """The conditions of the tasks in a section."""
    said = count_of(len(tasks), "task")
    pinned = sum(each.has_pinned_image for each in tasks.values())
    images = "all images pinned" if pinned == len(tasks) else f"{pinned} images pinned"
    limited = sum(bool(each.limits) for each in tasks.values())
    if limited == len(tasks):
        return f"{said}, {images}"
    some = f"of {len(tasks) - limited} " if limited else ""
    return f"{said}, {images}, limits {some}not on record"


def run_differences(one: RunConditions, other: RunConditions) -> Iterator[str]:
    """The differences between the conditions of two runs."""
    if one.backend != other.backend:
        yield f"run by {one.backend}, not {other.backend}"
    if one.profile != other.profile:
        yield f"scored by {one.profile or 'others'}, not {other.profile or 'others'}"
    for name in sorted({*one.changed, *other.changed}):
        mine, theirs = one.changed.get(name), other.changed.get(name)
        if mine != theirs:
            yield f"{name} {_spell(mine)}, not {_spell(theirs)}"


def task_difference(task: str, one: TaskConditions, other: TaskConditions) -> str:
    """The first difference between the conditions of a task in two sections."""
    if one.revision != other.revision:
        return f"{task} is at revision {_cut(one.revision)}, not {_cut(other.revision)}"
    if one.image != other.image:
        return f"{task} ran in {_cut_image(one.image)}, not {_cut_image(other.image)}"
    for name in sorted({*one.limits, *other.limits}):
        mine, theirs = one.limits.get(name), other.limits.get(name)
        if mine != theirs or (name in one.limits) != (name in other.limits):
            return f"{task} had {name} {_spell(mine)}, not {_spell(theirs)}"
    marked, then = (each.verifier or "unrecorded files" for each in (one, other))
    return f"{task} was scored by {marked}, not {then}"


def _spell(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _cut_image(image: str) -> str:
    name, mark, digest = image.partition("@sha256:")
    return f"{name}{mark}{_cut(digest)}" if mark else image
