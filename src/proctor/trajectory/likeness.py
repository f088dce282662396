"""How much of a script comes back in an agent's commands, line by line. It judges nobody.

A line is compared without its blanks, quotes, backslashes and comments, so that `echo  'a'` and
`echo "a"` are one line. Blank lines, comments, `#!` and `set -e` count for nothing. The share is
that of the script's characters, each different line once: a long line says more than `cd /app`.

A script is only compared when it is long enough that two people would not write it alike: three
different lines and eighty characters at least.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

LEAST_LINES = 3
LEAST_CHARACTERS = 80
CLOSE = 0.8
"""The share from which on commands are close to a script."""
_SEQUENCE_COMMANDS = 3
_SEQUENCE_CHARACTERS = 200

_DROPPED = re.compile(r"""[\s'"`\\]+""")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_OPTIONS = re.compile(r"set\s+[-+][a-zA-Z]+(\s+[a-z]+)?$")


class Likeness(msgspec.Struct, frozen=True):
    """How much of a script comes back."""

    share: float
    """Of the script's characters, 0 to 1."""
    lines: int
    """Different lines of the script that come back."""
    of: int
    """Different lines of the script."""

    @property
    def is_close(self) -> bool:
        """Whether it is worth a look."""
        return self.share >= CLOSE

    def __str__(self) -> str:
        return f"{self.lines} of {self.of} lines, {self.share:.0%} of the text"


def find_likeness(commands: Iterable[str], script: str) -> Likeness | None:
    """How much of a script comes back in commands; None for a script too short to say."""
    wanted = set(_lines_of(script))
    n_characters = sum(map(len, wanted))
    if len(wanted) < LEAST_LINES or n_characters < LEAST_CHARACTERS:
        return None
    given = {line for command in commands for line in _lines_of(command)}
    found = wanted & given
    return Likeness(sum(map(len, found)) / n_characters, len(found), len(wanted))


def is_telling(commands: Sequence[str]) -> bool:
    """Whether a sequence of commands is so long that two attempts hardly share it by chance."""
    n_characters = sum(len(_DROPPED.sub("", command)) for command in commands)
    return len(commands) >= _SEQUENCE_COMMANDS or n_characters >= _SEQUENCE_CHARACTERS


def _lines_of(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").split("\n"):
        plain = _COMMENT.sub("", line).strip()
        if plain and not _OPTIONS.match(plain):
            yield _DROPPED.sub("", plain)
