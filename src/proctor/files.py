"""Durable writes and bounded reads. The only module that calls fsync.

    write_atomic(path, data)    replace a file durably: a crash leaves the old or the new one
    replace_file(path, data)    replace a file atomically, not durably: for frequent rewrites
    replace_durably(path, data) replace one of our own files atomically and durably
    write_small(path, data)     write a file in three system calls, neither atomic nor durable
    write_new(path, data)       create a file durably; fail if the path exists
    append_durably(path, …)     append to a file durably, or leave it unchanged
    cut_file(path, size)        truncate a file durably
    sync_file, sync_directory   flush earlier writes to the disk
    try_lock(fd)                lock an open file, unless somebody else has it
    read_small(path)            read a whole file in as few system calls as Python allows
    read_input(path)            the same of a file that a person named
    read_inside(root, path)     as read_small, but refuse links that lead out of the root
    find_way_out(root, path)    the link that leads out of the root, if there is one
    read_head(path, size)       read the beginning of a file of any size
    open_plain(path)            open a regular file; refuse links, pipes and devices
    walk_files(root)            list the files below a directory without following links

Many of these paths are written by agents and task authors, so they are treated as hostile.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from proctor.errors import InputError
from proctor.sentence import render_limit

_FIRST_READ = 16384
LARGEST_UNPACKED = 1 << 34
"""Most bytes unpacked into a temporary directory at once: 16 GiB, even on a larger disk."""
# Nothing read whole through this module has a legitimate reason to be larger.
_LARGEST = 1 << 28


def read_small(path: str, largest: int = _LARGEST) -> bytes:
    """Read all bytes of a regular file, in three system calls when it is under 16 KiB.

    Never blocks on a pipe and never drains a device, which an agent may have put there. Checking
    the file type costs a fourth call, so a short pipe or device returns the few bytes it has.

    Raises:
        OSError: unreadable, larger than `largest` bytes (EFBIG), or not a regular file and endless.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(fd, _FIRST_READ)
        return data if len(data) < _FIRST_READ else _read_all(fd, path, largest)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


def read_input(path: str) -> bytes:
    """Read a file that a person named.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return read_small(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def read_inside(root: str, path: str, largest: int = _LARGEST) -> bytes:
    """Read all bytes of a file below a directory whose contents are not trusted.

    A link is followed only if it stays inside the directory. Any other link would expose the
    reader's own files, and give a different value on every machine.

    Raises:
        OSError: as for `read_small`; EXDEV: a link on the way leads out.
    """
    link = find_way_out(root, path)
    if link is not None:
        raise OSError(errno.EXDEV, "a link that leads out of the directory, not followed", link)
    return read_small(path, largest)


def find_way_out(root: str, path: str) -> str | None:
    """Return the first link between a directory and a path below it, if it leads out of it.

    None if there is no link, if all links stay inside, or if the path does not exist.
    """
    place = root
    for part in path.removeprefix(root).strip("/").split("/") if root else path.split("/"):
        place = f"{place}/{part}" if place else part
        try:
            mode = os.lstat(place).st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISLNK(mode):
            inside, target = os.path.realpath(root), os.path.realpath(path)
            return None if target == inside or target.startswith(f"{inside}/") else place
    return None


def read_head(path: str, size: int) -> bytes:
    """Read the first `size` bytes of a regular file, or all of it when it has fewer."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_regular(fd, path)
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(size)
    finally:
        os.close(fd)


def open_plain(path: Path | str) -> BinaryIO:
    """Open a regular file for reading; refuse a link, a pipe or a device in its place.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags)
    try:
        _check_regular(fd, str(path))
    except BaseException:
        os.close(fd)
        raise
    # From here on the file object owns the descriptor, also when an interrupt arrives.
    return cast(BinaryIO, os.fdopen(fd, "rb", buffering=0))


def walk_files(root: str, left_out: Collection[str] = ()) -> Iterator[tuple[str, str | None]]:
    """List everything but directories below `root`, as relative paths.

    The second value is None for a regular file, else a description of what it is. `left_out`
    names entries of the root itself that are skipped.

    Raises:
        OSError: a directory cannot be read.
    """
    waiting = [root]
    cut = len(root) + 1
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            # An agent can nest directories beyond PATH_MAX; the rest must stay readable.
            yield folder[cut:], "a directory nested too deep to read"
            continue
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        for entry in entries:
            if entry not in folders:
                is_plain = entry.is_file(follow_symlinks=False)
                yield entry.path[cut:], None if is_plain else _name_kind(entry)
        skipped = left_out if folder == root else ()
        waiting += [entry.path for entry in reversed(folders) if entry.name not in skipped]


def _name_kind(entry: os.DirEntry[str]) -> str:
    return "a link" if entry.is_symlink() else "neither a file nor a directory"


def _check_regular(fd: int, path: str) -> os.stat_result:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return status


def _read_all(fd: int, path: str, largest: int) -> bytes:
    status = _check_regular(fd, path)
    if status.st_size > largest:
        raise OSError(errno.EFBIG, f"larger than {render_limit(largest)}", path)
    # Read again from the start: joining the first block and the rest would hold both in memory.
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
        return file.read()


def find_room(directory: str) -> int:
    """Return how many untrusted bytes may be unpacked below a directory.

    The smaller of `LARGEST_UNPACKED` and half of the free disk space.
    """
    return min(LARGEST_UNPACKED, shutil.disk_usage(directory).free // 2)


def write_atomic(path: Path, data: bytes | bytearray) -> None:
    """Replace a file durably; a crash leaves the old file or the new one.

    Raises:
        OSError: it cannot be written, or the path holds something other than a regular file.
            A device is never replaced, and a link may have been planted.
    """
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    _write_beside(path, data, os.replace)


def replace_file(path: Path | str, data: bytes) -> None:
    """Replace a file in one step: readers, and a killed process, see the old or the new one.

    Not durable, and only one writer per path at a time. The next write replaces what a kill left.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    directory, name = os.path.split(path)
    temporary = f"{directory or '.'}/.{name}.tmp"
    try:
        # The temporary name is predictable, so somebody may have planted a link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(temporary, flags, 0o666)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace_durably(path: str, data: bytes) -> None:
    """Replace one of our own regular files atomically; durable when this returns."""
    directory, name = os.path.split(path)
    temporary = f"{directory}/.{name}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o666)
    except FileExistsError:
        # Left by a kill, or a link or pipe that somebody planted: unlinking removes only the name.
        os.unlink(temporary)
        fd = os.open(temporary, flags, 0o666)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    sync_directory(directory)


def write_small(path: str, data: bytes, *, is_new: bool = False) -> None:
    """Write a file in three system calls; neither atomic nor durable."""
    how = os.O_EXCL if is_new else os.O_TRUNC
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to an open file."""
    # A write to a disk that fills up is accepted in part before the next one fails.
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def append_durably(path: Path, data: bytes, *, at: int) -> None:
    """Append to a file that ends at `at`, creating it if `at` is 0; durable when this returns.

    Raises:
        FileExistsError: the file does not end at `at`: another process wrote to it.
        OSError: it cannot be written; a partial write is truncated away.
    """
    made = os.O_EXCL | os.O_CREAT if at == 0 else 0
    # O_NONBLOCK: opening a planted pipe for writing would wait for a reader.
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_APPEND
    fd = os.open(path, flags | made, 0o666)
    try:
        if _check_regular(fd, str(path)).st_size != at:
            raise FileExistsError(errno.EEXIST, f"does not end at byte {at}", str(path))
        try:
            write_all(fd, data)
            _sync_data(fd)
        except OSError:
            # A full disk may have accepted part of the data.
            os.ftruncate(fd, at)
            raise
    finally:
        os.close(fd)
    if made:
        sync_directory(path.parent)


# macOS has no fdatasync.
_sync_data = getattr(os, "fdatasync", os.fsync)


def cut_file(path: Path, size: int) -> None:
    """Truncate a regular file to a size; durable when this returns."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _check_regular(fd, str(path))
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_new(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Create a file durably; of two concurrent writers exactly one succeeds.

    `mode` is the permission of the new file, before the umask.
    """
    _write_beside(path, data, os.link, mode)


def _write_beside(
    path: Path, data: bytes | bytearray, give_name: Callable[[Path, Path], None], mode: int = 0o666
) -> None:
    """Write to a temporary name, then rename or link it into place in one step."""
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        give_name(temporary, path)
    finally:
        # After a rename the temporary name is gone; after a link it still exists.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    # Sync the directory too, or a power cut can lose the file's name.
    sync_directory(path.parent)


def sync_file(path: Path | str) -> None:
    """Flush a file's contents to the disk; its name is flushed by `sync_directory`."""
    _sync(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def sync_directory(directory: Path | str) -> None:
    """Flush the names in a directory to the disk."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync(path: Path | str, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Lock an open file for this descriptor alone; False if another one has it. Never waits.

    The lock ends with the descriptor.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
