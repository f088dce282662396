"""Whether the files that a record names exist under a root, with the digests it gives.

Paths from a record are hostile: nothing outside the root is looked at, by no `..` and by no link,
nothing but a plain file is opened. A path inside a container that is not under the root is not
there: it cannot be checked, which is said and is no failure of an input file. A trace that is
named and is not there is one.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from proctor.digest import sha256_file
from proctor.errors import RecordError
from proctor.record.model import TrialRecord
from proctor.record.rules import is_sha256


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One file that a record names."""

    field: str
    """Where the record names it."""
    path: str
    """As the record names it."""
    state: Literal["verified", "present", "absent", "differs", "refused"]
    """verified: the digest matches; present: exists, and the record gives no digest to compare."""
    message: str
    """A sentence for a person."""
    is_problem: bool = False
    """Whether the record is wrong about the file, or names one that must not be opened."""


def find_evidence(record: TrialRecord, root: Path) -> tuple[Evidence, ...]:
    """Every file that the record names, and its state under the root."""
    return (*_find_inputs(record, root), *_find_traces(record, root))


def check_evidence(record: TrialRecord, root: Path) -> None:
    """Refuse a record whose files are not what it says.

    Raises:
        RecordError: an input file differs, a trace is missing, or a path leads out of the root.
    """
    for evidence in find_evidence(record, root):
        if evidence.is_problem:
            raise RecordError(f"{record.trial_id!r}: {evidence.message}")


def _find_inputs(record: TrialRecord, root: Path) -> Iterator[Evidence]:
    for index, file in enumerate(record.inputs.input_files or ()):
        field = f"inputs.input_files[{index}]"
        found = _find_file(field, file.path, root)
        if isinstance(found, Evidence):
            yield found
        else:
            yield _compare(field, file.path, file.hash, found)


def _find_traces(record: TrialRecord, root: Path) -> Iterator[Evidence]:
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
            message = f"{field}: {path!r} is there"
            yield Evidence(field=field, path=path, state="present", message=message)


def _compare(field: str, path: str, digest: str, file: Path) -> Evidence:
    try:
        actual = sha256_file(file)
    except OSError as error:
        return _refuse(field, path, f"cannot be read: {error.strerror}")
    if actual == digest:
        message = f"{field}: {path!r} has the digest that the record gives"
        return Evidence(field=field, path=path, state="verified", message=message)
    if not is_sha256(digest):
        message = f"{field}: {path!r} is there; the record's hash {digest[:40]!r} is no SHA-256"
        return Evidence(field=field, path=path, state="present", message=message)
    message = f"{field}: {path!r} has the SHA-256 {actual}; the record says {digest}"
    return Evidence(field=field, path=path, state="differs", message=message, is_problem=True)


def _find_file(field: str, path: str, root: Path) -> Path | Evidence:
    """The plain file under the root, or why there is none."""
    try:
        real_root = root.resolve(strict=True)
        joined = real_root / path
        if not Path(os.path.normpath(joined)).is_relative_to(real_root):
            return _leave(field, path)
        file = joined.resolve(strict=True)
        if not file.is_relative_to(real_root):
            return _refuse(field, path, f"leads out of {str(root)!r}")
        if not stat.S_ISREG(file.stat().st_mode):
            return _refuse(field, path, "is no plain file")
    except FileNotFoundError:
        message = f"{field}: {path!r} is not under {str(root)!r}"
        return Evidence(field=field, path=path, state="absent", message=message)
    except (OSError, RuntimeError, ValueError) as error:
        # A loop of links, a name that is too long, a NUL or a lone surrogate in it.
        return _refuse(field, path, f"cannot be looked at: {error}")
    return file


def _leave(field: str, path: str) -> Evidence:
    """A path that does not lead under the root: a container's, or one with too many .."""
    if Path(path).is_absolute():
        message = f"{field}: {path!r} is a path of the container; it was not looked for"
        return Evidence(field=field, path=path, state="absent", message=message)
    return _refuse(field, path, "leads out of the root")


def _refuse(field: str, path: str, why: str) -> Evidence:
    message = f"{field}: {path!r} {why}"
    return Evidence(field=field, path=path, state="refused", message=message, is_problem=True)
