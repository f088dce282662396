"""Formats numbers for people. Unknown values are named so, never shown as empty or 0."""

from typing import Protocol

from proctor.sentence import render_duration, render_figure, render_money, render_percent

UNKNOWN = "unknown"
_LEAST_P = 0.0001


class Ends(Protocol):
    """The ends of an interval."""

    @property
    def low(self) -> float:
        """The lower end."""
        ...

    @property
    def high(self) -> float:
        """The upper end."""
        ...


def render_seconds(seconds: float | None) -> str:
    """Format a duration."""
    return UNKNOWN if seconds is None else render_duration(seconds)


def render_number(value: float | None) -> str:
    """Format a score or a count."""
    return UNKNOWN if value is None else render_figure(value)


def render_signed(value: float | None) -> str:
    """Format a difference with its sign."""
    if value is None:
        return UNKNOWN
    return f"+{render_number(value)}" if value > 0 else render_number(value)


def render_ends(ends: Ends | None) -> str:
    """Format an interval with enough digits to show that its ends differ; empty for None."""
    if ends is None:
        return ""
    low, high = render_number(ends.low), render_number(ends.high)
    if low == high and ends.low != ends.high:
        low, high = (f"{end:.{_tell_apart(ends)}g}" for end in (ends.low, ends.high))
    return f"[{low}, {high}]"


def render_ranked(value: float) -> str:
    """Format a score on a board: four decimals, so that rows in order do not look equal."""
    return f"{value:.4f}"


def render_percent_ends(ends: Ends | None) -> str:
    """Format an interval of shares as percentages; empty for None."""
    return f"[{render_percent(ends.low)}, {render_percent(ends.high)}]" if ends else ""


def render_estimate(value: float | None, ends: Ends | None) -> str:
    """Format a number with its interval, if any."""
    return f"{render_number(value)} {render_ends(ends)}".rstrip()


def render_p(value: float | None) -> str:
    """Format a p-value."""
    if value is None:
        return UNKNOWN
    return "below 0.0001" if value < _LEAST_P else f"{value:.4f}".rstrip("0").rstrip(".")


def _tell_apart(ends: Ends) -> int:
    """The fewest digits, at least three, with which the ends differ."""
    return next(n for n in range(3, 18) if f"{ends.low:.{n}g}" != f"{ends.high:.{n}g}")


def render_usd(value: float | None) -> str:
    """Format a cost in US dollars."""
    return UNKNOWN if value is None else render_money(value)


def render_of(value: float | None, unit: str) -> str:
    """Format a number in its unit: share, count, seconds, tokens or USD."""
    match unit:
        case "share":
            return UNKNOWN if value is None else render_percent(value)
        case "seconds":
            return render_seconds(value)
        case "USD":
            return render_usd(value)
        case _:
            return render_number(value)


def render_change(value: float | None, unit: str) -> str:
    """Format a difference in its unit, with its sign."""
    if value is None:
        return UNKNOWN
    sign = "+" if value > 0 else "-" if value < 0 else ""
    if unit == "share":
        return f"{sign}{abs(value) * 100:.1f} pp"
    return f"{sign}{render_of(abs(value), unit)}"
