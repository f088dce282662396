"""Splits Dockerfile instructions into words, and expands quotes and variables.

By Docker's rules, not a shell's: `${X:-d}`, `${X:+d}` and `${X:?m}`, each also without its colon.
The patterns of newer Docker versions, `${X#…}`, `${X%…}` and `${X/…}`, are refused.
"""

import json
import re
from collections.abc import Mapping

from proctor.errors import ImageError

_NAME = re.compile(r"[0-9]+|[@*#?\-$!]|\w+")
_SPACE = " \t\r\n\v\f"


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Split at blanks, except in quotes; quotes and escapes are kept."""
    words: list[str] = []
    word, quote, position = "", "", 0
    while position < len(text):
        char = text[position]
        if char == escape and quote != "'":
            word += text[position : position + 2]
            position += 2
            continue
        position += 1
        if char in _SPACE and not quote:
            words += [word] if word else []
            word = ""
            continue
        word += char
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return [*words, word] if word else words


def parse_list(text: str) -> list[str] | None:
    """Parse the exec form, `["a", "b"]`; None if the text is not one.

    Raises:
        ImageError: the list contains something other than strings.
    """
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ImageError("the list contains something other than strings; expected only strings")
    return found


def expand(
    text: str, variables: Mapping[str, str], escape: str = "\\", *, keep_quotes: bool = False
) -> str:
    """Expand the variables of a word and remove its quotes."""
    return _Word(text, variables, escape, keep_quotes=keep_quotes).expand_to("")


class _Word:
    """A word that is being expanded."""

    def __init__(
        self, text: str, variables: Mapping[str, str], escape: str, *, keep_quotes: bool
    ) -> None:
        self._text = text
        self._variables = variables
        self._escape = escape
        self._keep_quotes = keep_quotes
        self._position = 0

    def expand_to(self, stop: str) -> str:
        """Expand up to and without the character `stop`, or to the end if it is empty."""
        result = ""
        while char := self._next():
            if stop and char == stop:
                return result
            if char == "$":
                result += self._dollar()
            elif char == "'" and not self._keep_quotes:
                result += self._single()
            elif char == '"' and not self._keep_quotes:
                result += self._double()
            elif char == self._escape:
                result += self._next()
            else:
                result += char
        if stop:
            raise ImageError(f"{self._text!r}: `{stop}` is missing")
        return result

    def _next(self) -> str:
        char = self._text[self._position : self._position + 1]
        self._position += len(char)
        return char

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _single(self) -> str:
        end = self._text.find("'", self._position)
        if end < 0:
            raise ImageError(f"{self._text!r}: a single quote is not closed")
        inside = self._text[self._position : end]
        self._position = end + 1
        return inside

    def _double(self) -> str:
        result = ""
        while char := self._next():
            if char == '"':
                return result
            if char == "$":
                result += self._dollar()
            elif char == self._escape and self._peek() in ('"', "$", self._escape):
                result += self._next()
            else:
                result += char
        raise ImageError(f"{self._text!r}: a double quote is not closed")

    def _name(self) -> str:
        found = _NAME.match(self._text, self._position)
        self._position = found.end() if found else self._position
        return found[0] if found else ""

    def _dollar(self) -> str:
        if self._peek() != "{":
            name = self._name()
            return self._variables.get(name, "") if name else "$"
        self._next()
        name, form = self._name(), self._next()
        if not name:
            raise ImageError(f"{self._text!r}: `${{` without a name after it")
        if form == "}":
            return self._variables.get(name, "")
        # With a colon, an empty variable counts as unset.
        with_colon = form == ":"
        form = self._next() if with_colon else form
        if form not in ("-", "+", "?") or not form:
            raise ImageError(
                f"{self._text!r}: `${{{name}{':' if with_colon else ''}{form}` is not supported; "
                "expected ${X}, ${X:-default}, ${X:+other} or ${X:?message}"
            )
        word = self.expand_to("}")
        value = self._variables.get(name)
        return _choose(form, name, word, None if with_colon and not value else value)


def _choose(form: str, name: str, word: str, value: str | None) -> str:
    if form == "+":
        return "" if value is None else word
    if value is not None:
        return value
    if form == "-":
        return word
    raise ImageError(f"{name}: {word or 'is not set, but required'}")
