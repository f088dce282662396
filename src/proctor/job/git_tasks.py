"""Fetch tasks of git repositories into harbor's cache.

Each commit of a repository is fetched once, for all its tasks; what is in the cache is not fetched
again. Two processes that want the same commit fetch it one after the other, and the second one
finds it in the cache. A task is complete in the cache, or not there at all. Its checksum is kept,
so that a change in the cache is noticed.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import TaskError
from proctor.files import find_room, read_small, try_lock, write_atomic
from proctor.harbor.configs import TaskConfig
from proctor.job.cache import Caches, fill_once, git_task_id
from proctor.job.fetching import Fetching
from proctor.job.git_repository import (
    COMMIT,
    Repository,
    check_git_path,
    check_git_ref,
    check_git_url,
    hide_password,
)
from proctor.sentence import count_of, reason_of
from proctor.task.checksum import task_checksum

_POLL_SECONDS = 0.1
_REMOVALS, _REMOVAL_SEC = 20, 0.1
# Directories below each other in a task.
_DEEPEST = 100
_CIRCLE = f"its links lead in a circle, or it is more than {_DEEPEST} deep"


class GitTask(msgspec.Struct, frozen=True):
    """A fetched task, or the reason why there is none."""

    directory: Path | None
    commit: str
    """The full id of the commit."""
    why: str = ""
    """Why there is no directory."""
    notes: tuple[str, ...] = ()
    checksum: str | None = None
    """Its task_checksum when it was fetched; None: harbor fetched it."""


class _Receipt(msgspec.Struct, frozen=True):
    """What was fetched, in the cache beside the tasks."""

    directory: str
    """Where it is, which has its source in it."""
    task_checksum: str


type GitKey = tuple[str, str | None, str]


def git_key(task: TaskConfig) -> GitKey:
    """Key that identifies a task of a git repository."""
    return task.git_url or "", task.git_commit_id, str(task.path)


def fetch_git_tasks(
    wanted: Sequence[TaskConfig],
    caches: Caches,
    host: Mapping[str, str],
    fetching: Fetching | None = None,
) -> dict[GitKey, GitTask]:
    """Return every wanted task, from the cache or from its repository.

    Raises:
        TaskError: git is not installed, a repository cannot be reached, lacks the commit or is too
            large, or the cache cannot be written.
    """
    found: dict[GitKey, GitTask] = {}
    missing: dict[tuple[str, str | None], dict[GitKey, TaskConfig]] = defaultdict(dict)
    for task in wanted:
        _check(task)
        cached = find_cached(task, caches)
        if cached is not None:
            found[git_key(task)] = cached
        else:
            missing[task.git_url or "", task.git_commit_id][git_key(task)] = task
    for (url, commit), tasks in missing.items():
        try:
            found |= _fetch(url, commit, tasks, _Place(caches, host, fetching or Fetching()))
        except OSError as error:
            raise TaskError(
                f"{error.filename or caches.own}: cannot be written: {reason_of(error)}"
            ) from error
    return found


def find_cached(task: TaskConfig, caches: Caches) -> GitTask | None:
    """The cached task of a commit given by its full id; a branch may have moved on."""
    commit = task.git_commit_id
    if task.overwrite or commit is None or not COMMIT.fullmatch(commit):
        return None
    place = _place(task, commit, caches)
    # An empty directory does not count: it may be the rest of a failed download.
    if not place.is_dir() or not any(place.iterdir()):
        return None
    return GitTask(place, commit, checksum=_load_receipt(place, caches))


def check_as_fetched(got: GitTask) -> None:
    """Check that a task in the cache is as it was when it was fetched.

    Raises:
        TaskError: it changed.
    """
    if got.directory is None or got.checksum is None:
        return
    if task_checksum(got.directory) != got.checksum:
        raise TaskError(
            f"{got.directory}: changed since it was fetched; remove the directory, and it is "
            "fetched again"
        )


def _check(task: TaskConfig) -> None:
    url = task.git_url or ""
    check_git_url(url)
    check_git_path(url, task.path or Path())
    check_git_ref(url, task.git_commit_id)


def _place(task: TaskConfig, commit: str | None, caches: Caches) -> Path:
    base = task.download_dir.expanduser() if task.download_dir else caches.tasks
    path = task.path or Path()
    name = path.name or (task.git_url or "").rstrip("/").rpartition("/")[2].removesuffix(".git")
    return base / git_task_id(task.git_url or "", commit, path) / name


class _Place(msgspec.Struct, frozen=True):
    """Where a commit is fetched to, and how."""

    caches: Caches
    host: Mapping[str, str]
    fetching: Fetching


def _fetch(
    url: str, commit: str | None, tasks: Mapping[GitKey, TaskConfig], place: _Place
) -> dict[GitKey, GitTask]:
    caches, fetching = place.caches, place.fetching
    where = hide_password(url)
    named = f" at {commit}" if commit else ""
    with _alone(caches.fetching / f"{sha256_hex(f'{url} {commit}'.encode())}.lock", fetching):
        # Another process may have fetched them while this one waited.
        found = {key: got for key, task in tasks.items() if (got := find_cached(task, caches))}
        tasks = {key: task for key, task in tasks.items() if key not in found}
        if not tasks:
            return found
        fetching.report(f"fetching {count_of(len(tasks), 'task')} of {where}{named}", False)  # noqa: FBT003
        with scratch(caches) as directory:
            repository = Repository(url, directory, place.host, fetching)
            found |= _take(repository, repository.fetch(commit), tasks, caches)
    n_taken = sum(found[key].directory is not None for key in tasks)
    fetching.report(f"fetched {count_of(n_taken, 'task')} of {where}", False)  # noqa: FBT003
    return found


def _take(
    repository: Repository, resolved: str, tasks: Mapping[GitKey, TaskConfig], caches: Caches
) -> dict[GitKey, GitTask]:
    """Check out the tasks that the commit has, and put them into the cache."""
    paths = {key: task.path or Path() for key, task in tasks.items()}
    present = repository.find_directories(resolved, list(dict.fromkeys(paths.values())))
    submodules = repository.find_submodules(resolved, present) if present else []
    repository.check_out(resolved, present)
    notes = repository.find_notes(resolved, present)
    found = {}
    for key, task in tasks.items():
        if paths[key] not in present:
            why = f"{repository.shown} has no directory {paths[key]} at {resolved}"
            found[key] = GitTask(None, resolved, why)
        elif inside := [name for name in submodules if Path(name).is_relative_to(paths[key])]:
            why = f"{inside[0]} is a submodule, whose files are in another repository: not fetched"
            found[key] = GitTask(None, resolved, why)
        else:
            found[key] = _keep(repository, task, resolved, caches, notes)
    return found


def _keep(
    repository: Repository,
    task: TaskConfig,
    resolved: str,
    caches: Caches,
    notes: tuple[str, ...],
) -> GitTask:
    source = repository.directory / (task.path or Path())
    # A malformed tree can have a directory and a link of one name, of which git writes the link.
    if Path(os.path.realpath(source)) != Path(
        os.path.realpath(repository.directory), task.path or ""
    ):
        return GitTask(None, resolved, f"{task.path} is also a link in the repository; refused")
    if stray := _find_stray_link(source):
        return GitTask(None, resolved, f"{stray} is a link to nothing that is there for a task")
    # A commit named by its full id has harbor's own cache entry; a branch uses that of its commit.
    named = task.git_commit_id or ""
    place = _place(task, named if COMMIT.fullmatch(named) else resolved, caches)
    checksums = []

    def fill(target: Path) -> None:
        _Copy(repository.fetching, find_room(str(repository.directory))).copy(source, target)
        checksums.append(task_checksum(target))
        # Before the task is in its place: a receipt without a task is of no consequence.
        _write_receipt(place, caches, checksums[0])
        # A job may be running on the cached one, which is removed only if it was changed.
        if task.overwrite and not _is_like(place, target):
            _move_away(place)

    try:
        fill_once(place, fill)
    except TaskError as error:
        return GitTask(None, resolved, str(error))
    except OSError as error:
        # The kernel gives up before we do where links lead through many others.
        if error.errno != errno.ELOOP:
            raise
        return GitTask(None, resolved, _CIRCLE)
    return GitTask(place, resolved, notes=notes, checksum=checksums[0])


class _Copy:
    """Copies a task; links are replaced by their targets, as in harbor's copies.

    Links within a task can lead in circles, or make a copy many times as large: both are bounded.
    """

    def __init__(self, fetching: Fetching, room: int) -> None:
        self._files = fetching.most_files
        self._bytes = room if fetching.most_bytes is None else fetching.most_bytes

    def copy(self, source: Path, target: Path, depth: int = 0) -> None:
        """Copy a directory.

        Raises:
            TaskError: it is too large or too deep, or has something that is neither file nor
                directory.
        """
        if depth > _DEEPEST:
            raise TaskError(_CIRCLE)
        target.mkdir()
        with os.scandir(source) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name == ".git":
                    continue
                self._count(entry)
                if entry.is_dir():
                    self.copy(source / entry.name, target / entry.name, depth + 1)
                else:
                    shutil.copy2(entry.path, target / entry.name)

    def _count(self, entry: os.DirEntry[str]) -> None:
        found = entry.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise TaskError(f"{entry.name} is neither a file nor a directory")
        self._files -= 1
        self._bytes -= found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self._files < 0 or self._bytes < 0:
            raise TaskError("it is larger than may be fetched, by its links")


def _is_like(place: Path, fetched: Path) -> bool:
    """Whether a cached task has the files that were fetched, as far as git knows them."""
    try:
        return task_checksum(place) == task_checksum(fetched) and (
            _list_executable(place) == _list_executable(fetched)
        )
    except (TaskError, OSError):
        return False


def _list_executable(directory: Path) -> set[Path]:
    return {
        path.relative_to(directory)
        for path in directory.rglob("*")
        if path.is_file() and path.stat().st_mode & stat.S_IXUSR
    }


def _move_away(place: Path) -> None:
    """Remove a cached task; a kill leaves it whole, or not in its place."""
    if place.exists():
        old = Path(tempfile.mkdtemp(prefix="old-", dir=place.parent))
        place.rename(old / place.name)
        shutil.rmtree(old, ignore_errors=True)


def _receipt_path(place: Path, caches: Caches) -> Path:
    return caches.receipts / f"{sha256_hex(os.fsencode(place))}.json"


def _write_receipt(place: Path, caches: Caches, checksum: str) -> None:
    path = _receipt_path(place, caches)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, msgspec.json.encode(_Receipt(os.fsdecode(place), checksum)))


def _load_receipt(place: Path, caches: Caches) -> str | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        data = read_small(str(_receipt_path(place, caches)))
        return msgspec.json.decode(data, type=_Receipt).task_checksum
    return None


def _find_stray_link(directory: Path) -> str | None:
    """Find a link that leads out of a task: it could lead to any file of this machine."""
    root = Path(os.path.realpath(directory))
    for parent, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(parent, name)
            if path.is_symlink():
                target = Path(os.path.realpath(path))
                if not target.exists() or root not in target.parents:
                    return str(path.relative_to(directory))
    return None


@contextlib.contextmanager
def _alone(path: Path, fetching: Fetching) -> Iterator[None]:
    """Hold a lock; other processes that want it wait until this one has ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_said = False
        while not try_lock(fd):
            if fetching.stop.is_set():
                raise TaskError("the fetch was stopped")
            if not is_said:
                fetching.report("waiting for another process that fetches the same", False)  # noqa: FBT003
                is_said = True
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def scratch(caches: Caches) -> Iterator[Path]:
    """A directory to fetch into; those that killed processes left are removed."""
    caches.fetching.mkdir(parents=True, exist_ok=True)
    with _alone(caches.fetching / "scratch.lock", Fetching()):
        _remove_stale(caches.fetching)
        home = Path(tempfile.mkdtemp(prefix="git-", dir=caches.fetching))
        fd = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        directory = home / "repository"
        directory.mkdir()
        yield directory
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(fd)


def _remove(path: Path) -> None:
    """Remove a directory; a git that outlived its killed parent may still write there."""
    for _ in range(_REMOVALS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(_REMOVAL_SEC)


def _remove_stale(directory: Path) -> None:
    for path in directory.glob("git-*"):
        # The directory of a process that lives is locked by it.
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if try_lock(fd):
                    _remove(path)
            finally:
                os.close(fd)
