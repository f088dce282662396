"""Unpacks an archive from a sandbox on the host. Its content is untrusted.

Nothing is written outside the target or through a symlink. Symlinks are kept only if they point
inside; set-user-id bits are dropped; the user who runs proctor can read and delete everything.
Refused entries are listed. Blocks: call it in a thread.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from proctor.environments.sandbox.archive import (
    DIRECTORY,
    FILE,
    LINK,
    BrokenArchiveError,
    Entry,
    Limits,
    Receiver,
)

# Fixed modes: only the executable bit of a file is kept.
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_PROGRAM_MODE = 0o755
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(stream: BinaryIO, target: Path, name: str, limits: Limits) -> tuple[str, ...]:
    """Write a file to target (into it, if it is a directory), or the contents of a directory.

    Returns:
        Refused entries, each as `path: reason`.

    Raises:
        BrokenArchiveError: the stream is not an archive, ends early, or is larger than allowed.
        OSError: the target cannot be written.
    """
    receiver = Receiver(stream)
    entries = receiver.entries()
    first = next(entries, None)
    if first is None:
        raise BrokenArchiveError("what came out of the sandbox is not an archive of files")
    if first.kind == DIRECTORY:
        target.mkdir(parents=True, exist_ok=True)
        with _Tree(receiver, target, limits) as tree:
            for entry in entries:
                tree.add(entry)
        return tuple(tree.refused)
    place = target / name if target.is_dir() else target
    place.parent.mkdir(parents=True, exist_ok=True)
    with _Tree(receiver, place.parent, limits) as tree:
        tree.add(Entry(first.kind, place.name, first.mode, first.time_ns, first.size))
        for _ in entries:
            raise BrokenArchiveError("what came out of the sandbox is more than the one file")
    return tuple(tree.refused)


class _Tree:
    """A directory that is being written."""

    def __init__(self, receiver: Receiver, top: Path, limits: Limits) -> None:
        self.refused: list[str] = []
        self._receiver = receiver
        self._limits = limits
        self._n_bytes = 0
        self._n_entries = 0
        # The target itself may be a symlink: the caller chose it.
        self._top = os.open(top, _OPEN_DIRECTORY & ~os.O_NOFOLLOW)
        self._parent: tuple[str, int] = ("", os.dup(self._top))

    def __enter__(self) -> "_Tree":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._parent[1])
        os.close(self._top)

    def add(self, entry: Entry) -> None:
        """Write one entry, or refuse it."""
        # The sender, which also does, runs in the sandbox.
        self._n_entries += 1
        self._n_bytes += entry.size if entry.kind == FILE else 0
        limits = self._limits
        if limits.n_bytes is not None and self._n_bytes > limits.n_bytes:
            raise BrokenArchiveError(f"more than {limits.n_bytes} bytes came out of the sandbox")
        if limits.n_entries is not None and self._n_entries > limits.n_entries + 1:
            raise BrokenArchiveError(
                f"more than {limits.n_entries} entries came out of the sandbox"
            )
        if entry.kind not in (FILE, DIRECTORY, LINK):
            self.refused.append(f"{entry.name}: {self._receiver.text()}")
            return
        _check_name(entry.name)
        above, _, name = entry.name.rpartition("/")
        parent = self._open_parent(above)
        if entry.kind == DIRECTORY:
            _make_directory(parent, name)
        elif entry.kind == FILE:
            _make_way(parent, name)
            mode = _PROGRAM_MODE if entry.mode & stat.S_IXUSR else _FILE_MODE
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, mode, dir_fd=parent)
            try:
                self._receiver.copy_to(fd)
                os.utime(fd, ns=(entry.time_ns, entry.time_ns))
            except (OSError, BrokenArchiveError):
                # A full disk, or the sender died: half a file must not look like a whole one.
                os.unlink(name, dir_fd=parent)
                raise
            finally:
                os.close(fd)
        else:
            to = self._receiver.text()
            if not _stays_inside(entry.name, to):
                self.refused.append(f"{entry.name}: a link to {to}, which leads out")
                return
            _make_way(parent, entry.name.rpartition("/")[2])
            os.symlink(to, entry.name.rpartition("/")[2], dir_fd=parent)

    def _open_parent(self, above: str) -> int:
        """Open the directory of an entry, step by step and never through a symlink."""
        if above == self._parent[0]:
            return self._parent[1]
        # The common part with the last path has no symlink, and no other process writes here, so
        # it is opened at once. Otherwise the cost of a deep tree would be quadratic.
        known = os.path.commonpath((self._parent[0], above)) if self._parent[0] and above else ""
        fd = os.open(known or ".", _OPEN_DIRECTORY, dir_fd=self._top)
        for name in filter(None, above[len(known) :].split("/")):
            inner = _make_directory(fd, name)
            try:
                below = os.open(name, _OPEN_DIRECTORY, dir_fd=inner)
            finally:
                os.close(fd)
            fd = below
        os.close(self._parent[1])
        self._parent = (above, fd)
        return fd


def _check_name(name: str) -> None:
    if not name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise BrokenArchiveError(f"{name!r} came out of the sandbox; expected a path below its top")


def _stays_inside(name: str, to: str) -> bool:
    """Whether a symlink points below the top, even through other symlinks."""
    # `..` is allowed only at the beginning, where it starts from real directories: after a
    # symlink it could be anywhere.
    steps = to.split("/")
    n_up = next((n for n, one in enumerate(steps) if one != ".."), len(steps))
    if not to or to.startswith("/") or ".." in steps[n_up:]:
        return False
    return n_up <= name.count("/")


def _make_directory(parent: int, name: str) -> int:
    """Make a directory unless it exists; return the parent."""
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            return parent
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
    return parent


def _make_way(parent: int, name: str) -> None:
    """Remove what is at a name; raises if it is a directory."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
