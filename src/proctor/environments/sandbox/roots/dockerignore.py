"""Which files of a build's directory .dockerignore leaves out, by Docker's rules.

The last pattern that matches a path, or a directory above it, decides; `!` takes a path in again.
"""

import posixpath
import re
from dataclasses import dataclass

from proctor.errors import ImageError


@dataclass(frozen=True, slots=True)
class Ignored:
    """What a .dockerignore leaves out."""

    rules: tuple[tuple[re.Pattern[str], bool], ...] = ()
    """(pattern, whether it leaves out), in order."""

    def __contains__(self, path: str) -> bool:
        parts = path.split("/")
        names = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        is_out = False
        for pattern, leaves_out in self.rules:
            if is_out != leaves_out and any(pattern.fullmatch(name) for name in names):
                is_out = leaves_out
        return is_out

    @property
    def has_exceptions(self) -> bool:
        """Whether something below a directory that is left out may be in."""
        return any(not leaves_out for _, leaves_out in self.rules)


def parse_dockerignore(text: str, where: str) -> Ignored:
    """The rules of a .dockerignore; `where` names it in messages.

    Raises:
        ImageError: names file and line.
    """
    rules = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        leaves_out = not rule.startswith("!")
        rule = rule.removeprefix("!").strip()
        if not rule:
            raise ImageError(f"{where}:{number}: `!` alone; expected a pattern after it")
        cleaned = posixpath.normpath(rule).lstrip("/")
        try:
            rules.append((compile_pattern(cleaned), leaves_out))
        except re.error as error:
            raise ImageError(f"{where}:{number}: {rule!r} is no pattern: {error}") from error
    return Ignored(tuple(rules))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of paths: `*` and `?` stay within a name, `**` does not, `[…]` is a set.

    Raises:
        re.error: a bracket is not closed.
    """
    result, position = "", 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**"):
            skipped = 3 if rest.startswith("**/") else 2
            result += ".*" if position + 2 == len(pattern) else "(?:.*/)?"
        else:
            piece, skipped = _translate(rest)
            result += piece
        position += skipped
    return re.compile(result, re.DOTALL)


def _translate(rest: str) -> tuple[str, int]:
    """The expression for what a pattern begins with, and how much of it that was."""
    char = rest[0]
    if char == "*":
        return "[^/]*", 1
    if char == "?":
        return "[^/]", 1
    if char == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    if char == "[":
        end = rest.find("]", 2)
        if end < 0:
            raise re.error("[ without ]")
        return f"(?!/){rest[: end + 1]}", end + 1
    return re.escape(char), 1
