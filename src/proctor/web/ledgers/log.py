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
from proctor.ledger.entry import KINDS, Withheld, decode_line
from proctor.ledger.entry import Subject as TrialSubject
from proctor.ledger.log import Line
from proctor.ledger.note import Checkpoint, parse_verifier_key
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.signature import check_signature
from proctor.ledger.trial_index import IndexedEntry, TrialFilter
from proctor.record.reasons import outcome_of
from proctor.sentence import render_figure
from proctor.web.ledgers.entries import summarize_entry
from proctor.web.subject import Subject

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
def opened_log(subject: Subject) -> Iterator[Log]:
    """Open the ledger, damaged or not.

    Raises:
        NotThereError: the viewer shows jobs, not a ledger.
    """
    if subject.ledger is None:
        raise NotThereError("this viewer shows jobs, not a ledger")
    log = Log(subject.ledger, _read_note(subject.ledger))
    with contextlib.ExitStack() as stack:
        try:
            log.ledger = stack.enter_context(open_reader(subject.ledger))
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
