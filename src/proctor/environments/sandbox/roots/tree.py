"""Writes a root file system to the disk, entry by entry, and computes its digest.

It starts empty and knows every entry, so no entry can lead another one out of the root.
"""

import os
import posixpath
import stat
import sys
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from proctor.digest import sha256_copy, sha256_hex
from proctor.errors import ImageError
from proctor.sentence import render_limit

# The kernel's limit.
_MOST_LINKS = 40
# Limits of the memory, in bytes, for what is kept until the end: names and targets of symlinks, of
# which a million take about 150 MiB, and attributes of directories.
_MOST_NAMES = 1 << 29
_MOST_ATTRIBUTES = 1 << 26


class Kind(StrEnum):
    """Kind of an entry."""

    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"
    """A symbolic link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a tree, without its name."""

    kind: Kind
    mode: int
    """Permission bits, with setuid, setgid and sticky."""
    uid: int
    gid: int
    mtime_ns: int
    content: str = ""
    """SHA-256 of a file, or target of a symlink."""
    size: int = 0
    """Size of a file in bytes."""
    xattrs: tuple[tuple[str, bytes], ...] = ()
    """Extended attributes, which only layers of their own keep."""


class Tree:
    """A tree that is being written.

    For an unprivileged user, all files belong to that user, who is root inside; the digest has 0 as
    the owner then.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_root = os.geteuid() == 0
        self._entries: dict[str, Entry] = {"": _directory(0o755, 0)}
        self._n_names = _MOST_NAMES
        self._n_attributes = _MOST_ATTRIBUTES

    def __contains__(self, path: str) -> bool:
        return path in self._entries

    def __len__(self) -> int:
        """Return the number of entries below the root."""
        return len(self._entries) - 1

    @property
    def size(self) -> int:
        """Sum of the sizes of all files; hard links count once per name."""
        return sum(entry.size for entry in self._entries.values())

    @property
    def top(self) -> list[str]:
        """Sorted names at the top."""
        return sorted(path for path in self._entries if path and "/" not in path)

    def add_directory(self, path: str, entry: Entry) -> None:
        """Add a directory; an existing one gets these permissions."""
        if path and self._make_way(path, Kind.DIRECTORY):
            (self._root / path).mkdir(mode=0o700)
        self._keep(path, self._owned(entry))

    def add_file(self, path: str, entry: Entry, source: BinaryIO) -> None:
        """Add a file with the rest of the bytes of `source`."""
        self._make_way(path, Kind.FILE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._root / path, flags, 0o600), "wb") as target:
            digest = self._copy(source, target)
            target.flush()  # a later write would change the time again
            size = target.tell()
            self._dress_file(target.fileno(), entry)
        self._keep(path, replace(self._owned(entry), content=digest, size=size, xattrs=()))

    def add_link(self, path: str, entry: Entry) -> None:
        """Add a symlink; its target need not exist."""
        self._make_way(path, Kind.LINK)
        (self._root / path).symlink_to(entry.content)
        times = (entry.mtime_ns, entry.mtime_ns)
        if self._is_root:
            owned = self._owned(entry)
            os.chown(self._root / path, owned.uid, owned.gid, follow_symlinks=False)
        os.utime(self._root / path, ns=times, follow_symlinks=False)
        # Symlinks have no mode: file systems report 0777.
        self._keep(path, replace(self._owned(entry), mode=0o777, xattrs=()))

    def add_name(self, path: str, of: str) -> None:
        """Add a hard link to an existing file.

        Raises:
            ImageError: there is no such file.
        """
        found = self._entries.get(of)
        if found is None or found.kind is Kind.DIRECTORY:
            raise ImageError(f"{path}: a hard link to {of}, which is not an earlier file")
        if path != of:
            self._make_way(path, found.kind)
            os.link(self._root / of, self._root / path, follow_symlinks=False)
            self._keep(path, found)

    def _keep(self, path: str, entry: Entry) -> None:
        """Remember an entry; only directories need their attributes until the end."""
        self._n_names -= sys.getsizeof(path) + sys.getsizeof(entry.content)
        self._n_attributes -= sum(len(name) + len(value) for name, value in entry.xattrs)
        if self._n_names < 0:
            raise ImageError(
                f"names and targets of symlinks take more than {render_limit(_MOST_NAMES)}; refused"
            )
        if self._n_attributes < 0:
            raise ImageError(
                f"attributes of directories take more than {render_limit(_MOST_ATTRIBUTES)}; "
                "refused"
            )
        self._entries[path] = entry

    def kind_of(self, path: str) -> Kind | None:
        """Return the kind of an entry; None if there is none."""
        found = self._find(path)
        return None if found is None else found.kind

    def _find(self, path: str) -> Entry | None:
        """Return what is at a path."""
        return self._entries.get(path)

    def _copy(self, source: BinaryIO, target: BinaryIO) -> str:
        """Copy the contents of a file; return their digest."""
        return sha256_copy(source, target)

    def through_links(self, path: str) -> str:
        """Follow symlinks to directories of this tree, except in the last part of the path.

        A symlink that leads elsewhere stays in the path, and nothing can be written below it.
        """
        above, _, name = path.rpartition("/")
        for _ in range(_MOST_LINKS):
            followed = self._follow_first(above)
            if followed is None:
                break
            above = followed
        return posixpath.join(above, name)

    def _follow_first(self, path: str) -> str | None:
        """Follow the first symlink of a path, if it leads to a directory of this tree."""
        parts = path.split("/")
        for n in range(1, len(parts) + 1):
            found = self._find("/".join(parts[:n]))
            if found is None or found.kind is not Kind.LINK:
                continue
            up = f"/{'/'.join(parts[: n - 1])}"
            to = posixpath.normpath(posixpath.join(up, found.content)).lstrip("/")
            is_here = to != "" and self.kind_of(to) in (Kind.DIRECTORY, Kind.LINK)
            return posixpath.join(to, *parts[n:]) if is_here else None
        return None

    def remove(self, path: str, keep: AbstractSet[str]) -> None:
        """Remove an entry with everything below it, except what is in `keep`."""
        if self.kind_of(path) is Kind.DIRECTORY:
            self.remove_below(path, keep)
        if path in self._entries and path not in keep:
            self._drop(path)

    def remove_below(self, path: str, keep: AbstractSet[str]) -> None:
        """Remove everything below a directory, except what is in `keep`, with its parents."""
        if self.kind_of(path) is not Kind.DIRECTORY:
            return
        for directory, below, files in os.walk(self._root / path, topdown=False):
            inner = os.path.relpath(directory, self._root)
            for name in (*files, *below):
                found = posixpath.normpath(posixpath.join(inner, name))
                if found not in keep:
                    self._drop(found)

    def _drop(self, path: str) -> None:
        if self._entries.pop(path).kind is Kind.DIRECTORY:
            (self._root / path).rmdir()
        else:
            (self._root / path).unlink()

    def finish(self) -> str:
        """Set the permissions of directories, and return the digest of the tree."""
        self._dress_directories()
        return digest_of(self._entries)

    def _dress_directories(self) -> None:
        # Deepest first: a directory may become inaccessible only after its contents are done.
        for path in sorted(self._entries, reverse=True):
            entry = self._entries[path]
            if entry.kind is Kind.DIRECTORY:
                fd = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    self._dress_file(fd, entry)
                finally:
                    os.close(fd)

    def _owned(self, entry: Entry) -> Entry:
        return entry if self._is_root else replace(entry, uid=0, gid=0)

    def _dress_file(self, fd: int, entry: Entry) -> None:
        if self._is_root:
            owned = self._owned(entry)
            os.fchown(fd, owned.uid, owned.gid)
        os.fchmod(fd, entry.mode)
        os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))

    def _make_way(self, path: str, kind: Kind) -> bool:
        """Make sure that an entry can be written; return False if an existing directory stays."""
        self._make_parents(path)
        found = self._entries.get(path)
        if found is None:
            return True
        if found.kind is Kind.DIRECTORY and kind is Kind.DIRECTORY:
            return False
        if Kind.DIRECTORY in (found.kind, kind):
            raise ImageError(f"{path}: is both a {found.kind} and a {kind}")
        (self._root / path).unlink()
        return True

    def _make_parents(self, path: str) -> None:
        parent = posixpath.dirname(path)
        found = self._entries.get(parent)
        if found is None:
            self._make_parents(parent)
            (self._root / parent).mkdir(mode=0o700)
            self._keep(parent, self._implied(parent))
        elif found.kind is not Kind.DIRECTORY:
            raise ImageError(f"{path}: is below {parent}, which is a {found.kind}")

    def _implied(self, path: str) -> Entry:
        """Return the metadata of a directory that has no entry of its own."""
        return _directory(0o755, 0)


def _directory(mode: int, mtime_ns: int) -> Entry:
    return Entry(kind=Kind.DIRECTORY, mode=mode, uid=0, gid=0, mtime_ns=mtime_ns)


def entry_of(status: os.stat_result, kind: Kind, content: str = "") -> Entry:
    """Return a file's metadata."""
    return Entry(
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        content=content,
    )


def digest_of(entries: dict[str, Entry]) -> str:
    """Return the SHA-256 over path, kind, mode, owner and content of every entry, without times."""
    lines = (
        os.fsencode("\0".join((path, entry.kind, f"{entry.mode:o}", owner(entry), entry.content)))
        for path, entry in sorted(entries.items())
    )
    return sha256_hex(b"\0\0".join(lines))


def owner(entry: Entry) -> str:
    """Return user and group, as numbers."""
    return f"{entry.uid}:{entry.gid}"
