"""Renders blocks for a terminal. Control characters are escaped."""

import textwrap
from collections.abc import Iterable, Iterator

from proctor.report.page.blocks import (
    Bars,
    Block,
    Document,
    Facts,
    Heading,
    Intervals,
    Lines,
    Paragraph,
    Plot,
    Spread,
    Table,
)
from proctor.report.page.columns import GAP, cut_middle, draw_table, place_cell, width_of
from proctor.report.page.figures import render_signed
from proctor.report.page.scale import Scale, make_scale, render_tick, ticks
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


# Plots as characters; other plots are accompanied by a table


_LONGEST_LABEL = 28
_NARROWEST = 24


def draw_plot(plot: Plot, width: int) -> Iterator[str]:
    """A plot as lines; empty for plots that need a picture."""
    match plot:
        case Intervals():
            yield from _draw_intervals(plot, width)
        case Bars():
            yield from _draw_bars(plot, width)
        case _:
            return


def _draw_intervals(plot: Intervals, width: int) -> Iterator[str]:
    labels = [cut_middle(printable(row.label), _LONGEST_LABEL) for row in plot.rows]
    margin = max(map(width_of, labels), default=0) + 2
    room = max(_NARROWEST, min(width, 100) - margin - 2)
    scale = make_scale(plot.least, plot.most, 0, room - 1)
    for label, row in zip(labels, plot.rows, strict=True):
        head = place_cell(label, margin, is_right=False)
        yield f"{head}{_draw_spread(row, scale, room, plot.mark)}".rstrip()
    yield " " * margin + _draw_axis(scale, room)


def _draw_spread(row: Spread, scale: Scale, room: int, mark: float | None) -> str:
    line = [" "] * room
    if mark is not None:
        line[round(scale.place(mark))] = "┊"
    if row.low is not None and row.high is not None:
        low, high = round(scale.place(row.low)), round(scale.place(row.high))
        line[low : high + 1] = "─" * (high - low + 1)
        line[low], line[high] = "├", "┤"
    if row.value is None:
        return "unknown"
    line[round(scale.place(row.value))] = "●"
    return "".join(line)


def _draw_axis(scale: Scale, room: int) -> str:
    line = [" "] * (room + 8)
    for tick in ticks(scale):
        text, at = render_tick(tick), round(scale.place(tick))
        at = max(0, min(at - len(text) // 2, room + 8 - len(text)))
        if all(char == " " for char in line[max(0, at - 1) : at + len(text) + 1]):
            line[at : at + len(text)] = text
    return "".join(line).rstrip()


def _draw_bars(plot: Bars, width: int) -> Iterator[str]:
    shown = plot.rows
    labels = [cut_middle(printable(label), _LONGEST_LABEL) for label, _ in shown]
    margin = max(map(width_of, labels), default=0) + 2
    most = max((abs(value) for _, value in shown), default=0) or 1
    half = max(8, (min(width, 90) - margin - 9) // 2)
    for label, (_, value) in zip(labels, shown, strict=True):
        filled = round(abs(value) / most * half)
        left = "█" * filled if value < 0 else ""
        right = "█" * filled if value > 0 else ""
        head = place_cell(label, margin, is_right=False)
        yield f"{head}{left:>{half}}┊{right:<{half}} {render_signed(value)}".rstrip()
