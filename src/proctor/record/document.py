"""Bytes from anywhere to a JSON document that means one thing. It knows no format.

Refused in either temper, because no record can hold them: what is no JSON or no UTF-8, nan and
infinity, numbers and nesting beyond reason, text with lone surrogates, more than 16 MiB. A byte
order mark and a key given twice are problems that a salvaging reader gets over: the mark is
skipped, the last value counts.
"""

import codecs
import json
import stat
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import RecordError
from proctor.files import read_small
from proctor.json_values import check_values
from proctor.record.fields import check_json

LARGEST: Final = 16 << 20
"""Bytes. A record names its files, it does not hold them."""
_LEVELS = 150


class Document(msgspec.Struct, frozen=True):
    """A JSON object and what was noticed about its bytes."""

    tree: dict[str, Any]
    """The object, keys in the order of the file. Nobody else holds it: it may be taken apart."""
    diagnostics: tuple[Diagnostic, ...]


def parse_document(data: bytes, source: str) -> Document:
    """The JSON object that bytes spell.

    Raises:
        RecordError: they spell none, or one that cannot be kept.
    """
    if len(data) > LARGEST:
        raise RecordError(f"{source}: {render_too_large(len(data))}")
    try:
        check_values(data)
    except ValueError as error:
        raise RecordError(f"{source}: holds {error}") from error
    notes: list[Diagnostic] = []
    if data.startswith(codecs.BOM_UTF8):
        notes.append(Diagnostic("byte-order-mark", "begins with a byte order mark; expected {"))
        data = data[len(codecs.BOM_UTF8) :]
    tree = _parse_tree(data, source, notes)
    try:
        check_json(tree, _LEVELS)
    except ValueError as error:
        raise RecordError(f"{source}: {error}") from None
    if not isinstance(tree, dict):
        raise RecordError(f"{source}: a JSON {_KINDS[type(tree)]}; expected an object")
    return Document(tree, tuple(notes))


def render_too_large(size: int) -> str:
    """That this many bytes are no record."""
    return f"{size:,} bytes; expected a record, which has {LARGEST >> 20} MiB at most"


_KINDS = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def _parse_tree(data: bytes, source: str, notes: list[Diagnostic]) -> object:
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            notes.append(_describe_twice(pairs))
        return found

    def refuse(literal: str) -> NoReturn:
        raise RecordError(f"{source}: holds {literal}; expected a finite number")

    try:
        return json.loads(data.decode(), object_pairs_hook=collect, parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise RecordError(f"{source}: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise RecordError(f"{source}: not JSON at {at}: {error.msg}") from error
    except ValueError as error:
        raise RecordError(f"{source}: holds a number of too many digits") from error
    except RecursionError as error:
        raise RecordError(f"{source}: is nested more than {_LEVELS} levels deep") from error


def _describe_twice(pairs: list[tuple[str, Any]]) -> Diagnostic:
    keys = [key for key, _ in pairs]
    twice = next(key for key in keys if keys.count(key) > 1)
    return Diagnostic("duplicate-key", f"has the key {twice!r} twice in one object")


def load_bytes(path: Path) -> bytes:
    """The bytes of a file that is small enough to be a record's.

    Raises:
        RecordError: it cannot be read, is no plain file or too large.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path}: is no plain file; expected a record")
        if status.st_size > LARGEST:
            raise RecordError(f"{path}: {render_too_large(status.st_size)}")
        return read_small(str(path))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
