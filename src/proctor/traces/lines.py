r"""A trace file as pieces of whole lines, in constant memory, and one line as a JSON value.

Lines end at `\n` and nowhere else: U+2028, U+2029 and U+0085 are text. The last line may lack its
end.

Only regular files are read: reading a pipe would block, and a device has no end. What is appended
after the file was opened is not read, except for the rest of an incomplete line.

A plain JSON parser uses the last of two equal keys, accepts NaN, turns a number that is too large
into infinity, and keeps lone surrogates, which cannot be encoded. `Decoding` reports each of them;
the caller decides what to keep of such a line.
"""

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NoReturn

import msgspec
from msgspec import UNSET

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.json_values import MOST_VALUES, has_more_values
from proctor.sentence import reason_of, shown
from proctor.traces.entry import Object

LINE_LIMIT = 1 << 27
"""A longer line, 128 MiB, is skipped without holding it in memory."""
# Bytes read at a time: small enough for the processor's cache while it is decoded. With twice as
# many, the allocator returns each piece to the system and requests it again.
_PIECE = 1 << 16
_LINE_END = ord("\n")


class Oversized(msgspec.Struct, frozen=True, gc=False):
    """A line that was skipped."""

    length: int
    """Its length in bytes, including its end."""
    limit: int
    """The limit that it exceeded."""
    unit: str = "bytes"
    """Unit of the limit: bytes or values."""

    def describe(self, line: int) -> Diagnostic:
        """The diagnostic for it."""
        message = f"a line of {self.length:,} bytes"
        if self.unit == "bytes":
            message += f"; expected no more than {self.limit:,}"
        else:
            message += f" with more than {self.limit:,} {self.unit}; it is not decoded"
        return Diagnostic("line-too-long", message, line)


class OpenTrace:
    """An open file, read once from front to back; or a span of it that ends at a line end."""

    def __init__(
        self, path: str, limit: int = LINE_LIMIT, span: tuple[int, int] | None = None
    ) -> None:
        """Open it."""
        self.path = path
        self._limit = limit
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise TraceError(f"{path}: cannot be read: {reason_of(error)}") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise TraceError(f"{path}: {what}; expected a file of lines")
        self.size = status.st_size
        """Its size when it was opened; for a span, its end."""
        self._taken = 0
        if span is not None:
            self._taken, self.size = span
            os.lseek(self._fd, self._taken, os.SEEK_SET)
        self._at_line_end = True

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def find_changes(self) -> list[Diagnostic]:
        """Changes of the file since it was opened; called after reading it."""
        if self._taken < self.size:
            message = f"{self.size - self._taken:,} bytes were cut off the file while it was read"
            return [Diagnostic("file-shrank", message)]
        if os.fstat(self._fd).st_size > self._taken:
            message = "the file grew while it was read; what was appended is not included"
            return [Diagnostic("file-grew", message, is_problem=False)]
        return []

    def pieces(self) -> Iterator[bytes | Oversized]:
        """Yield whole lines, many at a time; the last piece may lack a line end."""
        buffer = bytearray(min(_PIECE, max(self.size, 1)))
        filled = dropped = 0
        while taken := self._take(memoryview(buffer)[filled:]):
            start = buffer.find(b"\n", filled, filled + taken) + 1 if dropped else 0
            end = buffer.rfind(b"\n", filled, filled + taken) + 1
            filled += taken
            if not end:
                buffer, filled, dropped = self._make_room(buffer, filled, dropped)
                continue
            if dropped:
                yield Oversized(dropped + start, self._limit)
                dropped = 0
            if end > start:
                yield from sift(buffer, start, end)
            rest = buffer[end:filled]
            if len(buffer) > _PIECE > len(rest):
                buffer = bytearray(_PIECE)
            filled = len(rest)
            buffer[:filled] = rest
        if dropped:
            yield Oversized(dropped + filled, self._limit)
        elif filled:
            yield from sift(buffer, 0, filled)

    def _make_room(
        self, buffer: bytearray, filled: int, dropped: int
    ) -> tuple[bytearray, int, int]:
        """Make room in the buffer for the rest of an incomplete line."""
        if dropped or filled > self._limit:
            # Only the length is kept: the line may be longer than memory.
            return buffer, 0, dropped + filled
        if filled == len(buffer):
            # One byte more than allowed, so that a longer line is detected without being held.
            most = max(self._limit + 1 - filled, 1)
            # In place, so that a long line is not held twice while it grows.
            buffer += bytes(min(max(filled, _PIECE), most))
        return buffer, filled, dropped

    def _take(self, into: memoryview) -> int:
        """Read on; beyond the size at opening, only up to the end of the current line."""
        left = self.size - self._taken
        # A writer may still append: a line begun before the file was opened is read to its end.
        if left <= 0 and self._at_line_end:
            return 0
        try:
            taken = os.readv(self._fd, [into[:left] if left > 0 else into])
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {reason_of(error)}") from error
        if left <= 0:
            taken = bytes(into[:taken]).find(b"\n") + 1 or taken
        self._taken += taken
        self._at_line_end = taken > 0 and into[taken - 1] == _LINE_END
        return taken


def sift(buffer: bytes | bytearray, begin: int, end: int) -> Iterator[bytes | Oversized]:
    """The lines in a buffer, except those with too many values to decode."""
    at = begin
    # A value takes at least a byte, so short pieces, the usual case, need no check.
    while at < end and end - begin > MOST_VALUES:
        stop = buffer.find(b"\n", at, end) + 1 or end
        if has_more_values(buffer, MOST_VALUES, at, stop):
            if at > begin:
                yield bytes(memoryview(buffer)[begin:at])
            yield Oversized(stop - at, MOST_VALUES, "values")
            begin = stop
        at = stop
    if begin < end:
        yield bytes(memoryview(buffer)[begin:end])


# Any escape in a string; the group matches half of a surrogate pair without its other half. Matched
# from the left, so that an escaped backslash before a `u` is not taken for the start of an escape.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_MARK: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 60
_NAMED: Final = 5


class Decoding:
    """One line while it is decoded."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.diagnostics: list[Diagnostic] = []
        self.shadowed: list[tuple[str, Any]] = []
        """Values that are hidden by a later key of the same name in the same object."""
        self._strange: dict[str, None] = {}

    def report(self, code: str, message: str) -> None:
        """Add a problem."""
        self.diagnostics.append(Diagnostic(code, message, self.line))

    def note(self, code: str, message: str) -> None:
        """Add a note about something that breaks nothing."""
        self.diagnostics.append(Diagnostic(code, message, self.line, is_problem=False))

    def decode(self, data: bytes, *, torn: bool = False) -> Any:
        """The value, or UNSET if there is none. `torn`: the file ends before the line does."""
        text = self._mend(self._text(data))
        try:
            value = self._load(text)
        except RecursionError:
            self.report("too-deep", "brackets nested deeper than can be read")
        except ValueError as error:
            # Checked first: the end of a file that is still being written is not garbage.
            if torn:
                message = f"the file ends inside a line, after {len(data):,} bytes of it"
                self.report("torn-line", message)
            elif not data.strip(b"\0"):
                self.report("garbage", f"{len(data):,} zero bytes; expected a JSON object")
            elif isinstance(error, json.JSONDecodeError):
                why = f"not JSON at character {error.pos + 1}: {error.msg}"
                self.report("garbage", f"{why}; expected a JSON object")
            else:
                self.report("garbage", f"not readable: {error}; expected a JSON object")
        else:
            if self._strange:
                names = some_of(self._strange)
                self.report("not-a-json-number", f"{names}, which JSON numbers cannot express")
            if self.shadowed:
                names = some_of(map(shown, dict(self.shadowed)))
                self.report("duplicate-key", f"key {names} more than once; the last one counts")
            return value
        return UNSET

    def _text(self, data: bytes) -> str:
        if data.startswith(_MARK):
            self.report("byte-order-mark", "starts with a byte order mark; expected plain UTF-8")
            data = data[len(_MARK) :]
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            what = f"byte {error.start + 1} is {data[error.start]:#04x}; expected UTF-8"
            self.report("invalid-utf-8", f"{what}, and what is not is shown as U+FFFD")
            return data.decode(errors="replace")

    def _mend(self, text: str) -> str:
        if not _has_halves(text):
            return text
        self.note("half-character", "half a surrogate pair; shown as U+FFFD")
        return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)

    def _load(self, text: str) -> Any:
        try:
            return self._loads(text, strict=True)
        except ValueError:
            self._strange.clear()
            self.shadowed.clear()
            value = self._loads(text, strict=False)
        self.report("control-character", "a raw control character in a string; expected an escape")
        return value

    def _loads(self, text: str, *, strict: bool) -> Any:
        return json.loads(
            text,
            object_pairs_hook=self._pair,
            parse_constant=self._constant,
            parse_float=self._float,
            strict=strict,
        )

    def _pair(self, pairs: list[tuple[str, Any]]) -> Object:
        made = dict(pairs)
        if len(made) < len(pairs):
            last = {key: at for at, (key, _) in enumerate(pairs)}
            self.shadowed += [pair for at, pair in enumerate(pairs) if last[pair[0]] != at]
        return made

    def _constant(self, name: str) -> float:
        self._strange[name] = None
        return float(name)

    def _float(self, digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            self._strange[digits[:_SHOWN]] = None
        return value


def parse_whole(text: str) -> Any:
    """Parse JSON text without losing anything.

    Raises:
        ValueError: it is not JSON, or parsing would lose something.
    """
    if _has_halves(text):
        raise ValueError("half a surrogate pair")
    try:
        return json.loads(
            text, object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite
        )
    except RecursionError as error:
        raise ValueError("nested deeper than can be read") from error


def _distinct(pairs: list[tuple[str, Any]]) -> Object:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key more than once")
    return made


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON does not have")


def _finite(digits: str) -> float:
    value = float(digits)
    return _refuse(digits) if math.isinf(value) else value


def _has_halves(text: str) -> bool:
    if "\\ud" not in text and "\\uD" not in text:
        return False
    return any(found[1] for found in _ESCAPE.finditer(text))


def some_of(names: Iterable[str]) -> str:
    """The first few of many names: one line can have a million of them."""
    first = list(islice(names, _NAMED + 1))
    return ", ".join(first[:_NAMED]) + (" and more" if len(first) > _NAMED else "")
