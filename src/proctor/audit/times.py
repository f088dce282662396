"""When trials ran: none outside the time of its job, and no more at once than allowed.

harbor writes the job's own times in local time without a zone, so that a day is let pass.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from proctor.audit.findings import Finding, Kind
from proctor.harbor.job import Job

_SLACK = timedelta(days=1)


def audit_job_times(job: Job) -> Iterator[Finding]:
    """Findings about when trials ran."""
    yield from _audit_outside(job)
    yield from _audit_at_once(job)


def _audit_outside(job: Job) -> Iterator[Finding]:
    document = job.published.document if job.published else None
    planned = _moment(job.lock.created_at) if job.lock else None
    started = _moment(document.started_at) if document else None
    began = min((each for each in (planned, started) if each is not None), default=None)
    ended = _moment(document.finished_at) if document else None
    for found in job.trials:
        first, last = _moment(found.document.started_at), _moment(found.document.finished_at)
        path = f"{found.directory}/result.json"
        if began is not None and first is not None and first < began - _SLACK:
            message = f"the trial began at {found.document.started_at}, its job at {began}"
            yield Finding(Kind.IMPOSSIBLE_TIME, path, message, str(first), f"after {began}")
        if ended is not None and last is not None and last > ended + _SLACK:
            message = f"the trial ended at {found.document.finished_at}, its job at {ended}"
            yield Finding(Kind.IMPOSSIBLE_TIME, path, message, str(last), f"before {ended}")


def _audit_at_once(job: Job) -> Iterator[Finding]:
    allowed = job.lock.n_concurrent_trials if job.lock else None
    if allowed is None:
        return
    changes: list[tuple[datetime, int]] = []
    for found in job.trials:
        first, last = _moment(found.document.started_at), _moment(found.document.finished_at)
        if first is not None and last is not None and first < last:
            changes += [(first, 1), (last, -1)]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    if most > allowed:
        message = f"{most} trials ran at once; lock.json allows {allowed}"
        path = f"{job.directory}/lock.json"
        yield Finding(Kind.OVERLAPPING_TRIALS, path, message, str(most), str(allowed))


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if moment is None:
        return None
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        return None
