"""Compares the rows of an index with the log.

Every column of every row is compared with what `rows` makes of the log: `has_columns` compares a
piece of the log at a time, `find_wrong_rows` what needs the whole log. Documents that no trial
refers to are ignored, because nothing reads them.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.ledger.entry import WithholdEntry
from proctor.ledger.row import (
    COLUMNS,
    DOCUMENTS,
    IS_WITHHELD,
    Columns,
    RemarkColumns,
    withheld_columns,
    withholding_columns,
)
from proctor.ledger.supersession import read_supersessions

type EntryColumns = tuple[int, str, str, int, int, int, bytes]
"""Position, kind, time, segment, offset, length, leaf."""
type EvidenceColumns = tuple[int, int]
"""Key of the digest (`rows.evidence_key`), and position of the trial that names it."""

_ENTRIES = (
    "SELECT seq, kind, at, segment, offset, length, leaf FROM entries "
    "WHERE seq BETWEEN ? AND ? ORDER BY seq"
)
# The status with which a trial was admitted.
_ADMITTED = (
    "CASE WHEN status <> 'superseded' THEN status "
    "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END"
)
_TRIALS = (
    f"SELECT {', '.join(_ADMITTED if name == 'status' else name for name in COLUMNS)} FROM trials "  # noqa: S608
    "WHERE seq BETWEEN ? AND ? AND status <> 'withheld' ORDER BY seq"
)
_DOCUMENTS = "SELECT id, document FROM conditions WHERE id IN (SELECT value FROM json_each(?))"
_REMARKS = (
    "SELECT record, seq, kind, verdict, is_subject FROM remarks WHERE seq BETWEEN ? AND ? "
    "ORDER BY seq, is_subject DESC, rowid"
)
_NAMED = "SELECT 1 FROM evidence WHERE key = ? AND seq = ?"
_STRAY = " UNION ALL ".join(
    f"SELECT count(*) FROM {table} WHERE seq < 0 OR seq >= :size"  # noqa: S608 - our own names
    for table in ("entries", "trials", "remarks", "withholdings", "evidence")
)
_SUPERSEDED = "SELECT record FROM trials WHERE status = 'superseded'"
_IS_TRIAL = (
    "SELECT 1 FROM trials WHERE status <> 'withheld' "
    "AND (seq = ? OR (experiment_id = ? AND trial_id = ?))"
)


def open_read_only(path: Path) -> sqlite3.Connection | None:
    """Open an index read-only; None if it cannot be read."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        uri = f"{path.as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=60)
        connection.execute("SELECT version FROM position").fetchone()
    except sqlite3.Error:
        return None
    return connection


def has_columns(
    connection: sqlite3.Connection,
    entries: Sequence[EntryColumns],
    trials: Sequence[Columns],
    remarks: Sequence[RemarkColumns],
    evidence: Iterable[EvidenceColumns] = (),
) -> bool:
    """Whether an index has exactly these rows for consecutive entries, and at least this evidence.

    More evidence is harmless: it was withheld, or nobody names it.
    """
    try:
        (size,) = connection.execute("SELECT size FROM position").fetchone()
        # Entries that it has not read yet may be missing, and so may invalid lines.
        known = [entry for entry in entries if 0 <= entry[0] < size]
        span = (known[0][0], known[-1][0]) if known else (0, -1)
        found = connection.execute(_ENTRIES, span).fetchall()
        found_rows = _resolve(connection, connection.execute(_TRIALS, span))
        remarked = connection.execute(_REMARKS, span).fetchall()
        named = all(
            connection.execute(_NAMED, columns).fetchone()
            for columns in evidence
            if 0 <= columns[1] < size
        )
    except (sqlite3.Error, TypeError):
        return False
    places = {entry[0] for entry in known}
    return (
        named
        and found == known
        and found_rows == [trial for trial in trials if trial[0] in places]
        and remarked == [remark for remark in remarks if remark[1] in places]
    )


def _resolve(
    connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Rows of trials with their documents inserted."""
    found = list(rows)
    numbers = {row[column] for row in found for column in DOCUMENTS}
    # As one JSON array: SQLite limits the number of parameters.
    load = dict(connection.execute(_DOCUMENTS, (json.dumps(list(numbers)),))).get
    resolved = []
    for row in found:
        values = list(row)
        for column in DOCUMENTS:
            values[column] = load(values[column])
        resolved.append(tuple(values))
    return resolved


def find_wrong_rows(
    connection: sqlite3.Connection, size: int, withholding: Sequence[WithholdEntry]
) -> str | None:
    """The first wrong kind of row in an index that has read `size` entries, or None.

    The rows of each piece of the log were checked by `has_columns` before.
    """
    execute = connection.execute
    if any(number for (number,) in execute(_STRAY, {"size": size})):
        return "it has rows of entries that are not in the log"
    found_rows = execute("SELECT * FROM withholdings ORDER BY seq").fetchall()
    if found_rows != [withholding_columns(entry) for entry in withholding]:
        return "its withheld lines are not those of the log"
    query = "SELECT * FROM trials WHERE status = 'withheld' ORDER BY seq"
    if execute(query).fetchall() != _expect_withheld(connection, withholding):
        return "its withheld trials are not those of the log"
    judged = read_supersessions(connection)
    if {record for (record,) in execute(_SUPERSEDED)} != _expect_superseded(connection, judged):
        return "its superseded trials are not those of the log"
    return None


def _expect_superseded(
    connection: sqlite3.Connection, judged: Mapping[str, str | None]
) -> set[str]:
    """The records whose supersession counts, except withheld ones."""
    query = "SELECT 1 FROM trials WHERE record = ? AND status <> 'withheld'"
    return {
        record
        for record, refusal in judged.items()
        if refusal is None and connection.execute(query, (record,)).fetchone()
    }


def _expect_withheld(
    connection: sqlite3.Connection, withholding: Iterable[WithholdEntry]
) -> list[Columns]:
    """The expected rows of withheld trials, in order of position."""
    rows: dict[int, Columns] = {}
    names: set[object] = set()
    for entry in withholding:
        row = withheld_columns(entry)
        if row is None or entry.entry is None or entry.entry in rows or row[1:3] in names:
            continue
        is_withheld = (
            connection.execute(IS_WITHHELD, (entry.entry, entry.leaf)).fetchone() is not None
        )
        if is_withheld and connection.execute(_IS_TRIAL, row[:3]).fetchone() is None:
            rows[entry.entry] = row
            names.add(row[1:3])
    return [rows[seq] for seq in sorted(rows)]
