"""Columns: what the index says of entries, trials and what was said of them, against the log.

Every column of every row is compared with what `rows` makes of the log: a piece of the log at a
time by `has_columns`, and what only the whole log tells by `find_wrong_rows`. Only documents that
no trial refers to are not looked at; nothing reads them.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.ledger.entry import WithholdEntry
from proctor.ledger.row import COLUMNS, DOCUMENTS, Columns
from proctor.ledger.rows import GONE, RemarkColumns, withheld_columns, withholding_columns
from proctor.ledger.supersession import read_supersessions

type EntryColumns = tuple[int, str, str, int, int, int, bytes]
"""Place, kind, time, segment, offset, length, leaf."""

_ENTRIES = (
    "SELECT seq, kind, at, segment, offset, length, leaf FROM entries "
    "WHERE seq BETWEEN ? AND ? ORDER BY seq"
)
_ADMITTED = (
    "CASE WHEN status <> 'superseded' THEN status "
    "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END"
)
"""The status with which a trial was admitted."""
_TRIALS = (
    f"SELECT {', '.join(_ADMITTED if name == 'status' else name for name in COLUMNS)} FROM trials "  # noqa: S608
    "WHERE seq BETWEEN ? AND ? AND status <> 'withheld' ORDER BY seq"
)
_DOCUMENTS = "SELECT id, document FROM conditions WHERE id IN (SELECT value FROM json_each(?))"
_REMARKS = (
    "SELECT record, seq, kind, verdict, is_subject FROM remarks WHERE seq BETWEEN ? AND ? "
    "ORDER BY seq, is_subject DESC, rowid"
)
_STRAY = " UNION ALL ".join(
    f"SELECT count(*) FROM {table} WHERE seq < 0 OR seq >= :size"  # noqa: S608 - our own names
    for table in ("entries", "trials", "remarks", "withholdings")
)
_SUPERSEDED = "SELECT DISTINCT record FROM trials WHERE status = 'superseded'"
_IS_TRIAL = (
    "SELECT 1 FROM trials WHERE status <> 'withheld' "
    "AND (seq = ? OR (experiment_id = ? AND trial_id = ?))"
)


def open_read_only(path: Path) -> sqlite3.Connection | None:
    """An index that is read and never written; None where it cannot be read."""
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
) -> bool:
    """Whether an index says just this of entries that follow one another."""
    try:
        (size,) = connection.execute("SELECT size FROM position").fetchone()
        # What it has not read yet it need not say, nor what is no entry.
        known = [entry for entry in entries if 0 <= entry[0] < size]
        span = (known[0][0], known[-1][0]) if known else (0, -1)
        found = connection.execute(_ENTRIES, span).fetchall()
        said = _resolve(connection, connection.execute(_TRIALS, span))
        remarked = connection.execute(_REMARKS, span).fetchall()
    except (sqlite3.Error, TypeError):
        return False
    places = {entry[0] for entry in known}
    return (
        found == known
        and said == [trial for trial in trials if trial[0] in places]
        and remarked == [remark for remark in remarks if remark[1] in places]
    )


def _resolve(
    connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Trials with the documents that they refer to; each is loaded once."""
    found = list(rows)
    numbers = {row[column] for row in found for column in DOCUMENTS}
    load = dict(connection.execute(_DOCUMENTS, (json.dumps(list(numbers)),))).get
    return [
        tuple(load(value) if at in DOCUMENTS else value for at, value in enumerate(row))
        for row in found
    ]


def find_wrong_rows(
    connection: sqlite3.Connection, size: int, withholding: Sequence[WithholdEntry]
) -> str | None:
    """What the rows of an index that has read so many entries say wrongly; None where nothing.

    The rows of each piece of the log were seen to be right.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    execute = connection.execute
    if any(number for (number,) in execute(_STRAY, {"size": size})):
        return "it has rows of entries that are not in the log"
    said = execute("SELECT * FROM withholdings ORDER BY seq").fetchall()
    if said != [withholding_columns(entry) for entry in withholding]:
        return "it names other lines as withheld than the log"
    query = "SELECT * FROM trials WHERE status = 'withheld' ORDER BY seq"
    if execute(query).fetchall() != _expect_withheld(connection, withholding):
        return "it has other trials as withheld than the log"
    judged = read_supersessions(connection)
    if {record for (record,) in execute(_SUPERSEDED)} != _expect_superseded(connection, judged):
        return "it has other trials as superseded than the log"
    return None


def _expect_superseded(
    connection: sqlite3.Connection, judged: Mapping[str, str | None]
) -> set[str]:
    """The records whose supersession counts, but for those that are withheld."""
    query = "SELECT 1 FROM trials WHERE record = ? AND status <> 'withheld'"
    return {
        record
        for record, refusal in judged.items()
        if refusal is None and connection.execute(query, (record,)).fetchone()
    }


def _expect_withheld(
    connection: sqlite3.Connection, withholding: Iterable[WithholdEntry]
) -> list[Columns]:
    """What should be left of trials whose lines are gone, by their places."""
    rows: dict[int, Columns] = {}
    names: set[object] = set()
    for entry in withholding:
        row = withheld_columns(entry)
        if row is None or entry.entry is None or entry.entry in rows or row[1:3] in names:
            continue
        is_gone = connection.execute(GONE, (entry.entry, entry.leaf)).fetchone() is not None
        if is_gone and connection.execute(_IS_TRIAL, row[:3]).fetchone() is None:
            rows[entry.entry] = row
            names.add(row[1:3])
    return [rows[seq] for seq in sorted(rows)]
