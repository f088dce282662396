"""A record, or a trial in a directory, for `proctor show`: apart, because records load slowly."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.audit.things import Thing
from proctor.cli.output import print_json
from proctor.cli.pager import page
from proctor.cli.printable import printable
from proctor.cli.record_text import render_record_text
from proctor.cli.show_changes import ChangedTrial, render_summary, show_changes
from proctor.cli.show_trace import Source, describe_trace
from proctor.cli.showing import Showing, Sources, Wish, choose_part, tell_if_empty
from proctor.cli.stdout import send_bytes
from proctor.errors import InputError
from proctor.exchange.traced_files import find_in_files
from proctor.files import read_small
from proctor.record.read import LoadedRecord, load_record
from proctor.record.rules import find_missing
from proctor.traces.traced_trial import TracedTrial, opened_traces
from proctor.trial.change_files import CHANGES, CLEAN_ROOM

_BESIDE = (CHANGES, CLEAN_ROOM, "steps")


def show_record(path: str, wish: Wish) -> None:
    """Print a record.

    Raises:
        InputError: it cannot be read.
    """
    if wish.raw:
        send_bytes(_read(path))
        return
    loaded = load_record(Path(path), salvage=True)
    if wish.as_json:
        print_json({"thing": str(Thing.RECORD), "path": path, **_describe(loaded)})
    else:
        page(lambda: _render_record(path, loaded), is_wanted=wish.paged)


def _render_record(path: str, loaded: LoadedRecord) -> Iterator[str]:
    yield from map(printable, render_record_text(loaded))
    place = Path(path)
    # A record elsewhere has no trial around it, and what lies beside it is not its own.
    if place.name == "record.json" and any((place.parent / name).exists() for name in _BESIDE):
        yield from map(printable, render_summary(_changed(_find_trial(path))))


def show_changes_of(path: str, wish: Wish) -> None:
    """Print what the agent changed in a trial, of which this is the directory or the record.

    Raises:
        InputError: it cannot be read; there is no such part.
    """
    show_changes(_changed(_find_trial(path)), wish)


def _find_trial(path: str) -> TracedTrial:
    # Attempts that were kept come before the trial itself.
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


def _read(path: str) -> bytes:
    try:
        return read_small(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def show_trial(path: str, wish: Wish) -> None:
    """Print a trial's record and its traces, or the steps of them that are wanted.

    Raises:
        InputError: it cannot be read; there is no such part.
    """
    # Attempts that were kept come before the trial itself.
    *attempts, trial = find_in_files(path)

    @contextlib.contextmanager
    def sources() -> Iterator[list[Source]]:
        with opened_traces(trial) as found:
            yield [
                Source(each.kind, each.path, each.name, each.part, each.passed_over)
                for each in found
            ]

    if wish.as_json:
        _print_trial(trial, wish, sources)
    else:
        Showing(path, sources, wish, head=lambda: _render_head(trial, attempts)).print()


def _render_head(trial: TracedTrial, attempts: list[TracedTrial]) -> Iterator[str]:
    if trial.record is None:
        yield printable(f"{trial.name}: no record: {trial.problem}")
    else:
        loaded = LoadedRecord(generation="G1", record=trial.record, original=b"")
        yield from map(printable, render_record_text(loaded))
    yield from map(printable, render_summary(_changed(trial)))
    for attempt in attempts:
        yield printable(f"  earlier attempt  {attempt.name}")


def _print_trial(trial: TracedTrial, wish: Wish, sources: Sources) -> None:
    view = wish.view()
    with sources() as found:
        traces = [
            {"part": source.part, **describe_trace(source, view)}
            for source in choose_part(trial.name, found, wish.selection.part)
        ]
    record = None if trial.record is None else trial.record.model_dump(mode="json")
    print_json(
        {
            "thing": str(Thing.TRIAL),
            "path": trial.name,
            "record": record,
            "problem": trial.problem,
            "traces": traces,
        }
    )
    tell_if_empty(trial.name, view)
