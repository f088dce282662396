"""Tokens, counted one way.

The convention: `input` is all input tokens, cache reads and cache writes included; `cache_read` and
`cache_write` are parts of it. So cache_read + cache_write <= input, and nothing is counted twice.
null is "not known", never 0.

Providers count otherwise. A source is read by the constructor that names its convention; a number
that breaks the invariant is refused, never clamped. Prices are not known here.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from proctor.errors import RecordError
from proctor.sentence import count_of


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call to a model, or of many.

    Raises:
        RecordError: when made from numbers that cannot be, such as more cached input than input.
    """

    input: int | None = None
    """All input tokens; cache reads and cache writes are among them."""
    output: int | None = None
    """All output tokens."""
    cache_read: int | None = None
    """Input tokens that came from a cache."""
    cache_write: int | None = None
    """Input tokens that were put into a cache."""

    def __post_init__(self) -> None:
        if problem := find_token_problem(self):
            raise RecordError(problem)

    @classmethod
    def from_anthropic(
        cls,
        *,
        input_tokens: int | None,
        cache_creation_input_tokens: int | None,
        cache_read_input_tokens: int | None,
        output_tokens: int | None,
    ) -> Self:
        """Anthropic's counts, whose `input_tokens` leaves out all that went through the cache."""
        parts = (input_tokens, cache_creation_input_tokens, cache_read_input_tokens)
        _check_counts(zip(_ANTHROPIC, parts, strict=True))
        known = None if input_tokens is None else sum(part or 0 for part in parts)
        return cls(
            input=known,
            output=output_tokens,
            cache_read=cache_read_input_tokens,
            cache_write=cache_creation_input_tokens,
        )

    @classmethod
    def from_openai(
        cls,
        *,
        prompt_tokens: int | None,
        cached_tokens: int | None,
        completion_tokens: int | None,
    ) -> Self:
        """OpenAI's counts, whose prompt holds the cached tokens; it reports no cache writes."""
        return cls(input=prompt_tokens, output=completion_tokens, cache_read=cached_tokens)

    @classmethod
    def from_harbor(
        cls,
        *,
        n_input_tokens: int | None,
        n_cache_tokens: int | None,
        n_output_tokens: int | None,
    ) -> Self:
        """Harbor's counts: input with its cache reads in it; cache writes are not told apart."""
        return cls(input=n_input_tokens, output=n_output_tokens, cache_read=n_cache_tokens)


_ANTHROPIC = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def find_token_problem(usage: Usage) -> str | None:
    """What cannot be in these numbers, as a sentence, or None."""
    try:
        _check_counts(zip(usage.__struct_fields__, msgspec.structs.astuple(usage), strict=True))
    except RecordError as error:
        return str(error)
    cached = (usage.cache_read or 0) + (usage.cache_write or 0)
    if usage.input is None or cached <= usage.input:
        return None
    return (
        f"{count_of(cached, 'cached token')} (read {_shown(usage.cache_read)}, "
        f"written {_shown(usage.cache_write)}) of {count_of(usage.input, 'input token')}; "
        "expected the input to hold the cached tokens: is it counted without the cache?"
    )


def sum_usage(usages: Sequence[Usage]) -> Usage:
    """All of them together; what one of them does not know is not known of the sum."""
    return Usage(
        input=_sum([usage.input for usage in usages]),
        output=_sum([usage.output for usage in usages]),
        cache_read=_sum([usage.cache_read for usage in usages]),
        cache_write=_sum([usage.cache_write for usage in usages]),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _check_counts(counts: Iterable[tuple[str, int | None]]) -> None:
    for name, count in counts:
        # Callers hand over numbers from JSON: the type is a hope until it is looked at.
        if count is not None and (type(count) is not int or count < 0):
            raise RecordError(f"{name} is {count!r} tokens; expected a whole number, 0 or more")


def _shown(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
