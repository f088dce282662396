"""Decodes bodies and event streams that others wrote, and notes what could not be understood.

Nothing here raises. A body is a JSON object; what is not one is noted, and read as an empty one.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from proctor.errors import RecordError
from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.json_values import check_values
from proctor.record.cost import Usage
from proctor.sentence import count_of, shown
from proctor.traces.entry import Object
from proctor.traces.lines import Decoding

DONE: Final = "[DONE]"
"""Name of the event that ends a stream of OpenAI's chat completions."""
_BOM: Final = b"\xef\xbb\xbf"
_MOST_NOTES: Final = 5
# Objects of a stream that is a JSON array; more of them are not read.
_MOST_OBJECTS: Final = 100_000


class Notes:
    """Collects what could not be understood."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._left_out = 0

    def add(self, sentence: str) -> None:
        """Add a sentence; a repeated one is counted."""
        if sentence in self._counts or len(self._counts) < _MOST_NOTES:
            self._counts[sentence] = self._counts.get(sentence, 0) + 1
        else:
            self._left_out += 1

    @property
    def problem(self) -> str | None:
        """All notes as one text; None if there are none."""
        notes = [
            sentence if count == 1 else f"{sentence} ({count:,} times)"
            for sentence, count in self._counts.items()
        ]
        if self._left_out:
            notes.append(f"{count_of(self._left_out, 'further problem')}")
        return "; ".join(notes) or None


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    data: bytes
    is_ended: bool
    """False if the stream ends before the blank line that ends an event."""


class Assembled(NamedTuple):
    """What the events of a stream amount to."""

    body: Object
    """The body that the same answer has without streaming, as far as it came."""
    is_complete: bool


class Protocol(NamedTuple):
    """How one protocol is read."""

    read_request: Callable[[Object, str, Notes], ModelRequest]
    read_answer: Callable[[Object, Notes], ModelAnswer]
    assemble: Callable[[Iterator[tuple[str, Object]], Notes], Assembled]


def parse_events(data: bytes) -> Iterator[Event]:
    """Yield the events of a stream; one without data is left out."""
    name, lines = "", list[bytes]()
    for line in data.removeprefix(_BOM).splitlines():
        if not line:
            if lines:
                yield Event(name, b"\n".join(lines), is_ended=True)
            name, lines = "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
    if lines:
        yield Event(name, b"\n".join(lines), is_ended=False)


def read_events(data: bytes, notes: Notes) -> Iterator[tuple[str, Object]]:
    """Yield the events of a stream that are JSON objects, with their names, and DONE."""
    for event in parse_events(data):
        if event.data.strip() == DONE.encode():
            yield DONE, {}
        elif event.is_ended:
            found = decode_object(event.data, notes, "an event")
            if found is not None:
                yield event.name, found
        else:
            # A cut event is no fault of its own: the answer is not complete, and says so.
            found = decode_object(event.data, Notes(), "an event")
            if found is not None:
                yield event.name, found


def read_array(data: bytes, notes: Notes) -> tuple[list[Object], bool]:
    """Return the objects of a JSON array that may be cut off, and whether it is closed."""
    text = data.removeprefix(_BOM).decode(errors="replace")
    decoder, found, at = json.JSONDecoder(strict=False), list[Object](), text.find("[") + 1
    while len(found) < _MOST_OBJECTS:
        while at < len(text) and text[at] in ", \t\r\n":
            at += 1
        if at >= len(text) or text[at] == "]":
            return found, at < len(text)
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, False
        # Decoded a second time by the one decoder that bounds memory and replaces half characters.
        one = decode_object(text[at:end].encode(errors="replace"), notes, "an object of the stream")
        found += [] if one is None else [one]
        at = end
    notes.add(f"the stream has more than {_MOST_OBJECTS:,} objects")
    return found, False


def decode_object(data: bytes, notes: Notes, what: str) -> Object | None:
    """Decode a JSON object; None with a note if it is something else."""
    value = _decode(data, notes, what)
    if value is UNSET or isinstance(value, dict):
        return None if value is UNSET else value
    notes.add(f"{what} is {shown(value)}; expected a JSON object")
    return None


def _decode(data: bytes, notes: Notes, what: str) -> Any:
    try:
        check_values(data)
    except ValueError as error:
        notes.add(f"{what} is not read: {error}")
        return UNSET
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        # Slower, and tolerates wrong encodings, control characters, NaN and half characters.
        decoding = Decoding(1)
        value = decoding.decode(data)
    for diagnostic in decoding.diagnostics:
        notes.add(f"{what}: {diagnostic.message}")
    return value


def object_in(value: Object, *keys: str) -> Object:
    """Return the object under the first of the keys that has one; empty if there is none."""
    return next((found for key in keys if isinstance(found := value.get(key), dict)), {})


def list_in(value: Object, key: str) -> list[Any]:
    """Return the list under a key; empty if there is none."""
    found = value.get(key)
    return found if isinstance(found, list) else []


def text_in(value: Object, *keys: str) -> str | None:
    """Return the text under the first of the keys that has a non-empty one."""
    return next((found for key in keys if isinstance(found := value.get(key), str) and found), None)


def count_in(value: Object, *keys: str) -> int | None:
    """Return the whole number under the first of the keys that has one of 0 or more."""
    found = (value.get(key) for key in keys)
    return next((count for count in found if type(count) is int and count >= 0), None)


def index_in(value: Object, key: str = "index") -> int:
    """Return a position; 0 if there is none."""
    return count_in(value, key) or 0


def find_error(body: Object) -> str | None:
    """Return the message of the error that a body is, or contains."""
    error = body.get("error")
    if isinstance(error, str) and error:
        return error
    if isinstance(error, dict) and error:
        return text_in(error, "message", "type", "status", "code") or shown(error)
    if body.get("type") == "error" or body.get("object") == "error":
        return text_in(body, "message", "code") or "an error without a message"
    return None


def make_usage(notes: Notes, make: Callable[[], Usage]) -> Usage | None:
    """Return the usage, or None with a note if its numbers are impossible."""
    try:
        return make()
    except RecordError as error:
        notes.add(f"usage: {error}")
        return None
