"""Text of a trace without what a screen would obey, and folded where it is long.

Colours of a terminal are dropped, and so are pictures that stand in the text; every other control
character is spelled out, as is what turns the direction of writing (see `web.visible`).
"""

import re
from typing import Final

import msgspec

from proctor.web.visible import visible

FIRST: Final = 2400
"""Characters of a folded text's beginning."""
LAST: Final = 800
"""Characters of its end."""
_FIRST_LINES, _LAST_LINES = 24, 8
_FEW_LINES, _FEW = _FIRST_LINES + _LAST_LINES + 4, FIRST + LAST + 400
"""What is hardly longer than it would be folded is shown whole."""

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_DATA = re.compile(r"data:([\w.+-]{1,60}/[\w.+-]{1,60})?[^,\s\"']{0,100};base64,[\w+/=-]{64,}")
"""An image or the like that stands in the text itself."""


class Folded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or both ends of a long one."""

    text: str
    end: str = ""
    """What comes after that which is left out."""
    lines: int = 0
    """Lines that are left out; 0 with characters left out: of one line."""
    characters: int = 0
    """Characters that are left out; 0: it is whole."""


def make_plain(text: str) -> str:
    """Text that is safe to show."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if ";base64," in text:
        text = _DATA.sub(
            lambda found: f"[{found[1] or 'data'}, {len(found[0]):,} characters]", text
        )
    return visible(text)


def fold(text: str, longest: int | None = None) -> Folded:
    """Both ends of a long text; of one that is wanted whole, as much as `longest` allows."""
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
