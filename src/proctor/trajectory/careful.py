"""One line of trajectory.jsonl, read slowly: what is wrong with it, and what of it can be kept.

Used where the fast decoder gave up, or where everything is to be known. A line becomes an entry
when it names a step and a role; a value that does not fit its key is taken out of the entry and
kept beside it, like keys that the format does not have and values that a second key of the same
name hides.
"""

import math
import re
from typing import Any, Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.sentence import shown
from proctor.trajectory.decoding import Decoding, some_of
from proctor.trajectory.entry import HEADER_KEYS, KEYS, ROLES, VERSION, Entry, Header, Object

_WHOLE: Final = re.compile(r"\s*[+-]?\d+(_\d+)*(\.0*)?\s*")
_INTEGERS: Final = frozenset({"step", "exit_code", "duration_ms"})
_OBJECTS: Final = frozenset({"arguments", "metadata", "meta_harness"})


class Kept(msgspec.Struct, frozen=True):
    """What a line holds beyond its entry."""

    line: int
    """Counted from 1."""
    beside: Object = {}
    """Keys that are not the format's, and values that do not fit their key."""
    shadowed: tuple[tuple[str, Any], ...] = ()
    """Values that a later key of the same name in the same object hides."""


class Found(msgspec.Struct):
    """What became of one line."""

    entry: Entry | None = None
    header: Header | None = None
    kept: Kept | None = None
    diagnostics: list[Diagnostic] = []


class CarefulReader:
    """Reads the lines of one file, in their order."""

    def __init__(self, *, thorough: bool) -> None:
        self._thorough = thorough
        self._last_step = 0
        self.headed = False
        """Whether a header was met."""

    def read(self, text: bytes, line: int, *, torn: bool = False) -> Found:
        """Read one line, given without its end; `torn` when the file stops before that end."""
        if not text.strip():
            return Found()
        reading = _Line(line)
        value = reading.decode(text, torn=torn)
        found = Found(diagnostics=reading.diagnostics)
        if value is msgspec.UNSET:
            return found
        if torn:
            reading.note("no-line-end", "the last line has no line end")
        if not isinstance(value, dict):
            reading.report("not-an-object", f"{shown(value)}; expected a JSON object")
        elif "version" in value and "format" in value and not {"step", "role"} & value.keys():
            found.header = self._read_header(value, reading)
            more = {key: kept for key, kept in value.items() if key not in HEADER_KEYS}
            if more or reading.shadowed:
                names = some_of(map(shown, more))
                reading.note("header-key", f"the header has {names} as well; kept beside")
                found.kept = Kept(line, more, tuple(reading.shadowed))
        else:
            self._read_entry(value, reading, found)
        if not self._thorough:
            # Nor duplicate keys, which go unseen on all the lines that were not read carefully.
            found.diagnostics = [
                seen
                for seen in found.diagnostics
                if seen.is_problem and seen.code != "duplicate-key"
            ]
        return found

    def _read_header(self, value: Object, reading: "_Line") -> Header:
        # A string "1" counts as another version in the format's own reader too.
        if value["version"] != VERSION or isinstance(value["version"], bool):
            version = shown(value["version"])
            reading.note("other-version", f"the header says version {version}; expected {VERSION}")
        if self.headed:
            reading.note("header-again", "another header; expected one, on the first line")
        elif reading.line > 1:
            reading.note("late-header", "a header below entries; expected it on the first line")
        self.headed = True
        return Header(value["version"], value["format"], value.get("timestamp"))

    def _read_entry(self, value: Object, reading: "_Line", found: Found) -> None:
        fields, beside = reading.sort(value)
        if beside or reading.shadowed:
            found.kept = Kept(reading.line, beside, tuple(reading.shadowed))
        if "step" not in fields or "role" not in fields:
            found.kept = Kept(reading.line, value, tuple(reading.shadowed))
            return
        found.entry = entry = Entry(**fields)
        if entry.role not in ROLES:
            expected = ", ".join(ROLES)
            reading.note("unknown-role", f"role is {shown(entry.role)}; expected {expected}")
        if entry.step < self._last_step:
            message = f"step {entry.step} after step {self._last_step}; expected no way back"
            reading.note("decreasing-step", message)
        self._last_step = entry.step


class _Line(Decoding):
    """One line while its value is sorted into an entry."""

    def sort(self, value: Object) -> tuple[Object, Object]:
        """The fields of an entry, and what stays beside it."""
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
            self.report("unknown-key", f"key {some_of(unknown)}, which the format does not have")
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
    """The whole number a value stands for, as lenient as every generation's own reader is."""
    if isinstance(given, float):
        return int(given) if math.isfinite(given) and given.is_integer() else None
    if isinstance(given, str) and _WHOLE.fullmatch(given):
        try:
            return int(given.strip().partition(".")[0])
        except ValueError:  # more digits than Python converts
            return None
    return int(given) if isinstance(given, int) else None
