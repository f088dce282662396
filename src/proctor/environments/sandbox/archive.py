"""The archive format in which files are copied in and out of a sandbox.

    archive = entry*, end
    entry  = kind, mode, time, size, length of name, name, size bytes
    kind   = F file | D directory | L symlink, with its target | R refused, with the reason
           | H file with holes, sent as runs until they add up to its size
    run    = size of a hole, size of the data after it, the data

Simpler than tar: everything has exactly one encoding, so two readers cannot disagree. Names are
relative to the top, whose name is empty. Uses only the standard library.
"""

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

FILE, DIRECTORY, LINK, REFUSED, END = b"F", b"D", b"L", b"R", b"."
HOLED = b"H"
"""Only in the stream: a Receiver reports it as FILE."""
MOST_IN_MESSAGE = 1 << 12
"""Bytes of an archive that is part of a message; a longer one is sent through a pipe."""

_HEAD = struct.Struct("=cIqQI")
_RUN = struct.Struct("=QQ")
# Smaller holes are sent as zeros, which limits the number of runs of a file.
_LEAST_HOLE = 1 << 16
_LONGEST_NAME = 8192
_LONGEST_TEXT = 4096
_PIECE = 1 << 18
# Depth of directories. Python's recursive functions fail at a depth of a thousand.
_DEEPEST = 200


class BrokenArchiveError(Exception):
    """The stream is not an archive, or is truncated."""


def as_text(archive: bytes) -> str:
    """Return an archive as text for a message."""
    return archive.decode("latin-1")


def as_bytes(text: object) -> bytes:
    """Return the archive of a message.

    Raises:
        BrokenArchiveError: it has none.
    """
    try:
        return str(text).encode("latin-1")
    except UnicodeEncodeError as error:
        raise BrokenArchiveError(
            "what came out of the sandbox is not an archive of files"
        ) from error


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an archive; further entries are refused."""

    n_bytes: int | None = None
    n_entries: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """The head of an entry."""

    kind: bytes
    name: str
    mode: int
    time_ns: int
    size: int


class Sender:
    """Writes one archive."""

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._n_bytes = 0
        self._n_entries = 0
        self._is_full = False

    def send(self, path: str) -> None:
        """Send a file or the contents of a directory; a symlink as `path` itself is followed."""
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            self._head(DIRECTORY, "", status, 0)
            self._send_below(path)
        else:
            self._send_entry(os.path.realpath(path), "", status)
        self._stream.write(_HEAD.pack(END, 0, 0, 0, 0))
        self._stream.flush()

    def _has_room_for(self, size: int) -> bool:
        limit = self._limits.n_bytes
        return limit is None or self._n_bytes + size <= limit

    def _send_below(self, top: str) -> None:
        waiting = [""]
        while waiting and not self._is_full:
            name = waiting.pop()
            try:
                with os.scandir(os.path.join(top, name)) as found:
                    # List no more than can be sent: the directory may contain millions.
                    some = islice(found, self._limits.n_entries and self._limits.n_entries + 1)
                    names = sorted(entry.name for entry in some)
            except OSError as error:
                self._refuse(name, error.strerror or "cannot be read")
                continue
            for child in names:
                inner = f"{name}/{child}" if name else child
                if self._send_path(os.path.join(top, inner), inner):
                    waiting.append(inner)

    def _send_path(self, path: str, name: str) -> bool:
        """Send one path; return whether it is a directory whose contents have to follow."""
        try:
            status = os.lstat(path)
        except OSError as error:
            self._refuse(name, error.strerror or "cannot be read")
            return False
        if self._is_at_limit:
            self._refuse(name, "left")
            return False
        if stat.S_ISDIR(status.st_mode) and name.count("/") >= _DEEPEST:
            self._refuse(name, f"more than {_DEEPEST} directories deep")
            return False
        if stat.S_ISDIR(status.st_mode):
            self._head(DIRECTORY, name, status, 0)
            return True
        self._send_entry(path, name, status)
        return False

    def _send_entry(self, path: str, name: str, status: os.stat_result) -> None:
        try:
            if stat.S_ISLNK(status.st_mode):
                target = os.fsencode(os.readlink(path))
                self._head(LINK, name, status, len(target))
                self._stream.write(target)
            elif stat.S_ISREG(status.st_mode):
                self._send_file(path, name)
            else:
                self._refuse(name, "neither a file, a directory nor a link")
        except BrokenPipeError:
            raise
        except OSError as error:
            self._refuse(name, error.strerror or "cannot be read")

    def _send_file(self, path: str, name: str) -> None:
        # A process inside may have replaced the file by a symlink or a pipe since it was listed.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._refuse(name, "neither a file, a directory nor a link")
                return
            if not self._has_room_for(status.st_size):
                over = f"with which it would be over {self._limits.n_bytes}"
                self._refuse(name, f"{status.st_size} bytes, {over}")
                return
            self._n_bytes += status.st_size
            if _has_holes(fd, status.st_size):
                self._head(HOLED, name, status, status.st_size)
                self._send_runs(fd, status.st_size)
            else:
                self._head(FILE, name, status, status.st_size)
                self._send_bytes(fd, status.st_size)
        finally:
            os.close(fd)

    def _send_runs(self, fd: int, size: int) -> None:
        """Send the data of a file without its holes, even if it is written meanwhile."""
        at = 0
        while at < size:
            start, end = _find_run(fd, at, size)
            self._stream.write(_RUN.pack(start - at, end - start))
            if start < end:
                os.lseek(fd, start, os.SEEK_SET)
                self._send_bytes(fd, end - start)
            at = end

    def _send_bytes(self, fd: int, size: int) -> None:
        """Send exactly `size` bytes, even if the file grows or shrinks meanwhile."""
        while size:
            try:
                data = os.read(fd, min(size, _PIECE))
            except OSError:
                data = b""
            data = data or bytes(min(size, _PIECE))
            self._stream.write(data)
            size -= len(data)

    @property
    def _is_at_limit(self) -> bool:
        return self._limits.n_entries is not None and self._n_entries >= self._limits.n_entries

    def _refuse(self, name: str, reason: str) -> None:
        """Send the reason why an entry is not sent; at the limit, once for all remaining ones."""
        if self._is_full:
            return
        if self._is_at_limit:
            self._is_full = True
            reason = f"more than {self._limits.n_entries} entries; it and what comes after is left"
        self._n_entries += 1
        text = reason.encode()[:_LONGEST_TEXT]
        self._stream.write(pack_head(REFUSED, name, (0, 0, len(text))) + text)

    def _head(self, kind: bytes, name: str, status: os.stat_result, size: int) -> None:
        self._n_entries += 1
        self._stream.write(
            pack_head(kind, name, (stat.S_IMODE(status.st_mode), status.st_mtime_ns, size))
        )


def _has_holes(fd: int, size: int) -> bool:
    try:
        has_some = size >= _LEAST_HOLE and os.lseek(fd, 0, os.SEEK_HOLE) < size
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        return False
    return has_some


def _find_run(fd: int, at: int, size: int) -> tuple[int, int]:
    """Return where the next data begins, and where the next large hole does; `size` if none."""
    start = _seek(fd, at, os.SEEK_DATA, size)
    if at:
        # The head of this run has announced a hole; data written into it meanwhile is ignored.
        start = max(start, min(at + _LEAST_HOLE, size))
    elif start < min(_LEAST_HOLE, size):
        start = 0
    end = start
    while end < size:
        hole = max(_seek(fd, end, os.SEEK_HOLE, size), end + 1)
        end = _seek(fd, hole, os.SEEK_DATA, size)
        if end - hole >= _LEAST_HOLE or end == size:
            return start, hole
    return start, end


def _seek(fd: int, at: int, whence: int, size: int) -> int:
    """Return the next data or hole of a file, or `size` if there is none."""
    try:
        return min(os.lseek(fd, at, whence), size)
    except OSError:
        # No more data, or it is unreadable, which is sent as zeros as well.
        return size


def pack_head(kind: bytes, name: str, numbers: tuple[int, int, int]) -> bytes:
    """Pack the head of an entry; the numbers are mode, time and size."""
    encoded = os.fsencode(name)
    return _HEAD.pack(kind, *numbers, len(encoded)) + encoded


class Receiver:
    """Reads one archive. The bytes of an entry have to be read before the next entry."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._n_left = 0
        self._has_holes = False

    def entries(self) -> Iterator[Entry]:
        """Yield the entries in order.

        Raises:
            BrokenArchiveError: it is truncated, or not an archive.
        """
        while True:
            kind, mode, time_ns, size, n_name = _HEAD.unpack(self._read(_HEAD.size))
            if kind == END:
                return
            if kind not in (FILE, HOLED, DIRECTORY, LINK, REFUSED) or n_name > _LONGEST_NAME:
                raise BrokenArchiveError("what came out of the sandbox is not an archive of files")
            name = os.fsdecode(self._read(n_name))
            self._n_left = size
            self._has_holes = kind == HOLED
            yield Entry(FILE if self._has_holes else kind, name, mode, time_ns, size)
            if self._n_left:
                raise BrokenArchiveError(f"{name}: its bytes were not read")

    def text(self) -> str:
        """Read the text of a symlink or a refusal."""
        if self._n_left > _LONGEST_TEXT:
            raise BrokenArchiveError("what came out of the sandbox is not an archive of files")
        data = self._read(self._n_left)
        self._n_left = 0
        return os.fsdecode(data)

    def copy_to(self, fd: int) -> None:
        """Write the bytes of a file to an open, empty file.

        Zeros become holes, so that a huge sparse file takes no space on the host.
        """
        for hole, data in self._parts():
            if data and (data[0] or data.strip(b"\0")):
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            else:
                os.ftruncate(fd, os.lseek(fd, hole + len(data), os.SEEK_CUR))

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield the file in order, as sizes of holes and pieces of data."""
        is_first = True
        while self._n_left:
            n_data = self._n_left
            if self._has_holes:
                hole, n_data = _RUN.unpack(self._read(_RUN.size))
                self._check_run(hole, n_data, is_first=is_first)
                is_first = False
                self._n_left -= hole
                if hole:
                    yield hole, b""
            for size in _cut(n_data):
                data = self._read(size)
                self._n_left -= size
                yield 0, data

    def _check_run(self, hole: int, n_data: int, *, is_first: bool) -> None:
        """Reject tiny or endless runs, which a Sender never sends but a hostile process might."""
        is_last = hole + n_data == self._n_left
        is_whole = hole >= _LEAST_HOLE or (is_first and hole == 0) or (is_last and n_data == 0)
        if hole + n_data > self._n_left or not is_whole or (n_data == 0 and not is_last):
            raise BrokenArchiveError("what came out of the sandbox is not an archive of files")

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise BrokenArchiveError("the archive is truncated: the sender has ended")
        return data


def _cut(size: int) -> Iterator[int]:
    """Split a size into pieces."""
    while size:
        yield min(size, _PIECE)
        size -= min(size, _PIECE)
