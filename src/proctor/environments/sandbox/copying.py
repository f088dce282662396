"""Copies the upper directories of overlays exactly.

Whiteouts, opaque directories, owners, modes, times, attributes, hard links and holes are preserved;
blocks are shared if the file system can (reflinks). No symlink is followed: the content is
untrusted, and the runner may be root. A copy that would need more than half of the free space is
not started. Uses only the standard library.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_MOST_ENTRIES = 1_000_000
# A copy may take at most 1/_SHARE of the free space.
_SHARE = 2
# Raised if a process that still runs in the sandbox moves files meanwhile; these are skipped.
_MOVING = FileNotFoundError, NotADirectoryError, IsADirectoryError
# ioctl that makes a file share another one's blocks.
_FICLONE = 0x40049409
_PIECE = 1 << 20
_BLOCK = 512
_ATTRIBUTES = ("user.", "trusted.", "system.posix_acl_", "security.capability")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Only Linux has O_NOATIME; on macOS, -e docker imports this module.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOATIME", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLargeError(Exception):
    """There is not enough space for a copy."""


def _check_room(pairs: Sequence[tuple[str, str]]) -> None:
    n_bytes = n_entries = 0
    for source, _ in pairs:
        for size in _sizes(source):
            n_bytes += size
            n_entries += 1
            if n_entries > _MOST_ENTRIES:
                raise TooLargeError(f"it contains more than {_MOST_ENTRIES:,} files")
    found = os.statvfs(Path(pairs[0][1]).parent)
    n_free = found.f_bavail * found.f_frsize
    if n_bytes * _SHARE > n_free:
        raise TooLargeError(
            f"it has {n_bytes:,} bytes, and a copy may take half of the {n_free:,} that are free "
            "on the disk"
        )


def _sizes(top: str) -> Iterator[int]:
    """Yield the size on disk of each file; hard links are counted once per name."""
    levels = [_open_level("", os.open(top, _DIRECTORY), -1)]
    while levels:
        level = levels[-1]
        name = next(level.names, None)
        if name is None:
            os.close(levels.pop().source)
            continue
        with suppress(*_MOVING):
            status = os.stat(name, dir_fd=level.source, follow_symlinks=False)
            yield _BLOCK * status.st_blocks
            if stat.S_ISDIR(status.st_mode):
                levels.append(_open_level("", os.open(name, _DIRECTORY, dir_fd=level.source), -1))


class _Level(NamedTuple):
    """A directory that is being copied."""

    path: str
    """Relative to the top, with a trailing slash; empty for the top."""
    source: int
    target: int
    names: Iterator[str]
    is_plain: bool = False


class Selection(NamedTuple):
    """Selects what is copied of a tree."""

    left_out: Collection[str] = ()
    """Relative paths that are left out, with everything below them."""
    plain: Collection[str] = ()
    """Directories that are created only as parents, with default owner and mode."""
    is_linking: bool = False
    """Hard-link regular files instead of copying them: no process writes the source any more."""


_ALL = Selection()


def copy_trees(pairs: Sequence[tuple[str, str]], selection: Selection = _ALL) -> None:
    """Copy the selected files of each source directory to its target, which must not exist."""
    _check_room(pairs)
    for source, target in pairs:
        copy_tree(source, target, selection)


def copy_tree(source: str, target: str, selection: Selection = _ALL) -> None:
    """Copy a directory with its contents to a path that does not exist yet."""
    Path(target).mkdir(0o700)
    top = _open_level("", os.open(source, _DIRECTORY), os.open(target, _DIRECTORY))
    levels = [top]
    linked: dict[tuple[int, int], str] = {}
    # By open directories, because paths in it may be longer than PATH_MAX.
    while levels:
        name = next(levels[-1].names, None)
        if name is None:
            level = levels.pop()
            if not level.is_plain:
                _give_looks(level.source, level.target)
            os.close(level.source)
            os.close(level.target)
            continue
        with suppress(*_MOVING):
            levels += _copy_entry(top, levels[-1], name, linked, selection)


def _open_level(path: str, source: int, target: int) -> _Level:
    return _Level(path, source, target, iter(os.listdir(source)))


def _copy_entry(
    top: _Level, level: _Level, name: str, linked: dict[tuple[int, int], str], selection: Selection
) -> list[_Level]:
    """Copy one entry; return a directory, still empty, as a new level."""
    status = os.stat(name, dir_fd=level.source, follow_symlinks=False)
    path = f"{level.path}{name}"
    if path in selection.left_out:
        return []
    if stat.S_ISDIR(status.st_mode):
        is_plain = path in selection.plain
        os.mkdir(name, 0o755 if is_plain else 0o700, dir_fd=level.target)
        source = os.open(name, _DIRECTORY, dir_fd=level.source)
        target = os.open(name, _DIRECTORY, dir_fd=level.target)
        return [_open_level(f"{path}/", source, target)._replace(is_plain=is_plain)]
    known = status.st_dev, status.st_ino
    if selection.is_linking and stat.S_ISREG(status.st_mode):
        os.link(
            *(name, name), src_dir_fd=level.source, dst_dir_fd=level.target, follow_symlinks=False
        )
    elif known in linked:
        os.link(
            *(linked[known], name),
            src_dir_fd=top.target,
            dst_dir_fd=level.target,
            follow_symlinks=False,
        )
    else:
        _copy_leaf(level, name, status)
        if status.st_nlink > 1 and not _is_deletion(status):
            linked[known] = path
    return []


def _is_deletion(status: os.stat_result) -> bool:
    """Whether it is a whiteout; overlayfs hard-links these, which need not be preserved."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _copy_leaf(level: _Level, name: str, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        source = os.open(name, _FILE, dir_fd=level.source)
        target = os.open(name, _NEW, 0o600, dir_fd=level.target)
        try:
            _copy_bytes(source, target, status.st_size)
            _give_looks(source, target)
        finally:
            os.close(source)
            os.close(target)
        return
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=level.source), name, dir_fd=level.target)
    else:
        # A whiteout is the device 0:0, which any user may make; also pipes and sockets.
        os.mknod(name, status.st_mode, status.st_rdev, dir_fd=level.target)
    place = level.target
    os.chown(name, status.st_uid, status.st_gid, dir_fd=place, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=place)
    times = status.st_atime_ns, status.st_mtime_ns
    os.utime(name, ns=times, dir_fd=place, follow_symlinks=False)


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copy the bytes of a file, without its holes."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        # The file system cannot share blocks.
        os.ftruncate(target, size)
    else:
        return
    for start, end in _find_data(source, size):
        at = start
        while at < end:
            piece = os.pread(source, min(_PIECE, end - at), at)
            if not piece:
                return
            at += os.pwrite(target, piece, at)


def _find_data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of data in a file."""
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(file, start, os.SEEK_HOLE)
        yield start, end


def _give_looks(source: int, target: int) -> None:
    """Copy owner, attributes, mode and times."""
    # In this order: chown clears mode bits and capabilities, and all of them change times.
    status = os.fstat(source)
    os.fchown(target, status.st_uid, status.st_gid)
    for name in os.listxattr(source):
        if name.startswith(_ATTRIBUTES):
            os.setxattr(target, name, os.getxattr(source, name))
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
