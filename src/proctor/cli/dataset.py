"""`proctor dataset`: finds datasets by name, and manages what of them is in the cache."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from proctor.cli.fetching import make_report
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.running.display import say
from proctor.cli.tables import print_rows
from proctor.harbor.configs import DatasetConfig
from proctor.job.cache import Caches, find_caches
from proctor.job.dataset_cache import (
    CachedDataset,
    DatasetTask,
    TaskState,
    fetch_dataset,
    look_up,
)
from proctor.job.datasets import choose_tasks
from proctor.job.fetching import Fetching
from proctor.job.git_repository import hide_password
from proctor.job.git_source import PREFIX, list_git_dataset, parse_git_source
from proctor.job.published import RegistryDataset, RegistryTask, split_registry
from proctor.job.registry import Registry, load_registry
from proctor.sentence import count_of

_COMMIT_SHOWN = 12
_DIGEST_SHOWN = 19
_NAMED = "(NAME[@VERSION]|git+URL[@REF])"


def _registry_options[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    url = click.option("--registry-url", help="Read the JSON registry at this URL.")
    path = click.option(
        "--registry-path",
        type=PATH,
        help="Read this JSON registry.  [default: PROCTOR_REGISTRY, the published datasets]",
    )
    return path(url(function))


@click.group("dataset")
def command() -> None:
    """List and fetch datasets of tasks by name.

    A dataset is a list of tasks in git repositories. A registry is a JSON file in harbor's format
    that lists datasets by name; without one, the published datasets are listed. Tasks are fetched
    once and then used without a network, by `proctor run -d NAME@VERSION` too.

    Example: proctor dataset list
    """


@command.command("list")
@click.argument("dataset", required=False, metavar=_NAMED)
@_registry_options
@json_option
def list_(
    dataset: str | None, registry_path: str | None, registry_url: str | None, as_json: bool
) -> int:
    """List the datasets of a registry, or the tasks of one.

    With a name, shows the tasks of that dataset, their sources, and which of them are in the cache.

    Example: proctor dataset list terminal-bench@2.1
    """
    caches = find_caches(os.environ)
    if dataset is None:
        registry = _load_registry(registry_path, registry_url, caches)
        _print_registry(registry, as_json=as_json)
        return 0
    found = _find(dataset, registry_path, registry_url, caches)
    _print_tasks(look_up(found, found.tasks, caches), as_json=as_json)
    return 0


def _print_registry(registry: Registry, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "registry": registry.where,
                "datasets": [
                    {
                        "name": one.name,
                        "version": one.version,
                        "description": one.description,
                        "n_tasks": len(one.tasks),
                    }
                    for one in registry.datasets
                ],
                "notes": list(registry.notes),
            }
        )
        return
    for note in registry.notes:
        say(f"note: {note}")
    if not registry.datasets:
        print_line(f"{registry.where}: no datasets in it")
        return
    rows = [
        [one.name, one.version, f"{len(one.tasks):,}", one.description]
        for one in sorted(registry.datasets, key=lambda one: (one.name, one.version))
    ]
    print_rows(["name", "version", "tasks", "description"], rows, fold=["name", "description"])


def _print_tasks(cached: CachedDataset, *, as_json: bool) -> None:
    if as_json:
        print_json(_describe(cached))
        return
    _print_head(cached)
    places = {_render_repository(task.source) for task in cached.tasks}
    is_common = len(places) == 1
    if is_common:
        print_line(f"  source {places.pop()}")
    print_line()
    rows = [
        [
            task.name,
            str(task.source.path) if is_common else _render_source(task.source),
            str(task.state),
            (task.digest or "")[:_DIGEST_SHOWN],
        ]
        for task in cached.tasks
    ]
    print_rows(["task", "source", "state", "digest"], rows, fold=["task", "source"])


@command.command("fetch")
@click.argument("dataset", metavar=_NAMED)
@_registry_options
@click.option(
    "-i", "--include", multiple=True, metavar="GLOB", help="Include only tasks matching GLOB."
)
@click.option("-x", "--exclude", multiple=True, metavar="GLOB", help="Exclude tasks matching GLOB.")
@click.option("--again", is_flag=True, help="Fetch tasks even if they are cached.")
@click.option(
    "--verify",
    is_flag=True,
    help="Fetch nothing: check that the cached tasks are as they were fetched and published.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
@json_option
def fetch(
    dataset: str,
    registry_path: str | None,
    registry_url: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    again: bool,
    verify: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Fetch the tasks of a dataset into the cache.

    git fetches each commit once, without history, and only the files of the tasks if the server
    supports that. Tasks of published datasets are compared with the published digests.

    Exit code 3: some tasks were refused. 1, with --verify: a task is missing, has changed since it
    was fetched, or is not the published one.

    Example: proctor dataset fetch terminal-bench@2.1
    """
    check_apart("again", "verify")
    caches = find_caches(os.environ)
    fetching = Fetching() if quiet else Fetching(make_report())
    found = _find(dataset, registry_path, registry_url, caches, fetching)
    tasks = _choose(found, include, exclude)
    if verify:
        return _verify(found, tasks, caches, as_json=as_json)
    before = look_up(found, tasks, caches).count(TaskState.CACHED, TaskState.LOCAL)
    cached = fetch_dataset(found, tasks, caches, os.environ, fetching, again=again)
    refused = cached.count(TaskState.REFUSED)
    if as_json:
        print_json(_describe(cached))
        return 3 if refused else 0
    _print_head(cached)
    fetched = len(tasks) - refused - (0 if again else before)
    print_line(
        f"  {max(fetched, 0)} fetched, {0 if again else before} already cached, {refused} refused"
    )
    _print_refused(cached.tasks)
    return 3 if refused else 0


def _verify(
    dataset: RegistryDataset, tasks: Sequence[RegistryTask], caches: Caches, *, as_json: bool
) -> int:
    """Check what is cached, and fetch nothing; returns the exit code."""
    cached = look_up(dataset, tasks, caches)
    good = cached.count(TaskState.CACHED, TaskState.LOCAL)
    if as_json:
        print_json(_describe(cached))
        return 0 if good == len(tasks) else 1
    _print_head(cached)
    for state in (TaskState.MISSING, TaskState.MOVING):
        if number := cached.count(state):
            print_line(f"  {count_of(number, 'task')} {state}")
    _print_refused(cached.tasks)
    return 0 if good == len(tasks) else 1


def _load_registry(path: str | None, url: str | None, caches: Caches) -> Registry:
    check_apart("registry_path", "registry_url")
    if path is None and url is None:
        chosen, url = split_registry(os.environ)
        return load_registry(chosen, url, caches)
    return load_registry(Path(path) if path else None, url, caches)


def _find(
    name: str,
    path: str | None,
    url: str | None,
    caches: Caches,
    fetching: Fetching | None = None,
) -> RegistryDataset:
    if name.startswith(PREFIX):
        if path or url:
            raise click.UsageError(f"{name} is in a repository, not in a registry")
        source = parse_git_source(name)
        return list_git_dataset(source, caches, os.environ, fetching or Fetching())
    registry = _load_registry(path, url, caches)
    for note in registry.notes:
        say(f"note: {note}")
    dataset, _, version = name.partition("@")
    return registry.find(dataset, version or None)


def _choose(
    dataset: RegistryDataset, include: Sequence[str], exclude: Sequence[str]
) -> list[RegistryTask]:
    wanted = DatasetConfig(
        name=dataset.name, task_names=list(include) or None, exclude_task_names=list(exclude)
    )
    names = [task.path.name for task in dataset.tasks]
    return choose_tasks(dataset.dataset_id, wanted, names, dataset.tasks)


def _print_head(cached: CachedDataset) -> None:
    dataset = cached.dataset
    here = cached.count(TaskState.CACHED, TaskState.LOCAL)
    print_line(f"{dataset.dataset_id}: {count_of(len(dataset.tasks), 'task')}, {here} here")
    if dataset.description.strip():
        print_line(f"  {dataset.description}")
    if cached.digest is not None:
        print_line(f"  digest {cached.digest}")


def _print_refused(tasks: Sequence[DatasetTask]) -> None:
    for task in tasks:
        if task.why is not None:
            print_line(f"  refused: {task.name}: {task.why}")


def _render_source(task: RegistryTask) -> str:
    return f"{_render_repository(task)} {task.path}"


def _render_repository(task: RegistryTask) -> str:
    if task.git_url is None:
        return "this machine"
    commit = (task.git_commit_id or "newest")[:_COMMIT_SHOWN]
    return f"{hide_password(task.git_url)} at {commit}"


def _describe(cached: CachedDataset) -> dict[str, object]:
    dataset = cached.dataset
    return {
        "dataset_id": dataset.dataset_id,
        "description": dataset.description,
        "n_tasks": len(dataset.tasks),
        "digest": cached.digest,
        "tasks": [
            {
                "name": task.name,
                "git_url": hide_password(task.source.git_url) if task.source.git_url else None,
                "git_commit_id": task.source.git_commit_id,
                "path": str(task.source.path),
                "state": str(task.state),
                "directory": str(task.directory) if task.directory else None,
                "digest": task.digest,
                "why": task.why,
            }
            for task in cached.tasks
        ],
    }
