"""What new entries of a log say that somebody should see; the cursor takes in what it needs."""

from collections.abc import Iterator
from dataclasses import dataclass

from proctor.digest import sha256_hex
from proctor.ledger.entry import KeyEntry, SupersedeEntry, WithholdEntry
from proctor.ledger.watch.cursor import Cursor, SealedAt
from proctor.ledger.watch.event import EventKind
from proctor.ledger.watch.reading import FoundTrial, Telling, shorten

_LONGEST = 300
"""Characters of a reason that are shown."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """An event before it is known of which ledger."""

    kind: EventKind
    seq: int
    message: str


def take_entry(cursor: Cursor, seq: int, entry: Telling) -> Iterator[Sighting]:
    """Take one more entry in; what of it should be seen."""
    match entry:
        case FoundTrial():
            yield from _take_identity(cursor, entry.experiment, entry.trial, entry.sealed)
        case WithholdEntry():
            yield from _take_withholding(cursor, seq, entry)
        case SupersedeEntry():
            if _is_scored(cursor, entry.subject.record):
                yield Sighting(
                    EventKind.SUPERSEDED,
                    seq,
                    f"{entry.subject.experiment_id}/{entry.subject.trial_id}, which has a reward, "
                    f"is superseded by {entry.by.trial_id} ({entry.cause}): {_cut(entry.reason)}",
                )
        case KeyEntry():
            cursor.keys.append(entry)
            if seq > 0:
                key = "+".join(entry.key.split("+")[:2])
                yield Sighting(EventKind.KEY_CHANGED, seq, f"the key {key} signs from here on")
        case _:
            return


def _take_identity(
    cursor: Cursor, experiment: str, trial: str, sealed: SealedAt
) -> Iterator[Sighting]:
    identity = shorten(sha256_hex(f"{experiment}\n{trial}".encode()))
    first = cursor.trials.setdefault(identity, sealed)
    if first.place != sealed.place:
        message = f"entries {first.place} and {sealed.place} are both trial {experiment}/{trial}"
        yield Sighting(EventKind.DUPLICATE_IDENTITY, sealed.place, message)


def _take_withholding(cursor: Cursor, seq: int, entry: WithholdEntry) -> Iterator[Sighting]:
    what = f"entry {entry.entry}" if entry.entry is not None else "evidence"
    if entry.entry is not None and entry.leaf is not None:
        cursor.withholdings.append((entry.entry, entry.leaf))
    if entry.subject is None:
        message = f"{what} is withheld, and no trial is named: {_cut(entry.reason)}"
        yield Sighting(EventKind.WITHHELD_UNNAMED, seq, message)
        return
    name = f"{entry.subject.experiment_id}/{entry.subject.trial_id}"
    message = f"{what} of {name} is withheld: {_cut(entry.reason)}"
    yield Sighting(EventKind.WITHHELD, seq, message)
    if entry.entry is not None:
        # Where its line was gone before it was read, this is the first that is known of the trial.
        gone = SealedAt(entry.entry, shorten(entry.subject.record), is_scored=False)
        subject = entry.subject
        yield from _take_identity(cursor, subject.experiment_id, subject.trial_id, gone)


def _is_scored(cursor: Cursor, record: str) -> bool:
    wanted = shorten(record)
    return any(each.is_scored and each.record == wanted for each in cursor.trials.values())


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
