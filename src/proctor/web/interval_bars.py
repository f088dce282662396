"""A number and its interval as a small drawing: inline SVG, colours by class."""

from dataclasses import dataclass

from markupsafe import Markup

from proctor.report.statistics.intervals import Interval

_WIDTH, _HEIGHT, _MARGIN = 160, 18, 6


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers at both ends of a drawing."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a number is, in the drawing's own units."""
        share = (value - self.low) / (self.high - self.low)
        return round(_MARGIN + share * (_WIDTH - 2 * _MARGIN), 2)


def draw_bar(value: float | None, interval: Interval | None, scale: Scale, label: str) -> Markup:
    """A dot at a number, a line over its interval, and the scale behind; nothing without one."""
    if value is None:
        return Markup()
    middle = _HEIGHT / 2
    whisker = Markup()
    if interval is not None:
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
