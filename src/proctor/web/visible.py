"""Make untrusted text visible: escape control characters, and shorten long text with a note.

The template engine escapes it for HTML afterwards; that alone would not stop characters that
reverse or hide parts of the text.
"""

import re

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
