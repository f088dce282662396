"""All checks of a policy on a submission: one verdict.

What a submission should have and has not fails the check that needs it, so that nobody gets rid
of a check by deleting a file. What no submission of its sort can show is told as unchecked.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import Audit
from proctor.harbor.record import NO_MODEL, UNRESOLVED
from proctor.ledger.counting import account_for, count_exceptions
from proctor.ledger.withheld import render_unnamed
from proctor.report.policy.grade import find_open, grade_attempt
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import Check, PolicyCode
from proctor.report.policy.submission import Submission, SubmittedTrial
from proctor.report.policy.trace_checks import check_traces
from proctor.report.policy.verdict import CheckOutcome, Failure, Unchecked, Verdict
from proctor.report.policy.witness_checks import check_witnesses
from proctor.sentence import count_of

# What numbers rest on: evidence, plan, replacements, findings, reviews, the ledger


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
        message = f"{n} restarted, and the reason is not on record"
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


# Which tasks were sat, in which revision, and how often


_LOCKED = "sha256:"


def check_tasks(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """The tasks are the policy's, none is missing, and each is one and the same."""
    rule, trials = policy.tasks, submission.counted
    names = rule.all_names
    sat = {trial.attempt.task_id for trial in trials if trial.attempt.task_id}
    for trial in trials:
        task = trial.attempt.task_id
        if names and task is not None and task not in names:
            message = f"sat {task}, which is no task of {policy.name}"
            yield Failure(PolicyCode.FOREIGN_TASK, trial.name, message)
    for name in sorted(names - sat):
        yield Failure(PolicyCode.MISSING_TASK, name, "no trial ran it", is_trial=False)
    if rule.count is not None and len(sat) != rule.count:
        message = f"{count_of(len(sat), 'task')}; expected {rule.count}"
        yield Failure(PolicyCode.WRONG_TASK_COUNT, None, message)
    if rule.digests:
        yield from _check_digests(policy, submission)
    if rule.same_revision:
        yield from _check_revisions(trials)


def _check_digests(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    untold = 0
    for trial in submission.counted:
        expected = policy.tasks.digests_of(trial.attempt.task_id or "")
        if not expected:
            continue
        mine, wanted = _comparable(trial.digests, expected)
        if not mine and submission.has_jobs:
            message = "neither lock.json nor result.json gives the digest that the policy has"
            yield Failure(PolicyCode.UNKNOWN_TASK, trial.name, message)
        elif not mine:
            untold += 1
        elif not wanted & mine:
            message = f"its task is {_show(mine)}; expected {_show(wanted)}"
            yield Failure(PolicyCode.CHANGED_TASK, trial.name, message)
    if untold:
        yield Unchecked(
            f"digests of {count_of(untold, 'task')}: the policy has those of lock.json, which is "
            "not sealed with trials that proctor ran"
        )


def _comparable(mine: Sequence[str], expected: Sequence[str]) -> tuple[set[str], set[str]]:
    """Digests of those kinds that both sides have: lock.json's, and task_checksum."""
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
        by_task.setdefault(trial.attempt.task_id, []).append(trial)
    for attempts in by_task.values():
        revisions = [_revision(each) for each in attempts]
        usual = Counter(revisions).most_common(1)[0][0]
        for trial, revision in zip(attempts, revisions, strict=True):
            if revision != usual:
                message = f"ran the revision {revision[:12]}; most attempts ran {usual[:12]}"
                yield Failure(PolicyCode.MIXED_TASK, trial.name, message)


def _revision(trial: SubmittedTrial) -> str:
    conditions = trial.attempt.task_conditions
    return conditions.revision if conditions else "withheld"


def check_attempts_made(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Every task was attempted as often as asked for."""
    rule = policy.attempts
    made = Counter(trial.attempt.task_id for trial in submission.counted if trial.attempt.task_id)
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


# Who sat the tasks and how: model, agent, limits, records, the verifier, images


_NO_MODEL = (None, NO_MODEL, UNRESOLVED)
_SAYS = {
    PolicyCode.PARTIAL_RECORD: "its record is partial",
    PolicyCode.NO_VERIFIER: "its record does not pin the verifier's files",
    PolicyCode.NO_CERTIFICATE: "nothing says by which rules it was marked",
}


def check_model(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """One model answered in every trial, the one that is claimed."""
    present = [trial for trial in submission.counted if not trial.is_withheld]
    for trial in present:
        attempt = trial.attempt
        if attempt.model in _NO_MODEL:
            message = f"{attempt.agent} names no model"
            yield Failure(PolicyCode.UNKNOWN_MODEL, trial.name, message)
        elif trial.claimed_model and not _is_same(attempt.model or "", trial.claimed_model):
            message = f"its trace names {attempt.model}, its config {trial.claimed_model}"
            yield Failure(PolicyCode.CONTRADICTED_MODEL, trial.name, message)
    yield from _check_one(
        present, lambda trial: trial.attempt.model or NO_MODEL, PolicyCode.MIXED_MODEL
    )


def _is_same(model: str, other: str) -> bool:
    """Whether two names mean one model: with or without its provider."""
    return model == other or model.rpartition("/")[2] == other.rpartition("/")[2]


def check_agent(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """One agent, set up alike in every trial."""
    present = [trial for trial in submission.counted if not trial.is_withheld]
    yield from _check_one(present, _describe_agent, PolicyCode.MIXED_AGENT)


def _describe_agent(trial: SubmittedTrial) -> str:
    attempt = trial.attempt
    return (
        f"{attempt.agent} {attempt.revision or 'of no version'}, set up as {attempt.configuration}"
    )


def _check_one(
    trials: list[SubmittedTrial], describe: Callable[[SubmittedTrial], str], code: PolicyCode
) -> Iterator[Failure]:
    """All trials are alike; those that are not like most of them are named."""
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
        conditions = trial.attempt.run_conditions
        if conditions is not None and not conditions.has_default_limits:
            changed = ", ".join(f"{name} = {value}" for name, value in conditions.changed.items())
            yield Failure(PolicyCode.CHANGED_LIMITS, trial.name, changed)


def check_records(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """There are trials; each has a record, complete where asked, that its files bear out."""
    yield from _check_presence(submission)
    for unreadable in submission.unreadable:
        yield Failure(PolicyCode.NO_RECORD, unreadable.place, unreadable.message)
    for trial in submission.counted:
        if trial.is_withheld:
            message = "its bytes were withheld; only their digest is in the ledger"
            yield Failure(PolicyCode.WITHHELD_TRIAL, trial.name, message)
            continue
        if trial.is_too_large:
            message = "its sealed files are more than is unpacked; nothing of them was checked"
            yield Failure(PolicyCode.TOO_LARGE, trial.name, message)
            continue
        for contradiction in trial.contradictions:
            yield Failure(PolicyCode.CONTRADICTED_RECORD, trial.name, contradiction)
        if policy.records.complete:
            yield from _check_grade(trial, PolicyCode.PARTIAL_RECORD)


def _check_presence(submission: Submission) -> Iterator[Failure]:
    """A submission without trials meets every other demand, and so must fail this one."""
    if not submission.counted:
        message = "has no trial that a number could be made of; expected one at least"
        yield Failure(PolicyCode.NO_TRIALS, None, message)
        return
    places = [Path(trial.place) for trial in submission.trials if trial.place]
    for audit in submission.audits:
        if not any(place.is_relative_to(audit.job.directory) for place in places):
            message = f"{audit.job.directory}: a job without trials; expected one at least"
            yield Failure(PolicyCode.NO_TRIALS, None, message)


def check_verifier(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """What marked a trial is on record: the verifier's files, and the rules."""
    for trial in submission.counted:
        yield from _check_grade(trial, PolicyCode.NO_VERIFIER, PolicyCode.NO_CERTIFICATE)


def _check_grade(trial: SubmittedTrial, *codes: PolicyCode) -> Iterator[Failure]:
    for code in grade_attempt(trial.attempt):
        if code in codes:
            yield Failure(code, trial.name, _SAYS[code])


def check_images(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Images are named by their digests; one that could not be built has none."""
    for trial in submission.counted:
        conditions = trial.attempt.task_conditions
        if conditions is None:
            continue
        if not conditions.has_pinned_image:
            message = f"its image is {conditions.image}; expected one with a digest"
            yield Failure(PolicyCode.UNPINNED_IMAGE, trial.name, message)


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
