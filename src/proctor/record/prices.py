"""Estimate costs with genai-prices, offline.

Only the price table of the installed package is used: it is never updated over the network, and a
table that other code set in this process is ignored. The table has no date, so it is identified by
the package's version and the digest of its file.

A name is "provider/model", "provider:model" or a model alone. The provider must match exactly. The
table's rules for models also match parts of names, so the rest of the name must be a region, a date
or a version. Anything else is unknown, and unknown is never 0.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Final

import genai_prices
from genai_prices import data, types
from genai_prices.data_snapshot import DataSnapshot

from proctor.digest import sha256_file
from proctor.errors import RecordError
from proctor.record.cost import CostBasis, Matched, Spending, Usage, is_free, unknown_cost

SOURCE: Final = "genai-prices"

# Providers whose name in harnesses differs from that in the price table.
_PROVIDERS: Final = {
    "amazon-bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "google_genai": "google",
    "vertex_ai": "google",
    "github_copilot": "github-copilot",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "together_ai": "together",
    "together-ai": "together",
    "xai": "x-ai",
}

# What may precede the part of a name that a rule matched (a region, a vendor), and what may follow
# it (a date, a version).
_BEFORE = re.compile(r"(?:[a-z0-9-]+[./])*")
_AFTER = re.compile(r"\d*(?:[-@:.](?:v?\d+|latest|preview|exp))*(?::\d+)?")
_COMPACT_DATE = re.compile(r"-(20\d\d)(\d\d)(\d\d)$")

type _Found = tuple[types.Provider, types.ModelInfo]


def estimate_cost(spendings: Sequence[Spending], when: datetime) -> CostBasis:
    """Tokens times the prices of that day; unknown as a whole if one part is."""
    amount = Decimal(0)
    notes: list[str] = []
    matched: list[Matched] = []
    try:
        for spending in spendings:
            if is_free(spending):
                continue
            found = _find_model(spending)
            price = found[1].get_prices(_in_utc(when))
            for usage in spending.usages:
                _check_priced(usage, price, spending)
                counts = genai_prices.Usage(
                    input_tokens=usage.input,
                    output_tokens=usage.output,
                    cache_read_tokens=usage.cache_read,
                    cache_write_tokens=usage.cache_write,
                )
                tier = price if spending.is_per_call else _first_tier(price)
                amount += tier.calc_price(counts)["total_price"]
            notes += _find_notes(spending, price)
            asked = spending.model or ""
            matched.append(Matched(asked=asked, provider=found[0].id, model=found[1].id))
        if not matched:
            return unknown_cost("no tokens were counted")
        total = _in_usd(amount)
    except RecordError as error:
        return unknown_cost(str(error))
    return CostBasis(
        kind="estimated",
        amount_usd=total,
        price_source=SOURCE,
        price_version=genai_prices.__version__,
        price_table_sha256=_table_digest(),
        price_date=_in_utc(when).date().isoformat(),
        matched=tuple(matched),
        notes=tuple(dict.fromkeys(notes)),
    )


@cache
def _snapshot() -> DataSnapshot:
    return DataSnapshot(providers=data.providers, from_auto_update=False)


@cache
def _table_digest() -> str | None:
    path = Path(data.__file__)
    return sha256_file(path) if path.is_file() else None


def _in_utc(when: datetime) -> datetime:
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _in_usd(amount: Decimal) -> float:
    usd = float(amount)
    if usd == float("inf"):
        raise RecordError("the token counts are too large to be priced")
    return usd


# Names


def _find_model(spending: Spending) -> _Found:
    name = spending.model
    if name is None or not name.strip():
        raise RecordError(f"the {spending.who}'s model is not known")
    provider, reference = _split_name(name)
    if provider is None and "/" in reference:
        raise RecordError(f"{name!r}: {reference.partition('/')[0]!r} is no provider with prices")
    try:
        found = _snapshot().find_provider_model(reference, None, provider, None)
    except LookupError:
        raise RecordError(f"{name!r} is not in the price table") from None
    # The table writes dates with dashes, and matches compact dates as if they had them.
    dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", reference)
    # A rule must match the whole name, not just a part of it.
    if not any(
        _BEFORE.fullmatch(text[:start]) and _AFTER.fullmatch(text[end:])
        for text in (reference, dashed)
        for start, end in _spans(found[1].match, text)
    ):
        raise RecordError(f"{name!r} is not in the price table; {found[1].id!r} only looks alike")
    return found


def _split_name(name: str) -> tuple[str | None, str]:
    """Split off the provider's id in the price table, if the name begins with one."""
    lowered = name.strip().lower()
    for separator in "/:":
        first, found, rest = lowered.partition(separator)
        provider = _PROVIDERS.get(first, first)
        if found and rest and provider in _provider_ids():
            return provider, rest
    return None, lowered


@cache
def _provider_ids() -> frozenset[str]:
    return frozenset(provider.id for provider in data.providers)


def _spans(rule: types.MatchLogic, text: str) -> Iterator[tuple[int, int]]:
    """The parts of a text that a rule, or one of its inner rules, matches."""
    match rule:
        case types.ClauseOr(or_=rules) | types.ClauseAnd(and_=rules):
            for inner in rules:
                yield from _spans(inner, text)
        case types.ClauseRegex(regex=pattern):
            yield from (found.span() for found in re.finditer(pattern, text))
        case types.ClauseEquals(equals=part):
            if text == part.lower():
                yield 0, len(text)
        case (
            types.ClauseStartsWith(starts_with=part)
            | types.ClauseEndsWith(ends_with=part)
            | types.ClauseContains(contains=part)
        ):
            if rule.is_match(text):
                start = text.rfind(part.lower())
                yield start, start + len(part)


# Amounts


def _check_priced(usage: Usage, price: types.ModelPrice, spending: Spending) -> None:
    """Refuse unknown token counts, and tokens without a listed price."""
    sides = (
        ("input", usage.input, price.input_mtok),
        ("output", usage.output, price.output_mtok),
    )
    for side, count, listed in sides:
        if count is None:
            raise RecordError(f"the {spending.who}'s {side} tokens are not known")
        if count and listed is None:
            raise RecordError(f"{spending.model!r} has no listed price for {side} tokens")


def _first_tier(price: types.ModelPrice) -> types.ModelPrice:
    """The price of small calls: tiers depend on the size of one call, not on a trial's total."""
    rates = {
        key: value.base if isinstance(value, types.TieredPrices) else value
        for key, value in vars(price).items()
    }
    return types.ModelPrice(**rates)


def _find_write_note(who: str, price: types.ModelPrice) -> Iterator[str]:
    written, read = price.cache_write_mtok, price.input_mtok
    if isinstance(written, Decimal) and isinstance(read, Decimal) and written != read:
        yield (
            f"the {who}'s cache writes are not known and have a price of their own; they are "
            f"priced as other input, and the estimate may be {'low' if written > read else 'high'}"
        )


def _find_notes(spending: Spending, price: types.ModelPrice) -> Iterator[str]:
    who = spending.who
    if any(usage.cache_read is None for usage in spending.usages):
        yield f"the {who}'s cache reads are not known; all its input is priced as not cached"
    if any(usage.cache_write is None and usage.input for usage in spending.usages):
        yield from _find_write_note(who, _first_tier(price))
    if spending.is_per_call:
        return
    largest = max((usage.input or 0 for usage in spending.usages), default=0)
    starts = [
        tier.start
        for rate in vars(price).values()
        if isinstance(rate, types.TieredPrices)
        for tier in rate.tiers
    ]
    if starts and largest > min(starts):
        yield (
            f"the {who}'s calls are not known one by one; those above {min(starts):,} input tokens "
            "cost more than was counted"
        )
    if price.requests_kcount:
        yield f"the {who}'s calls are not known one by one; a price per call was counted once"
