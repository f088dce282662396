"""The complete audit of one job: reward files, trial results and job result compared.

(1) each trial: its reward files, its exception and its record
(2) each trial's identity: its names, its config, its times
(3) the set of trials: no duplicates, none of another job, none beyond the plan
(4) the published numbers, compared with those that follow from the evidence
(5) trials that are counted but missing, or present but not counted
(6) identical attempts, attempts that follow the task's solution, failed tests with a full reward
(7) notes
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from proctor.audit.commands import audit_commands
from proctor.audit.duplicates import audit_duplicates
from proctor.audit.findings import Finding, Kind
from proctor.audit.identity import audit_identity
from proctor.audit.own_records import audit_records
from proctor.audit.results import audit_presence, audit_result
from proctor.audit.scoring import score_jobs
from proctor.audit.traces import audit_traces
from proctor.audit.trials import audit_trials
from proctor.errors import JobError
from proctor.files import find_way_out, open_plain, read_inside
from proctor.harbor.documents import TRIAL, LockDocument
from proctor.harbor.job import Job, OrderBasis, Watch, find_unplanned, load_job, slot_of
from proctor.harbor.render import render_json
from proctor.harbor.stats import CANCELLED
from proctor.harbor.trial import FoundTrial, verifier_folder
from proctor.reward.profile import Profile
from proctor.sentence import count_of, printable
from proctor.times import parse_utc

# Notes about what is in a job but in none of its numbers: earlier attempts, earlier plans, refused
# tasks, findings
#
#     <job>/proctor.json             trials of earlier plans, refused tasks
#     <job>/<trial>/attempts/N       an earlier attempt
#     <job>/<trial>/findings.json    findings from while the trial ran
#
# harbor keeps none of these, only the number of retries.


_ATTEMPTS = "attempts"
_FINDINGS = "findings.json"
_UNREADABLE = "unreadable"


class _Seen(msgspec.Struct, frozen=True):
    """The code of one finding of a trial."""

    code: str


_decode = msgspec.json.Decoder(list[_Seen]).decode


def audit_beside(job: Job) -> Iterator[Finding]:
    """Notes about what the job does not count."""
    yield from _audit_attempts(job)
    for directory in job.set_aside:
        message = f"{os.path.basename(directory)}: of an earlier plan, not counted"
        yield Finding(Kind.EARLIER_PLAN, directory, f"{message}; {_describe_end(directory)}")
    for task in job.refused:
        message = f"{task}: could not be run when the job was planned; not counted"
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
        message = f"{count_of(len(kept), 'earlier attempt')}, in <trial>/attempts, not counted"
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
    """Whether the attempt failed by itself; a stopped one is not a retry."""
    try:
        error = TRIAL.load(f"{attempt}/result.json").exception_info
    except JobError:
        return False
    return error is not None and error.exception_type != CANCELLED


def _describe_end(trial: str) -> str:
    try:
        document = TRIAL.load(f"{trial}/result.json")
    except JobError:
        return "it has no readable result"
    if document.verifier_result is not None and document.verifier_result.rewards:
        return f"it scored {render_json(document.verifier_result.rewards)}"
    error = document.exception_info
    return f"it ended in {error.exception_type}" if error else "it has no reward"


def _audit_findings(job: Job) -> Iterator[Finding]:
    """One note per code, with the number of trials."""
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


# The set of trials, compared with each other and with the plan


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
    """A task must have one name and one content in all its trials."""
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
    """The plan must have as many slots per task and agent as config.json has attempts."""
    attempts = (job.config.n_attempts if job.config else None) or 1
    path = f"{job.directory}/lock.json"
    for slot, n in Counter(map(slot_of, lock.trials)).items():
        if n % attempts:
            message = f"plans {n} trials of {slot[1]}; config.json asks for {attempts} attempts"
            yield Finding(Kind.EDITED_COUNTER, path, message, str(n), str(attempts))


# Times of trials: within the job, and no more at once than allowed
#
# harbor writes the job's times in local time without a zone, so a day of difference is tolerated.


_SLACK = timedelta(days=1)


def audit_job_times(job: Job) -> Iterator[Finding]:
    """Findings about the times of trials."""
    yield from _audit_outside(job)
    yield from _audit_at_once(job)


def _audit_outside(job: Job) -> Iterator[Finding]:
    document = job.published.document if job.published else None
    planned = parse_utc(job.lock.created_at) if job.lock else None
    started = parse_utc(document.started_at) if document else None
    began = min((each for each in (planned, started) if each is not None), default=None)
    ended = parse_utc(document.finished_at) if document else None
    for found in job.trials:
        first, last = parse_utc(found.document.started_at), parse_utc(found.document.finished_at)
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
        first, last = parse_utc(found.document.started_at), parse_utc(found.document.finished_at)
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


# Failed tests in the verifier's output of a trial with a full reward
#
# Only the summaries of common test runners are recognised. A task may run tests that are meant to
# fail, so this is a note and changes no number.


# Only the end of an output is read: summaries are printed there.
_FULL = 1.0
_LONGEST = 1 << 20
_SHOWN = 120
_NAMES = ("test-stdout.txt", "test-stderr.txt")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# pytest and unittest, pytest's last line, Go twice, Rust.
_FAILED = re.compile(
    rb"^(?:FAILED\b|=+ .*\b[1-9][0-9]* (?:failed|errors?)\b|--- FAIL: |FAIL\t|test result: FAILED)"
    rb"[^\r\n]*",
    re.MULTILINE,
)


def audit_outputs(job: Job) -> Iterator[Finding]:
    """Notes about trials whose own output reports failed tests."""
    for found in job.trials:
        if _is_full(found):
            yield from _audit_output(found)


def _is_full(found: FoundTrial) -> bool:
    rewards = found.trial.verdict.rewards if found.trial.verdict else None
    return bool(rewards) and all(value >= _FULL for value in (rewards or {}).values())


def _audit_output(found: FoundTrial) -> Iterator[Finding]:
    steps = found.document.step_results or ()
    folders = ["verifier", *(verifier_folder(step.step_name) for step in steps)]
    for path in [f"{found.directory}/{folder}/{name}" for folder in folders for name in _NAMES]:
        failed = _FAILED.search(_COLOUR.sub(b"", _read_end(found.directory, path)))
        if failed is not None:
            line = printable(failed[0].decode("utf-8", "replace")[:_SHOWN])
            message = f"{found.trial.name} has a full reward, and its tests printed: {line}"
            yield Finding(Kind.FAILED_OUTPUT, path, message)
            return


def _read_end(trial: str, path: str) -> bytes:
    with contextlib.suppress(OSError, ValueError):
        if find_way_out(trial, path) is None:
            with open_plain(path) as file:
                file.seek(max(os.fstat(file.fileno()).st_size - _LONGEST, 0))
                return file.read(_LONGEST)
    return b""


class Verdict(StrEnum):
    """Whether the published numbers follow from the evidence."""

    FOLLOWS = "follows"
    CANNOT_BE_SHOWN = "cannot be shown"
    """Nothing contradicts them, but something they depend on cannot be recomputed."""
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of one job."""

    job: Job
    findings: list[Finding]

    @property
    def profile(self) -> Profile:
        """The rules by which the job was scored."""
        return self.job.profile

    @property
    def differences(self) -> list[Finding]:
        """Findings that contradict the published numbers, causes first."""
        return [*self.causes, *self.consequences]

    @property
    def causes(self) -> list[Finding]:
        """Differences in the trials; if there are none, those in the job result."""
        found = [finding for finding in self.findings if finding.kind.is_difference]
        return [finding for finding in found if not finding.kind.is_derived] or found

    @property
    def consequences(self) -> list[Finding]:
        """Differences in the job result that those in the trials explain, scores first."""
        causes = set(map(id, self.causes))
        found = [finding for finding in self.findings if finding.kind.is_difference]
        order = list(Kind)
        return sorted(
            (finding for finding in found if id(finding) not in causes),
            key=lambda finding: order.index(finding.kind),
        )

    @property
    def unshown(self) -> list[Finding]:
        """Findings that leave a published number unconfirmed."""
        return [finding for finding in self.findings if finding.kind.is_unshown]

    @property
    def notes(self) -> list[Finding]:
        """Findings that do not affect the published numbers."""
        return [finding for finding in self.findings if finding.kind.is_note]

    @property
    def verdict(self) -> Verdict:
        """Whether the published numbers follow from the evidence."""
        if self.differences:
            return Verdict.DIFFERS
        return Verdict.CANNOT_BE_SHOWN if self.unshown else Verdict.FOLLOWS

    @property
    def follows(self) -> bool:
        """Whether the published numbers were confirmed."""
        return self.verdict is Verdict.FOLLOWS


def render_verdict(audit: Audit) -> str:
    """The verdict in words."""
    match audit.verdict:
        case Verdict.DIFFERS:
            return count_of(len(audit.differences), "difference")
        case Verdict.CANNOT_BE_SHOWN:
            return "the published numbers cannot be shown to follow"
        case Verdict.FOLLOWS:
            return "the published numbers follow"


def audit_job(
    directory: str,
    profile: Profile | None = None,
    *,
    run_scripts: bool = False,
    watch: Watch | None = None,
) -> Audit:
    """Audit the job in a directory, by default with the rules of the harbor that ran it."""
    return audit_loaded(load_job(directory, profile, watch), run_scripts=run_scripts)


def audit_loaded(job: Job, *, run_scripts: bool = False) -> Audit:
    """Audit a job with the rules that it was loaded with."""
    return Audit(job, list(_findings(job, run_scripts=run_scripts)))


def _findings(job: Job, *, run_scripts: bool) -> Iterator[Finding]:
    scoring = score_jobs([job], job.profile, run_scripts=run_scripts, add_up=False)
    yield from audit_trials(job, job.profile)  # (1)
    yield from audit_records(job)
    yield from audit_identity(job)  # (2)
    yield from audit_duplicates(job)
    yield from audit_job_times(job)
    yield from audit_plan(job)  # (3)
    yield from audit_result(scoring)  # (4)
    yield from audit_presence(job)  # (5)
    yield from audit_traces(job)  # (6)
    yield from audit_commands(job)
    yield from audit_outputs(job)
    yield from _notes(job)  # (7)


def _notes(job: Job) -> Iterator[Finding]:
    path = f"{job.directory}/result.json"
    if job.published is not None and not job.finished:
        message = "the job did not run to its end; its numbers are those of the trials that ended"
        yield Finding(Kind.UNFINISHED_JOB, path, message)
    for directory in job.unfinished:
        yield Finding(Kind.UNFINISHED_TRIAL, directory, "no result.json: killed, or still running")
    yield from audit_beside(job)
    if job.ordered.basis is OrderBasis.PUBLISHED:
        message = (
            "trials are not in planned order, as after a resume; the published order was taken"
        )
        yield Finding(Kind.RESUMED_ORDER, path, message)
    if job.ordered.contradicted:
        message = "the published lists of trials contradict each other's order"
        yield Finding(Kind.CONTRADICTED_ORDER, path, message)
