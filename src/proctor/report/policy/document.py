"""Policies as TOML, parsed strictly: a misspelt key would otherwise silently check nothing."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.errors import PolicyError
from proctor.files import read_small
from proctor.report.policy.model import FORMAT, IntegrityRule, Policy, TaskRule
from proctor.sentence import reason_of
from proctor.trial.finding import FindingCode

_BUNDLED = Path(__file__).parent / "bundled"
_SUFFIX = ".toml"
_DIGEST = re.compile("(sha256:)?[0-9a-f]{64}")


def list_bundled() -> list[str]:
    """Names of the bundled policies."""
    return sorted(each.name.removesuffix(_SUFFIX) for each in _BUNDLED.glob(f"*{_SUFFIX}"))


def load_policy(name_or_path: str) -> Policy:
    """Load a bundled policy by name, or a policy file by path.

    Raises:
        PolicyError: there is neither, or the file is not a policy.
    """
    bundled = list_bundled()
    path = str(_BUNDLED / f"{name_or_path}{_SUFFIX}") if name_or_path in bundled else name_or_path
    try:
        data = read_small(path)
    except OSError as error:
        raise PolicyError(
            f"{name_or_path}: cannot be read: {reason_of(error)}; expected a policy as TOML, or "
            f"one of {', '.join(bundled)}"
        ) from error
    return parse_policy(data, name_or_path)


def parse_policy(data: bytes, where: str) -> Policy:
    """Parse a policy.

    Raises:
        PolicyError: it is not TOML, or not a valid policy.
    """
    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where}: not TOML: {error}") from error
    for problem in _find_unknown(document):
        raise PolicyError(f"{where}: {problem}")
    try:
        policy = msgspec.convert(document, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{where}: {_explain(error)}") from error
    for problem in _find_problems(policy):
        raise PolicyError(f"{where}: {problem}")
    return policy


def _find_unknown(document: dict[str, object]) -> Iterator[str]:
    """Messages for unknown keys."""
    if document.get("format") != FORMAT:
        yield f"format is {document.get('format')!r}; expected {FORMAT!r}"
    tables = {field.name: field.type for field in msgspec.structs.fields(Policy)}
    for key, value in document.items():
        if key not in tables:
            yield f"{key!r} is not a key of a policy; expected one of {', '.join(tables)}"
        elif isinstance(value, dict):
            yield from _find_unknown_in(key, value, tables[key])


def _find_unknown_in(table: str, value: dict[str, object], kind: object) -> Iterator[str]:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        yield f"{table} is a table; expected a string"
        return
    known = kind.__struct_fields__
    for key in value:
        if key not in known:
            yield f"[{table}] has {key!r}; expected one of {', '.join(known)}"


def _explain(error: msgspec.ValidationError) -> str:
    text, _, where = str(error).partition(" - at `$.")
    place = where.rstrip("`").replace("[...]", "")
    return f"{place}: {text[:1].lower()}{text[1:]}" if place else text


def _find_problems(policy: Policy) -> Iterator[str]:
    """Messages for well-formed but contradictory rules."""
    if not policy.name.strip():
        yield "name is blank; expected the name of the policy"
    if policy.attempts.minimum is not None and policy.attempts.exact is not None:
        yield "[attempts] has both minimum and exact; expected one of them"
    yield from _find_problems_of_tasks(policy.tasks)
    yield from _find_problems_of_integrity(policy.integrity)


def _find_problems_of_tasks(tasks: TaskRule) -> Iterator[str]:
    if tasks.count is not None and tasks.all_names and tasks.count != len(tasks.all_names):
        yield f"[tasks] count is {tasks.count}, but {len(tasks.all_names)} are named"
    if len(set(tasks.names)) != len(tasks.names):
        yield "[tasks] names has a duplicate"
    for name in tasks.digests:
        for digest in tasks.digests_of(name):
            if not _DIGEST.fullmatch(digest):
                yield (
                    f"[tasks.digests] {name!r} has {digest[:80]!r}; expected sha256: and 64 hex "
                    "digits as in lock.json, or the 64 digits of task_checksum alone"
                )


def _find_problems_of_integrity(integrity: IntegrityRule) -> Iterator[str]:
    lists = {"tolerates": integrity.tolerated, "refuses": integrity.refused}
    for verb, codes in lists.items():
        for code in codes:
            if code not in list(FindingCode):
                known = ", ".join(FindingCode)
                yield f"[integrity] {verb} {code!r}; expected finding codes: {known}"
        if codes and not integrity.no_open_findings:
            yield f"[integrity] {verb} findings without a rule; set no_open_findings = true"
    if integrity.level is not None and not integrity.no_open_findings:
        yield "[integrity] has a level without a rule; set no_open_findings = true"
    for code in integrity.tolerated:
        if code in integrity.refused:
            yield f"[integrity] both tolerates and refuses {code!r}; expected one of them"
