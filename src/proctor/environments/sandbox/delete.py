"""Deleting what a sandbox left: any modes, any depth, any number of files.

No link is followed, whatever becomes one meanwhile: the runner may be root, and what it deletes was
a stranger's. Nothing here decides what may be deleted.
"""

import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def delete_tree(top: Path) -> None:
    """Delete a directory and all that is in it; fine where it is not there.

    Directories are moved up to the top before they are emptied: a tree that is deeper than a path
    may be long, or than Python may recurse, is deleted like any other.

    Raises:
        OSError: something in it cannot be deleted, for one because it belongs to another user.
    """
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
    """Let a directory's owner in; root is in already."""
    if os.geteuid() == 0:
        return
    fd = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=above)
    try:
        if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # By its descriptor: a mode cannot be changed by a name without following it.
            Path(f"/proc/self/fd/{fd}").chmod(stat.S_IRWXU)
    finally:
        os.close(fd)
