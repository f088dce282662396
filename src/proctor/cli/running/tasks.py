"""Flags about tasks to the tasks and datasets of a JobConfig. No task is read to its end here."""

import os
import re
from pathlib import Path

import click

from proctor.cli.running.flags import TaskFlags
from proctor.errors import InputError
from proctor.harbor.configs import DatasetConfig, JobConfig, TaskConfig
from proctor.task.directory import find_faults
from proctor.task.terminal_bench import is_terminal_bench_task

_ORG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_TASK_FILES = ("task.toml", "task.yaml")


def set_tasks(config: JobConfig, flags: TaskFlags, *, verifying: bool) -> None:
    """Put the tasks that the flags ask for into a config, in place of those that are there.

    Raises:
        UsageError: no tasks at all, or flags that do not go together.
        InputError: a path or a name that leads nowhere.
    """
    _check_flags(flags)
    if flags.path is not None:
        _set_path(config, flags, flags.path, verifying=verifying)
    elif flags.task is not None:
        name, _, ref = flags.task.partition("@")
        _check_package("--task", name)
        config.datasets = []
        config.tasks = [TaskConfig(name=name, ref=ref or "latest")]
    elif flags.dataset is not None:
        config.tasks = []
        config.datasets = [_filtered(_make_dataset(flags, flags.dataset), flags)]
    elif not config.tasks and not config.datasets:
        raise click.UsageError(
            "no tasks; expected --path DIRECTORY, --dataset NAME, --task ORG/NAME or a --config "
            "that names some"
        )


def _check_flags(flags: TaskFlags) -> None:
    sources = {"--path": flags.path, "--dataset": flags.dataset, "--task": flags.task}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} does not go with {given[1]}")
    if flags.task_git_commit is not None and flags.task_git_url is None:
        raise click.UsageError("--task-git-commit goes with --task-git-url")
    if flags.task_git_url is not None and flags.path is None:
        raise click.UsageError(
            "--task-git-url goes with --path, the task's place in the repository"
        )
    if (flags.registry_path or flags.registry_url) and flags.dataset is None:
        raise click.UsageError("--registry-path and --registry-url go with --dataset")
    if flags.registry_path is not None and flags.registry_url is not None:
        raise click.UsageError("--registry-path does not go with --registry-url")
    if _is_filtered(flags) and flags.path is None and flags.dataset is None:
        raise click.UsageError(
            "--include-task-name, --exclude-task-name and --n-tasks choose from a dataset; "
            "they go with --path or --dataset"
        )


def _is_filtered(flags: TaskFlags) -> bool:
    return bool(flags.include or flags.exclude or flags.n_tasks)


def _set_path(config: JobConfig, flags: TaskFlags, path: Path, *, verifying: bool) -> None:
    if flags.task_git_url is not None or is_task(path, verifying=verifying):
        if _is_filtered(flags):
            raise click.UsageError(
                f"--path {path} is one task; --include-task-name, --exclude-task-name and "
                "--n-tasks choose from a directory of them"
            )
        config.datasets = []
        config.tasks = [
            TaskConfig(path=path, git_url=flags.task_git_url, git_commit_id=flags.task_git_commit)
        ]
        return
    if not path.is_dir():
        found = "a file" if path.exists() else "not there"
        raise InputError(f"{path}: {found}; expected a task directory, or a directory of tasks")
    config.tasks = []
    config.datasets = [_filtered(DatasetConfig(path=path), flags)]


def is_task(path: Path, *, verifying: bool) -> bool:
    """Whether a directory is a task, if only a faulty one, rather than a directory of them."""
    if not any(os.path.lexists(path / name) for name in _TASK_FILES):
        return False
    if _is_older(path) or not find_faults(path, verifying=verifying):
        return True
    return not _holds_tasks(path)


def _is_older(path: Path) -> bool:
    try:
        return is_terminal_bench_task(path)
    except OSError:
        return False


def _holds_tasks(path: Path) -> bool:
    try:
        places = [place for place in path.iterdir() if place.is_dir()]
    except OSError:
        return False
    return any((place / name).is_file() for place in places for name in _TASK_FILES)


def _filtered(dataset: DatasetConfig, flags: TaskFlags) -> DatasetConfig:
    dataset.task_names = list(flags.include) or None
    dataset.exclude_task_names = list(flags.exclude) or None
    dataset.n_tasks = flags.n_tasks
    return dataset


def _make_dataset(flags: TaskFlags, dataset: str) -> DatasetConfig:
    name, at, version = dataset.partition("@")
    if "/" in name:
        _check_package("--dataset", name)
        if flags.registry_path or flags.registry_url:
            raise click.UsageError(f"--dataset {name} is a package; no registry file lists those")
        return DatasetConfig(name=name, ref=version or "latest")
    if not name or (at and not version):
        raise click.UsageError(f"--dataset is {dataset!r}; expected NAME or NAME@VERSION")
    return DatasetConfig(
        name=name,
        version=version or None,
        registry_path=flags.registry_path,
        registry_url=flags.registry_url,
    )


def _check_package(option: str, name: str) -> None:
    if not _ORG_NAME.fullmatch(name) or ".." in name:
        raise click.UsageError(f"{option} is {name!r}; expected ORG/NAME or ORG/NAME@REF")
