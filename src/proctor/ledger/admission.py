"""Admission: the checks that every entry must pass before it is used, regardless of who signed it.

    find_fault(entry)         a fault in its ids, paths or digests, or None
    admit_line(line, where)   the entry in a line of a log, or an error
    Identities                checks that no two entries are the same trial

Sealing makes the same checks, but the owner of a key can append anything. Index, verification,
bundles, claims and proofs rely on this module.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from proctor.digest import is_digest
from proctor.errors import DamageError, RecordError
from proctor.ledger.entry import (
    AnyEntry,
    AttestEntry,
    PlanEntry,
    RescoreEntry,
    ReviewEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
)
from proctor.ledger.row import TrialRow, read_ids, read_row
from proctor.record.ids import check_id

LONGEST_PATH: Final = 1000
# Parts that no plain relative path has between its slashes.
_NO_NAMES = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an entry is not admitted."""

    message: str
    is_id: bool = False
    """Whether the fault is in an id."""


def is_evidence_path(path: str) -> bool:
    """Whether a path is relative and plain, and so stays below its directory."""
    # Also excludes NUL and newlines, and lone surrogates that no file system could take.
    is_plain = path.isprintable() and len(path) <= LONGEST_PATH
    return is_plain and _NO_NAMES.isdisjoint(path.split("/"))


def admit_line(line: bytes, where: str) -> AnyEntry | Withheld:
    """Decode and check a line of a log; returns the entry, or the placeholder of a withheld one."""
    return admit_with_row(line, where)[0]


def admit_with_row(line: bytes, where: str) -> tuple[AnyEntry | Withheld, TrialRow | None]:
    """Like `admit_line`, with the row of a trial: admission reads it, and the index stores it."""
    entry = decode_line(line, where)
    if isinstance(entry, Withheld):
        return entry, None
    check_written(line, entry, where)
    row = read_row(entry) if isinstance(entry, TrialEntry) else None
    if isinstance(entry, TrialEntry) and row is not None:
        fault = find_trial_fault(entry, row.experiment_id, row.trial_id)
    else:
        fault = find_fault(entry)
    if fault:
        raise DamageError(f"{where}: {fault.message}; `proctor ledger verify` names all damage")
    return entry, row


def check_written(line: bytes, entry: AnyEntry, where: str) -> None:
    """Refuse a line that parsers may read differently: with duplicate or unknown keys.

    Raises:
        DamageError: proctor would encode the entry differently.
    """
    try:
        is_same = encode_entry(entry) == line
    except OverflowError:
        is_same = False  # a number that proctor does not write
    if not is_same:
        raise DamageError(
            f"{where}: not as proctor writes it: it has a duplicate or an unknown key"
        )


def find_fault(entry: AnyEntry) -> Fault | None:
    """The reason why an entry is not admitted, or None."""
    match entry:
        case TrialEntry():
            return find_trial_fault(entry, *read_ids(entry))
        case ReviewEntry() | RescoreEntry():
            return _find_in_subject(entry.subject)
        case SupersedeEntry():
            return _find_in_subject(entry.subject) or _find_in_subject(entry.by)
        case WithholdEntry():
            if entry.subject is not None and (fault := _find_in_subject(entry.subject)):
                return fault
            if (entry.entry is None) != (entry.leaf is None):
                return Fault("one of `entry` and `leaf` is null; expected both or none")
            if entry.entry is not None and entry.entry >= entry.seq:
                return Fault(f"withholds entry {entry.entry}, which does not come before it")
            for digest in (*([] if entry.leaf is None else [entry.leaf]), *entry.artifacts):
                if not is_digest(digest):
                    return Fault(f"withholds {digest[:80]!r}, which is no SHA-256")
            return None
        case PlanEntry() | AttestEntry():
            return _find_in_id(entry.experiment_id, "experiment_id")
        case _:
            return None


def find_trial_fault(entry: TrialEntry, experiment_id: str, trial_id: str) -> Fault | None:
    """Like `find_fault`, for a trial whose ids were read already."""
    fault = _find_in_id(experiment_id, "experiment_id") or _find_in_id(trial_id, "trial_id")
    if fault:
        return fault
    for file in entry.evidence:
        if not is_digest(file.sha256):
            return Fault(f"evidence {file.sha256[:80]!r} is no SHA-256")
    if entry.evidence and (fault := find_path_fault(file.path for file in entry.evidence)):
        return fault
    source = entry.source
    # Exports write harbor trials back to this path.
    if source is None or source.kind != "harbor":
        return None
    if "\0" in source.name or not {".", ".."}.isdisjoint(source.name.split("/")):
        return Fault(f"source.name is {source.name[:80]!r}; expected a path without `..`")
    return None


def _find_in_id(text: str, what: str) -> Fault | None:
    try:
        check_id(text, what)
    except RecordError as error:
        return Fault(str(error), is_id=True)
    return None


def find_path_fault(paths: Iterable[str]) -> Fault | None:
    """A fault in the paths of a trial's evidence; no two may name the same file."""
    seen: set[str] = set()
    for path in paths:
        if not is_evidence_path(path):
            return Fault(f"evidence {path[:80]!r}; expected a plain relative path")
        if path in seen:
            return Fault(f"evidence {path[:80]!r} is named twice")
        seen.add(path)
    # No path may be a directory of another one: both could not be written to a disk.
    for path in seen if len(seen) > 1 else ():
        folder = path
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in seen:
                return Fault(
                    f"evidence {folder[:80]!r} is a file, and a directory of {path[:80]!r}"
                )
    return None


def _find_in_subject(subject: Subject) -> Fault | None:
    fault = _find_in_id(subject.experiment_id, "experiment_id of a subject") or _find_in_id(
        subject.trial_id, "trial_id of a subject"
    )
    if fault is None and not is_digest(subject.record):
        return Fault(f"record of a subject is {subject.record[:80]!r}; expected a SHA-256")
    return fault


class Identities:
    """The trial of each entry of a log, added in the order of the log."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], int] = {}
        # What each line is, or was according to the entry that withholds it; None: not a trial.
        self._lines: dict[int, Subject | None] = {}

    def take(self, entry: AnyEntry) -> None:
        """Add the next entry.

        Raises:
            DamageError: another entry is the same trial, or it withholds a line as another trial.
        """
        if not isinstance(entry, WithholdEntry):
            subject = read_row(entry).subject if isinstance(entry, TrialEntry) else None
            self._lines[entry.seq] = subject
            if subject is not None:
                self._place(subject, entry.seq)
        elif entry.subject is not None and entry.entry is not None:
            found = self._lines.setdefault(entry.entry, entry.subject)
            if found != entry.subject:
                raise DamageError(render_misnamed(entry.seq, entry.entry, entry.subject, found))
            self._place(entry.subject, entry.entry)

    def _place(self, subject: Subject, seq: int) -> None:
        # A withheld trial keeps its name: the same name must not be sealed again.
        first = self._places.setdefault((subject.experiment_id, subject.trial_id), seq)
        if first != seq:
            raise DamageError(render_duplicate(first, seq, subject.experiment_id, subject.trial_id))


def render_duplicate(one: int, other: int, experiment_id: str, trial_id: str) -> str:
    """Message for two entries that are the same trial."""
    first, second = sorted((one, other))
    return (
        f"entries {first} and {second} are both trial {trial_id} of {experiment_id}; "
        "a trial is sealed once"
    )


def render_misnamed(seq: int, line: int, said: Subject, found: Subject | None) -> str:
    """Message for an entry that withholds a line as the wrong trial."""
    what = (
        f"trial {found.trial_id} of {found.experiment_id} with the record {found.record}"
        if found
        else "no trial"
    )
    return (
        f"entry {seq} withholds entry {line} as trial {said.trial_id} of {said.experiment_id} with "
        f"the record {said.record}; that entry is {what}"
    )
