"""Records what an agent's commands print, with times, on the host while they run.

    <trial>/agent/proctor-output.jsonl

The file has the lines of a trajectory, all of role `output` and step 0: what was started, what came
from its standard output and error together, how it ended. It is the trial's trace if the agent
wrote none. A line is in the file when its text has come, so a killed runner loses none.

The agent decides what it prints. Text that is no UTF-8 is replaced, secrets of the trial are
redacted, and of a very long output the first and the last 8 MiB of the file are kept. A failing
disk ends the recording, never the trial.
"""

import asyncio
import codecs
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from proctor.files import write_all
from proctor.harbor.render import written_text
from proctor.times import render_utc
from proctor.traces.entry import OUTPUT, OUTPUT_FILE, OUTPUT_FORMAT, VERSION, Entry, Header
from proctor.traces.writer import Redactor
from proctor.trial.clock import SYSTEM, Clock

HEAD: Final = 8 << 20
"""Bytes of the file that are kept from its beginning, and as many from its end."""
# A file of this size is cut. Cutting rewrites the file, so it has to be worth it.
_LONGEST: Final = 3 * HEAD
# Bytes between the places where the file can be cut.
_APART: Final = 1 << 18
# Characters without a line end that are waited for, and seconds; more are written as they are.
_MOST_HELD: Final = 1 << 16
_PATIENCE_SEC: Final = 0.2
_LONGEST_COMMAND: Final = 4000
_PIECE: Final = 1 << 20
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_ENCODE = msgspec.json.Encoder().encode


class _Printed(msgspec.Struct, frozen=True):
    stdout: str = ""
    content: str = ""


_PRINTED = msgspec.json.Decoder(_Printed)


class OutputLog:
    """The file of one run of an agent, created by its first command."""

    def __init__(
        self,
        directory: str,
        redactor: Redactor | None,
        logger: logging.Logger,
        clock: Clock = SYSTEM,
    ) -> None:
        self.clock = clock
        self.path = f"{directory}/{OUTPUT_FILE}"
        self.title: str | None = None
        """How the next command is recorded, if not as it is run."""
        self.replaces_results = False
        """Set by an agent that reads the log, so that results of commands need not be long."""
        self.n_cut = 0
        """Bytes of output that are not kept."""
        self._redactor = redactor
        self._logger = logger
        self._fd = -1
        self._size = 0
        # Bytes of output so far, and at each place in the file where it can be cut.
        self._n_heard = 0
        self._marks: list[tuple[int, int]] = []
        self._n_commands = 0

    def start(self, command: str) -> "CommandOutput":
        """Record that a command starts."""
        self._n_commands += 1
        if self._n_commands == 1:
            try:
                self._fd = os.open(self.path, _FLAGS | os.O_APPEND, 0o644)
                self._size = os.fstat(self._fd).st_size
                if not self._size:
                    header = Header(VERSION, OUTPUT_FORMAT, self.now())
                    self._size = _write_line(self._fd, header)
            except OSError as error:
                self._give_up(error)
        shown, self.title = self.title or command, None
        # A command may have halves of characters, which a file cannot.
        text = self.clean(written_text(shown[:_LONGEST_COMMAND]))
        output = CommandOutput(self, self._n_commands)
        output.write(command=text if len(shown) <= _LONGEST_COMMAND else f"{text}…")
        return output

    def clean(self, text: str) -> str:
        """The text without the trial's secrets."""
        return self._redactor.redact_text(text) if self._redactor else text

    def append(self, entry: Entry, n_heard: int = 0) -> None:
        """Write an entry that stands for so many bytes of output."""
        self._n_heard += n_heard
        if self._fd < 0:
            return
        line = _ENCODE(entry) + b"\n"
        try:
            write_all(self._fd, line)
            self._size += len(line)
            if self._size >= (self._marks[-1][0] if self._marks else HEAD - _APART) + _APART:
                self._marks.append((self._size, self._n_heard))
            if self._size > _LONGEST:
                self._cut()
        except OSError as error:
            self._give_up(error)

    def now(self) -> str:
        """The time, for an entry."""
        return render_utc(self.clock.now())

    def write_text(self, name: str) -> None:
        """Write all text so far, without times, to a file beside the log."""
        if not self._n_commands:
            return
        path = f"{os.path.dirname(self.path)}/{name}"
        try:
            self._trim()
            with suppress(FileNotFoundError):
                os.unlink(path)
            with open(path, "x", encoding="utf-8", newline="") as file:
                file.writelines(self.read_text())
        except OSError as error:
            self._logger.warning("%s: the agent's output is not written to it: %s", path, error)

    def read_text(self) -> Iterator[str]:
        """The text so far, piece by piece, and what was cut."""
        if not self._n_commands:
            return
        with open(self.path, "rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):
                    entry = _PRINTED.decode(line)
                    yield entry.stdout
                    if entry.content.endswith("cut here"):
                        yield f"\n[{entry.content}]\n"

    def close(self) -> None:
        """Finish the file."""
        if self._fd < 0:
            return
        try:
            self._trim()
        except OSError as error:
            self._give_up(error)
        else:
            os.close(self._fd)
            self._fd = -1

    def _trim(self) -> None:
        if self._fd >= 0 and self._size > 2 * HEAD + _APART:
            self._cut()

    def _give_up(self, error: OSError) -> None:
        self._logger.warning("the agent's output is not recorded further: %s", error)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _cut(self) -> None:
        """Rewrite the file without its middle."""
        head, *marks = self._marks
        at = next(place for place, mark in enumerate(marks) if mark[0] >= self._size - HEAD)
        tail = marks[at]
        self.n_cut = tail[1] - head[1]
        note = Entry(OUTPUT, 0, f"{self.n_cut:,} bytes were cut here", timestamp=self.now())
        new = f"{self.path}.new"
        with suppress(FileNotFoundError):
            os.unlink(new)
        fd = os.open(new, _FLAGS | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            _copy(self._fd, fd, 0, head[0])
            begin = head[0] + _write_line(fd, note)
            _copy(self._fd, fd, tail[0], self._size)
            os.rename(new, self.path)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                os.unlink(new)
            raise
        os.close(self._fd)
        self._fd, moved = fd, begin - tail[0]
        self._size += moved
        self._marks = [head, *((place + moved, heard) for place, heard in marks[at:])]


class CommandOutput:
    """What one command prints. Lines are written whole, if they come whole."""

    def __init__(self, log: OutputLog, number: int) -> None:
        self._log = log
        self._number = number
        self._began = log.clock.monotonic()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""
        self._n_held = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def feed(self, data: bytes) -> None:
        """Take what it printed."""
        self._held += self._decode(data)
        self._n_held += len(data)
        end = self._held.rfind("\n") + 1
        if len(self._held) - end > _MOST_HELD:
            end = len(self._held)
        if end:
            self._flush(end)
        if self._held and self._timer is None:
            # The rest of the line may come at once: a secret in it is found only in one piece.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_PATIENCE_SEC, self._flush)

    def _flush(self, end: int | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = self._held[:end]
        self._held = "" if end is None else self._held[end:]
        if text:
            n_rest = len(self._held.encode())
            n_heard, self._n_held = max(self._n_held - n_rest, 0), n_rest
            self.write(n_heard, stdout=self._log.clean(text))

    def end(self, exit_code: int) -> None:
        """Record that it ended."""
        self._finish(exit_code=exit_code)

    def close(self) -> None:
        """Record that it was stopped, unless it has ended."""
        if not self._has_ended:
            self._finish(content="stopped before it ended")

    def _finish(self, **how: Any) -> None:
        self._has_ended = True
        self._held += self._decode(b"", final=True)
        self._flush()
        passed = self._log.clock.monotonic() - self._began
        self.write(duration_ms=round(passed * 1000), **how)

    def write(self, n_heard: int = 0, **fields: Any) -> None:
        """Write an entry of this command; the first command's are not numbered."""
        if self._number > 1:
            fields["metadata"] = {"command": self._number}
        self._log.append(Entry(OUTPUT, 0, timestamp=self._log.now(), **fields), n_heard)


def _write_line(fd: int, line: msgspec.Struct) -> int:
    data = _ENCODE(line) + b"\n"
    write_all(fd, data)
    return len(data)


def _copy(source: int, target: int, begin: int, end: int) -> None:
    while begin < end:
        data = os.pread(source, min(_PIECE, end - begin), begin)
        if not data:
            raise OSError(5, "the file is shorter than what was written to it")
        write_all(target, data)
        begin += len(data)
