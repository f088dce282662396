"""Rows under headings, drawn without loading what draws handsome tables: a list must come fast.

On a terminal the widest columns give way until a row fits; a text that is cut ends in `…`. Where
nobody looks, nothing is cut.
"""

import os
import shutil
from collections.abc import Sequence

from proctor.cli.printable import printable
from proctor.cli.stdout import send
from proctor.report.page.columns import GAP, fit_widths, place_cell, width_of


def print_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
) -> None:
    """Rows under headings; columns named in `right` are numbers, those in `dear` are cut last."""
    send("\n".join(draw_rows(headings, rows, right=right, dear=dear)))


def draw_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
) -> list[str]:
    """The same as lines, the headings first."""
    cells = zip(*rows, strict=True) if rows else [()] * len(headings)
    columns = [[head, *map(printable, below)] for head, below in zip(headings, cells, strict=True)]
    widths = [max(map(width_of, column)) for column in columns]
    widths = _fit(widths, [heading in dear for heading in headings])
    placed = [
        [place_cell(cell, width, is_right=heading in right) for cell in column]
        for heading, column, width in zip(headings, columns, widths, strict=True)
    ]
    return [(" " * GAP).join(row).rstrip() for row in zip(*placed, strict=True)]


def _fit(widths: list[int], is_dear: list[bool]) -> list[int]:
    """As wide as the terminal, where one is there."""
    given = os.environ.get("COLUMNS", "")
    if not os.isatty(1) and not given.isdigit():
        return widths
    return fit_widths(widths, is_dear, shutil.get_terminal_size().columns)
