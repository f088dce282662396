"""Who sat the tasks and how: model, agent, limits, records, the verifier, images."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from proctor.exchange.trial_inputs import UNRESOLVED
from proctor.harbor.spending import NO_MODEL
from proctor.report.policy.grade import grade_attempt
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import PolicyCode
from proctor.report.policy.submission import Submission, SubmittedTrial
from proctor.report.policy.verdict import Failure, Unchecked

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
            message = "its bytes were taken out; only their digest is in the ledger"
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
