"""A log: lines in segments, and the checkpoint that signs them.

`LogStore` is what a ledger needs of the place where its log is kept. `FileLog` keeps it in a
directory on a local disk:

    entries/000000.jsonl     segments, each up to 64 MiB
    checkpoint               what the log was when it was last signed
    torn/                    what a crash left behind the checkpoint, put aside
    lock                     held by whoever writes

A line ends at a newline and never spans two segments. What lies behind the place that the
checkpoint signs was never acknowledged and is not part of the log. Nothing here knows what a line
means.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
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

SEGMENT_SIZE = 64 << 20
_NAME = re.compile(r"[0-9]{6}\.jsonl")
_CHUNK = 1 << 20
_LONGEST = 16 << 20
"""Bytes of a line; entries have no more."""

type Stamp = tuple[int, int, int]
"""Of a segment: its identity, its size in bytes, and when it changed last."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a line begins, or where the next one will."""

    segment: int = 0
    offset: int = 0


class Line(msgspec.Struct, frozen=True):
    """A line as it is stored, without its newline."""

    place: Place
    data: bytes
    is_torn: bool = False
    """Whether the segment ended before its newline."""

    @property
    def end(self) -> Place:
        """Where the next one begins, if it is in the same segment."""
        return Place(self.place.segment, self.place.offset + len(self.data) + 1)


class LogStore(Protocol):
    """Where a log is kept. Readers need no lock; a writer holds `locked` while it changes it."""

    @property
    def where(self) -> str:
        """How messages name it."""
        ...

    def check_writable(self) -> None:
        """Refuse a place where two writers could not be kept apart.

        Raises:
            LedgerError: it is one.
        """
        ...

    def locked(self, patience_sec: float | None = None) -> AbstractContextManager[None]:
        """Be the only writer; without patience given, wait for it as long as it takes.

        Raises:
            BusyError: somebody else is, for longer than that.
            OSError: the log cannot be written.
        """
        ...

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint.

        Raises:
            LedgerError: nobody may look.
        """
        ...

    def read_checkpoint(self) -> bytes:
        """The checkpoint, or more bytes of it than a checkpoint has.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def write_checkpoint(self, data: bytes, *, is_new: bool = False) -> None:
        """Replace the checkpoint in one step, durable when this returns.

        Raises:
            FileExistsError: it should be the first, and there is one.
            OSError: it cannot be written; the one before it is there.
        """
        ...

    def stamps(self) -> dict[int, Stamp]:
        """The segments in order, each with what differs once its bytes do.

        Raises:
            DamageError: they cannot be listed.
        """
        ...

    def read(self, place: Place, size: int) -> bytes:
        """So many bytes of a segment, fewer only at its end.

        Raises:
            OSError: they cannot be read, or there is no such segment.
        """
        ...

    def append(self, at: Place, lines: Sequence[bytes]) -> list[Place]:
        """Add lines if the log ends at this place: where each begins, and where the next will.

        Durable when this returns.

        Raises:
            FileExistsError: the log does not end there.
            OSError: they cannot be written; none of them is there then.
        """
        ...

    def set_aside(self, place: Place) -> None:
        """Move everything from a place on out of the log; nothing is deleted.

        Raises:
            OSError: it cannot be moved.
        """
        ...

    def overwrite(self, place: Place, line: bytes) -> None:
        """Put another line of the same length at a place: the old or the new one is there, whole.

        Raises:
            OSError: it cannot be written.
        """
        ...


def segment_name(number: int) -> str:
    """How messages name a segment; in a directory, its file."""
    return f"entries/{number:06}.jsonl"


def read_line(log: LogStore, place: Place, length: int) -> bytes:
    """One line, by where it begins and how long it is.

    Raises:
        DamageError: there is no line there.
    """
    data = _read(log, place, length + 1)
    if len(data) != length + 1 or data[-1:] != b"\n":
        raise DamageError(
            f"{log.where}/{segment_name(place.segment)}: no line of {length} bytes at byte "
            f"{place.offset}"
        )
    return data[:-1]


def read_lines(log: LogStore, start: Place = Place()) -> Iterator[Line]:  # noqa: B008 - frozen
    """Every line from a place on, over all segments that follow without a gap.

    Raises:
        DamageError: a segment cannot be read.
    """
    number, offset = start.segment, start.offset
    present = log.stamps()
    while number in present:
        yield from _split(log, number, offset)
        number, offset = number + 1, 0


def _split(log: LogStore, number: int, offset: int) -> Iterator[Line]:
    """The lines of a segment, read in pieces: it need not fit into memory."""
    rest, at = b"", offset
    while chunk := _read(log, Place(number, at), _CHUNK):
        at += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            # Nobody writes one; a stranger's must not fill the memory.
            raise DamageError(f"segment {number}: a line of more than {_LONGEST >> 20} MiB")
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
    """Whether there is the checkpoint of a ledger.

    Raises:
        LedgerError: the directory may not be looked into.
    """
    return FileLog(directory).has_checkpoint()


class FileLog:
    """A log in a directory. The directory may be a link; nothing below it is followed."""

    def __init__(self, directory: Path, segment_size: int = SEGMENT_SIZE) -> None:
        self.directory = directory
        self.segment_size = segment_size
        """Bytes at which a new segment begins; every reader takes any."""
        self._checkpoint = str(directory.absolute() / "checkpoint")

    @property
    def where(self) -> str:
        """How messages name it."""
        return str(self.directory)

    def check_writable(self) -> None:
        """Refuse a network file system: see `LogStore`."""
        check_local(self.directory)

    def locked(self, patience_sec: float | None = None) -> AbstractContextManager[None]:
        """Be the only writer: see `LogStore`."""
        return locked(self.directory, patience_sec)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint: see `LogStore`."""
        try:
            os.lstat(self.directory / "checkpoint")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise LedgerError(f"{self.where}: cannot be read: {error.strerror}") from error
        return True

    def check_signed(self) -> None:
        """Refuse a directory without a checkpoint.

        Raises:
            LedgerError: it is one, or may not be looked into.
        """
        if not self.has_checkpoint():
            raise LedgerError(self._render_absence("no checkpoint"))

    def check_begun(self) -> None:
        """Refuse a directory with neither a checkpoint nor lines.

        Raises:
            LedgerError: it is one, or may not be looked into.
            DamageError: the segments cannot be listed.
        """
        if not self.has_checkpoint() and not self.stamps():
            raise LedgerError(self._render_absence("no checkpoint and no entries"))

    def _render_absence(self, lacking: str) -> str:
        found = lacking if os.path.lexists(self.directory) else "nothing"
        return (
            f"{self.where}: not a ledger: there is {found} there; "
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
        return {number: self._stamp(number) for number in numbers}

    def _stamp(self, number: int) -> Stamp:
        try:
            found = os.lstat(self.directory / segment_name(number))
        except OSError:
            return 0, 0, 0  # gone since it was listed
        return found.st_ino, found.st_size, found.st_mtime_ns

    def read(self, place: Place, size: int) -> bytes:
        """Bytes of a segment: see `LogStore`."""
        with self._open(place.segment) as file:
            return os.pread(file.fileno(), size, place.offset)

    def _open(self, number: int) -> BinaryIO:
        return open_below(self.directory, segment_name(number))

    def append(self, at: Place, lines: Sequence[bytes]) -> list[Place]:
        """Add lines: see `LogStore`."""
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
            # The segments before the one that failed: a batch is there whole or not at all.
            for start in reversed(done):
                with contextlib.suppress(OSError):
                    self._cut(start)
            raise
        return places

    def set_aside(self, place: Place) -> None:
        """Move what lies behind a place to `torn/`: see `LogStore`."""
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
        """Take off what a segment has from a place on; an empty one is removed."""
        path = self.directory / segment_name(place.segment)
        if place.offset == 0:
            path.unlink()
            sync_directory(path.parent)
        else:
            cut_file(path, place.offset)

    def overwrite(self, place: Place, line: bytes) -> None:
        """Put another line at a place: see `LogStore`."""
        with self._open(place.segment) as file:
            data = file.read()
        # What a crash left of an earlier try; under the lock nobody else writes here.
        for left in (self.directory / "entries").glob(".*.tmp"):
            left.unlink()
        changed = data[: place.offset] + line + data[place.offset + len(line) :]
        write_atomic(self.directory / segment_name(place.segment), changed)


def _lay_out(
    place: Place, lines: Sequence[bytes], segment_size: int
) -> tuple[list[Place], list[tuple[Place, bytes]]]:
    """Where each line goes, and the bytes of each segment in one piece."""
    places: list[Place] = []
    runs: list[tuple[Place, list[bytes]]] = []
    for line in lines:
        if place.offset and place.offset + len(line) + 1 > segment_size:
            place = Place(place.segment + 1)
        if not runs or runs[-1][0].segment != place.segment:
            runs.append((place, []))
        runs[-1][1].append(line)
        places.append(place)
        place = Place(place.segment, place.offset + len(line) + 1)
    return [*places, place], [(start, b"\n".join(run) + b"\n") for start, run in runs]
