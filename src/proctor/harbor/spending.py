"""Tokens and money of a harbor trial, from what its agent reported. Prices are the record unit's.

Whoever makes a record of a trial, while it runs or from what it left, asks here. No file is read.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from proctor.errors import RecordError
from proctor.harbor.account import AgentResultAccount
from proctor.record.cost import (
    CostBasis,
    CostRecord,
    Spending,
    Usage,
    find_cost,
    make_cost,
    merge_bases,
    reported_cost,
    sum_usage,
    unknown_cost,
)
from proctor.traces.entry import Entry, Object, TraceKind
from proctor.traces.trace import Trace

NO_MODEL: Final = "none"
"""For agents that use no model, such as the oracle."""

_MOST_TOKENS: Final = 10**15
"""No trial uses more; a larger number is no count, and too large for what adds them up."""

_BASIS: Final = "cost_basis"
"""Key of an agent's metadata under which it says how it came to its amount: a CostBasis."""


class Reported(msgspec.Struct, frozen=True):
    """What an agent reported of a trial."""

    results: tuple[AgentResultAccount, ...]
    """One, or one for each step; a step that reported nothing among those that did is empty."""
    silent_step: str | None = None
    """A step that reported nothing although another did."""


def make_trial_cost(
    reported: Reported, trace: Trace | None, model: str, when: datetime, notes: list[str]
) -> tuple[CostRecord | None, CostBasis]:
    """Tokens and money, and where the amount comes from."""
    results = reported.results
    try:
        advisor_calls, advisor = _find_advisor(trace)
        usage = sum_usage([_usage(result) for result in results]) if results else Usage()
        spendings = [Spending(usages=(usage,), model=None if model == NO_MODEL else model)]
        if advisor is not None:
            spendings.append(Spending(usages=(advisor,), model=None, who="advisor"))
        basis = _find_own_basis(results) or _find_basis(
            reported, trace, find_cost(spendings, when, reported_usd=_sum_usd(results))
        )
    except RecordError as error:
        notes.append(f"the trial's figures cannot be: {error}; cost is null")
        return None, unknown_cost(str(error))
    notes += [f"cost: {note}" for note in basis.notes]
    if usage == Usage() and basis.amount_usd is None and not advisor_calls:
        return None, basis
    return make_cost(usage, basis, advisor=advisor, advisor_calls=advisor_calls), basis


def has_spending(reported: Reported, trace: Trace | None) -> bool:
    """Whether anything is known that could cost something; else the cost is null."""
    figures = [
        (result.n_input_tokens, result.n_cache_tokens, result.n_output_tokens, result.cost_usd)
        for result in reported.results
    ]
    return trace is not None or any(each is not None for result in figures for each in result)


def _find_basis(reported: Reported, trace: Trace | None, basis: CostBasis) -> CostBasis:
    """The basis, unknown where the trial itself says why it must be."""
    if basis.kind == "estimated" and trace is not None and len(trace.models) > 1:
        return unknown_cost("several models answered, and their tokens are not told apart")
    if basis.kind == "unknown" and reported.silent_step is not None:
        return unknown_cost(f"step {reported.silent_step} says neither tokens nor cost, others do")
    return basis


def _find_own_basis(results: Sequence[AgentResultAccount]) -> CostBasis | None:
    """How an agent came to its amount, where it says so of every step.

    Raises:
        RecordError: it is no amount of money.
    """
    bases = [_basis_in(result) for result in results]
    known = [basis for basis in bases if basis is not None]
    return merge_bases(known) if known and len(known) == len(bases) else None


def _basis_in(result: AgentResultAccount) -> CostBasis | None:
    """What a result says of its own amount; None where it says nothing that fits."""
    try:
        basis = msgspec.convert((result.metadata or {}).get(_BASIS), CostBasis)
    except msgspec.ValidationError:
        return None
    if basis.amount_usd != result.cost_usd:
        return None
    if basis.amount_usd is None:
        return unknown_cost(basis.why_unknown or "the agent does not say why")
    reported_cost(basis.amount_usd)
    return None if basis.kind == "unknown" else basis


def _usage(result: AgentResultAccount) -> Usage:
    counts = (result.n_input_tokens, result.n_cache_tokens, result.n_output_tokens)
    if any(count is not None and count > _MOST_TOKENS for count in counts):
        # In full it may have more digits than Python is willing to write.
        raise RecordError(f"more than {_MOST_TOKENS:,} tokens are reported; expected fewer")
    return Usage.from_harbor(
        n_input_tokens=result.n_input_tokens,
        n_cache_tokens=result.n_cache_tokens,
        n_output_tokens=result.n_output_tokens,
    )


def _sum_usd(results: Sequence[AgentResultAccount]) -> float | None:
    amounts = [result.cost_usd for result in results]
    known = [amount for amount in amounts if amount is not None]
    if not known or len(known) < len(amounts):
        return None
    try:
        return math.fsum(known)
    except OverflowError as error:
        raise RecordError("reported costs add up to more than a number can hold") from error


class _AdvisorTokens(msgspec.Struct, frozen=True):
    """What a harness says in an entry's metadata about one question to an advisor."""

    input: int | None = None
    output: int | None = None


def _find_advisor(trace: Trace | None) -> tuple[int | None, Usage | None]:
    """How often an advisor was asked, and its tokens; None where no trace can tell."""
    if trace is None or trace.kind is not TraceKind.TRAJECTORY:
        return None, None
    marked = list(_find_marked(trace.entries))
    # A call and its result are one question, and both may be marked.
    asked = [entry for entry in marked if entry.role == "tool_result"] or marked
    if not asked:
        return 0, None
    return len(asked), sum_usage([_advisor_usage(entry) for entry in asked])


def _find_marked(entries: Iterable[Entry]) -> Iterable[Entry]:
    return (entry for entry in entries if (entry.metadata or {}).get("advisor") is True)


def _advisor_usage(entry: Entry) -> Usage:
    metadata: Object = entry.metadata or {}
    try:
        tokens = msgspec.convert(metadata.get("advisor_tokens"), _AdvisorTokens)
    except msgspec.ValidationError:
        return Usage()  # it was asked all the same
    return Usage(input=tokens.input, output=tokens.output)
