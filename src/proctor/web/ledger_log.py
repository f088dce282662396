"""The log of a ledger for its pages: its checkpoint, and its entries page by page.

A log that does not match its checkpoint is shown as found, line by line, and marked as damaged.
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import DamageError, InputError, KeyFileError, NotThereError, SignatureError
from proctor.ledger.as_found import read_found, read_note
from proctor.ledger.entry import (
    KINDS,
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
    decode_line,
    record_digest,
)
from proctor.ledger.entry import Subject as TrialSubject
from proctor.ledger.log import Line
from proctor.ledger.note import Checkpoint, parse_verifier_key
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import list_remarks
from proctor.ledger.row import TrialRow, read_row
from proctor.ledger.signature import check_signature
from proctor.ledger.trial_index import IndexedEntry, TrialFilter
from proctor.ledger.withhold import list_withholdings
from proctor.record.reasons import outcome_of
from proctor.sentence import count_of, render_figure
from proctor.web.data_source import DataSource
from proctor.web.format import trial_path

PAGE: Final = 50
WITHHELD: Final = "withheld"
FILTERS: Final = (*KINDS, WITHHELD)
"""Filters of the list."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list."""

    seq: int
    kind: str
    at: str
    text: str
    trial: TrialSubject | None = None
    is_damaged: bool = False


@dataclass(slots=True)
class Log:
    """A ledger as the pages show it."""

    directory: Path
    note: str
    """The checkpoint file, unchanged."""
    ledger: LedgerReader | None = None
    """None if it cannot be opened."""
    checkpoint: Checkpoint | None = None
    damage: str | None = None
    """Why it does not match its signature."""

    def list_entries(self, before: int | None, kind: str | None) -> list[Listed]:
        """A page of entries plus one more, the newest first."""
        if self.ledger is not None and self.damage is None:
            return _list_indexed(self.ledger, before, kind)
        return _list_found(read_found(self.directory), before, kind)

    def count_kinds(self) -> dict[str, int]:
        """Number of entries of each kind; empty if the log is damaged."""
        if self.ledger is None or self.damage is not None:
            return {}
        found = self.ledger.index.count_kinds()
        return {kind or WITHHELD: count for kind, count in found.items()}

    def find_key(self) -> str | None:
        """The public signing key that the log itself names."""
        if self.ledger is None or self.damage is not None:
            return None
        return self.ledger.index.position().key or None

    def check_signature(self) -> tuple[bool, str]:
        """Whether the key signed the checkpoint, with a sentence."""
        key = self.find_key()
        if self.checkpoint is None or key is None:
            return False, "not checked: the log does not name its key"
        try:
            check_signature(self.checkpoint, parse_verifier_key(key), "checkpoint")
        except (SignatureError, KeyFileError) as error:
            return False, str(error)
        return True, "the checkpoint is signed by the key that the log names"


@contextlib.contextmanager
def opened_log(source: DataSource) -> Iterator[Log]:
    """Open the ledger, damaged or not.

    Raises:
        NotThereError: the viewer shows jobs, not a ledger.
    """
    if source.ledger is None:
        raise NotThereError("this viewer shows jobs, not a ledger")
    log = Log(source.ledger, _read_note(source.ledger))
    with contextlib.ExitStack() as stack:
        try:
            log.ledger = stack.enter_context(open_reader(source.ledger))
            log.checkpoint = log.ledger.checkpoint()
            log.checkpoint = log.ledger.refresh()
        except (DamageError, InputError) as error:
            log.damage = str(error)
        yield log


def _read_note(directory: Path) -> str:
    try:
        return read_note(directory).decode("utf-8", "replace")
    except OSError as error:
        return f"(cannot be read: {error.strerror})"


def _list_indexed(ledger: LedgerReader, before: int | None, kind: str | None) -> list[Listed]:
    wanted = "" if kind == WITHHELD else kind
    found = ledger.index.latest_entries(PAGE + 1, before=before, kind=wanted)
    shown = TrialFilter(seqs=tuple(entry.seq for entry in found))
    trials = {row.seq: row for row in ledger.index.trials(shown)}
    return [_list_entry(ledger, entry, trials.get(entry.seq)) for entry in found]


def _list_entry(ledger: LedgerReader, entry: IndexedEntry, trial: TrialRow | None) -> Listed:
    seq, kind, at = entry.seq, entry.kind, entry.at
    known = None if trial is None else trial.subject
    if kind == "":
        return Listed(seq, WITHHELD, at, "withheld; its hash remains", known)
    if trial is not None:
        reward = trial.reward
        score = outcome_of(trial) if reward is None else f"reward {render_figure(reward)}"
        return Listed(seq, kind, at, score, known)
    try:
        text, known = summarize_entry(ledger.entry(seq))
    except DamageError as error:
        return Listed(seq, kind, at, str(error), is_damaged=True)
    return Listed(seq, kind, at, text, known)


def _list_found(lines: Iterable[Line], before: int | None, kind: str | None) -> list[Listed]:
    """The lines as found, numbered by position, whatever they claim."""
    found: deque[Listed] = deque(maxlen=PAGE + 1)
    with contextlib.suppress(DamageError):
        for number, line in enumerate(lines):
            if before is not None and number >= before:
                break
            listed = _list_line(number, line)
            if kind in (None, listed.kind):
                found.append(listed)
    return list(reversed(found))


def _list_line(number: int, line: Line) -> Listed:
    try:
        entry = decode_line(line.data, f"line {number}")
        text, known = summarize_entry(entry)
    except DamageError as error:
        return Listed(number, "damaged", "", str(error), is_damaged=True)
    if isinstance(entry, Withheld):
        return Listed(number, WITHHELD, "", text)
    return Listed(number, entry.kind, entry.at, text, known)


def find_line(log: Log, seq: int) -> tuple[bytes, str | None]:
    """The line of an entry, and its hash in the tree, as hex.

    Raises:
        NotThereError: there is no such entry.
        DamageError: its line cannot be read.
    """
    if log.ledger is not None and log.damage is None:
        if found := log.ledger.index.entry(seq):
            return log.ledger.line(seq), found.leaf.hex()
    else:
        for number, line in enumerate(read_found(log.directory)):
            if number == seq:
                return line.data, None
    raise NotThereError(f"{os.fspath(log.directory)}: there is no entry {seq}")


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
