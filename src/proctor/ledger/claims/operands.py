"""Sealed trials as operands of a score, and the certificate that they make.

The arithmetic is that of every other score: the metrics and pass@k of `reward`, the result line
of `outcome`. Trials are added up in the order of the log. Nothing here reads a ledger.
"""

import platform
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.audit.certificate import (
    FORMAT,
    Certificate,
    CertifiedGroup,
    CertifiedJob,
    CertifiedMetric,
    CertifiedOutcome,
    CertifiedTrial,
    certified_column,
    write_number,
)
from proctor.audit.scoring import Origin, summarize_metrics
from proctor.errors import DamageError, LedgerError
from proctor.harbor.record import NO_MODEL
from proctor.harbor.stats import ADHOC, evals_key
from proctor.ledger.entry import TrialEntry
from proctor.ledger.row import ErrorTag, TrialRow, find_exception, read_row
from proctor.reward.column import RewardColumn
from proctor.reward.metric import compute_metric
from proctor.reward.number import Number, Rewards, is_finite
from proctor.reward.passk import pass_at_k
from proctor.reward.profile import DEFAULT_PROFILE

ORDER = "their places in the ledger"
"""What the order of the operands is taken from, as the certificate says it."""
FROM_BREAKDOWN = "the record's breakdown"
FROM_REWARD = "the record's reward"


class _Marks(msgspec.Struct, frozen=True):
    reward: int | float | None
    breakdown: dict[str, Any] | None = None
    error_taxonomy: tuple[ErrorTag, ...] | None = None


class _Marked(msgspec.Struct, frozen=True):
    evaluation: _Marks


class _Certified(msgspec.Struct, frozen=True):
    """The part of an entry's certificate that counts; the trial and its job are the record's."""

    task: str
    rewards: dict[str, int | str] | None
    basis: str
    exception: str | None
    group: str | None = None


def group_of(entry: TrialEntry) -> str:
    """The group that a trial is counted in: its certificate's, else named as harbor names them."""
    row, stated = read_row(entry), entry.score.certificate if entry.score else None
    if stated is not None and (group := _parse_certified(entry, stated).group):
        return group
    model = None if row.model == NO_MODEL else row.model
    return evals_key(row.agent or "", model, row.recorded_dataset or ADHOC)


def operand_of(entry: TrialEntry) -> CertifiedTrial:
    """What a sealed trial adds to a score.

    Its certificate decides. Where it was sealed without one: the breakdown of its record if that
    holds numbers and nothing else, else its reward; the basis says which.

    Raises:
        DamageError: its certificate is none.
    """
    row = read_row(entry)
    stated = entry.score.certificate if entry.score else None
    if stated is None:
        return _operand_of_record(entry, row)
    found = _parse_certified(entry, stated)
    return CertifiedTrial(
        job=0,
        trial=row.trial_id,
        task=found.task,
        rewards=found.rewards,
        basis=found.basis,
        exception=found.exception,
    )


def _parse_certified(entry: TrialEntry, stated: dict[str, Any]) -> _Certified:
    try:
        return msgspec.convert(stated, _Certified)
    except msgspec.ValidationError as error:
        raise DamageError(f"entry {entry.seq}: its score has no certificate: {error}") from error


def _operand_of_record(entry: TrialEntry, row: TrialRow) -> CertifiedTrial:
    try:
        marks = msgspec.json.decode(entry.record, type=_Marked).evaluation
    except msgspec.MsgspecError as error:
        raise DamageError(f"entry {entry.seq}: its record has no evaluation: {error}") from error
    rewards: dict[str, Number] | None = None
    basis = FROM_REWARD
    if marks.breakdown and all(map(_is_reward, marks.breakdown.values())):
        rewards, basis = marks.breakdown, FROM_BREAKDOWN
    elif marks.reward is not None:
        rewards = {"reward": marks.reward}
    return CertifiedTrial(
        job=0,
        trial=row.trial_id,
        task=row.task_id or "",
        rewards=None
        if rewards is None
        else {key: write_number(value) for key, value in rewards.items()},
        basis=basis,
        exception=find_exception(entry, marks.error_taxonomy),
    )


def _is_reward(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and is_finite(value)  # type: ignore[arg-type]


def group_operands(entries: Sequence[TrialEntry]) -> dict[str, list[CertifiedTrial]]:
    """The operands of these trials, by group, in the order they are given.

    Raises:
        DamageError: an entry says nothing of its score.
    """
    groups: dict[str, list[CertifiedTrial]] = {}
    for entry in entries:
        groups.setdefault(group_of(entry), []).append(operand_of(entry))
    return groups


def profiles_of(entries: Sequence[TrialEntry]) -> list[str]:
    """The names of the rules that these trials were marked by; the default where none says."""
    named = {entry.score.profile for entry in entries if entry.score is not None}
    return sorted(named) or [DEFAULT_PROFILE.name]


def certify(
    entries: Sequence[TrialEntry], experiment: str, metrics: Sequence[str], planned: int
) -> Certificate:
    """The certificate of these trials; pass@k is in it when none of the planned ones is missing.

    Raises:
        LedgerError: they were marked by different rules.
        DamageError: an entry says nothing of its score.
        CertificateError: a reward is no number.
    """
    profile, *others = profiles_of(entries)
    if others:
        raise LedgerError(
            f"{experiment}: marked by {', '.join([profile, *others])}; expected one set of rules"
        )
    is_whole = len(entries) == planned
    groups, results = [], []
    for key, trials in group_operands(entries).items():
        column = certified_column(CertifiedGroup(key, trials, [], {}))
        computed = [_compute(name, column) for name in metrics]
        results += [found for _, found in computed if found is not None]
        estimates = pass_at_k([trial.task for trial in trials], column) if is_whole else {}
        written = {str(k): write_number(value) for k, value in estimates.items()}
        groups.append(CertifiedGroup(key, trials, [metric for metric, _ in computed], written))
    summary = summarize_metrics(
        results,
        planned=planned,
        completed=len(entries),
        errored=sum(trial.exception is not None for group in groups for trial in group.trials),
    )
    reason = str(summary.reason_code) if summary.reason_code else None
    return Certificate(
        format=FORMAT,
        profile=profile,
        python=platform.python_version(),
        planned=planned,
        pass_at_k=is_whole,
        jobs=[CertifiedJob(experiment, ORDER, None)],
        groups=groups,
        outcome=CertifiedOutcome(
            summary.status, write_number(summary.score), summary.resolved, summary.total, reason
        ),
    )


def _compute(name: str, column: RewardColumn) -> tuple[CertifiedMetric, Rewards | None]:
    try:
        found = compute_metric(name, column)
    except (ArithmeticError, ValueError):
        return CertifiedMetric(name, str(Origin.FAILED), inferred=False, result=None), None
    written: dict[str, Any] = {label: write_number(value) for label, value in found.items()}
    return CertifiedMetric(name, str(Origin.COMPUTED), inferred=False, result=written), found
