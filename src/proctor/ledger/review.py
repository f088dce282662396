"""Entries about sealed trials: reviews, supersessions, rescores, notes and plans.

Each names the digest of the record that it is about. Nothing that was sealed changes; of several
reviews or supersessions of a trial, the latest counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import msgspec

from proctor.errors import LedgerError
from proctor.ledger.entry import (
    AnyEntry,
    Cause,
    NoteEntry,
    PlanEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialScore,
    Verdict,
    Withheld,
)
from proctor.ledger.reader import LedgerReader, LedgerWriter
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.record.ids import check_id

LONGEST_TEXT = 100_000
"""Characters of a note or a reason."""
LONGEST_NAME = 200
_VERDICTS = get_args(Verdict.__value__)
_CAUSES = get_args(Cause.__value__)


@dataclass(frozen=True, slots=True)
class Remark:
    """An entry about a trial, or the placeholder of a withheld one."""

    seq: int
    entry: AnyEntry | Withheld


def list_remarks(ledger: LedgerReader, record: str) -> list[Remark]:
    """All entries about the trial with this record, in the order of the log."""
    return [Remark(seq, ledger.entry(seq)) for seq in ledger.index.remarks(record=record)]


def check_words(text: str, what: str, *, longest: int = LONGEST_TEXT) -> None:
    """Refuse a text that is blank or too long.

    Raises:
        LedgerError: it is blank, too long, or not valid Unicode.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LedgerError(f"{what} is not valid text: {error.reason}") from error
    if not text.strip():
        raise LedgerError(f"{what} is empty; expected a few words")
    if len(text) > longest:
        raise LedgerError(f"{what} has {len(text):,} characters; expected at most {longest:,}")


def append_review(
    ledger: LedgerWriter, row: TrialRow, verdict: str, *, reviewer: str, note: str = ""
) -> int:
    """Append a person's review of a trial; returns the entry's position.

    Raises:
        LedgerError: a text is missing, or the ledger cannot be written.
    """
    if verdict not in _VERDICTS:
        raise LedgerError(f"verdict is {verdict!r}; expected one of {', '.join(_VERDICTS)}")
    check_words(reviewer, "the reviewer", longest=LONGEST_NAME)
    if note:
        check_words(note, "the note")
    entry = ReviewEntry(
        at="",
        seq=0,
        subject=row.subject,
        verdict=cast(Verdict, verdict),
        reviewer=reviewer,
        note=note,
    )
    return _append(ledger, entry, [row])


def append_supersession(
    ledger: LedgerWriter, row: TrialRow, by: TrialRow, cause: str, *, reason: str, author: str
) -> int:
    """Append that trial `by` replaces a trial; returns the entry's position.

    Raises:
        LedgerError: a trial would replace itself, a text is missing, or the ledger cannot be
            written.
    """
    if cause not in _CAUSES:
        raise LedgerError(f"cause is {cause!r}; expected one of {', '.join(_CAUSES)}")
    if row.record == by.record:
        raise LedgerError(f"{row.name} cannot supersede itself")
    _check_reason(reason, author)
    entry = SupersedeEntry(
        at="",
        seq=0,
        subject=row.subject,
        by=by.subject,
        cause=cast(Cause, cause),
        reason=reason,
        author=author,
    )
    return _append(ledger, entry, [row, by])


def append_rescore(
    ledger: LedgerWriter, row: TrialRow, score: TrialScore, *, reason: str, author: str
) -> int:
    """Append another score for the same evidence; returns the entry's position."""
    _check_reason(reason, author)
    check_words(score.profile, "the profile", longest=LONGEST_NAME)
    _check_numbers(score.certificate, "the certificate")
    entry = RescoreEntry(
        at="", seq=0, subject=row.subject, score=score, reason=reason, author=author
    )
    return _append(ledger, entry, [row])


def append_note(ledger: LedgerWriter, text: str, *, author: str, about: Sequence[str] = ()) -> int:
    """Append a note; `about` are digests of records that are sealed here."""
    check_words(text, "the note")
    check_words(author, "the author", longest=LONGEST_NAME)
    entry = NoteEntry(at="", seq=0, text=text, author=author, about=tuple(about))
    with ledger.writing():
        ledger.refresh()
        for digest in about:
            _check_sealed(ledger, digest)
        return ledger.append([entry])[0]


def append_plan(ledger: LedgerWriter, experiment_id: str, plan: bytes, *, author: str) -> int:
    """Append a plan before it is run; `plan` is JSON, stored byte for byte except for whitespace.

    Raises:
        LedgerError: it is not JSON, a text is missing, or the ledger cannot be written.
        RecordError: the experiment's name is invalid.
    """
    check_id(experiment_id, "experiment_id")
    check_words(author, "the author", longest=LONGEST_NAME)
    try:
        msgspec.json.decode(plan)
        # Without newlines, because an entry is one line.
        line = msgspec.json.format(plan, indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LedgerError(f"the plan is not JSON: {error}") from error
    entry = PlanEntry(
        at="", seq=0, experiment_id=experiment_id, plan=msgspec.Raw(line), author=author
    )
    with ledger.writing():
        return ledger.append([entry])[0]


def _check_reason(reason: str, author: str) -> None:
    check_words(reason, "the reason")
    check_words(author, "the author", longest=LONGEST_NAME)


def _check_numbers(value: object, what: str) -> None:
    # JSON has no number for them.
    if isinstance(value, float) and not math.isfinite(value):
        raise LedgerError(f"{what} holds {value}; expected numbers as float.hex writes them")
    inner: Any = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple):
        for each in inner:
            _check_numbers(each, what)


def _append(ledger: LedgerWriter, entry: AnyEntry, rows: Sequence[TrialRow]) -> int:
    with ledger.writing():
        ledger.refresh()
        for row in rows:
            _check_sealed(ledger, row.record)
        return ledger.append([entry])[0]


def _check_sealed(ledger: LedgerWriter, digest: str) -> None:
    found = ledger.index.trials(TrialFilter(record_prefix=digest, first=1))
    if not any(row.record == digest for row in found):
        raise LedgerError(f"{ledger.where}: no record {digest[:80]!r} is sealed there")
