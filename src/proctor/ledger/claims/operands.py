"""Sealed trials as operands of a score, and their score certificate.

The computation is that of every other score: the metrics and pass@k of `reward`, the result line of
`outcome`. Trials are added up in the order of the log.
"""

import contextlib
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
from proctor.harbor.stats import ADHOC, count_errored, evals_key
from proctor.ledger.claims.trials import ReadTrial
from proctor.ledger.entry import TrialEntry
from proctor.ledger.row import TrialRow, has_only_numbers
from proctor.reward.metric import compute_metric
from proctor.reward.number import Number
from proctor.reward.passk import pass_at_k
from proctor.reward.profile import DEFAULT_PROFILE

ORDER = "their places in the ledger"
"""The source of the operands' order, as the certificate names it."""
FROM_BREAKDOWN = "the record's breakdown"
FROM_REWARD = "the record's reward"


class _Marks(msgspec.Struct, frozen=True):
    reward: int | float | None
    breakdown: dict[str, Any] | None = None


class _Marked(msgspec.Struct, frozen=True):
    evaluation: _Marks


class _Certified(msgspec.Struct, frozen=True):
    """The fields of an entry's certificate that count; trial and job come from the record."""

    task: str
    rewards: dict[str, int | str] | None
    basis: str
    exception: str | None
    group: str | None = None


def operand_of(entry: TrialEntry, row: TrialRow) -> CertifiedTrial:
    """The operand of a sealed trial.

    Its certificate decides. A trial sealed without one uses the breakdown of its record if that has
    only numbers, else its reward; `basis` says which.
    """
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
    if marks.breakdown and has_only_numbers(marks.breakdown):
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
        # Claims that were made before compare equal only by this rule, by which a trial without a
        # certificate raised the reason why it is not scored.
        exception=entry.reason_code or row.exception,
    )


def group_operands(claimed: Sequence[ReadTrial]) -> dict[str, list[CertifiedTrial]]:
    """The operands of trials by group, in the given order."""
    groups: dict[str, list[CertifiedTrial]] = {}
    for entry, row in claimed:
        stated = entry.score.certificate if entry.score else None
        group = _parse_certified(entry, stated).group if stated is not None else None
        if not group:
            # Named as harbor does.
            model = None if row.model == NO_MODEL else row.model
            group = evals_key(row.agent or "", model, row.recorded_dataset or ADHOC)
        groups.setdefault(group, []).append(operand_of(entry, row))
    return groups


def profiles_of(claimed: Sequence[ReadTrial]) -> list[str]:
    """The profiles that trials were scored by; the default if none is stated."""
    named = {entry.score.profile for entry, _ in claimed if entry.score is not None}
    return sorted(named) or [DEFAULT_PROFILE.name]


def certify(
    claimed: Sequence[ReadTrial], experiment: str, metrics: Sequence[str], planned: int
) -> Certificate:
    """Make the certificate of trials; it has pass@k only if no planned trial is missing.

    Raises:
        LedgerError: they were scored by different profiles.
        DamageError: an entry has no valid score.
        CertificateError: a reward is not a number.
    """
    profile, *others = profiles_of(claimed)
    if others:
        raise LedgerError(
            f"{experiment}: scored by {', '.join([profile, *others])}; expected one profile"
        )
    # pass@k over an incomplete set of attempts would be biased.
    is_whole = len(claimed) == planned
    groups, results = [], []
    for key, trials in group_operands(claimed).items():
        column = certified_column(CertifiedGroup(key, trials, [], {}))
        computed: list[CertifiedMetric] = []
        for name in metrics:
            written: dict[str, Any] | None = None
            with contextlib.suppress(ArithmeticError, ValueError):
                found = compute_metric(name, column)
                written = {label: write_number(value) for label, value in found.items()}
                results.append(found)
            origin = Origin.FAILED if written is None else Origin.COMPUTED
            computed.append(CertifiedMetric(name, str(origin), inferred=False, result=written))
        estimates = pass_at_k([trial.task for trial in trials], column) if is_whole else {}
        passed = {str(k): write_number(value) for k, value in estimates.items()}
        groups.append(CertifiedGroup(key, trials, computed, passed))
    summary = summarize_metrics(
        results,
        planned=planned,
        completed=len(claimed),
        errored=count_errored(trial for group in groups for trial in group.trials),
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
