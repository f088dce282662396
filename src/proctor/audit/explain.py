"""A certificate as text: every addition, in order, down to the final result.

Every number is shown as `float.hex`, which has all its bits, with its decimal value.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import compress

from proctor.audit.certificate import (
    Certificate,
    CertifiedGroup,
    CertifiedMetric,
    Written,
    certified_column,
    write_number,
)
from proctor.harbor.render import render_json
from proctor.reward.metric import METRICS, RewardColumn, operands
from proctor.reward.number import exact_sum
from proctor.reward.passk import estimate


def explain(certificate: Certificate) -> Iterator[str]:
    """Derive every number of a certificate from its operands, line by line."""
    yield f"profile {certificate.profile}, computed by Python {certificate.python}"
    for job in certificate.jobs:
        yield f"job {job.name}: trials in the order of {job.order}"
    for group in certificate.groups:
        yield from _explain_group(group)
    yield from _explain_outcome(certificate)


def _explain_group(group: CertifiedGroup) -> Iterator[str]:
    yield ""
    yield f"group {group.key}: {len(group.trials)} trials"
    width = len(str(len(group.trials)))
    for index, trial in enumerate(group.trials, 1):
        yield f"  [{index:>{width}}] {trial.trial}: {_operand(trial.rewards)} ({trial.basis})"
    column = certified_column(group)
    for metric in group.metrics:
        yield from _explain_metric(metric, column)
    if group.pass_at_k:
        yield from _explain_pass_at_k(group, column)


def _operand(rewards: dict[str, Written] | None) -> str:
    if rewards is None:
        return "no reward, counts as 0"
    if not rewards:
        return "no reward key, counts as 0"
    return ", ".join(f"{key} = {_number(value)}" for key, value in rewards.items())


def _explain_metric(metric: CertifiedMetric, column: RewardColumn) -> Iterator[str]:
    name, guess = metric.metric, " (metric inferred)" if metric.inferred else ""
    if metric.result is None or name not in METRICS:
        yield f"  {name}: {metric.origin}, {metric.result or 'no value'}{guess}"
        return
    for label, values in operands(column, name).items():
        what = f"{name} of {label}" if len(column.keys) > 1 else name
        how = _HOW[name]
        if name == "mean":
            how = f"{how} {_number(write_number(exact_sum(values)))} / {len(values)} of"
        yield f"  {what} = {_number(metric.result[label])}: {how} [1]..[{len(values)}]{guess}"


_HOW = {
    "mean": "compensated sum",
    "sum": "compensated sum of",
    "max": "first largest of",
    "min": "first smallest of",
}


def _explain_pass_at_k(group: CertifiedGroup, column: RewardColumn) -> Iterator[str]:
    attempts = Counter(trial.task for trial in group.trials)
    successes = Counter(compress((trial.task for trial in group.trials), column.first))
    for k, value in group.pass_at_k.items():
        for task, n in attempts.items():
            chance = write_number(estimate(n, successes[task], int(k)))
            yield f"    pass@{k} of {task}: {successes[task]} of {n} attempts: {_number(chance)}"
        yield f"  pass@{k} = {_number(value)}: mean over {len(attempts)} tasks"


def _explain_outcome(certificate: Certificate) -> Iterator[str]:
    outcome = certificate.outcome
    values = [
        value
        for group in certificate.groups
        for metric in group.metrics
        for value in _counted(metric)
    ]
    yield ""
    yield f"result line: the plain mean of the metric values ({len(values)})"
    for index, value in enumerate(values, 1):
        yield f"  ({index}) {value}"
    if outcome.reason_code is not None:
        yield f"  they make no score: {outcome.reason_code}"
    yield f"  score = {_number(outcome.score)}"
    yield f"  resolved = round(score x {certificate.planned}) = {outcome.resolved}, halves to even"
    yield f"  status {outcome.status}, total {outcome.total}"


def _counted(metric: CertifiedMetric) -> list[str]:
    result = metric.result or {}
    values = [result["mean"]] if "mean" in result else list(result.values())
    return [_number(value) if metric.metric in METRICS else render_json(value) for value in values]


def _number(value: Written) -> str:
    return f"{value} (int)" if isinstance(value, int) else f"{value} ({float.fromhex(value)!r})"
