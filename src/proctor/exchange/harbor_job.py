"""Import a harbor job directory, trial by trial, in the order in which harbor adds them up.

    <job>/…             the job's own files are sealed with each of its trials
    <job>/<trial>/…     a trial; if proctor ran it, its own record.json is used
    …/attempts/N/…      an earlier attempt that was kept is a separate trial

A trial without a result was killed, or is still running; in an unfinished job no file says which,
so it is left for later unless the caller says that the job is over. Nothing in a job is run, no
link is followed, and nothing is sealed here.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from proctor.errors import JobError, NotSealedError
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.exchange.intake import Later, Offer, refuse
from proctor.exchange.trial_sources import ReadBefore
from proctor.harbor.documents import LockDocument, is_trial, load_lock
from proctor.harbor.job import Job, Watch, load_job
from proctor.harbor.trial import FoundTrial
from proctor.ledger.entry import Source
from proctor.ledger.keeping import JobFiles
from proctor.ledger.sealing import Submission
from proctor.ledger.submission import (
    TrialContext,
    has_record,
    list_attempts,
    list_files,
    submit_record,
    submit_trial,
)
from proctor.record.ids import check_id, make_id, shown_name
from proctor.record.read import render_record
from proctor.sentence import count_of

_OF_A_JOB = ("lock.json", "job.log", "result.json", "config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options for importing jobs."""

    experiment: str | None = None
    """None: the job's own name."""
    dataset_id: str | None = None
    is_over: bool = False
    """Whether trials without a result are known not to be running."""


@dataclass(slots=True)
class FoundJob:
    """The contents of one job."""

    offers: list[Offer] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    """Trial directories of earlier plans, according to the job; they are offered too."""
    job: Job | None = None
    """The job as it was loaded; None if it could not be."""


def find_jobs(path: Path) -> list[Path]:
    """Return the job at a path, or the jobs in the directory there."""
    if not path.is_dir() or _is_job(path) or is_trial(str(path)):
        return [path]  # loading it reports what it is
    try:
        inside = sorted(each for each in path.iterdir() if not each.is_symlink() and _is_job(each))
    except OSError:
        return [path]
    return inside or [path]


def holds_jobs(path: Path) -> bool:
    """Whether a directory is a job, a trial, or a directory of jobs."""
    return is_trial(str(path)) or any(map(_is_job, find_jobs(path)))


def _is_job(path: Path) -> bool:
    has_files = any(os.path.lexists(path / name) for name in _OF_A_JOB)
    return path.is_dir() and has_files and not is_trial(str(path))


def find_trials(path: Path, options: JobOptions, watch: Watch | None = None) -> FoundJob:
    """Find the trials of a job."""
    if options.experiment is not None:
        check_id(options.experiment, "experiment")
    job = load_job(str(path), watch=watch)
    # Resolve, since `.` and links have other names than their target.
    name = shown_name(path.resolve().name)
    around, refused = _find_around(job)
    reader = _Reader(
        job=path,
        name=name,
        experiment=options.experiment or make_id(name),
        options=options,
        lock=_load_lock(str(path)),
        around=around,
    )
    found = FoundJob(notes=_find_notes(job, refused), set_aside=job.set_aside, job=job)
    scored = {each.directory: each for each in job.trials}
    places = dict.fromkeys(_list_trials(job, found, is_over=options.is_over))
    for seq, place in enumerate(places):
        found.offers += reader.offer(Path(place), seq, scored.get(place))
    return found


def _load_lock(job: str) -> LockDocument | None:
    try:
        return load_lock(job)
    except JobError as error:
        raise JobError(
            f"{error}; copy the job again, or remove the file: its trials are then imported "
            "without what it pins"
        ) from error


def _list_trials(job: Job, found: FoundJob, *, is_over: bool) -> Iterator[str]:
    """List the directories to read; trials that may be running are added to `later`."""
    yield from (each.directory for each in job.trials)
    yield from job.set_aside
    yield from (each.path for each in job.broken)
    for path in job.unfinished:
        if job.finished or is_over:
            yield path
        else:
            found.later.append(
                Later(
                    path,
                    f"{path}: has no result.json, and the job is not marked as finished: it may be "
                    "running; import again when it is over, or with --killed if it was killed",
                )
            )


def _find_around(job: Job) -> tuple[JobFiles, list[str]]:
    """List the job's own files, and entries that are not regular files."""
    trials = {each.directory for each in job.trials} | {each.path for each in job.broken}
    trials |= {*job.unfinished, *job.set_aside}
    names = {os.path.split(path)[1] for path in trials}
    files, refused = list_files(job.directory, names)
    # A trial that is a link is refused as a trial, not as a file of the job.
    refused = [name for name in refused if name not in names]
    return JobFiles(Path(job.directory), tuple(files)), refused


def _find_notes(job: Job, refused: list[str]) -> list[str]:
    notes = [problem.message for problem in job.problems]
    if not job.finished:
        notes.append(
            f"{job.directory}: result.json does not mark the job as finished: it is running, "
            "or was stopped"
        )
    there = len(job.trials) + len(job.unfinished) + len(job.broken)
    if there < job.n_planned:
        notes.append(f"{job.directory}: {job.n_planned:,} trials were planned, {there:,} exist")
    retries = job.published.count("n_retries") if job.published else 0
    kept = sum(map(_count_kept, job.trials)) if retries else 0
    if retries > kept:
        notes.append(
            f"{job.directory}: harbor retried {count_of(retries, 'time')} and kept "
            f"{kept:,} of those attempts; deleted attempts are in no record"
        )
    if refused:
        shown = ", ".join(map(shown_name, refused[:3]))
        notes.append(
            f"{job.directory}: {count_of(len(refused), 'file')} of the job itself cannot be "
            f"evidence (links, devices, names that are not plain text): {shown}"
        )
    return notes


def _count_kept(trial: FoundTrial) -> int:
    with contextlib.suppress(NotSealedError):  # reported when the trial is read
        return len(list_attempts(Path(trial.directory)))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Settings shared by the trials of one job."""

    job: Path
    name: str
    experiment: str
    options: JobOptions
    lock: LockDocument | None
    around: JobFiles

    def offer(self, trial: Path, seq: int, scored: FoundTrial | None) -> list[Offer]:
        """Offer a trial, preceded by its kept attempts."""
        if trial.is_symlink():
            return [Offer(str(trial), partial(_refuse_link, trial))]
        try:
            kept = [self._offer_attempt(each, seq) for each in list_attempts(trial)]
        except NotSealedError as error:
            return [Offer(str(trial), partial(refuse, error))]
        return [*kept, Offer(str(trial), partial(self.submit, trial, seq, scored))]

    def _offer_attempt(self, attempt: Path, seq: int) -> Offer:
        if attempt.is_symlink():
            return Offer(str(attempt), partial(_refuse_link, attempt))
        return Offer(str(attempt), partial(self.submit, attempt, seq))

    def submit(self, trial: Path, seq: int, scored: FoundTrial | None = None) -> Submission:
        """Read one trial."""
        name = f"{self.name}/{shown_name(str(trial.relative_to(self.job)))}"
        context = TrialContext(
            source=Source(kind="harbor", name=name, seq=seq),
            job_files=self.around,
            found=scored,
        )
        if has_record(trial):
            own = submit_trial(trial, experiment=self.options.experiment, context=context)
            return replace(own, own_trial=trial.relative_to(self.job).parts[0])
        request = RecordRequest(
            trial=str(trial), experiment=self.experiment, dataset_id=self.options.dataset_id
        )
        record, basis = make_record(request, ReadBefore(self.lock, scored))
        return submit_record(render_record(record), trial, replace(context, cost_basis=basis.kind))


def _refuse_link(trial: Path) -> Submission:
    raise NotSealedError(
        f"{trial}: is a link, which is not followed; import the job that contains the trial"
    )
