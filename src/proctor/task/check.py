"""Problems and notes about a task or a dataset.

A problem makes harbor skip a task, abort a job, or fail the task in every trial. A note is
something that harbor does silently and the author may not know. What a task requires of the
machine (Windows, GPUs, a TPU) is neither.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.dataset import load_dataset
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, find_faults, find_name, load_task

_COVERED = ("environment/", "tests/", "solution/", "steps/")


class TaskCheck(msgspec.Struct, frozen=True):
    """Findings about one directory of a dataset."""

    name: str
    """The name of the directory."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems and notes."""


class DatasetCheck(msgspec.Struct, frozen=True):
    """Findings about a dataset."""

    tasks: tuple[TaskCheck, ...]
    """The tasks that harbor accepts, by name."""
    skipped: tuple[TaskCheck, ...]
    """The directories that it silently skips, each with the reasons."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Findings about the dataset as a whole."""


def check_task(path: Path) -> list[Diagnostic]:
    """List problems first, then notes; empty if there are none."""
    faults = find_faults(path)
    if faults:
        return faults
    try:
        task = load_task(path)
    except TaskError as error:
        message = str(error).removeprefix(f"{os.path.realpath(path)}/")
        return [Diagnostic("unreadable-instruction", message)]
    try:
        digests = load_digests(task.directory)
    except TaskError as error:
        message = str(error).removeprefix(f"{task.directory}/")
        return [Diagnostic("cannot-be-hashed", message), *task.notes]
    return [*task.notes, *_find_notes(task), *_find_uncovered(task, digests)]


def check_dataset(path: Path) -> DatasetCheck:
    """Check every task, and every directory that harbor would skip."""
    dataset = load_dataset(path)
    tasks = tuple(TaskCheck(one.name, tuple(check_task(one.path))) for one in dataset.tasks)
    skipped = tuple(TaskCheck(one.name, one.faults) for one in dataset.skipped)
    whole = list(_find_shared_names([one.path for one in dataset.tasks]))
    if not tasks:
        whole.append(Diagnostic("no-task", "has no task that harbor accepts"))
    if "__" in dataset.name:
        message = "its name has '__' in it; harbor 0.13.1 then computes no metrics for it"
        whole.append(_note("dataset-name", message))
    return DatasetCheck(tasks, skipped, tuple(whole))


def _note(code: str, message: str) -> Diagnostic:
    return Diagnostic(code, message, is_problem=False)


def _find_notes(task: Task) -> Iterator[Diagnostic]:
    if not task.environment_directory.is_dir():
        yield _note("environment-not-directory", "environment is not a directory")
    if not task.steps and not task.instruction.strip():
        yield _note("empty-instruction", "instruction.md is empty")
    for step in task.steps:
        if not step.instruction.strip():
            yield _note("empty-instruction", f"steps/{step.name}/instruction.md is empty")
    yield from _find_missing_solutions(task)
    yield from _find_unused(task)


def _find_missing_solutions(task: Task) -> Iterator[Diagnostic]:
    script = f"solution/solve{task.config.environment.os.script_suffix}"
    for step in task.steps or (None,):
        if task.find_solution_script(step) is None:
            place = f"steps/{step.name}/{script}" if step else script
            yield _note("missing-solution", f"no {place}; the oracle agent would fail")


def _find_unused(task: Task) -> Iterator[Diagnostic]:
    """Files with a reserved name that harbor never uses in this task."""
    suffix = task.config.environment.os.script_suffix
    other = ".sh" if suffix == ".bat" else ".bat"
    root = task.directory
    if (root / f"tests/test{other}").exists():
        message = f"tests/test{other} is never run: the task is for {task.config.environment.os}"
        yield _note("unused-file", message)
    if not task.steps:
        if (root / "steps").is_dir():
            yield _note("unused-file", "steps/ is never used: task.toml names no steps")
        return
    if (root / "instruction.md").exists():
        message = "instruction.md is never shown: each step has its own"
        yield _note("unused-file", message)
    own = [task.find_test_script(step) != root / f"tests/test{suffix}" for step in task.steps]
    if all(own) and (root / f"tests/test{suffix}").exists():
        message = f"tests/test{suffix} is never run: each step has its own"
        yield _note("unused-file", message)
    named = {step.name for step in task.steps}
    for name in sorted(_list_directories(root / "steps") - named):
        yield _note("unused-file", f"steps/{name} is never used: task.toml does not name it")


def _list_directories(path: Path) -> set[str]:
    return {child.name for child in path.iterdir() if child.is_dir()} if path.is_dir() else set()


def _find_uncovered(task: Task, digests: TaskDigests) -> Iterator[Diagnostic]:
    """Files that harbor would use but a digest does not cover."""
    files = {file.path for file in digests.files}
    if hidden := sorted(path for path in files - digests.locked if path.startswith(_COVERED)):
        why = "ignored by .gitignore or harbor's default patterns"
        message = f"the digest in lock.json does not cover {_shown(hidden)}: {why}"
        yield _note("not-in-lock-digest", message)
    if links := sorted(_find_odd(task.directory)):
        message = f"dataset digest v1 does not cover {_shown(links)}: a link or special file"
        yield _note("not-in-dataset-digest", message)


def _shown(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _find_odd(directory: Path) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(parent, name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                yield path.relative_to(directory).as_posix()


def _find_shared_names(paths: list[Path]) -> Iterator[Diagnostic]:
    names = Counter(find_name(path) for path in paths)
    for name, count in sorted(names.items()):
        if count > 1:
            message = f"{count} tasks are named {name!r}; harbor counts them as one in pass@k"
            yield _note("shared-name", message)
