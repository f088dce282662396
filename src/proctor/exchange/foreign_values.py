"""Values in JSON of other systems, which may have any type: a number, a text, or nothing.

nan, infinite numbers and lone surrogates pass Python's JSON parser, so that they concern one value
instead of a whole document.
"""

import math

# Digits. No number of a run has as many, and int() takes quadratic time.
_LONGEST_INT = 400


def parse_int(text: str) -> int | float:
    """Parse a whole number of JSON; one of absurd length is infinite."""
    return int(text) if len(text) <= _LONGEST_INT else math.inf


def find_number(value: object) -> float | None:
    """Return a finite number; None for anything else, including booleans."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def find_text(*values: object) -> str | None:
    """Return the first value that is a text and not blank."""
    return next((each for each in values if isinstance(each, str) and each.strip()), None)


def whole_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
