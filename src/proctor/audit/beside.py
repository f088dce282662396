"""What lies beside a job's numbers: earlier attempts, earlier plans, refused tasks, what was seen.

    <job>/proctor.json             trials of earlier plans, tasks that were refused
    <job>/<trial>/attempts/N       an attempt that was made again
    <job>/<trial>/findings.json    what was seen while the trial ran

Of these, harbor keeps only how many attempts it made again. All of it is merely so: no number
changes with it, and a reader of the numbers should know it.
"""

import os
from collections.abc import Iterator

import msgspec

from proctor.audit.findings import Finding, Kind
from proctor.errors import JobError
from proctor.files import read_inside
from proctor.harbor.documents import TRIAL
from proctor.harbor.job import Job
from proctor.harbor.render import render_json
from proctor.harbor.stats import CANCELLED
from proctor.sentence import count_of

_ATTEMPTS = "attempts"
_FINDINGS = "findings.json"
_UNREADABLE = "unreadable"


class _Seen(msgspec.Struct, frozen=True):
    """One finding of a trial, as far as it is counted here."""

    code: str


_decode = msgspec.json.Decoder(list[_Seen]).decode


def audit_beside(job: Job) -> Iterator[Finding]:
    """Notes about what is in no number of a job."""
    yield from _audit_attempts(job)
    for directory in job.set_aside:
        message = f"{os.path.basename(directory)}: of an earlier plan, and in no number"
        yield Finding(Kind.EARLIER_PLAN, directory, f"{message}; {_describe_end(directory)}")
    for task in job.refused:
        message = f"{task}: could not be run when the job was planned, and is in no number"
        yield Finding(Kind.REFUSED_TASK, f"{job.directory}/proctor.json", message, task)
    yield from _audit_findings(job)


def _audit_attempts(job: Job) -> Iterator[Finding]:
    kept = [path for found in job.trials for path in _find_attempts(found.directory)]
    retries = job.published.count("n_retries") if job.published else 0
    gone = retries - sum(map(_was_retried, kept)) if retries else 0
    if gone > 0:
        message = f"retried attempts that are gone: {gone}; harbor keeps only the last"
        yield Finding(Kind.LOST_ATTEMPTS, f"{job.directory}/result.json", message, str(gone))
    if kept:
        message = f"{count_of(len(kept), 'earlier attempt')}, in <trial>/attempts and in no number"
        yield Finding(Kind.KEPT_ATTEMPTS, kept[0], message, str(len(kept)))


def _find_attempts(trial: str) -> list[str]:
    kept = f"{trial}/{_ATTEMPTS}"
    try:
        if os.path.islink(kept):
            return []
        with os.scandir(kept) as entries:
            names = [
                entry.name for entry in entries if entry.name.isdecimal() and not entry.is_symlink()
            ]
    except OSError:
        return []
    return [f"{kept}/{name}" for name in sorted(names, key=int)]


def _was_retried(attempt: str) -> bool:
    """Whether the attempt failed by itself; one that was stopped is no retry."""
    try:
        error = TRIAL.load(f"{attempt}/result.json").exception_info
    except JobError:
        return False
    return error is not None and error.exception_type != CANCELLED


def _describe_end(trial: str) -> str:
    try:
        document = TRIAL.load(f"{trial}/result.json")
    except JobError:
        return "it has no result that can be read"
    if document.verifier_result is not None and document.verifier_result.rewards:
        return f"it scored {render_json(document.verifier_result.rewards)}"
    error = document.exception_info
    return f"it ended in {error.exception_type}" if error else "it has no reward"


def _audit_findings(job: Job) -> Iterator[Finding]:
    """A note for each kind: how many trials have it."""
    trials: dict[str, list[str]] = {}
    for found in job.trials:
        for code in _find_codes(f"{found.directory}/{_FINDINGS}"):
            trials.setdefault(code, []).append(found.directory)
    for code, of in trials.items():
        message = f"{code} in {count_of(len(of), 'trial')}"
        yield Finding(Kind.INTEGRITY_FINDING, f"{of[0]}/{_FINDINGS}", message, code)


def _find_codes(path: str) -> list[str]:
    try:
        data = read_inside(os.path.dirname(path), path)
    except FileNotFoundError:
        return []
    except OSError:
        return [_UNREADABLE]
    try:
        return list(dict.fromkeys(seen.code for seen in _decode(data)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [_UNREADABLE]
