"""Check certificates and score records by recomputing them."""

from collections.abc import Sequence

from proctor.audit.certificate import check_certificate, find_unchecked, parse_certificate
from proctor.audit.checks.checked import Checked
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import CertificateError, PolicyError, ScoreRecordError
from proctor.files import read_input
from proctor.record.policy import Aggregation
from proctor.record.score_record import (
    ScoringPolicy,
    check_score_record,
    parse_score_record,
    parse_scoring_policy,
)

_COMMON_POLICIES = (ScoringPolicy(), ScoringPolicy(aggregation=Aggregation.BEST_OF_K))
_FOLLOWS = "every number follows from its operands"
_DIFFERS = "a number does not follow from its operands"
_NOT_SHOWN = "the outcome depends on a number that its operands cannot confirm"


def check_certificate_file(path: str) -> Checked:
    """Recompute a certificate.

    Raises:
        CertificateError: it is not a certificate.
        InputError: it cannot be read.
    """
    certificate = parse_certificate(read_input(path), path)
    try:
        difference = check_certificate(certificate)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    differs = None if difference is None else str(difference)
    return _answer(path, FileKind.CERTIFICATE, differs, find_unchecked(certificate))


def check_score_record_file(path: str, policy: str | None = None) -> Checked:
    """Recompute a score record under its policy; pass the policy's file unless it is a common one.

    Raises:
        ScoreRecordError: it is not a score record, or its policy is unknown.
        PolicyError: the given policy is invalid.
        InputError: a file cannot be read.
    """
    try:
        record = parse_score_record(read_input(path))
    except ScoreRecordError as error:
        raise ScoreRecordError(f"{path}: {error}") from error
    candidates = [_load_policy(policy)] if policy else _COMMON_POLICIES
    rules = next((found for found in candidates if found.digest == record.policy_digest), None)
    if rules is None:
        tried = policy or "mean or best-of-k without a keep policy"
        raise ScoreRecordError(
            f"{path}: its policy has digest {record.policy_digest}, which is not that of "
            f"{tried}; pass the policy with --policy"
        )
    try:
        check_score_record(record, rules)
    except ScoreRecordError as error:
        return _answer(path, FileKind.SCORE_RECORD, str(error))
    return _answer(path, FileKind.SCORE_RECORD, None)


def _answer(
    path: str, thing: FileKind, difference: str | None, unshown: Sequence[str] = ()
) -> Checked:
    summary = _NOT_SHOWN if unshown else _FOLLOWS
    problems = [] if difference is None else [Diagnostic("differs", difference)]
    problems += [Diagnostic("not-shown", f"{each} cannot be recomputed") for each in unshown]
    return Checked(
        path=path,
        thing=thing,
        summary=summary if difference is None else _DIFFERS,
        diagnostics=tuple(problems),
    )


def _load_policy(path: str) -> ScoringPolicy:
    data = read_input(path)
    try:
        return parse_scoring_policy(data)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from error
