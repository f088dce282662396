"""Dataset digest v1: of a file, a task and a dataset.

    file     SHA-256 of its bytes
    task     SHA-256 of `path NUL digest LF` for every file, paths in order of code points
    dataset  SHA-256 of `name NUL digest LF` for every task, names in order of code points

All regular files count, and nothing else: no links, modes or empty directories. No name is
excluded. A task's name here is the name of its directory.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import TaskError
from proctor.task.hashed import SHARED, FileHashes


class FileDigest(msgspec.Struct, frozen=True, gc=False):
    """One file of a task."""

    path: str
    """Path relative to the task directory, with slashes."""
    sha256: str
    """SHA-256 of its bytes, in hex."""
    size: int
    """Size in bytes."""


def hash_files(directory: Path, hashes: FileHashes = SHARED) -> tuple[FileDigest, ...]:
    """Hash every regular file of a task directory, sorted by path."""
    root = Path(os.path.realpath(directory))
    found = sorted((path.relative_to(root).as_posix(), path) for path in _find_files(root))
    return tuple(_hash_file(name, path, hashes) for name, path in found)


def task_digest(files: Iterable[FileDigest]) -> str:
    """Compute a task's digest from those of its files, given in order."""
    return _hash_lines((file.path, file.sha256) for file in files)


def find_role(path: str) -> str:
    """Classify a file of a task: verifier, solution, environment or task."""
    top, _, rest = path.partition("/")
    if top == "steps":
        top = rest.partition("/")[2].partition("/")[0]
    return {"tests": "verifier", "solution": "solution", "environment": "environment"}.get(
        top, "task"
    )


def dataset_digest(tasks: Mapping[str, str]) -> str:
    """Compute a dataset's digest from those of its tasks, by name."""
    return _hash_lines(sorted(tasks.items()))


def _hash_lines(pairs: Iterable[tuple[str, str]]) -> str:
    return sha256_hex("".join(f"{name}\0{digest}\n" for name, digest in pairs).encode())


def _hash_file(name: str, path: Path, hashes: FileHashes) -> FileDigest:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise TaskError(f"{path}: its name is not UTF-8; it cannot be hashed") from error
    try:
        size = path.stat().st_size
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
    return FileDigest(name, hashes.digest_of(path), size)


def _find_files(root: Path) -> Iterator[Path]:
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        yield Path(entry.path)
        except OSError as error:
            raise TaskError(f"{directory}: cannot be read: {error.strerror}") from error
