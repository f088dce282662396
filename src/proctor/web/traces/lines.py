"""Random access to the lines of a trace, without reading the rest.

A trajectory in a job is read in place, a large sealed one frame by frame, each checked against its
digest. The entries of every other trace are copied to an unnamed temporary file, which the kernel
removes when it is no longer open, however the program ends.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import ChangedTraceError
from proctor.files import write_all
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.step_parts import SealedPart, load_sealed_part
from proctor.sentence import reason_of
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.lines import OpenTrace, Oversized
from proctor.traces.trace import TraceReading

_COPY = 1 << 20
_UNFIT = (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError)
_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive whole lines."""

    begin: int
    """Their position, for `read` of the same object."""
    size: int
    line: int
    """Number of the first line, from 1."""


class Lines(Protocol):
    """The lines of one trace."""

    def pieces(self) -> Iterator[tuple[Span, bytes | Diagnostic]]:
        """All lines in order; a line too long to keep in memory is a diagnostic."""
        ...

    def read(self, span: Span) -> bytes:
        """Read some lines again.

        Raises:
            ChangedTraceError: the file has changed.
            DamageError: sealed evidence is missing or altered.
        """
        ...

    @property
    def held(self) -> int:
        """Size of temporary copies, in bytes."""
        ...

    @property
    def size(self) -> int:
        """Size of all lines, in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class FileLines:
    """The lines of a file in a job."""

    path: str
    stamp: tuple[int, int, int]
    """Identifies the file's contents: inode, size and time of the last change."""
    held: int = 0

    @property
    def size(self) -> int:
        """Size of all lines, in bytes."""
        return self.stamp[1]

    def pieces(self) -> Iterator[tuple[Span, bytes | Diagnostic]]:
        """All lines in order."""
        yield from walk_lines(self.path)

    def read(self, span: Span) -> bytes:
        """Read some lines again."""
        try:
            with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - a path as text
                # After opening, so that the checked file is the one that is read.
                self._check(os.fstat(file.fileno()))
                file.seek(span.begin)
                return file.read(span.size)
        except OSError as error:
            raise ChangedTraceError(f"{self.path}: cannot be read: {reason_of(error)}") from error

    def _check(self, status: os.stat_result) -> None:
        if stamp_of(status) != self.stamp:
            raise ChangedTraceError(f"{self.path}: is being written; load the page again")


class Temporary:
    """An unnamed temporary file that exists as long as it is referenced."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="proctor-trace-") as file:
            # The duplicate stays open when the file object is closed; the file has no name by then.
            self.fd = os.dup(file.fileno())
        self.size = 0

    def __del__(self) -> None:
        os.close(self.fd)

    def write(self, data: bytes) -> None:
        """Append bytes."""
        write_all(self.fd, data)
        self.size += len(data)


@dataclass(frozen=True, slots=True)
class CopiedLines:
    """Lines in a temporary file."""

    file: Temporary
    held: int
    problems: int = 0
    noticed: tuple[str, ...] = ()
    """Problems with the trace that they were made from."""

    @property
    def size(self) -> int:
        """Size of all lines, in bytes."""
        return self.held

    def pieces(self) -> Iterator[tuple[Span, bytes | Diagnostic]]:
        """All lines in order."""
        # Opening it through /proc gives each reader an offset of its own.
        return walk_lines(f"/proc/self/fd/{self.file.fd}")

    def read(self, span: Span) -> bytes:
        """Read some lines again."""
        return os.pread(self.file.fd, span.size, span.begin)


@dataclass(frozen=True, slots=True)
class SealedLines:
    """The lines of a large artifact, decompressed frame by frame."""

    artifacts: ArtifactStore
    sha256: str
    parts: list[SealedPart]
    held: int = 0

    @property
    def size(self) -> int:
        """Size of all lines, in bytes."""
        return sum(part.size for part in self.parts)

    def pieces(self) -> Iterator[tuple[Span, bytes | Diagnostic]]:
        """All lines in order."""
        for at, part in enumerate(self.parts):
            yield Span(at, part.size, part.line), self._load(part)

    def read(self, span: Span) -> bytes:
        """Read some lines again."""
        return self._load(self.parts[span.begin])

    def _load(self, part: SealedPart) -> bytes:
        return load_sealed_part(self.artifacts, self.sha256, part)


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    """Stamp that changes with a file's contents."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def walk_lines(path: str) -> Iterator[tuple[Span, bytes | Diagnostic]]:
    """Yield pieces of a file, each with its position."""
    trace = OpenTrace(path)
    begin, line = 0, 1
    try:
        for piece in trace.pieces():
            if isinstance(piece, Oversized):
                yield Span(begin, piece.length, line), piece.describe(line)
                begin, line = begin + piece.length, line + 1
                continue
            yield Span(begin, len(piece), line), piece
            begin, line = begin + len(piece), line + _count(piece)
    finally:
        trace.close()


def copy_lines(path: str) -> CopiedLines:
    """Copy a file's lines unchanged to a temporary file."""
    target = Temporary()
    with open(path, "rb", buffering=0) as source:  # noqa: PTH123 - a path as text
        while data := source.read(_COPY):
            target.write(data)
    return _finish(target)


def copy_entries(path: str, kind: TraceKind) -> CopiedLines:
    """Copy the entries of a conversation or an ATIF file, as lines, to a temporary file."""
    reading = TraceReading(path, kind)
    target = Temporary()
    for batch in reading.batches():
        target.write(b"".join(_encode(entry) + b"\n" for entry in batch))
    return _finish(target, reading.problems, tuple(reading.noticed))


def _finish(target: Temporary, problems: int = 0, noticed: tuple[str, ...] = ()) -> CopiedLines:
    return CopiedLines(target, target.size, problems, noticed)


def _encode(entry: Entry) -> bytes:
    try:
        return _ENCODE(entry)
    except _UNFIT:
        # Numbers that JSON readers reject, or values nested too deeply.
        text = f"(an entry that cannot be shown; role {entry.role[:40]!r})"
        return _ENCODE(Entry(role="unreadable", step=0, content=text))


def _count(piece: bytes) -> int:
    return piece.count(b"\n") + (not piece.endswith(b"\n"))
