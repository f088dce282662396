"""Prints tables without importing rich, which is slow: lists must be fast.

On a terminal, the widest columns are cut or wrapped until a row fits; cut texts end in `…`. Without
a terminal, nothing is cut or wrapped.
"""

from collections.abc import Sequence

from proctor.cli.stdout import send
from proctor.cli.width import terminal_width
from proctor.report.page.columns import draw_table


def print_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> None:
    """Print rows; `right` columns are numbers, `dear` ones are cut last, `fold` ones wrapped."""
    send("\n".join(draw_rows(headings, rows, right=right, dear=dear, fold=fold)))


def draw_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    dear: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> list[str]:
    """The rows as lines, headings first."""
    return draw_table(
        headings,
        rows,
        right=[heading in right for heading in headings],
        # What is not wrapped is cut last if anything is wrapped.
        dear=[heading in dear or bool(fold and heading not in fold) for heading in headings],
        fold=[heading in fold for heading in headings],
        room=terminal_width(),
    )
