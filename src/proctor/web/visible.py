"""Text from runs, made fit to be seen: control characters are shown, and what is long is cut aloud.

The template engine escapes it for HTML afterwards; that alone would let a stranger turn the text
around or hide a part of it.
"""

import re

# Control characters, marks that turn text around or hide it, and what is no character at all.
_UNSEEN = re.compile(
    "[^\n\t\x20-\x7e\xa0-\U0010ffff]"
    "|[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with what nobody would see spelled out, as Python spells it."""
    return _UNSEEN.sub(_spell, text.replace("\r\n", "\n"))


def shorten(value: object, longest: int = 2000) -> str:
    """A value as visible text; where it is longer, it says how much more there is."""
    text = str(value)
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}… ({len(text) - longest:,} more characters)"


def _spell(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
