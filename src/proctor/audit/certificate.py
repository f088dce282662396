"""A score certificate: every operand of a score, in order and to the last bit.

Anyone who has it can recompute the score without the job and without trusting its sender. It proves
what the numbers add up to, not that they are true: that takes the reward files and `audit`.

Floats are written as `float.hex`, ints as ints, so 1 and 1.0 stay distinct.
"""

import contextlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proctor.audit.scoring import Origin, ScoredMetric, Scoring, summarize_metrics
from proctor.digest import sha256_hex
from proctor.errors import CertificateError
from proctor.files import read_small
from proctor.harbor.declared import SCRIPT
from proctor.harbor.render import render_json
from proctor.harbor.stats import count_errored
from proctor.harbor.trial import FoundTrial
from proctor.json_values import MOST_VALUES, check_values
from proctor.record.outcome import Summary
from proctor.reward.metric import METRICS, RewardColumn, compute_metric
from proctor.reward.number import Number, Rewards, bits, same_number
from proctor.reward.passk import pass_at_k

FORMAT = "proctor-certificate-1"

type Written = int | str
"""A number: an int, or a float as `float.hex` writes it."""


class CertifiedTrial(msgspec.Struct, frozen=True):
    """One operand: a trial with its rewards."""

    job: int
    """Index of its job in `jobs`."""
    trial: str
    task: str
    rewards: dict[str, Written] | None
    """By key, in the verifier's order; None if there are none, which counts as 0."""
    basis: str
    """Where the rewards were read from."""
    exception: str | None


class CertifiedMetric(msgspec.Struct, frozen=True):
    """One metric and its value."""

    metric: str
    origin: str
    """computed, carried over or failed; only a computed one can be checked."""
    inferred: bool
    result: dict[str, Any] | None
    """Numbers in the certificate's format; a script's output is unchanged."""


class CertifiedGroup(msgspec.Struct, frozen=True):
    """Trials of one evals key, in the order in which they are added up."""

    key: str
    trials: list[CertifiedTrial]
    metrics: list[CertifiedMetric]
    pass_at_k: dict[str, Written]


class CertifiedJob(msgspec.Struct, frozen=True):
    """A job that was scored."""

    name: str
    order: str
    """Where the order of its trials was taken from."""
    result_sha256: str | None
    """Digest of its published result.json."""


class CertifiedOutcome(msgspec.Struct, frozen=True):
    """The result line."""

    status: str
    score: Written
    resolved: int
    total: int
    reason_code: str | None


class Certificate(msgspec.Struct, frozen=True):
    """Operands and results of one scoring."""

    format: str
    profile: str
    python: str
    """Version of the interpreter that computed it. The result must not depend on it."""
    planned: int
    """Number of planned trials."""
    pass_at_k: bool
    """Whether pass@k was reported; an unfinished job has none."""
    jobs: list[CertifiedJob]
    groups: list[CertifiedGroup]
    outcome: CertifiedOutcome


class Difference(msgspec.Struct, frozen=True):
    """A number in a certificate that does not follow from its operands."""

    where: str
    stated: str
    recomputed: str
    first_bit: str
    """The highest bit in which two floats differ; empty if they are not both floats."""

    def __str__(self) -> str:
        bit = f"; first differing bit: {self.first_bit}" if self.first_bit else ""
        return f"{self.where}: stated {self.stated}, the operands give {self.recomputed}{bit}"


def make_certificate(scoring: Scoring) -> Certificate:
    """Make the certificate of a scoring."""
    operands: dict[str, list[CertifiedTrial]] = {}
    for index, job in enumerate(scoring.jobs):
        for found in job.trials:
            operands.setdefault(found.trial.evals_key, []).append(certify_trial(index, found))
    return Certificate(
        format=FORMAT,
        profile=scoring.profile.name,
        python=platform.python_version(),
        planned=scoring.denominators.planned,
        pass_at_k=not scoring.live,
        jobs=[
            CertifiedJob(job.name, str(job.ordered.basis), _result_digest(job.directory))
            for job in scoring.jobs
        ],
        groups=[_certify_group(key, trials, scoring) for key, trials in operands.items()],
        outcome=_certify_outcome(scoring.summary),
    )


def render_certificate(certificate: Certificate) -> bytes:
    """Render a certificate file."""
    document = msgspec.to_builtins(certificate)
    return json.dumps(document, indent=1).encode() + b"\n"


def parse_certificate(data: bytes, path: str) -> Certificate:
    """Parse a certificate file.

    Raises:
        CertificateError: invalid JSON, or not a certificate.
    """
    try:
        check_values(data, 4 * MOST_VALUES)
        certificate = msgspec.convert(json.loads(data), Certificate)
    except msgspec.ValidationError as error:
        raise CertificateError(f"{path}: not a score certificate: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"{path}: torn or not JSON: {error}") from error
    if certificate.format != FORMAT:
        raise CertificateError(f"{path}: format is {certificate.format!r}; expected {FORMAT!r}")
    return certificate


def check_certificate(certificate: Certificate) -> Difference | None:
    """Return the first number that does not follow from the operands, if any."""
    return next(_differences(certificate), None)


def find_unchecked(certificate: Certificate) -> list[str]:
    """Metrics that the operands alone cannot confirm: those of scripts, and unknown ones."""
    return [
        f"metric {metric.metric} of {group.key} ({metric.origin})"
        for group in certificate.groups
        for metric in group.metrics
        if metric.metric not in METRICS
    ]


def _differences(certificate: Certificate) -> Iterator[Difference]:
    yield from _check_trials(certificate)
    for index, group in enumerate(certificate.groups):
        where = f"groups[{index}] {group.key}"
        column = certified_column(group)
        for number, metric in enumerate(group.metrics):
            yield from _check_metric(metric, column, f"{where}.metrics[{number}]")
        tasks = [trial.task for trial in group.trials]
        estimates = pass_at_k(tasks, column) if certificate.pass_at_k else {}
        expected = {str(k): value for k, value in estimates.items()}
        yield from _compare(f"{where}.pass_at_k", group.pass_at_k, expected)
    yield from _check_outcome(certificate.outcome, _summarize(certificate))


def _check_trials(certificate: Certificate) -> Iterator[Difference]:
    """No trial may occur twice, and there may be no more than planned."""
    trials = [trial for group in certificate.groups for trial in group.trials]
    counts = Counter((trial.job, trial.trial) for trial in trials)
    for (_, name), n in counts.items():
        if n > 1:
            yield Difference(f"trial {name}", f"{n} times", "a trial is an operand once", "")
    if len(trials) > certificate.planned:
        stated = str(certificate.planned)
        yield Difference("planned", stated, f"{len(trials)} trials", "")


def _summarize(certificate: Certificate) -> Summary:
    """The result line for the certified metrics."""
    trials = [trial for group in certificate.groups for trial in group.trials]
    return summarize_metrics(
        [_plain_result(metric) for group in certificate.groups for metric in group.metrics],
        planned=certificate.planned,
        completed=len(trials),
        errored=count_errored(trials),
    )


def _plain_result(metric: CertifiedMetric) -> Mapping[str, object]:
    result = metric.result or {}
    if metric.metric not in METRICS:
        return result
    return {name: _parse_number(value, f"{metric.metric}.{name}") for name, value in result.items()}


def _check_metric(
    metric: CertifiedMetric, column: RewardColumn, where: str
) -> Iterator[Difference]:
    if metric.metric not in METRICS:
        if metric.metric != SCRIPT and metric.origin == Origin.COMPUTED:
            known = ", ".join([*METRICS, SCRIPT])
            raise CertificateError(f"{where}: metric {metric.metric!r}; expected one of {known}")
        return
    try:
        entry = compute_metric(metric.metric, column)
    except (ArithmeticError, ValueError) as error:
        if metric.result is not None:
            yield Difference(where, str(metric.result), f"no value: {error}", "")
        return
    yield from _compare(f"{where}.{metric.metric}", metric.result or {}, entry)


def _check_outcome(stated: CertifiedOutcome, summary: Summary) -> Iterator[Difference]:
    yield from _compare("outcome", {"score": stated.score}, {"score": summary.score})
    reason = str(summary.reason_code) if summary.reason_code else None
    facts = [
        ("status", stated.status, summary.status),
        ("resolved", stated.resolved, summary.resolved),
        ("total", stated.total, summary.total),
        ("reason_code", stated.reason_code, reason),
    ]
    for name, found, expected in facts:
        if found != expected:
            yield Difference(f"outcome.{name}", str(found), str(expected), "")


def _compare(
    where: str, stated: Mapping[str, object], recomputed: Mapping[str, Number]
) -> Iterator[Difference]:
    if list(stated) != list(recomputed):
        yield Difference(where, f"names {list(stated)}", f"names {list(recomputed)}", "")
        return
    for name, expected in recomputed.items():
        found = _parse_number(stated[name], f"{where}.{name}")
        if not same_number(found, expected):
            yield Difference(
                f"{where}.{name}",
                str(write_number(found)),
                str(write_number(expected)),
                _first_bit(found, expected),
            )


def _first_bit(left: Number, right: Number) -> str:
    if not (isinstance(left, float) and isinstance(right, float)):
        return ""
    place = (bits(left) ^ bits(right)).bit_length() - 1
    if place == 63:
        return "the sign (bit 63)"
    part = f"exponent bit {place - 52}" if place >= 52 else f"fraction bit {place}"
    return f"{part} (bit {place} of 64)"


def write_number(value: Number) -> Written:
    """Convert a number to the certificate's format."""
    return value.hex() if isinstance(value, float) else value


def find_number(written: object) -> Number | None:
    """A number in the certificate's format; None if it is not one."""
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    if isinstance(written, str):
        with contextlib.suppress(ValueError, OverflowError):
            return float.fromhex(written)
    return None


def _parse_number(written: object, where: str) -> Number:
    number = find_number(written)
    if number is None:
        raise CertificateError(
            f"{where}: {written!r} is not a number; expected an int or a float as float.hex "
            "writes it"
        )
    return number


def certified_column(group: CertifiedGroup) -> RewardColumn:
    """Parse the operands of a group."""
    return RewardColumn(_parse_rewards(trial, group.key) for trial in group.trials)


def _parse_rewards(trial: CertifiedTrial, where: str) -> Rewards | None:
    if trial.rewards is None:
        return None
    return {
        key: _parse_number(value, f"{where} {trial.trial}.{key}")
        for key, value in trial.rewards.items()
    }


def certify_trial(job: int, found: FoundTrial) -> CertifiedTrial:
    """Convert a trial to an operand; `job` is the index of its job in the certificate."""
    trial = found.trial
    return CertifiedTrial(
        job=job,
        trial=trial.name,
        task=trial.task,
        rewards=_write_rewards(trial.verdict.rewards if trial.verdict else None),
        basis=str(found.basis),
        exception=trial.exception,
    )


def _certify_group(key: str, trials: list[CertifiedTrial], scoring: Scoring) -> CertifiedGroup:
    estimates = scoring.stats.evals[key].pass_at_k
    return CertifiedGroup(
        key=key,
        trials=trials,
        metrics=[_certify_metric(metric) for metric in scoring.metrics[key]],
        pass_at_k={str(k): write_number(value) for k, value in estimates.items()},
    )


def _certify_metric(metric: ScoredMetric) -> CertifiedMetric:
    name, result = metric.declared.name, metric.entry
    if result is not None:
        # A script's values are passed through JSON as harbor would write them.
        result = (
            json.loads(render_json(result))
            if name not in METRICS
            else {
                key: write_number(value) if isinstance(value, float) else value
                for key, value in result.items()
            }
        )
    return CertifiedMetric(name, str(metric.origin), metric.declared.inferred, result)


def _certify_outcome(summary: Summary) -> CertifiedOutcome:
    reason = str(summary.reason_code) if summary.reason_code else None
    score = write_number(summary.score)
    return CertifiedOutcome(summary.status, score, summary.resolved, summary.total, reason)


def _write_rewards(rewards: Rewards | None) -> dict[str, Written] | None:
    return None if rewards is None else {key: write_number(value) for key, value in rewards.items()}


def _result_digest(directory: str) -> str | None:
    try:
        return sha256_hex(read_small(f"{directory}/result.json"))
    except OSError:
        return None
