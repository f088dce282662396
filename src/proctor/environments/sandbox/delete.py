"""Deletes what a sandbox left, with any modes, depth and number of files.

No symlink is followed, even if a directory becomes one meanwhile: the content is untrusted, and the
runner may be root.
"""

import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def delete_tree(top: Path) -> None:
    """Delete a directory with its contents, if it exists.

    Raises:
        OSError: a file cannot be deleted, such as one of another user.
    """
    # Directories are moved to the top before they are emptied, so that no tree is too deep for
    # PATH_MAX or for Python's recursion limit.
    names = (f".{os.urandom(8).hex()}-{n}" for n in count())
    try:
        fd = _open(str(top), None)
        try:
            while entries := _list(fd):
                for entry in entries:
                    _delete(fd, entry, names)
        finally:
            os.close(fd)
        top.rmdir()
    except FileNotFoundError:
        if top.exists():
            raise


def _list(directory: int) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return list(entries)


def _delete(top: int, entry: os.DirEntry[str], names: Iterator[str]) -> None:
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.name, dir_fd=top)
        return
    fd = _open(entry.name, top)
    try:
        with os.scandir(fd) as children:
            for child in children:
                if child.is_dir(follow_symlinks=False):
                    _let_in(child.name, fd)
                    os.rename(child.name, next(names), src_dir_fd=fd, dst_dir_fd=top)
                else:
                    os.unlink(child.name, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(entry.name, dir_fd=top)


def _open(name: str, above: int | None) -> int:
    _let_in(name, above)
    return os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=above)


def _let_in(name: str, above: int | None) -> None:
    """Give the owner access to a directory; root needs none."""
    if os.geteuid() == 0:
        return
    fd = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=above)
    try:
        if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # Through the descriptor, because chmod by name follows symlinks.
            Path(f"/proc/self/fd/{fd}").chmod(stat.S_IRWXU)
    finally:
        os.close(fd)
