"""Segments: the files that hold the lines of a ledger, in order, each up to 64 MiB.

    entries/000000.jsonl, entries/000001.jsonl, …

A line ends at a newline and never spans two segments. What lies behind the place that the
checkpoint speaks for is not part of the ledger yet. Nothing here knows what a line means.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor.contained import list_below, open_below
from proctor.errors import DamageError, LedgerError
from proctor.files import append_durably, cut_file, sync_directory
from proctor.ledger.note import LARGEST_NOTE

SEGMENT_SIZE = 64 << 20
_NAME = re.compile(r"[0-9]{6}\.jsonl")
_CHUNK = 1 << 20
_LONGEST = 16 << 20
"""Bytes of a line; entries have no more."""


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
    """Whether the file ended before its newline."""

    @property
    def end(self) -> Place:
        """Where the next one begins, if it is in the same segment."""
        return Place(self.place.segment, self.place.offset + len(self.data) + 1)


def render_absence(directory: Path, found: str) -> str:
    """What is said of a directory that holds no ledger, and what to do."""
    return (
        f"{directory}: not a ledger: there is {found} there; "
        "`proctor ledger init` makes one, --ledger or PROCTOR_LEDGER names another"
    )


def has_checkpoint(directory: Path) -> bool:
    """Whether there is the checkpoint of a ledger.

    Raises:
        LedgerError: the directory may not be looked into.
    """
    try:
        os.lstat(directory / "checkpoint")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise LedgerError(f"{directory}: cannot be read: {error.strerror}") from error
    return True


def read_checkpoint(directory: Path) -> bytes:
    """A ledger's checkpoint, or more bytes of it than a checkpoint has.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with open_below(directory, "checkpoint") as file:
        return file.read(LARGEST_NOTE + 1)


def segment_path(entries: Path, number: int) -> Path:
    """The file of a segment."""
    return entries / f"{number:06}.jsonl"


def open_segment(entries: Path, number: int) -> BinaryIO:
    """A segment for reading; a ledger's directory may be a link, nothing below it is followed.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    return open_below(entries.parent, f"{entries.name}/{number:06}.jsonl")


def find_segments(entries: Path) -> list[int]:
    """The numbers of the segments that are there, in order.

    Raises:
        DamageError: their directory cannot be read, or is a link.
    """
    try:
        names = list_below(entries.parent, entries.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DamageError(f"{entries}: cannot be read: {error.strerror}") from error
    return sorted(int(name[:6]) for name in names if _NAME.fullmatch(name))


def read_line(entries: Path, place: Place, length: int) -> bytes:
    """One line, by where it begins and how long it is.

    Raises:
        DamageError: there is no line there.
    """
    path = segment_path(entries, place.segment)
    try:
        with open_segment(entries, place.segment) as file:
            data = os.pread(file.fileno(), length + 1, place.offset)
    except OSError as error:
        raise DamageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) != length + 1 or data[-1:] != b"\n":
        raise DamageError(f"{path}: no line of {length} bytes at byte {place.offset}")
    return data[:-1]


def read_lines(entries: Path, start: Place = Place()) -> Iterator[Line]:  # noqa: B008 - frozen
    """Every line from a place on, over all segments that follow without a gap.

    Raises:
        DamageError: a segment cannot be read.
    """
    number, offset = start.segment, start.offset
    present = set(find_segments(entries))
    while number in present:
        path = segment_path(entries, number)
        try:
            with open_segment(entries, number) as file:
                file.seek(offset)
                yield from _split(file.fileno(), number, offset)
        except OSError as error:
            raise DamageError(f"{path}: cannot be read: {error.strerror}") from error
        number, offset = number + 1, 0


def _split(fd: int, number: int, offset: int) -> Iterator[Line]:
    """The lines of an open file, read in pieces: a segment need not fit into memory."""
    rest = b""
    while chunk := os.read(fd, _CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            # Nobody writes one; a stranger's must not fill the memory.
            raise DamageError(f"segment {number}: a line of more than {_LONGEST >> 20} MiB")
        for data in whole:
            yield Line(Place(number, offset), data)
            offset += len(data) + 1
    if rest:
        yield Line(Place(number, offset), rest, is_torn=True)


def append_lines(
    entries: Path, place: Place, lines: Sequence[bytes], *, segment_size: int = SEGMENT_SIZE
) -> list[Place]:
    """Write lines at the end, durable when this returns; where each begins, and the next will.

    Raises:
        FileExistsError: the log does not end at this place.
        OSError: they cannot be written; none of them is there then.
    """
    places, runs = _lay_out(place, lines, segment_size)
    done: list[tuple[Place, Path]] = []
    try:
        for start, data in runs:
            path = segment_path(entries, start.segment)
            append_durably(path, data, at=start.offset)
            done.append((start, path))
    except OSError:
        # The segments before the one that failed: a batch is there whole or not at all.
        for start, path in reversed(done):
            with contextlib.suppress(OSError):
                cut_segment(path, start.offset)
        raise
    return places


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


def cut_segment(path: Path, size: int) -> None:
    """Take off what a segment has beyond a size; one of no size is removed."""
    if size == 0:
        path.unlink()
        sync_directory(path.parent)
    else:
        cut_file(path, size)
