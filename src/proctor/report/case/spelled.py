"""JSON values that keep their original bytes, so that 1 and 1.0 stay different.

Missing keys read as null; invalid content never raises.
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
"""Characters shown of a fact, at most."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """One value in a JSON text."""

    raw: bytes = b"null"

    def at(self, *keys: str) -> "Spelled":
        """The value at a path of keys; null if missing."""
        found = self.raw
        for key in keys:
            members = _decode(_OBJECT, found)
            found = bytes(members.get(key, b"null")) if members is not None else b"null"
        return Spelled(found)

    @property
    def items(self) -> Iterator["Spelled"]:
        """The items of a list; empty if it is not a list."""
        items = _decode(_LIST, self.raw)
        return (Spelled(bytes(item)) for item in items or ())

    @property
    def string(self) -> str | None:
        """The value of a string; None if it is not a string."""
        return _decode(_STRING, self.raw)

    @property
    def is_nothing(self) -> bool:
        """Whether it is missing or null."""
        return self.raw == b"null"

    def say(self) -> str:
        """The value for people: a string, or JSON with its original spelling."""
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
    """A text on one line, shortened exactly as the page's script does."""
    line = _HALF.sub("\ufffd", _SPACE.sub(" ", text).strip(" "))
    return line if len(line) <= longest else f"{line[:longest]}…"
