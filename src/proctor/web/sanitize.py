"""Make untrusted text safe to display: escape invisible characters, shorten and fold long text.

`visible` escapes control characters, and those that reverse or hide parts of the text; the template
engine escapes it for HTML afterwards. `make_plain` also removes terminal colours and embedded
images, for texts of traces.
"""

import re
from typing import Final

import msgspec

from proctor.sentence import without_data

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


# Control characters, characters that reverse or hide text, and lone surrogates.
_UNSEEN = re.compile(
    "[^\n\t\x20-\x7e\xa0-\U0010ffff]"
    "|[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Escape invisible characters as Python does."""
    return _UNSEEN.sub(_spell, text.replace("\r\n", "\n"))


def shorten(value: object, longest: int = 2000) -> str:
    """Format a value as visible text; if shortened, say by how much."""
    text = str(value)
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}… ({len(text) - longest:,} more characters)"


def _spell(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
