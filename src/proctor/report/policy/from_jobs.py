"""A submission from harbor job directories, without a ledger."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from proctor.audit.findings import Kind
from proctor.audit.job import Audit, audit_job
from proctor.errors import JobError
from proctor.exchange.harbor_job import find_jobs
from proctor.harbor.documents import LockDocument, load_lock
from proctor.harbor.job import Watch
from proctor.harbor.trial import FoundTrial
from proctor.ledger.row import TrialRow
from proctor.ledger.submission import list_files
from proctor.report.in_jobs import load_jobs
from proctor.report.policy.record_facts import load_own_record, read_facts
from proctor.report.policy.submission import OpenTraces, Replacement, Submission, SubmittedTrial
from proctor.traces.traced_trial import TracedTrial, opened_traces

# Reason codes of attempts that ended before the agent started, or with the machine.
_INFRASTRUCTURE = ("harbor_cancelled_error", "harbor_environment_start_timeout_error",
                   "harbor_broker_connection_failed")  # fmt: skip
UNSIGNED = "that it was not changed before it was submitted: plain files are not signed"
_HAPPENED = "that the run happened as its files say: `proctor audit --rerun` repeats trials"


def load_jobs_submission(path: str, watch: Watch | None = None) -> Submission:
    """Load the job at a path, or all jobs in the directory there."""
    jobs = [str(job) for job in find_jobs(Path(path))]
    audits = [audit_job(job, watch=watch) for job in jobs]
    found = [load_jobs(job) for job in jobs]
    trials = [
        trial
        for audit, inside in zip(audits, found, strict=True)
        for trial in _submit(audit, inside.trials)
    ]
    return Submission(
        name=path,
        trials=trials,
        unreadable=[each for inside in found for each in inside.unreadable],
        audits=audits,
        replacements=[replace_kept(trial.row) for trial in trials if trial.is_kept],
        lost_attempts=sum(map(count_lost, audits)),
        unchecked=(UNSIGNED, _HAPPENED),
    )


def count_lost(audit: Audit) -> int:
    """The number of restarted attempts whose files are gone."""
    return sum(int(each.found) for each in audit.findings if each.kind is Kind.LOST_ATTEMPTS)


def replace_kept(row: TrialRow) -> Replacement:
    """A restarted attempt as a replacement, with its cause as far as its end shows it."""
    # An attempt with a reward was not ended by the machine, whatever it raised later.
    is_machine = row.reward is None and row.reason_code in _INFRASTRUCTURE
    ended = row.reason_code or f"reward {row.reward}"
    return Replacement(
        row.name,
        "infrastructure" if is_machine else "other",
        f"was restarted after {ended}",
    )


def _submit(audit: Audit, rows: list[TrialRow]) -> Iterator[SubmittedTrial]:
    lock = _load_lock(audit.job.directory)
    scored = {found.directory: found for found in audit.job.trials}
    for row in rows:
        place = row.place or ""
        yield make_trial(row, place, scored.get(place), lock)


def make_trial(
    row: TrialRow, place: str, scored: FoundTrial | None, lock: LockDocument | None
) -> SubmittedTrial:
    """Make a submitted trial from its directory."""
    facts = read_facts(place, scored, lock, load_own_record(place))
    return SubmittedTrial(
        row=row,
        open_traces=open_directory(place),
        place=place,
        digests=facts.digests,
        began=facts.began,
        ended=facts.ended,
        claimed_model=facts.claimed_model,
        contradictions=facts.contradictions,
    )


def open_directory(place: str) -> OpenTraces:
    """Opens the traces in a trial's directory, found by their usual names."""
    files, _ = list_files(place)
    trial = TracedTrial(
        name=place, files=tuple(files), open_file=lambda name: nullcontext(f"{place}/{name}")
    )
    return partial(opened_traces, trial)


def _load_lock(job: str) -> LockDocument | None:
    try:
        return load_lock(job)
    except JobError:
        return None  # the audit reports it
