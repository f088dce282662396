"""Columns: what the index says of entries, trials and what was said of them, against the log.

Whoever changes the index changes what lists and boards show, and no signature would tell. All that
boards rest on is compared. Digests of records are, where anything was said of a trial: it is by
them that a trial is meant. Digests and sizes of evidence, which only lists show, are not.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialEntry,
    WithholdEntry,
    record_digest,
)
from proctor.ledger.standing import read_standing

type TrialColumns = tuple[object, ...]
"""A trial as the index should have it, its place first; what was superseded has the status that it
was admitted with, and what many trials have in common is there as the document itself."""

type RemarkColumns = tuple[str, int, str, str | None, int]
"""Record, place, kind, verdict, and whether it is the one that something is said of."""

type EntryColumns = tuple[int, int, int, int, bytes]
"""Place, segment, offset, length, leaf."""

_ENTRIES = "SELECT seq, segment, offset, length, leaf FROM entries WHERE seq BETWEEN ? AND ?"
_TRIALS = (
    "SELECT seq, experiment_id, trial_id, "
    "CASE WHEN EXISTS (SELECT 1 FROM remarks) THEN record END, "
    "CASE WHEN status <> 'superseded' THEN status "
    "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END, "
    "completeness, dataset_id, task_id, harness, model, reward, timestamp, reason_code, revision, "
    "configuration, run.document, task.document, source, cost_usd, tokens_in, tokens_out, "
    "advisor_calls, seconds, findings, collection, exception, who.document FROM trials "
    "LEFT JOIN conditions run ON run.id = run_conditions "
    "LEFT JOIN conditions task ON task.id = task_conditions "
    "LEFT JOIN conditions who ON who.id = sitter "
    "WHERE seq BETWEEN ? AND ? AND status <> 'withheld'"
)
_REMARKS = (
    "SELECT record, seq, kind, verdict, is_subject FROM remarks WHERE seq BETWEEN ? AND ? "
    "ORDER BY seq, is_subject DESC, rowid"
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


def has_remarks(index: str) -> bool:
    """Whether an index knows of anything that was said of a trial."""
    connection = open_read_only(Path(index))
    if connection is None:
        return False
    try:
        return connection.execute("SELECT 1 FROM remarks LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def columns_of(entry: TrialEntry, *, with_record: bool) -> TrialColumns:
    """What the index should say of a trial; hashing its record takes as long as all the rest.

    Raises:
        DamageError: there is no record in it.
    """
    standing = read_standing(entry)
    head, digest = standing.head, record_digest(entry) if with_record else None
    return (
        entry.seq, head.experiment_id, head.trial_id, digest, head.status,
        head.completeness, head.dataset_id, head.task.task_id, head.agent.adapter,
        head.agent.model, head.evaluation.reward, head.when, entry.reason_code, standing.revision,
        standing.configuration, standing.run_conditions, standing.task_conditions, standing.source,
        standing.cost_usd, standing.tokens_in, standing.tokens_out, standing.advisor_calls,
        standing.seconds, standing.findings, standing.collection, standing.exception,
        standing.sitter,
    )  # fmt: skip


def remarks_of(entry: AnyEntry) -> list[RemarkColumns]:
    """What the index should say of what an entry says of trials."""
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


def has_columns(
    index: str,
    entries: Sequence[EntryColumns],
    trials: Sequence[TrialColumns],
    remarks: Sequence[RemarkColumns],
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
        remarked = connection.execute(_REMARKS, span).fetchall()
    except (sqlite3.Error, TypeError):
        return False
    finally:
        connection.close()
    places = {entry[0] for entry in known}
    return (
        found == known
        and said == [trial for trial in trials if trial[0] in places]
        and remarked == [remark for remark in remarks if remark[1] in places]
    )
