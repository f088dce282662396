"""How much a job would download for its images, for a dry run. Pulls and stores nothing."""

import asyncio
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.environments.kinds import environment_name_for, find_local_images
from proctor.environments.sandbox.roots.image import normalise_name
from proctor.errors import ImageError
from proctor.harbor.configs import SANDBOX, EnvironmentConfig
from proctor.job.images import find_wanted, is_external
from proctor.job.planning import Fetching
from proctor.sentence import count_of
from proctor.task.directory import Task

if TYPE_CHECKING:
    from proctor.environments.sandbox.roots.download_sizes import DownloadSizes

_MOST_SHOWN = 5
_UNKNOWN = "the size to download is unknown"


@dataclass(frozen=True, slots=True)
class TaskImages:
    """A task with the images that it starts from."""

    task: Task
    names: tuple[str, ...]
    is_built: bool
    """Whether a Dockerfile is built on them."""


@dataclass(frozen=True, slots=True)
class JobDownloads:
    """What a job would download."""

    n_bytes: Sequence[int | None]
    """Of each task, as if it was alone; None: unknown."""
    total: int | None
    """Of all; layers that images share count once."""
    notes: tuple[str, ...] = ()
    """What is unknown or missing, and why."""


def unknown_downloads(tasks: Sequence[TaskImages]) -> JobDownloads:
    """Sizes of a job that cannot be run here, so that nothing is asked."""
    n_bytes = [None if one.names else 0 for one in tasks]
    return JobDownloads(n_bytes, None if None in n_bytes else 0)


async def find_downloads(
    environment: EnvironmentConfig,
    tasks: Sequence[TaskImages],
    fetching: Fetching,
    host: Mapping[str, str],
) -> JobDownloads:
    """Find out what the images need that are not there; registries are asked for manifests."""
    names = dict.fromkeys(name for one in tasks for name in one.names)
    local = await find_local_images(environment, names)
    if environment.import_path != SANDBOX:
        return _count_elsewhere(environment, tasks, local)
    try:
        found = find_wanted(
            environment, [one.task for one in tasks], fetching.images, fetching.begun
        )
    except ImageError as error:
        n_bytes = [0 if local.issuperset(one.names) else None for one in tasks]
        return JobDownloads(n_bytes, None, (f"{_UNKNOWN}: {error}",))
    wanted = {normalise_name(name): reference for name, reference in found.items()}
    sizes, notes = await _ask(wanted, fetching, host)
    programs = [_find_program(environment, one) for one in tasks]
    elsewhere = {
        one.task.environment_directory
        for one, program in zip(tasks, programs, strict=True)
        if program is not None
    }
    counting = _Counting(wanted, sizes, elsewhere)
    for program in sorted(filter(None, set(programs))):
        notes.append(f"{_UNKNOWN}: {program} pulls the images of Dockerfiles itself")
    notes += _describe_unpulled(counting, tasks, local)
    n_bytes = [counting.count([one]) for one in tasks]
    return JobDownloads(n_bytes, counting.count(tasks), tuple(notes))


def _find_program(environment: EnvironmentConfig, one: TaskImages) -> str | None:
    """Find the program that builds the Dockerfile of a task and pulls its images; None: none."""
    if not one.is_built:
        return None
    if is_external(environment):
        return str(environment.kwargs["builder"])
    if environment.kwargs.get("builder") == "sandbox":
        return None
    find = import_module("proctor.environments.sandbox.roots.bases").find_other_builder
    program: str | None = find(one.task.environment_directory, None)
    return program


def _count_elsewhere(
    environment: EnvironmentConfig, tasks: Sequence[TaskImages], local: Collection[str]
) -> JobDownloads:
    """Sizes for an environment that fetches images itself."""
    n_bytes = [0 if set(one.names).issubset(local) else None for one in tasks]
    if None not in n_bytes:
        return JobDownloads(n_bytes, 0)
    name = environment_name_for(environment)
    return JobDownloads(n_bytes, None, (f"{_UNKNOWN}: {name} fetches images itself",))


async def _ask(
    wanted: Mapping[str, str], fetching: Fetching, host: Mapping[str, str]
) -> tuple["DownloadSizes | None", list[str]]:
    """Ask for the sizes of all images, each once; return also notes. None: nobody was asked."""
    if not wanted or fetching.images is None:
        return None, []
    if fetching.images.is_offline:
        listed = _list(list(wanted))
        return None, [f"{_UNKNOWN} with --offline, and these images have to be there: {listed}"]
    # On use: most dry runs find all images, and the client takes a while to load.
    sizes = import_module("proctor.environments.sandbox.roots.download_sizes")
    store = import_module("proctor.environments.sandbox.roots.images").ImageStore()
    fetching.report(f"asking registries for the size of {count_of(len(wanted), 'image')}", False)  # noqa: FBT003
    references = list(dict.fromkeys(wanted.values()))
    stopped = threading.Event()
    try:
        found = await asyncio.to_thread(sizes.find_sizes, store, references, host, stopped)
    except asyncio.CancelledError:
        stopped.set()
        raise
    return found, [f"{_UNKNOWN}: {_list(found.reasons, '; ')}"] if found.reasons else []


class _Counting:
    """Counts what tasks download."""

    def __init__(
        self,
        wanted: Mapping[str, str],
        sizes: "DownloadSizes | None",
        elsewhere: Collection[Path],
    ) -> None:
        self._wanted = wanted
        self._sizes = sizes
        self._elsewhere = elsewhere

    def count(self, tasks: Iterable[TaskImages]) -> int | None:
        """Sum what tasks need together; None: unknown."""
        references: list[str] = []
        for one in tasks:
            if self.is_elsewhere(one):
                return None
            references += filter(None, map(self.find_reference, one.names))
        if self._sizes is None:
            return None if references else 0
        return self._sizes.count_bytes(references)

    def is_elsewhere(self, one: TaskImages) -> bool:
        """Whether another program pulls the images of a task."""
        return one.task.environment_directory in self._elsewhere

    def find_reference(self, name: str) -> str | None:
        """Find what is pulled for an image; None if nothing is."""
        try:
            return self._wanted.get(normalise_name(name))
        except ImageError:
            return None


def _describe_unpulled(
    counting: _Counting, tasks: Iterable[TaskImages], local: Collection[str]
) -> list[str]:
    names = dict.fromkeys(
        name
        for one in tasks
        if not counting.is_elsewhere(one)
        for name in one.names
        if name not in local and counting.find_reference(name) is None
    )
    if not names:
        return []
    listed = _list(list(names))
    return [f"not in the image store, and would not be pulled: {listed}; the base is used instead"]


def _list(words: Sequence[str], between: str = ", ") -> str:
    more = len(words) - _MOST_SHOWN
    return between.join(words[:_MOST_SHOWN]) + (f"{between}and {more} more" if more > 0 else "")
