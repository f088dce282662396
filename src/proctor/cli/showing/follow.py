"""`proctor show --follow`: shows a trace while it is being written, line by line.

Waits for the rest of an incomplete line, and notices when the file is truncated or replaced. A file
that is rewritten in place without getting shorter cannot be told from one that has grown.
"""

import contextlib
import os
import select
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path

import msgspec

from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.cli.output import print_line
from proctor.cli.showing.text import LONGEST, render_entry, render_header
from proctor.cli.stdout import print_stderr, send
from proctor.diagnostic import Diagnostic
from proctor.errors import InputError, TraceError
from proctor.harbor.documents import is_trial
from proctor.sentence import printable, reason_of
from proctor.traces.entry import MODEL_TRACE, OUTPUT, OUTPUT_FILE
from proctor.traces.trajectory import CarefulReader, LineReading

LINE_LIMIT = 1 << 24
"""Bytes of a line: longer ones are skipped, because nobody reads them in a terminal."""
_PIECE = 1 << 20
_POLL_SECONDS = 0.2
_OF_TRIALS = ("trajectory.jsonl", MODEL_TRACE, OUTPUT_FILE)


def follow(thing: str, *, is_full: bool) -> None:
    """Print a trace, and what is added to it until its trial ends or nobody reads.

    Raises:
        InputError: it is not a trajectory, a recorded output, or a trial with one of them.
        TraceError: the file cannot be read.
    """
    is_directory = Path(thing).is_dir()
    path = _wait_for_trace(Path(thing)) if is_directory else thing
    _check_kind(path)
    tail = Tail(path)
    printer = _Printer(CarefulReader(thorough=False), is_full=is_full)
    try:
        with _ReaderOfStdout() as audience:
            while not audience.has_gone():
                # In this order, so that what was written before the trial ended is read.
                has_ended = is_directory and _has_ended(Path(thing))
                count = printer.print(tail.read())
                change = tail.find_change()
                is_trimmed = change is Change.REPLACED and Path(tail.path).name == OUTPUT_FILE
                if change is not None and not is_trimmed:
                    print_stderr(f"{printable(tail.path)}: {change.value}")
                if change in (Change.CUT, Change.REPLACED):
                    count += printer.print(tail.read())
                    tail.start_again()
                    printer.start_again()
                if not count and change is None and has_ended:
                    break
                time.sleep(_POLL_SECONDS)
        if rest := tail.read_rest():
            printer.print([rest])
    finally:
        tail.close()


def _has_ended(trial: Path) -> bool:
    # It is written once, at the end.
    return (trial / "result.json").exists()


def _wait_for_trace(trial: Path) -> str:
    """The file to follow: a trial's trajectory, else what its agent's commands print."""
    while True:
        has_ended = _has_ended(trial) or not is_trial(str(trial))
        for name in _OF_TRIALS:
            if (trial / "agent" / name).exists():
                return str(trial / "agent" / name)
        if has_ended:
            raise InputError(
                f"{trial}: has no agent/{', agent/'.join(_OF_TRIALS)}; expected "
                "a trajectory or the directory of a trial"
            )
        time.sleep(_POLL_SECONDS)


def _check_kind(path: str) -> None:
    """Refuse other kinds of traces; an empty file may become a trajectory."""
    try:
        kind = find_file_kind(path)
    except InputError:
        return
    # A single line without a step may be invalid; the name of the file decides.
    is_spoken = kind is FileKind.CONVERSATION and "conversation" in Path(path).name
    if kind is FileKind.ATIF or is_spoken:
        raise InputError(f"{path}: a {kind}, which is not written line by line; omit --follow")


class _Printer:
    """Prints lines; if the middle of an agent's output was cut, those printed before only once."""

    def __init__(self, reader: CarefulReader, *, is_full: bool) -> None:
        self._reader = reader
        self._longest = None if is_full else LONGEST
        self._is_screen = sys.stdout is not None and sys.stdout.isatty()
        self._last = self._before = ""

    def print(self, lines: Iterable["Line"]) -> int:
        """Print lines; returns their number."""
        count = 0
        for line in lines:
            count += 1
            if line.text is None:
                message = f"{line.length:,} bytes long; expected no more than {LINE_LIMIT:,}"
                problem = Diagnostic("line-too-long", message, line.number)
                found = LineReading(diagnostics=[problem])
            else:
                found = self._reader.read(line.text, line.number, torn=not line.ended)
            if not self._is_shown_already(found):
                self._show(line, found)
        return count

    def start_again(self) -> None:
        """Begin with the first line of the file that replaced the one printed."""
        self._before = self._last

    def _is_shown_already(self, found: LineReading) -> bool:
        entry = found.entry
        if entry is not None and entry.role == OUTPUT and entry.timestamp:
            if entry.timestamp <= self._before:
                return True
            self._last = entry.timestamp
        return found.header is not None and bool(self._before)

    def _show(self, line: "Line", found: LineReading) -> None:
        # Lines are wrapped only on a terminal.
        width = shutil.get_terminal_size().columns if self._is_screen else None
        if found.header is not None:
            send(render_header(found.header))
        if found.entry is not None:
            send("\n".join(render_entry(found.entry, width, longest=self._longest)))
        what = "" if found.header or found.entry else "not an entry: "
        for problem in found.diagnostics:
            print_line(f"line {line.number}: {what}{problem.message}")


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line."""

    number: int
    """Counted from 1."""
    text: bytes | None
    """Without its newline; None if it was too long."""
    length: int
    ended: bool = True
    """False for a last line without its newline."""


class Change(Enum):
    """What happened to the file, other than growing."""

    CUT = "was truncated; lines are counted from 1 again"
    REPLACED = "was replaced; the new file follows from its first line"
    GONE = "was removed; waiting for it to reappear"


class Tail:
    """A file that is followed."""

    def __init__(self, path: str) -> None:
        """Open the file."""
        self.path = path
        self._is_gone = False
        self._fd = _open(path)
        self._number = 1
        self._position = 0
        self._parts: list[bytes] = []
        self._held = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def read(self) -> Iterator[Line]:
        """The complete lines since the last call."""
        while data := self._take():
            *ends, rest = data.split(b"\n")
            for piece in ends:
                self._hold(piece)
                text = b"".join(self._parts) if self._held <= LINE_LIMIT else None
                line = Line(self._number, text, self._held)
                self._number += 1
                self._parts, self._held = [], 0
                yield line
            self._hold(rest)

    def read_rest(self) -> Line | None:
        """The start of an incomplete line."""
        if not self._held:
            return None
        text = b"".join(self._parts) if self._held <= LINE_LIMIT else None
        return Line(self._number, text, self._held, ended=False)

    def find_change(self) -> Change | None:
        """What happened to the file. After CUT and REPLACED, call `start_again` before reading."""
        ours = os.fstat(self._fd)
        # A file that shrank was truncated; one that was truncated and has grown again cannot be
        # noticed.
        if ours.st_size < self._position:
            return Change.CUT
        try:
            there = os.stat(self.path)  # noqa: PTH116 - paths of traces are strings
        except OSError:
            was_gone, self._is_gone = self._is_gone, True
            return None if was_gone else Change.GONE
        self._is_gone = False
        same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        return None if same else Change.REPLACED

    def start_again(self) -> None:
        """Go to the first line of the present file."""
        fd = _open(self.path)
        os.close(self._fd)
        self._fd = fd
        self._number, self._position, self._parts, self._held = 1, 0, [], 0

    def _take(self) -> bytes:
        try:
            data = os.read(self._fd, _PIECE)
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {error.strerror}") from error
        self._position += len(data)
        return data

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > LINE_LIMIT:
            # Only the length of an oversized line is kept.
            self._parts.clear()
        elif piece:
            self._parts.append(piece)


def _open(path: str) -> int:
    try:
        # O_NONBLOCK: opening a FIFO must not block before it is refused.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read: {reason_of(error)}") from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise TraceError(f"{path}: {what}; expected trajectory.jsonl")
    return fd


class _ReaderOfStdout:
    """The reader of a pipe on stdout: `show -f … | head` must end when it does."""

    def __enter__(self) -> "_ReaderOfStdout":
        # A duplicate, because `send` replaces stdout when the pipe breaks.
        self._fd = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._fd = os.dup(sys.stdout.fileno())
        return self

    def __exit__(self, *failure: object) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def has_gone(self) -> bool:
        if self._fd is None:
            return False
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
