"""Sealed trials to a file of OTLP JSON: one line a trial, as collectors read it from files.

A trial without a trace has one span, which says who, at what, and what it scored. A trial that was
not scored has an evaluation without a value: it is never 0.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from proctor import __version__
from proctor.exporters.chosen import Chosen, Exported
from proctor.exporters.otel.back import flatten, read_back
from proctor.exporters.otel.model import (
    Request,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    Span,
    write_attributes,
)
from proctor.exporters.otel.spans import Made, make_spans
from proctor.exporters.placing import check_absent, new_file
from proctor.exporters.report import Report, report_path
from proctor.exporters.trials import (
    ReadTrace,
    SealedTrial,
    read_traces,
    read_trials,
    say_withheld,
    withheld_of,
    writable,
)
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
            with writable(trial, report):
                traces = read_traces(trial)
                made = make_spans(trial, traces)
                line = render_spans(made.spans)
                report.lose(trial.name, _find_lost(trial, traces, made, line))
                file.write(line + b"\n")
                report.trials += 1
    return report.exported(target, beside)


def render_spans(spans: list[Span]) -> bytes:
    """Spans as one line, without its end."""
    source = write_attributes({"service.name": _SERVICE, "service.version": __version__})
    ours = ScopeSpans(scope=Scope(_SERVICE, __version__), spans=spans)
    resource = ResourceSpans(resource=Resource(source), scope_spans=[ours])
    return msgspec.json.encode(Request(resource_spans=[resource]))


def _find_lost(
    trial: SealedTrial, traces: Sequence[ReadTrace], made: Made, line: bytes
) -> Iterator[Loss]:
    back = read_back(line)
    yield from find_losses(trial.told(), back.told)
    for trace in traces:
        yield from trace.losses
        kept = back.parts.get(trace.part, {})
        at = f"entries of {trace.part}" if trace.part else "entries"
        for place, entry in enumerate(flatten(trace.entries)):
            yield from find_losses(entry, kept.get(place, {}), f"{at}[{place}]")
    if made.timeless:
        why = "they do not say when they happened: they stand in order at the last known time"
        yield Loss("entries", f"{made.timeless}", why)
