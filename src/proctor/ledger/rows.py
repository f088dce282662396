"""The rows of the index that an entry gives: made here for the index, and for verify to compare.

Columns stand in the order of their tables, in index_file.py. What many trials have in common stands
as the document itself; the index keeps it once, and its number in the row.
"""

from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    evidence_digest,
    record_digest,
)
from proctor.ledger.standing import Standing

type TrialColumns = tuple[object, ...]
"""A trial, its place first."""

type RemarkColumns = tuple[str, int, str, str | None, int]
"""Record, place, kind, verdict, and whether it is the one that something is said of."""

RUN, TASK, SITTER = 18, 19, 29
"""The columns of a trial that are documents."""
WIDTH = 30
"""Columns of a trial."""
GONE = "SELECT 1 FROM entries WHERE seq = ? AND kind = '' AND lower(hex(leaf)) = ?"
"""Whether the line that a withholding names, by place and leaf hash, was taken out."""


def trial_columns(entry: TrialEntry, standing: Standing) -> TrialColumns:
    """A trial as it was admitted; what is said of it later is not in it."""
    head = standing.head
    return (
        entry.seq, head.experiment_id, head.trial_id, record_digest(entry), head.status,
        head.completeness, head.dataset_id, head.task.task_id, head.agent.adapter,
        head.agent.model, standing.reward, head.when, entry.reason_code,
        evidence_digest(entry), len(entry.evidence), sum(file.size for file in entry.evidence),
        standing.revision, standing.configuration, standing.run_conditions,
        standing.task_conditions, standing.source, standing.cost_usd, standing.tokens_in,
        standing.tokens_out, standing.advisor_calls, standing.seconds, standing.findings,
        standing.collection, standing.exception, standing.sitter,
    )  # fmt: skip


def withheld_columns(entry: WithholdEntry) -> TrialColumns | None:
    """What is left of a trial whose line was withheld; None where none was, or no trial's."""
    subject = entry.subject
    if subject is None or entry.entry is None:
        return None
    ids = (entry.entry, subject.experiment_id, subject.trial_id, subject.record, "withheld")
    return (*ids, *[None] * 9, 0, 0, *[None] * 14)


def withholding_columns(entry: WithholdEntry) -> tuple[int, int | None, int, int]:
    """What an entry says was withheld: its place, the line's, whether it names a trial, files."""
    return (entry.seq, entry.entry, int(entry.subject is not None), len(entry.artifacts))


def remark_columns(entry: AnyEntry) -> list[RemarkColumns]:
    """What an entry says of trials."""
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


def kind_and_time(entry: AnyEntry | Withheld) -> tuple[str, str]:
    """What the index says of any entry; of a withheld one nothing is left."""
    return ("", "") if isinstance(entry, Withheld) else (entry.kind, entry.at)
