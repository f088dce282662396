"""Wall time and idle time from the timestamps of a trace, which may say anything.

Time is the sum of the steps forward from one timestamp to the next. A timestamp that lies before
the latest one adds nothing; a jump of more than a week, either way, is no time that passed, and
counting goes on from where it led. What cannot be read is counted and left out.

What an entry says it took (`duration_ms`: of a tool, or of a model's answer) covers the time before
it; what nothing covers is idle: as a rule, waiting for a model whose harness does not say how long.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import sub
from typing import Final

import msgspec

from proctor.traces.entry import Entry

LONGEST_GAP: Final = 7 * 86400.0
"""Seconds between two entries beyond which the clock is not believed."""
_TICK: Final = 1000
_MOST_TICKS: Final = LONGEST_GAP * _TICK
_SECONDS: Final = timedelta.total_seconds
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  (the times subtracted have no zone)


class TimeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, as far as timestamps tell them."""

    wall_seconds: float | None = None
    """From the first to the last entry, jumps left out; null with fewer than two timestamps."""
    idle_seconds: float | None = None
    """The part of it that no entry says it took; null likewise."""
    tool_seconds: float = 0.0
    """What results of tools say they took."""
    model_seconds: float = 0.0
    """What answers of the model say they took."""
    longest_gap_seconds: float | None = None
    """The longest idle stretch between two entries."""
    longest_gap_step: int | None = None
    """The step of the entry that ended it."""
    first: str | None = None
    """The first timestamp that can be read."""
    last: str | None = None
    """The last one."""
    stamped: int = 0
    """Entries whose timestamp can be read."""
    unreadable: int = 0
    """Entries whose timestamp is no ISO 8601 time."""
    backward: int = 0
    """Entries whose timestamp lies before an earlier entry's."""
    jumps: int = 0
    """Steps of more than a week, either way."""


class Times:
    """The timestamps of one trace, as they come."""

    def __init__(self) -> None:
        self.stamped = 0
        self._elapsed = 0.0
        self._now: float | None = None
        self._idle = self._longest = self._tools = self._model = 0.0
        self._longest_step: int | None = None
        self._unreadable = self._backward = self._jumps = 0
        self._first = self._last = ""

    def see(self, entries: Sequence[Entry]) -> None:
        """Take the timestamps of entries in, and what the entries say they took."""
        took = [entry.duration_ms for entry in entries]
        if any(took):
            self._see_durations(entries, took)
        if not self._see_plain(entries, took):
            for entry in entries:
                if entry.timestamp is not None:
                    self._see_stamp(entry, entry.timestamp, entry.duration_ms)

    def _see_plain(self, entries: Sequence[Entry], took: list[int | None]) -> bool:
        """Take in times in UTC that are all there and never go back; false where they are not so.

        Without a zone they are read and subtracted twice as fast; what has one goes the slow way.
        """
        try:
            stamps = [entry.timestamp.removesuffix("Z") for entry in entries]  # type: ignore[union-attr]
            times = list(map(datetime.fromisoformat, stamps))
            start = (times[0] - _EPOCH).total_seconds()
            gaps = list(map(_SECONDS, map(sub, times[1:], times)))
        except (AttributeError, TypeError, ValueError, IndexError):
            return False
        gap = 0.0 if self._now is None else start - self._now
        if not 0 <= gap <= LONGEST_GAP or (gaps and (min(gaps) < 0 or max(gaps) > LONGEST_GAP)):
            return False
        if self._now is None:
            self._first = entries[0].timestamp or ""
        else:
            self._pass(gap, took[0], entries[0].step)
        self._pass_all(gaps, entries, took)
        self.stamped += len(times)
        self._now = (times[-1] - _EPOCH).total_seconds()
        self._last = entries[-1].timestamp or ""
        return True

    def _pass_all(
        self, gaps: list[float], entries: Sequence[Entry], took: list[int | None]
    ) -> None:
        self._elapsed += sum(gaps)
        idle = [
            gap - covered / _TICK if covered and covered > 0 else gap
            for gap, covered in zip(gaps, took[1:], strict=True)
        ]
        longest = max(idle, default=0.0)
        if longest > self._longest:
            self._longest, self._longest_step = longest, entries[idle.index(longest) + 1].step
        self._idle += sum([each for each in idle if each > 0])

    def _see_stamp(self, entry: Entry, stamp: str, took: int | None) -> None:
        seconds = read_timestamp(stamp)
        if seconds is None:
            self._unreadable += 1
            return
        self.stamped += 1
        self._last = stamp
        now, self._now = self._now, seconds
        if now is None:
            self._first = stamp
        elif seconds < now or seconds - now > LONGEST_GAP:
            self._doubt(seconds, now)
        else:
            self._pass(seconds - now, took, entry.step)

    def _see_durations(self, entries: Sequence[Entry], took: list[int | None]) -> None:
        told = [
            (entry.role, ticks)
            for entry, ticks in zip(entries, took, strict=True)
            if ticks and 0 < ticks < _MOST_TICKS
        ]
        self._tools += sum([ticks for role, ticks in told if role == "tool_result"]) / _TICK
        self._model += sum([ticks for role, ticks in told if role == "assistant"]) / _TICK

    def _doubt(self, seconds: float, now: float) -> None:
        if abs(seconds - now) > LONGEST_GAP:
            self._jumps += 1
        else:
            self._backward += 1
            self._now = now

    def _pass(self, gap: float, took: int | None, step: int) -> None:
        self._elapsed += gap
        idle = gap - took / _TICK if took and took > 0 else gap
        if idle <= 0:
            return
        self._idle += idle
        if idle > self._longest:
            self._longest, self._longest_step = idle, step

    def finish(self) -> TimeSummary:
        """What there was."""
        known = self.stamped > 1
        return TimeSummary(
            wall_seconds=round(self._elapsed, 3) if known else None,
            idle_seconds=round(self._idle, 3) if known else None,
            tool_seconds=round(self._tools, 3),
            model_seconds=round(self._model, 3),
            longest_gap_seconds=round(self._longest, 3) if self._longest else None,
            longest_gap_step=self._longest_step,
            first=self._first or None,
            last=self._last or None,
            stamped=self.stamped,
            unreadable=self._unreadable,
            backward=self._backward,
            jumps=self._jumps,
        )


def read_timestamp(text: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 time, UTC where it names no zone; None if it is none."""
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def seconds_between(first: str | None, then: str | None) -> float | None:
    """From one timestamp to a later one; null where a clock was not right."""
    start = None if first is None else read_timestamp(first)
    end = None if then is None else read_timestamp(then)
    if start is None or end is None or not 0 <= end - start <= LONGEST_GAP:
        return None
    return round(end - start, 3)


def merge_times(each: Sequence[TimeSummary]) -> TimeSummary:
    """The times of the parts of one trial, what lies between the parts left out."""
    gaps = [one for one in each if one.longest_gap_seconds is not None]
    longest = max(gaps, key=lambda one: one.longest_gap_seconds or 0.0, default=TimeSummary())
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
