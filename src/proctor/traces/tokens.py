"""Tokens and advisor calls in the metadata of a trace.

The convention is the record's: input is all input, including cache reads and cache writes. ATIF and
OpenAI count that way; Anthropic excludes the cache, so it is added. Only whole numbers of 0 or more
are counted.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from proctor.record.cost import sum_counts
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.entry import Entry, Object

LARGEST_COUNT: Final = 1 << 53
"""A trace may contain any number; a larger one is not a count."""
CACHE_WRITE: Final = "cache_write_tokens"
"""Key of cache writes in the `extra` of ATIF's metrics, which have no field for them."""
_NOTHING: Final = (None, None, None, None)
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
            elif key == "advisor" and held is True:
                self._add_advisor(entry, metadata)

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

    def _add_advisor(self, entry: Entry, metadata: Object) -> None:
        if entry.role != "tool_result":
            self._advised_calls += 1
            return
        self._advised_results += 1
        tokens = metadata.get("advisor_tokens")
        if isinstance(tokens, dict):
            for key in ("input", "output"):
                if (count := _count(tokens.get(key))) is not None:
                    self._advisor[key] = self._advisor.get(key, 0) + count

    def finish(self) -> TokenSummary:
        """The sums of all entries; the document's own totals if no entry has any."""
        # Per-entry numbers go first: the document's totals may include subagents.
        sums = tuple(self._sums) if self._with_usage else self._final
        if sums is None:
            return TokenSummary()
        read_in, out, cached, written = sums
        return TokenSummary(
            source="trace",
            with_usage=self._with_usage,
            input=read_in,
            output=out,
            cache_read=cached,
            cache_write=written,
        )

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
    return TokenSummary(
        source="trace",
        input=sum_counts([one.input for one in each]),
        output=sum_counts([one.output for one in each]),
        cache_read=sum_counts([one.cache_read for one in each]),
        cache_write=sum_counts([one.cache_write for one in each]),
        with_usage=sum(one.with_usage for one in each),
    )


def merge_advisors(each: Sequence[AdvisorSummary]) -> AdvisorSummary:
    """Merge the advisor calls of a trial's parts."""
    asked = [one for one in each if one.calls]
    return AdvisorSummary(
        calls=sum(one.calls for one in asked),
        input=sum_counts([one.input for one in asked]),
        output=sum_counts([one.output for one in asked]),
    )
