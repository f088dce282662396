"""Axes of plots: positions of numbers, and ticks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps a range of numbers to a range of positions."""

    least: float
    most: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """The position of a number, limited to the range."""
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return self.start + share * (self.end - self.start)


def make_scale(least: float, most: float, start: float, end: float) -> Scale:
    """A scale that ends at ticks, and never has zero length."""
    if not most > least:
        least, most = least - 0.5, most + 0.5
    step = tick_step(least, most)
    return Scale(math.floor(least / step) * step, math.ceil(most / step) * step, start, end)


def tick_step(least: float, most: float) -> float:
    """The distance between ticks: 1, 2, 2.5 or 5 times a power of ten."""
    raw = (most - least) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in _STEPS if step * power >= raw * 0.999)


def ticks(scale: Scale) -> list[float]:
    """The numbers at the axis."""
    step = tick_step(scale.least, scale.most)
    count = round((scale.most - scale.least) / step)
    return [scale.least + at * step for at in range(count + 1)]


def render_tick(value: float) -> str:
    """Format a number at an axis."""
    return f"{value + 0.0:.6g}" if abs(value) > 1e-12 else "0"


def extent(values: Iterable[float | None]) -> tuple[float, float] | None:
    """The smallest and the largest known value; None if none is known."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return (min(known), max(known)) if known else None
