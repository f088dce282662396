"""Rules for records beyond the format that the model checks.

    find_missing(record)    what a `complete` record requires and this one lacks
    explain_partial(record) why a partial record is not complete, and what supplies it
    find_problems(record)   problems: a wrong `complete`, impossible token counts; and, as a note,
                            a time without an offset
    check_record(record)    check a new record: all of the above, and valid ids
    check_dataset_id(text)  check the dataset name of a new record
    find_foreign(record)    what aec-bench would refuse

`complete` requires real values in three fields: an empty map, a blank revision, a placeholder, a
hash that is not a SHA-256 or a file listed twice leaves a record partial. Old records may have
times without an offset; new ones may not, because the time zone cannot be determined later.
evidence.py checks whether the files behind the digests exist.
"""

import posixpath
import re
from collections import Counter
from datetime import datetime
from typing import Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.digest import is_digest
from proctor.errors import IncompleteRecordError, RecordError
from proctor.record.cost import usage_in
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord

REQUIRED: Final = (
    "agent.adapter_revision",
    "environment.tool_versions",
    "inputs.input_files",
)

PLACEHOLDERS: Final = frozenset(
    {"-", "?", "latest", "local", "n/a", "na", "none", "null", "tbd", "undefined"}
    | {"unknown", "unresolved"}
)
"""Texts used in place of a version, in lower case."""

_SHOWN = 40


class Missing(msgspec.Struct, frozen=True):
    """A field that a `complete` record requires and this one lacks."""

    field: str
    """One of REQUIRED, or another field that could not be filled."""
    why: str
    """What is wrong with it."""
    remedy: str
    """What supplies it: a command and its option, or a file."""

    def __str__(self) -> str:
        return f"{self.field} {self.why}"


def find_missing(record: TrialRecord) -> list[Missing]:
    """List what keeps a record from being complete, whether or not it is marked so."""
    checks = (_explain_revision(record), _explain_tools(record), _explain_files(record))
    remedies = (
        "pass --agent-version-command CMD to `proctor run`, such as 'git rev-parse HEAD'",
        "`proctor run` records them; others are read from the job's lock.json",
        "`proctor run` records them; pass --task DIR to `proctor ledger seal`",
    )
    return [
        Missing(field, why, remedy)
        for field, why, remedy in zip(REQUIRED, checks, remedies, strict=True)
        if why is not None
    ]


def explain_partial(record: TrialRecord) -> list[str]:
    """Why a record is partial, each with what supplies the missing value; empty if complete."""
    if record.completeness == "complete":
        return []
    missing = [f"{each}; {each.remedy}" for each in find_missing(record)]
    # A killed trial may have all pins: its record is the one of its last phase.
    return missing or ["the trial did not end, or its duration is unknown; run it again"]


def check_complete(record: TrialRecord) -> None:
    """Refuse a record that is not complete.

    Raises:
        IncompleteRecordError: lists every missing field.
    """
    missing = find_missing(record)
    if missing:
        listed = "; ".join(map(str, missing))
        raise IncompleteRecordError(
            f"{record.trial_id!r} is not complete: {listed}", tuple(item.field for item in missing)
        )


def _explain_revision(record: TrialRecord) -> str | None:
    revision = record.agent.adapter_revision
    if revision is None:
        return "is missing"
    if not revision.strip():
        return "is blank"
    return f"is {revision!r}, which is not a revision" if _is_placeholder(revision) else None


def _is_placeholder(text: str) -> bool:
    return text.strip().lower() in PLACEHOLDERS


def _explain_tools(record: TrialRecord) -> str | None:
    versions = record.environment.tool_versions
    if versions is None:
        return "is missing"
    if not versions:
        return "is empty"
    blank = [tool for tool, version in versions.items() if not (tool.strip() and version.strip())]
    if blank:
        return f"has no version for {blank[0]!r}"
    false = [tool for tool, version in versions.items() if _is_placeholder(version)]
    if not false:
        return None
    return f"has {versions[false[0]]!r} as the version of {false[0]!r}, which is not a version"


def _explain_files(record: TrialRecord) -> str | None:
    files = record.inputs.input_files
    if files is None:
        return "is missing"
    if not files:
        return "is empty"
    false = [file for file in files if not is_digest(file.hash)]
    if false:
        shown = repr(false[0].hash[:_SHOWN])
        return f"has {shown} as the hash of {false[0].path!r}, which is not a SHA-256"
    counts = Counter(posixpath.normpath(file.path) for file in files)
    path, count = counts.most_common(1)[0]
    return f"lists {path!r} more than once" if count > 1 else None


LONGEST_DATASET_ID: Final = 300
_SHOWN_ID: Final = 60


def check_record(record: TrialRecord) -> None:
    """Refuse a new record that breaks a rule. Call this before writing a record made by proctor.

    Raises:
        IncompleteRecordError: it is marked complete but is not.
        RecordError: any other rule.
    """
    check_id(record.trial_id, "trial_id")
    check_id(record.experiment_id, "experiment_id")
    if record.completeness == "complete":
        check_complete(record)
    for diagnostic in find_problems(record):
        raise RecordError(f"{record.trial_id!r}: {diagnostic.message}")


def check_dataset_id(text: str) -> None:
    """Refuse a dataset name that cannot be resolved.

    name@version is one convention; `repository:<id>@<revision>:<path>` and `bundle:<id>@<sha256>`
    are others.

    Raises:
        RecordError: it is blank, too long, has control characters or a `..` part.
    """
    shown = text if len(text) <= _SHOWN_ID else f"{text[:_SHOWN_ID]}…"
    if not text.strip():
        problem = "is blank"
    elif len(text) > LONGEST_DATASET_ID:
        problem = f"is {shown!r}, of {len(text):,} characters"
    elif not text.isprintable():
        problem = f"is {shown!r}, with characters that cannot be printed"
    elif ".." in re.split(r"[/\\:@]", text):
        problem = f"is {shown!r}, a path with .. in it"
    else:
        return
    raise RecordError(
        f"dataset_id {problem}; expected name@version, at most {LONGEST_DATASET_ID} characters"
    )


def find_problems(record: TrialRecord) -> list[Diagnostic]:
    """List problems and notes of a record that has the right format."""
    found = []
    if record.completeness == "complete":
        for missing in find_missing(record):
            message = f"is marked complete, but {missing}"
            found.append(Diagnostic("hollow-complete", message))
    try:
        if record.cost is not None:
            usage_in(record.cost)
    except RecordError as error:
        found.append(Diagnostic("token-algebra", f"cost has {error}"))
    annotations = record.evaluation.annotations or ()
    times: list[tuple[str, datetime]] = [("timestamp", record.timestamp)]
    times += [
        (f"evaluation.annotations[{index}].timestamp", annotation.timestamp)
        for index, annotation in enumerate(annotations)
    ]
    for where, time in times:
        if time.utcoffset() is None:
            message = f"{where} is {time.isoformat()}, without an offset from UTC"
            found.append(Diagnostic("naive-timestamp", message, is_problem=False))
    return found


def find_foreign(record: TrialRecord) -> list[Diagnostic]:
    """List what keeps aec-bench from reading this record."""
    found = []
    reward = record.evaluation.reward
    if reward is None:
        message = "evaluation.reward is null (not scored); aec-bench expects a number"
        found.append(Diagnostic("reward-null", message))
    elif not 0 <= reward <= 1:
        message = f"evaluation.reward is {reward!r}; aec-bench expects 0 to 1"
        found.append(Diagnostic("reward-out-of-range", message))
    if reward and not record.evaluation.validity.schema_valid:
        # Its rule since 2026-07-27; older versions accept such a record.
        message = (
            f"evaluation.reward is {reward!r} although validity.schema_valid is false; "
            "later versions of aec-bench expect 0"
        )
        found.append(Diagnostic("reward-of-invalid", message, is_problem=False))
    return found
