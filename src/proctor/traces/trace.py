"""The trace of one trial: trajectory, else ATIF file, conversation, model calls, command output.

A preferred file without anything usable does not hide the next one; files that were passed over are
returned with the reason. Reading is always the salvaging kind: a torn trace is still a trace.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import batched, chain
from pathlib import Path
from typing import Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.atif.convert import to_entries
from proctor.traces.atif.read import load_atif
from proctor.traces.conversation import load_conversation, read_turns
from proctor.traces.entry import MODEL_TRACE, OUTPUT_FILE, Entry, TraceKind
from proctor.traces.trajectory import Chunk, load_trajectory, read_chunks
from proctor.traces.turn import Turn, turns_to_entries

_MOST_NOTICED: Final = 5
_BATCH: Final = 256
TRIAL_TRACES = (
    (TraceKind.TRAJECTORY, "agent/trajectory.jsonl"),
    (TraceKind.ATIF, "agent/trajectory.json"),
    (TraceKind.CONVERSATION, "agent/conversation.jsonl"),
    (TraceKind.TRAJECTORY, "artifacts/trajectory.jsonl"),
    (TraceKind.CONVERSATION, "artifacts/conversation.jsonl"),
    (TraceKind.TRAJECTORY, f"agent/{MODEL_TRACE}"),
    (TraceKind.OUTPUT, f"agent/{OUTPUT_FILE}"),
)
"""Where harnesses leave traces in a trial, the preferred first: an agent can write what it likes
among the artifacts, and displaces nothing that its harness wrote. The trace of its recorded model
calls is used if it wrote none, and what its commands printed if there is no other."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent did, by one file."""

    kind: TraceKind
    path: str
    entries: list[Entry] = []
    """Of a trajectory or an ATIF file."""
    lines: list[int] = []
    """The line of each entry of a trajectory, counted from 1."""
    turns: tuple[Turn, ...] = ()
    """Of a conversation."""
    models: tuple[str, ...] = ()
    """Models that answered, in their order; a conversation does not name them."""
    diagnostics: list[Diagnostic] = []

    @property
    def is_usable(self) -> bool:
        """Whether it has any entry or turn."""
        return bool(self.entries or self.turns)

    @property
    def all_entries(self) -> list[Entry]:
        """Its entries; those of a conversation are made from its turns."""
        return self.entries or list(turns_to_entries(self.turns))


def load_trace_file(path: str, kind: TraceKind) -> Trace:
    """What is in one file."""
    match kind:
        case TraceKind.TRAJECTORY | TraceKind.OUTPUT:
            found = load_trajectory(path, salvage=True)
            carried = [entry.metadata.get(ATIF_KEY) for entry in found.entries if entry.metadata]
            names = [each.get("model_name") for each in carried if isinstance(each, dict)]
            return Trace(
                kind=kind,
                path=path,
                entries=found.entries,
                lines=list(found.lines),
                models=tuple(
                    dict.fromkeys(name for name in names if isinstance(name, str) and name)
                ),
                diagnostics=found.diagnostics,
            )
        case TraceKind.ATIF:
            document = load_atif(Path(path), salvage=True)
            entries, _ = to_entries(document.atif)
            answered = [step.model_name for step in document.atif.steps or () if step.model_name]
            return Trace(
                kind=kind,
                path=path,
                entries=entries,
                models=tuple(dict.fromkeys(answered)),
                diagnostics=list(document.diagnostics),
            )
        case TraceKind.CONVERSATION:
            spoken = load_conversation(path, salvage=True)
            noticed = list(spoken.diagnostics)
            return Trace(kind=kind, path=path, turns=spoken.turns, diagnostics=noticed)


def find_trace(candidates: Iterable[tuple[TraceKind, str]]) -> tuple[Trace | None, tuple[str, ...]]:
    """The first candidate with anything usable in it, and why those before it were not used.

    Candidates come with the preferred first; those that are not there are passed over in silence.
    """
    passed_over: list[str] = []
    for kind, path in candidates:
        if not os.path.lexists(path):
            continue
        try:
            trace = _find_output(path) if kind is TraceKind.OUTPUT else load_trace_file(path, kind)
        except TraceError as error:
            passed_over.append(str(error))
            continue
        # An empty file does not end the search: a harness may have written only a header.
        if trace.is_usable:
            return trace, tuple(passed_over)
        what = "turn" if kind is TraceKind.CONVERSATION else "entry"
        passed_over.append(f"{path}: no usable {what} in it")
    return None, tuple(passed_over)


def _find_output(path: str) -> Trace:
    """What commands printed, by its first entry: records name the file and take nothing from it."""
    chunks = (chunk for chunk in read_chunks(path, salvage=True) if chunk.entries)
    first = next(chunks, Chunk([], []))
    return Trace(
        kind=TraceKind.OUTPUT, path=path, entries=first.entries[:1], lines=list(first.lines[:1])
    )


class TraceReading:
    """The entries of one file, and what was noticed while they were read."""

    def __init__(self, path: str, kind: TraceKind) -> None:
        self.problems = 0
        self.noticed: list[str] = []
        self._path, self._kind = path, kind

    def entries(self) -> Iterator[Entry]:
        """The entries in their order."""
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[Sequence[Entry]]:
        """The entries in their order, many at a time."""
        match self._kind:
            case TraceKind.TRAJECTORY | TraceKind.OUTPUT:
                for chunk in read_chunks(self._path, salvage=True):
                    if chunk.diagnostics:
                        self._notice(chunk.diagnostics)
                    yield chunk.entries
            case TraceKind.CONVERSATION:
                yield from batched(turns_to_entries(self._turns()), _BATCH)
            case TraceKind.ATIF:
                trace = load_trace_file(self._path, self._kind)
                self._notice(trace.diagnostics)
                yield trace.entries

    def _turns(self) -> Iterator[Turn]:
        for item in read_turns(self._path, salvage=True):
            if isinstance(item, Diagnostic):
                self._notice([item])
            else:
                yield item

    def _notice(self, diagnostics: Iterable[Diagnostic]) -> None:
        for found in diagnostics:
            if found.is_problem:
                self.problems += 1
                if len(self.noticed) < _MOST_NOTICED:
                    self.noticed.append(str(found))
