"""All checks of a policy on a submission: one verdict.

What a submission should have and has not fails the check that needs it, so that nobody gets rid
of a check by deleting a file. What no submission of its sort can show is told as unchecked.
"""

from collections.abc import Callable, Iterator

from proctor.ledger.counting import account_for, count_exceptions
from proctor.report.policy.kept_checks import (
    check_evidence,
    check_findings,
    check_ledger,
    check_plan,
    check_replacements,
    check_reviews,
)
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import Check
from proctor.report.policy.setup_checks import (
    check_agent,
    check_images,
    check_limits,
    check_model,
    check_records,
    check_verifier,
)
from proctor.report.policy.slice_checks import check_attempts_made, check_tasks
from proctor.report.policy.submission import Submission
from proctor.report.policy.trace_checks import check_traces
from proctor.report.policy.verdict import CheckOutcome, Failure, Unchecked, Verdict
from proctor.report.policy.witness_checks import check_witnesses

type CheckFunction = Callable[[Policy, Submission], Iterator[Failure | Unchecked]]

_CHECKS: dict[Check, CheckFunction] = {
    Check.TASKS: check_tasks,
    Check.ATTEMPTS: check_attempts_made,
    Check.MODEL: check_model,
    Check.AGENT: check_agent,
    Check.LIMITS: check_limits,
    Check.RECORDS: check_records,
    Check.VERIFIER: check_verifier,
    Check.IMAGES: check_images,
    Check.TRACES: check_traces,
    Check.EVIDENCE: check_evidence,
    Check.PLAN: check_plan,
    Check.REPLACEMENTS: check_replacements,
    Check.FINDINGS: check_findings,
    Check.REVIEWS: check_reviews,
    Check.LEDGER: check_ledger,
    Check.WITNESSES: check_witnesses,
}


def check_attempts(policy: Policy, submission: Submission) -> Verdict:
    """Whether a submission is what a policy asks for, with a reason for all that is not."""
    asked = _find_asked(policy, submission)
    outcomes = [_run(check, policy, submission, asked=check in asked) for check in Check]
    return Verdict(
        policy,
        submission.name,
        len(submission.counted),
        outcomes,
        _count(submission),
        tuple(submission.unchecked),
    )


def _count(submission: Submission) -> dict[str, int]:
    attempts = [trial.attempt for trial in submission.trials]
    account = account_for(attempts)
    return {
        "entries": account.listed,
        "counted": account.counted,
        "scored": account.scored,
        "zero_by_missing": account.zero_by_missing,
        "errored": sum(count_exceptions(attempts).values()),
        "superseded": account.superseded,
        "attempts": account.begun_again,
        "withheld": account.withheld,
        "withheld_unnamed": len(submission.sealed.unnamed) if submission.sealed else 0,
    }


def _find_asked(policy: Policy, submission: Submission) -> set[Check]:
    tasks, reviews = policy.tasks, policy.reviews
    wishes = {
        Check.TASKS: tasks.all_names or tasks.count or tasks.same_revision,
        Check.ATTEMPTS: policy.attempts.minimum or policy.attempts.exact,
        Check.MODEL: policy.agent.one_model,
        Check.AGENT: policy.agent.one_configuration,
        Check.LIMITS: policy.limits.default,
        Check.RECORDS: True,
        Check.VERIFIER: policy.records.verifier,
        Check.IMAGES: policy.images.pinned,
        Check.TRACES: policy.traces.needed != "none",
        Check.EVIDENCE: policy.evidence.follows,
        Check.PLAN: policy.evidence.planned,
        Check.REPLACEMENTS: policy.replacements.causes is not None,
        Check.FINDINGS: policy.integrity.no_open_findings,
        Check.REVIEWS: reviews.share or reviews.none_failed,
        # Whoever names a ledger wants to know what it says.
        Check.LEDGER: policy.ledger.verified or submission.sealed is not None,
        Check.WITNESSES: policy.witnesses.quorum,
    }
    return {check for check, wish in wishes.items() if wish}


def _run(check: Check, policy: Policy, submission: Submission, *, asked: bool) -> CheckOutcome:
    if not asked:
        return CheckOutcome(check, is_asked=False)
    found = list(_CHECKS[check](policy, submission))
    untold = [each for each in found if isinstance(each, Unchecked)]
    return CheckOutcome(
        check,
        is_asked=True,
        failures=tuple(each for each in found if isinstance(each, Failure)),
        unchecked=tuple(each.why for each in untold),
        is_checked=not any(each.is_whole for each in untold),
    )
