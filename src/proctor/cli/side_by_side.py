"""Two texts for people: beside one another where there is room, else one below the other."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from proctor.cli.trace_text import break_line, columns_of

_ROOM = 120
"""Columns from which on two texts stand beside one another."""
_GAP = " | "
_INDENT = "  "

type Titled = tuple[str, Sequence[str]]
"""What a text is called, and its lines."""


def render_beside(left: Titled, right: Titled, columns: int) -> Iterator[str]:
    """Lines of both, none wider than the screen."""
    if columns < _ROOM:
        for title, lines in (left, right):
            yield f"{_INDENT}{title}:"
            room = max(columns - 2 * len(_INDENT), 1)
            yield from (2 * _INDENT + piece for line in lines for piece in break_line(line, room))
        return
    room = (columns - len(_INDENT) - len(_GAP)) // 2
    both = [
        [piece for line in [f"{title}:", *lines] for piece in break_line(line, room)]
        for title, lines in (left, right)
    ]
    for mine, theirs in zip_longest(*both, fillvalue=""):
        blanks = " " * (room - columns_of(mine))
        yield f"{_INDENT}{mine}{blanks}{_GAP}{theirs}".rstrip()
