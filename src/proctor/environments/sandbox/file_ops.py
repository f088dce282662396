"""Operations that workers do: move and remove files, inspect paths, list processes.

They run with no more rights than the agent's commands as root, so a symlink that the agent planted
leads nowhere that the agent could not go itself. Uses only the standard library.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from itertools import islice
from typing import Any

from proctor.digest import sha256_start
from proctor.environments.sandbox import tar_ops
from proctor.environments.sandbox.archive import (
    DIRECTORY,
    FILE,
    LINK,
    BrokenArchiveError,
    Entry,
    Limits,
    Receiver,
    Sender,
    as_bytes,
)
from proctor.environments.sandbox.channel import Message
from proctor.environments.sandbox.processes import STARTED, Facts, Lister, find_living, read_stat
from proctor.environments.sandbox.syscalls import PR_SET_DUMPABLE, prctl, set_file_ids

# Mode bits kept for uploaded files: a set-user-id bit would be set on the host's disk too.
_KEPT_BITS = 0o1777
_PIECE = 1 << 16
# Limit of listed processes: the size of a message is limited.
_MOST_PROCESSES = 10_000


def _put(request: dict[str, Any], files: list[int]) -> Message:
    """Unpack an archive at a path; a small one is in the request."""
    with (
        os.fdopen(files.pop(0), "rb", _PIECE) if files else BytesIO(as_bytes(request["archive"]))
    ) as stream:
        receiver, target = Receiver(stream), str(request["target"])
        for entry in receiver.entries():
            if entry.name:
                path = os.path.join(target, entry.name)
            elif entry.kind == DIRECTORY:
                os.makedirs(target, 0o755, exist_ok=True)
                continue
            else:
                path = _place_of_file(target, str(request["name"]))
            _put_entry(receiver, entry, path)
    return {}


def _place_of_file(target: str, name: str) -> str:
    """Return the path for a single file: inside a directory under its name, as `docker cp` does."""
    if target.endswith("/") or os.path.isdir(target):
        target = os.path.join(target, name)
    os.makedirs(os.path.dirname(target) or "/", 0o755, exist_ok=True)
    return target


# Existing files are unlinked first, never written to: a path may be a symlink or a hard link of the
# agent.
def _put_entry(receiver: Receiver, entry: Entry, path: str) -> None:
    if entry.kind == DIRECTORY:
        if not os.path.isdir(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
            os.mkdir(path)
        os.chmod(path, entry.mode & _KEPT_BITS)
    elif entry.kind == LINK:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.symlink(receiver.text(), path)
    elif entry.kind == FILE:
        with suppress(FileNotFoundError):
            os.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            receiver.copy_to(fd)
            os.fchmod(fd, entry.mode & _KEPT_BITS)
            os.utime(fd, ns=(entry.time_ns, entry.time_ns))
        finally:
            os.close(fd)
    else:
        raise BrokenArchiveError(f"{entry.name or path}: {receiver.text()}")


def _take(request: dict[str, Any], files: list[int]) -> Message:
    """Pack what is at a path."""
    limits = Limits(request["n_bytes"], request["n_entries"])
    with os.fdopen(files.pop(0), "wb", _PIECE) as stream:
        Sender(stream, limits).send(str(request["source"]))
    return {}


def _list_files(request: dict[str, Any], _files: list[int]) -> Message:
    """List the files at or below some paths: path, size and digest of each.

    Size and digest are None unless it is a regular file, and the digest if all together have more
    than `n_bytes`.
    """
    found = (each for place in request["places"] for each in _walk(place))
    n_left, listed = int(request["n_bytes"]), []
    for path, status in islice(found, request["n_files"]):
        size, digest = (None, None)
        if stat.S_ISREG(status.st_mode):
            size, digest = _look_at(path, n_left)
        if size is not None and digest is not None:
            n_left -= size
        listed.append((path, size, digest))
    return {"files": listed}


def _walk(place: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files at or below a path, without following symlinks."""
    waiting = [place]
    while waiting:
        path = waiting.pop()
        # It may not exist, or be removed meanwhile.
        with suppress(OSError):
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                yield path, status
                continue
            with os.scandir(path) as found:
                waiting += sorted((entry.path for entry in found), reverse=True)


def _look_at(path: str, n_bytes: int) -> tuple[int | None, str | None]:
    """Return the size of a regular file, and its digest unless it has more than `n_bytes`."""
    try:
        # A process inside may have replaced the file by a symlink or a pipe since it was found.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None, None
        size = status.st_size
        return size, sha256_start(fd, size) if size <= n_bytes else None
    except OSError:
        return None, None
    finally:
        os.close(fd)


def _kind_of(request: dict[str, Any], _files: list[int]) -> Message:
    try:
        mode = os.stat(str(request["path"])).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": None}
    if stat.S_ISREG(mode):
        return {"kind": "file"}
    return {"kind": "directory" if stat.S_ISDIR(mode) else "other"}


def _make_directories(request: dict[str, Any], _files: list[int]) -> Message:
    for path in request["paths"]:
        os.makedirs(path, 0o777, exist_ok=True)
        os.chmod(path, 0o777)  # noqa: S103 - the agent may be any user
    return {}


def _remove(request: dict[str, Any], _files: list[int]) -> Message:
    for path in request["paths"]:
        with suppress(FileNotFoundError):
            os.unlink(path)
    return {}


def _list_processes(request: dict[str, Any], _files: list[int]) -> Message:
    """List all processes but PID 1 and its workers."""
    ours = {1, os.getpid(), *request["operations"]}
    found: list[tuple[int, int, Facts]] = []
    lister = Lister(model_port=request["model_port"])
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) in ours or len(found) >= _MOST_PROCESSES:
            continue
        # A process may end while it is read.
        with suppress(OSError):
            found += _describe(int(name), lister)
    listed = [
        {"pid": pid, "started": started, **facts._asdict()} for pid, started, facts in sorted(found)
    ]
    return {"processes": listed}


def _describe(pid: int, lister: Lister) -> list[tuple[int, int, Facts]]:
    name, fields = read_stat(f"/proc/{pid}")
    place = find_living(pid, fields)
    if place is None:
        return []
    with open(f"{place}/status", "rb") as file:
        ids = {line[:4]: int(line.split()[1]) for line in file if line[:4] in (b"Uid:", b"Gid:")}
    user, group = ids[b"Uid:"], ids[b"Gid:"]
    # Without CAP_SYS_PTRACE, the kernel shows executables and open files only to their user.
    set_file_ids(user, group)
    try:
        return [(pid, int(fields[STARTED]), lister.describe(place, name, user))]
    finally:
        set_file_ids(0, 0)
        # Again, because a change of ids can reset it.
        prctl(PR_SET_DUMPABLE, 0)


OPERATIONS: dict[str, Callable[[dict[str, Any], list[int]], Message]] = {
    "put": _put,
    "take": _take,
    "list_files": _list_files,
    "kind_of": _kind_of,
    "make_directories": _make_directories,
    "list_processes": _list_processes,
    "remove": _remove,
    **tar_ops.OPERATIONS,
}
"""Operations by the name in a request."""
