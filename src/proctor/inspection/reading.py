"""A trace file to its summary: trajectories and conversations as streams, ATIF as a document.

Reading is the salvaging kind: what is wrong with the file is counted and said, never raised.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import batched
from typing import Final, Protocol

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.inspection.summary import Summing, TraceSummary
from proctor.trajectory.conversation import read_turns
from proctor.trajectory.entry import Entry
from proctor.trajectory.read import read_chunks
from proctor.trajectory.spoken import turns_to_entries
from proctor.trajectory.trace import TraceKind, load_trace_file
from proctor.trajectory.turn import Turn

_MOST_NOTICED: Final = 5
_BATCH: Final = 256


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


class TraceReading:
    """The entries of one file, and what was noticed while they were read."""

    def __init__(self, path: str, kind: TraceKind) -> None:
        self.problems = 0
        self.noticed: list[str] = []
        self._path, self._kind = path, kind

    def batches(self) -> Iterator[Sequence[Entry]]:
        """The entries in their order, many at a time.

        Raises:
            TraceError: the file cannot be read at all.
        """
        match self._kind:
            case TraceKind.TRAJECTORY:
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
