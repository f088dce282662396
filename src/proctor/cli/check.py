"""`proctor check`: a certificate or a score record, recomputed from what it holds."""

from dataclasses import dataclass, field

import click
import msgspec

from proctor.audit.certificate import check_certificate, find_unchecked, parse_certificate
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import CertificateError, InputError, PolicyError, ScoreRecordError
from proctor.files import read_small
from proctor.outcome.policy import Aggregation
from proctor.outcome.score_record import check_score_record, parse_score_record
from proctor.outcome.scoring_policy import ScoringPolicy, parse_scoring_policy

_COMMON_POLICIES = (ScoringPolicy(), ScoringPolicy(aggregation=Aggregation.BEST_OF_K))


@click.command("check")
@click.argument("things", nargs=-1, required=True, type=click.Path())
@click.option("--policy", type=click.Path(), help="Scoring policy of a score record.")
@json_option
def command(things: tuple[str, ...], policy: str | None, as_json: bool) -> int:
    """Check a certificate or a score record by itself.

    A certificate (`proctor score --certificate`) is added up again from its operands alone; the
    first number that differs is named, down to the first differing bit. A score record is
    recomputed from its trial scores under its policy.

    Exit code 1: a number does not follow.

    Example: proctor check certificate.json
    """
    checked = [_check(thing, policy) for thing in things]
    if policy is not None and not any(found.is_record for found in checked):
        raise click.UsageError("--policy goes with a score record; none was given")
    follows = all(found.follows for found in checked)
    if as_json:
        print_json({"follows": follows, "checked": [found.document for found in checked]})
    else:
        for found in checked:
            _print(found)
    return 0 if follows else 1


@dataclass(frozen=True, slots=True)
class _Checked:
    """What was found about one file."""

    path: str
    problem: str | None
    """What does not follow."""
    is_record: bool
    """Whether it is a score record; else it is a certificate."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be checked."""

    @property
    def follows(self) -> bool:
        return self.problem is None

    @property
    def document(self) -> dict[str, object]:
        return {
            "path": self.path,
            "follows": self.follows,
            "problem": self.problem,
            "unchecked": self.unchecked,
        }


def _print(found: _Checked) -> None:
    follows = "every number follows from its operands"
    if found.unchecked:
        follows = "what can be checked follows; the outcome also rests on what cannot"
    print_line(f"{found.path}: {found.problem or follows}")
    for what in found.unchecked:
        print_line(f"  not checked: {what}")


def _check(thing: str, policy: str | None) -> _Checked:
    data = _read(thing)
    if _is_score_record(data):
        return _Checked(thing, _check_record(thing, data, policy), is_record=True)
    certificate = parse_certificate(data, thing)
    try:
        difference = check_certificate(certificate)
    except CertificateError as error:
        raise CertificateError(f"{thing}: {error}") from error
    problem = None if difference is None else str(difference)
    return _Checked(thing, problem, is_record=False, unchecked=find_unchecked(certificate))


def _read(path: str) -> bytes:
    try:
        return read_small(path)
    except IsADirectoryError as error:
        raise InputError(
            f"{path}: a directory; expected a file. `proctor audit` checks a job"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


class _RecordMark(msgspec.Struct):
    """What tells a score record from a certificate; the rest is skipped, not parsed."""

    eval_run_id: msgspec.Raw


def _is_score_record(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=_RecordMark)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _check_record(thing: str, data: bytes, policy: str | None) -> str | None:
    """What does not follow, or None."""
    try:
        record = parse_score_record(data)
    except ScoreRecordError as error:
        raise ScoreRecordError(f"{thing}: {error}") from error
    candidates = [_load_policy(policy)] if policy else _COMMON_POLICIES
    rules = next((found for found in candidates if found.digest == record.policy_digest), None)
    if rules is None:
        raise ScoreRecordError(
            f"{thing}: its policy has digest {record.policy_digest}, which is not that of "
            f"{policy or 'mean or best-of-k without a keep policy'}; name the policy with --policy"
        )
    try:
        check_score_record(record, rules)
    except ScoreRecordError as error:
        return str(error)
    return None


def _load_policy(path: str) -> ScoringPolicy:
    data = _read(path)
    try:
        return parse_scoring_policy(data)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from error
