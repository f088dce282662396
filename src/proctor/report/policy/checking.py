"""Runs all checks of a policy on a submission.

If a submission lacks something that it should have, the check that needs it fails, so that no check
can be avoided by deleting a file. What submissions of a kind can never show is listed as unchecked.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import Audit
from proctor.harbor.record import NO_MODEL, UNRESOLVED
from proctor.harbor.stats import count_errored
from proctor.ledger.counting import account_for, counted_trials
from proctor.report.policy.grade import grade_trial, list_open_findings
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import Check, PolicyCode
from proctor.report.policy.submission import Submission, SubmittedTrial
from proctor.report.policy.trace_checks import check_traces
from proctor.report.policy.verdict import CheckOutcome, Failure, Unchecked, Verdict
from proctor.sentence import count_of, render_figure, render_percent

# Evidence, plan, replacements, findings, reviews, ledger


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
# Kinds that the checks of plan and records report.
_ELSEWHERE = _OFF_PLAN | {Kind.NO_TRIALS}
# Notes of an audit that something could not be determined.
_UNDETERMINED = frozenset({Kind.INFERRED_METRIC, Kind.ORDER_DEPENDENT})
_REWARDS = ("reward.txt", "reward.json")
_PRINTED = "test-stdout.txt"
_NO_JOB_FILES = "the job's own files are not sealed with trials that proctor ran"


def check_evidence(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Results follow from the verifiers' files, and no trial is a copy."""
    for audit, finding in _findings(submission):
        if finding.kind in _COPIES:
            code = PolicyCode.COPIED_TRIAL
        elif (
            finding.kind.is_note
            or finding.kind in _ELSEWHERE
            or _is_missing_job_file(submission, finding)
        ):
            continue
        elif finding.kind.is_unshown:
            code = PolicyCode.NOT_SHOWN
        else:
            code = PolicyCode.NOT_FOLLOWING
        yield _fail(code, submission, audit, finding)
    yield from _check_verifier_ran(submission)
    unknown = [finding for _, finding in _findings(submission) if finding.kind in _UNDETERMINED]
    for kind in dict.fromkeys(finding.kind for finding in unknown):
        first = next(finding for finding in unknown if finding.kind is kind)
        yield Unchecked(f"{kind}: {first.message}")
    if not submission.has_jobs:
        yield Unchecked(f"the job's published totals: {_NO_JOB_FILES}")


def _check_verifier_ran(submission: Submission) -> Iterator[Failure]:
    """A forged reward file usually lacks the output of the tests."""
    for trial in submission.counted:
        verifier = f"{trial.place}/verifier"
        has_reward = any(Path(verifier, name).exists() for name in _REWARDS)
        if trial.row.reward and has_reward and not Path(verifier, _PRINTED).exists():
            message = f"reward {render_figure(trial.row.reward)}, but no {_PRINTED} of a verifier"
            yield Failure(PolicyCode.NO_VERIFIER_OUTPUT, trial.name, message)


def check_plan(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """The trials are exactly those of the plan, and the job finished."""
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
                message = f"{audit.job.directory}: no readable {what}"
                yield Failure(PolicyCode.NO_PLAN, None, message)


def _findings(submission: Submission) -> Iterator[tuple[Audit, Finding]]:
    return ((audit, finding) for audit in submission.audits for finding in audit.findings)


def _is_missing_job_file(submission: Submission, finding: Finding) -> bool:
    """Whether an audit only misses files that are not sealed with trials that proctor ran."""
    return finding.kind is Kind.MISSING_RESULT and not submission.has_jobs


def _fail(code: PolicyCode, submission: Submission, audit: Audit, finding: Finding) -> Failure:
    """A finding of an audit as a failure of its trial, or of the submission."""
    inside = Path(os.path.relpath(finding.path, audit.job.directory)).parts[0]
    place = str(Path(audit.job.directory, inside))
    trial = next((each.name for each in submission.trials if each.place == place), None)
    where = "" if trial else f"{inside}: "
    return Failure(code, trial, f"{where}{finding.kind}: {finding.message}")


def check_replacements(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Trials were run again only for accepted causes."""
    accepted = policy.replacements.causes or ()
    for each in submission.replacements:
        if each.cause not in accepted:
            message = f"{each.message} (cause: {each.cause})"
            yield Failure(PolicyCode.REPLACED_TRIAL, each.trial, message)
    if submission.lost_attempts:
        n = count_of(submission.lost_attempts, "attempt")
        message = f"{n} restarted, and the reason is not on record"
        yield Failure(PolicyCode.LOST_ATTEMPTS, None, message)


def check_findings(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """No integrity finding that the policy refuses is open, unless a review passed the trial."""
    for trial in submission.counted:
        if open_codes := list_open_findings(trial.row, policy.integrity):
            yield Failure(PolicyCode.OPEN_FINDING, trial.name, ", ".join(open_codes))
    if any(trial.row.source for trial in submission.counted):
        yield Unchecked(
            "the integrity of trials that ran elsewhere: only trials that proctor ran have findings"
        )


def check_reviews(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Enough trials were reviewed, and none failed its review."""
    trials, rule = submission.counted, policy.reviews
    reviewed = [trial for trial in trials if trial.row.review is not None]
    if len(reviewed) < rule.share * len(trials):
        expected = render_percent(rule.share)
        message = f"{len(reviewed)} of {len(trials)} trials reviewed; expected {expected}"
        if submission.sealed is None:
            message += "; reviews are kept in a ledger"
        yield Failure(PolicyCode.TOO_FEW_REVIEWS, None, message)
    for trial in reviewed:
        if rule.none_failed and trial.row.review == "fail":
            yield Failure(PolicyCode.FAILED_REVIEW, trial.name, "failed its latest review")


def check_ledger(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """There is an undamaged ledger, and a directory matches what was sealed."""
    sealed = submission.sealed
    if sealed is None:
        if policy.ledger.verified:
            message = "the policy requires a ledger; pass --ledger with the one it was sealed into"
            yield Failure(PolicyCode.NO_LEDGER, None, message)
        return
    for damage in sealed.damage:
        yield Failure(PolicyCode.DAMAGED_LEDGER, None, damage)
    if sealed.unnamed is not None:
        yield Failure(PolicyCode.WITHHELD_UNNAMED, None, sealed.unnamed)
    for trial, message in sealed.differences:
        yield Failure(PolicyCode.NOT_AS_SEALED, trial, message)
    yield from map(Unchecked, sealed.unchecked)


# Tasks, their revisions, and the number of attempts


_LOCKED = "sha256:"


def check_tasks(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """The tasks are exactly the policy's, with the same content."""
    rule, trials = policy.tasks, submission.counted
    names = rule.all_names
    ran = {trial.row.task_id for trial in trials if trial.row.task_id}
    for trial in trials:
        task = trial.row.task_id
        if names and task is not None and task not in names:
            message = f"ran {task}, which is not a task of {policy.name}"
            yield Failure(PolicyCode.FOREIGN_TASK, trial.name, message)
    for name in sorted(names - ran):
        yield Failure(PolicyCode.MISSING_TASK, name, "no trial ran it", is_trial=False)
    if rule.count is not None and len(ran) != rule.count:
        message = f"{count_of(len(ran), 'task')}; expected {rule.count}"
        yield Failure(PolicyCode.WRONG_TASK_COUNT, None, message)
    if rule.digests:
        yield from _check_digests(policy, submission)
    if rule.same_revision:
        yield from _check_revisions(trials)


def _check_digests(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    unknown = 0
    for trial in submission.counted:
        expected = policy.tasks.digests_of(trial.row.task_id or "")
        if not expected:
            continue
        mine, wanted = _comparable(trial.digests, expected)
        if not mine and submission.has_jobs:
            message = "neither lock.json nor result.json has a digest of the policy's kind"
            yield Failure(PolicyCode.UNKNOWN_TASK, trial.name, message)
        elif not mine:
            unknown += 1
        elif not wanted & mine:
            message = f"its task is {_show(mine)}; expected {_show(wanted)}"
            yield Failure(PolicyCode.CHANGED_TASK, trial.name, message)
    if unknown:
        yield Unchecked(
            f"digests of {count_of(unknown, 'task')}: the policy has those of lock.json, which is "
            "not sealed with trials that proctor ran"
        )


def _comparable(mine: Sequence[str], expected: Sequence[str]) -> tuple[set[str], set[str]]:
    """The digests of the kinds that both sides have: lock.json's, and task_checksum."""
    kinds = {digest.startswith(_LOCKED) for digest in mine}
    kinds &= {digest.startswith(_LOCKED) for digest in expected}
    left, right = (
        {each for each in side if each.startswith(_LOCKED) in kinds} for side in (mine, expected)
    )
    return left, right


def _show(digests: set[str]) -> str:
    return " or ".join(sorted(each[:19] for each in digests))


def _check_revisions(trials: Sequence[SubmittedTrial]) -> Iterator[Failure]:
    by_task: dict[str | None, list[SubmittedTrial]] = {}
    for trial in trials:
        by_task.setdefault(trial.row.task_id, []).append(trial)
    for same_task in by_task.values():
        revisions = [_revision(each) for each in same_task]
        # The minority is reported, not every trial.
        usual = Counter(revisions).most_common(1)[0][0]
        for trial, revision in zip(same_task, revisions, strict=True):
            if revision != usual:
                message = f"ran the revision {revision[:12]}; most attempts ran {usual[:12]}"
                yield Failure(PolicyCode.MIXED_TASK, trial.name, message)


def _revision(trial: SubmittedTrial) -> str:
    conditions = trial.row.task_conditions
    return conditions.revision if conditions else "withheld"


def check_attempts(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Every task was attempted as often as required."""
    rule = policy.attempts
    made = Counter(trial.row.task_id for trial in submission.counted if trial.row.task_id)
    least, most = rule.exact or rule.minimum or 0, rule.exact
    for name in sorted(policy.tasks.all_names):
        made.setdefault(name, 0)
    for name, n in sorted(made.items()):
        if 0 < n < least:
            message = f"{count_of(n, 'attempt')}; expected {least}"
            message += "" if most else " at least"
            yield Failure(PolicyCode.TOO_FEW_ATTEMPTS, name, message, is_trial=False)
        elif most is not None and n > most:
            message = f"{count_of(n, 'attempt')}; expected {most}"
            yield Failure(PolicyCode.TOO_MANY_ATTEMPTS, name, message, is_trial=False)


# Model, agent, limits, records, verifier, images


_NO_MODEL = (None, NO_MODEL, UNRESOLVED)
_MESSAGES = {
    PolicyCode.PARTIAL_RECORD: "its record is partial",
    PolicyCode.NO_VERIFIER: "its record does not pin the verifier's files",
    PolicyCode.NO_CERTIFICATE: "its scoring profile is not recorded",
}


def check_model(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """One model answered in every trial, and it is the claimed one."""
    present = [trial for trial in submission.counted if not trial.is_withheld]
    for trial in present:
        row = trial.row
        if row.model in _NO_MODEL:
            message = f"{row.agent} names no model"
            yield Failure(PolicyCode.UNKNOWN_MODEL, trial.name, message)
        elif trial.claimed_model and not _is_same(row.model or "", trial.claimed_model):
            message = f"its trace names {row.model}, its config {trial.claimed_model}"
            yield Failure(PolicyCode.CONTRADICTED_MODEL, trial.name, message)
    yield from _check_one(
        present, lambda trial: trial.row.model or NO_MODEL, PolicyCode.MIXED_MODEL
    )


def _is_same(model: str, other: str) -> bool:
    """Whether two names are of the same model, with or without a provider."""
    return model == other or model.rpartition("/")[2] == other.rpartition("/")[2]


def check_agent(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """All trials ran one agent with the same configuration."""
    present = [trial for trial in submission.counted if not trial.is_withheld]
    yield from _check_one(present, _describe_agent, PolicyCode.MIXED_AGENT)


def _describe_agent(trial: SubmittedTrial) -> str:
    row = trial.row
    return f"{row.agent} {row.revision or '(no version)'}, settings {row.configuration}"


def _check_one(
    trials: list[SubmittedTrial], describe: Callable[[SubmittedTrial], str], code: PolicyCode
) -> Iterator[Failure]:
    """Report trials that differ from the majority."""
    kinds = Counter(map(describe, trials))
    if len(kinds) < 2:
        return
    usual = kinds.most_common(1)[0][0]
    for trial in trials:
        if (mine := describe(trial)) != usual:
            yield Failure(code, trial.name, f"{mine}; most trials have {usual}")


def check_limits(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """No multiplier and no override was set."""
    for trial in submission.counted:
        conditions = trial.row.run_conditions
        if conditions is not None and not conditions.has_default_limits:
            changed = ", ".join(f"{name} = {value}" for name, value in conditions.changed.items())
            yield Failure(PolicyCode.CHANGED_LIMITS, trial.name, changed)


def check_records(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """There are trials; each has a record, complete if required, that its files confirm."""
    yield from _check_presence(submission)
    for unreadable in submission.unreadable:
        yield Failure(PolicyCode.NO_RECORD, unreadable.place, unreadable.message)
    for trial in submission.counted:
        if trial.is_withheld:
            message = "it was withheld; only its digest is in the ledger"
            yield Failure(PolicyCode.WITHHELD_TRIAL, trial.name, message)
            continue
        if trial.is_too_large:
            message = "its sealed files are too large to be unpacked; they were not checked"
            yield Failure(PolicyCode.TOO_LARGE, trial.name, message)
            continue
        for contradiction in trial.contradictions:
            yield Failure(PolicyCode.CONTRADICTED_RECORD, trial.name, contradiction)
        if policy.records.complete:
            yield from _check_grade(trial, PolicyCode.PARTIAL_RECORD)


def _check_presence(submission: Submission) -> Iterator[Failure]:
    """A submission without trials would pass every other check."""
    if not submission.counted:
        message = "has no trial that counts; expected at least one"
        yield Failure(PolicyCode.NO_TRIALS, None, message)
        return
    places = [Path(trial.place) for trial in submission.trials if trial.place]
    for audit in submission.audits:
        if not any(place.is_relative_to(audit.job.directory) for place in places):
            message = f"{audit.job.directory}: a job without trials; expected at least one"
            yield Failure(PolicyCode.NO_TRIALS, None, message)


def check_verifier(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """The verifier's files and the scoring profile are on record."""
    for trial in submission.counted:
        yield from _check_grade(trial, PolicyCode.NO_VERIFIER, PolicyCode.NO_CERTIFICATE)


def _check_grade(trial: SubmittedTrial, *codes: PolicyCode) -> Iterator[Failure]:
    for code in grade_trial(trial.row):
        if code in codes:
            yield Failure(code, trial.name, _MESSAGES[code])


def check_images(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Images are named by digest; an image that could not be built has none."""
    for trial in submission.counted:
        conditions = trial.row.task_conditions
        if conditions is None:
            continue
        if not conditions.has_pinned_image:
            message = f"its image is {conditions.image}; expected one with a digest"
            yield Failure(PolicyCode.UNPINNED_IMAGE, trial.name, message)


type CheckFunction = Callable[[Policy, Submission], Iterator[Failure | Unchecked]]

_CHECKS: dict[Check, CheckFunction] = {
    Check.TASKS: check_tasks,
    Check.ATTEMPTS: check_attempts,
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
}


def check_submission(policy: Policy, submission: Submission) -> Verdict:
    """Check a submission against a policy."""
    required_checks = _list_required(policy, submission)
    outcomes = [
        _run(check, policy, submission, is_required=check in required_checks) for check in Check
    ]
    return Verdict(
        policy,
        submission.name,
        len(submission.counted),
        outcomes,
        _count(submission),
        tuple(submission.unchecked),
    )


def _count(submission: Submission) -> dict[str, int]:
    rows = [trial.row for trial in submission.trials]
    account = account_for(rows)
    return {
        "entries": account.listed,
        "counted": account.counted,
        "scored": account.scored,
        "zero_by_missing": account.zero_by_missing,
        "no_number": account.no_number,
        "errored": count_errored(counted_trials(rows)),
        "superseded": account.superseded,
        "attempts": account.begun_again,
        "withheld": account.withheld,
    }


def _list_required(policy: Policy, submission: Submission) -> set[Check]:
    tasks, reviews = policy.tasks, policy.reviews
    required = {
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
        # A ledger that was given is always checked.
        Check.LEDGER: policy.ledger.verified or submission.sealed is not None,
    }
    return {check for check, is_required in required.items() if is_required}


def _run(
    check: Check, policy: Policy, submission: Submission, *, is_required: bool
) -> CheckOutcome:
    if not is_required:
        return CheckOutcome(check, is_asked=False)
    found = list(_CHECKS[check](policy, submission))
    unknown = [each for each in found if isinstance(each, Unchecked)]
    return CheckOutcome(
        check,
        is_asked=True,
        failures=tuple(each for each in found if isinstance(each, Failure)),
        unchecked=tuple(each.why for each in unknown),
        is_checked=not any(each.is_whole for each in unknown),
    )
