"""`proctor task digest`: prints the digests that pin tasks and datasets."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.diagnostic import Diagnostic
from proctor.errors import InputError
from proctor.report.page.columns import draw_table
from proctor.sentence import count_of, printable, render_size
from proctor.task.dataset import Candidate, Dataset, is_task_directory, load_dataset
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import find_faults, find_name
from proctor.task.manifest import dataset_digest


@click.command("digest")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option("--files", "with_files", is_flag=True, help="List every file and its SHA-256.")
@json_option
def command(paths: tuple[str, ...], with_files: bool, as_json: bool) -> int:
    """Print the digests of tasks and datasets.

    For a task: the task_checksum that harbor writes into a trial's result, the digest that it
    writes into a job's lock.json, and the task's digest in dataset digest v1. For a dataset: the
    same for every task that harbor accepts, and dataset digest v1 over them. A task that harbor
    would not accept has digests too, and its problems are listed.

    Example: proctor task digest tasks/hello-world
    """
    check_apart("with_files", "as_json")
    found = [_load(path) for path in paths]
    if as_json:
        print_json({"digests": [one.document for one in found]})
        return 0
    for number, one in enumerate(found):
        if number:
            print_line()
        _print(one, with_files=with_files)
    return 0


class _Task(msgspec.Struct, frozen=True):
    """A task with its digests."""

    path: str
    name: str
    digests: TaskDigests
    faults: tuple[Diagnostic, ...]

    @property
    def document(self) -> dict[str, object]:
        digests = self.digests
        return {
            "kind": "task",
            "path": self.path,
            "name": self.name,
            "task_checksum": digests.task_checksum,
            "lock_digest": f"sha256:{digests.lock_digest}",
            "dataset_v1": digests.dataset_v1,
            "n_files": len(digests.files),
            "n_bytes": digests.size,
            "faults": _documents(self.faults),
            "files": [
                {
                    "path": file.path,
                    "sha256": file.sha256,
                    "bytes": file.size,
                    "in_lock_digest": file.path in digests.locked,
                }
                for file in digests.files
            ],
        }


class _Dataset(msgspec.Struct, frozen=True):
    """A dataset with its digests."""

    path: str
    name: str
    digest: str
    tasks: tuple[_Task, ...]
    skipped: tuple[Candidate, ...]

    @property
    def document(self) -> dict[str, object]:
        return {
            "kind": "dataset",
            "path": self.path,
            "name": self.name,
            "dataset_v1": self.digest,
            "n_tasks": len(self.tasks),
            "tasks": [task.document for task in self.tasks],
            "skipped": [
                {"name": one.name, "reasons": _documents(one.faults)} for one in self.skipped
            ],
        }


def _load(path: str) -> _Task | _Dataset:
    directory = Path(path)
    try:
        if not directory.is_dir():
            what = "not a directory" if directory.exists() else "does not exist"
            raise InputError(f"{path}: {what}; expected a task directory or a dataset of them")
        if is_task_directory(directory):
            return _load_task(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    dataset = load_dataset(directory)
    if not any(is_task_directory(one.path) for one in dataset.candidates):
        raise InputError(_explain_neither(path, dataset))
    return _load_dataset(path, dataset)


def _explain_neither(path: str, dataset: Dataset) -> str:
    n = len(dataset.candidates)
    found = f"no task.toml, neither here nor in its {n} directories" if n else "no task.toml"
    return f"{path}: {found}; expected a task directory or a dataset of them"


def _load_task(path: str) -> _Task:
    directory = Path(path)
    faults = tuple(find_faults(directory))
    return _Task(path, find_name(directory), load_digests(directory), faults)


def _load_dataset(path: str, dataset: Dataset) -> _Dataset:
    tasks = tuple(_load_task(str(one.path)) for one in dataset.tasks)
    by_name = {
        one.name: task.digests.dataset_v1 for one, task in zip(dataset.tasks, tasks, strict=True)
    }
    return _Dataset(path, dataset.name, dataset_digest(by_name), tasks, dataset.skipped)


def _documents(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    return [{"code": found.code, "message": str(found)} for found in diagnostics]


def _print(found: _Task | _Dataset, *, with_files: bool) -> None:
    if isinstance(found, _Task):
        _print_task(found, with_files=with_files)
    else:
        _print_dataset(found, with_files=with_files)


def _print_task(task: _Task, *, with_files: bool) -> None:
    digests = task.digests
    print_line(f"{task.name}, {count_of(len(digests.files), 'file')}, {render_size(digests.size)}")
    print_line(f"  task_checksum  {digests.task_checksum}")
    print_line(f"  lock digest    sha256:{digests.lock_digest}")
    print_line(f"  dataset v1     {digests.dataset_v1}")
    if with_files:
        _print_files(task)
    for fault in task.faults:
        print_line(f"  harbor rejects it: {fault}")


def _print_files(task: _Task) -> None:
    files = task.digests.files
    width = max((len(f"{file.size:,}") for file in files), default=0)
    for file in files:
        print_line(f"  {file.sha256}  {file.size:>{width},}  {file.path}")


def _print_dataset(dataset: _Dataset, *, with_files: bool) -> None:
    print_line(f"{dataset.name}, {count_of(len(dataset.tasks), 'task')}")
    if with_files:
        for task in dataset.tasks:
            print_line()
            _print_task(task, with_files=True)
        print_line()
    else:
        _print_rows(dataset.tasks)
    for one in dataset.skipped:
        reasons = "; ".join(map(str, one.faults))
        print_line(f"{one.name}: harbor rejects it: {reasons}")
    print_line(f"dataset digest v1  {dataset.digest}")


def _print_rows(tasks: Sequence[_Task]) -> None:
    """Print one line for each task; digests are not cut."""
    heading = ("task", "files", "bytes", "task_checksum", "lock digest", "dataset v1")
    for line in draw_table(heading, map(_row, tasks)):
        print_line(f"  {line}")


def _row(task: _Task) -> tuple[str, ...]:
    digests = task.digests
    return (
        printable(task.name),
        f"{len(digests.files):,}",
        f"{digests.size:,}",
        digests.task_checksum,
        f"sha256:{digests.lock_digest}",
        digests.dataset_v1,
    )
