"""The whole audit of one job: reward files against trial results against the job result.

(1) each trial by itself: its reward files and its exception
(2) what each trial says it is: its names, its config, its times
(3) the trials together: no trial twice, none of another job, none beyond the plan
(4) the published numbers against those the evidence gives
(5) trials counted and not there, there and not counted
(6) attempts that did the very same, and those that did what the task's solution does
(7) what is merely so, or cannot be known
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from proctor.audit.beside import audit_beside
from proctor.audit.commands import audit_commands
from proctor.audit.findings import Finding, Kind
from proctor.audit.identity import audit_identity
from proctor.audit.plan import audit_plan
from proctor.audit.results import audit_presence, audit_result
from proctor.audit.scoring import score_jobs
from proctor.audit.traces import audit_traces
from proctor.audit.trials import audit_trials
from proctor.harbor.job import Job, Watch, load_job
from proctor.harbor.order import OrderBasis
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25, Profile

_REFUSES_ODD_REWARDS = (0, 23)
"""The first release of harbor with the rules of the profile harbor-0.25."""


class Verdict(StrEnum):
    """Whether published numbers follow from the evidence."""

    FOLLOWS = "follows"
    CANNOT_BE_SHOWN = "cannot be shown"
    """Nothing contradicts them, and something that they rest on cannot be recomputed."""
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found about one job."""

    job: Job
    profile: Profile
    findings: list[Finding]

    @property
    def differences(self) -> list[Finding]:
        """Findings with which the published numbers do not stand."""
        return [finding for finding in self.findings if finding.kind.is_difference]

    @property
    def unshown(self) -> list[Finding]:
        """Findings for which a published number cannot be shown to follow."""
        return [finding for finding in self.findings if finding.kind.is_unshown]

    @property
    def notes(self) -> list[Finding]:
        """Findings that are merely so."""
        return [finding for finding in self.findings if finding.kind.is_note]

    @property
    def verdict(self) -> Verdict:
        """Whether the published numbers follow from the evidence."""
        if self.differences:
            return Verdict.DIFFERS
        return Verdict.CANNOT_BE_SHOWN if self.unshown else Verdict.FOLLOWS

    @property
    def follows(self) -> bool:
        """Whether the published numbers are shown to follow."""
        return self.verdict is Verdict.FOLLOWS


def audit_job(
    directory: str,
    profile: Profile | None = None,
    *,
    run_scripts: bool = False,
    watch: Watch | None = None,
) -> Audit:
    """Audit the job in a directory, by the rules of the harbor that ran it unless told otherwise.

    Raises:
        JobError: the path is no job directory.
    """
    job, profile = load_as_run(directory, profile, watch)
    return Audit(job, profile, list(_findings(job, profile, run_scripts=run_scripts)))


def load_as_run(
    directory: str, profile: Profile | None = None, watch: Watch | None = None
) -> tuple[Job, Profile]:
    """A job read by the rules of the harbor that ran it, unless told otherwise, and those rules.

    Raises:
        JobError: the path is no job directory.
    """
    job = load_job(directory, profile or DEFAULT_PROFILE, watch)
    if profile is not None:
        return job, profile
    profile = find_profile_of(job)
    return (job if profile is DEFAULT_PROFILE else load_job(directory, profile, watch)), profile


def find_profile_of(job: Job) -> Profile:
    """The profile of the harbor release that lock.json names; the default when it names none."""
    version = (job.lock.harbor.version or "") if job.lock else ""
    numbers = re.match(r"([0-9]{1,6})\.([0-9]{1,6})(?![0-9])", version)
    if numbers is None:
        return DEFAULT_PROFILE
    release = (int(numbers[1]), int(numbers[2]))
    return HARBOR_0_25 if release >= _REFUSES_ODD_REWARDS else DEFAULT_PROFILE


def _findings(job: Job, profile: Profile, *, run_scripts: bool) -> Iterator[Finding]:
    scoring = score_jobs([job], profile, run_scripts=run_scripts, add_up=False)
    yield from audit_trials(job, profile)  # (1)
    yield from audit_identity(job)  # (2)
    yield from audit_plan(job)  # (3)
    yield from audit_result(scoring)  # (4)
    yield from audit_presence(job)  # (5)
    yield from audit_traces(job)  # (6)
    yield from audit_commands(job)
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
