"""The parts of a trial of several steps as one: sums, and the first and last where order counts."""

from collections.abc import Sequence

from proctor.inspection.loops import merge_loops
from proctor.inspection.subagents import merge_subagents
from proctor.inspection.summary import NO_SOURCE, Behaviour, TraceSummary, describe_labels
from proctor.inspection.tally import add_counts
from proctor.inspection.times import merge_times
from proctor.inspection.tokens import merge_advisors, merge_tokens
from proctor.inspection.tool_errors import merge_errors
from proctor.inspection.writes import merge_writes


def merge_parts(parts: Sequence[TraceSummary]) -> TraceSummary:
    """The traces of one trial as one; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    named = {part.part: part for part in parts}
    sources = list(dict.fromkeys(part.source for part in parts))
    return TraceSummary(
        source=(sources or [NO_SOURCE])[0] if len(sources) < 2 else "several",
        passed_over=tuple(text for part in parts for text in part.passed_over),
        degraded=any(part.degraded for part in parts),
        diagnostics=sum(part.diagnostics for part in parts),
        noticed=tuple(text for part in parts for text in part.noticed)[:5],
        messages=sum(part.messages for part in parts),
        by_role=add_counts(*(part.by_role for part in parts)),
        warmup=sum(part.warmup for part in parts),
        turns=sum(part.turns for part in parts),
        turns_are_exact=all(part.turns_are_exact for part in parts),
        tool_calls=sum(part.tool_calls for part in parts),
        by_tool=add_counts(*(part.by_tool for part in parts)),
        errors=merge_errors({name: part.errors for name, part in named.items()}),
        loops=merge_loops({name: part.loops for name, part in named.items()}),
        times=merge_times([part.times for part in parts]),
        tokens=merge_tokens([part.tokens for part in parts]),
        advisor=merge_advisors([part.advisor for part in parts]),
        written=merge_writes([part.written for part in parts]),
        subagents=merge_subagents([part.subagents for part in parts]),
        behaviour=merge_behaviour([part.behaviour for part in parts]),
    )


def merge_behaviour(parts: Sequence[Behaviour | None]) -> Behaviour | None:
    """The labels of all parts as one; null where nothing was classified."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return describe_labels(add_counts(*(part.counts for part in known)))
