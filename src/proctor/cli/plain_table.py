"""Prints tables without importing rich, which is slow: lists must be fast.

On a terminal, the widest columns are cut until a row fits; cut texts end in `…`. Without a
terminal, nothing is cut.
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
    return draw_table(
        headings,
        rows,
        right=[heading in right for heading in headings],
        dear=[heading in dear for heading in headings],
        room=terminal_width(),
    )
