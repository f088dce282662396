"""All digests of one task together."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from pathspec import PathSpec
from pathspec.pattern import Pattern

from proctor.digest import sha256_hex
from proctor.errors import TaskError
from proctor.task.checksum import hash_tree
from proctor.task.hashed import SHARED, FileHashes
from proctor.task.manifest import FileDigest, hash_files, task_digest
from proctor.task.parse import read_text
from proctor.task.presence import is_directory, is_file, is_there

# The digest of a task in harbor's lock.json, which differs from its task_checksum.
#
# It covers task.toml, instruction.md, README.md and all files below environment/, tests/, solution/
# and steps/, except those that the task's own .gitignore excludes. Only the top-level .gitignore is
# read; without one, a few default patterns apply. Links to files count as the files; links to
# directories do not count, unless one of the four directories is itself a link.


_FILES = ("task.toml", "instruction.md", "README.md")
_DIRECTORIES = ("environment", "tests", "solution", "steps")
_DEFAULT_PATTERNS = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
# A .gitignore is untrusted, and matching backtracks: bound its size, its patterns, and the ways in
# which the stars of one pattern can match the longest path.
_LARGEST_IGNORE_FILE = 1 << 20
_MOST_PATTERNS = 10_000
_MOST_WAYS = 10_000_000


def lock_digest(directory: Path, hashes: FileHashes = SHARED) -> str:
    """The digest of a task directory; lock.json prefixes it with `sha256:`.

    Raises:
        TaskError: something cannot be read, or a name is not UTF-8.
    """
    root = Path(os.path.realpath(directory))
    lines = [f"{name}\0{hashes.digest_of(root / name)}\n" for name in find_lock_files(root)]
    try:
        return sha256_hex("".join(lines).encode())
    except UnicodeEncodeError as error:
        raise TaskError(
            f"{directory}: has a file whose name is not UTF-8; harbor cannot hash it either"
        ) from error


def find_lock_files(directory: Path) -> list[str]:
    """List the paths that the lock digest covers, relative to the task directory, sorted.

    Raises:
        TaskError: something cannot be read, or .gitignore cannot be used.
    """
    root = Path(os.path.realpath(directory))
    try:
        names = [name for name in _FILES if is_there(root / name)]
        for name in _DIRECTORIES:
            names += _find_below(root, name)
    except OSError as error:
        raise TaskError(f"{error.filename or root}: cannot be read: {error.strerror}") from error
    ignored = _load_ignored(root, names)
    return sorted(name for name in names if not ignored.match_file(name))


def _find_below(root: Path, name: str) -> Iterator[str]:
    waiting = [name] if is_directory(root / name) else []
    while waiting:
        directory = waiting.pop()
        with os.scandir(root / directory) as entries:
            for entry in entries:
                path = f"{directory}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif is_file(Path(entry.path)):
                    yield path


def _load_ignored(root: Path, names: list[str]) -> PathSpec[Pattern]:
    path = root / ".gitignore"
    lines = list(_DEFAULT_PATTERNS)
    try:
        if is_there(path):
            lines = read_text(path, _LARGEST_IGNORE_FILE).splitlines()
            _check_effort(path, lines, names)
        return PathSpec.from_lines("gitignore", lines)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TaskError(f"{path}: cannot be used: {error}") from error


def _check_effort(path: Path, lines: list[str], names: list[str]) -> None:
    """Refuse patterns so many, or with so many stars, that matching could take too long."""
    if len(lines) > _MOST_PATTERNS:
        raise TaskError(f"{path}: has {len(lines)} lines; expected at most {_MOST_PATTERNS}")
    parts = [name.split("/") for name in names]
    longest = max((len(part) for name in parts for part in name), default=0)
    deepest = max(map(len, parts), default=0)
    for number, line in enumerate(lines, 1):
        segments = line.split("/")
        stars = max(segment.replace("**", "*").count("*") for segment in segments)
        doubled = min(segments.count("**"), deepest // 2)
        ways = math.comb(longest, min(stars, longest // 2)) * math.comb(deepest, doubled)
        if ways > _MOST_WAYS:
            raise TaskError(
                f"{path}: line {number} has so many stars that matching could take too long"
            )


class TaskDigests(msgspec.Struct, frozen=True):
    """The digests that identify a task's exact contents."""

    task_checksum: str
    """As in a trial's result.json: covers every file of the directory, links followed."""
    lock_digest: str
    """As in a job's lock.json, without `sha256:`: covers the files that harbor would publish."""
    dataset_v1: str
    """The task's digest in dataset digest v1: covers every file that is not a link."""
    files: tuple[FileDigest, ...]
    """Every file that is not a link, sorted by path."""
    followed: tuple[FileDigest, ...] | None
    """Every file that task_checksum covers, links followed, sorted by path; None if links make more
    paths than can be listed."""
    locked: frozenset[str]
    """The paths that the lock digest covers."""

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(file.size for file in self.files)


def load_digests(directory: Path, hashes: FileHashes = SHARED) -> TaskDigests:
    """Compute every digest of a task directory, whether or not harbor would accept it."""
    files = hash_files(directory, hashes)
    tree = hash_tree(directory, hashes)
    return TaskDigests(
        task_checksum=tree.checksum,
        lock_digest=lock_digest(directory, hashes),
        dataset_v1=task_digest(files),
        files=files,
        followed=tree.files,
        locked=frozenset(find_lock_files(directory)),
    )
