"""The attempts in plain harbor job directories: as they would be sealed, and nothing is.

No ledger is needed, nothing of a job is run, and no link is followed. A trial that cannot be read
is put down with the reason; the others count.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.errors import InputError
from proctor.exchange.harbor_job import JobOptions, find_jobs, find_trials
from proctor.ledger.counting import SET_ASIDE, UNSEALED
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import with_restarted
from proctor.ledger.row import TrialRow, read_row
from proctor.ledger.sealing import Submission


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A trial that is in no number, and why."""

    place: str
    message: str


@dataclass(slots=True)
class JobAttempts:
    """What lies in job directories."""

    attempts: list[TrialRow] = field(default_factory=list)
    """In the order in which harbor adds them up; trials of earlier plans are set aside."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """Broken ones, and those without a result that may be running."""
    notes: list[str] = field(default_factory=list)
    """What whoever reads the numbers should know."""


def load_jobs(path: str) -> JobAttempts:
    """The attempts of the job at a path, or of all jobs in the directory there.

    Raises:
        JobError: there is no job.
    """
    found = JobAttempts()
    for job in find_jobs(Path(path)):
        trials = find_trials(job, JobOptions())
        found.notes += trials.notes
        found.unreadable += [Unreadable(each.where, each.message) for each in trials.later]
        for offer in trials.offers:
            try:
                entry = entry_of(offer.submit())
            except InputError as error:
                found.unreadable.append(Unreadable(offer.where, str(error)))
                continue
            is_aside = _is_in(offer.where, trials.set_aside)
            status = SET_ASIDE if is_aside else UNSEALED
            found.attempts.append(read_row(entry, status=status, place=offer.where))
    found.attempts = with_restarted(found.attempts)
    return found


def _is_in(place: str, directories: list[str]) -> bool:
    """Whether a trial, or a kept attempt of it, lies in one of the directories."""
    return any(place == each or place.startswith(f"{each}/") for each in directories)


def entry_of(submission: Submission) -> TrialEntry:
    """What would be sealed of a trial, but for its evidence."""
    is_own = submission.own_trial is not None
    return TrialEntry(
        at="",
        seq=0,
        record=msgspec.Raw(submission.record),
        findings=submission.findings,
        score=submission.score,
        cost_basis=submission.cost_basis,
        reason_code=submission.reason_code,
        slot=submission.slot,
        source=None if is_own else submission.source,
    )
