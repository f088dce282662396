"""The words around a match, found as the index does: by letters and digits, ignoring case.

Accents are ignored, as in the index. If a match is not found after all, the beginning of the text
is shown without a mark.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from proctor.search.row import Row

_BETWEEN = r"[\W_]{1,100}"
_WORD = re.compile(r"[^\W_]+")
_SPACE = re.compile(r"\s+")
# Escape sequences of a terminal, such as colours.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Characters used on each side of the match; white space among them is collapsed.
_MARGIN = 400
_ACCENTED = [*range(0xC0, 0x250), *range(0x1E00, 0x1F00)]


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of a text, on one line."""

    before: str
    match: str
    """"" where the match is not in the text: a role, a tool or an exit code."""
    after: str


@cache
def _make_letters() -> dict[str, str]:
    """For each letter, all characters that the index treats as equal to it."""
    found: dict[str, str] = {}
    for code in _ACCENTED:
        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        if base.isascii() and base.isalpha() and ord(base) != code:
            found[base] = found.get(base, "") + chr(code)
    return found


class Marker:
    """Finds the words of one query in texts."""

    def __init__(self, words: Sequence[tuple[str, bool]]) -> None:
        self._letters = _make_letters()
        patterns = [self._pattern_of(word, is_prefix=is_prefix) for word, is_prefix in words]
        patterns = [pattern for pattern in patterns if pattern]
        self._pattern = re.compile("|".join(patterns), re.IGNORECASE) if patterns else None

    def _pattern_of(self, word: str, *, is_prefix: bool) -> str:
        tokens = [self._spell(token) for token in _WORD.findall(word)]
        signs = re.escape(word[-2:]) if word.endswith("++") else ""
        ending = "" if is_prefix else signs or r"(?![^\W_])"
        return rf"(?<![^\W_]){_BETWEEN.join(tokens)}{ending}" if tokens else ""

    def _spell(self, token: str) -> str:
        plain = [unicodedata.normalize("NFD", char)[0] for char in token]
        marks = "[\u0300-\u036f]*"
        return "".join(
            f"[{char}{self._letters[char.lower()]}]{marks}"
            if char.lower() in self._letters
            else re.escape(char)
            for char in plain
        )

    def cut(self, row: Row, width: int) -> Snippet:
        """As much of a row's text as fits into a width, around the first match."""
        text = row.text
        found = self._pattern.search(text) if self._pattern else None
        if found is None:
            return Snippet("", "", _fit(text[:_MARGIN], width, text))
        match = _squeeze(found[0])[:width]
        before = _squeeze(text[max(0, found.start() - _MARGIN) : found.start()])
        after = _squeeze(text[found.end() : found.end() + _MARGIN])
        # A third of the remaining width goes before the match; one side gets what the other leaves.
        room = max(0, width - len(match))
        ahead = min(len(before), max(room // 3, room - len(after)))
        if len(before) > ahead or found.start() > _MARGIN:
            before = "…" + before[len(before) - max(0, ahead - 1) :] if ahead else ""
        left = max(0, width - len(before) - len(match))
        if len(after) > left:
            after = after[: left - 1] + "…" if left else ""
        return Snippet(before.lstrip(), match, after.rstrip())


def _squeeze(text: str) -> str:
    """Text on one line, without colours and other control characters, which have no width."""
    line = _SPACE.sub(" ", _SEQUENCE.sub("", text))
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else "·" for char in line)


def _fit(text: str, width: int, whole: str) -> str:
    line = _squeeze(text).strip()
    if len(line) <= width and len(text) == len(whole):
        return line
    return line[: width - 1] + "…"
