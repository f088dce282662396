"""harbor's task_checksum: one digest over the names, layout and contents of a whole directory.

    file        data:<sha256 of its bytes> NUL name:<name>
    directory   dirhash:<its digest> NUL name:<name>
    digest      of a directory: SHA-256 of the sorted descriptions of its entries, joined by NUL NUL

Links are followed, also out of the directory. Directories without a file below them, dangling
links, pipes, sockets and devices do not count. Nothing else is left out: a `.git` counts.

The list of covered files comes from the same walk that computes the checksum, so the two cannot
differ.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import TaskError
from proctor.task.hashed import SHARED, FileHashes
from proctor.task.manifest import FileDigest

# Links can multiply paths exponentially; beyond this only the checksum is computed.
LONGEST_LIST: Final = 1 << 24
"""Most characters in the paths of all files together for them to be listed."""


class HashedTree(msgspec.Struct, frozen=True):
    """A hashed directory, links followed."""

    checksum: str
    """As in a trial's result.json."""
    files: tuple[FileDigest, ...] | None
    """Every file that the checksum covers, in order; None if links make too many paths."""


class _Listing(msgspec.Struct, gc=False):
    """The contents of one directory."""

    files: list[str]
    """File names."""
    hashed: list[FileDigest]
    """The same files with their digests, once they are read; paths are bare names."""
    directories: dict[str, str]
    """Subdirectories by name, each with its real path."""


def task_checksum(directory: Path, hashes: FileHashes = SHARED) -> str:
    """The checksum of a task directory, as in a trial's result.json."""
    return hash_tree(directory, hashes).checksum


def hash_tree(directory: Path, hashes: FileHashes = SHARED) -> HashedTree:
    """Compute the checksum of a task directory, and the files that it covers.

    Raises:
        TaskError: the directory has no file, something in it cannot be read, a name is not UTF-8,
            or its links form a cycle. harbor fails in these cases too.
    """
    root = os.path.realpath(directory)
    digests: dict[str, str] = {}
    tree = _list_tree(root)
    for path, listing in tree.items():
        listing.hashed += [_hash_file(path, name, hashes) for name in listing.files]
        if entries := _describe(listing, digests):
            digests[path] = _hash_entries(path, entries)
    if root not in digests:
        raise TaskError(f"{directory}: has no files; there is nothing to hash")
    if _measure(tree, root) > LONGEST_LIST:
        return HashedTree(digests[root], None)
    # Skip directories without files: a few links can make exponentially many paths to them.
    filled = {path: listing for path, listing in tree.items() if path in digests}
    files = sorted(_spread(filled, root), key=lambda file: file.path)
    return HashedTree(digests[root], tuple(files))


def checksum_of_list(files: Iterable[tuple[str, str]]) -> str:
    """Compute the checksum of a task from the paths and SHA-256 of its files alone."""
    folders: dict[str, list[str]] = {"": []}
    for path, sha256 in files:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(f"data:{sha256}\0name:{name}")
        while folder := folder.rpartition("/")[0]:
            folders.setdefault(folder, [])
    # Deepest first: a directory's digest needs those of its subdirectories.
    for folder in sorted(folders, key=lambda path: path.count("/"), reverse=True):
        if folder:
            around, _, name = folder.rpartition("/")
            digest = _hash_entries(folder, sorted(folders[folder]))
            folders[around].append(f"dirhash:{digest}\0name:{name}")
    return _hash_entries("", sorted(folders[""]))


def _hash_file(folder: str, name: str, hashes: FileHashes) -> FileDigest:
    path = Path(folder, name)
    digest = hashes.digest_of(path)
    try:
        return FileDigest(name, digest, path.stat().st_size)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error


def _measure(tree: dict[str, _Listing], root: str) -> int:
    """Sum the lengths of all file paths without building them."""
    sizes: dict[str, tuple[int, int]] = {}
    for path, listing in tree.items():
        count, length = len(listing.files), sum(map(len, listing.files))
        for name, real in listing.directories.items():
            below, their_length = sizes[real]
            count += below
            length += their_length + below * (len(name) + 1)
        sizes[path] = count, length
    return sizes[root][1]


def _spread(tree: dict[str, _Listing], root: str) -> Iterator[FileDigest]:
    """List every file under every path that leads to it."""
    waiting = [("", root)]
    while waiting:
        before, real = waiting.pop()
        for file in tree[real].hashed:
            yield FileDigest(f"{before}{file.path}", file.sha256, file.size)
        below = tree[real].directories.items()
        waiting += [(f"{before}{name}/", path) for name, path in below if path in tree]


def _describe(listing: _Listing, digests: dict[str, str]) -> list[str]:
    entries = [f"data:{file.sha256}\0name:{file.path}" for file in listing.hashed]
    entries += [
        f"dirhash:{digests[real]}\0name:{name}"
        for name, real in listing.directories.items()
        if real in digests
    ]
    return sorted(entries)


def _hash_entries(path: str, entries: list[str]) -> str:
    try:
        return sha256_hex("\0\0".join(entries).encode())
    except UnicodeEncodeError as error:
        raise TaskError(
            f"{path}: has a file whose name is not UTF-8; harbor cannot hash it either"
        ) from error


def _list_tree(root: str) -> dict[str, _Listing]:
    """List every reachable directory by real path; each after all those below it.

    A directory that many links lead to is listed once, because a few links can make exponentially
    many paths. Everything is listed before any file is read, so that a link to the root of the
    file system fails early.
    """
    done: dict[str, _Listing] = {}
    open_ = {root: _list_directory(root)}
    way = [(root, iter(open_[root].directories.values()))]
    while way:
        path, below = way[-1]
        child = next(below, None)
        if child is None:
            done[path] = open_.pop(path)
            way.pop()
        elif child in open_:
            raise TaskError(f"{path}: its links form a cycle through {child}")
        elif child not in done:
            open_[child] = _list_directory(child)
            way.append((child, iter(open_[child].directories.values())))
    return done


def _list_directory(path: str) -> _Listing:
    listing = _Listing([], [], {})
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                    listing.directories[entry.name] = real
                elif entry.is_file():
                    listing.files.append(entry.name)
    except OSError as error:
        raise TaskError(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    return listing
