"""JSON as it is spelled: a value keeps the bytes it stands in, so that 1 and 1.0 stay apart.

What is asked for and is not there is null; nothing here raises for what a text holds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)

_SPACE = re.compile("[\x00-\x20\x7f-\xa0\u2028\u2029\ufeff]+")
_HALF = re.compile("[\ud800-\udfff]")
LONGEST = 600
"""Characters of a fact."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """One value in a JSON text."""

    raw: bytes = b"null"

    def at(self, *keys: str) -> "Spelled":
        """The value under a key, or under a path of keys; null where there is none."""
        found = self.raw
        for key in keys:
            members = _decode(_OBJECT, found)
            found = bytes(members.get(key, b"null")) if members is not None else b"null"
        return Spelled(found)

    @property
    def items(self) -> Iterator["Spelled"]:
        """The items of a list; none where it is no list."""
        items = _decode(_LIST, self.raw)
        return (Spelled(bytes(item)) for item in items or ())

    @property
    def string(self) -> str | None:
        """The text of a string; None where it is none."""
        return _decode(_STRING, self.raw)

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing: no such key, or null."""
        return self.raw == b"null"

    def say(self) -> str:
        """The value as people read it: a text, or JSON as it is spelled."""
        if self.is_nothing:
            return "none"
        text = self.string
        return on_one_line(self.raw.decode() if text is None else text) or "empty"


def _decode[T](decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def on_one_line(text: str, longest: int = LONGEST) -> str:
    """A text on one line, cut; the page's script does the same, character for character."""
    line = _HALF.sub("\ufffd", _SPACE.sub(" ", text).strip(" "))
    return line if len(line) <= longest else f"{line[:longest]}…"
