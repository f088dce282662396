"""`proctor show` of a record or a trial directory. Separate, because records are slow to import."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.audit.file_kind import FileKind
from proctor.cli.output import page, print_json
from proctor.cli.showing.changes import ChangedTrial, render_summary, show_changes
from proctor.cli.showing.options import ShowOptions
from proctor.cli.showing.trace import (
    Source,
    View,
    describe_traces,
    show_traces,
    warn_if_empty,
)
from proctor.cli.showing.trial_text import LABEL, cut_line, render_failures, render_record_fields
from proctor.cli.stdout import send_bytes
from proctor.exchange.traced_files import find_in_files
from proctor.files import read_input
from proctor.record.model import TrialRecord
from proctor.record.read import LoadedRecord, load_record
from proctor.record.rules import explain_partial, find_missing
from proctor.sentence import printable
from proctor.traces.failures import TrialFailures, read_failures
from proctor.traces.traced_trial import TracedTrial, opened_traces
from proctor.trial.change_record import CHANGES, CLEAN_ROOM

_BESIDE = (CHANGES, CLEAN_ROOM, "steps")


def render_record_text(loaded: LoadedRecord, dataset: str | None = None) -> Iterator[str]:
    """Render a record in lines, without its input files; `dataset` if the record has none."""
    record = loaded.record
    yield f"{record.trial_id}, {record.completeness}, of experiment {record.experiment_id}"
    fields = render_record_fields(record.model_dump(mode="json"), dataset=dataset)
    yield from (f"  {label:<{LABEL}}  {cut_line(text)}" for label, text in fields)
    for error in record.evaluation.validity.errors:
        yield f"  error  {cut_line(error)}"
    yield from (f"  not complete: {why}" for why in explain_partial(record))
    for found in loaded.diagnostics:
        yield f"  {'problem' if found.is_problem else 'note'}: {found}"


def render_inputs(record: TrialRecord) -> Iterator[str]:
    """Render the digests of the task's files."""
    for file in record.inputs.input_files or ():
        yield f"  input  {file.hash}  {file.path}"


def show_record(path: str, options: ShowOptions) -> None:
    """Print a record."""
    if options.raw:
        send_bytes(read_input(path))
        return
    loaded = load_record(Path(path), salvage=True)
    if options.as_json:
        print_json({"thing": str(FileKind.RECORD), "path": path, **_describe(loaded)})
    else:
        page(lambda: _render_record(path, loaded), is_wanted=options.paged)


def _render_record(path: str, loaded: LoadedRecord) -> Iterator[str]:
    place = Path(path)
    # A record outside of a trial has no trial files beside it.
    is_in_trial = place.name == "record.json" and (place.parent / "config.json").exists()
    if is_in_trial:
        yield from _render_failures(_find_trial(path), place.parent)
    dataset = _find_trial(path).dataset if is_in_trial else None
    yield from map(printable, render_record_text(loaded, dataset))
    if place.name == "record.json" and any((place.parent / name).exists() for name in _BESIDE):
        yield from map(printable, render_summary(_changed(_find_trial(path))))
    yield from map(printable, render_inputs(loaded.record))


def _render_failures(trial: TracedTrial, directory: Path) -> Iterator[str]:
    yield from map(printable, render_failures(_failures_of(trial), lambda f: str(directory / f)))


def _failures_of(trial: TracedTrial) -> TrialFailures:
    return read_failures(trial, trial.record.evaluation.reward if trial.record else None)


def show_changes_of(path: str, options: ShowOptions) -> None:
    """Print what the agent changed in the trial of this directory or record."""
    show_changes(_changed(_find_trial(path)), options)


def _find_trial(path: str) -> TracedTrial:
    # Kept attempts come before the trial itself.
    *_, trial = find_in_files(path)
    return trial


def _changed(trial: TracedTrial) -> ChangedTrial:
    return ChangedTrial(
        name=trial.name,
        files=trial.files,
        open_file=trial.open_file,
        findings=trial.findings,
        reward=trial.record.evaluation.reward if trial.record is not None else None,
    )


def _describe(loaded: LoadedRecord) -> dict[str, object]:
    return {
        "generation": loaded.generation,
        "record": loaded.record.model_dump(mode="json"),
        "missing": [msgspec.to_builtins(each) for each in find_missing(loaded.record)],
        "diagnostics": [msgspec.to_builtins(each) for each in loaded.diagnostics],
    }


def show_trial(path: str, options: ShowOptions) -> None:
    """Print a trial's record and its traces, or the selected steps."""
    # Kept attempts come before the trial itself.
    *attempts, trial = find_in_files(path)

    @contextlib.contextmanager
    def sources() -> Iterator[list[Source]]:
        with opened_traces(trial, with_output=True) as found:
            yield [
                Source(each.kind, each.path, each.name, each.part, each.passed_over)
                for each in found
            ]

    if not options.as_json:
        show_traces(
            path,
            sources,
            options,
            head=lambda: _render_head(path, trial, attempts),
            tail=lambda: map(printable, render_inputs(trial.record) if trial.record else ()),
        )
        return
    view = View(options.selection, options.full)
    print_json(
        {
            "thing": str(FileKind.TRIAL),
            "path": trial.name,
            "record": None if trial.record is None else trial.record.model_dump(mode="json"),
            "problem": trial.problem,
            "failures": msgspec.to_builtins(_failures_of(trial)),
            "traces": describe_traces(trial.name, sources, options, view),
        }
    )
    warn_if_empty(trial.name, view)


def _render_head(path: str, trial: TracedTrial, attempts: list[TracedTrial]) -> Iterator[str]:
    yield from _render_failures(trial, Path(path))
    if trial.record is None:
        yield printable(f"{trial.name}: no record: {trial.problem}")
    else:
        loaded = LoadedRecord(generation="G1", record=trial.record, original=b"", document={})
        yield from map(printable, render_record_text(loaded, trial.dataset))
    yield from map(printable, render_summary(_changed(trial)))
    for attempt in attempts:
        yield printable(f"  earlier attempt  {attempt.name}")
