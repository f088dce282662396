"""The JSON of a document, and what in it JSON has no word for. It does not know ATIF.

Python's reader, which harbor uses, takes more than JSON: doubled keys, NaN, numbers that overflow
to infinity, halves of surrogate pairs. None of these can be written again as they were, so each is
a problem here; a salvaging reader goes on with the last of the keys, with null and with U+FFFD.
"""

import codecs
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.trajectory.entry import Object
from proctor.trajectory.loss import at_key, render_summary

BEYOND_HARBOR: Final = frozenset({"duplicate-key", "not-a-json-number", "half-character"})
"""Codes of the problems that harbor's validator does not mind."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


class _Doubled(dict[str, Any]):
    """An object in which some key stood more than once; the last one counts."""

    earlier: tuple[tuple[str, Any], ...] = ()
    """The ones that do not."""


def has_doubled_key(data: bytes) -> bool:
    """Whether valid JSON may have an object with a key twice. True can be wrong, False cannot.

    Reading drops all but the last of such keys, and with each a colon. What is written again then
    has fewer colons; only an escaped colon could make up for it.
    """
    if b"\\u003" in data:
        return True
    again = msgspec.json.encode(msgspec.json.decode(data))
    return again.count(b":") != data.count(b":")


def parse_document(data: bytes, name: str) -> tuple[Object, list[Diagnostic]]:
    """The object a document consists of, repaired where that can be done, and what was repaired.

    Raises:
        TraceError: it is not JSON, not an object, or nested too deeply.
    """
    found: list[Diagnostic] = []
    text = _parse_text(data, found)
    if not text.strip(" \t\r\n"):
        raise TraceError(f"{name}: the file is empty; expected an ATIF document, a JSON object")
    try:
        value = json.loads(text, object_pairs_hook=_pairs)
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}: not JSON at column {error.colno}: {error.msg}"
        raise TraceError(f"{where}; expected an ATIF document, a JSON object") from error
    except RecursionError as error:
        raise TraceError(f"{name}: nested too deeply to be read as an ATIF document") from error
    except ValueError as error:
        # Python refuses whole numbers of more than 4300 digits with a plain ValueError.
        raise TraceError(f"{name}: holds a number of too many digits to be read") from error
    if not isinstance(value, dict):
        what = "an array" if isinstance(value, list) else "a single value"
        raise TraceError(f"{name}: the document is {what}; expected a JSON object")
    found += _repair(value)
    return value, found


def _parse_text(data: bytes, found: list[Diagnostic]) -> str:
    if data.startswith(codecs.BOM_UTF8):
        found.append(
            Diagnostic("byte-order-mark", "the file starts with a byte order mark; expected none")
        )
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {error.start} is not UTF-8; expected UTF-8 text"
        found.append(Diagnostic("invalid-utf-8", message, line))
        return data.decode(errors="replace")


def _pairs(pairs: list[tuple[str, Any]]) -> Object:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    doubled = _Doubled(value)
    last = {key: index for index, (key, _) in enumerate(pairs)}
    doubled.earlier = tuple(pair for index, pair in enumerate(pairs) if last[pair[0]] != index)
    return doubled


def _repair(root: Object) -> Iterator[Diagnostic]:
    # A list and not recursion: a file may be nested deeper than Python calls.
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        container, path = waiting.pop()
        if isinstance(container, _Doubled):
            yield from (_doubled(at_key(path, key), value) for key, value in container.earlier)
        keyed = isinstance(container, dict)
        keys: list[Any] = list(container) if keyed else list(range(len(container)))
        for key in keys:
            where = at_key(path, key) if keyed else f"{path}[{key}]"
            value = container[key]
            if isinstance(value, dict | list):
                waiting.append((value, where))
            elif isinstance(value, float) and not math.isfinite(value):
                container[key] = None
                message = f"{where} is {value}; expected a finite number"
                yield Diagnostic("not-a-json-number", message)
            elif isinstance(value, str) and _SURROGATE.search(value):
                container[key] = _SURROGATE.sub(_REPLACEMENT, value)
                yield _surrogate(where, value)
            if keyed and _SURROGATE.search(key):
                container[_SURROGATE.sub(_REPLACEMENT, key)] = container.pop(key)
                yield _surrogate(f"a key of {path or 'the document'}", key)


def _doubled(path: str, earlier: object) -> Diagnostic:
    message = f"{path} stands twice in one object, first as {render_summary(earlier)}"
    message = f"{message}; expected once. The last one counts"
    return Diagnostic("duplicate-key", _SURROGATE.sub(_REPLACEMENT, message))


def _surrogate(where: str, text: str) -> Diagnostic:
    message = f"{where} is {render_summary(text)}, with half of a surrogate pair; expected text"
    return Diagnostic("half-character", _SURROGATE.sub(_REPLACEMENT, message))
