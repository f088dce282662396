"""Rows under headings, drawn without loading what draws handsome tables: a list must come fast.

On a terminal the widest columns give way until a row fits; a text that is cut ends in `…`. Where
nobody looks, nothing is cut.
"""

import os
import shutil
import unicodedata
from collections.abc import Sequence

from proctor.cli.printable import printable
from proctor.cli.stdout import send

_GAP = 2
_NARROWEST = 8


def print_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
) -> None:
    """Rows under headings; columns named in `right` are numbers, those in `dear` are cut last."""
    cells = zip(*rows, strict=True) if rows else [()] * len(headings)
    columns = [[head, *map(printable, below)] for head, below in zip(headings, cells, strict=True)]
    widths = [max(map(_width, column)) for column in columns]
    widths = _fit(widths, [heading in dear for heading in headings])
    placed = [
        [_place(cell, width, is_right=heading in right) for cell in column]
        for heading, column, width in zip(headings, columns, widths, strict=True)
    ]
    send("\n".join((" " * _GAP).join(row).rstrip() for row in zip(*placed, strict=True)))


def _fit(widths: list[int], is_dear: list[bool]) -> list[int]:
    """As wide as the terminal, where one is there."""
    given = os.environ.get("COLUMNS", "")
    if not os.isatty(1) and not given.isdigit():
        return widths
    room = shutil.get_terminal_size().columns - _GAP * (len(widths) - 1)
    for cuttable in (False, True):
        places = [at for at, dear in enumerate(is_dear) if dear <= cuttable]
        while sum(widths) > room and max((widths[at] for at in places), default=0) > _NARROWEST:
            widths[max(places, key=lambda at: widths[at])] -= 1
    return widths


def _place(cell: str, width: int, *, is_right: bool) -> str:
    if cell.isascii() and len(cell) <= width:
        return cell.rjust(width) if is_right else cell.ljust(width)
    cut = _cut(cell, width)
    blank = " " * (width - _width(cut))
    return blank + cut if is_right else cut + blank


def _cut(cell: str, width: int) -> str:
    if _width(cell) <= width:
        return cell
    kept = cell[:width]
    while kept and _width(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _width(text: str) -> int:
    """Columns that a terminal takes for it."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
