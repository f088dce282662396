"""Check task directories and datasets: what harbor would silently skip, and why."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.audit.checks.checked import Checked
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.check import DatasetCheck, TaskCheck, check_dataset, check_task
from proctor.task.digests import load_digests


def check_task_directory(path: str) -> Checked:
    """Check one task: whether harbor accepts it, and what its author may not know."""
    found = check_task(Path(path))
    taken = not any(each.is_problem for each in found)
    return Checked(
        path=path,
        thing=FileKind.TASK,
        summary=_find_revision(path) if taken else "harbor would reject it",
        diagnostics=tuple(found),
    )


def _find_revision(path: str) -> str:
    try:
        return f"task_checksum {load_digests(Path(path)).task_checksum}"
    except TaskError as error:
        return str(error)


def check_dataset_directory(path: str) -> Checked:
    """Check every directory of a dataset."""
    found = check_dataset(Path(path))
    taken, skipped = len(found.tasks), len(found.skipped)
    return Checked(
        path=path,
        thing=FileKind.DATASET,
        summary=f"harbor accepts {taken:,} of {taken + skipped:,} directories",
        diagnostics=tuple(_find_all(found)),  # all of them: each task is named
    )


def _find_all(found: DatasetCheck) -> Iterator[Diagnostic]:
    yield from found.diagnostics
    for skipped in found.skipped:
        yield from _named(skipped, "skipped: ")
    for task in found.tasks:
        yield from _named(task, "")


def _named(task: TaskCheck, prefix: str) -> Iterator[Diagnostic]:
    for each in task.diagnostics:
        message = f"{task.name}: {prefix}{each.message}"
        yield msgspec.structs.replace(each, message=message, line=None)
