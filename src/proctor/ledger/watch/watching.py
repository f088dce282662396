"""One check of a ledger: what happened since the last one.

1. If neither the checkpoint nor the segment files changed, that is all.
2. New lines are read; the tree of all lines must be the signed one.
3. The keys are followed from the one that was given or seen; the last must have signed.
4. The log must contain the checkpoint that was seen last, as the memory of witnesses has it.
5. Events of new entries are reported. The cursor is returned, to be stored after reporting.

A check that finds a condition, such as a fork, stops there: nothing after it can be believed. The
condition is reported once, until it ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import DamageError, NoteError, SignatureError
from proctor.ledger.attestation import false_attestations, survey_log
from proctor.ledger.entry import AttestEntry, KeyEntry, SupersedeEntry, WithholdEntry
from proctor.ledger.log import FileLog, LogStore, Stamp
from proctor.ledger.memory import Memory, Seen
from proctor.ledger.note import Checkpoint, VerifierKey, parse_checkpoint
from proctor.ledger.signature import check_signature
from proctor.ledger.verification.damage import Findings
from proctor.ledger.verification.keychain import Keychain, read_keychain
from proctor.ledger.watch.cursor import Cursor, Cursors, SealedAt
from proctor.ledger.watch.event import Event, EventKind
from proctor.ledger.watch.reading import (
    NewLines,
    WatchedEntry,
    WatchedTrial,
    read_new,
    shorten,
    unexplained_withholdings,
)

# Events of new entries; the cursor stores what later entries need.


# Characters of a reason that are shown.
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class EntryEvent:
    """An event, without its ledger."""

    kind: EventKind
    seq: int
    message: str


def take_entry(cursor: Cursor, seq: int, entry: WatchedEntry) -> Iterator[EntryEvent]:
    """Add an entry to the cursor; yields its events."""
    match entry:
        case WatchedTrial():
            yield from _take_identity(cursor, entry.experiment, entry.trial, entry.sealed)
        case WithholdEntry():
            yield from _take_withholding(cursor, seq, entry)
        case SupersedeEntry():
            if _is_scored(cursor, entry.subject.record):
                yield EntryEvent(
                    EventKind.SUPERSEDED,
                    seq,
                    f"{entry.subject.name}, which has a reward, "
                    f"is superseded by {entry.by.trial_id} ({entry.cause}): {_cut(entry.reason)}",
                )
        case KeyEntry():
            cursor.keys.append(entry)
            if seq > 0:
                key = "+".join(entry.key.split("+")[:2])
                yield EntryEvent(EventKind.KEY_CHANGED, seq, f"the key {key} signs from here on")
        case _:
            return


def _take_identity(
    cursor: Cursor, experiment: str, trial: str, sealed: SealedAt
) -> Iterator[EntryEvent]:
    identity = shorten(sha256_hex(f"{experiment}\n{trial}".encode()))
    first = cursor.trials.setdefault(identity, sealed)
    if first.place != sealed.place:
        message = f"entries {first.place} and {sealed.place} are both trial {experiment}/{trial}"
        yield EntryEvent(EventKind.DUPLICATE_IDENTITY, sealed.place, message)


def _take_withholding(cursor: Cursor, seq: int, entry: WithholdEntry) -> Iterator[EntryEvent]:
    what = f"entry {entry.entry}" if entry.entry is not None else "evidence"
    if entry.entry is not None and entry.leaf is not None:
        cursor.withholdings.append((entry.entry, entry.leaf))
    if entry.subject is None:
        message = f"{what} is withheld, and no trial is named: {_cut(entry.reason)}"
        yield EntryEvent(EventKind.WITHHELD_UNNAMED, seq, message)
        return
    message = f"{what} of {entry.subject.name} is withheld: {_cut(entry.reason)}"
    yield EntryEvent(EventKind.WITHHELD, seq, message)
    if entry.entry is not None:
        # If the line was withheld before it was read, this is the first mention of the trial.
        gone = SealedAt(entry.entry, shorten(entry.subject.record), is_scored=False)
        subject = entry.subject
        yield from _take_identity(cursor, subject.experiment_id, subject.trial_id, gone)


def _is_scored(cursor: Cursor, record: str) -> bool:
    wanted = shorten(record)
    return any(each.is_scored and each.record == wanted for each in cursor.trials.values())


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"


_TRIES = 3


class _ConditionError(Exception):
    """A condition that ends a check early."""

    def __init__(self, kind: EventKind, message: str, *contradicting: Checkpoint) -> None:
        super().__init__(message)
        self.kind = kind
        self.contradicting = contradicting


@dataclass(slots=True)
class Monitor:
    """Follows ledgers, and stores what it saw of them."""

    memory: Memory
    keys: Sequence[VerifierKey] = ()
    """The public keys that ledgers must be signed by; empty: each ledger names its own."""
    cursors: Cursors = field(init=False)

    def __post_init__(self) -> None:
        self.cursors = Cursors(self.memory.directory / "watch")

    def look(self, ledger: Path) -> tuple[list[Event], Cursor]:
        """Check a ledger; returns its events, and the cursor to store once they were reported."""
        before = self.cursors.find(ledger)
        if before is None:
            FileLog(ledger).check_begun()
        look = _Look(self, ledger, before)
        for _ in range(_TRIES):
            data = look.read_checkpoint()
            try:
                look.run(data)
            except (_ConditionError, DamageError) as error:
                # If somebody appended meanwhile, what was read is a mix of two states.
                if look.read_checkpoint() != data:
                    look = _Look(self, ledger, before)
                    continue
                look.report(error)
            break
        return look.events, look.cursor


class _Look:
    """A check of one ledger."""

    def __init__(self, monitor: Monitor, ledger: Path, before: Cursor | None) -> None:
        self._monitor = monitor
        self._ledger = ledger
        self._log = FileLog(ledger)
        self._before = before
        path = str(ledger.resolve())
        self.cursor = _copy(before) if before else Cursor(ledger=path, origin="")
        self.events: list[Event] = []

    def read_checkpoint(self) -> bytes | None:
        """The checkpoint's bytes; None if there is no readable plain file."""
        try:
            return self._log.read_checkpoint()
        except OSError:
            return None

    def run(self, data: bytes | None) -> None:
        """Check everything.

        Raises:
            DamageError: a part of the ledger is invalid.
        """
        if data is None:
            raise _ConditionError(EventKind.DAMAGED, "there is no readable checkpoint")
        try:
            checkpoint = parse_checkpoint(data, "checkpoint")
        except NoteError as error:
            raise _ConditionError(EventKind.DAMAGED, str(error)) from error
        self._check_same_log(checkpoint)
        stamps = self._log.stamps()
        with self._monitor.memory.locked():
            seen = self._monitor.memory.find(checkpoint.origin)
            digest = sha256_hex(data)
            if not (self._is_known(checkpoint, seen) and self._is_as_before(digest, stamps)):
                if seen is None:
                    self.cursor = self._begin(checkpoint)
                found = self._accept(checkpoint, _Log(self._log, stamps), seen)
                self._take(found, checkpoint.tree.size)
                self.cursor.checkpoint, self.cursor.segments = digest, found.segments
        self.cursor.standing = []

    def report(self, error: Exception) -> None:
        """Report a condition once, until it ends."""
        kind = error.kind if isinstance(error, _ConditionError) else EventKind.DAMAGED
        pair = error.contradicting if isinstance(error, _ConditionError) else ()
        self.events = [each for each in self.events if each.kind is EventKind.REPLACED]
        was_standing = self._before.standing if self._before else []
        cursor = _copy(self._before) if self._before else self.cursor
        if str(kind) not in was_standing:
            with self._monitor.memory.locked():
                kept = self._monitor.memory.keep_evidence(*pair)
            self._add_event(kind, str(error), evidence=tuple(map(str, kept)))
        self.cursor = msgspec.structs.replace(cursor, standing=[str(kind)])

    def _add_event(
        self, kind: EventKind, message: str, seq: int | None = None, evidence: tuple[str, ...] = ()
    ) -> None:
        self.events.append(
            Event(
                kind=kind,
                ledger=str(self._ledger),
                origin=self.cursor.origin or None,
                message=message,
                seq=seq,
                evidence=evidence,
            )
        )

    def _begin(self, checkpoint: Checkpoint) -> Cursor:
        return Cursor(ledger=self.cursor.ledger, origin=checkpoint.origin)

    def _check_same_log(self, checkpoint: Checkpoint) -> None:
        before = self.cursor.origin
        if before not in ("", checkpoint.origin):
            self.cursor = self._begin(checkpoint)
            self._before = None
            self._add_event(EventKind.REPLACED, f"the directory had the log {before!r} before")
        self.cursor.origin = checkpoint.origin

    def _is_known(self, checkpoint: Checkpoint, seen: Seen | None) -> bool:
        """Whether the checkpoint was accepted before, under one of the requested keys."""
        if seen is None or seen.checkpoint.tree != checkpoint.tree:
            return False
        keys = self._monitor.keys
        return not keys or (seen.is_key_given and bool({*keys} & {*seen.keys}))

    def _is_as_before(self, digest: str, stamps: dict[int, Stamp]) -> bool:
        known = {segment.number: segment.stamp for segment in self.cursor.segments}
        return self.cursor.checkpoint == digest and bool(known) and known == stamps

    def _accept(self, checkpoint: Checkpoint, log: "_Log", seen: Seen | None) -> NewLines:
        """The new lines, if the right key signed (3) and the log extends what was seen (4)."""
        found = log.read(self.cursor, checkpoint, seen)
        is_grown = seen is None or _is_grown(found, checkpoint, seen)
        if not is_grown:
            # A different history may name different keys.
            found = log.read(self._begin(checkpoint), checkpoint, None)
        chain = _follow(self.cursor if is_grown else self._begin(checkpoint), found)
        key = _check_signed(checkpoint, chain)
        named = [each for _, each in chain.keys]
        given = [each for each in self._monitor.keys if each in named]
        if self._monitor.keys and not given:
            raise _ConditionError(EventKind.WRONG_KEY, "none of the given keys signs this log")
        if seen is not None and not is_grown:
            is_stranger = bool(given) and not seen.is_key_given and given[0] not in seen.keys
            if not is_stranger:
                _refuse(checkpoint, seen, named)
            # What was seen first was somebody else's log with the same origin.
            self.cursor, seen = self._begin(checkpoint), None
        is_given = bool(given) or (seen is not None and seen.is_key_given)
        kept = Seen(checkpoint=checkpoint, keys=tuple(named), is_key_given=is_given)
        self._monitor.memory.keep(kept)
        if not self.cursor.size:
            whose = "" if is_given else ", self-signed: pass --key to check who signed it"
            message = f"{checkpoint.tree.size:,} entries, signed by {key}{whose}"
            self._add_event(EventKind.FIRST_SEEN, message)
        return found

    def _take(self, found: NewLines, size: int) -> None:
        """Report the events of new entries (5)."""
        for seq, entry in found.entries:
            for event in take_entry(self.cursor, seq, entry):
                self._add_event(event.kind, event.message, event.seq)
        self.cursor.size = size
        for seq, message in self._find_damage(found, size):
            if f"{seq} {message}" not in self.cursor.reported:
                self.cursor.reported.append(f"{seq} {message}")
                self._add_event(EventKind.DAMAGED, message, seq)

    def _find_damage(self, found: NewLines, size: int) -> Iterator[tuple[int, str]]:
        yield from found.malformed
        for seq in unexplained_withholdings(found, self.cursor.withholdings):
            yield seq, f"entry {seq} was removed, and no entry says so"
        stated = [(seq, each) for seq, each in found.entries if isinstance(each, AttestEntry)]
        if stated:
            try:
                yield from false_attestations(survey_log(self._log, size), stated)
            except DamageError as error:
                yield stated[0][0], f"an attestation cannot be recomputed: {error}"


@dataclass(frozen=True, slots=True)
class _Log:
    """The present files of a log."""

    log: LogStore
    stamps: dict[int, Stamp]

    def read(self, cursor: Cursor, checkpoint: Checkpoint, seen: Seen | None) -> NewLines:
        """Read the lines after a cursor; their tree must be the signed one (2)."""
        size = checkpoint.tree.size
        marks = [seen.checkpoint.tree.size] if seen else []
        # A mismatch may be due to a stale cursor: read everything once before reporting damage.
        for is_whole in (False, True):
            found = read_new(self.log, self.stamps, cursor, size, marks=marks, is_whole=is_whole)
            if found.frontier.root() == checkpoint.tree.root:
                return found
        raise _ConditionError(
            EventKind.DAMAGED, f"the {size:,} entries of the log are not the signed ones"
        )


def _is_grown(found: NewLines, checkpoint: Checkpoint, seen: Seen) -> bool:
    old = seen.checkpoint.tree
    if old.size == 0:
        return True
    return old.size <= checkpoint.tree.size and found.roots.get(old.size) == old.root


def _follow(cursor: Cursor, found: NewLines) -> Keychain:
    """The keys of the log, each named by the one before it."""
    named = [(entry.seq, entry) for entry in cursor.keys]
    named += [(seq, entry) for seq, entry in found.entries if isinstance(entry, KeyEntry)]
    findings = Findings()
    chain = read_keychain(named, None, findings, found.roots.get)
    for damage in findings.damages:
        raise _ConditionError(EventKind.WRONG_KEY, damage.message)
    return chain


def _check_signed(checkpoint: Checkpoint, chain: Keychain) -> VerifierKey:
    key = chain.key_at(checkpoint.tree.size)
    if key is None:
        raise _ConditionError(EventKind.WRONG_KEY, "the first entry names no key")
    try:
        check_signature(checkpoint, key, "checkpoint")
    except SignatureError as error:
        raise _ConditionError(EventKind.WRONG_KEY, str(error)) from error
    return key


def _refuse(checkpoint: Checkpoint, seen: Seen, keys: Sequence[VerifierKey]) -> None:
    """Raise how a log contradicts what was seen of it."""
    old, new = seen.checkpoint.tree.size, checkpoint.tree.size
    if not {*seen.keys} & {*keys}:
        message = f"signed by {keys[-1]}; the log seen before is signed by {seen.keys[-1]}"
        raise _ConditionError(EventKind.WRONG_KEY, message)
    if new < old:
        message = f"the log went back from {old:,} to {new:,} entries"
        raise _ConditionError(EventKind.ROLLED_BACK, message, seen.checkpoint, checkpoint)
    message = f"the first {old:,} entries are not those that were seen before"
    raise _ConditionError(EventKind.FORKED, message, seen.checkpoint, checkpoint)


def _copy(cursor: Cursor) -> Cursor:
    return msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
