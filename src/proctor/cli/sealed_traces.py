"""The traces of a sealed trial, for `proctor show`; every byte that is shown was checked.

A file is unpacked to a temporary copy and held against the digest that was sealed. Of a large
trajectory only parts are unpacked where steps are asked for (see ledger/step_parts.py).
"""

import contextlib
import os
from collections.abc import Iterator, Mapping

import msgspec

from proctor.cli.selection import Selection
from proctor.cli.show_trace import Source
from proctor.ledger.derived import find_cache
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.ledger import Ledger
from proctor.ledger.step_parts import LARGE, read_sealed_steps
from proctor.ledger.traced_trials import unpacked
from proctor.traces.entry import TraceKind
from proctor.traces.traced_trial import Named, Opened, Part, find_parts, open_parts, order_parts


class _Outputs(msgspec.Struct, frozen=True):
    """What a record calls its traces; it was checked when it was sealed."""

    trajectory_path: str | None = None
    conversation_path: str | None = None


class _Record(msgspec.Struct, frozen=True):
    outputs: _Outputs = _Outputs()


@contextlib.contextmanager
def sealed_traces(
    ledger: Ledger, entry: TrialEntry, selection: Selection
) -> Iterator[list[Source]]:
    """The traces of a trial, the steps in their order; empty where it left none.

    Raises:
        DamageError: evidence is altered.
    """
    kept = {file.path: file for file in entry.evidence if ledger.artifacts.holds(file.sha256)}
    outputs = _find_outputs(entry)
    named = Named(outputs.trajectory_path, outputs.conversation_path)

    def open_file(name: str) -> Opened:
        return unpacked(ledger.artifacts, kept[name])

    with contextlib.ExitStack() as stack:
        sources = []
        for part in order_parts(find_parts(tuple(kept), named), kept, open_file):
            quick = _find_quickly(ledger, part, kept, selection)
            if quick is not None:
                sources.append(quick)
                continue
            sources += [
                Source(each.kind, each.path, each.name, each.part, each.passed_over)
                for each in open_parts([part], open_file, stack)
            ]
        yield sources


def _find_outputs(entry: TrialEntry) -> _Outputs:
    try:
        return msgspec.json.decode(entry.record, type=_Record).outputs
    except msgspec.MsgspecError:
        return _Outputs()


def _find_quickly(
    ledger: Ledger, part: Part, kept: Mapping[str, EvidenceFile], selection: Selection
) -> Source | None:
    """The steps wanted of a large trajectory, where all of it need not be unpacked."""
    if selection.steps is None or not part.candidates:
        return None
    kind, name = part.candidates[0]
    if kind is not TraceKind.TRAJECTORY or kept[name].size < LARGE:
        return None
    cache = find_cache(os.environ)
    steps = read_sealed_steps(ledger.artifacts, kept[name].sha256, selection.steps, cache)
    return None if steps is None else Source(kind, "", name, part.name, steps=steps)
