"""Wall time and idle time from the timestamps of a trace, which are not trusted.

Time is the sum of the steps forward from one timestamp to the next. A timestamp before the latest
one adds nothing; a jump of more than a week, either way, is not counted as time, and counting
continues from there. Timestamps that cannot be read are counted and left out.

The duration of an entry (`duration_ms`: of a tool, or of a model's answer) covers the time before
it; uncovered time is idle: usually waiting for a model whose harness does not record how long it
took.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from proctor.traces.entry import Entry

LONGEST_GAP: Final = 7 * 86400.0
"""Seconds between two entries beyond which the clock is not trusted."""
_MOST_MILLISECONDS: Final = LONGEST_GAP * 1000


class TimeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, from the timestamps."""

    wall_seconds: float | None = None
    """From the first to the last entry, without jumps; null with fewer than two timestamps."""
    idle_seconds: float | None = None
    """The part of it that no entry's duration covers; null with fewer than two timestamps."""
    tool_seconds: float = 0.0
    """The durations of tool results."""
    model_seconds: float = 0.0
    """The durations of the model's answers."""
    longest_gap_seconds: float | None = None
    """The longest idle stretch between two entries."""
    longest_gap_step: int | None = None
    """The step of the entry that ended it."""
    first: str | None = None
    """The first readable timestamp."""
    last: str | None = None
    """The last readable timestamp."""
    stamped: int = 0
    """Entries with a readable timestamp."""
    unreadable: int = 0
    """Entries whose timestamp is not an ISO 8601 time."""
    backward: int = 0
    """Entries with a timestamp before an earlier entry's."""
    jumps: int = 0
    """Gaps of more than a week, in either direction."""


class Times:
    """Collects the timestamps of one trace."""

    def __init__(self) -> None:
        self._now: datetime | None = None
        self._elapsed = self._idle = self._longest = 0.0
        self._longest_step: int | None = None
        self._tools = self._model = 0
        """Milliseconds."""
        self._stamped = self._unreadable = self._backward = self._jumps = 0
        self._first: str | None = None
        self._last: str | None = None

    def add(self, entry: Entry) -> None:
        """Count an entry's timestamp and duration."""
        took = entry.duration_ms or 0
        if 0 < took < _MOST_MILLISECONDS:
            self._tools += took if entry.role == "tool_result" else 0
            self._model += took if entry.role == "assistant" else 0
        if entry.timestamp is not None:
            self._add_stamp(entry.timestamp, max(took, 0) / 1000, entry.step)

    def _add_stamp(self, stamp: str, took: float, step: int) -> None:
        time = read_timestamp(stamp)
        # Some harnesses write seconds since 1970, or words.
        if time is None:
            self._unreadable += 1
            return
        self._stamped += 1
        self._last = stamp
        now, self._now = self._now, time
        if now is None:
            self._first = stamp
            return
        # datetimes are subtracted directly: seconds since 1970 as floats would lose precision.
        gap = (time - now).total_seconds()
        if abs(gap) > LONGEST_GAP:
            self._jumps += 1
        elif gap < 0:
            self._backward += 1
            self._now = now
        else:
            self._elapsed += gap
            idle = gap - took
            self._idle += max(idle, 0.0)
            if idle > self._longest:
                self._longest, self._longest_step = idle, step

    def finish(self) -> TimeSummary:
        """The times of the whole trace."""
        known = self._stamped > 1
        return TimeSummary(
            wall_seconds=round(self._elapsed, 3) if known else None,
            idle_seconds=round(self._idle, 3) if known else None,
            tool_seconds=self._tools / 1000,
            model_seconds=self._model / 1000,
            longest_gap_seconds=round(self._longest, 3) if self._longest else None,
            longest_gap_step=self._longest_step,
            first=self._first,
            last=self._last,
            stamped=self._stamped,
            unreadable=self._unreadable,
            backward=self._backward,
            jumps=self._jumps,
        )


def read_timestamp(text: str) -> datetime | None:
    """Parse an ISO 8601 time, in UTC if it has no zone; None if it is not one."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def seconds_between(first: str | None, then: str | None) -> float | None:
    """Seconds from one timestamp to a later one; None if the clock was wrong."""
    start = None if first is None else read_timestamp(first)
    end = None if then is None else read_timestamp(then)
    if start is None or end is None:
        return None
    gap = (end - start).total_seconds()
    return round(gap, 3) if 0 <= gap <= LONGEST_GAP else None


def merge_times(each: Sequence[TimeSummary]) -> TimeSummary:
    """Merge the times of a trial's parts, without the time between the parts."""
    longest = max(each, key=lambda one: one.longest_gap_seconds or 0.0, default=TimeSummary())
    return TimeSummary(
        wall_seconds=_sum([one.wall_seconds for one in each]),
        idle_seconds=_sum([one.idle_seconds for one in each]),
        tool_seconds=round(sum(one.tool_seconds for one in each), 3),
        model_seconds=round(sum(one.model_seconds for one in each), 3),
        longest_gap_seconds=longest.longest_gap_seconds,
        longest_gap_step=longest.longest_gap_step,
        first=next((one.first for one in each if one.first), None),
        last=next((one.last for one in reversed(each) if one.last), None),
        stamped=sum(one.stamped for one in each),
        unreadable=sum(one.unreadable for one in each),
        backward=sum(one.backward for one in each),
        jumps=sum(one.jumps for one in each),
    )


def _sum(seconds: list[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return round(sum(known), 3) if known else None
