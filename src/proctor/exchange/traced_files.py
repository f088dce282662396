"""Find trials with traces in files and directories: a trace, a record, a trial or a job."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from proctor.audit.file_kind import TRACES, FileKind, find_file_kind
from proctor.errors import InputError, JobError
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.harbor.documents import STATE
from proctor.ledger.counting import RESTARTED, SET_ASIDE
from proctor.ledger.row import find_dataset, find_reason
from proctor.ledger.sealing import Submission
from proctor.ledger.submission import ATTEMPTS
from proctor.record.comparable import find_requested_model
from proctor.record.ids import make_id
from proctor.record.read import parse_record
from proctor.traces.entry import TraceKind
from proctor.traces.traced_trial import Opened, TracedTrial


def find_in_files(path: str) -> Iterator[TracedTrial]:
    """Find every trial at a path; one that cannot be read has its problem attached.

    Raises:
        InputError: nothing at the path can have a trace.
    """
    thing = find_file_kind(path)
    if thing in TRACES:
        yield _lone_trace(path, TraceKind(str(thing)))
    elif thing in (FileKind.TRIAL, FileKind.RECORD):
        yield from _trials_at(Path(path))
    elif thing is FileKind.JOB:
        yield from _trials_of_job(Path(path))
    else:
        raise InputError(f"{path}: a {thing}; expected a trace, a trial, a record or a job")


def list_places(path: str) -> list[str]:
    """List the trials of a job, or the path itself: each can be inspected on its own."""
    if find_file_kind(path) is not FileKind.JOB:
        return [path]
    return [str(place) for place in _places_of(Path(path))]


def _lone_trace(path: str, kind: TraceKind) -> TracedTrial:
    place = Path(path)
    return TracedTrial(
        name=path, files=(place.name,), open_file=_Directory(place.parent).open, lone=kind
    )


def _trials_of_job(job: Path) -> Iterator[TracedTrial]:
    aside = find_set_aside(str(job))
    for place in _places_of(job):
        for trial in _trials_at(place):
            yield replace(trial, status=SET_ASIDE) if str(place) in aside else trial


def find_set_aside(path: str) -> frozenset[str]:
    """Trials of earlier plans of the job at a path, according to its proctor.json."""
    try:
        return frozenset(
            str(Path(path, each.trial)) for each in STATE.load(f"{path}/proctor.json").unplanned
        )
    except JobError:
        return frozenset()  # `audit` reports it


def _places_of(job: Path) -> list[Path]:
    places = sorted(
        each
        for each in job.iterdir()
        if each.is_dir()
        and any((each / name).is_file() for name in ("result.json", "config.json", "trial.log"))
    )
    if not places:
        raise InputError(f"{job}: a job without trials; expected one directory per trial in it")
    return places


def _trials_at(path: Path) -> Iterator[TracedTrial]:
    experiment = make_id(path.resolve().parent.name) if path.is_dir() else None
    try:
        for submission in find_submissions(path, SealOptions(experiment=experiment)):
            is_attempt = Path(submission.where).parent == path / ATTEMPTS
            yield replace(_traced(submission), status=RESTARTED if is_attempt else "")
    except InputError as error:
        yield _without_record(path, str(error))


def _traced(submission: Submission) -> TracedTrial:
    root = submission.root or Path(submission.where).parent
    record = parse_record(submission.record, submission.where, salvage=True).record
    agent, evaluation = record.agent, record.evaluation
    models = find_requested_model(agent.configuration or {}), agent.model
    return TracedTrial(
        name=submission.where,
        files=submission.evidence,
        open_file=_Directory(root).open,
        record=record,
        dataset=record.dataset_id or find_dataset(submission.score, agent.adapter, *models),
        reason_code=find_reason(submission, evaluation.reward, evaluation.breakdown),
        findings=submission.findings,
    )


def _without_record(path: Path, problem: str) -> TracedTrial:
    """A trial that was killed early or copied incompletely: its traces may still exist."""
    root = path if path.is_dir() else path.parent
    files = [
        (Path(folder) / name).relative_to(root).as_posix()
        for folder, _, names in os.walk(root)
        for name in sorted(names)
    ]
    return TracedTrial(
        name=str(path), files=tuple(files), open_file=_Directory(root).open, problem=problem
    )


class _Directory:
    """Files in a directory, read in place."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, name: str) -> Opened:
        """Return the path of a file."""
        return contextlib.nullcontext(str(self._root / name))
