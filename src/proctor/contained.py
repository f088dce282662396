"""Read and write files below a directory without ever leaving it.

    open_below(root, "a/b")      open a regular file for reading
    create_below(root, "a/b")    create a new file and the directories it needs
    list_below(root, "a")        list the names in a directory
    make_below(root, "a/b")      make a directory and its parents
    check_relative("a/b")        refuse anything but a plain relative path

The root itself may be any path. Below it no link is followed, even one planted while this runs:
each directory is opened relative to the one above it. Nothing here is durable.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_NAMES = frozenset({"", ".", ".."})


def check_relative(path: str) -> list[str]:
    """Split a plain relative path into its names.

    Raises:
        OSError: it is absolute, has an empty, `.` or `..` part, or a null character.
    """
    parts = path.split("/")
    if "\0" in path or not _NO_NAMES.isdisjoint(parts):
        raise OSError(errno.EINVAL, "not a plain relative path", path)
    return parts


def open_below(root: Path | str, path: str) -> BinaryIO:
    """Open a regular file below a directory for reading.

    Raises:
        OSError: it cannot be opened, is not a regular file, or a link is on the way.
    """
    *folders, name = check_relative(path)
    with _opened(root, folders, path) as folder:
        fd = _open(name, _READ, folder, path)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return cast(BinaryIO, os.fdopen(fd, "rb", buffering=0))


@contextlib.contextmanager
def create_below(root: Path | str, path: str) -> Iterator[BinaryIO]:
    """Create a file below a directory; it gets its name when the block ends without an error.

    Missing directories are made. If the block raises, no file is left.

    Raises:
        FileExistsError: the path exists; it is left unchanged.
        OSError: it cannot be written, or a link is on the way.
    """
    *folders, name = check_relative(path)
    with _opened(root, folders, path, make=True) as folder:
        temporary = f".{os.urandom(8).hex()}.tmp"
        fd = os.open(temporary, _NEW, 0o666, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                yield cast(BinaryIO, file)
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileExistsError:
                raise FileExistsError(errno.EEXIST, "already exists", path) from None
        finally:
            os.unlink(temporary, dir_fd=folder)


def list_below(root: Path | str, path: str) -> list[str]:
    """List the names in a directory below `root`."""
    with _opened(root, check_relative(path), path) as folder:
        return os.listdir(folder)  # noqa: PTH208 - no Path has a descriptor


def make_below(root: Path | str, path: str) -> None:
    """Make a directory below `root`, and its parents, unless it exists."""
    with _opened(root, check_relative(path), path, make=True):
        pass


@contextlib.contextmanager
def _opened(
    root: Path | str, folders: Sequence[str], path: str, *, make: bool = False
) -> Iterator[int]:
    """Open the directory that these names lead to; yields its descriptor."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
            below = _open(name, _DIRECTORY, fd, path)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _open(name: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        error.filename = path
        # For a link that O_NOFOLLOW refuses, the kernel reports ENOTDIR or ELOOP.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, folder):
            message = f"{name!r} is a link, which is not followed"
            raise OSError(errno.ELOOP, message, path) from error
        raise


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False
