"""List the tasks of a job's datasets, in order, without reading them.

    a directory        its subdirectories, by name or as the file system lists them
    name[@version]     the list in a JSON registry
    org/name[@ref]     the list in a package's dataset.toml

Name patterns are harbor's: fnmatch on the name of the task's directory or package.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import RecordError, TaskError
from proctor.harbor.configs import DatasetConfig, TaskConfig
from proctor.harbor.declared import SCRIPT, DeclaredMetric
from proctor.harbor.documents import is_trial
from proctor.job.cache import Caches
from proctor.job.metrics import declare_metric
from proctor.job.packages import find_package_dataset, package_task_configs
from proctor.job.planned import DatasetMetrics
from proctor.job.settings import TaskOrder
from proctor.record.rules import check_dataset_id
from proctor.sentence import count_of, reason_of
from proctor.task.dataset import was_meant_as_task
from proctor.task.terminal_bench import is_terminal_bench_task

if TYPE_CHECKING:
    from proctor.job.published import RegistryDataset

_METRIC = "metric.py"
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The tasks of a dataset."""

    where: str
    """The dataset's name for messages."""
    tasks: tuple[TaskConfig, ...]
    """The tasks that match the patterns."""
    metrics: DatasetMetrics
    limit: int | None = None
    """How many of the valid ones to run; None: all."""
    notes: tuple[str, ...] = ()
    dataset_id: str | None = None
    """`name@version` for the records; None for a directory, which has no version."""
    n_listed: int = 0
    """How many tasks it has, before any pattern or limit."""
    directory: Path | None = None
    """Directory of its tasks and the files they link to; None if each task is separate."""


def list_dataset(wanted: DatasetConfig, caches: Caches, order: TaskOrder) -> Listing:
    """List the tasks of a dataset that a job asks for."""
    if wanted.path is not None:
        return _list_directory(wanted, wanted.path, order)
    if "/" in (wanted.name or ""):
        listing = _list_package(wanted, caches)
    else:
        listing = _list_registry(wanted, caches)
    names = [task.name or (task.path or Path()).name for task in listing.tasks]
    tasks = choose_tasks(listing.where, wanted, names, listing.tasks)
    # harbor applies the limit before it reads any task, so invalid ones count.
    return replace(listing, tasks=tuple(tasks[: wanted.n_tasks]))


def _list_registry(wanted: DatasetConfig, caches: Caches) -> Listing:
    # Imported here because it pulls in an HTTP client.
    registry = import_module("proctor.job.registry")
    dataset: RegistryDataset
    dataset, notes = registry.load_registry_dataset(wanted, caches)
    metrics = tuple(declare_metric(metric) for metric in dataset.metrics)
    return Listing(
        where=f"dataset {dataset.name}@{dataset.version}",
        tasks=tuple(registry.registry_task_configs(dataset, wanted)),
        metrics=DatasetMetrics(dataset.name, metrics),
        dataset_id=_identify(dataset.name, dataset.version),
        n_listed=len(dataset.tasks),
        notes=notes,
    )


def _list_package(wanted: DatasetConfig, caches: Caches) -> Listing:
    directory = find_package_dataset(wanted, caches)
    script = directory / _METRIC
    metrics = (DeclaredMetric(SCRIPT, script),) if script.is_file() else ()
    return Listing(
        where=f"dataset {wanted.name}",
        tasks=tuple(package_task_configs(directory, wanted)),
        metrics=DatasetMetrics(wanted.name or "", metrics),
        # Not the requested tag: harbor's cache does not record what it referred to.
        dataset_id=_identify(wanted.name or "", f"sha256:{directory.name}"),
    )


def _identify(name: str, version: str) -> str | None:
    """The dataset's id in records; None if the registry's name is not valid there."""
    dataset_id = f"{name}@{version}"
    try:
        check_dataset_id(dataset_id)
    except RecordError:
        return None
    return dataset_id if version.strip() else None


def _list_directory(wanted: DatasetConfig, path: Path, order: TaskOrder) -> Listing:
    place = path.expanduser()
    names = _list_directories(place)
    if order == "name":
        names.sort()
    meant = [name for name in names if _is_meant(place / name)]
    if not meant:
        raise TaskError(_describe_no_tasks(path, place, names))
    real = [Path(os.path.realpath(place / name)).name for name in meant]
    source = Path(os.path.realpath(place)).name
    tasks = [TaskConfig(path=path / name, source=source) for name in meant]
    return Listing(
        where=str(path),
        tasks=tuple(choose_tasks(str(path), wanted, real, tasks)),
        metrics=DatasetMetrics(source),
        limit=wanted.n_tasks,
        notes=tuple(_find_notes(path, place, source)),
        directory=place,
    )


def _list_directories(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return [entry.name for entry in entries if _may_be_directory(entry)]
    except FileNotFoundError as error:
        raise TaskError(
            f"{place}: no such directory; expected a task, or a directory of tasks"
        ) from error
    except NotADirectoryError as error:
        raise TaskError(
            f"{place}: this is a file; expected a task directory, or a directory of them"
        ) from error
    except OSError as error:
        raise TaskError(f"{place}: cannot be listed: {reason_of(error)}") from error


def _may_be_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # Reading the task reports it.
        return True


def _is_meant(child: Path) -> bool:
    try:
        return was_meant_as_task(child) or is_terminal_bench_task(child)
    except OSError:
        return True


def _describe_no_tasks(path: Path, place: Path, names: Sequence[str]) -> str:
    expected = "expected a task (task.toml, instruction.md, environment/, tests/) or a directory of"
    if not any(place.iterdir()):
        return f"{path}: an empty directory; {expected} tasks"
    if (place / "lock.json").is_file() and not is_trial(str(place)):
        return f"{path}: a job, not tasks; to resume it: `proctor resume {path}`; {expected} tasks"
    inner = [name for name in sorted(names) if _holds_tasks(place / name)]
    if inner:
        return (
            f"{path}: no tasks directly in it, but in {', '.join(inner[:_MOST_SHOWN])}; "
            f"name one of those, such as {path / inner[0]}"
        )
    found = count_of(len(names), "directory", "directories")
    return f"{path}: {found} and no task among them; {expected} tasks"


def _holds_tasks(place: Path) -> bool:
    try:
        return any((child / "task.toml").is_file() for child in place.iterdir())
    except OSError:
        return False


def _find_notes(path: Path, place: Path, source: str) -> list[str]:
    notes = []
    if "__" in source:
        notes.append(
            f"{path}: its name has '__' in it; its final metrics will be empty, as in harbor 0.13.1"
        )
    if (place / _METRIC).is_file():
        notes.append(
            f"{path}: its {_METRIC} is not run, as in harbor 0.13.1, which runs those of packages "
            f"alone; in a --config, metrics: [{{type: {SCRIPT}, kwargs: {{script_path: "
            f"{path / _METRIC}}}}}] runs it"
        )
    return notes


def choose_tasks[T](
    where: str, wanted: DatasetConfig, names: Sequence[str], tasks: Sequence[T]
) -> list[T]:
    """Those of the tasks with these names that match the patterns of a dataset.

    Raises:
        TaskError: there are none.
    """
    included, excluded = wanted.task_names, wanted.exclude_task_names or ()
    pairs = list(zip(names, tasks, strict=True))
    if included:
        pairs = [pair for pair in pairs if any(fnmatch(pair[0], glob) for glob in included)]
        if not pairs:
            raise TaskError(
                f"{where}: no task is named {' or '.join(included)}; it has "
                f"{count_of(len(names), 'task')}, such as {', '.join(sorted(names)[:_MOST_SHOWN])}"
            )
    kept = [task for name, task in pairs if not any(fnmatch(name, glob) for glob in excluded)]
    if not kept:
        left_out = f"; all {len(pairs)} are excluded" if pairs else ""
        raise TaskError(f"{where}: no task is left{left_out}")
    return kept
