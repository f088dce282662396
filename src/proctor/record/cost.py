"""What a trial cost: token counts in one convention, the record's fields, and the amount's source.

Tokens: `input` is all input, including cache reads and cache writes; `cache_read` and `cache_write`
are parts of it. So cache_read + cache_write <= input, and nothing is counted twice. null means
unknown, never 0. Providers count differently: each source has a constructor for its convention, and
numbers that break the invariant are rejected, not clamped.

Money: amounts are in USD. `CostBasis` tells a provider's own amount from our estimate; it is stored
next to the record because the format has no field for it. `estimated_cost_usd` is the provider's
amount if there is one, else the estimate, else null. An unknown amount is never 0, and a sum states
how many trials it covers. prices.py is loaded only when a price is needed.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib import import_module
from typing import Annotated, Any, Final, Literal, Self, get_args

import msgspec
from pydantic import Field

from proctor.errors import RecordError
from proctor.record.fields import Count, Part
from proctor.reward.number import sum_counts
from proctor.sentence import count_of


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one or more calls to a model.

    Raises:
        RecordError: the numbers are impossible, such as more cached input than input.
    """

    input: int | None = None
    """All input tokens, including cache reads and cache writes."""
    output: int | None = None
    """All output tokens."""
    cache_read: int | None = None
    """Input tokens read from a cache."""
    cache_write: int | None = None
    """Input tokens written to a cache."""

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
        """Convert Anthropic's counts, whose `input_tokens` excludes all cached tokens."""
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
    def from_harbor(
        cls,
        *,
        n_input_tokens: int | None,
        n_cache_tokens: int | None,
        n_output_tokens: int | None,
    ) -> Self:
        """Convert harbor's counts: input includes cache reads; cache writes are unknown."""
        return cls(input=n_input_tokens, output=n_output_tokens, cache_read=n_cache_tokens)


_ANTHROPIC = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def find_token_problem(usage: Usage) -> str | None:
    """Explain why these numbers are impossible; None if they are not."""
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
    """Add up token counts; what is unknown in one is unknown in the sum."""
    return Usage(
        input=sum_counts([usage.input for usage in usages]),
        output=sum_counts([usage.output for usage in usages]),
        cache_read=sum_counts([usage.cache_read for usage in usages]),
        cache_write=sum_counts([usage.cache_write for usage in usages]),
    )


def _check_counts(counts: Iterable[tuple[str, int | None]]) -> None:
    for name, count in counts:
        # Callers pass values from JSON, so the annotated type is not guaranteed.
        if count is not None and (type(count) is not int or count < 0):
            raise RecordError(f"{name} is {count!r} tokens; expected a whole number, 0 or more")


def _shown(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


LARGEST_USD: Final = 1e9
"""Upper limit of a plausible amount; a larger number is rejected as an error."""
_ADVISOR: Final = "advisor"
_FREE: Final = "0 USD is reported for tokens that were counted; it may mean that no price was known"


class CostRecord(Part):
    """Tokens and money of one trial. The advisor's tokens are not part of the agent's."""

    tokens_in: Count | None = None
    """All input tokens of the agent, including cache reads and cache writes."""
    tokens_out: Count | None = None
    """All output tokens of the agent."""
    cache_read_tokens: Count | None = None
    """Input tokens read from a cache; part of tokens_in."""
    cache_write_tokens: Count | None = None
    """Input tokens written to a cache; part of tokens_in."""
    estimated_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """USD: the provider's amount if it reported one, else an estimate; null: unknown."""
    advisor_calls: Count | None = None
    """Number of calls to an advisor model."""
    advisor_input_tokens: Count | None = None
    """All input tokens of the advisor."""
    advisor_output_tokens: Count | None = None
    """All output tokens of the advisor."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens spent on one model."""

    usages: tuple[Usage, ...]
    """One per call, or a single one for all calls together."""
    model: str | None
    """The model's name in the harness, usually "provider/model"; null: unknown."""
    is_per_call: bool = False
    """Whether each usage is one call: some prices depend on the size of a call."""
    who: str = "agent"
    """Who called the model: agent or advisor."""


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of the price table that was used for a model."""

    asked: str
    """The model's name in the record."""
    provider: str
    """The provider in the price table."""
    model: str
    """The model in the price table."""


type CostKind = Literal["reported", "estimated", "replayed", "unknown"]
COST_KINDS: Final = get_args(CostKind.__value__)


class CostBasis(msgspec.Struct, frozen=True, kw_only=True):
    """Where an amount comes from."""

    kind: CostKind
    """reported: the provider's or harness's own amount; estimated: tokens times listed prices;
    replayed: 0, because the answers came from a recording."""
    amount_usd: float | None = None
    """USD; null exactly when kind is unknown."""
    price_source: str | None = None
    """Name of the price table, for an estimate."""
    price_version: str | None = None
    """Version of the price table."""
    price_table_sha256: str | None = None
    """Digest of the price table's file: the same digest gives the same estimate."""
    price_date: str | None = None
    """The UTC day of the trial, whose prices were used."""
    matched: tuple[Matched, ...] = ()
    """The price table entries used, one per model."""
    notes: tuple[str, ...] = ()
    """Reasons why the amount may be too high or too low."""
    why_unknown: str | None = None
    """Why there is no amount."""


def unknown_cost(why: str) -> CostBasis:
    """An unknown amount, with the reason."""
    return CostBasis(kind="unknown", why_unknown=why)


def replayed_cost() -> CostBasis:
    """The amount of an answer from a recording: nothing was spent."""
    return CostBasis(kind="replayed", amount_usd=0.0)


def describe_basis(basis: CostBasis) -> dict[str, object]:
    """Return the basis as JSON, without what is empty: for the metadata of an agent."""
    fields: dict[str, object] = msgspec.to_builtins(basis)
    return {name: value for name, value in fields.items() if value not in (None, [], ())}


def reported_cost(amount_usd: float) -> CostBasis:
    """An amount that the provider reported.

    Raises:
        RecordError: it is not a plausible amount.
    """
    if isinstance(amount_usd, bool) or not 0 <= amount_usd <= LARGEST_USD:
        raise RecordError(
            f"reported cost is {amount_usd!r} USD; expected a number from 0 to {LARGEST_USD:,.0f}"
        )
    return CostBasis(kind="reported", amount_usd=float(amount_usd))


def find_cost(
    spendings: Sequence[Spending], when: datetime, *, reported_usd: float | None = None
) -> CostBasis:
    """The provider's amount if it reported one, else an estimate from tokens and listed prices.

    If the agent's own spending has no price, the whole amount is unknown. An advisor's spending
    without a price is left out of the amount, with a note.
    """
    if reported_usd is not None:
        basis = reported_cost(reported_usd)
        free = (_FREE,) if basis.amount_usd == 0 and _has_tokens(spendings) else ()
        return msgspec.structs.replace(basis, notes=free)
    whole = _estimate(spendings, when)
    own = [each for each in spendings if each.who != _ADVISOR]
    if whole.amount_usd is not None or len(own) == len(spendings):
        return whole
    known = _estimate(own, when)
    if known.amount_usd is None:
        return whole
    note = f"the advisor's part is not in the amount: {whole.why_unknown}"
    return msgspec.structs.replace(known, notes=(*known.notes, note))


def _estimate(spendings: Sequence[Spending], when: datetime) -> CostBasis:
    asked = next((each for each in spendings if not is_free(each)), None)
    if asked is not None and not (asked.model or "").strip():
        # Loading the price table is slow, and agents without a model do not need it.
        return unknown_cost(f"the {asked.who}'s model is not known")
    estimated: CostBasis = import_module("proctor.record.prices").estimate_cost(spendings, when)
    return estimated


def merge_bases(bases: Sequence[CostBasis]) -> CostBasis:
    """Merge the amounts of one trial: unknown if any is unknown, estimated if any is estimated."""
    if unknown := [basis for basis in bases if basis.amount_usd is None]:
        return unknown[0]
    notes = [note for basis in bases for note in basis.notes]
    paid = [basis for basis in bases if basis.kind != "replayed"]
    if 0 < len(paid) < len(bases):
        n_replayed = len(bases) - len(paid)
        notes.append(f"{n_replayed} of {len(bases)} answers came from a recording and cost nothing")
    bases = paid or bases
    estimated = [basis for basis in bases if basis.kind == "estimated"]
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


def is_free(spending: Spending) -> bool:
    """Whether it is known that the model was not used."""
    return all(usage.input == 0 and usage.output == 0 for usage in spending.usages)


def _has_tokens(spendings: Sequence[Spending]) -> bool:
    return any(usage.input or usage.output for each in spendings for usage in each.usages)


def make_cost(
    usage: Usage,
    basis: CostBasis,
    *,
    advisor: Usage | None = None,
    advisor_calls: int | None = None,
) -> CostRecord:
    """Build the cost fields of a record."""
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
    """The agent's token counts in a record."""
    return Usage(
        input=cost.tokens_in,
        output=cost.tokens_out,
        cache_read=cost.cache_read_tokens,
        cache_write=cost.cache_write_tokens,
    )


class Coverage(msgspec.Struct, frozen=True):
    """How many trials a sum covers."""

    known: int
    total: int

    def __str__(self) -> str:
        trials = "trial" if self.total == 1 else "trials"
        return f"{self.known:,} of {self.total:,} {trials}"


class TotalCost(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of the known amounts of many trials."""

    amount_usd: float | None
    """Sum of the known amounts; null if there are none."""
    reported_usd: float | None
    """The part that providers reported."""
    estimated_usd: float | None
    """The part that was estimated."""
    coverage: Coverage
    """How many trials have an amount."""
    noted: int
    """How many of the amounts have a note."""


def total_cost(bases: Iterable[CostBasis]) -> TotalCost:
    """Sum the known amounts, and count them."""
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


# What endpoints report


# Larger amounts are taken for errors of the endpoint.
_MOST_USD: Final = 1e12


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one answer, as the endpoint reports it."""

    usage: Usage = Usage()
    """Tokens; null if not reported."""
    reasoning: int | None = None
    """Tokens spent on reasoning, which are part of the output tokens."""
    cost_usd: float | None = None
    """Cost, if the endpoint reports one."""
    problem: str | None = None
    """Why the reported tokens were rejected as impossible."""


def parse_spent(usage: object) -> Spent:
    """Parse the usage of a chat completion, as OpenAI and compatible endpoints report it.

    Impossible figures are rejected.
    """
    if not isinstance(usage, dict):
        return Spent()
    prompt = _object_in(usage, "prompt_tokens_details")
    completion = _object_in(usage, "completion_tokens_details")
    cached = prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    cost = _find_amount(usage.get("cost"))
    if usage.get("is_byok") is True and cost is not None:
        # Requests with a key of one's own are paid to the provider as well.
        details = _object_in(usage, "cost_details")
        upstream = _find_amount(details.get("upstream_inference_cost"))
        cost = None if upstream is None else cost + upstream
    try:
        tokens = Usage(
            input=usage.get("prompt_tokens"),
            output=usage.get("completion_tokens"),
            cache_read=cached,
            # OpenAI itself counts no writes; OpenRouter does.
            cache_write=prompt.get("cache_write_tokens"),
        )
    except RecordError as error:
        return Spent(problem=str(error), cost_usd=cost)
    reasoning = completion.get("reasoning_tokens")
    return Spent(
        usage=tokens,
        reasoning=reasoning if type(reasoning) is int and reasoning >= 0 else None,
        cost_usd=cost,
    )


def _find_amount(cost: object) -> float | None:
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return None
    return float(cost) if 0 <= cost <= _MOST_USD else None


def _object_in(usage: dict[str, Any], key: str) -> dict[str, Any]:
    found = usage.get(key)
    return found if isinstance(found, dict) else {}
