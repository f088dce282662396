"""Find, read and hash the tasks of a job; invalid ones are reported by name and reason.

    a directory        read in place
    a git repository   fetched into harbor's cache
    a package          taken from harbor's cache
    an older task.yaml converted to harbor's format in our own cache, and run from there

Identical directories are read and hashed once.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from proctor.digest import sha256_file
from proctor.errors import ConfigError, TaskError
from proctor.harbor.configs import JobConfig, TaskConfig
from proctor.harbor.skills import load_skills
from proctor.job.cache import Caches, find_caches
from proctor.job.datasets import Listing, list_dataset
from proctor.job.fetching import Fetching, Report, say_nothing
from proctor.job.git_tasks import GitKey, GitTask, check_as_fetched, fetch_git_tasks, git_key
from proctor.job.packages import find_package_task
from proctor.job.planned import PinnedDataset, PinnedFile, PlannedTask, RefusedTask, Resolved
from proctor.job.published import check_published, digest_dataset
from proctor.job.settings import Settings
from proctor.sentence import count_of, reason_of
from proctor.task.checksum import task_checksum
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, find_faults, load_task
from proctor.task.links import check_links
from proctor.task.parse import LATER_KEY, read_text
from proctor.task.terminal_bench import is_terminal_bench_task, map_task

_MOST_SHOWN = 20
# Tasks that a note names if it is about several of them.
_MOST_NAMED = 3


async def resolve_tasks(
    config: JobConfig,
    settings: Settings,
    *,
    host: Mapping[str, str],
    report: Report = say_nothing,
) -> Resolved:
    """Resolve everything that a job is planned from; `host` locates caches and configures git.

    `report` is called with messages about tasks that are fetched.
    """
    fetching = Fetching(report)
    try:
        return await asyncio.to_thread(_resolve, config, settings, host, fetching)
    finally:
        # If this was cancelled, the thread still runs, and git with it.
        fetching.stop.set()


def _resolve(
    config: JobConfig, settings: Settings, host: Mapping[str, str], fetching: Fetching
) -> Resolved:
    caches = find_caches(host)
    listings = [list_dataset(one, caches, settings.task_order) for one in config.datasets]
    wanted = [*config.tasks, *(task for listing in listings for task in listing.tasks)]
    reader = _Reader(
        caches=caches,
        verifying=not config.verifier.disable,
        extra=[_read_extra(path) for path in config.extra_instruction_paths],
        fetched=fetch_git_tasks([one for one in wanted if one.git_url], caches, host, fetching),
    )
    tasks = [task for one in config.tasks if (task := reader.read(one))]
    datasets = []
    for listing in listings:
        read = _read_listing(reader, listing)
        tasks += read
        if listing.dataset_id is not None:
            datasets.append(_pin_dataset(listing.dataset_id, read, listing.n_listed))
    _check(tasks, reader.refused, settings)
    return Resolved(
        tasks=tuple(tasks),
        refused=tuple(reader.refused),
        notes=(*(note for one in listings for note in one.notes), *reader.list_notes(len(tasks))),
        datasets=tuple(listing.metrics for listing in listings),
        pinned_datasets=tuple(datasets),
        extra_instructions=tuple(_pin(path) for path in config.extra_instruction_paths),
        compose_files=tuple(_pin(path) for path in config.environment.extra_docker_compose),
        skills={tuple(agent.skills): load_skills(agent.skills) for agent in config.agents},
        settings=settings,
    )


def _read_listing(reader: "_Reader", listing: Listing) -> list[PlannedTask]:
    tasks: list[PlannedTask] = []
    for config in listing.tasks:
        if listing.limit is not None and len(tasks) >= listing.limit:
            break
        if task := reader.read(config, listing.directory, listing.dataset_id):
            tasks.append(replace(task, dataset_id=listing.dataset_id))
    return tasks


def _pin_dataset(dataset_id: str, tasks: Sequence[PlannedTask], n_listed: int) -> PinnedDataset:
    digest = digest_dataset(task.lock_digest for task in tasks)
    return PinnedDataset(dataset_id, digest, len(tasks), max(n_listed, len(tasks)))


def _check(
    tasks: Sequence[PlannedTask], refused: Sequence[RefusedTask], settings: Settings
) -> None:
    if not tasks and not refused:
        raise TaskError("no tasks; expected a task, a directory of tasks or a dataset")
    if tasks and not (refused and settings.strict_tasks):
        return
    lines = [f"{one.name} ({one.path}): {one.reason}" for one in refused[:_MOST_SHOWN]]
    if len(refused) > _MOST_SHOWN:
        lines.append(f"and {len(refused) - _MOST_SHOWN} more")
    said = "no task can be run" if not tasks else f"{count_of(len(refused), 'task')} cannot be run"
    raise TaskError(f"{said}: " + "; ".join(lines))


def _read_extra(path: Path) -> str:
    try:
        return read_text(path.expanduser())
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error)
        raise ConfigError(f"{path}: extra instruction cannot be read: {reason}") from error


def _pin(path: Path) -> PinnedFile:
    try:
        return PinnedFile(path, f"sha256:{sha256_file(path.expanduser())}")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason_of(error)}") from error


def _check_links(directory: Path, within: Path | None = None) -> None:
    try:
        check_links(directory, within)
    except OSError as error:
        raise TaskError(f"cannot be inspected: {reason_of(error)}") from error


def _check_supported(task: Task) -> None:
    """Refuse what would be run otherwise than its author means it."""
    if found := [str(note) for note in task.notes if note.code == LATER_KEY]:
        raise TaskError("; ".join(found))


class _Found(msgspec.Struct, frozen=True):
    """Location of a task."""

    directory: Path
    config: TaskConfig
    commit: str | None = None
    package: str | None = None


@dataclass(slots=True)
class _Reader:
    """Reads tasks, each directory once, and remembers those it refused."""

    caches: Caches
    verifying: bool
    extra: Sequence[str]
    """Texts appended to every instruction."""
    fetched: Mapping[GitKey, GitTask]
    refused: list[RefusedTask] = field(default_factory=list)
    _notes: dict[str, dict[str, str]] = field(default_factory=dict)
    """By what they say: the tasks they are about, each with the whole note."""
    _known: dict[str, tuple[Task, TaskDigests] | str] = field(default_factory=dict)
    """By real path; a string is the reason why it is refused."""

    def read(
        self, config: TaskConfig, within: Path | None = None, dataset_id: str | None = None
    ) -> PlannedTask | None:
        """Read a task of the dataset it is `within`; None if it is refused."""
        try:
            found = self._find(config, within)
            task, digests = self._load(found.directory)
            planned = PlannedTask(
                config=found.config,
                directory=task.directory,
                task=task,
                digests=digests,
                commit=found.commit,
                package=found.package,
            )
            check_published(dataset_id, found.directory.name, planned.lock_digest)
        except TaskError as error:
            path = (config.path or Path(config.name or "")).expanduser()
            name = config.name or path.name or str(path)
            self.refused.append(RefusedTask(name, path, str(error).removeprefix(f"{path}: ")))
            return None
        return planned

    def _find(self, config: TaskConfig, within: Path | None) -> _Found:
        if config.name is not None:
            directory = find_package_task(config, self.caches)
            _check_links(directory)
            return _Found(directory, config, package=f"sha256:{directory.name}")
        if config.git_url is not None:
            got = self.fetched[git_key(config)]
            if got.directory is None:
                raise TaskError(got.why)
            for note in got.notes:
                self._note("", note)
            _check_links(got.directory)
            check_as_fetched(got)
            directory = self._map(got.directory) or got.directory
            return _Found(directory, config, commit=got.commit)
        directory = (config.path or Path()).expanduser()
        if not os.path.lexists(directory):
            raise TaskError("no such directory; expected a task")
        _check_links(directory, within)
        mapped = self._map(directory)
        if mapped is None:
            return _Found(directory, config)
        return _Found(mapped, config.model_copy(update={"path": mapped}))

    def _map(self, directory: Path) -> Path | None:
        """Directory of an older task in harbor's format; None if it is not one."""
        try:
            if not is_terminal_bench_task(directory):
                return None
        except OSError as error:
            raise TaskError(f"cannot be inspected: {reason_of(error)}") from error
        name = Path(os.path.realpath(directory)).name
        target = self.caches.terminal_bench / task_checksum(directory) / name
        place = self.caches.terminal_bench
        self._note(name, f"a Terminal-Bench task; run as harbor's mapper writes it, in {place}")
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._map_anew(directory, target)
        return target

    def _map_anew(self, directory: Path, target: Path) -> None:
        try:
            mapped = map_task(directory, target)
        except TaskError:
            # Another job may have created it meanwhile.
            if not target.is_dir():
                raise
            return
        for note in mapped.notes:
            self._note(target.name, note.message, str(note))

    def _load(self, directory: Path) -> tuple[Task, TaskDigests]:
        # A refusal is remembered too, so that a broken task is read only once.
        real = os.path.realpath(directory)
        known = self._known.get(real)
        if known is None:
            try:
                known = self._load_anew(directory)
            except TaskError as error:
                known = str(error).removeprefix(f"{real}/")
            self._known[real] = known
        if isinstance(known, str):
            raise TaskError(known)
        return known

    def _load_anew(self, directory: Path) -> tuple[Task, TaskDigests]:
        try:
            task = load_task(directory, verifying=self.verifying)
        except TaskError:
            faults = find_faults(directory, verifying=self.verifying)
            if not faults:
                raise
            raise TaskError("; ".join(map(str, faults))) from None
        _check_supported(task)
        for note in task.notes:
            self._note(task.directory.name, note.message, str(note))
        return self._with_extra(task), load_digests(task.directory)

    def _with_extra(self, task: Task) -> Task:
        if not self.extra:
            return task
        if not task.steps:
            joined = "\n\n".join([task.instruction, *self.extra])
            return msgspec.structs.replace(task, instruction=joined)
        steps = [
            msgspec.structs.replace(step, instruction="\n\n".join([step.instruction, *self.extra]))
            for step in task.steps
        ]
        return msgspec.structs.replace(task, steps=tuple(steps))

    def _note(self, task: str, message: str, whole: str | None = None) -> None:
        """Note something about a task, or without its name about several at once."""
        self._notes.setdefault(message, {})[task] = whole or message

    def list_notes(self, n_tasks: int) -> list[str]:
        """The notes, each once: with the task's name, or with the number of tasks."""
        return [_render_note(message, tasks, n_tasks) for message, tasks in self._notes.items()]


def _render_note(message: str, tasks: Mapping[str, str], n_tasks: int) -> str:
    names = list(tasks)
    if len(names) == 1:
        return f"{names[0]}: {tasks[names[0]]}" if names[0] else message
    if len(names) >= n_tasks:
        return f"all {count_of(len(names), 'task')}: {message}"
    listed = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{count_of(len(names), 'task')} ({listed}{more}): {message}"
