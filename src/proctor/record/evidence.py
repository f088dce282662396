"""Whether the files that a record names exist below a root, with the recorded digests.

Paths in a record are untrusted: nothing outside the root is opened, neither through `..` nor
through a link, and only regular files are. A path inside a container cannot be checked; for an
input file that is reported but is not a failure. A missing trace is a failure.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from proctor.digest import is_digest, sha256_file
from proctor.errors import RecordError
from proctor.record.model import TrialRecord


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One file that a record names."""

    field: str
    """The record's field that names it."""
    path: str
    """The path in the record."""
    state: Literal["verified", "present", "absent", "differs", "refused"]
    """verified: the digest matches; present: it exists, but the record has no digest of it."""
    message: str
    """A sentence for a person."""
    is_problem: bool = False
    """Whether the record is wrong about the file, or names one that must not be opened."""


def find_evidence(record: TrialRecord, root: Path) -> tuple[Evidence, ...]:
    """List every file that the record names, with its state below the root."""
    below = _Root(root)
    return (*_find_inputs(record, below), *_find_traces(record, below))


def check_evidence(record: TrialRecord, root: Path) -> None:
    """Refuse a record whose files are not as recorded.

    Raises:
        RecordError: an input file differs, a trace is missing, or a path leads out of the root.
    """
    for evidence in find_evidence(record, root):
        if evidence.is_problem:
            raise RecordError(f"{record.trial_id!r}: {evidence.message}")


@dataclass
class _Root:
    """The directory of the evidence, resolved once for all files of a record."""

    path: Path

    @cached_property
    def real(self) -> Path:
        return self.path.resolve(strict=True)


def _find_inputs(record: TrialRecord, root: _Root) -> Iterator[Evidence]:
    for index, file in enumerate(record.inputs.input_files or ()):
        field = f"inputs.input_files[{index}]"
        found = _find_file(field, file.path, root)
        if isinstance(found, Evidence):
            yield found
        else:
            yield _compare(field, file.path, file.hash, found)


def _find_traces(record: TrialRecord, root: _Root) -> Iterator[Evidence]:
    traces = {
        "outputs.trajectory_path": record.outputs.trajectory_path,
        "outputs.conversation_path": record.outputs.conversation_path,
    }
    for field, path in traces.items():
        if path is None:
            continue
        found = _find_file(field, path, root)
        if isinstance(found, Evidence):
            yield msgspec.structs.replace(found, is_problem=True)
        else:
            message = f"{field}: {path!r} exists"
            yield Evidence(field=field, path=path, state="present", message=message)


def _compare(field: str, path: str, digest: str, file: Path) -> Evidence:
    try:
        actual = sha256_file(file)
    except OSError as error:
        return _refuse(field, path, f"cannot be read: {error.strerror}")
    if actual == digest:
        message = f"{field}: {path!r} has the digest that the record gives"
        return Evidence(field=field, path=path, state="verified", message=message)
    if not is_digest(digest):
        message = f"{field}: {path!r} exists; the record's hash {digest[:40]!r} is not a SHA-256"
        return Evidence(field=field, path=path, state="present", message=message)
    message = f"{field}: {path!r} has the SHA-256 {actual}; the record says {digest}"
    return Evidence(field=field, path=path, state="differs", message=message, is_problem=True)


def _find_file(field: str, path: str, root: _Root) -> Path | Evidence:
    """Return the regular file below the root, or the reason why there is none."""
    try:
        joined = root.real / path
        if not Path(os.path.normpath(joined)).is_relative_to(root.real):
            return _leave(field, path)
        file = joined.resolve(strict=True)
        if not file.is_relative_to(root.real):
            return _refuse(field, path, f"leads out of {str(root.path)!r}")
        if not stat.S_ISREG(file.stat().st_mode):
            return _refuse(field, path, "is not a regular file")
    except FileNotFoundError:
        message = f"{field}: {path!r} is not under {str(root.path)!r}"
        return Evidence(field=field, path=path, state="absent", message=message)
    except (OSError, RuntimeError, ValueError) as error:
        # A cycle of links, a name that is too long, or a NUL or a lone surrogate in the name.
        return _refuse(field, path, f"cannot be read: {error}")
    return file


def _leave(field: str, path: str) -> Evidence:
    """A path that is not below the root: one of the container, or one with too many `..`."""
    if Path(path).is_absolute():
        message = f"{field}: {path!r} is a path in the container; not checked"
        return Evidence(field=field, path=path, state="absent", message=message)
    return _refuse(field, path, "leads out of the root")


def _refuse(field: str, path: str, why: str) -> Evidence:
    message = f"{field}: {path!r} {why}"
    return Evidence(field=field, path=path, state="refused", message=message, is_problem=True)
