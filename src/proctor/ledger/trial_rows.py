"""Rows of the index's table of trials: one for each trial, whose name no other entry may have.

A trial whose line was withheld has a row too, from what the entry says that withholds it.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from proctor.errors import DamageError
from proctor.ledger.admission import render_duplicate, render_misnamed
from proctor.ledger.entry import Subject, WithholdEntry
from proctor.ledger.rows import GONE, WIDTH, withheld_columns

_INSERT = f"INSERT INTO trials VALUES ({', '.join('?' * WIDTH)})"  # noqa: S608 - no words of others
_NAMED = "SELECT seq FROM trials WHERE experiment_id = ? AND trial_id = ?"
_NAMES = ("experiment_id", "trial_id", "record")
_AT = "SELECT experiment_id, trial_id, record FROM trials WHERE seq = ?"


def insert_trial(connection: sqlite3.Connection, row: Sequence[Any]) -> None:
    """Add a row, which begins with its place, experiment and trial.

    Raises:
        DamageError: another entry is that trial.
    """
    try:
        connection.execute(_INSERT, row)
    except sqlite3.IntegrityError as error:
        seq, *name = row[:3]
        found = connection.execute(_NAMED, name).fetchone()
        if found is None:
            raise
        raise DamageError(render_duplicate(found[0], seq, *name)) from error


def insert_withheld(connection: sqlite3.Connection, entry: WithholdEntry) -> None:
    """Add a row for the trial whose line an entry withholds, where there is none.

    Raises:
        DamageError: that line is, or is said to be, another trial or none.
    """
    row, subject, seq = withheld_columns(entry), entry.subject, entry.entry
    if row is None or subject is None or seq is None:
        return
    known = connection.execute(_AT, (seq,)).fetchone()
    kind = connection.execute("SELECT kind FROM entries WHERE seq = ?", (seq,)).fetchone()
    if known is None and kind == ("",):
        # One that names another leaf hash does not name this line: see proctor.ledger.withheld.
        if connection.execute(GONE, (seq, entry.leaf)).fetchone():
            insert_trial(connection, row)
    # Where the line is there, it has been brought back, or is about to be taken out.
    elif known != row[1:4]:
        found = Subject(**dict(zip(_NAMES, known, strict=True))) if known else None
        raise DamageError(render_misnamed(entry.seq, seq, subject, found))
