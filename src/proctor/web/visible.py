"""Text from runs, made fit to be seen: control characters are shown, and what is long is cut aloud.

The template engine escapes it for HTML afterwards; that alone would let a stranger turn the text
around or hide a part of it.
"""

import re

_CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]")
# Marks that turn text around, hide it, or are no characters at all.
_STRANGE = re.compile(
    "[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff\ud800-\udfff]"
)
_PICTURES = 0x2400
_DELETE = 0x7F


def visible(text: str) -> str:
    """The text with what nobody would see spelled out."""
    return _STRANGE.sub(_spell, _CONTROL.sub(_picture, text.replace("\r\n", "\n")))


def shorten(value: object, longest: int = 2000) -> str:
    """A value as visible text; where it is longer, it says how much more there is."""
    text = str(value)
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}… ({len(text) - longest:,} more characters)"


def _picture(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\u2421" if code == _DELETE else _spell(found)


def _spell(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"
