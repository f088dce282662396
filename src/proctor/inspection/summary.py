"""One trace in numbers, fed entry by entry: memory does not grow with the trace.

Warmup entries are counted and else left out; entries of subagents are in, and counted apart. Every
number is explained in docs/summaries.md. Nothing here reads a file or judges.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import batched
from typing import Final

import msgspec

from proctor.inspection.calls import MOST_OPEN, Call, find_command, take_answered
from proctor.inspection.loops import Loops, LoopSummary
from proctor.inspection.subagents import Subagents, SubagentSummary
from proctor.inspection.tally import Tally, rank
from proctor.inspection.times import Times, TimeSummary
from proctor.inspection.tokens import KEYS, AdvisorSummary, TokenSummary, Usages
from proctor.inspection.tool_errors import ErrorSummary, ToolErrors
from proctor.inspection.turns import Steps
from proctor.inspection.writes import Writes, WriteSummary, find_writes
from proctor.trajectory.atif.in_metadata import ATIF_KEY
from proctor.trajectory.entry import Entry, Object

WARMUP: Final = "warmup"
SUBAGENT: Final = "subagent"
_BATCH: Final = 256
NO_SOURCE: Final = "none"
"""Stands where a trial left no trace that could be used."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How the turns of the assistant were classified."""

    turns: int
    """Turns that have a label."""
    counts: dict[str, int]
    shares: dict[str, float]
    """Of those turns, 0 to 1."""


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is in one trace, or in all traces of a trial."""

    part: str = ""
    """The step of a trial of several; "" for the trial itself."""
    source: str = NO_SOURCE
    """What was read: trajectory, conversation, ATIF trajectory, several, or none."""
    file: str | None = None
    """Which file of the trial."""
    passed_over: tuple[str, ...] = ()
    """Which files went before it and were not used, and why."""
    degraded: bool = False
    """Whether something of the file could not be read."""
    diagnostics: int = 0
    """How much that was."""
    noticed: tuple[str, ...] = ()
    """The first few of it, in words."""
    messages: int = 0
    """Entries of every role, warmup left out."""
    by_role: dict[str, int] = {}
    warmup: int = 0
    """Warmup entries, which are in no other number."""
    turns: int = 0
    """Different steps above 0 with an assistant or tool_call entry."""
    turns_are_exact: bool = True
    """False where steps jump about so much that there may be more."""
    tool_calls: int = 0
    by_tool: dict[str, int] = {}
    errors: ErrorSummary = ErrorSummary()
    loops: LoopSummary = LoopSummary()
    times: TimeSummary = TimeSummary()
    tokens: TokenSummary = TokenSummary()
    advisor: AdvisorSummary = AdvisorSummary()
    written: WriteSummary = WriteSummary()
    subagents: SubagentSummary = SubagentSummary()
    behaviour: Behaviour | None = None
    """Null where turns were not classified."""


def summarise(entries: Iterable[Entry], labels: dict[str, int] | None = None) -> TraceSummary:
    """The entries of one trace in numbers, with how often each label was given to its turns."""
    summing = Summing()
    for some in batched(entries, _BATCH):
        summing.feed(some)
    return summing.finish(labels)


class Summing:
    """How far the summing up of one trace has come."""

    def __init__(self) -> None:
        self._roles, self._tools = Tally(), Tally()
        self._warmup = 0
        self._steps = Steps()
        self._open: list[Call] = []
        """Calls of the latest step that have no result yet."""
        self._errors, self._loops, self._times = ToolErrors(), Loops(), Times()
        self._usages, self._writes, self._subagents = Usages(), Writes(), Subagents()

    def feed(self, entries: Sequence[Entry]) -> None:
        """Take entries in; many at a time is faster than one by one."""
        for entry in entries:
            if entry.call_type is not None:
                entries = self._set_apart(entries)
                break
        self._times.see(entries)
        self._take(entries)

    def _set_apart(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries without warmup; those of subagents are noted."""
        kept = [entry for entry in entries if entry.call_type != WARMUP]
        self._warmup += len(entries) - len(kept)
        for entry in kept:
            if entry.call_type == SUBAGENT:
                self._subagents.see(entry)
        return kept

    def _take(self, entries: Sequence[Entry]) -> None:
        take_result, take_call, see_step = self._take_result, self._take_call, self._steps.see
        step = 0
        for entry in entries:
            role = entry.role
            if role == "tool_result":
                take_result(entry)
            elif role == "tool_call" or role == "assistant":
                if entry.step != step:
                    step = entry.step
                    see_step(step)
                if role == "tool_call":
                    take_call(entry)
            if entry.metadata is not None:
                self._see_metadata(entry, entry.metadata)
        for role, times in Counter([entry.role for entry in entries]).items():
            self._roles.add(role, times)

    def _see_metadata(self, entry: Entry, metadata: Object) -> None:
        for key, held in metadata.items():
            if key in KEYS:
                if type(held) is dict:
                    self._usages.see(key, held)
                    if key == ATIF_KEY:
                        self._subagents.see_document(held)
                        self._usages.see_document(held)
            elif key == "advisor" and held is True:
                self._usages.see_advisor(entry, metadata)

    def _take_call(self, entry: Entry) -> None:
        tool = entry.tool_name or ""
        command = entry.command or find_command(entry.arguments)
        call = Call(entry.step, tool, command, hash((tool, command)))
        self._tools.add(tool)
        self._loops.see(call)
        waiting = self._open
        if waiting and (waiting[-1].step != call.step or len(waiting) >= MOST_OPEN):
            # What is left of an earlier step never got a result.
            waiting.clear()
        waiting.append(call)
        if paths := find_writes(entry, tool, command):
            self._writes.see(call, paths, entry.timestamp)

    def _take_result(self, entry: Entry) -> None:
        is_error = self._errors.see(entry, take_answered(self._open, entry))
        if is_error and entry.call_type == SUBAGENT:
            self._subagents.errors += 1

    def finish(self, labels: dict[str, int] | None = None) -> TraceSummary:
        """What there was, with how often each label was given to its turns."""
        times = self._times.finish()
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
            subagents=self._subagents.finish(),
            behaviour=None if labels is None else describe_labels(labels),
        )


def describe_labels(counts: dict[str, int]) -> Behaviour:
    """How often each label was given, and its share."""
    ranked, turns = rank(counts), sum(counts.values())
    shares = {label: count / turns for label, count in ranked.items()}
    return Behaviour(turns=turns, counts=ranked, shares=shares)
