"""Which tasks were sat, in which revision, and how often."""

from collections import Counter
from collections.abc import Iterator, Sequence

from proctor.report.policy.model import Policy
from proctor.report.policy.reason import PolicyCode
from proctor.report.policy.submission import Submission, SubmittedTrial
from proctor.report.policy.verdict import Failure, Unchecked
from proctor.sentence import count_of

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
        yield Failure(PolicyCode.MISSING_TASK, name, "no trial sat it", is_trial=False)
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
                message = f"sat the revision {revision[:12]}; most attempts sat {usual[:12]}"
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
