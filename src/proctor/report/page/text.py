"""Renders blocks for a terminal. Control characters are escaped."""

import textwrap
from collections.abc import Iterable, Iterator

from proctor.report.page.blocks import (
    Block,
    Document,
    Facts,
    Heading,
    Lines,
    Paragraph,
    Table,
)
from proctor.report.page.columns import GAP, draw_table, place_cell, width_of
from proctor.report.page.drawn import draw_plot
from proctor.sentence import printable

WIDE = 120
"""Columns from which on nothing is left out."""
_PLAIN_WIDTH = 100
_LONGEST_LABEL = 30
# The level of headings within a section.
_LOWER = 3


def render_text(document: Document, width: int | None) -> Iterator[str]:
    """Render a document in `width` columns; None: tables are not cut."""
    title = list(_wrap(document.title, width or _PLAIN_WIDTH, ""))
    yield from title
    yield "=" * max(map(width_of, title), default=0)
    for block in document.blocks:
        lines = list(_render(block, width))
        yield from ["", *lines] if lines else []


def _render(block: Block, width: int | None) -> Iterator[str]:
    room = width or _PLAIN_WIDTH
    match block:
        case Heading():
            yield printable(block.text)
            yield ("-" if block.level < _LOWER else "~") * min(width_of(block.text), room)
        case Paragraph():
            yield from _wrap(block.text, room, "! " if block.tone in ("bad", "warn") else "")
        case Facts():
            yield from _render_facts(block, room)
        case Table():
            yield from _render_table(block, width)
        case Lines():
            yield from ([printable(block.summary)] if block.summary else [])
            yield from (f"  {printable(line)}".rstrip() for line in block.lines)
        case _:
            if drawn := list(draw_plot(block, room)):
                yield printable(block.title)
                yield from drawn


def _wrap(text: str, room: int, mark: str) -> Iterable[str]:
    return textwrap.wrap(
        printable(text),
        room,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_on_hyphens=False,
    )


def _render_facts(facts: Facts, room: int) -> Iterator[str]:
    longest = max((width_of(label) for label, _ in facts.rows), default=0)
    margin = min(longest, _LONGEST_LABEL) + GAP
    for label, text in facts.rows:
        lines = [
            piece
            for line in text.split("\n")
            for piece in textwrap.wrap(
                printable(line), max(room - margin, 20), break_on_hyphens=False
            )
            or [""]
        ]
        for at, line in enumerate(lines):
            head = place_cell(printable(label) if at == 0 else "", margin - GAP, is_right=False)
            yield f"{head}{' ' * GAP}{line}".rstrip()


def _render_table(table: Table, width: int | None) -> Iterator[str]:
    is_narrow = width is not None and width < WIDE
    kept = [at for at, column in enumerate(table.columns) if not (is_narrow and column.is_extra)]
    columns = [table.columns[at] for at in kept]
    yield from draw_table(
        [column.name for column in columns],
        ([row[at].text.replace("\n", " ") for at in kept] for row in table.rows),
        right=[column.is_number for column in columns],
        dear=[column.is_dear or column.is_number for column in columns],
        room=width,
    )
