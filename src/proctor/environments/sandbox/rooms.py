"""Opening a verifier's room: a mount namespace in which some directories are new. For PID 1."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.rootfs import Root
from proctor.environments.sandbox.syscalls import attach_tree, clone_tree


def open_room(root: Root, home: int, number: int, fresh: Sequence[str]) -> int:
    """A mount namespace in which the directories of `fresh` are new, as an open file.

    `home` is the one to come back to.

    Raises:
        OSError: one of them is not guarded, or it cannot be made.
    """
    strange = [path for path in fresh if path not in root.guarded]
    if strange:
        raise OSError(errno.EINVAL, "not one of the blueprint's guarded directories", strange[0])
    trees = {path: _new_directory(root, f"{number}.{n}") for n, path in enumerate(fresh)}
    os.unshare(os.CLONE_NEWNS)
    try:
        for path, tree in trees.items():
            attach_tree(tree, path)
        return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.setns(home, os.CLONE_NEWNS)
        close_all(list(trees.values()))


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
