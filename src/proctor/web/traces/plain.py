"""Make text of a trace safe to display, and fold long text.

Terminal colours and embedded images are removed; other control characters are escaped, as are those
that change the direction of writing (see `web.visible`).
"""

import re
from typing import Final

import msgspec

from proctor.sentence import without_data
from proctor.web.visible import visible

FIRST: Final = 2400
"""Characters shown of a folded text's beginning."""
LAST: Final = 800
"""Characters shown of its end."""
_FIRST_LINES, _LAST_LINES = 24, 8
# Text only slightly longer than its folded form is shown in full.
_FEW_LINES, _FEW = _FIRST_LINES + _LAST_LINES + 4, FIRST + LAST + 400

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


class Folded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or both ends of a long one."""

    text: str
    end: str = ""
    """The part after the omission."""
    lines: int = 0
    """Omitted lines; 0 with omitted characters: part of one line."""
    characters: int = 0
    """Omitted characters; 0 if the text is complete."""


def make_plain(text: str) -> str:
    """Return text that is safe to display."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    return visible(without_data(text))


def fold(text: str, longest: int | None = None) -> Folded:
    """Fold a long text to both ends; if `longest` is given, cut it there instead."""
    text = text.removesuffix("\n")
    if longest is not None:
        left = len(text) - longest
        if left <= 0:
            return Folded(make_plain(text))
        head = text[:longest]
        return Folded(make_plain(head), lines=text.count("\n", longest), characters=left)
    total = text.count("\n") + 1
    if total <= _FEW_LINES and len(text) <= _FEW:
        return Folded(make_plain(text))
    head = _cut_head(text)
    end = _cut_end(text[len(head) :])
    between = text[len(head) : len(text) - len(end)]
    return Folded(make_plain(head), make_plain(end), between.count("\n"), len(between))


def _cut_head(text: str) -> str:
    head = "\n".join(text[: FIRST + 1].split("\n", _FIRST_LINES)[:_FIRST_LINES])
    return head[:FIRST]


def _cut_end(text: str) -> str:
    end = "\n".join(text[-LAST - 1 :].rsplit("\n", _LAST_LINES)[-_LAST_LINES:])
    return end[-LAST:]
