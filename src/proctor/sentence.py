"""Helpers for messages: counts, reasons and quoted values, formatted the same everywhere."""

import json

# Characters of a value that a message quotes.
_SHOWN = 60


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: 1 entry, 2 entries."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def render_errored(number: int) -> str:
    """Format how many trials raised an exception; it overlaps with how many were scored."""
    return f"{number:,} errored (scored or not)" if number else "0 errored"


def reason_of(error: OSError | ValueError) -> str:
    """Say why a file could not be opened or read; a ValueError comes from an invalid file name."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def shown(value: object) -> str:
    """Format a JSON value for a message, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def printable(text: str) -> str:
    """Escape control characters: untrusted text must not reach a terminal raw."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in text)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
