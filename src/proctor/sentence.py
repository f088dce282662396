"""Pieces of the sentences that people read, said the same way everywhere."""

import json

_SHOWN = 60


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things: 1 entry, 2 entries."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def reason_of(error: OSError | ValueError) -> str:
    """Why a file could not be opened or read: the system's words, or Python's for a bad name."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def shown(value: object) -> str:
    """The beginning of a JSON value."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def printable(text: str) -> str:
    """Text with its control characters spelled out: what is hostile is never sent to a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in text)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
