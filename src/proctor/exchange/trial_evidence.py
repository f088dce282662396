"""The files of a harbor trial, and the trace among them; hashed where they are to be pinned.

A trial comes from a stranger. Links are not followed out of it, and only plain files are opened.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from proctor.digest import sha256_file
from proctor.errors import JobError
from proctor.exchange.made import PinnedFile
from proctor.files import walk_files
from proctor.record.ids import shown_name
from proctor.traces.trace import TRIAL_TRACES, Trace, find_trace


class Evidence(msgspec.Struct, frozen=True):
    """What lies in a trial's directory."""

    files: dict[str, str]
    """Every plain file: where it lies, by its path relative to the trial."""
    trace: Trace | None
    notes: tuple[str, ...]
    """What was not followed or not used, and why."""


def load_evidence(directory: Path) -> Evidence:
    """The names of every plain file of a trial, and its trace.

    Raises:
        JobError: the directory cannot be read.
    """
    notes: list[str] = []
    files = dict(_find_files(str(directory), notes))
    candidates = [(kind, str(directory / name)) for kind, name in TRIAL_TRACES if name in files]
    trace, passed_over = find_trace(candidates)
    notes += [f"{reason.removeprefix(f'{directory}/')}; passed over" for reason in passed_over]
    if trace is not None:
        names = [path.removeprefix(f"{directory}/") for _, path in candidates]
        used = trace.path.removeprefix(f"{directory}/")
        others = names[names.index(used) + 1 :]
        notes += [f"{each} is there too; the trace of the record is {used}" for each in others]
    if any(path.startswith("steps/") and _is_trace(path) for path in files):
        notes.append("steps have traces of their own; they are evidence, and none is named")
    return Evidence(files, trace, tuple(notes))


def pin_files(files: Mapping[str, str]) -> tuple[PinnedFile, ...]:
    """The same files with their digests.

    Raises:
        JobError: a file cannot be read.
    """
    return tuple(_pin(Path(place), shown) for shown, place in files.items())


def _is_trace(path: str) -> bool:
    return path.endswith(tuple(f"/{name}" for _, name in TRIAL_TRACES))


def _find_files(directory: str, notes: list[str]) -> Iterator[tuple[str, str]]:
    try:
        for name, what in walk_files(directory):
            # A name need not be text; what is written is.
            shown = shown_name(name)
            if what is None:
                yield shown, f"{directory}/{name}"
            else:
                notes.append(f"{shown}: {what}; what it leads to is not evidence")
    except OSError as error:
        raise JobError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _pin(path: Path, shown: str) -> PinnedFile:
    try:
        return PinnedFile(shown, sha256_file(path), path.stat().st_size)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error
