"""Locate a trial and the files that may be its traces, without reading them.

In a job, only the usual locations of traces are checked: listing all files of a trial, or making
its record, would take longer than showing a step. Names from requests never become paths: they must
match a name that a directory lists.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import NotThereError
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.sealed_evidence import SealedEvidence
from proctor.ledger.step_parts import LARGE
from proctor.traces.traced_trial import Named, Opened, Part, list_parts, order_parts
from proctor.web.data_source import DataSource, find_row
from proctor.web.traces.lines import stamp_of
from proctor.web.trials.trial_view import Directory

type Stamp = tuple[object, ...]

_FOLDERS = ("agent", "", "artifacts")
_STEPS = "steps"
_MOST_STEPS = 1000
_RESULT = "result.json"


@dataclass(frozen=True, slots=True)
class TracePlace:
    """One trial, as the source of its traces."""

    name: str
    """EXPERIMENT/TRIAL."""
    key: str
    """Identifies the trial among all that were ever viewed."""
    stamp: Stamp
    """Changes when its traces change."""
    parts: list[Part]
    open_file: Callable[[str], Opened]
    has_file: Callable[[str], bool]
    """Whether the trial has a file of that name."""
    is_sealed: bool = False
    is_running: bool = False
    """It has no result yet, in a job that has not ended: its traces may grow."""
    artifacts: ArtifactStore | None = None
    digests: dict[str, EvidenceFile] | None = None
    """Files of a sealed trial."""

    def find_large(self, part: Part) -> str | None:
        """The digest of a sealed trajectory that is too large to unpack as a whole."""
        if self.digests is None or not part.candidates:
            return None
        kind, name = part.candidates[0]
        file = self.digests[name]
        is_large = kind.is_lines and file.size >= LARGE
        return file.sha256 if is_large else None


@contextlib.contextmanager
def find_place(source: DataSource, experiment: str, trial: str) -> Iterator[TracePlace]:
    """Locate a trial; it is readable inside the context."""
    with source.opened() as ledger:
        if ledger is None:
            root = source.trial_directory(experiment, trial)
            place = _place_in_job(root, f"{experiment}/{trial}")
            is_over = (root / _RESULT).exists() or source.has_ended(experiment)
            yield replace(place, is_running=not is_over)
        else:
            yield _place_in_ledger(ledger, find_row(ledger, experiment, trial))


def load_place(row: TrialRow, ledger: LedgerReader | None) -> TracePlace:
    """Locate the trial of a row, sealed or in a directory."""
    if ledger is not None and row.place is None:
        return _place_in_ledger(ledger, row)
    return _place_in_job(Path(row.place or ""), row.name)


def _place_in_ledger(ledger: LedgerReader, row: TrialRow) -> TracePlace:
    entry = ledger.entry(row.seq)
    if not isinstance(entry, TrialEntry):
        raise NotThereError(f"{row.name}: withheld; entry {row.seq} says why")
    evidence = SealedEvidence(ledger.artifacts, entry.evidence)
    kept, parts = evidence.files, evidence.list_parts(entry)
    named = [name for part in parts for _, name in part.candidates]
    return TracePlace(
        name=row.name,
        key=f"{os.path.realpath(ledger.where)}\0{row.seq}",
        stamp=tuple((name, kept[name].sha256) for name in named),
        parts=parts,
        open_file=evidence.open,
        has_file=kept.__contains__,
        artifacts=ledger.artifacts,
        digests=kept,
        is_sealed=True,
    )


def _place_in_job(root: Path, name: str) -> TracePlace:
    files = [*_list_traces(root), _RESULT]

    open_file = Directory(root, frozenset(files)).open
    parts = order_parts(list_parts(files, Named()), files, open_file)
    named = [name for part in parts for _, name in part.candidates]
    return TracePlace(
        name=name,
        key=str(root),
        stamp=tuple((name, _stamp(root / name)) for name in named),
        parts=parts,
        open_file=open_file,
        has_file=lambda name: _is_in(root, name),
    )


def _list_traces(root: Path) -> Iterator[str]:
    """Files of a trial in the usual locations of traces."""
    yield from _list_in(root, "")
    for step in [each.name for each in _list_own(root / _STEPS) if each.is_dir()][:_MOST_STEPS]:
        yield from _list_in(root, f"{_STEPS}/{step}/")


def _list_in(root: Path, place: str) -> Iterator[str]:
    for folder in _FOLDERS:
        prefix = f"{place}{folder}/" if folder else place
        for each in _list_own(root / place / folder):
            if each.is_file():
                yield f"{prefix}{each.name}"


def _list_own(directory: Path) -> list[os.DirEntry[str]]:
    """Entries of a directory by name, without links; empty if the directory is a link."""
    if directory.is_symlink():
        return []
    with contextlib.suppress(OSError), os.scandir(directory) as found:
        return sorted((each for each in found if not each.is_symlink()), key=lambda each: each.name)
    return []


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp_of(path.stat())
    except OSError:
        return None


def _is_in(root: Path, name: str) -> bool:
    try:
        real = (root / name).resolve(strict=True)
        return real.is_relative_to(root.resolve()) and real.is_file()
    except (OSError, ValueError, RuntimeError):
        return False
