"""JSON with one spelling: sorted keys, no blanks, UTF-8, NFC text, whole numbers only.

It exists to be hashed, so what has two spellings is refused: floats, a key given twice, text that
is not NFC. It knows no schema; `parse_object` and its siblings help those who do.
"""

import json
import unicodedata
from collections.abc import Sequence
from typing import NoReturn

from proctor.digest import sha256_hex
from proctor.errors import ScoreRecordError
from proctor.json_values import check_values

type Json = str | int | list[Json] | dict[str, Json] | None
"""What a canonical document may hold; a bool is an int here, as in Python."""


def parse_json(data: bytes) -> object:
    """A document in any spelling that means one thing.

    Raises:
        ScoreRecordError: not UTF-8, not JSON, a number that is not whole, or a key given twice.
    """
    try:
        check_values(data)
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except RecursionError as error:
        raise ScoreRecordError("the document is nested too deeply to be read") from error
    except ValueError as error:
        raise ScoreRecordError(f"the document is not JSON in UTF-8: {error}") from error


def render_canonical(value: Json) -> bytes:
    """The one spelling of a document.

    Raises:
        ScoreRecordError: a text in it is not NFC, so another spelling would look the same.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if not unicodedata.is_normalized("NFC", text):
        raise ScoreRecordError("the document holds text that is not NFC; expected NFC throughout")
    return text.encode("utf-8")


def canonical_digest(value: Json) -> str:
    """SHA-256 of the one spelling."""
    return sha256_hex(render_canonical(value))


def parse_object(value: object, where: str, fields: Sequence[str]) -> dict[str, object]:
    """An object with exactly these fields."""
    if not isinstance(value, dict):
        raise ScoreRecordError(f"{where} is {value!r}; expected an object")
    for field in fields:
        if field not in value:
            raise ScoreRecordError(f"{where} has no {field}")
    for field in value:
        if field not in fields:
            raise ScoreRecordError(f"{where} has a field {field!r}; expected {', '.join(fields)}")
    return value


def parse_list(value: object, where: str) -> list[object]:
    """A list with something in it."""
    if not isinstance(value, list) or not value:
        raise ScoreRecordError(f"{where} is {value!r}; expected a list that is not empty")
    return value


def parse_count(value: object, where: str, *, least: int = 0) -> int:
    """A whole number, not below the least."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ScoreRecordError(f"{where} is {value!r}; expected a whole number, {least} or more")
    return value


def parse_text(value: object, where: str) -> str:
    """A text, whatever is in it."""
    if not isinstance(value, str):
        raise ScoreRecordError(f"{where} is {value!r}; expected a text")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ScoreRecordError(f"the key {twice!r} is given twice in one object")
    return result


def _refuse_number(text: str) -> NoReturn:
    raise ScoreRecordError(f"the document holds the number {text}; expected whole numbers only")
