"""Trials in harbor job directories, as rows.

No ledger is needed, nothing of a job is executed, and no link is followed. Trials that cannot be
read are listed with the reason; the others count.
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
    """A trial that cannot be read, and why."""

    place: str
    message: str


@dataclass(slots=True)
class JobTrials:
    """The trials in job directories."""

    trials: list[TrialRow] = field(default_factory=list)
    """In the order in which harbor adds them up; trials of earlier plans are set aside."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """Damaged trials, and those without a result, which may still be running."""
    notes: list[str] = field(default_factory=list)
    """Notes about the numbers."""


def load_jobs(path: str) -> JobTrials:
    """Read the job at a path, or all jobs in the directory there.

    Raises:
        JobError: there is no job.
    """
    found = JobTrials()
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
            found.trials.append(read_row(entry, status=status, place=offer.where))
    found.trials = with_restarted(found.trials)
    return found


def _is_in(place: str, directories: list[str]) -> bool:
    """Whether a trial, or a kept attempt of it, is in one of the directories."""
    return any(place == each or place.startswith(f"{each}/") for each in directories)


def entry_of(submission: Submission) -> TrialEntry:
    """The entry that a trial would be sealed as, without its evidence."""
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
