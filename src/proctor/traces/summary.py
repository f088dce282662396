"""Summarise one trace entry by entry: memory does not grow with the trace.

Warmup entries are counted and otherwise left out; entries of subagents are included, and also
counted separately. docs/reference/summaries.md explains every number.

The parts of a multi-step trial are merged: sums, and first and last where order matters.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.calls import (
    MOST_OPEN,
    Call,
    Loops,
    LoopSummary,
    Writes,
    WriteSummary,
    find_command,
    list_writes,
    merge_loops,
    merge_writes,
    take_answered,
)
from proctor.traces.counts import Steps, Tally, add_counts, merge_fields, rank
from proctor.traces.entry import OUTPUT, Entry, Object, TraceKind
from proctor.traces.label_rules import Classifier
from proctor.traces.tool_errors import ErrorSummary, ToolErrors, merge_errors
from proctor.traces.trace import TraceReading
from proctor.traces.usage import (
    AdvisorSummary,
    Times,
    TimeSummary,
    TokenSummary,
    Usages,
    merge_advisors,
    merge_times,
    merge_tokens,
)

# Most embedded trajectories that are counted.
_MOST_EMBEDDED: Final = 10_000


class SubagentSummary(msgspec.Struct, kw_only=True):
    """What subagents did; counted while the trace is read."""

    messages: int = 0
    """Entries with call_type subagent; they are included in all other counts."""
    tool_calls: int = 0
    """Tool calls among them."""
    tool_errors: int = 0
    """Tool errors among them."""
    embedded: int = 0
    """Trajectories embedded in the ATIF document; they are in no other count."""
    embedded_steps: int = 0
    embedded_tool_calls: int = 0
    elsewhere: int = 0
    """References to trajectories in other files, which were not read."""

    def add_document(self, atif: Object) -> None:
        """Count the subagents in the carried part of an ATIF document.

        Each embedded trajectory is counted once, however they refer to each other.
        """
        document = atif.get("document")
        # A list instead of recursion: trajectories can be nested deeper than Python calls.
        left = _list(document.get("subagent_trajectories")) if isinstance(document, dict) else []
        while left and self.embedded < _MOST_EMBEDDED:
            if not isinstance(found := left.pop(), dict):
                continue
            self.embedded += 1
            for step in _dicts(found.get("steps")):
                self.embedded_steps += 1
                self.embedded_tool_calls += len(_list(step.get("tool_calls")))
                observation = step.get("observation")
                for result in _dicts(isinstance(observation, dict) and observation.get("results")):
                    self._add_references(result)
            left += _list(found.get("subagent_trajectories"))
        self._add_references(atif)

    def _add_references(self, holder: Object) -> None:
        for each in _dicts(holder.get("subagent_trajectory_ref")):
            self.elsewhere += each.get("trajectory_path") is not None


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _dicts(value: Any) -> list[Object]:
    return [each for each in _list(value) if isinstance(each, dict)]


WARMUP: Final = "warmup"
SUBAGENT: Final = "subagent"
NO_SOURCE: Final = "none"
"""The source of a trial without a usable trace."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of the assistant's turns."""

    turns: int
    """Turns that have a label."""
    counts: dict[str, int]
    shares: dict[str, float]
    """Share of these turns, 0 to 1."""


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one trace, or of all traces of a trial."""

    part: str = ""
    """The step of a multi-step trial; "" for the trial itself."""
    source: str = NO_SOURCE
    """What was read: trajectory, conversation, ATIF trajectory, command output, several, none."""
    file: str | None = None
    """Its path in the trial."""
    passed_over: tuple[str, ...] = ()
    """Preferred files that were not used, and why."""
    degraded: bool = False
    """Whether parts of the file could not be read."""
    diagnostics: int = 0
    """Number of problems."""
    noticed: tuple[str, ...] = ()
    """The first few problems."""
    messages: int = 0
    """Entries of every role, without warmup."""
    by_role: dict[str, int] = {}
    warmup: int = 0
    """Warmup entries, which are in no other number."""
    turns: int = 0
    """Different steps above 0 with an assistant or tool_call entry."""
    turns_are_exact: bool = True
    """False if step numbers jump so much that there may be more."""
    tool_calls: int = 0
    by_tool: dict[str, int] = {}
    errors: ErrorSummary = ErrorSummary()
    loops: LoopSummary = msgspec.field(default_factory=LoopSummary)
    times: TimeSummary = msgspec.field(default_factory=TimeSummary)
    tokens: TokenSummary = TokenSummary()
    advisor: AdvisorSummary = AdvisorSummary()
    written: WriteSummary = msgspec.field(default_factory=WriteSummary)
    subagents: SubagentSummary = msgspec.field(default_factory=SubagentSummary)
    behaviour: Behaviour | None = None
    """Null if turns were not labelled."""

    @property
    def is_output(self) -> bool:
        """Whether it is only what commands printed, which has no steps."""
        return self.source == TraceKind.OUTPUT


def summarise_file(path: str, kind: TraceKind, *, labelled: bool = False) -> TraceSummary:
    """Summarise the trace in one file; `labelled`: with the labels of its turns.

    Reading is lenient: problems in the file are counted and listed, never raised.
    """
    reading = TraceReading(path, kind)
    return msgspec.structs.replace(
        summarise(reading.entries(), labelled=labelled),
        source=str(kind),
        degraded=reading.problems > 0,
        diagnostics=reading.problems,
        noticed=tuple(reading.noticed),
    )


def summarise(entries: Iterable[Entry], *, labelled: bool = False) -> TraceSummary:
    """Summarise the entries of one trace, and count the labels of its turns."""
    summing = _Summing(labelled=labelled)
    for entry in entries:
        summing.add(entry)
    return summing.finish()


class _Summing:
    """The numbers and labels of one trace, as read so far."""

    def __init__(self, *, labelled: bool) -> None:
        self._classifier = Classifier() if labelled else None
        self._roles, self._tools = Tally(), Tally()
        self._warmup = 0
        self._steps = Steps()
        self._open: list[Call] = []
        """Calls of the latest step without a result so far."""
        self._errors, self._loops, self._times = ToolErrors(), Loops(), Times()
        self._usages, self._writes, self._subagents = Usages(), Writes(), SubagentSummary()

    def add(self, entry: Entry) -> None:
        """Count an entry, and label the turn that it ends."""
        # Every entry is visited once: numbers and labels come from the same pass.
        if self._classifier is not None:
            self._classifier.add(entry)
        role = entry.role
        if entry.call_type == WARMUP:
            self._warmup += 1
            return
        if entry.call_type == SUBAGENT:
            self._subagents.messages += 1
            self._subagents.tool_calls += role == "tool_call"
        self._times.add(entry)
        if role == OUTPUT:
            return  # printed by a command: neither a message nor a step
        self._roles.add(role)
        if role == "tool_result":
            is_error = self._errors.add(entry, take_answered(self._open, entry))
            self._subagents.tool_errors += is_error and entry.call_type == SUBAGENT
        elif role in ("tool_call", "assistant"):
            self._steps.add(entry.step)
            if role == "tool_call":
                tool = entry.tool_name or ""
                command = entry.command or find_command(entry.arguments)
                call = Call(entry.step, tool, command, hash((tool, command)))
                self._tools.add(tool)
                self._loops.add(call)
                waiting = self._open
                if waiting and (waiting[-1].step != call.step or len(waiting) >= MOST_OPEN):
                    # Calls left over from an earlier step never got a result.
                    waiting.clear()
                waiting.append(call)
                if paths := list_writes(entry, tool, command):
                    self._writes.add(call, paths, entry.timestamp)
        if entry.metadata is not None:
            self._usages.add(entry, entry.metadata)
            if isinstance(carried := entry.metadata.get(ATIF_KEY), dict):
                self._subagents.add_document(carried)

    def finish(self) -> TraceSummary:
        """The numbers of the whole trace."""
        times, labels = self._times.finish(), self._classifier
        return TraceSummary(
            messages=self._roles.total,
            by_role=self._roles.ranked(),
            warmup=self._warmup,
            turns=self._steps.count,
            turns_are_exact=self._steps.is_exact,
            tool_calls=self._tools.total,
            by_tool=self._tools.ranked(),
            errors=self._errors.finish(),
            loops=self._loops.finish(),
            times=times,
            tokens=self._usages.finish(),
            advisor=self._usages.finish_advisor(),
            written=self._writes.finish(times.first),
            subagents=self._subagents,
            behaviour=None if labels is None else describe_labels(labels.count()),
        )


def describe_labels(counts: dict[str, int]) -> Behaviour:
    """Counts and shares of the labels."""
    ranked, turns = rank(counts), sum(counts.values())
    shares = {label: count / turns for label, count in ranked.items()}
    return Behaviour(turns=turns, counts=ranked, shares=shares)


def merge_parts(parts: Sequence[TraceSummary]) -> TraceSummary:
    """Merge the traces of one trial; a single one is unchanged."""
    if len(parts) < 2:
        return parts[0] if parts else TraceSummary()
    named = {part.part: part for part in parts}
    sources = list(dict.fromkeys(part.source for part in parts))
    return merge_fields(
        parts,
        part="",
        source=sources[0] if len(sources) < 2 else "several",
        file=None,
        degraded=any(part.degraded for part in parts),
        noticed=tuple(text for part in parts for text in part.noticed)[:5],
        turns_are_exact=all(part.turns_are_exact for part in parts),
        errors=merge_errors({name: part.errors for name, part in named.items()}),
        loops=merge_loops({name: part.loops for name, part in named.items()}),
        times=merge_times([part.times for part in parts]),
        tokens=merge_tokens([part.tokens for part in parts]),
        advisor=merge_advisors([part.advisor for part in parts]),
        written=merge_writes([part.written for part in parts]),
        subagents=merge_fields([part.subagents for part in parts]),
        behaviour=merge_behaviour([part.behaviour for part in parts]),
    )


def merge_behaviour(parts: Sequence[Behaviour | None]) -> Behaviour | None:
    """Merge the labels of all parts; None if nothing was labelled."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return describe_labels(add_counts(*(part.counts for part in known)))
