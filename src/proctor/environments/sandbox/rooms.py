"""Opening a verifier's room: a mount namespace in which some directories are new. For PID 1."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.rootfs import Root
from proctor.environments.sandbox.syscalls import attach_tree, clone_tree, unmount

_PLACE = "/sys"
"""A mount point, which nobody inside can replace by a link, with nothing in it."""


def open_room(root: Root, home: int, number: int, fresh: Sequence[str]) -> int:
    """A mount namespace in which the directories of `fresh` are new, as an open file.

    `home` is the one to come back to.

    Raises:
        OSError: one of them is not guarded, or it cannot be made.
    """
    strange = [path for path in fresh if path not in root.guarded]
    if strange:
        raise OSError(errno.EINVAL, "not one of the blueprint's guarded directories", strange[0])
    trees: dict[str, int] = {}
    os.unshare(os.CLONE_NEWNS)
    try:
        with _rooms_mounted(root):
            for n, path in enumerate(fresh):
                trees[path] = _new_directory(root, f"{number}.{n}")
        for path, tree in trees.items():
            attach_tree(tree, path)
        return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.setns(home, os.CLONE_NEWNS)
        close_all(list(trees.values()))


@contextmanager
def _rooms_mounted(root: Root) -> Iterator[None]:
    """The place for rooms, mounted in this namespace for a moment.

    Many kernels copy only what is mounted. It can be moved there once: a copy takes its place.
    """
    attach_tree(root.rooms_fd, _PLACE)
    try:
        again = clone_tree(root.rooms_fd)
        try:
            yield
        finally:
            os.dup2(again, root.rooms_fd, inheritable=False)
            os.close(again)
    finally:
        unmount(_PLACE)


def _new_directory(root: Root, name: str) -> int:
    """A new directory in the place for rooms, as a mount that is not yet anywhere."""
    # There already, and empty, where the scratch served another sandbox before.
    with suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=root.rooms_fd)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.rooms_fd)
    try:
        os.fchmod(fd, 0o777)
        return clone_tree(fd)
    finally:
        os.close(fd)
