"""Durable writes and small reads: the only fsync.

    write_atomic(path, data)    the file is the old one or the new one, never half of either
    replace_file(path, data)    the same without waiting for the disk: for what is rewritten often
    replace_durably(path, data) the same, on the disk when it returns
    write_small(path, data)     no more than that, in as few system calls as there can be
    write_new(path, data)       the file is there whole or not at all, and nobody's is replaced
    append_durably(path, …)     more bytes at the end of a file, on the disk or not there at all
    cut_file(path, size)        fewer bytes at the end of a file
    sync_file, sync_directory   what was written without waiting is on the disk
    read_small(path)            the whole file in as few system calls as Python allows
    read_inside(root, path)     the same, unless a link on the way leads out of the root
    find_way_out(root, path)    the link that leads out, if there is one
    read_head(path, size)       the beginning of a file of any size
    open_plain(path)            a plain file for reading, whatever a stranger put in its place
    walk_files(root)            what lies below a directory, no link followed

Nothing here knows what the bytes mean.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, cast

_FIRST_READ = 16384
LARGEST_UNPACKED = 1 << 34
"""Bytes that are unpacked to a temporary place at once: 16 GiB, whatever the disk would take."""
_LARGEST = 1 << 28
"""Files above this are refused: nothing that is read whole here is honestly that large."""


def read_small(path: str, largest: int = _LARGEST) -> bytes:
    """All bytes of a regular file, in three system calls when it is under 16 KiB.

    Never waits on a pipe and never drains a device: a stranger may have put one there. To look
    what it is would take a fourth call, so what is none and short gives the few bytes it has.

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


def read_inside(root: str, path: str, largest: int = _LARGEST) -> bytes:
    """All bytes of a file below a directory that a stranger filled.

    A link is followed where it stays inside the directory. Elsewhere it would show the reader's own
    files, and another value on every machine.

    Raises:
        OSError: as for `read_small`; EXDEV: a link on the way leads out.
    """
    link = find_way_out(root, path)
    if link is not None:
        raise OSError(errno.EXDEV, "a link that leads out of the directory, not followed", link)
    return read_small(path, largest)


def find_way_out(root: str, path: str) -> str | None:
    """The first link on the way from a directory down to a path, if that leads out of it.

    None where there is no link, where all stay inside, and where nothing is there at all.
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
    """The first `size` bytes of a regular file, or all of it when it has fewer.

    Raises:
        OSError: unreadable, or not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_regular(fd, path)
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(size)
    finally:
        os.close(fd)


def open_plain(path: Path | str) -> BinaryIO:
    """A plain file for reading; a link, a pipe or a device in its place is refused.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags)
    try:
        _check_regular(fd, str(path))
    except BaseException:
        os.close(fd)
        raise
    # Whoever fails after this, an interrupt too, leaves the descriptor to the file.
    return cast(BinaryIO, os.fdopen(fd, "rb", buffering=0))


def walk_files(root: str, left_out: Collection[str] = ()) -> Iterator[tuple[str, str | None]]:
    """All that is no directory below one, by relative path, and what it is if no plain file.

    `left_out` are names in the root itself.

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
            # A stranger may dig so deep; that must not keep anybody from reading the rest.
            yield folder[cut:], "a directory too deep to be looked into"
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
        raise OSError(errno.EFBIG, f"larger than {largest >> 20} MiB", path)
    # From the start again, since joining what was read with the rest would hold it twice.
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
        return file.read()


def find_room(directory: str) -> int:
    """Bytes of a stranger's that may be unpacked in a directory: a limit, and half of the disk.

    Raises:
        OSError: the directory cannot be looked at.
    """
    return min(LARGEST_UNPACKED, shutil.disk_usage(directory).free // 2)


def write_atomic(path: Path, data: bytes) -> None:
    """Put data at path, durable when this returns; a crash leaves the old file or the new one.

    Raises:
        OSError: it cannot be written, or what is there is no plain file: a device stays a device,
            and a link may be a stranger's.
    """
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    _write_beside(path, data, os.replace)


def replace_file(path: Path | str, data: bytes) -> None:
    """Put data at path in one step, seen whole by every reader and after a kill; not durable.

    One writer a path at a time. What a kill leaves of an unfinished write goes with the next one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    directory, name = os.path.split(path)
    temporary = f"{directory or '.'}/.{name}.tmp"
    try:
        # A stranger who knows the name may have put a link there.
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
    """The same, and durable when this returns; what is there must be a plain file of our own.

    Raises:
        OSError: it cannot be written, and the old file stays; or only the name is not durable yet.
    """
    directory, name = os.path.split(path)
    temporary = f"{directory}/.{name}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o666)
    except FileExistsError:
        # What a kill left, or a link or a pipe of somebody else's: only the name goes.
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
    """Put data at path in three system calls, in place of what is there; neither whole nor durable.

    Raises:
        FileExistsError: it `is_new`, and something is there, a link among them.
        OSError: it cannot be written.
    """
    how = os.O_EXCL if is_new else os.O_TRUNC
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to an open file."""
    # A disk that fills up takes a part first and refuses the rest.
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def append_durably(path: Path, data: bytes, *, at: int) -> None:
    """Add data to a file that ends at `at`, durable when this returns; a file that is not is made.

    Raises:
        FileExistsError: the file does not end there: somebody else wrote.
        OSError: it cannot be written; what was written of it is taken back.
    """
    made = os.O_EXCL | os.O_CREAT if at == 0 else 0
    # Not to wait for a reader, where somebody put a pipe there.
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_APPEND
    fd = os.open(path, flags | made, 0o666)
    try:
        if _check_regular(fd, str(path)).st_size != at:
            raise FileExistsError(errno.EEXIST, f"does not end at byte {at}", str(path))
        try:
            write_all(fd, data)
            os.fdatasync(fd)
        except OSError:
            # A full disk takes a part first.
            os.ftruncate(fd, at)
            raise
    finally:
        os.close(fd)
    if made:
        sync_directory(path.parent)


def cut_file(path: Path, size: int) -> None:
    """Take off what a regular file has beyond a size, durable when this returns.

    Raises:
        OSError: it cannot be written, or is not a regular file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _check_regular(fd, str(path))
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_new(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Put data at a path where nothing is, durable when this returns; two at once are one.

    `mode` says who may use the file, as far as the umask lets them.

    Raises:
        FileExistsError: something is there, a link among them.
        OSError: it cannot be written.
    """
    _write_beside(path, data, os.link, mode)


def _write_beside(
    path: Path, data: bytes, give_name: Callable[[Path, Path], None], mode: int = 0o666
) -> None:
    """Write the data under another name, then give it its own in one step."""
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        give_name(temporary, path)
    finally:
        # Gone already where the name was changed; still there where it was added.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    # The directory too, or a power cut can lose the file's name.
    sync_directory(path.parent)


def sync_file(path: Path | str) -> None:
    """See that what was written to a file is on the disk; its name is its directory's business.

    Raises:
        OSError: it cannot be opened, or the disk failed.
    """
    _sync(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def sync_directory(directory: Path | str) -> None:
    """See that the names in a directory are on the disk.

    Raises:
        OSError: it cannot be opened, or the disk failed.
    """
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync(path: Path | str, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
