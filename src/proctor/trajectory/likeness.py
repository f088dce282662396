"""How much of a script comes back in an agent's commands, part by part. It judges nobody.

A part is a line, or what stands between `;`, `&&` and `||` on one: commands that are joined say the
same as those below each other. It is compared without its blanks, quotes, backslashes and comments,
so that `echo  'a'` and `echo "a"` are one. Blank lines, comments, `#!` and `set -e` count for
nothing. The share is that of the script's characters, each different part once: a long one says
more than `cd /app`.

A script is only compared when it is long enough that two people would not write it alike: three
different parts and eighty characters at least. So is a sequence of commands: three of them and
eighty characters, or two hundred.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

LEAST_PARTS = 3
LEAST_CHARACTERS = 80
CLOSE = 0.8
"""The share from which on commands are close to a script."""
_SEQUENCE_COMMANDS = 3
_SEQUENCE_CHARACTERS = 200

_DROPPED = re.compile(r"""[\s'"`\\]+""")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_JOINTS = re.compile(r";|&&|\|\|")
_OPTIONS = re.compile(r"set\s+[-+][a-zA-Z]+(\s+[a-z]+)?$")


class Likeness(msgspec.Struct, frozen=True):
    """How much of a script comes back."""

    share: float
    """Of the script's characters, 0 to 1."""
    parts: int
    """Different parts of the script that come back."""
    of: int
    """Different parts of the script."""

    @property
    def is_close(self) -> bool:
        """Whether it is worth a look."""
        return self.share >= CLOSE

    def __str__(self) -> str:
        return f"{self.parts} of {self.of} parts, {self.share:.0%} of the text"


def find_likeness(commands: Iterable[str], script: str) -> Likeness | None:
    """How much of a script comes back in commands; None for a script too short to say."""
    wanted = set(_parts_of(script))
    n_characters = sum(map(len, wanted))
    if len(wanted) < LEAST_PARTS or n_characters < LEAST_CHARACTERS:
        return None
    given = {part for command in commands for part in _parts_of(command)}
    found = wanted & given
    return Likeness(sum(map(len, found)) / n_characters, len(found), len(wanted))


def is_telling(commands: Sequence[str]) -> bool:
    """Whether a sequence of commands is so long that two attempts hardly share it by chance."""
    n_characters = sum(len(_DROPPED.sub("", command)) for command in commands)
    least = LEAST_CHARACTERS if len(commands) >= _SEQUENCE_COMMANDS else _SEQUENCE_CHARACTERS
    return n_characters >= least


def _parts_of(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").split("\n"):
        for part in _JOINTS.split(_COMMENT.sub("", line)):
            plain = part.strip()
            if plain and not _OPTIONS.match(plain):
                yield _DROPPED.sub("", plain)
