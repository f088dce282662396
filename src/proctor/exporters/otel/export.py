"""Sealed trials to a file of OTLP JSON: one line a trial, as collectors read it from files.

A trial without a trace has one span, which says who, at what, and what it scored. A trial that was
not scored has an evaluation without a value: it is never 0.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor import __version__
from proctor.exporters.chosen import Chosen, Exported
from proctor.exporters.otel.back import flatten, is_root, read_entries, read_span, read_told
from proctor.exporters.otel.model import (
    Request,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    Span,
    write_attributes,
)
from proctor.exporters.otel.spans import TrialSpans
from proctor.exporters.placing import check_absent, new_file
from proctor.exporters.report import Report, report_path
from proctor.exporters.trials import (
    UNWRITABLE,
    ReadTrace,
    SealedTrial,
    read_traces,
    read_trials,
    say_unwritable,
    say_withheld,
    withheld_of,
)
from proctor.trajectory.entry import Object
from proctor.trajectory.loss import Loss, find_losses

_SERVICE = "proctor"


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write one line a trial to a new file.

    Raises:
        InputError: nothing is left of the trials.
        LedgerError: something is at that path, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    beside = report_path(target)
    check_absent(beside)
    withheld = withheld_of(chosen.ledger)
    with new_file(target) as file, new_file(beside) as losses:
        report = Report(losses)
        for trial in read_trials(chosen, report):
            say_withheld(trial, withheld, report)
            begin = file.tell()
            try:
                report.lose(trial.name, write_trial(file, trial, read_traces(trial)))
                report.trials += 1
            except UNWRITABLE as error:
                say_unwritable(trial, error, report)
                file.truncate(file.seek(begin))
    return report.exported(target, beside)


def write_trial(file: BinaryIO, trial: SealedTrial, traces: Sequence[ReadTrace]) -> Iterator[Loss]:
    """Write the line of a trial, and give what it does not say: each span is read as it is written.

    Raises:
        RecursionError, UnicodeEncodeError: no JSON can be made of it; half a line is there.
    """
    spans = TrialSpans(trial, traces)
    comparison = _Comparison(trial, traces)
    before, between, after = _render_frame()
    file.write(before)
    for number, span in enumerate(spans):
        data = msgspec.json.encode(span)
        file.write(between + data if number else data)
        yield from comparison.find_lost(read_span(data))
    file.write(after)
    yield from comparison.find_missing()
    if spans.timeless:
        why = "they do not say when they happened: they stand in order at the last known time"
        yield Loss("entries", f"{spans.timeless}", why)


def _render_frame() -> tuple[bytes, bytes, bytes]:
    """What stands before, between and after the spans of a line."""
    source = write_attributes({"service.name": _SERVICE, "service.version": __version__})
    ours = ScopeSpans(scope=Scope(_SERVICE, __version__), spans=[])
    resource = ResourceSpans(resource=Resource(source), scope_spans=[ours])
    before, bracket, after = msgspec.json.encode(Request(resource_spans=[resource])).rpartition(
        b"[]"
    )
    return before + bracket[:1], b",", bracket[1:] + after + b"\n"


class _Comparison:
    """Holds what was written of a trial against what is sealed."""

    def __init__(self, trial: SealedTrial, traces: Sequence[ReadTrace]) -> None:
        self._trial = trial
        self._traces = {trace.part: trace for trace in traces}
        self._seen: set[tuple[str, int]] = set()

    def find_lost(self, span: Span) -> Iterator[Loss]:
        """What a span does not say of what it stands for."""
        if is_root(span):
            yield from find_losses(self._trial.told(), read_told(span))
        for part, place, entry in read_entries(span):
            if (part, place) not in self._seen:
                self._seen.add((part, place))
                yield from self._compare(part, place, entry)

    def find_missing(self) -> Iterator[Loss]:
        """What no span stands for."""
        for part, trace in self._traces.items():
            yield from trace.losses
            for place in range(len(trace.entries)):
                if (part, place) not in self._seen:
                    yield from self._compare(part, place, {})

    def _compare(self, part: str, place: int, kept: Object) -> Iterator[Loss]:
        at = f"entries of {part}" if part else "entries"
        entry = flatten(self._traces[part].entries[place])
        return find_losses(entry, kept, f"{at}[{place}]")
