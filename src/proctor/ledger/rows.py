"""The index rows that an entry adds, other than the row of a trial (row.py).

The index stores them, and verification compares them. Columns are in the order of index_file.py.
"""

from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    Withheld,
    WithholdEntry,
)
from proctor.ledger.row import Columns, TrialRow, to_columns

type RemarkColumns = tuple[str, int, str, str | None, int]
"""Record, position, kind, verdict, and whether the record is the subject of the entry."""

IS_WITHHELD = "SELECT 1 FROM entries WHERE seq = ? AND kind = '' AND lower(hex(leaf)) = ?"
"""Whether the line that a withholding names by position and leaf hash is withheld now."""


def withheld_columns(entry: WithholdEntry) -> Columns | None:
    """The row of a trial whose line was withheld; None if no trial's line was."""
    subject = entry.subject
    if subject is None or entry.entry is None:
        return None
    row = TrialRow(entry.entry, subject.experiment_id, subject.trial_id, subject.record, "withheld")
    return to_columns(row)


def withholding_columns(entry: WithholdEntry) -> tuple[int, int | None, int, int]:
    """Position of a withholding and of its line, whether it names a trial, and number of files."""
    return (entry.seq, entry.entry, int(entry.subject is not None), len(entry.artifacts))


def remark_columns(entry: AnyEntry) -> list[RemarkColumns]:
    """The rows for the trials that an entry is about."""
    match entry:
        case ReviewEntry():
            return [(entry.subject.record, entry.seq, entry.kind, entry.verdict, 1)]
        case RescoreEntry():
            return [(entry.subject.record, entry.seq, entry.kind, None, 1)]
        case SupersedeEntry():
            by = (entry.by.record, entry.seq, entry.kind, None, 0)
            return [(entry.subject.record, entry.seq, entry.kind, None, 1), by]
        case WithholdEntry() if entry.subject is not None:
            return [(entry.subject.record, entry.seq, entry.kind, None, 1)]
        case _:
            return []


def evidence_key(sha256: str) -> int:
    """The first 64 bits of a digest, as the index has it: two digests may share them."""
    return int.from_bytes(bytes.fromhex(sha256[:16]), signed=True)


def kind_and_time(entry: AnyEntry | Withheld) -> tuple[str, str]:
    """Kind and time of an entry; both empty if it was withheld."""
    return ("", "") if isinstance(entry, Withheld) else (entry.kind, entry.at)
