"""Gives a verifier's room on this machine the agent's root as one mount, as the agent has it.

Docker can bind a root only entry by entry, and a file cannot be renamed from one mount to another.
So the room's program waits until its mounts are replaced from outside:

    guard_directories   in the agent's container: its directories for the verifier become mount
                        points, which no process there can rename or remove
    enter_whole_root    in the room: the agent's root, with the room's own mounts moved to it,
                        becomes the root of all processes

Requires root on the engine's machine. The agent's container has to be paused, so that no path
changes meanwhile. Nothing is run inside.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proctor.environments.docker.files import ETC_FILES
from proctor.environments.sandbox.syscalls import (
    MS_BIND,
    MS_MOVE,
    MS_PRIVATE,
    MS_REC,
    attach_tree,
    clone_tree,
    mount,
    pivot_root,
    unmount,
)

PLACE = "/proctor-root"
"""Empty directory of a room's image, on which the root is mounted."""
_OWN = ("/proc", "/dev", "/sys")


def is_same(path: str, other: str) -> bool:
    """Whether two paths lead to one file: a pid of the engine may be another process here."""
    try:
        return Path(path).samefile(other)
    except OSError:
        return False


def guard_directories(pid: int, fresh: Sequence[str]) -> None:
    """Make directories of a paused container mount points; what is not a directory is replaced.

    For a thread that is used for nothing else.
    """
    mounted = _list_mounted(pid)
    _enter(pid)
    for path in fresh:
        names = path.strip("/").split("/")
        for depth in range(len(names)):
            one = "/" + "/".join(names[: depth + 1])
            if one not in mounted:
                with suppress(FileNotFoundError):
                    if not stat.S_ISDIR(os.lstat(one).st_mode):
                        Path(one).unlink()
                with suppress(FileExistsError):
                    Path(one).mkdir(0o755)
                mount(one, one, flags=MS_BIND | MS_REC)
                mounted.add(one)


def _list_mounted(pid: int) -> set[str]:
    """Return the mount points of a process."""
    text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="replace")
    return {line.split()[4] for line in text.splitlines()}


def enter_whole_root(pid: int, merged: str, fresh: Sequence[str]) -> None:
    """Make `merged` the root of a room, whose first process is `pid`.

    For a thread that is used for nothing else. The directories `fresh` are guarded.
    """
    mounted = _list_mounted(pid)
    top = os.open(merged, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        tree = clone_tree(top)
    finally:
        os.close(top)
    try:
        _enter(pid)
        attach_tree(tree, PLACE)
    finally:
        os.close(tree)
    # Otherwise what is mounted there would be mounted in the host's tree as well.
    mount("none", PLACE, flags=MS_REC | MS_PRIVATE)
    for path in (*_OWN, *fresh):
        mount(path, f"{PLACE}{path}", flags=MS_MOVE)
    for path in ETC_FILES:
        # The agent may have moved /etc away.
        if path in mounted and _is_plain(f"{PLACE}{path}"):
            mount(path, f"{PLACE}{path}", flags=MS_MOVE)
    os.chdir(PLACE)
    # This stacks the old root on the new one, for all processes of the room.
    pivot_root(".", ".")
    unmount(".")


def _enter(pid: int) -> None:
    """Enter the mounts of a process with this thread alone."""
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.unshare(os.CLONE_FS)
        os.setns(namespace, os.CLONE_NEWNS)
    finally:
        os.close(namespace)


def _is_plain(path: str) -> bool:
    """Whether a path is a regular file in a real directory."""
    try:
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
        return is_file and stat.S_ISDIR(os.lstat(Path(path).parent).st_mode)
    except OSError:
        return False
