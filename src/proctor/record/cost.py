"""What a trial cost: the eight fields of the record, and where the amount comes from.

A provider's own amount and our estimate are kept apart: `CostBasis` says which it is, and stands
beside the record, because the format has no place for it. `estimated_cost_usd` of the record is
the provider's amount where there is one, else the estimate, else null. An amount that is not
known is never 0, and a sum says how many trials it rests on.

Amounts are USD. Prices are in prices.py, which is loaded when one is asked for.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib import import_module
from typing import Annotated, Final, Literal

import msgspec
from pydantic import Field

from proctor.errors import RecordError
from proctor.record.fields import Count, Part
from proctor.record.usage import Usage

LARGEST_USD: Final = 1e9
"""No trial costs more; a larger number is no amount of money."""
_FREE: Final = "0 USD is reported for tokens that were counted; it may mean that no price was known"


class CostRecord(Part):
    """Tokens and money of one trial. The advisor's tokens are not among the agent's."""

    tokens_in: Count | None = None
    """All input tokens of the agent; cache reads and cache writes are among them."""
    tokens_out: Count | None = None
    """All output tokens of the agent."""
    cache_read_tokens: Count | None = None
    """Input tokens that came from a cache; part of tokens_in."""
    cache_write_tokens: Count | None = None
    """Input tokens that were put into a cache; part of tokens_in."""
    estimated_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """USD: the provider's amount where it gave one, else an estimate; null: not known."""
    advisor_calls: Count | None = None
    """How often an advisor model was asked."""
    advisor_input_tokens: Count | None = None
    """All input tokens of the advisor."""
    advisor_output_tokens: Count | None = None
    """All output tokens of the advisor."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens spent on one model."""

    usages: tuple[Usage, ...]
    """One per call, or a single one for all calls together."""
    model: str | None
    """The model as the harness names it, "provider/model" as a rule; null: not known."""
    is_per_call: bool = False
    """Whether each usage is one call: some prices depend on the size of a call."""
    who: str = "agent"
    """Who asked: agent or advisor."""


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """Whose price was taken for a model."""

    asked: str
    """The model as it was named."""
    provider: str
    """The provider in the price table."""
    model: str
    """The model in the price table."""


class CostBasis(msgspec.Struct, frozen=True, kw_only=True):
    """Where an amount comes from."""

    kind: Literal["reported", "estimated", "unknown"]
    """reported: the provider's or harness's own amount; estimated: tokens times listed prices."""
    amount_usd: float | None = None
    """USD; null exactly when kind is unknown."""
    price_source: str | None = None
    """Whose price table, for an estimate."""
    price_version: str | None = None
    """Version of the price table."""
    price_table_sha256: str | None = None
    """Digest of the price table's file: the same digest gives the same estimate."""
    price_date: str | None = None
    """The day, in UTC, whose prices were taken: the day of the trial."""
    matched: tuple[Matched, ...] = ()
    """Whose prices were taken, one per model."""
    notes: tuple[str, ...] = ()
    """What makes an amount more or less than the true one."""
    why_unknown: str | None = None
    """Why there is no amount."""


def unknown_cost(why: str) -> CostBasis:
    """No amount, and why."""
    return CostBasis(kind="unknown", why_unknown=why)


def reported_cost(amount_usd: float) -> CostBasis:
    """The provider's own amount.

    Raises:
        RecordError: it is no amount of money.
    """
    if isinstance(amount_usd, bool) or not 0 <= amount_usd <= LARGEST_USD:
        raise RecordError(
            f"reported cost is {amount_usd!r} USD; expected a number from 0 to {LARGEST_USD:,.0f}"
        )
    return CostBasis(kind="reported", amount_usd=float(amount_usd))


def find_cost(
    spendings: Sequence[Spending], when: datetime, *, reported_usd: float | None = None
) -> CostBasis:
    """The provider's amount where it gave one, else an estimate from tokens and listed prices.

    An amount is estimated for all spendings or for none: when one of them has no price, the whole
    is unknown.

    Raises:
        RecordError: the reported amount is no amount of money.
    """
    if reported_usd is not None:
        basis = reported_cost(reported_usd)
        free = (_FREE,) if basis.amount_usd == 0 and _has_tokens(spendings) else ()
        return msgspec.structs.replace(basis, notes=free)
    estimated: CostBasis = import_module("proctor.record.prices").estimate_cost(spendings, when)
    return estimated


def merge_bases(bases: Sequence[CostBasis]) -> CostBasis:
    """Amounts of one trial as one: unknown when one of them is, and estimated when one of them is.

    Raises:
        RecordError: they add up to no amount of money.
    """
    if unknown := [basis for basis in bases if basis.amount_usd is None]:
        return unknown[0]
    estimated = [basis for basis in bases if basis.kind == "estimated"]
    notes = [note for basis in bases for note in basis.notes]
    if 0 < len(estimated) < len(bases):
        n_own = len(bases) - len(estimated)
        notes.append(f"{n_own} of {len(bases)} amounts are the provider's own")
    return msgspec.structs.replace(
        (*estimated, *bases)[0],
        amount_usd=reported_cost(_add(basis.amount_usd or 0.0 for basis in bases)).amount_usd,
        matched=tuple(dict.fromkeys(match for basis in bases for match in basis.matched)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _add(amounts: Iterable[float]) -> float:
    try:
        return math.fsum(amounts)
    except OverflowError:
        return math.inf


def _has_tokens(spendings: Sequence[Spending]) -> bool:
    return any(usage.input or usage.output for each in spendings for usage in each.usages)


def make_cost(
    usage: Usage,
    basis: CostBasis,
    *,
    advisor: Usage | None = None,
    advisor_calls: int | None = None,
) -> CostRecord:
    """The record's fields."""
    return CostRecord(
        tokens_in=usage.input,
        tokens_out=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        estimated_cost_usd=basis.amount_usd,
        advisor_calls=advisor_calls,
        advisor_input_tokens=None if advisor is None else advisor.input,
        advisor_output_tokens=None if advisor is None else advisor.output,
    )


def usage_in(cost: CostRecord) -> Usage:
    """The agent's tokens in a record.

    Raises:
        RecordError: they break the token algebra.
    """
    return Usage(
        input=cost.tokens_in,
        output=cost.tokens_out,
        cache_read=cost.cache_read_tokens,
        cache_write=cost.cache_write_tokens,
    )


class Coverage(msgspec.Struct, frozen=True):
    """How many trials a sum rests on."""

    known: int
    total: int

    def __str__(self) -> str:
        trials = "trial" if self.total == 1 else "trials"
        return f"{self.known:,} of {self.total:,} {trials}"


class TotalCost(msgspec.Struct, frozen=True, kw_only=True):
    """The known amounts of many trials."""

    amount_usd: float | None
    """Sum of what is known; null when nothing is."""
    reported_usd: float | None
    """The part that providers reported."""
    estimated_usd: float | None
    """The part that was estimated."""
    coverage: Coverage
    """How many trials have an amount."""
    noted: int
    """How many of the amounts carry a note."""


def total_cost(bases: Iterable[CostBasis]) -> TotalCost:
    """Sum of the known amounts, with how many there are."""
    all_bases = list(bases)
    known = [basis for basis in all_bases if basis.amount_usd is not None]
    return TotalCost(
        amount_usd=_sum_usd(known),
        reported_usd=_sum_usd([basis for basis in known if basis.kind == "reported"]),
        estimated_usd=_sum_usd([basis for basis in known if basis.kind == "estimated"]),
        coverage=Coverage(len(known), len(all_bases)),
        noted=sum(bool(basis.notes) for basis in known),
    )


def _sum_usd(bases: Sequence[CostBasis]) -> float | None:
    return math.fsum(basis.amount_usd or 0.0 for basis in bases) if bases else None
