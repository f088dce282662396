"""Trials in harbor job directories, as rows.

No ledger is needed, nothing of a job is executed, and no link is followed. Trials that cannot be
read are listed with the reason; the others count.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.errors import InputError
from proctor.exchange.harbor_job import FoundJob, JobOptions, find_jobs, find_trials
from proctor.harbor.record import NO_MODEL, find_model, find_reward
from proctor.harbor.trial import FoundTrial
from proctor.ledger.counting import RESTARTED, SET_ASIDE, UNSEALED
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import with_restarted
from proctor.ledger.row import NOT_IN_A_LOG, TrialRow, read_row
from proctor.ledger.sealing import Submission
from proctor.record.model import TimingRecord


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
    """Trials without a result, which may still be running, or with one that cannot be read."""
    notes: list[str] = field(default_factory=list)
    """Notes about the numbers."""


def load_jobs(path: str) -> JobTrials:
    """Read the job at a path, or all jobs in the directory there."""
    found = JobTrials()
    for job in find_jobs(Path(path)):
        trials = find_trials(job, JobOptions())
        found.notes += trials.notes
        found.unreadable += [Unreadable(each.where, each.message) for each in trials.later]
        unread = _find_unread(trials)
        for offer in trials.offers:
            if offer.where in unread:
                found.unreadable.append(Unreadable(offer.where, unread[offer.where]))
                continue
            try:
                entry = entry_of(offer.submit())
            except InputError as error:
                found.unreadable.append(Unreadable(offer.where, str(error)))
                continue
            status = UNSEALED
            if _is_in(offer.where, trials.set_aside):
                status = SET_ASIDE
            elif _is_in(offer.where, unread):
                status = RESTARTED
            found.trials.append(read_row(entry, status=status, place=offer.where))
    found.trials = with_restarted(found.trials)
    return found


def _find_unread(found: FoundJob) -> dict[str, str]:
    """Trials without a usable result, with the reason: no number has them, as in a score."""
    if found.job is None:
        return {}
    broken = {each.path: each.message for each in found.job.broken}
    killed = {path: f"{path}: has no result.json: it was killed" for path in found.job.unfinished}
    return broken | killed


def make_row(
    found: FoundTrial,
    experiment: str,
    *,
    name: str,
    status: str = UNSEALED,
    timing: TimingRecord | None = None,
) -> TrialRow:
    """The row of a trial by its result.json and reward files alone.

    For pages of running jobs, and for trials of which no record can be made: a record takes reading
    the whole trace. Its model is the requested one, its cost the one that the agent reported.
    """
    trial, document = found.trial, found.document
    timing = timing or TimingRecord(total_seconds=0.0)
    model = find_model(document.config.agent.model_name, document.agent_info.model_info)
    return TrialRow(
        NOT_IN_A_LOG,
        experiment,
        name,
        record="",
        status=status,
        dataset_id=trial.dataset,
        task_id=trial.task,
        agent=trial.agent,
        model=model or NO_MODEL,
        reward=find_reward(trial.verdict.rewards if trial.verdict else None),
        reason_code=found.reason,
        exception=trial.exception,
        timestamp=document.finished_at or document.started_at,
        seconds=timing.total_seconds or None,
        setup_seconds=timing.setup_seconds,
        agent_seconds=timing.agent_seconds,
        verification_seconds=timing.verification_seconds,
        cost_usd=trial.usage.cost_usd,
        place=found.directory,
    )


def _is_in(place: str, directories: Iterable[str]) -> bool:
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
