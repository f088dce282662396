"""One line of the table: our figure, the other's, their ratio, and the bar it must clear."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; with its fields in this order an object of build/bench.json."""

    name: str
    unit: str
    """Of both figures: `s` or `MB`."""
    ours: float
    other: float
    other_name: str
    """What the other figure is of."""
    ratio: float
    """Other over ours for `times_faster`, ours over other for `share_of`."""
    bar: str | None
    """`>= 5` or `<= 0.2`; None when the row is only shown."""
    holds: bool
    """Whether no bar is missed: true for a row without one."""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A subject, or what was left of it, that could not be measured."""

    name: str
    not_measured: str
    """Why."""
    holds: bool = False


def times_faster(
    name: str, figures: tuple[float, float], other_name: str, *, at_least: float | None = None
) -> Row:
    """A row of seconds (ours, the other's) whose ratio is how many times faster ours is."""
    ours, other = figures
    ratio = other / ours
    bar = None if at_least is None else f">= {at_least:g}"
    return Row(
        name, "s", ours, other, other_name, ratio, bar, at_least is None or ratio >= at_least
    )


def share_of(
    name: str,
    figures: tuple[float, float],
    other_name: str,
    *,
    at_most: float | None = None,
    unit: str = "s",
) -> Row:
    """A row of figures (ours, the other's) whose ratio is our share of the other's."""
    ours, other = figures
    ratio = ours / other
    bar = None if at_most is None else f"<= {at_most:g}"
    return Row(name, unit, ours, other, other_name, ratio, bar, at_most is None or ratio <= at_most)
