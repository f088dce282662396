"""Read entries of a trace, a piece of the file for each run of them, and make them rows of a page.

A row has a head, texts and media. All texts are made safe here.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import ChangedTraceError
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.entry import Entry, Object
from proctor.traces.labels import list_thoughts
from proctor.traces.tool_errors import find_error
from proctor.traces.trajectory import Chunk, read_pieces
from proctor.traces.usage import KEYS, Usages, read_timestamp, seconds_between
from proctor.web.format import show_seconds
from proctor.web.sanitize import Folded, fold, make_plain
from proctor.web.traces.index import Labels, TraceIndex
from proctor.web.traces.lines import Lines

# Characters after which no more rows are returned; the client requests the rest.
_ENOUGH: Final = 3_000_000
_MOST_NOTES: Final = 20
# Entries among which the beginning of a trace is searched.
_FIRST_ENTRIES: Final = 20

type _NumberedEntry = tuple[int, Entry, list[str]]
_NAME: Final = 120
_MOST_MEDIA: Final = 50
_ROOTS: Final = ("/logs/artifacts/", "/workspace/", "/")
_FOLDERS: Final = ("artifacts/", "agent/artifacts/", "agent/", "")
_HOUSEKEEPING: Final = {"document", "tool_call_id", "reasoning_content"}
_ADDRESSES: Final = ("data:", "http:", "https:")


class Text(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text of an entry."""

    kind: str
    """said, thought, command, output, error or data."""
    folded: Folded
    label: str = ""
    """What the text is, if that is not obvious."""


class Medium(msgspec.Struct, frozen=True):
    """A picture, sound or video."""

    name: str
    href: str | None
    """Its address; null if the trial has no such file."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry."""

    row: int
    """Its number in the trace, from 0."""
    step: int
    role: str
    is_first: bool = False
    """Whether it is the first entry of its step."""
    tool: str = ""
    exit_code: int | None = None
    milliseconds: int | None = None
    time: str = ""
    after: str = ""
    """Time since the first entry of the trace; "" if it is unknown."""
    tokens: str = ""
    call_type: str = ""
    error: str = ""
    """Why it counts as an error; "" if it does not."""
    label: tuple[str, str, float] | None = None
    """Purpose of its turn, the cue that decided it, and the confidence; on the first entry of a
    step.
    """
    texts: tuple[Text, ...] = ()
    media: tuple[Medium, ...] = ()
    notes: tuple[str, ...] = ()
    """Problems with its line, or with those before it."""


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """How the entries of one trial are shown."""

    base: str
    """The address of the trial."""
    has_file: Callable[[str], bool]
    start: str | None = None
    """The first timestamp of the trace; times are shown relative to it."""
    longest: int | None = None
    """Characters of a text shown in full; null: long ones are folded."""


def read_beginning(lines: Lines, count: int, showing: Showing) -> list[Row]:
    """Read the first entries of a trace that is not indexed yet."""
    found: list[Row] = []
    before: int | None = None
    for span, piece in lines.pieces():
        if isinstance(piece, Diagnostic):
            continue
        chunks = read_pieces([(span.line, piece)])
        for number, entry, notes in _number_entries(chunks, len(found)):
            row = make_row(entry, number, showing, notes=notes)
            found.append(msgspec.structs.replace(row, is_first=row.step != before))
            before = row.step
            if len(found) >= count:
                return found
    return found


def find_start(lines: Lines) -> str | None:
    """The first timestamp among the first entries of a trace."""
    looked = 0
    for span, piece in lines.pieces():
        if isinstance(piece, Diagnostic):
            continue
        for _, entry, _ in _number_entries(read_pieces([(span.line, piece)]), 0):
            if entry.timestamp and read_timestamp(entry.timestamp):
                return entry.timestamp
            looked += 1
            if looked >= _FIRST_ENTRIES:
                return None
    return None


def read_rows(
    lines: Lines,
    index: TraceIndex,
    wanted: Sequence[int],
    showing: Showing,
    labels: Labels | None = None,
    enough: int = _ENOUGH,
) -> list[Row]:
    """Read the entries with these ascending numbers, up to `enough` characters."""
    found: list[Row] = []
    size = 0
    for number, entry, notes in _read(lines, index, wanted):
        row = make_row(entry, number, showing, notes=notes)
        is_first = index.is_first(number)
        label = labels.find(index.steps[number]) if labels is not None and is_first else None
        found.append(msgspec.structs.replace(row, is_first=is_first, label=label))
        size += sum(len(text.folded.text) + len(text.folded.end) for text in row.texts)
        if size > enough:
            break
    return found


def read_some(lines: Lines, index: TraceIndex, wanted: Sequence[int]) -> Iterator[Entry]:
    """Read the entries with these ascending numbers, unconverted."""
    return (entry for _, entry, _ in _read(lines, index, wanted))


def _read(lines: Lines, index: TraceIndex, wanted: Sequence[int]) -> Iterator[_NumberedEntry]:
    left = deque(wanted)
    while left:
        span, first = next(iter(index.spans(left[0], 1)))
        chunks = list(read_pieces([(span.line, lines.read(span))]))
        last = first + sum(len(chunk.entries) for chunk in chunks)
        if not first <= left[0] < last:
            raise ChangedTraceError("the trace is being written; load the page again")
        for each in _number_entries(chunks, first):
            if left and each[0] == left[0]:
                left.popleft()
                yield each


def _number_entries(chunks: Iterable[Chunk], number: int) -> Iterator[_NumberedEntry]:
    """Entries with their numbers, and the problems up to the line of each."""
    for chunk in chunks:
        noticed = deque(each for each in chunk.diagnostics if each.is_problem)
        for entry, line in zip(chunk.entries, chunk.lines, strict=True):
            notes: list[str] = []
            while noticed and (noticed[0].line or 0) <= line:
                notes.append(str(noticed.popleft()))
            if len(notes) > _MOST_NOTES:
                notes[_MOST_NOTES:] = [f"… {len(notes) - _MOST_NOTES:,} more lines like these"]
            yield number, entry, notes
            number += 1


def make_row(entry: Entry, number: int, showing: Showing, *, notes: Sequence[str] = ()) -> Row:
    """Convert an entry for display."""
    found = find_error(entry) if entry.role == "tool_result" else None
    gap = seconds_between(showing.start, entry.timestamp)
    return Row(
        row=number,
        step=min(entry.step, (1 << 53) - 1),
        role=_name(entry.role or "(none)"),
        tool=_name(entry.tool_name or ""),
        exit_code=_within(entry.exit_code),
        milliseconds=_within(entry.duration_ms),
        time=_name(entry.timestamp or ""),
        after="" if gap is None else f"+{show_seconds(gap)}",
        tokens=_count_tokens(entry.metadata or {}),
        call_type=_name(entry.call_type or ""),
        error="" if found is None else found[0],
        texts=tuple(_texts(entry, showing.longest)),
        media=tuple(_media(entry, showing)),
        notes=tuple(make_plain(note) for note in notes),
    )


def _name(text: str) -> str:
    return make_plain(text if len(text) <= _NAME else f"{text[:_NAME]}…").replace("\n", " ")


def _within(number: int | None) -> int | None:
    """Drop numbers that JavaScript cannot represent; only forged traces have them."""
    return number if number is None or abs(number) < 1 << 53 else None


def _count_tokens(metadata: Object) -> str:
    usages = Usages()
    for key in KEYS:
        held = metadata.get(key)
        if isinstance(held, dict):
            usages.add_usage(key, held)
    found = usages.finish()
    counts = [(found.input, "in"), (found.output, "out")]
    return " · ".join(f"{count:,} {way}" for count, way in counts if count is not None)


def _texts(entry: Entry, longest: int | None) -> Iterator[Text]:
    metadata = entry.metadata or {}
    texts: list[tuple[str, str, str | None]] = [
        ("thought", "thinking", "\n".join(list_thoughts(metadata))),
        ("said", "", entry.content),
        ("command", "", entry.command),
        ("output", "", entry.stdout),
        ("error", "stderr", entry.stderr),
    ]
    if entry.stdout is None:
        texts.append(("output", "summary", entry.output_summary))
    texts += [("data", label, text) for label, text in find_data(entry)]
    for kind, label, text in texts:
        if text:
            yield Text(kind, fold(text, longest), label)


def find_data(entry: Entry) -> Iterator[tuple[str, str]]:
    """Other data of an entry, as names and JSON."""
    said = {"command": entry.command}
    for label, held in (
        ("arguments", None if entry.arguments == said else entry.arguments),
        ("metadata", _without_known(entry.metadata or {})),
        ("meta_harness", entry.meta_harness),
    ):
        if held:
            yield label, _json(held)


def _without_known(metadata: Object) -> Object:
    """Metadata that the page does not show elsewhere."""
    left = {key: value for key, value in metadata.items() if key not in ("tokens", "usage")}
    for key in (ATIF_KEY, "conversation"):
        held = left.pop(key, None)
        if isinstance(held, dict):
            hidden = {*_HOUSEKEEPING, "thinking", "usage", "metrics"}
            rest = {name: value for name, value in held.items() if name not in hidden}
            if rest:
                left[key] = rest
    return left


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=1)
    except (ValueError, RecursionError, TypeError):
        return "(nested too deeply to be shown)"


def _media(entry: Entry, showing: Showing) -> Iterator[Medium]:
    for name in (entry.media or ())[:_MOST_MEDIA]:
        if name.startswith(_ADDRESSES) or len(name) > 4096:
            yield Medium(f"{_name(name[:40])} ({len(name):,} characters)", None)
            continue
        path = _find_file(name, showing.has_file)
        href = None if path is None else f"{showing.base}/files/{quote(path)}"
        yield Medium(_name(name), href)


def _find_file(name: str, has_file: Callable[[str], bool]) -> str | None:
    if ".." in name.split("/") or "\0" in name:
        return None
    for root in _ROOTS:
        rest = name.removeprefix(root)
        for folder in _FOLDERS:
            path = f"{folder}{rest}"
            if not rest.startswith("/") and rest and has_file(path):
                return path
    return None
