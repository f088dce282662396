"""Read trajectory.jsonl: all three generations, strictly or leniently.

    for chunk in read_chunks(path):          strict: the first problem is a TraceError
    for chunk in read_chunks(path, salvage=True):
                chunk.entries, chunk.diagnostics     the valid entries, and problems
    for chunk in read_steps(path, 3, 7):     some steps, as a full reading has them, but faster

Memory does not grow with the file. A chunk is decoded in one call; only when that fails, or with
`thorough`, is it read again line by line by `CarefulReader`, so that each problem has its line. A
line becomes an entry if it has a step and a role; a value that does not fit its key is removed from
the entry and kept next to it, like unknown keys and values hidden by a duplicate key. Only a
thorough reading reports duplicate keys (the last one wins, as in every JSON parser) and notes.
docs/reference/trace-files.md has the whole table.
"""

import contextlib
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.sentence import shown
from proctor.traces.entry import (
    HEADER_KEYS,
    KEYS,
    OUTPUT,
    ROLES,
    VERSION,
    Entry,
    Header,
    Object,
    UsualHeader,
)
from proctor.traces.lines import LINE_LIMIT, Decoding, OpenTrace, Oversized, sift, some_of

_WHOLE: Final = re.compile(r"\s*[+-]?\d+(_\d+)*(\.0*)?\s*")
_INTEGERS: Final = frozenset({"step", "exit_code", "duration_ms"})
_OBJECTS: Final = frozenset({"arguments", "metadata", "meta_harness"})


class LineRest(msgspec.Struct, frozen=True):
    """What a line contains beyond its entry."""

    line: int
    """Counted from 1."""
    beside: Object = {}
    """Unknown keys, and values that do not fit their key."""
    shadowed: tuple[tuple[str, Any], ...] = ()
    """Values that are hidden by a later key of the same name in the same object."""


class LineReading(msgspec.Struct):
    """The result of reading one line."""

    entry: Entry | None = None
    header: Header | None = None
    kept: LineRest | None = None
    diagnostics: list[Diagnostic] = []


class CarefulReader:
    """Reads the lines of one file, in order."""

    def __init__(self, *, thorough: bool) -> None:
        self._thorough = thorough
        self._last_step = 0
        self.headed = False
        """Whether a header was read."""

    def read(self, text: bytes, line: int, *, torn: bool = False) -> LineReading:
        """Read one line, given without its end; `torn` if the file ends before that."""
        if not text.strip():
            return LineReading()
        reading = _Line(line)
        value = reading.decode(text, torn=torn)
        found = LineReading(diagnostics=reading.diagnostics)
        if value is msgspec.UNSET:
            return found
        if torn:
            reading.note("no-line-end", "the last line has no line end")
        if not isinstance(value, dict):
            reading.report("not-an-object", f"{shown(value)}; expected a JSON object")
        elif "version" in value and "format" in value and not {"step", "role"} & value.keys():
            # A string "1" counts as another version in the format's own reader too.
            if value["version"] != VERSION or isinstance(value["version"], bool):
                version = shown(value["version"])
                reading.note(
                    "other-version", f"the header says version {version}; expected {VERSION}"
                )
            if self.headed:
                reading.note("header-again", "another header; expected one, on the first line")
            elif reading.line > 1:
                reading.note("late-header", "a header below entries; expected it on the first line")
            self.headed = True
            found.header = Header(value["version"], value["format"], value.get("timestamp"))
            more = {key: kept for key, kept in value.items() if key not in HEADER_KEYS}
            if more or reading.shadowed:
                names = some_of(map(shown, more))
                reading.note("header-key", f"the header has {names} as well; kept beside")
                found.kept = LineRest(line, more, tuple(reading.shadowed))
        else:
            self._read_entry(value, reading, found)
        if not self._thorough:
            # Duplicate keys are left out too, since lines that are decoded fast do not report them.
            found.diagnostics = [
                seen
                for seen in found.diagnostics
                if seen.is_problem and seen.code != "duplicate-key"
            ]
        return found

    def _read_entry(self, value: Object, reading: "_Line", found: LineReading) -> None:
        fields, beside = reading.sort(value)
        if beside or reading.shadowed:
            found.kept = LineRest(reading.line, beside, tuple(reading.shadowed))
        # Without both it is not an entry; the whole line is kept.
        if "step" not in fields or "role" not in fields:
            found.kept = LineRest(reading.line, value, tuple(reading.shadowed))
            return
        found.entry = entry = Entry(**fields)
        if entry.role not in (*ROLES, OUTPUT):
            expected = ", ".join(ROLES)
            reading.note("unknown-role", f"role is {shown(entry.role)}; expected {expected}")
        if entry.step < self._last_step:
            last = self._last_step
            message = f"step {entry.step} after step {last}; expected steps not to decrease"
            reading.note("decreasing-step", message)
        self._last_step = entry.step


class _Line(Decoding):
    """One line while its value is sorted into an entry."""

    def sort(self, value: Object) -> tuple[Object, Object]:
        """The fields of an entry, and what is kept next to it."""
        fields: Object = {}
        beside: Object = {}
        unknown = []
        for key, given in value.items():
            if key not in KEYS:
                unknown.append(shown(key))
                beside[key] = given
            elif given is not None or key in ("step", "role"):
                self._place(key, given, fields, beside)
        if unknown:
            self.report("unknown-key", f"unknown key {some_of(unknown)}; not part of the format")
        for key in ("step", "role"):
            if key not in value:
                self.report(f"no-{key}", f"no {key}; expected one in every entry")
        return fields, beside

    def _place(self, key: str, given: object, fields: Object, beside: Object) -> None:
        if key in _INTEGERS:
            whole = _whole(given)
            if whole is not None and (key != "step" or whole >= 0):
                if type(given) is not int:
                    self.note("coerced", f"{key} is {shown(given)}; read as {whole}")
                fields[key] = whole
                return
        elif _fits(key, given):
            fields[key] = given
            return
        beside[key] = given
        self.report("wrong-type", f"{key} is {shown(given)}; expected {_EXPECTED[key]}")


_EXPECTED: Final = dict.fromkeys(KEYS, "a string") | {
    "step": "a whole number, 0 or more",
    "exit_code": "a whole number",
    "duration_ms": "a whole number",
    "media": "a list of strings",
    **dict.fromkeys(_OBJECTS, "a JSON object"),
}


def _fits(key: str, given: object) -> bool:
    if key in _OBJECTS:
        return isinstance(given, dict)
    if key == "media":
        return isinstance(given, list) and all(isinstance(name, str) for name in given)
    return isinstance(given, str)


def _whole(given: object) -> int | None:
    """Convert to a whole number, as leniently as the readers of all generations."""
    if isinstance(given, float):
        return int(given) if math.isfinite(given) and given.is_integer() else None
    if isinstance(given, str) and _WHOLE.fullmatch(given):
        try:
            return int(given.strip().partition(".")[0])
        except ValueError:  # more digits than Python converts
            return None
    return int(given) if isinstance(given, int) else None


_ENTRY = msgspec.json.Decoder(Entry)
_OPENING, _CLOSING = b"{}"
_HEADER = msgspec.json.Decoder(UsualHeader)
_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Bytes that usually contain the first entry of a file.
_BEGINNING = 1 << 12


class Chunk(msgspec.Struct, frozen=True):
    """Some lines of a file, in order."""

    entries: list[Entry]
    lines: Sequence[int]
    """The line of each entry, counted from 1."""
    headers: list[Header] = []
    diagnostics: list[Diagnostic] = []
    kept: list[LineRest] = []
    """What lines contain beyond their entries."""


def load_trajectory(path: str, *, salvage: bool = False, thorough: bool = False) -> Chunk:
    """Load the whole file as one chunk, if it is small enough to hold in memory."""
    lines: list[int] = []
    whole = Chunk([], lines, [], [], [])
    for chunk in read_chunks(path, salvage=salvage, thorough=thorough):
        whole.entries.extend(chunk.entries)
        lines.extend(chunk.lines)
        whole.headers.extend(chunk.headers)
        whole.diagnostics.extend(chunk.diagnostics)
        whole.kept.extend(chunk.kept)
    return whole


def read_chunks(
    path: str, *, salvage: bool = False, thorough: bool = False, line_limit: int = LINE_LIMIT
) -> Iterator[Chunk]:
    """Yield the file's entries, many at a time."""
    trace = OpenTrace(path, line_limit)
    try:
        for chunk in _Reading(thorough=thorough).chunks(trace):
            if not salvage:
                for found in chunk.diagnostics:
                    if found.is_problem:
                        at = path if found.line is None else f"{path}:{found.line}"
                        raise TraceError(f"{at}: {found.message}")
            yield chunk
    finally:
        trace.close()


def has_entries(path: str) -> bool:
    """Whether a lenient reading finds an entry; reads no further than the first."""
    for span in ((0, _BEGINNING), None):
        trace = OpenTrace(path, LINE_LIMIT, span)
        try:
            if any(chunk.entries for chunk in _Reading(thorough=False).chunks(trace)):
                return True
        finally:
            trace.close()
    return False


def read_pieces(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Chunk]:
    """Read pieces of a file leniently, each given with the number of its first line."""
    for line, piece in pieces:
        yield from _Reading(thorough=False, line=line).sifted(piece)


class _Reading:
    """The state of reading one file."""

    def __init__(self, *, thorough: bool, line: int = 1) -> None:
        self._thorough = thorough
        self._careful = CarefulReader(thorough=thorough)
        self._line = line

    def chunks(self, trace: OpenTrace) -> Iterator[Chunk]:
        for piece in trace.pieces():
            if isinstance(piece, Oversized):
                yield self._step_over(piece)
            else:
                yield from self.read(piece)
        if noticed := trace.find_changes():
            yield Chunk([], [], diagnostics=noticed)

    def sifted(self, piece: bytes) -> Iterator[Chunk]:
        """Read whole lines that do not come from an open file."""
        for part in sift(piece, 0, len(piece)):
            yield from [self._step_over(part)] if isinstance(part, Oversized) else self.read(part)

    def _step_over(self, line: Oversized) -> Chunk:
        noticed = line.describe(self._line)
        self._line += 1
        return Chunk([], [], diagnostics=[noticed])

    def read(self, piece: bytes) -> Iterator[Chunk]:
        if self._line == 1 and not self._thorough:
            # The usual header is removed first, so that the chunk is not read line by line.
            end = piece.find(b"\n") + 1
            if header := _decode_header(piece[:end]):
                yield Chunk([], [], [header])
                self._careful.headed = True
                self._line, piece = 2, piece[end:]
        if not piece:
            return
        # The fast way first: most files have no problem, and are decoded in one call per piece.
        entries = None if self._thorough else _decode(piece)
        if entries is None:
            yield self._read_slowly(piece)
            return
        first, self._line = self._line, self._line + len(entries)
        yield Chunk(entries, range(first, self._line))

    def _read_slowly(self, piece: bytes) -> Chunk:
        if not piece.strip():
            self._line += piece.count(b"\n")
            return Chunk([], [])
        ended = piece.endswith(b"\n")
        texts = (piece[:-1] if ended else piece).split(b"\n")
        entries: list[Entry] = []
        lines: list[int] = []
        chunk = Chunk(entries, lines, [], [], [])
        for at, text in enumerate(texts, 1):
            found = self._read_line(text, torn=not ended and at == len(texts))
            if found.entry is not None:
                entries.append(found.entry)
                lines.append(self._line)
            if found.header is not None:
                chunk.headers.append(found.header)
            if found.kept is not None:
                chunk.kept.append(found.kept)
            chunk.diagnostics.extend(found.diagnostics)
            self._line += 1
        return chunk

    def _read_line(self, text: bytes, *, torn: bool) -> LineReading:
        if not self._thorough:
            with contextlib.suppress(*_REFUSALS):
                return LineReading(_ENTRY.decode(text))
        return self._careful.read(text, self._line, torn=torn)


def _decode_header(line: bytes) -> Header | None:
    """Decode a header of the usual form; None if the line is something else."""
    if b'"format"' not in line:
        return None
    try:
        header = _HEADER.decode(line)
    except _REFUSALS:
        return None
    return Header(header.version, header.format, header.timestamp)


def _decode(piece: bytes) -> list[Entry] | None:
    """Decode a piece; None unless every line of it is exactly one entry."""
    try:
        entries = _ENTRY.decode_lines(piece)
    except _REFUSALS:
        return None
    return entries if _count_lines(piece) == len(entries) else None


def _count_lines(piece: bytes) -> int | None:
    """Count the lines, if each contains whole objects; None if one is cut or blank.

    The decoder would also accept two objects on one line and one object over two. If every line end
    is between a closing and an opening brace, it is between two objects.
    """
    if not piece.startswith(b"{") or not piece.endswith(b"}\n"):
        return None
    lines, find = 1, piece.find
    at, last = find(b"\n"), len(piece) - 1
    while at < last:
        if piece[at - 1] != _CLOSING or piece[at + 1] != _OPENING:
            return None
        lines += 1
        at = find(b"\n", at + 1)
    return lines


# Some steps


class _Stepped(msgspec.Struct, gc=False):
    """An entry of which only the step is decoded."""

    step: int


class Survey(msgspec.Struct, frozen=True, gc=False):
    """What is known of some lines without a full reading."""

    lines: int
    least: int
    most: int
    is_odd: bool = False
    """Whether only a full reading is conclusive; the steps are then meaningless."""

    def may_hold(self, first: int, last: int) -> bool:
        """Whether an entry of one of these steps may be in the lines."""
        return self.is_odd or (self.least <= last and self.most >= first)


_STEPPED = msgspec.json.Decoder(_Stepped)


def survey_piece(piece: bytes) -> Survey:
    """Survey whole lines, each by itself; the last may lack its end."""
    try:
        # Decoding only the step is several times faster than decoding entries, and exact.
        steps = [each.step for each in map(_STEPPED.decode, io.BytesIO(piece))]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Survey(piece.count(b"\n") + (not piece.endswith(b"\n")), 0, 0, is_odd=True)
    return Survey(len(steps), min(steps), max(steps))


def read_steps(
    path: str, first: int, last: int, *, line_limit: int = LINE_LIMIT
) -> Iterator[Chunk]:
    """Yield the entries of the steps first to last, inclusive; reading is lenient.

    Every line is decoded, but only for its step: steps may be in any order, keys may be written
    with escapes, the last of two equal keys counts. A piece of the file is read in full if it may
    contain one of the steps, or if that decoder is not conclusive: a line without a step, a step
    written as 3.0 or "3", a line that is not an object, an object over several lines. Diagnostics
    are reported only for lines that were read in full.
    """
    trace, line = OpenTrace(path, line_limit), 1
    try:
        for piece in trace.pieces():
            if isinstance(piece, Oversized):
                yield Chunk([], [], diagnostics=[piece.describe(line)])
                line += 1
                continue
            survey = survey_piece(piece)
            if survey.may_hold(first, last):
                for chunk in read_pieces([(line, piece)]):
                    yield narrow(chunk, first, last)
            line += survey.lines
    finally:
        trace.close()


def narrow(chunk: Chunk, first: int, last: int) -> Chunk:
    """Keep the entries of these steps, and the diagnostics about them or about no step."""
    both = list(zip(chunk.entries, chunk.lines, strict=True))
    kept = [each for each in both if first <= each[0].step <= last]
    others = {line for entry, line in both if not first <= entry.step <= last}
    return Chunk(
        [entry for entry, _ in kept],
        [line for _, line in kept],
        [],
        [found for found in chunk.diagnostics if found.line not in others],
    )
