"""What `complete` promises: the provenance is there, and it is real.

Three fields, in the order in which they are always named. Each must hold something: an empty map,
a blank revision, a word that stands for none (PLACEHOLDERS), a hash that is no SHA-256 or a file
that is named twice leaves a record partial. Whether the files behind the digests exist is
evidence.py's business.
"""

import posixpath
import re
from collections import Counter
from typing import Final

import msgspec

from proctor.errors import IncompleteRecordError
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
    """One of REQUIRED, or another that whoever makes a record could not fill."""
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
