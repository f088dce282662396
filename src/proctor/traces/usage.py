"""Time and tokens of a trace, as it records them.

Timestamps are not trusted. Time is the sum of the steps forward from one timestamp to the next. A
timestamp before the latest one adds nothing; a jump of more than a week, either way, is not counted
as time, and counting continues from there. Timestamps that cannot be read are counted and left out.

The duration of an entry (`duration_ms`: of a tool, or of a model's answer) covers the time before
it; uncovered time is idle: usually waiting for a model whose harness does not record how long it
took.

Tokens follow the record's convention: input is all input, including cache reads and cache writes.
ATIF and OpenAI count that way; Anthropic excludes the cache, so it is added. Only whole numbers of
0 or more are counted.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from proctor.reward.number import sum_counts
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.counts import merge_fields
from proctor.traces.entry import Entry, Object

LONGEST_GAP: Final = 7 * 86400.0
"""Seconds between two entries beyond which the clock is not trusted."""
_MOST_MILLISECONDS: Final = LONGEST_GAP * 1000


class TimeSummary(msgspec.Struct, kw_only=True):
    """Seconds, from the timestamps; counted while the trace is read."""

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
        self._found = TimeSummary()
        self._now: datetime | None = None
        self._elapsed = self._idle = self._longest = 0.0
        self._tools = self._model = 0
        """Milliseconds."""

    def add(self, entry: Entry) -> None:
        """Count an entry's timestamp and duration."""
        took = entry.duration_ms or 0
        if 0 < took < _MOST_MILLISECONDS:
            self._tools += took if entry.role == "tool_result" else 0
            self._model += took if entry.role == "assistant" else 0
        if entry.timestamp is None:
            return
        found, time = self._found, read_timestamp(entry.timestamp)
        # Some harnesses write seconds since 1970, or words.
        if time is None:
            found.unreadable += 1
            return
        found.stamped += 1
        found.last = entry.timestamp
        now, self._now = self._now, time
        if now is None:
            found.first = entry.timestamp
            return
        # datetimes are subtracted directly: seconds since 1970 as floats would lose precision.
        gap = (time - now).total_seconds()
        if abs(gap) > LONGEST_GAP:
            found.jumps += 1
        elif gap < 0:
            found.backward += 1
            self._now = now
        else:
            self._elapsed += gap
            idle = gap - max(took, 0) / 1000
            self._idle += max(idle, 0.0)
            if idle > self._longest:
                self._longest, found.longest_gap_step = idle, entry.step

    def finish(self) -> TimeSummary:
        """The times of the whole trace."""
        found = self._found
        if found.stamped > 1:
            found.wall_seconds, found.idle_seconds = round(self._elapsed, 3), round(self._idle, 3)
        found.tool_seconds, found.model_seconds = self._tools / 1000, self._model / 1000
        found.longest_gap_seconds = round(self._longest, 3) if self._longest else None
        return found


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
    longest = max(each, key=lambda one: one.longest_gap_seconds or 0.0)
    return merge_fields(
        each,
        longest_gap_seconds=longest.longest_gap_seconds,
        longest_gap_step=longest.longest_gap_step,
        first=next((one.first for one in each if one.first), None),
        last=next((one.last for one in reversed(each) if one.last), None),
    )


# Tokens


LARGEST_COUNT: Final = 1 << 53
"""A trace may contain any number; a larger one is not a count."""
CACHE_WRITE: Final = "cache_write_tokens"
"""Key of cache writes in the `extra` of ATIF's metrics, which have no field for them."""
_NOTHING: Final = (None, None, None, None)
_COUNTS: Final = ("input", "output", "cache_read", "cache_write")
_ANTHROPIC: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")

type _Found = tuple[int | None, int | None, int | None, int | None]
"""Input, output, cache reads, cache writes."""


class TokenSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the agent's model; null is unknown, which is not 0."""

    source: str = "unknown"
    """record, trace, or unknown if neither has them."""
    input: int | None = None
    """All input, including cache reads and writes."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    with_usage: int = msgspec.field(name="told", default=0)
    """Entries of the trace with a usage; the sums of a trace cover only these."""


class AdvisorSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of an advisor model."""

    calls: int = 0
    input: int | None = None
    output: int | None = None


class Usages:
    """Collects the token usage of one trace."""

    def __init__(self) -> None:
        self._with_usage = 0
        self._sums: list[int | None] = [None, None, None, None]
        self._final: _Found | None = None
        self._last: tuple[object, _Found] | None = None
        self._advised_calls = self._advised_results = 0
        self._advisor: dict[str, int] = {}

    def add(self, entry: Entry, metadata: Object) -> None:
        """Count the tokens and advisor calls in an entry's metadata."""
        for key, held in metadata.items():
            if key in KEYS and isinstance(held, dict):
                self.add_usage(key, held)
                if key == ATIF_KEY and isinstance(document := held.get("document"), dict):
                    self._final = _read_final(document)
            elif key == "advisor" and held is True and entry.role != "tool_result":
                self._advised_calls += 1
            elif key == "advisor" and held is True:
                self._advised_results += 1
                tokens: Any = metadata.get("advisor_tokens")
                for name in ("input", "output") if isinstance(tokens, dict) else ():
                    if (count := _count(tokens.get(name))) is not None:
                        self._advisor[name] = self._advisor.get(name, 0) + count

    def add_usage(self, key: str, held: Object) -> None:
        """Count the usage under one of KEYS in an entry's metadata."""
        found = _READERS[key](held)
        if found is None:
            return
        name = held.get("id")
        if name is not None and self._last is not None and self._last[0] == name:
            # An answer over several rows repeats its usage: only the last row counts.
            self._sum(self._last[1], -1)
        else:
            self._with_usage += 1
        self._sum(found, 1)
        self._last = None if name is None else (name, found)

    def _sum(self, found: _Found, sign: int) -> None:
        sums = self._sums
        for at, count in enumerate(found):
            if count is not None:
                sums[at] = (sums[at] or 0) + sign * count

    def finish(self) -> TokenSummary:
        """The sums of all entries; the document's own totals if no entry has any."""
        # Per-entry numbers go first: the document's totals may include subagents.
        sums = tuple(self._sums) if self._with_usage else self._final
        if sums is None:
            return TokenSummary()
        counts = dict(zip(_COUNTS, sums, strict=True))
        return TokenSummary(source="trace", with_usage=self._with_usage, **counts)

    def finish_advisor(self) -> AdvisorSummary:
        """The advisor's calls: a call and its result count once, but both may be marked."""
        return AdvisorSummary(
            calls=self._advised_results or self._advised_calls,
            input=self._advisor.get("input"),
            output=self._advisor.get("output"),
        )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LARGEST_COUNT else None


def _found(
    given: object, output: object, cache_read: object = None, cache_write: object = None
) -> _Found | None:
    found = (_count(given), _count(output), _count(cache_read), _count(cache_write))
    return None if found == _NOTHING else found


def _read_atif(held: Object) -> _Found | None:
    metrics = held.get("metrics")
    if not isinstance(metrics, dict) or held.get("is_copied_context") is True:
        return None
    extra = metrics.get("extra")
    return _found(
        metrics.get("prompt_tokens"),
        metrics.get("completion_tokens"),
        metrics.get("cached_tokens"),
        extra.get(CACHE_WRITE) if isinstance(extra, dict) else None,
    )


def _read_final(document: Object) -> _Found | None:
    final = document.get("final_metrics")
    if not isinstance(final, dict):
        return None
    return _found(
        final.get("total_prompt_tokens"),
        final.get("total_completion_tokens"),
        final.get("total_cached_tokens"),
    )


def _read_spoken(held: Object) -> _Found | None:
    usage = held.get("usage")
    if isinstance(turn := held.get("turn"), dict) and not isinstance(usage, dict):
        usage = turn.get("usage")
    return _read_usage(usage) if isinstance(usage, dict) else None


def _read_usage(usage: Object) -> _Found | None:
    """A provider's usage object: Anthropic's, else OpenAI's."""
    # Anthropic's input_tokens excludes the cache; OpenAI's prompt_tokens includes it.
    if any(key in usage for key in _ANTHROPIC):
        read, written = (_count(usage.get(key)) for key in _ANTHROPIC)
        bare = _count(usage.get("input_tokens"))
        whole = None if bare is None else bare + (read or 0) + (written or 0)
        return _found(whole, usage.get("output_tokens"), read, written)
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return _found(
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
        cached,
    )


def _read_tokens(held: Object) -> _Found | None:
    """The counts of a harness."""
    if (given := _count(held.get("call_input"))) is not None:
        return given, None, None, None
    return _found(held.get("input"), held.get("output"))


_READERS: Final[dict[str, Callable[[Object], _Found | None]]] = {
    ATIF_KEY: _read_atif,
    "conversation": _read_spoken,
    "usage": _read_usage,
    "tokens": _read_tokens,
}
KEYS: Final = frozenset(_READERS)
"""Keys of an entry's metadata that may contain tokens."""


def merge_tokens(each: Sequence[TokenSummary]) -> TokenSummary:
    """Merge the tokens of a trial's parts; a count that one part lacks is unknown for all."""
    if not any(one.source == "trace" for one in each):
        return TokenSummary()
    counts = {name: sum_counts([getattr(one, name) for one in each]) for name in _COUNTS}
    return merge_fields(each, source="trace", **counts)


def merge_advisors(each: Sequence[AdvisorSummary]) -> AdvisorSummary:
    """Merge the advisor calls of a trial's parts."""
    asked = [one for one in each if one.calls]
    return AdvisorSummary(
        calls=sum(one.calls for one in asked),
        input=sum_counts([one.input for one in asked]),
        output=sum_counts([one.output for one in asked]),
    )
