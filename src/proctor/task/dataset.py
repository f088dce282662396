"""A directory of tasks, and the directories in it that harbor skips.

harbor accepts every direct child that is a valid task and silently skips the others. Here each
skipped directory has its reasons. Files are never tasks and are not listed.
"""

import os
from pathlib import Path

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.directory import CONFIG, INSTRUCTION, find_faults
from proctor.task.presence import is_directory

# A directory with none of these was probably not meant to be a task.
_SIGNS = (INSTRUCTION, "environment", "tests", "solution")


class Candidate(msgspec.Struct, frozen=True):
    """One directory in a dataset."""

    path: Path
    """Its path."""
    faults: tuple[Diagnostic, ...] = ()
    """Why harbor skips it; empty if it accepts it."""

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.name

    @property
    def is_task(self) -> bool:
        """Whether harbor accepts it."""
        return not self.faults


class Dataset(msgspec.Struct, frozen=True):
    """A directory of tasks."""

    path: Path
    """Its path."""
    candidates: tuple[Candidate, ...]
    """Every directory in it, sorted by name. harbor uses the order of the file system."""

    @property
    def tasks(self) -> tuple[Candidate, ...]:
        """The directories that harbor accepts."""
        return tuple(found for found in self.candidates if found.is_task)

    @property
    def skipped(self) -> tuple[Candidate, ...]:
        """The directories that harbor skips."""
        return tuple(found for found in self.candidates if not found.is_task)

    @property
    def name(self) -> str:
        """The name of the directory: `source` of a trial's result."""
        return Path(os.path.realpath(self.path)).name


def load_dataset(path: Path) -> Dataset:
    """Load a dataset: every directory in it, whether or not it is a task.

    Raises:
        TaskError: it cannot be listed.
    """
    try:
        children = sorted(child for child in path.iterdir() if _may_be_directory(child))
    except OSError as error:
        raise TaskError(f"{path}: cannot be listed: {error.strerror}") from error
    return Dataset(path, tuple(Candidate(child, tuple(_find_faults(child))) for child in children))


def is_task_directory(path: Path) -> bool:
    """Whether a directory is, or was meant to be, a task: it has a task.toml."""
    return os.path.lexists(path / CONFIG)


def was_meant_as_task(path: Path) -> bool:
    """Whether a directory has any file or directory that is typical of a task."""
    return is_task_directory(path) or any(os.path.lexists(path / sign) for sign in _SIGNS)


def _may_be_directory(child: Path) -> bool:
    try:
        return is_directory(child)
    except OSError:
        # Keep it, so that it is listed with this error as its fault: harbor aborts a job on it.
        return True


def _find_faults(child: Path) -> list[Diagnostic]:
    faults = find_faults(child)
    if faults and not was_meant_as_task(child) and faults[0].code == "missing-config":
        message = "no task.toml, and no other part of a task"
        return [Diagnostic("not-a-task", message, is_problem=False)]
    return faults
