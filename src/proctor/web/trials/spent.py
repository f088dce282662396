"""Tokens and cost of a trial, their source, and the advisor's share.

Unknown values are None, never 0.
"""

from dataclasses import dataclass

from proctor.sentence import count_of
from proctor.traces.trial_summary import TrialSummary
from proctor.web.trials.known import Known
from proctor.web.trials.words import COSTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens and cost of a trial."""

    usd: float | None
    basis: str
    """reported, estimated or unknown."""
    basis_words: str
    tokens: tuple[tuple[str, int | None], ...]
    """Numbers of tokens by kind."""
    coverage: str
    """Source of the token counts."""
    advisor_calls: int | None
    advisor_tokens: int | None
    advisor_share: float | None
    """The advisor's share of all tokens, 0 to 1."""


def find_usage(known: Known, summary: TrialSummary) -> Spent:
    """Find what a trial used, from its record or else from its trace."""
    basis = (known.entry.cost_basis if known.entry else None) or "unknown"
    tokens, advisor = summary.tokens, summary.advisor
    is_told = tokens.source != "unknown" or bool(advisor.calls)
    asked = _sum(advisor.input, advisor.output)
    own = _sum(tokens.input, tokens.output)
    if advisor.calls == 0:
        asked = 0
    share = asked / (own + asked) if own is not None and asked is not None and own + asked else None
    return Spent(
        usd=summary.cost_usd,
        basis=basis if summary.cost_usd is not None else "unknown",
        basis_words=_describe_basis(basis, summary.cost_usd),
        tokens=(
            ("input", tokens.input),
            ("of it, read from a cache", tokens.cache_read),
            ("of it, written to a cache", tokens.cache_write),
            ("output", tokens.output),
        ),
        coverage=_describe_coverage(summary),
        advisor_calls=advisor.calls if is_told else None,
        advisor_tokens=asked if advisor.calls else None,
        advisor_share=share if is_told else None,
    )


def _describe_basis(basis: str, usd: float | None) -> str:
    if usd is None:
        return COSTS["unknown"]
    if basis == "unknown":
        return "the amount in the record; its source is not recorded"
    return COSTS.get(basis, basis)


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _describe_coverage(summary: TrialSummary) -> str:
    with_usage, turns = summary.trace.tokens.with_usage, summary.trace.turns
    match summary.tokens.source:
        case "record":
            return "Recorded for all calls."
        case "trace":
            entries = count_of(with_usage, "entry of the trace", "entries of the trace")
            return f"Summed over {entries} with usage, of {count_of(turns, 'turn')}."
        case _:
            return "Unknown: neither the record nor the trace has token counts."
