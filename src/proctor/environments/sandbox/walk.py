"""Lists everything that was written in a sandbox, from the upper layers of its overlays.

    entries, is_cut = list_written(parts, known, limits)

An upper layer contains exactly what differs from the image, so the list is complete whatever the
agent did. Nothing is run inside, and no symlink is followed: each directory is opened relative to
its parent. Uses only the standard library, because it also runs in a small child process (see
mapped.py).
"""

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from proctor.digest import sha256_hex, sha256_start

CREATED, CHANGED, DELETED, REPLACED = "created", "changed", "deleted", "replaced"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Only Linux has O_PATH and O_NOATIME; on macOS, -e docker imports this module.
_LOWER = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOATIME", 0)
_OVERLAY = ("trusted.overlay.", "user.overlay.")
# Attributes that overlayfs itself writes.
_OWN_NOTES = frozenset(
    ("opaque", "redirect", "origin", "impure", "nlink", "upper", "metacopy", "uuid", "protattr")
)
_LONGEST_VALUE = 256
# Depth of directories. Each level keeps files open, one for each layer.
_DEEPEST = 100
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


class Limits(NamedTuple):
    """Limits of a list."""

    n_entries: int = 300_000
    n_bytes: int = 2 << 30
    """Bytes that are read to compute digests."""
    seconds: float = 60.0
    is_hashing: bool = True


class Written(NamedTuple):
    """One path that differs from the image."""

    path: str
    """Absolute path, as seen inside; bytes that are not UTF-8 are surrogates."""
    how: str
    kind: str
    """file, directory, link, fifo, socket or device; for a deleted path, the image's kind."""
    in_image: bool
    mode: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    mark: str = ""
    """A value that changes whenever the path is rewritten, even with the same bytes."""
    sha256: str = ""
    """Digest of a regular file; empty if it was not read."""
    target: str = ""
    """Target of a symlink."""
    xattrs: Mapping[str, str] = {}
    is_known: bool = False
    """Whether it had the same mark in the earlier list."""


class Layers(NamedTuple):
    """One overlay of a sandbox."""

    target: str
    upper: str
    lowers: tuple[str, ...]


class _Content(NamedTuple):
    """Content of a path; see Written."""

    sha256: str = ""
    target: str = ""
    xattrs: Mapping[str, str] = {}


_UNREAD = _Content()


class _Level(NamedTuple):
    path: str
    """Ends with a slash."""
    upper: int
    lowers: tuple[int, ...]
    names: Iterator[str]


def list_written(
    parts: Sequence[Layers], known: Mapping[str, str], limits: Limits
) -> tuple[list[Written], bool]:
    """List all that was written; return also whether the list was cut.

    `known` contains the marks of an earlier list. Known paths that no longer exist are listed as
    deleted. Files beyond the limit of bytes have no digest.
    """
    walk = _Walk(known, limits)
    for part in parts:
        walk.add(part)
    if known and not walk.is_cut:
        seen = {entry.path for entry in walk.entries} | walk.unlisted
        # Paths that were already deleted have no mark.
        gone = sorted(path for path, mark in known.items() if mark and path not in seen)
        walk.entries += [Written(path, DELETED, "file", in_image=False) for path in gone]
    return walk.entries, walk.is_cut


class _Walk:
    def __init__(self, known: Mapping[str, str], limits: Limits) -> None:
        self.entries: list[Written] = []
        # Directories that are in an upper layer only because something below them changed.
        self.unlisted: set[str] = set()
        self.is_cut = False
        self._known = known
        self._limits = limits
        self._n_bytes = limits.n_bytes
        self._until = time.monotonic() + limits.seconds

    def add(self, part: Layers) -> None:
        lowers = tuple(os.open(lower, _LOWER) for lower in part.lowers)
        levels = [
            _open_level(f"{part.target.rstrip('/')}/", os.open(part.upper, _DIRECTORY), lowers)
        ]
        try:
            while levels and not self._is_over():
                name = next(levels[-1].names, None)
                if name is None:
                    _close(levels.pop())
                # None also for a file that was removed meanwhile.
                elif deeper := self._look(levels[-1], name):
                    if len(levels) < _DEEPEST:
                        levels.append(deeper)
                    else:
                        _close(deeper)
                        self.is_cut = True
        finally:
            for level in levels:
                _close(level)

    def _is_over(self) -> bool:
        is_over = len(self.entries) >= self._limits.n_entries or time.monotonic() > self._until
        self.is_cut |= is_over
        return is_over

    def _look(self, level: _Level, name: str) -> _Level | None:
        """List one name; return the opened directory if it is one."""
        try:
            found = os.stat(name, dir_fd=level.upper, follow_symlinks=False)
        except FileNotFoundError:
            return None
        path, before = f"{level.path}{name}", _find_lower(level.lowers, name)
        if _is_whiteout(found):
            if before is not None:
                is_known = self._known.get(path) == DELETED
                self._list(_deletion(path, before)._replace(is_known=is_known))
            return None
        if stat.S_ISDIR(found.st_mode):
            return self._look_into(level, name, found, before)
        how = CREATED if before is None else CHANGED
        if before is not None and stat.S_IFMT(before.st_mode) != stat.S_IFMT(found.st_mode):
            how = REPLACED
        is_known = self._known.get(path) == _mark(found)
        content = _UNREAD if is_known else self._read(level, name, found)
        entry = _describe(path, how, found, content, in_image=before is not None)
        self._list(entry._replace(is_known=True) if is_known else entry)
        return None

    def _look_into(
        self, level: _Level, name: str, found: os.stat_result, before: os.stat_result | None
    ) -> _Level | None:
        path = f"{level.path}{name}"
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=level.upper)
        except FileNotFoundError:
            return None
        is_new = before is None or not stat.S_ISDIR(before.st_mode)
        how = CREATED if before is None else REPLACED if is_new or _is_opaque(fd) else CHANGED
        entry = _describe(path, how, found, in_image=before is not None)
        # Without times, which change with every entry made in it.
        entry = entry._replace(mark=f"{found.st_ino}-{how}-{_looks(found)}")
        if how != CHANGED or (before and _looks(before) != _looks(found)):
            is_known = self._known.get(path) == entry.mark
            self._list(entry._replace(is_known=is_known, xattrs=_read_xattrs(fd)))
        else:
            self.unlisted.add(path)
        lowers = () if is_new else tuple(_open_lowers(level.lowers, name))
        return _open_level(f"{path}/", fd, lowers)

    def _list(self, entry: Written) -> None:
        self.entries.append(entry)

    def _read(self, level: _Level, name: str, found: os.stat_result) -> _Content:
        try:
            if stat.S_ISLNK(found.st_mode):
                return _Content(target=os.readlink(name, dir_fd=level.upper))
            if not stat.S_ISREG(found.st_mode) or not self._limits.is_hashing:
                return _UNREAD
            fd = os.open(name, _FILE, dir_fd=level.upper)
            try:
                xattrs = _read_xattrs(fd)
                if found.st_size > self._n_bytes:
                    return _Content(xattrs=xattrs)
                self._n_bytes -= found.st_size
                return _Content(sha256_start(fd, found.st_size), "", xattrs)
            finally:
                os.close(fd)
        except OSError:
            return _UNREAD


def _open_level(path: str, upper: int, lowers: tuple[int, ...]) -> _Level:
    return _Level(path, upper, lowers, iter(sorted(os.listdir(upper))))


def _close(level: _Level) -> None:
    for fd in (level.upper, *level.lowers):
        os.close(fd)


def _find_lower(lowers: Sequence[int], name: str) -> os.stat_result | None:
    """Return what the image has under a name."""
    for fd in lowers:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            continue
        return None if _is_whiteout(found) else found
    return None


def _open_lowers(lowers: Sequence[int], name: str) -> Iterator[int]:
    """Yield the directory of a name in each layer of the image that overlayfs would merge."""
    for fd in lowers:
        try:
            found = os.open(name, _LOWER, dir_fd=fd)
        except FileNotFoundError:
            continue
        except OSError:
            # A file, symlink or whiteout hides the layers below.
            return
        yield found
        if _is_opaque(found):
            return


def _is_opaque(fd: int) -> bool:
    # Through /proc: fgetxattr does not work on a descriptor opened with O_PATH.
    for prefix in _OVERLAY:
        with suppress(OSError):
            if os.getxattr(f"/proc/self/fd/{fd}", f"{prefix}opaque") == b"y":
                return True
    return False


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _looks(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mode, found.st_uid, found.st_gid


def _mark(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_ctime_ns}"


def _deletion(path: str, before: os.stat_result) -> Written:
    kind = _KINDS.get(stat.S_IFMT(before.st_mode), "device")
    # Not by inode: overlayfs hard-links whiteouts, so the times change with every further one.
    return Written(path, DELETED, kind, in_image=True, mark=DELETED)


def _describe(
    path: str, how: str, found: os.stat_result, content: _Content = _UNREAD, *, in_image: bool
) -> Written:
    return Written(
        path,
        how,
        _KINDS.get(stat.S_IFMT(found.st_mode), "device"),
        in_image,
        stat.S_IMODE(found.st_mode),
        found.st_uid,
        found.st_gid,
        found.st_size,
        _mark(found),
        *content,
    )


def _read_xattrs(fd: int) -> dict[str, str]:
    try:
        names = [name for name in os.listxattr(fd) if not _is_own_note(name)]
        return {name: _render_value(os.getxattr(fd, name)) for name in names}
    except OSError:
        return {}


def _is_own_note(name: str) -> bool:
    return name.startswith(_OVERLAY) and name.rpartition(".")[2] in _OWN_NOTES


def _render_value(value: bytes) -> str:
    if len(value) > _LONGEST_VALUE:
        return f"sha256:{sha256_hex(value)}"
    return value.decode(errors="backslashreplace")
