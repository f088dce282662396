"""The files of a harbor trial: every one hashed, and the trace among them.

A trial comes from a stranger. Links are not followed out of it, and only plain files are opened.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.digest import sha256_file
from proctor.errors import JobError
from proctor.importers.made import PinnedFile
from proctor.trajectory.trace import TRIAL_TRACES, Trace, find_trace


class Evidence(msgspec.Struct, frozen=True):
    """What lies in a trial's directory."""

    files: tuple[PinnedFile, ...]
    trace: Trace | None
    notes: tuple[str, ...]
    """What was not followed or not used, and why."""


def load_evidence(directory: Path) -> Evidence:
    """Every plain file of a trial, and its trace.

    Raises:
        JobError: a file cannot be read.
    """
    notes: list[str] = []
    files = tuple(_pin_files(directory, notes))
    inside = {file.path for file in files}
    candidates = [(kind, str(directory / name)) for kind, name in TRIAL_TRACES if name in inside]
    trace, passed_over = find_trace(candidates)
    notes += [f"{reason.removeprefix(f'{directory}/')}; passed over" for reason in passed_over]
    if trace is not None:
        names = [path.removeprefix(f"{directory}/") for _, path in candidates]
        used = trace.path.removeprefix(f"{directory}/")
        others = names[names.index(used) + 1 :]
        notes += [f"{each} is there too; the trace of the record is {used}" for each in others]
    if any(path.startswith("steps/") and _is_trace(path) for path in inside):
        notes.append("steps have traces of their own; they are evidence, and none is named")
    return Evidence(files, trace, tuple(notes))


def _is_trace(path: str) -> bool:
    return path.endswith(tuple(f"/{name}" for _, name in TRIAL_TRACES))


def _pin_files(directory: Path, notes: list[str]) -> Iterator[PinnedFile]:
    for folder, folders, names in os.walk(directory, onerror=_refuse):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(folder, name)
            # A name need not be text; what is written is.
            relative = os.fsencode(path.relative_to(directory).as_posix())
            shown = relative.decode(errors="backslashreplace")
            kind = path.lstat().st_mode
            if stat.S_ISREG(kind):
                yield _pin(path, shown)
            else:
                what = "a link" if stat.S_ISLNK(kind) else "neither a file nor a directory"
                notes.append(f"{shown}: {what}; what it leads to is not evidence")


def _pin(path: Path, shown: str) -> PinnedFile:
    try:
        return PinnedFile(shown, sha256_file(path), path.stat().st_size)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error


def _refuse(error: OSError) -> None:
    raise JobError(f"{error.filename}: cannot be read: {error.strerror}") from error
