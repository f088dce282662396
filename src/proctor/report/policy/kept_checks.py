"""What numbers rest on: evidence, plan, replacements, findings, reviews, the ledger."""

import os
from collections.abc import Iterator
from pathlib import Path

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import Audit
from proctor.ledger.withheld import render_unnamed
from proctor.report.policy.grade import find_open
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import PolicyCode
from proctor.report.policy.submission import Submission
from proctor.report.policy.verdict import Failure, Unchecked
from proctor.sentence import count_of

_COPIES = frozenset({Kind.DUPLICATE_TRIAL, Kind.COPIED_TRIAL, Kind.RENAMED_TRIAL})
_OFF_PLAN = frozenset(
    {
        Kind.UNPLANNED_TRIAL,
        Kind.FOREIGN_TRIAL,
        Kind.MISSING_TRIALS,
        Kind.TRIAL_WITHOUT_DIRECTORY,
        Kind.DIRECTORY_WITHOUT_TRIAL,
    }
)
_PLAN = {
    **dict.fromkeys(_OFF_PLAN, PolicyCode.OFF_PLAN),
    Kind.NO_PLAN: PolicyCode.NO_PLAN,
    Kind.UNFINISHED_JOB: PolicyCode.UNFINISHED_JOB,
    Kind.UNFINISHED_TRIAL: PolicyCode.UNFINISHED_JOB,
}
_ELSEWHERE = _OFF_PLAN | {Kind.NO_TRIALS}
"""What other checks tell: the plan, and the records."""
_UNTOLD = frozenset({Kind.INFERRED_METRIC, Kind.ORDER_DEPENDENT})
"""Notes of an audit that something could not be told."""
_REWARDS = ("reward.txt", "reward.json")
_PRINTED = "test-stdout.txt"
_NO_JOB_FILES = "the job's own files are not sealed with trials that proctor ran"


def check_evidence(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Results follow from what the verifiers left, and no trial is a copy."""
    for audit, finding in _findings(submission):
        if finding.kind in _COPIES:
            code = PolicyCode.COPIED_TRIAL
        elif (
            finding.kind.is_note or finding.kind in _ELSEWHERE or _is_for_want(submission, finding)
        ):
            continue
        elif finding.kind.is_unshown:
            code = PolicyCode.NOT_SHOWN
        else:
            code = PolicyCode.NOT_FOLLOWING
        yield _fail(code, submission, audit, finding)
    yield from _check_verifier_ran(submission)
    untold = [finding for _, finding in _findings(submission) if finding.kind in _UNTOLD]
    for kind in dict.fromkeys(finding.kind for finding in untold):
        first = next(finding for finding in untold if finding.kind is kind)
        yield Unchecked(f"{kind}: {first.message}")
    if not submission.has_jobs:
        yield Unchecked(f"the job's published totals: {_NO_JOB_FILES}")


def _check_verifier_ran(submission: Submission) -> Iterator[Failure]:
    """Whoever writes a reward file by hand forgets what the tests printed."""
    for trial in submission.counted:
        verifier = f"{trial.place}/verifier"
        has_reward = any(Path(verifier, name).exists() for name in _REWARDS)
        if trial.attempt.reward and has_reward and not Path(verifier, _PRINTED).exists():
            message = f"reward {trial.attempt.reward:g}, and no {_PRINTED} of a verifier"
            yield Failure(PolicyCode.NO_VERIFIER_OUTPUT, trial.name, message)


def check_plan(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """The trials are those of the plan, all of them, and the job ran to its end."""
    if not submission.has_jobs:
        message = f"the plan, and whether the job is finished: {_NO_JOB_FILES}"
        yield Unchecked(message, is_whole=True)
        return
    for audit, finding in _findings(submission):
        if finding.kind in _PLAN:
            yield _fail(_PLAN[finding.kind], submission, audit, finding)
    yield from _check_plan_files(submission)


def _check_plan_files(submission: Submission) -> Iterator[Failure]:
    for audit in submission.audits:
        for what, part in (("lock.json", audit.job.lock), ("config.json", audit.job.config)):
            if part is None:
                message = f"{audit.job.directory}: no {what} that can be read"
                yield Failure(PolicyCode.NO_PLAN, None, message)


def _findings(submission: Submission) -> Iterator[tuple[Audit, Finding]]:
    return ((audit, finding) for audit in submission.audits for finding in audit.findings)


def _is_for_want(submission: Submission, finding: Finding) -> bool:
    """Whether an audit misses only what is not sealed with trials that proctor ran."""
    return finding.kind is Kind.MISSING_RESULT and not submission.has_jobs


def _fail(code: PolicyCode, submission: Submission, audit: Audit, finding: Finding) -> Failure:
    """A finding of an audit as a failure of the trial that it is about, or of the whole."""
    inside = Path(os.path.relpath(finding.path, audit.job.directory)).parts[0]
    place = str(Path(audit.job.directory, inside))
    trial = next((each.name for each in submission.trials if each.place == place), None)
    where = "" if trial else f"{inside}: "
    return Failure(code, trial, f"{where}{finding.kind}: {finding.message}")


def check_replacements(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Trials were run again only for reasons that the policy accepts."""
    accepted = policy.replacements.causes or ()
    for each in submission.replacements:
        if each.cause not in accepted:
            message = f"{each.message} (cause: {each.cause})"
            yield Failure(PolicyCode.REPLACED_TRIAL, each.trial, message)
    if submission.lost_attempts:
        n = count_of(submission.lost_attempts, "attempt")
        message = f"{n} made again, and nothing is left to judge the reason by"
        yield Failure(PolicyCode.LOST_ATTEMPTS, None, message)


def check_findings(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """No integrity finding is open: none that the policy refuses, unless a review passed it."""
    for trial in submission.counted:
        if open_codes := find_open(trial.attempt, policy.integrity):
            yield Failure(PolicyCode.OPEN_FINDING, trial.name, ", ".join(open_codes))
    if any(trial.attempt.source for trial in submission.counted):
        yield Unchecked(
            "what was seen while trials ran elsewhere: only trials that proctor ran have findings"
        )


def check_reviews(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Enough trials were reviewed, and none has failed."""
    trials, rule = submission.counted, policy.reviews
    reviewed = [trial for trial in trials if trial.attempt.review is not None]
    if len(reviewed) < rule.share * len(trials):
        message = f"{len(reviewed)} of {len(trials)} trials reviewed; expected {rule.share:.0%}"
        if submission.sealed is None:
            message += "; reviews are kept in a ledger"
        yield Failure(PolicyCode.TOO_FEW_REVIEWS, None, message)
    for trial in reviewed:
        if rule.none_failed and trial.attempt.review == "fail":
            yield Failure(PolicyCode.FAILED_REVIEW, trial.name, "its latest review says fail")


def check_ledger(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """There is a ledger, it is what was signed, and a directory is what was sealed."""
    sealed = submission.sealed
    if sealed is None:
        if policy.ledger.verified:
            message = "the policy asks for a ledger; --ledger names the one it was sealed into"
            yield Failure(PolicyCode.NO_LEDGER, None, message)
        return
    for damage in sealed.damage:
        yield Failure(PolicyCode.DAMAGED_LEDGER, None, damage)
    if unnamed := render_unnamed(sealed.unnamed):
        yield Failure(PolicyCode.WITHHELD_UNNAMED, None, unnamed)
    for trial, message in sealed.differences:
        yield Failure(PolicyCode.NOT_AS_SEALED, trial, message)
    yield from map(Unchecked, sealed.unchecked)
