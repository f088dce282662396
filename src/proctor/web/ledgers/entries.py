"""Summarize an entry of a ledger, and find the entries it refers to and that refer to it."""

from collections.abc import Iterator
from dataclasses import dataclass

from proctor.errors import DamageError
from proctor.ledger.entry import (
    AnyEntry,
    AttestEntry,
    KeyEntry,
    MachineEntry,
    NoteEntry,
    PlanEntry,
    RescoreEntry,
    ReviewEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    record_digest,
)
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import list_remarks
from proctor.ledger.row import read_row
from proctor.ledger.withhold import list_withholdings
from proctor.record.reasons import outcome_of
from proctor.sentence import count_of, render_figure
from proctor.web.shown import trial_path


@dataclass(frozen=True, slots=True)
class Link:
    """A reference from or to an entry."""

    what: str
    text: str
    address: str | None = None


def _link(what: str, trial: Subject) -> Link:
    return Link(what, trial.name, trial_path(trial.experiment_id, trial.trial_id))


def summarize_entry(entry: AnyEntry | Withheld) -> tuple[str, Subject | None]:
    """Summarize an entry, and return the trial it is about."""
    match entry:
        case ReviewEntry() | SupersedeEntry() | RescoreEntry() | WithholdEntry():
            return _describe_remark(entry), entry.subject
        case TrialEntry():
            row = read_row(entry)
            score = outcome_of(row) if row.reward is None else f"reward {render_figure(row.reward)}"
            return score, row.subject
        case PlanEntry() | KeyEntry() | NoteEntry() | AttestEntry() | MachineEntry():
            return _describe_own(entry), None
        case _:
            return "withheld; its hash remains", None


def _describe_remark(entry: ReviewEntry | SupersedeEntry | RescoreEntry | WithholdEntry) -> str:
    match entry:
        case ReviewEntry():
            note = f": {entry.note}" if entry.note else ""
            return f"{entry.verdict} by {entry.reviewer}{note}"
        case SupersedeEntry():
            return f"replaced by {entry.by.trial_id} ({entry.cause}): {entry.reason}"
        case RescoreEntry():
            return f"scored again by {entry.score.profile}: {entry.reason}"
        case WithholdEntry():
            return f"{_describe_withheld(entry)}: {entry.reason}"


def _describe_own(entry: PlanEntry | KeyEntry | NoteEntry | AttestEntry | MachineEntry) -> str:
    match entry:
        case PlanEntry():
            return f"plan of {entry.experiment_id} by {entry.author}"
        case KeyEntry():
            return f"the key {'+'.join(entry.key.split('+')[:2])} signs from this entry on"
        case NoteEntry():
            return f"{entry.author}: {entry.text}"
        case MachineEntry():
            what = "revokes" if entry.is_revoked else "enrols"
            return f"{entry.author} {what} the machine {entry.name}"
        case AttestEntry():
            return f"{entry.author} on {entry.experiment_id}; not checked any more"


def _describe_withheld(entry: WithholdEntry) -> str:
    if entry.entry is not None:
        return f"entry {entry.entry} withheld"
    return f"{count_of(len(entry.artifacts), 'file')} of its evidence withheld"


def find_links(entry: AnyEntry | Withheld) -> Iterator[Link]:
    """What an entry refers to."""
    match entry:
        case TrialEntry():
            found = read_row(entry).subject
            yield _link("trial", found)
            yield Link("record SHA-256", found.record)
        case ReviewEntry() | RescoreEntry() | SupersedeEntry():
            yield _link("trial", entry.subject)
            yield Link("record SHA-256", entry.subject.record)
            if isinstance(entry, SupersedeEntry):
                yield _link("replaced by", entry.by)
        case WithholdEntry():
            if entry.subject is not None:
                yield _link("trial", entry.subject)
            if entry.entry is not None:
                yield Link("entry", str(entry.entry), f"/ledger/entries/{entry.entry}")
        case PlanEntry() | AttestEntry():
            yield Link("experiment", entry.experiment_id, f"/experiments/{entry.experiment_id}")
        case _:
            return


def find_later_entries(
    ledger: LedgerReader, seq: int, entry: AnyEntry | Withheld
) -> Iterator[Link]:
    """Later entries that refer to this one."""
    if isinstance(entry, TrialEntry):
        for remark in list_remarks(ledger, record_digest(entry)):
            yield _say(remark.seq, remark.entry)
        return
    for each in list_withholdings(ledger):
        if each.entry == seq:
            yield _say(each.seq, each)


def _say(seq: int, entry: AnyEntry | Withheld) -> Link:
    try:
        text, _ = summarize_entry(entry)
    except DamageError as error:
        text = str(error)
    kind = getattr(entry, "kind", "withheld")
    return Link(f"entry {seq}", f"{kind}: {text}", f"/ledger/entries/{seq}")
