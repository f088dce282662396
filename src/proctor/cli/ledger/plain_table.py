"""Prints tables without importing rich, which is slow: lists must be fast.

On a terminal, the widest columns are cut until a row fits; cut texts end in `…`. Without a
terminal, nothing is cut.
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
    """Print rows under headings; `right` columns are numbers, `dear` ones are cut last."""
    send("\n".join(draw_rows(headings, rows, right=right, dear=dear)))


def draw_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
) -> list[str]:
    """The rows as lines, headings first."""
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
    """Fit the columns to the terminal, if there is one."""
    given = os.environ.get("COLUMNS", "")
    if not os.isatty(1) and not given.isdigit():
        return widths
    return fit_widths(widths, is_dear, shutil.get_terminal_size().columns)
