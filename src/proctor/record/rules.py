"""What a record must satisfy beyond the shape that the model checks.

    find_missing(record)    what keeps a record from being `complete`
    find_problems(record)   what a reader notices: a false `complete`, impossible token counts, and
                            (as a note, not a problem) a time without an offset
    check_record(record)    required of a new record: all of the above, and ids that are names
    check_dataset_id(text)  what a new record may name as its dataset
    find_foreign(record)    what aec-bench itself would refuse

`complete` promises three fields that hold real values: an empty map, a blank revision, a
placeholder, a hash that is not a SHA-256 or a file named twice leaves a record partial. Old records
may have times without an offset; a new one may not, because it cannot be known later which clock it
was. Whether the files behind the digests exist is checked in evidence.py.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from proctor.diagnostic import Diagnostic
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
"""What is written where a version should stand and says none, in small letters."""

_DIGEST = re.compile("[0-9a-f]{64}")
_SHOWN = 40


class Missing(msgspec.Struct, frozen=True):
    """One field that keeps a record from being complete."""

    field: str
    """One of REQUIRED, or another field that could not be filled."""
    why: str
    """What is wrong with it."""
    remedy: str
    """What would fill it."""

    def __str__(self) -> str:
        return f"{self.field} {self.why}"


def is_sha256(text: str) -> bool:
    """Whether text is a SHA-256 as this format writes it: 64 lower-case hex digits, no prefix."""
    return _DIGEST.fullmatch(text) is not None


def find_missing(record: TrialRecord) -> list[Missing]:
    """What keeps a record from being complete, whatever it calls itself."""
    checks = (_explain_revision(record), _explain_tools(record), _explain_files(record))
    remedies = (
        "the version or revision of the harness that ran the agent",
        "the versions of the tools that decide the result, one per tool",
        "the files that went in, each with the SHA-256 of its bytes",
    )
    return [
        Missing(field, why, remedy)
        for field, why, remedy in zip(REQUIRED, checks, remedies, strict=True)
        if why is not None
    ]


def check_complete(record: TrialRecord) -> None:
    """Refuse a record that lacks what `complete` promises.

    Raises:
        IncompleteRecordError: with every field that is missing.
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
    return f"is {revision!r}, which is no revision" if _is_placeholder(revision) else None


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
    return f"has {versions[false[0]]!r} as the version of {false[0]!r}, which is none"


def _explain_files(record: TrialRecord) -> str | None:
    files = record.inputs.input_files
    if files is None:
        return "is missing"
    if not files:
        return "is empty"
    false = [file for file in files if not is_sha256(file.hash)]
    if false:
        shown = repr(false[0].hash[:_SHOWN])
        return f"has {shown} as the hash of {false[0].path!r}, which is no SHA-256"
    counts = Counter(posixpath.normpath(file.path) for file in files)
    path, count = counts.most_common(1)[0]
    return f"names {path!r} more than once" if count > 1 else None


LONGEST_DATASET_ID: Final = 300
_SHOWN_ID: Final = 60


def check_record(record: TrialRecord) -> None:
    """Refuse a new record that breaks a rule. Call this before writing a record that was made here.

    Raises:
        IncompleteRecordError: it is called complete and is not.
        RecordError: any other rule.
    """
    check_id(record.trial_id, "trial_id")
    check_id(record.experiment_id, "experiment_id")
    if record.completeness == "complete":
        check_complete(record)
    for diagnostic in find_problems(record):
        raise RecordError(f"{record.trial_id!r}: {diagnostic.message}")


def check_dataset_id(text: str) -> None:
    """Refuse a dataset name that cannot be looked up.

    name@version is a convention; `repository:<id>@<revision>:<path>` and `bundle:<id>@<sha256>`
    are others.

    Raises:
        RecordError: it is blank, too long, holds control characters or leads up a directory.
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
    """All that a reader notices about a record that has the right shape."""
    return [*_find_hollow(record), *_find_token_problems(record), *_find_naive_times(record)]


def _find_hollow(record: TrialRecord) -> Iterator[Diagnostic]:
    if record.completeness == "complete":
        for missing in find_missing(record):
            yield Diagnostic("hollow-complete", f"is called complete, but {missing}")


def _find_token_problems(record: TrialRecord) -> Iterator[Diagnostic]:
    if record.cost is None:
        return
    try:
        usage_in(record.cost)
    except RecordError as error:
        yield Diagnostic("token-algebra", f"cost has {error}")


def _find_naive_times(record: TrialRecord) -> Iterator[Diagnostic]:
    annotations = record.evaluation.annotations or ()
    times: list[tuple[str, datetime]] = [("timestamp", record.timestamp)]
    times += [
        (f"evaluation.annotations[{index}].timestamp", annotation.timestamp)
        for index, annotation in enumerate(annotations)
    ]
    for where, time in times:
        if time.utcoffset() is None:
            message = f"{where} is {time.isoformat()}, without an offset from UTC"
            yield Diagnostic("naive-timestamp", message, is_problem=False)


def find_foreign(record: TrialRecord) -> list[Diagnostic]:
    """All that keeps aec-bench from reading this record."""
    return list(_find(record))


def _find(record: TrialRecord) -> Iterator[Diagnostic]:
    reward = record.evaluation.reward
    if reward is None:
        message = "evaluation.reward is null (not scored); aec-bench expects a number"
        yield Diagnostic("reward-null", message)
    elif not 0 <= reward <= 1:
        message = f"evaluation.reward is {reward!r}; aec-bench expects 0 to 1"
        yield Diagnostic("reward-out-of-range", message)
    if reward and not record.evaluation.validity.schema_valid:
        # Its rule since 2026-07-27; older versions take such a record.
        message = (
            f"evaluation.reward is {reward!r} although validity.schema_valid is false; "
            "later versions of aec-bench expect 0"
        )
        yield Diagnostic("reward-of-invalid", message, is_problem=False)
