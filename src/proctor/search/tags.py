"""Role, tool and exit code as words of the index, and words with signs that it would drop.

The tokenizer splits at everything but letters and digits. A tag is one word that no text can
contain: it begins with a private character, which is removed from texts. C++ and C# get a tag too.
"""

import functools
from collections.abc import Iterator

from proctor.search.row import Row

_TAG = "\ue000"
_SIGN = "\ue001"
_SIGNS = {"++": "pp", "#": "sharp"}
_LONGEST_NAME = 100
_LONGEST_WORD = 30


def role_tag(role: str) -> str:
    """The word for a role."""
    return f"{_TAG}r{_spelled(role)}"


def tool_tag(tool: str) -> str:
    """The word for a tool's name."""
    return f"{_TAG}t{_spelled(tool)}"


def exit_tag(code: int) -> str:
    """The word for an exit code."""
    return f"{_TAG}x{'m' if code < 0 else ''}{abs(code)}"


FAILED = f"{_TAG}xfailed"
"""The word for any exit code but 0."""


@functools.lru_cache(maxsize=10_000)
def _spelled(name: str) -> str:
    """A name as one word, whatever it contains; case is ignored."""
    folded = name[:_LONGEST_NAME].lower()
    if folded.isascii() and folded.isalnum():
        return folded
    return "".join(
        char if char.isascii() and char.isalnum() else f"\ue002{ord(char):x}\ue002"
        for char in folded
    )


def document_of(row: Row) -> bytes:
    """A row as the index stores it, in UTF-8: its text, then its tags.

    Encoded separately, because one tag would make every character of a Python string twice as wide.
    """
    tags = [role_tag(row.role)]
    if row.tool:
        tags.append(tool_tag(row.tool))
    if row.exit_code is not None:
        tags.append(exit_tag(row.exit_code))
        if row.exit_code:
            tags.append(FAILED)
    tags += sign_tags(row.text)
    return b"%b\n%b" % (row.text.encode(), " ".join(tags).encode())


def sign_tags(text: str) -> list[str]:
    """The words that end in a sign in a text, each as a tag."""
    found: dict[str, None] = {}
    for sign, spelled in _SIGNS.items():
        if sign in text:
            for word in _words_before(text, sign):
                found[f"{_SIGN}{word.lower()}{spelled}"] = None
    return list(found)


def _words_before(text: str, sign: str) -> Iterator[str]:
    at = text.find(sign)
    while at >= 0:
        end = at + len(sign)
        begin = at
        while begin > max(0, at - _LONGEST_WORD) and text[begin - 1].isalnum():
            begin -= 1
        if begin < at and not text[end : end + 1].isalnum():
            yield text[begin:at]
        at = text.find(sign, end)
