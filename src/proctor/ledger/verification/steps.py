"""The steps of a verification: each looks at one thing, and says what it found.

`verify` calls them in order. Nothing here is called by anybody else.
"""

import contextlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.errors import LedgerError, NoteError
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import FORMAT
from proctor.ledger.log import LogStore, Place, segment_name
from proctor.ledger.note import Checkpoint, VerifierKey, parse_checkpoint
from proctor.ledger.tree import leaf_hash
from proctor.ledger.verification.compare import Comparison
from proctor.ledger.verification.damage import DamageKind, Findings
from proctor.ledger.verification.found import FoundLog
from proctor.ledger.verification.instep import Remembered, repair_index
from proctor.ledger.verification.judge import Statement
from proctor.ledger.verification.keychain import Keychain, is_signed, read_keychain
from proctor.ledger.verification.scan import NO_SEQ, scan_segment

type Progress = Callable[[str, int, int], None]
"""Told what is looked at (`entries` in bytes, `artifacts` by number), how far, and of how much."""

_FIRST_LINE = 1 << 16


def say_nothing(_what: str, _done: int, _total: int) -> None:
    """For whoever does not want to know how far it is."""


@dataclass(slots=True, kw_only=True)
class Check:
    """One verification: what it is of, and what was found so far."""

    log: LogStore
    artifacts: ArtifactStore
    given: VerifierKey | None = None
    """The key to trust; None for the one that the first entry names."""
    is_fast: bool = False
    """Whether trials are not decoded and artifacts not read."""
    progress: Progress = say_nothing
    findings: Findings = field(default_factory=Findings)
    total: int = 0
    """Bytes of the segments."""
    index: Path | None = None
    """Where the index is, or would be; None where there can be none."""
    index_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Which lines count."""

    found: FoundLog
    size: int
    """As many as are signed."""
    comparison: Comparison

    @property
    def is_same(self) -> bool:
        """Whether nothing in it differs from what was signed."""
        return not self.comparison.differences

    def seq_of(self, line: int) -> int | None:
        """The entry that a line is; None where it is not one that was signed."""
        seq = self.comparison.seq_of(line)
        return seq if seq is not None and seq < self.size else None

    def entries[Entry](self, lines: Iterable[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
        """What is known of lines, for those that are what was signed, by their entries."""
        known = ((self.seq_of(line), entry) for line, entry in lines)
        return [(seq, entry) for seq, entry in known if seq is not None]


@dataclass(frozen=True, slots=True)
class Signed:
    """What the checkpoints are worth."""

    keys: Keychain
    own: Statement | None
    older: tuple[Statement, ...]
    doubts: Findings
    """What seems wrong with the signatures of the older ones."""

    @property
    def is_own_signed(self) -> bool:
        """Whether the ledger's own checkpoint counts."""
        return self.own is not None and self.own.is_signed


def parse_own(data: bytes | None, findings: Findings) -> Checkpoint | None:
    """The ledger's own checkpoint; that it is none is damage."""
    if data is None:
        message = "there is no checkpoint that can be read"
        findings.add(DamageKind.UNREADABLE_CHECKPOINT, "checkpoint", message)
        return None
    try:
        return parse_checkpoint(data, "checkpoint")
    except NoteError as error:
        findings.add(DamageKind.UNREADABLE_CHECKPOINT, "checkpoint", str(error))
        return None


@contextlib.contextmanager
def open_index(check: Check, own: Checkpoint | None) -> Iterator[Remembered | None]:
    """The index, if there is one that can be used."""
    try:
        origin = own.origin if own else None
        remembered = Remembered.open(check.index, origin) if check.index else None
    except FileNotFoundError:
        yield None
        return
    if remembered is None:
        check.index_problem = "it is not one that this version makes of this log"
        yield None
        return
    with contextlib.closing(remembered):
        yield remembered


def check_format(log: LogStore, own: Checkpoint | None, remembered: Remembered | None) -> None:
    """Refuse a ledger of another format, unless somebody only wrote that into this one.

    Raises:
        LedgerError: it is of another format.
    """
    try:
        line = log.read(Place(), _FIRST_LINE).partition(b"\n")[0]
        named = msgspec.json.decode(line, type=dict[str, object]).get("format")
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(named, str) or named == FORMAT:
        return
    if own is not None and remembered is not None:
        first = remembered.first_leaf(own.tree)
        if first is not None and first != leaf_hash(line):
            return
    raise LedgerError(
        f"{log.where}: a ledger of format {named[:80]!r}; this proctor reads {FORMAT!r}: "
        "a newer one may read it"
    )


def read_log(check: Check, found: FoundLog, remembered: Remembered | None) -> None:
    """Look at every line of every segment."""
    index = remembered.index.connection if remembered and not check.is_fast else None
    segments = check.log.stamps()
    check.total = sum(size for _, size, _ in segments.values())
    done = 0
    for segment, (_, size, _) in segments.items():
        read = 0
        for scanned in scan_segment(check.log, segment, is_decoded=not check.is_fast, index=index):
            found.add(scanned)
            if scanned.unreadable is not None:
                message = f"the segment cannot be read: {scanned.unreadable}"
                where = segment_name(segment)
                check.findings.add(DamageKind.UNREADABLE_SEGMENT, where, message)
            if not scanned.is_indexed:
                check.index_problem = "it says other things of entries than the log"
            read = min(size, read + sum(scanned.lengths) + len(scanned.lengths))
            check.progress("entries", done + read, check.total)
        done += size
    check.progress("entries", check.total, check.total)


def number_lines(check: Check, found: FoundLog) -> Sequence[int]:
    """The numbers that all lines give themselves."""
    if not check.is_fast:
        return found.seqs
    seqs = array("q")
    for segment in check.log.stamps():
        for scanned in scan_segment(check.log, segment, is_decoded=True):
            seqs.extend(scanned.seqs)
    return seqs


def check_signatures(
    check: Check, found: FoundLog, own: Checkpoint | None, given: Sequence[tuple[str, Checkpoint]]
) -> Signed:
    """Whether the right keys signed the checkpoints."""
    # By the places that entries give themselves: which of them are to be believed is not known
    # yet, and `check_keys` judges them.
    entries = [(entry.seq, entry) for _, entry in found.keys]
    keys, findings = read_keychain(entries, check.given, Findings()), check.findings
    if not keys.is_given_known:
        # The log does not name the key that was given: it is not its own, or was tampered with.
        findings = Findings()
        if own is None or not is_signed(own, keys, "checkpoint", findings):
            message = f"the key that was given, {check.given}, is none that this ledger names"
            check.findings.add(DamageKind.WRONG_KEY, "checkpoint", message)
            keys = read_keychain(entries, None, Findings())
    statement = None
    if own is not None:
        statement = Statement("checkpoint", own, is_signed(own, keys, "checkpoint", findings))
    doubts = Findings()
    older = [
        Statement(where, checkpoint, is_signed(checkpoint, keys, where, doubts))
        for where, checkpoint in given
    ]
    return Signed(keys, statement, _of_same_log(own, older, check.findings), doubts)


def settle_doubts(check: Check, scope: Scope, signed: Signed) -> None:
    """Say what is wrong with the signatures of older checkpoints, as far as it can be told."""
    for damage in signed.doubts.damages:
        # A log that was tampered with does not tell which keys it had.
        if scope.is_same or damage.kind is DamageKind.BAD_SIGNATURE:
            check.findings.add(damage.kind, damage.where, damage.message)
        else:
            check.findings.note(f"{damage.where}: its signature could not be checked")
    check.findings.notes.extend(signed.doubts.notes)


def _of_same_log(
    own: Checkpoint | None, older: Sequence[Statement], findings: Findings
) -> tuple[Statement, ...]:
    """The older checkpoints that are of this log; another's is damage."""
    same = []
    for statement in older:
        if own is not None and statement.checkpoint.origin != own.origin:
            message = (
                f"{statement.where} is of the log {statement.checkpoint.origin!r}; "
                f"the ledger's checkpoint is of {own.origin!r}"
            )
            findings.add(DamageKind.WRONG_ORIGIN, statement.where, message)
        else:
            same.append(statement)
    return tuple(same)


def check_keys(check: Check, scope: Scope, signed: Signed) -> None:
    """Whether the keys that entries name follow from one another, and are of this log."""
    findings = check.findings
    entries = scope.entries(scope.found.keys)
    root_of = scope.found.leaves.root if scope.is_same else None
    keys = read_keychain(entries, signed.keys.given, findings, root_of)
    if scope.is_same and (not entries or entries[0][0] != 0):
        message = "the first entry names no key that could be trusted"
        findings.add(DamageKind.WRONG_KEY, "entries/000000.jsonl", message, 0)
    if scope.is_same and check.given and signed.keys.given and not keys.is_given_known:
        message = f"no entry that is signed names the key that was given, {check.given}"
        findings.add(DamageKind.WRONG_KEY, "entries/000000.jsonl", message, 0)
    elif scope.is_same:
        _check_believed(signed, keys, findings)
    if signed.own is None or not signed.own.is_signed:
        return
    for seq, entry in entries:
        if entry.origin != signed.own.checkpoint.origin:
            message = (
                f"the checkpoint is of the log {signed.own.checkpoint.origin!r}; "
                f"entry {seq} says {entry.origin!r}"
            )
            findings.add(DamageKind.WRONG_ORIGIN, "checkpoint", message, seq)


def _check_believed(signed: Signed, keys: Keychain, findings: Findings) -> None:
    """See that what counts as signed is signed by keys that signed entries name.

    Anybody can write a key behind the checkpoint; no signature may rest on that.
    """
    for statement in (signed.own, *signed.older):
        if statement is None or not statement.is_signed:
            continue
        size = statement.tree.size
        if keys.key_at(size) != signed.keys.key_at(size):
            is_signed(statement.checkpoint, keys, statement.where, findings)


def check_entries(scope: Scope, findings: Findings) -> None:
    """Whether every line that is signed is an entry, and says where it stands."""
    found = scope.found
    for line, wrong in found.malformed:
        if (seq := scope.seq_of(line)) is not None:
            message = f"entry {seq} is signed as it is, and is no entry: {wrong}"
            findings.add(DamageKind.MALFORMED, found.where(line), message, seq)
    for line, fault in found.faults:
        if (seq := scope.seq_of(line)) is not None:
            kind = DamageKind.BAD_ID if fault.is_id else DamageKind.MALFORMED
            findings.add(kind, found.where(line), f"entry {seq}: {fault.message}", seq)
    said = [(line, seq) for line, seq in enumerate(found.seqs) if seq != line and seq != NO_SEQ]
    for line, number in said:
        if (seq := scope.seq_of(line)) in (None, number):
            continue
        # The tree does not see what stands in the place of a line that was taken out.
        kind = DamageKind.EDITED if line in found.withheld else DamageKind.MALFORMED
        message = f"entry {seq} says that it is entry {number}"
        findings.add(kind, found.where(line), message, seq)


def check_withheld(scope: Scope, findings: Findings) -> int:
    """How many lines were taken out; that no entry says so of one is damage."""
    found = scope.found
    said = {(entry.entry, entry.leaf) for _, entry in scope.entries(found.withholdings)}
    count = 0
    for line, wrong in found.withheld.items():
        seq = scope.seq_of(line)
        if seq is None:
            continue
        count += 1
        if wrong:
            message = f"what is at the position of entry {seq}, which was withheld, is {wrong}"
            findings.add(DamageKind.EDITED, found.where(line), message, seq)
        # A log that was tampered with may have lost the entry that says so.
        if scope.is_same and (seq, found.leaves[line].hex()) not in said:
            message = f"entry {seq} was removed, and no entry says so"
            findings.add(DamageKind.WITHHELD, found.where(line), message, seq)
    if scope.is_same:
        _note_present(scope, findings)
    return count


def _note_present(scope: Scope, findings: Findings) -> None:
    """Tell of lines that are there although an entry says they were taken out."""
    for _, entry in scope.entries(scope.found.withholdings):
        # Where nothing differs, an entry's place is its line.
        if entry.entry is not None and entry.entry not in scope.found.withheld:
            findings.note(
                f"entry {entry.entry} is there although entry {entry.seq} says it was withheld: "
                "it was brought back, or the same `ledger withhold` again finishes it"
            )


def tell_behind(scope: Scope, findings: Findings) -> None:
    """Say what lies behind the last line that is signed: a crash leaves it, nobody signed it."""
    found, size = scope.found, scope.size
    lines = len(found) - size if scope.is_same else scope.comparison.behind
    torn = sum(torn.length for line, torn in found.torn.items() if line >= size)
    if lines > 0 or (torn and scope.is_same):
        length = sum(found.lengths[len(found) - lines :]) + lines + torn if lines > 0 else torn
        findings.note(
            f"{length:,} bytes ({max(lines, 0)} whole lines) behind the checkpoint: they are "
            "not signed, and the next write sets them aside"
        )


def check_gaps(check: Check, scope: Scope) -> None:
    """Whether a segment is lacking among those that hold what is signed."""
    numbers = [number for number, first in scope.found.segments if first < scope.size]
    for lacking in sorted(set(range(max(numbers, default=-1))) - set(check.log.stamps())):
        message = "the segment is not there, and the log goes on in the next one"
        where = segment_name(lacking)
        check.findings.add(DamageKind.REMOVED, where, message)


def check_index(check: Check, scope: Scope, own: Checkpoint, remembered: Remembered | None) -> None:
    """Whether the index is in step; where it is not it is made anew."""
    if remembered is not None:
        if remembered.is_ahead(scope.found, scope.size):
            message = (
                f"the checkpoint signs {scope.size} entries, the log goes on to those that were "
                "signed before: an older checkpoint was put back; if it is the right one after "
                f"all, delete {check.index}"
            )
            check.findings.add(DamageKind.ROLLED_BACK, "checkpoint", message, scope.size)
            return
        problem = remembered.find_problem(scope.found, scope.size)
        check.index_problem = problem or check.index_problem
        remembered.close()
    if check.index is None or check.index_problem is None or check.findings.damages:
        return
    wrong = repair_index(check.index, check.log, own)
    became = f"it could not be rebuilt: {wrong}" if wrong else "it was rebuilt"
    check.findings.note(
        f"{check.index} was out of step with the log ({check.index_problem}); {became}"
    )
