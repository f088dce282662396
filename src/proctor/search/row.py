"""A search result: one entry of a trace, or another text of a trial or of the log."""

import re

import msgspec

LONGEST = 1 << 20
"""Most characters of one row that are indexed and stored; the rest cannot be found."""
CHANGE = "change"
"""The role of rows with paths that an agent changed."""
_UNFIT = re.compile("[\x00\ud800-\udfff]")


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
    """Text as the index stores it: shortened, and without what SQLite and UTF-8 cannot store."""
    return _UNFIT.sub("�", text[:LONGEST])
