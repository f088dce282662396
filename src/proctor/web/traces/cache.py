"""Cache of recently viewed traces: their lines and what is known of their entries.

It is bounded by the number of traces, of entries and of temporary copies. Every request identifies
the contents it means, so changed files are read again.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property
from typing import Final

from proctor.ledger.derived import find_cache
from proctor.ledger.step_parts import find_sealed_parts
from proctor.traces.traced_trial import FoundTrace, Part, open_parts
from proctor.web.traces.index import Labels, TraceIndex, build_index, label_turns
from proctor.web.traces.lines import (
    CopiedLines,
    FileLines,
    Lines,
    SealedLines,
    copy_entries,
    copy_lines,
    stamp_of,
)
from proctor.web.traces.place import Stamp, TracePlace
from proctor.web.traces.rows import find_start

_MOST_TRIALS = 24
# Most entries indexed in total: about 15 bytes each.
_MOST_ENTRIES = 4_000_000
_MOST_COPIED = 1 << 30
# Traces that are indexed at the same time.
_AT_ONCE = 2


class CachedTrace:
    """One trace, and what is known of it so far."""

    def __init__(self, found: FoundTrace, lines: Lines) -> None:
        self.part, self.kind = found.part, found.kind
        self.file, self.passed_over = found.name, found.passed_over
        self.lines = lines
        self.index: Future[TraceIndex] = Future()
        self.labels: Future[Labels] = Future()
        self._begun = threading.Lock()

    @cached_property
    def start(self) -> str | None:
        """The first timestamp."""
        return find_start(self.lines)

    @property
    def problems(self) -> int:
        """Number of problems found while the file was copied."""
        return self.lines.problems if isinstance(self.lines, CopiedLines) else 0

    @property
    def noticed(self) -> tuple[str, ...]:
        """The first of those problems."""
        return self.lines.noticed if isinstance(self.lines, CopiedLines) else ()

    def begin(self, turn: threading.Semaphore) -> None:
        """Start indexing it, once, when there is a free slot."""
        if self._begun.acquire(blocking=False):
            # A daemon thread, so that the program can exit without waiting for it.
            threading.Thread(target=self._read, args=(turn,), daemon=True).start()

    def _read(self, turn: threading.Semaphore) -> None:
        with turn:
            self._read_now()

    def _read_now(self) -> None:
        try:
            self.index.set_result(build_index(self.lines))
            self.labels.set_result(label_turns(self.lines))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            for waited in (self.index, self.labels):
                if not waited.done():
                    waited.set_exception(error)

    @property
    def weight(self) -> int:
        """Number of indexed entries."""
        done = self.index.done() and self.index.exception() is None
        return len(self.index.result()) if done else 0


class TraceCache:
    """The most recently viewed traces."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._kept: OrderedDict[str, tuple[Stamp, list[CachedTrace]]] = OrderedDict()
        self._turn = threading.Semaphore(_AT_ONCE)

    def find(self, place: TracePlace) -> list[CachedTrace]:
        """The traces of a trial; empty if it has none."""
        with self._lock:
            opening = self._opening.setdefault(place.key, threading.Lock())
        # Many requests may ask for a new trial at once: one of them opens it.
        with opening:
            found = self._recall(place)
            if found is None:
                found = list(open_traces(place))
                self._keep(place, found)
            return found

    def index_of(self, trace: CachedTrace) -> TraceIndex:
        """The index of a trace; waits until it is complete."""
        trace.begin(self._turn)
        return trace.index.result()

    def forget(self, place: TracePlace) -> None:
        """Drop a trial from the cache."""
        with self._lock:
            self._kept.pop(place.key, None)

    def _recall(self, place: TracePlace) -> list[CachedTrace] | None:
        with self._lock:
            stamp, traces = self._kept.get(place.key, (None, []))
            if stamp != place.stamp:
                return None
            self._kept.move_to_end(place.key)
            return traces

    def _keep(self, place: TracePlace, found: list[CachedTrace]) -> None:
        with self._lock:
            self._kept[place.key] = (place.stamp, found)
            self._kept.move_to_end(place.key)
            # The newest always stays: it is being viewed, however large it is.
            while len(self._kept) > 1 and self._is_too_much():
                gone, _ = self._kept.popitem(last=False)
                self._opening.pop(gone, None)

    def _is_too_much(self) -> bool:
        every = [trace for _, traces in self._kept.values() for trace in traces]
        return (
            len(self._kept) > _MOST_TRIALS
            or sum(trace.weight for trace in every) > _MOST_ENTRIES
            or sum(trace.lines.held for trace in every) > _MOST_COPIED
        )


CACHE: Final = TraceCache()
"""The instance of this process."""


def open_traces(place: TracePlace) -> Iterator[CachedTrace]:
    """Open the traces of a trial, bypassing the cache."""
    for part in place.parts:
        large = _open_large(place, part)
        if large is not None:
            yield large
            continue
        # Copy while the file is open, so that it is not unpacked again for every step.
        with ExitStack() as stack:
            for found in open_parts([part], place.open_file, stack):
                yield CachedTrace(found, _find_lines(found, is_sealed=place.is_sealed))


def _open_large(place: TracePlace, part: Part) -> CachedTrace | None:
    sha256 = place.find_large(part)
    if sha256 is None or place.artifacts is None:
        return None
    parts = find_sealed_parts(place.artifacts, sha256, find_cache(os.environ))
    if parts is None:
        return None
    kind, name = part.candidates[0]
    found = FoundTrace(part=part.name, kind=kind, name=name, path="", passed_over=())
    return CachedTrace(found, SealedLines(place.artifacts, sha256, parts))


def _find_lines(found: FoundTrace, *, is_sealed: bool) -> Lines:
    if not found.kind.is_lines:
        return copy_entries(found.path, found.kind)
    if is_sealed:
        return copy_lines(found.path)
    return FileLines(found.path, stamp_of(os.stat(found.path)))  # noqa: PTH116 - a path as text
