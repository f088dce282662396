"""Plots as characters, for terminals and Markdown. Other plots are accompanied by a table."""

from collections.abc import Iterator

from proctor.report.page.blocks import Bars, Intervals, Plot, Spread
from proctor.report.page.columns import cut_middle, place_cell, width_of
from proctor.report.page.figures import render_signed
from proctor.report.page.scale import Scale, make_scale, render_tick, ticks
from proctor.sentence import printable

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
