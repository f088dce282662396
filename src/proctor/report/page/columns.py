"""Tables of text. The widest columns are cut or wrapped first to fit a terminal.

Cut cells end in `…`.
"""

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from proctor.sentence import printable

GAP = 2
_NARROWEST = 8


def draw_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[bool] = (),
    dear: Sequence[bool] = (),
    fold: Sequence[bool] = (),
    room: int | None = None,
) -> list[str]:
    """The lines of a table, headings first; `right` columns are numbers, `dear` ones are cut last.

    Cells of `fold` columns are wrapped instead of cut. Without a `room` to fit into, nothing is cut
    or wrapped. Control characters in cells are escaped.
    """
    table = [headings, *(tuple(map(printable, row)) for row in rows)]
    columns = list(zip(*table, strict=True))
    widths = [max(map(width_of, column)) for column in columns]
    if room is not None:
        widths = fit_widths(widths, dear or [False] * len(columns), room)
    is_right, is_folded = right or [False] * len(columns), fold or [False] * len(columns)
    lines = []
    for row in table:
        cells = zip(row, widths, is_folded, strict=True)
        parts = [_wrap(cell, width) if folds else [cell] for cell, width, folds in cells]
        for line in zip_longest(*parts, fillvalue=""):
            placed = zip(line, widths, is_right, strict=True)
            shown = [place_cell(cell, width, is_right=number) for cell, width, number in placed]
            lines.append((" " * GAP).join(shown).rstrip())
    return lines


def _wrap(cell: str, width: int) -> list[str]:
    """A cell as lines of at most that width."""
    if width_of(cell) <= width:
        return [cell]
    # A character of another script may take two columns.
    return textwrap.wrap(cell, width if cell.isascii() else max(width // 2, 1))


def fit_widths(widths: Sequence[int], is_dear: Sequence[bool], room: int) -> list[int]:
    """Column widths that together fit into the room, if possible."""
    found, room = list(widths), room - GAP * (len(widths) - 1)
    for cuttable in (False, True):
        places = [at for at, dear in enumerate(is_dear) if dear <= cuttable]
        while sum(found) > room and max((found[at] for at in places), default=0) > _NARROWEST:
            found[max(places, key=lambda at: found[at])] -= 1
    return found


def place_cell(cell: str, width: int, *, is_right: bool) -> str:
    """A cell of exactly that width."""
    if cell.isascii() and len(cell) <= width:
        return cell.rjust(width) if is_right else cell.ljust(width)
    cut = cut_cell(cell, width)
    blank = " " * (width - width_of(cut))
    return blank + cut if is_right else cut + blank


def cut_cell(cell: str, width: int) -> str:
    """A cell of at most that width."""
    if width_of(cell) <= width:
        return cell
    kept = cell[:width]
    while kept and width_of(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def cut_middle(text: str, width: int) -> str:
    """A name of at most that width, with both ends kept: names often differ at the end."""
    if width_of(text) <= width:
        return text
    end = width // 2
    while end and width_of(text[-end:]) > width // 2:
        end -= 1
    return f"{cut_cell(text, width - width_of(text[len(text) - end :]))}{text[len(text) - end :]}"


def width_of(text: str) -> int:
    """The number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
