"""When things happened: texts of ISO 8601 to nanoseconds, and a clock for what does not say.

What has no time of its own is placed, in its order, at the last time that is known.
"""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = 1_000_000
_LATEST = (1 << 63) - 1


def find_moment(text: str | None) -> int | None:
    """Nanoseconds since 1970 in UTC; None for what is no time, or before."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    nanoseconds = since // timedelta(microseconds=1) * 1000
    return nanoseconds if nanoseconds >= 0 else None


class Clock:
    """How far the time of a trace has come."""

    def __init__(self, start: int) -> None:
        self.now = start
        self.unknown = 0
        """How many things did not say when they happened."""

    def tell(self, text: str | None) -> int:
        """The time of the next thing."""
        moment = find_moment(text)
        if moment is None:
            self.unknown += 1
        else:
            self.now = moment
        return self.now


def tool_times(called: int, answered: int | None, duration_ms: int | None) -> tuple[int, int]:
    """When a tool began and ended; many traces give one time for the call and its result."""
    if answered is not None and answered > called:
        return called, answered
    return called, min(called + max(duration_ms or 0, 0) * _MILLISECOND, _LATEST)


def render_moment(nanoseconds: int) -> str:
    """The one text of a moment, to the microsecond; the number itself beyond the calendar."""
    try:
        moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return str(nanoseconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
