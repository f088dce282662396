"""Small drawings as inline SVG, coloured by class: a number with its interval, parts of a whole."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from proctor.report.board.numbers import RowNumbers
from proctor.report.statistics.intervals import Interval

_WIDTH, _HEIGHT, _MARGIN = 160, 18, 6


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers at both ends of a drawing."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Position of a number, in the drawing's units."""
        share = (value - self.low) / (self.high - self.low)
        return round(_MARGIN + share * (_WIDTH - 2 * _MARGIN), 2)


def draw_bar(value: float | None, interval: Interval | None, scale: Scale, label: str) -> Markup:
    """Draw a dot at a number and a line over its interval; empty without an interval."""
    if value is None or interval is None:
        return Markup()
    middle = _HEIGHT / 2
    whisker = Markup('<line class="span" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
        scale.place(interval.low), scale.place(interval.high), middle, middle
    )
    return Markup(
        '<svg class="bar" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="{label}">'
        '<line class="axis" x1="{left}" x2="{right}" y1="{middle}" y2="{middle}"/>'
        '{whisker}<circle class="dot" cx="{place}" cy="{middle}" r="3.5"/></svg>'
    ).format(
        width=_WIDTH,
        height=_HEIGHT,
        label=label,
        left=_MARGIN,
        right=_WIDTH - _MARGIN,
        middle=middle,
        whisker=whisker,
        place=scale.place(value),
    )


def find_scale(rows: Iterable[RowNumbers]) -> Scale:
    """From the lowest to the highest end of the intervals, including 0 and 1."""
    values = [0.0, 1.0]
    for row in rows:
        values += [row.score] if row.score is not None else []
        if row.score_interval is not None:
            values += [row.score_interval.low, row.score_interval.high]
    return Scale(min(values), max(values))


def draw_shares(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Draw parts of a whole side by side, each with its colour class; empty without any."""
    total = sum(size for _, size in parts)
    if not total:
        return Markup()
    rects, left = Markup(), 0.0
    for kind, size in parts:
        width = 100 * size / total
        rects += Markup('<rect class="{}" x="{:.3f}%" y="0" width="{:.3f}%" height="10"/>').format(
            kind, left, width
        )
        left += width
    return Markup(
        '<svg class="shares" width="100%" height="10" role="img" aria-label="{}">{}</svg>'
    ).format(label, rects)
