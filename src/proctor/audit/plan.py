"""Trials against each other and against the plan: is each one its own, of this job, and planned?"""

from collections import Counter
from collections.abc import Callable, Iterator

from proctor.audit.findings import Finding, Kind
from proctor.harbor.documents import LockDocument
from proctor.harbor.job import Job
from proctor.harbor.order import find_unplanned, slot_of
from proctor.harbor.trial import FoundTrial


def audit_plan(job: Job) -> Iterator[Finding]:
    """Findings about the set of trials."""
    yield from _audit_same(job)
    yield from _audit_belonging(job)
    yield from _audit_tasks(job)
    if job.lock is None:
        return
    for found in find_unplanned(job.trials, job.lock):
        message = f"{found.trial.name}: lock.json has no slot left for this task and agent"
        yield Finding(Kind.UNPLANNED_TRIAL, found.directory, message)
    yield from _audit_slots(job, job.lock)
    planned = len(job.lock.trials)
    if job.published is not None and job.published.document.n_total_trials != planned:
        stated = job.published.document.n_total_trials
        message = f"n_total_trials is {stated}; lock.json plans {planned} trials"
        path = f"{job.directory}/result.json"
        yield Finding(Kind.EDITED_COUNTER, path, message, str(stated), str(planned))


def _audit_same(job: Job) -> Iterator[Finding]:
    identities: list[tuple[str, Kind, Callable[[FoundTrial], object]]] = [
        ("trial name", Kind.DUPLICATE_TRIAL, lambda found: found.trial.name),
        ("trial id", Kind.DUPLICATE_TRIAL, lambda found: found.document.id),
        ("times of start and end", Kind.COPIED_TRIAL, _times),
    ]
    for what, kind, identity in identities:
        seen: dict[object, FoundTrial] = {}
        for found in job.trials:
            value = identity(found)
            first = seen.setdefault(value, found) if value is not None else found
            if first is not found:
                message = f"has the {what} of {first.directory}"
                yield Finding(kind, found.directory, f"{found.trial.name} {message}", str(value))


def _times(found: FoundTrial) -> tuple[str, str] | None:
    started, finished = found.document.started_at, found.document.finished_at
    return (started, finished) if started and finished else None


def _audit_belonging(job: Job) -> Iterator[Finding]:
    job_id = job.published.document.id if job.published else None
    for found in job.trials:
        stated = found.document.config.job_id
        if job_id and stated and stated != job_id:
            message = f"{found.trial.name} says it is of job {stated}; this is job {job_id}"
            yield Finding(Kind.FOREIGN_TRIAL, found.directory, message, stated, job_id)


def _audit_tasks(job: Job) -> Iterator[Finding]:
    """A task has one name and one content, whatever its attempts."""
    first: dict[object, FoundTrial] = {}
    for found in job.trials:
        other = first.setdefault(found.document.config.task.identity, found)
        mine, theirs = _content(found), _content(other)
        if mine != theirs:
            message = f"{found.trial.task} is not the task here that {other.trial.name} had"
            yield Finding(Kind.MIXED_TASK, found.directory, message, mine, theirs)


def _content(found: FoundTrial) -> str:
    return f"{found.trial.task} {found.document.task_checksum}"


def _audit_slots(job: Job, lock: LockDocument) -> Iterator[Finding]:
    """The plan gives every task and agent as many slots as config.json asks attempts for."""
    attempts = (job.config.n_attempts if job.config else None) or 1
    path = f"{job.directory}/lock.json"
    for slot, n in Counter(map(slot_of, lock.trials)).items():
        if n % attempts:
            message = f"plans {n} trials of {slot[1]}; config.json asks for {attempts} attempts"
            yield Finding(Kind.EDITED_COUNTER, path, message, str(n), str(attempts))
