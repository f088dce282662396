"""Convert an entry for display: a head, its texts, its media. All texts are made safe here."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.entry import Entry, Object
from proctor.traces.labels import list_thoughts
from proctor.traces.times import seconds_between
from proctor.traces.tokens import KEYS, Usages
from proctor.traces.tool_errors import find_error
from proctor.web.shown import show_seconds
from proctor.web.traces.plain import Folded, fold, make_plain

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
