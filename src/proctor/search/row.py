"""A search result: one entry of a trace, or another text of a trial or of the log.

Does not read files.
"""

import re

import msgspec

LONGEST = 1 << 20
"""Most characters of one row that are indexed and stored; the rest cannot be found."""
LARGEST_NUMBER = (1 << 53) - 1
"""Larger steps and exit codes, which no real trace has, are reduced to it."""

CHANGE = "change"
"""The role of rows with paths that an agent changed."""
_UNFIT = re.compile("[\x00\ud800-\udfff\ue000-\ue00f]")


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One text that can be found."""

    role: str
    """The role in the trace; else instruction, answer, exception, verifier, change, review or
    note."""
    text: str
    """The text that is searched."""
    step: int | None = None
    """The turn of the trace; null for other texts."""
    tool: str | None = None
    exit_code: int | None = None
    """The exit code of a result; for a call, that of its result."""
    part: str = ""
    """The step of a multi-step trial; "" for the trial itself."""


def is_change(row: Row) -> bool:
    """Whether a row has the paths that an agent changed; a trace may use the same role."""
    return row.role == CHANGE and row.step is None


def clean_text(text: str) -> str:
    """Text as the index stores it: shortened, and without the private characters of tags.

    Lone surrogates cannot be stored at all; the private characters mark tags.
    """
    text = text[:LONGEST]
    if text.isascii() and "\0" not in text:
        return text
    return _UNFIT.sub("�", text)


def clamp(number: int | None) -> int | None:
    """Limit a number to what the index can store."""
    if number is None or -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
        return number
    return max(-LARGEST_NUMBER, min(number, LARGEST_NUMBER))
