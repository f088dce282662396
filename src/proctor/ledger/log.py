"""The log of a ledger: lines in segments, and the checkpoint that signs them.

`LogStore` is the interface of a store for logs. `FileLog` stores one in a directory on a local
disk:

    entries/000000.jsonl     segments of up to 64 MiB
    checkpoint               size and root of the signed log
    torn/                    unsigned lines that a crash left, set aside
    lock                     held by the writer

A line ends with a newline and never spans two segments. Lines after the signed size were never
acknowledged and are not part of the log. The content of lines is not parsed here.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from proctor.contained import list_below, make_below, open_below
from proctor.errors import DamageError, LedgerError
from proctor.files import (
    append_durably,
    cut_file,
    replace_durably,
    sync_directory,
    write_atomic,
    write_new,
)
from proctor.ledger.lock import check_local, locked
from proctor.ledger.note import LARGEST_NOTE
from proctor.sentence import render_limit

SEGMENT_SIZE = 64 << 20
_NAME = re.compile(r"[0-9]{6}\.jsonl")
_CHUNK = 1 << 20
# Bytes. Entries are limited to the same size (`LARGEST_ENTRY`).
_LONGEST_LINE = 16 << 20

type Stamp = tuple[int, int, int]
"""Inode (or another identity), size in bytes and modification time of a segment."""


class Place(msgspec.Struct, frozen=True, order=True):
    """The position where a line begins, or where the next one will."""

    segment: int = 0
    offset: int = 0


class Line(msgspec.Struct, frozen=True):
    """A stored line, without its newline."""

    place: Place
    data: bytes
    is_torn: bool = False
    """Whether the segment ends before the line's newline."""

    @property
    def end(self) -> Place:
        """The position of the next line in the same segment."""
        return Place(self.place.segment, self.place.offset + len(self.data) + 1)


class LogStore(Protocol):
    """A store for a log. Readers need no lock; a writer holds `locked` while it changes the log."""

    @property
    def where(self) -> str:
        """The name of the log in messages."""

    def check_writable(self) -> None:
        """Refuse a location where concurrent writers cannot be excluded.

        Raises:
            LedgerError: it is such a location.
        """

    def locked(self, patience_sec: float | None = None) -> AbstractContextManager[None]:
        """Hold the write lock; wait at most `patience_sec` seconds, or without limit.

        Raises:
            BusyError: another process holds the lock for longer than that.
            OSError: the log cannot be written.
        """

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint.

        Raises:
            LedgerError: the directory cannot be read.
        """

    def read_checkpoint(self) -> bytes:
        """The bytes of the checkpoint, cut off beyond the largest valid size.

        Raises:
            OSError: it cannot be read.
        """

    def write_checkpoint(self, data: bytes, *, is_new: bool = False) -> None:
        """Replace the checkpoint atomically and durably.

        Raises:
            FileExistsError: `is_new` is set, and there is a checkpoint.
            OSError: it cannot be written; the former checkpoint remains.
        """

    def stamps(self) -> dict[int, Stamp]:
        """The segments in order, each with a stamp that changes when its bytes do.

        Raises:
            DamageError: they cannot be listed.
        """

    def read(self, place: Place, size: int) -> bytes:
        """Read up to `size` bytes of a segment; fewer only at its end.

        Raises:
            OSError: they cannot be read, or there is no such segment.
        """

    def append(self, at: Place, lines: Sequence[bytes]) -> list[Place]:
        """Append lines durably if the log ends at `at`; returns where each begins, and the new end.

        Raises:
            FileExistsError: the log does not end at `at`.
            OSError: they cannot be written; then none of them is in the log.
        """

    def set_aside(self, place: Place) -> None:
        """Move everything from a position on out of the log, without deleting it.

        Raises:
            OSError: it cannot be moved.
        """

    def overwrite(self, place: Place, line: bytes) -> None:
        """Replace a line atomically by another one of the same length.

        Raises:
            OSError: it cannot be written.
        """


def segment_name(number: int) -> str:
    """The name of a segment in messages, and its file below the directory."""
    return f"entries/{number:06}.jsonl"


def read_line(log: LogStore, place: Place, length: int) -> bytes:
    """Read one line by its position and length.

    Raises:
        DamageError: there is no such line.
    """
    data = _read(log, place, length + 1)
    # The newline is read too: a line that was cut or merged with the next one must not pass.
    if len(data) != length + 1 or data[-1:] != b"\n":
        raise DamageError(
            f"{log.where}/{segment_name(place.segment)}: no line of {length} bytes at byte "
            f"{place.offset}"
        )
    return data[:-1]


def read_lines(log: LogStore, start: Place = Place()) -> Iterator[Line]:  # noqa: B008 - frozen
    """Read every line from a position on, up to the first missing segment."""
    number, offset = start.segment, start.offset
    present = log.stamps()
    while number in present:
        yield from _split(log, number, offset)
        number, offset = number + 1, 0


def _split(log: LogStore, number: int, offset: int) -> Iterator[Line]:
    rest, at = b"", offset
    while chunk := _read(log, Place(number, at), _CHUNK):
        at += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            # proctor never writes such a line; a ledger from elsewhere must not exhaust the memory.
            longest = render_limit(_LONGEST_LINE)
            raise DamageError(f"segment {number}: a line of more than {longest}")
        for data in whole:
            yield Line(Place(number, offset), data)
            offset += len(data) + 1
    if rest:
        yield Line(Place(number, offset), rest, is_torn=True)


def _read(log: LogStore, place: Place, size: int) -> bytes:
    try:
        return log.read(place, size)
    except OSError as error:
        where = f"{log.where}/{segment_name(place.segment)}"
        raise DamageError(f"{where}: cannot be read: {error.strerror}") from error


def is_ledger(directory: Path) -> bool:
    """Whether a directory has the checkpoint of a ledger."""
    return FileLog(directory).has_checkpoint()


class FileLog:
    """A log in a directory, which may be a symbolic link; links below it are not followed."""

    def __init__(self, directory: Path, segment_size: int = SEGMENT_SIZE) -> None:
        self.directory = directory
        self.segment_size = segment_size
        """Bytes after which a new segment begins; readers accept any size."""
        self._checkpoint = str(directory.absolute() / "checkpoint")

    @property
    def where(self) -> str:
        """The name of the log in messages."""
        return str(self.directory)

    def check_writable(self) -> None:
        """Refuse a network file system: see `LogStore`."""
        check_local(self.directory)

    def locked(self, patience_sec: float | None = None) -> AbstractContextManager[None]:
        """Hold the write lock: see `LogStore`."""
        return locked(self.directory, patience_sec)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint: see `LogStore`."""
        try:
            # Not stat: a dangling link is a checkpoint that cannot be read, not a missing one.
            os.lstat(self.directory / "checkpoint")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise LedgerError(f"{self.where}: cannot be read: {error.strerror}") from error
        return True

    def check_signed(self) -> None:
        """Refuse a directory without a checkpoint.

        Raises:
            LedgerError: there is no checkpoint, or the directory cannot be read.
        """
        if not self.has_checkpoint():
            raise LedgerError(self._render_absence("no checkpoint"))

    def check_begun(self) -> None:
        """Refuse a directory with neither a checkpoint nor lines.

        Raises:
            LedgerError: there is neither, or the directory cannot be read.
            DamageError: the segments cannot be listed.
        """
        if not self.has_checkpoint() and not self.stamps():
            raise LedgerError(self._render_absence("no checkpoint and no entries"))

    def _render_absence(self, lacking: str) -> str:
        found = lacking if os.path.lexists(self.directory) else "nothing"
        return (
            f"{self.where}: not a ledger: found {found}; "
            "`proctor ledger init` makes one, --ledger or PROCTOR_LEDGER names another"
        )

    def read_checkpoint(self) -> bytes:
        """The checkpoint: see `LogStore`."""
        with open_below(self.directory, "checkpoint") as file:
            return file.read(LARGEST_NOTE + 1)

    def write_checkpoint(self, data: bytes, *, is_new: bool = False) -> None:
        """Replace the checkpoint: see `LogStore`."""
        if is_new:
            write_new(Path(self._checkpoint), data)
        else:
            replace_durably(self._checkpoint, data)

    def stamps(self) -> dict[int, Stamp]:
        """The segments, with inode, size and time: see `LogStore`."""
        try:
            names = list_below(self.directory, "entries")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            where = self.directory / "entries"
            raise DamageError(f"{where}: cannot be read: {error.strerror}") from error
        numbers = sorted(int(name[:6]) for name in names if _NAME.fullmatch(name))
        stamps: dict[int, Stamp] = dict.fromkeys(numbers, (0, 0, 0))
        for number in numbers:
            # One that was removed since it was listed keeps the zeros.
            with contextlib.suppress(OSError):
                found = os.lstat(self.directory / segment_name(number))
                stamps[number] = found.st_ino, found.st_size, found.st_mtime_ns
        return stamps

    def read(self, place: Place, size: int) -> bytes:
        """Bytes of a segment: see `LogStore`."""
        with self._open(place.segment) as file:
            # One system call, and no shared position between threads.
            return os.pread(file.fileno(), size, place.offset)

    def _open(self, number: int) -> BinaryIO:
        return open_below(self.directory, segment_name(number))

    def append(self, at: Place, lines: Sequence[bytes]) -> list[Place]:
        """Append lines: see `LogStore`."""
        # Only the first append creates the directory: later it must exist.
        if at == Place():
            make_below(self.directory, "entries")
        places, runs = _lay_out(at, lines, self.segment_size)
        done: list[Place] = []
        try:
            for start, data in runs:
                path = self.directory / segment_name(start.segment)
                append_durably(path, data, at=start.offset)
                done.append(start)
        except OSError:
            # A batch is written completely or not at all: undo the segments before the one that
            # failed.
            for start in reversed(done):
                with contextlib.suppress(OSError):
                    self._cut(start)
            raise
        return places

    def set_aside(self, place: Place) -> None:
        """Move everything after a position to `torn/`: see `LogStore`."""
        # From the last segment backwards, so that a crash in between leaves no gap.
        for number in reversed(self.stamps()):
            if number < place.segment:
                break
            begin = place.offset if number == place.segment else 0
            with self._open(number) as file:
                file.seek(begin)
                tail = file.read()
            if not tail and begin:
                continue
            make_below(self.directory, "torn")
            write_new(self.directory / f"torn/{number:06}-{begin}-{os.urandom(4).hex()}", tail)
            self._cut(Place(number, begin))
        sync_directory(self.directory)

    def _cut(self, place: Place) -> None:
        """Truncate a segment at a position; remove it if nothing is left."""
        path = self.directory / segment_name(place.segment)
        if place.offset == 0:
            path.unlink()
            sync_directory(path.parent)
        else:
            cut_file(path, place.offset)

    def overwrite(self, place: Place, line: bytes) -> None:
        """Replace a line: see `LogStore`."""
        with self._open(place.segment) as file:
            data = bytearray(file.read())
        # Temporary files of an earlier attempt that crashed; the lock excludes other writers.
        for left in (self.directory / "entries").glob(".*.tmp"):
            left.unlink()
        # The whole segment is rewritten, because overwriting in place is not atomic.
        data[place.offset : place.offset + len(line)] = line
        write_atomic(self.directory / segment_name(place.segment), data)


def _lay_out(
    place: Place, lines: Sequence[bytes], segment_size: int
) -> tuple[list[Place], list[tuple[Place, bytes]]]:
    """The position of each line and the end, and the bytes to append to each segment."""
    places: list[Place] = []
    runs: list[tuple[Place, list[bytes]]] = []
    for line in lines:
        # A line larger than a segment gets one of its own.
        if place.offset and place.offset + len(line) + 1 > segment_size:
            place = Place(place.segment + 1)
        if not runs or runs[-1][0].segment != place.segment:
            runs.append((place, []))
        runs[-1][1].append(line)
        places.append(place)
        place = Place(place.segment, place.offset + len(line) + 1)
    return [*places, place], [(start, b"\n".join([*run, b""])) for start, run in runs]
