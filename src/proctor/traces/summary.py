"""One trace in numbers, read entry by entry: memory does not grow with the trace.

Warmup entries are counted and otherwise left out; entries of subagents are included, and counted
apart. docs/summaries.md explains every number.

The parts of a trial of several steps are merged: sums, and the first and last where order counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import batched
from typing import Any, Final, Protocol

import msgspec

from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.calls import (
    MOST_OPEN,
    Call,
    Loops,
    LoopSummary,
    find_command,
    merge_loops,
    take_answered,
)
from proctor.traces.counts import Steps, Tally, add_counts, rank
from proctor.traces.entry import Entry, Object, TraceKind
from proctor.traces.times import Times, TimeSummary, merge_times
from proctor.traces.tokens import (
    KEYS,
    AdvisorSummary,
    TokenSummary,
    Usages,
    merge_advisors,
    merge_tokens,
)
from proctor.traces.tool_errors import ErrorSummary, ToolErrors, merge_errors
from proctor.traces.trace import TraceReading
from proctor.traces.writes import Writes, WriteSummary, find_writes, merge_writes

_MOST: Final = 10_000
"""Embedded trajectories that are looked at."""


class SubagentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What subagents did."""

    messages: int = 0
    """Entries of the trace with call_type subagent; they are in all other counts too."""
    tool_calls: int = 0
    """Tool calls among them."""
    tool_errors: int = 0
    """Tool errors among them."""
    embedded: int = 0
    """Trajectories inside the ATIF document; they are in no other count."""
    embedded_steps: int = 0
    embedded_tool_calls: int = 0
    elsewhere: int = 0
    """References to trajectories in other files, which were not opened."""


_NONE: Final = SubagentSummary()


class Subagents:
    """The subagents of one trace, as its entries come."""

    def __init__(self) -> None:
        self._messages = self._calls = self.errors = 0
        self._embedded = self._steps = self._tools = self._elsewhere = 0

    def see(self, entry: Entry) -> None:
        """Take in an entry that is marked as a subagent's."""
        self._messages += 1
        if entry.role == "tool_call":
            self._calls += 1

    def see_document(self, atif: Object) -> None:
        """Take in what the metadata of an entry carries of an ATIF document."""
        document = atif.get("document")
        if isinstance(document, dict) and "subagent_trajectories" in document:
            self._walk(document["subagent_trajectories"])
        self._see_references(atif.get("subagent_trajectory_ref"))

    def _walk(self, trajectories: Any) -> None:
        # By a list of what is left, not by recursion: how deep they lie is up to a stranger.
        left = list(trajectories) if isinstance(trajectories, list) else []
        while left and self._embedded < _MOST:
            found = left.pop()
            if not isinstance(found, dict):
                continue
            self._embedded += 1
            for step in _list(found.get("steps")):
                self._see_step(step)
            left += _list(found.get("subagent_trajectories"))

    def _see_step(self, step: Any) -> None:
        if not isinstance(step, dict):
            return
        self._steps += 1
        self._tools += len(_list(step.get("tool_calls")))
        observation = step.get("observation")
        results = _list(observation.get("results")) if isinstance(observation, dict) else []
        for result in results:
            if isinstance(result, dict):
                self._see_references(result.get("subagent_trajectory_ref"))

    def _see_references(self, references: Any) -> None:
        for each in _list(references):
            if isinstance(each, dict) and each.get("trajectory_path") is not None:
                self._elsewhere += 1

    def finish(self) -> SubagentSummary:
        """What there was."""
        if not (self._messages or self._embedded or self._elsewhere):
            return _NONE
        return SubagentSummary(
            messages=self._messages,
            tool_calls=self._calls,
            tool_errors=self.errors,
            embedded=self._embedded,
            embedded_steps=self._steps,
            embedded_tool_calls=self._tools,
            elsewhere=self._elsewhere,
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def merge_subagents(parts: Sequence[SubagentSummary]) -> SubagentSummary:
    """The subagents of the parts of one trial."""
    names = SubagentSummary.__struct_fields__
    sums = {name: sum(getattr(each, name) for each in parts) for name in names}
    return SubagentSummary(**sums)


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


class Labelling(Protocol):
    """Puts the turns of one trace into classes, as its entries come."""

    def add(self, entries: Sequence[Entry], /) -> None:
        """Take the next entries of the trace."""
        ...

    def count(self) -> dict[str, int]:
        """How often each label was given, once all entries are in."""
        ...


type Classify = Callable[[], Labelling]
"""Begins with a trace."""


def summarise_file(path: str, kind: TraceKind, classify: Classify | None = None) -> TraceSummary:
    """What is in one file, its turns labelled where there is somebody to do it.

    Raises:
        TraceError: it cannot be read at all.
    """
    reading, summing = TraceReading(path, kind), Summing()
    labelling = None if classify is None else classify()
    for entries in reading.batches():
        summing.feed(entries)
        if labelling is not None:
            labelling.add(entries)
    return msgspec.structs.replace(
        summing.finish(None if labelling is None else labelling.count()),
        source=str(kind),
        degraded=reading.problems > 0,
        diagnostics=reading.problems,
        noticed=tuple(reading.noticed),
    )


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
