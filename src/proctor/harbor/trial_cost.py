"""What a harbor trial cost: its tokens, an amount, and the basis of the amount.

Tokens and amounts are the agent's reports, else what the trace says of them. Does not read files.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from proctor.errors import RecordError
from proctor.harbor.documents import AgentReport
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
from proctor.record.fields import Object
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.trace import Trace
from proctor.traces.usage import Usages

# A larger number is an error, and too large for what adds them up.
_MOST_TOKENS: Final = 10**15
# Key of an agent's metadata with the CostBasis of its own amount.
_BASIS: Final = "cost_basis"
# Key of an agent's metadata with input tokens written to a cache, for which harbor has no field.
_CACHE_WRITE: Final = "cache_write_tokens"


class Reported(msgspec.Struct, frozen=True):
    """The reports of an agent about a trial."""

    results: tuple[AgentReport, ...]
    """One, or one per step; empty for a step without a report if another step has one."""
    silent_step: str | None = None
    """A step without a report, if another step has one."""


class TraceUse(msgspec.Struct, frozen=True):
    """What the traces of a trial say of its models."""

    usage: Usage = Usage()
    models: tuple[str, ...] = ()
    """Models that answered, in order."""


def make_trial_cost(
    reported: Reported,
    trace: Trace | None,
    model: str | None,
    when: datetime,
    *,
    counted: TraceUse | None = None,
) -> tuple[CostRecord | None, CostBasis]:
    """Tokens and cost, with the basis of the amount."""
    results = reported.results
    try:
        advisor_calls, advisor = _find_advisor(trace)
        usage = sum_usage([_usage(result) for result in results]) if results else Usage()
        if counted is not None and usage.input is None and usage.output is None:
            usage = counted.usage
        spendings = [Spending(usages=(usage,), model=model)]
        if advisor is not None:
            spendings.append(Spending(usages=(advisor,), model=None, who="advisor"))
        models = counted.models if counted else trace.models if trace else ()
        basis = _find_own_basis(results) or _find_basis(
            reported, models, find_cost(spendings, when, reported_usd=_sum_usd(results))
        )
    except RecordError as error:
        return None, unknown_cost(str(error))
    if usage == Usage() and basis.amount_usd is None and not advisor_calls:
        return None, basis
    return make_cost(usage, basis, advisor=advisor, advisor_calls=advisor_calls), basis


def _find_basis(reported: Reported, models: Sequence[str], basis: CostBasis) -> CostBasis:
    """The basis, changed to unknown if the trial itself gives a reason."""
    if basis.kind == "estimated" and len(models) > 1:
        return unknown_cost("several models answered, and their tokens are not counted separately")
    if basis.kind == "unknown" and reported.silent_step is not None:
        return unknown_cost(f"step {reported.silent_step} says neither tokens nor cost, others do")
    return basis


def _find_own_basis(results: Sequence[AgentReport]) -> CostBasis | None:
    """The agent's own basis of its amount, if it reported one for every step."""
    bases = [_basis_in(result) for result in results]
    known = [basis for basis in bases if basis is not None]
    return merge_bases(known) if known and len(known) == len(bases) else None


def _basis_in(result: AgentReport) -> CostBasis | None:
    """The basis in a report's metadata; None if there is no matching one."""
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


def find_cost_kind(cost: CostRecord | None, reported: Reported) -> str:
    """The basis of a recorded amount: reported, estimated or unknown, as when it was recorded."""
    if cost is None or cost.estimated_cost_usd is None:
        return "unknown"
    try:
        own = _find_own_basis(reported.results)
    except RecordError:
        own = None
    if own is not None:
        return own.kind
    return "estimated" if _sum_usd(reported.results) is None else "reported"


def count_trace(trace: Trace) -> TraceUse:
    """The tokens in a trace, summed over its answers, and the models that it names."""
    counted = Usages()
    for entry in trace.all_entries:
        if entry.metadata:
            counted.add(entry, entry.metadata)
    found = counted.finish()
    usage = Usage(
        input=found.input,
        output=found.output,
        cache_read=found.cache_read,
        cache_write=found.cache_write,
    )
    return TraceUse(usage, trace.models or _find_models(trace))


def _find_models(trace: Trace) -> tuple[str, ...]:
    """Models that are named beside the format's own fields."""
    named = [entry.metadata.get("model") for entry in trace.entries if entry.metadata]
    named += [turn.rest.get("model") for turn in trace.turns if turn.role == "assistant"]
    models = (name for name in named if isinstance(name, str) and name.strip())
    return tuple(dict.fromkeys(models))


def merge_uses(uses: Sequence[TraceUse]) -> TraceUse:
    """The sum over the steps of a trial; a count that one step lacks is unknown for all."""
    usage = sum_usage([use.usage for use in uses])
    return TraceUse(usage, tuple(dict.fromkeys(name for use in uses for name in use.models)))


def _usage(result: AgentReport) -> Usage:
    """The tokens that an agent reported."""
    usage = _usage_in_harbor(result)
    written = (result.metadata or {}).get(_CACHE_WRITE)
    if type(written) is not int:
        return usage
    try:
        return msgspec.structs.replace(usage, cache_write=written)
    except RecordError:
        # A count that harbor does not have must not void those that it has.
        return usage


def _usage_in_harbor(result: AgentReport) -> Usage:
    counts = (result.n_input_tokens, result.n_cache_tokens, result.n_output_tokens)
    if any(count is not None and count > _MOST_TOKENS for count in counts):
        # The full number may have more digits than Python formats.
        raise RecordError(f"more than {_MOST_TOKENS:,} tokens are reported; expected fewer")
    return Usage.from_harbor(
        n_input_tokens=result.n_input_tokens,
        n_cache_tokens=result.n_cache_tokens,
        n_output_tokens=result.n_output_tokens,
    )


def _sum_usd(results: Sequence[AgentReport]) -> float | None:
    amounts = [result.cost_usd for result in results]
    known = [amount for amount in amounts if amount is not None]
    if not known or len(known) < len(amounts):
        return None
    try:
        return math.fsum(known)
    except OverflowError as error:
        raise RecordError("reported costs add up to more than a number can hold") from error


class _AdvisorTokens(msgspec.Struct, frozen=True):
    """Tokens of one advisor call, in an entry's metadata."""

    input: int | None = None
    output: int | None = None


def _find_advisor(trace: Trace | None) -> tuple[int | None, Usage | None]:
    """Number of advisor calls and their tokens; None if there is no suitable trace."""
    if trace is None or trace.kind is not TraceKind.TRAJECTORY:
        return None, None
    marked = list(_find_marked(trace.entries))
    # A call and its result count once, but both may be marked.
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
        return Usage()  # the call still counts
    return Usage(input=tokens.input, output=tokens.output)
