"""One line of the table: our figure, the other's, their ratio, and the bar it must clear."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The ratio must not be below this."""

    value: float

    def holds(self, ratio: float) -> bool:
        """Whether the ratio clears the bar."""
        return ratio >= self.value

    def __str__(self) -> str:
        return f">= {self.value:g}"


@dataclass(frozen=True, slots=True)
class AtMost:
    """The ratio must not be above this."""

    value: float

    def holds(self, ratio: float) -> bool:
        """Whether the ratio clears the bar."""
        return ratio <= self.value

    def __str__(self) -> str:
        return f"<= {self.value:g}"


type Bar = AtLeast | AtMost


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    name: str
    unit: str
    """Of both figures: `s` or `MB`."""
    ours: float
    other: float
    other_name: str
    """What the other figure is of."""
    ratio: float
    """Other over ours for `times_faster`, ours over other for `share_of`."""
    bar: Bar | None = None
    """None when the row is only shown."""

    @property
    def holds(self) -> bool:
        """Whether no bar is missed: true for a row without one."""
        return self.bar is None or self.bar.holds(self.ratio)


def times_faster(
    name: str, figures: tuple[float, float], other_name: str, *, at_least: float | None = None
) -> Row:
    """A row of seconds (ours, the other's) whose ratio is how many times faster ours is."""
    ours, other = figures
    bar = AtLeast(at_least) if at_least is not None else None
    return Row(name, "s", ours, other, other_name, other / ours, bar)


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
    bar = AtMost(at_most) if at_most is not None else None
    return Row(name, unit, ours, other, other_name, ours / other, bar)
