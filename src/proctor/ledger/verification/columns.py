"""Columns: what the index says of entries and trials, held against what the log says.

Whoever changes the index changes what lists show, and no signature would tell.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from proctor.ledger.head import RecordHead

type TrialColumns = tuple[int, str, str, str | None, str, str, str, float | None, str, str]
"""Place, experiment, trial, dataset, task, harness, model, reward, completeness, status; what was
superseded has the status that it was admitted with."""

type EntryColumns = tuple[int, int, int, int, bytes]
"""Place, segment, offset, length, leaf."""

_ENTRIES = "SELECT seq, segment, offset, length, leaf FROM entries WHERE seq BETWEEN ? AND ?"
_TRIALS = (
    "SELECT seq, experiment_id, trial_id, dataset_id, task_id, harness, model, reward, "
    "completeness, CASE WHEN status <> 'superseded' THEN status "
    "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END "
    "FROM trials WHERE seq BETWEEN ? AND ? AND status <> 'withheld'"
)


def open_read_only(path: Path) -> sqlite3.Connection | None:
    """An index that is read and never written; None where it cannot be read."""
    # On a medium that cannot be written there is no room for what SQLite keeps beside it.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            uri = f"{path.resolve().as_uri()}?{mode}"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=60)
            connection.execute("SELECT version FROM position").fetchone()
        except sqlite3.Error:
            continue
        return connection
    return None


def columns_of(seq: int, head: RecordHead) -> TrialColumns:
    """What the index should say of a trial."""
    return (
        seq, head.experiment_id, head.trial_id, head.dataset_id, head.task.task_id,
        head.agent.adapter, head.agent.model, head.evaluation.reward, head.completeness,
        head.status,
    )  # fmt: skip


def has_columns(
    index: str, entries: Sequence[EntryColumns], trials: Sequence[TrialColumns]
) -> bool:
    """Whether an index says just this of entries that follow one another."""
    connection = open_read_only(Path(index))
    if connection is None:
        return False
    try:
        (size,) = connection.execute("SELECT size FROM position").fetchone()
        # What it has not read yet it need not say, nor what is no entry.
        known = [entry for entry in entries if 0 <= entry[0] < size]
        span = (known[0][0], known[-1][0]) if known else (0, -1)
        found = connection.execute(f"{_ENTRIES} ORDER BY seq", span).fetchall()
        said = connection.execute(f"{_TRIALS} ORDER BY seq", span).fetchall()
    except (sqlite3.Error, TypeError):
        return False
    finally:
        connection.close()
    return found == known and said == [trial for trial in trials if trial[0] < size]
