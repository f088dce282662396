"""JSON as Prime writes it, read with all that Python's reader lets through.

nan, infinite numbers and halves of characters are seen later, where they refuse one sample and not
a whole page.
"""

import json
import math
from typing import Any

from proctor.errors import PrimeError
from proctor.trajectory.entry import Object

_LONGEST_INT = 400
"""Digits; no number of Prime's has so many, and Python takes long over far more."""


def parse_json(data: bytes | str, where: str) -> Any:
    """What a JSON text holds.

    Raises:
        PrimeError: it is no JSON, or nested beyond all reason.
    """
    try:
        return json.loads(data, parse_int=_parse_int)
    except RecursionError as error:
        raise PrimeError(f"{where}: nested too deeply to be read") from error
    except ValueError as error:
        raise PrimeError(f"{where}: no JSON: {error}") from error


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= _LONGEST_INT else math.inf


def find_object(value: object) -> Object | None:
    """An object, given as one or as the JSON text of one; None where it is neither."""
    if isinstance(value, str):
        try:
            value = parse_json(value, "")
        except PrimeError:
            return None
    return value if isinstance(value, dict) else None


def find_number(value: object) -> float | None:
    """A finite number; None where it is anything else, true among that."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def find_text(*values: object) -> str | None:
    """The first of some values that is text and not blank."""
    return next((each for each in values if isinstance(each, str) and each.strip()), None)


def whole_text(text: str) -> str:
    """Text without halves of characters, which no file of text can hold."""
    return text.encode("utf-8", "replace").decode()
