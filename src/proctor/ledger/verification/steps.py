"""The steps of a verification, called in order by `verify`."""

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
from proctor.ledger.verification.instep import IndexReader, repair_index
from proctor.ledger.verification.judge import Statement
from proctor.ledger.verification.keychain import Keychain, is_signed, read_keychain
from proctor.ledger.verification.scan import NO_SEQ, scan_segment

type Progress = Callable[[str, int, int], None]
"""Called with what is read (`entries` in bytes, `artifacts` by number), the amount done, the
total."""

_FIRST_LINE = 1 << 16


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Report no progress."""


@dataclass(slots=True, kw_only=True)
class Check:
    """One verification: its input and what was found so far."""

    log: LogStore
    artifacts: ArtifactStore
    given: VerifierKey | None = None
    """The key to trust; None: the one that the first entry names."""
    is_fast: bool = False
    """Whether to skip decoding trials and reading artifacts."""
    progress: Progress = no_progress
    findings: Findings = field(default_factory=Findings)
    total: int = 0
    """Bytes of the segments."""
    where: str = ""
    """The name of the ledger in messages; empty: that of its log."""
    index: Path | None = None
    """The file of the index; None if there can be none."""
    index_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The lines that count."""

    found: FoundLog
    size: int
    """The number of signed entries."""
    comparison: Comparison

    @property
    def is_same(self) -> bool:
        """Whether nothing differs from what was signed."""
        return not self.comparison.differences

    def seq_of(self, line: int) -> int | None:
        """The entry in a line; None if it is not signed."""
        seq = self.comparison.seq_of(line)
        return seq if seq is not None and seq < self.size else None

    def entries[Entry](self, lines: Iterable[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
        """Entries of lines that are what was signed, with their positions."""
        known = ((self.seq_of(line), entry) for line, entry in lines)
        return [(seq, entry) for seq, entry in known if seq is not None]


@dataclass(frozen=True, slots=True)
class Signed:
    """The checkpoints, and whether their signatures are valid."""

    keys: Keychain
    own: Statement | None
    older: tuple[Statement, ...]
    older_findings: Findings
    """Problems with the signatures of older checkpoints."""

    @property
    def is_own_signed(self) -> bool:
        """Whether the ledger's checkpoint is validly signed."""
        return self.own is not None and self.own.is_signed


def parse_own(data: bytes | None, findings: Findings) -> Checkpoint | None:
    """Parse the ledger's checkpoint; damage if that fails."""
    if data is None:
        message = "there is no readable checkpoint"
        findings.add(DamageKind.UNREADABLE_CHECKPOINT, "checkpoint", message)
        return None
    try:
        return parse_checkpoint(data, "checkpoint")
    except NoteError as error:
        findings.add(DamageKind.UNREADABLE_CHECKPOINT, "checkpoint", str(error))
        return None


@contextlib.contextmanager
def open_index(check: Check, own: Checkpoint | None) -> Iterator[IndexReader | None]:
    """Open the index, if there is a valid one."""
    try:
        origin = own.origin if own else None
        index_reader = IndexReader.open(check.index, origin) if check.index else None
    except FileNotFoundError:
        yield None
        return
    if index_reader is None:
        check.index_problem = "it is of another version or of another log"
        yield None
        return
    with contextlib.closing(index_reader):
        yield index_reader


def check_format(log: LogStore, own: Checkpoint | None, index_reader: IndexReader | None) -> None:
    """Refuse a ledger of another format, unless only its first line was tampered with.

    Raises:
        LedgerError: it has another format.
    """
    try:
        line = log.read(Place(), _FIRST_LINE).partition(b"\n")[0]
        named = msgspec.json.decode(line, type=dict[str, object]).get("format")
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(named, str) or named == FORMAT:
        return
    # The index shows that the first entry was another one: that is damage, not another format.
    if own is not None and index_reader is not None:
        first = index_reader.first_leaf(own.tree)
        if first is not None and first != leaf_hash(line):
            return
    raise LedgerError(
        f"{log.where}: a ledger of format {named[:80]!r}; this proctor reads {FORMAT!r}: "
        "a newer one may read it"
    )


def read_log(check: Check, found: FoundLog, index_reader: IndexReader | None) -> None:
    """Read every line of every segment."""
    index = index_reader.index.connection if index_reader and not check.is_fast else None
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
                check.index_problem = "its entries differ from those of the log"
            read = min(size, read + sum(scanned.lengths) + len(scanned.lengths))
            check.progress("entries", done + read, check.total)
        done += size
    check.progress("entries", check.total, check.total)


def number_lines(check: Check, found: FoundLog) -> Sequence[int]:
    """The sequence numbers that all lines state."""
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
    """Check that the right keys signed the checkpoints."""
    # Entries are taken at the positions they state: which of them are signed is not known yet, and
    # `check_keys` checks them later.
    entries = [(entry.seq, entry) for _, entry in found.keys]
    keys, findings = read_keychain(entries, check.given, Findings()), check.findings
    if not keys.is_given_known:
        # The log does not name the given key: it is another ledger, or was tampered with.
        findings = Findings()
        if own is None or not is_signed(own, keys, "checkpoint", findings):
            message = f"the given key, {check.given}, is not a key of this ledger"
            check.findings.add(DamageKind.WRONG_KEY, "checkpoint", message)
            keys = read_keychain(entries, None, Findings())
    statement = None
    if own is not None:
        statement = Statement("checkpoint", own, is_signed(own, keys, "checkpoint", findings))
    older_findings = Findings()
    older = [
        Statement(where, checkpoint, is_signed(checkpoint, keys, where, older_findings))
        for where, checkpoint in given
    ]
    return Signed(keys, statement, _of_same_log(own, older, check.findings), older_findings)


def report_older_signatures(check: Check, scope: Scope, signed: Signed) -> None:
    """Report problems with the signatures of older checkpoints, as far as they are certain."""
    for damage in signed.older_findings.damages:
        # A log that was tampered with does not show which keys it had.
        if scope.is_same or damage.kind is DamageKind.BAD_SIGNATURE:
            check.findings.add(damage.kind, damage.where, damage.message)
        else:
            check.findings.note(f"{damage.where}: its signature could not be checked")
    check.findings.notes.extend(signed.older_findings.notes)


def _of_same_log(
    own: Checkpoint | None, older: Sequence[Statement], findings: Findings
) -> tuple[Statement, ...]:
    """The older checkpoints of this log; one of another log is damage."""
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
    """Check that the keys that entries name follow from one another and belong to this log."""
    findings = check.findings
    entries = scope.entries(scope.found.keys)
    root_of = scope.found.leaves.root if scope.is_same else None
    keys = read_keychain(entries, signed.keys.given, findings, root_of)
    if scope.is_same and (not entries or entries[0][0] != 0):
        message = "the first entry names no key"
        findings.add(DamageKind.WRONG_KEY, "entries/000000.jsonl", message, 0)
    if scope.is_same and check.given and signed.keys.given and not keys.is_given_known:
        message = f"no signed entry names the given key, {check.given}"
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
    """Check that valid signatures are by keys that signed entries name.

    Anybody can append a key after the checkpoint; no signature may depend on it.
    """
    for statement in (signed.own, *signed.older):
        if statement is None or not statement.is_signed:
            continue
        size = statement.tree.size
        if keys.key_at(size) != signed.keys.key_at(size):
            is_signed(statement.checkpoint, keys, statement.where, findings)


def check_entries(scope: Scope, findings: Findings) -> None:
    """Check that every signed line is an entry and states its own position."""
    found = scope.found
    for line, wrong in found.malformed:
        if (seq := scope.seq_of(line)) is not None:
            message = f"entry {seq} is signed as it is, but is not a valid entry: {wrong}"
            findings.add(DamageKind.MALFORMED, found.where(line), message, seq)
    for line, fault in found.faults:
        if (seq := scope.seq_of(line)) is not None:
            kind = DamageKind.BAD_ID if fault.is_id else DamageKind.MALFORMED
            findings.add(kind, found.where(line), f"entry {seq}: {fault.message}", seq)
    said = [(line, seq) for line, seq in enumerate(found.seqs) if seq != line and seq != NO_SEQ]
    for line, number in said:
        if (seq := scope.seq_of(line)) in (None, number):
            continue
        # The tree does not cover the placeholder of a withheld line.
        kind = DamageKind.EDITED if line in found.withheld else DamageKind.MALFORMED
        message = f"entry {seq} says that it is entry {number}"
        findings.add(kind, found.where(line), message, seq)


def check_submissions(scope: Scope, findings: Findings) -> None:
    """Check that machines signed what they submitted, and were enrolled."""
    found = scope.found
    for line, wrong in found.unsigned if scope.is_same else ():
        if (seq := scope.seq_of(line)) is not None:
            kind = DamageKind.BAD_SUBMISSION
            findings.add(kind, found.where(line), f"entry {seq} {wrong}", seq)


def check_withheld(scope: Scope, findings: Findings) -> int:
    """Count the withheld lines; one that no entry withholds is damage."""
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
        # A log that was tampered with may have lost the entry that withholds it.
        if scope.is_same and (seq, found.leaves[line].hex()) not in said:
            message = f"entry {seq} was removed, and no entry says so"
            findings.add(DamageKind.WITHHELD, found.where(line), message, seq)
    if scope.is_same:
        _note_present(scope, findings)
    return count


def _note_present(scope: Scope, findings: Findings) -> None:
    """Note lines that are present although an entry withholds them."""
    for _, entry in scope.entries(scope.found.withholdings):
        # If nothing differs, the position of an entry is its line number.
        if entry.entry is not None and entry.entry not in scope.found.withheld:
            findings.note(
                f"entry {entry.entry} is present although entry {entry.seq} withholds it: "
                "it was restored, or the command was interrupted: repeat it to finish"
            )


def note_unsigned_lines(scope: Scope, findings: Findings) -> None:
    """Note unsigned lines after the checkpoint, which a crash leaves."""
    found, size = scope.found, scope.size
    lines = len(found) - size if scope.is_same else scope.comparison.behind
    torn = sum(torn.length for line, torn in found.torn.items() if line >= size)
    if lines > 0 or (torn and scope.is_same):
        length = sum(found.lengths[len(found) - lines :]) + lines + torn if lines > 0 else torn
        findings.note(
            f"{length:,} bytes ({max(lines, 0)} complete lines) after the checkpoint: they are "
            "not signed, and the next write sets them aside"
        )


def check_gaps(check: Check, scope: Scope) -> None:
    """Check that no segment is missing among those with signed lines."""
    numbers = [number for number, first in scope.found.segments if first < scope.size]
    for lacking in sorted(set(range(max(numbers, default=-1))) - set(check.log.stamps())):
        message = "the segment is missing, and the log continues in the next one"
        where = segment_name(lacking)
        check.findings.add(DamageKind.REMOVED, where, message)


def check_index(
    check: Check, scope: Scope, own: Checkpoint, index_reader: IndexReader | None
) -> None:
    """Compare the index with the log, and rebuild it if it differs."""
    if index_reader is not None:
        if index_reader.is_ahead(scope.found, scope.size):
            message = (
                f"the checkpoint signs {scope.size} entries, but the log still has those that were "
                "signed before: an older checkpoint was restored; if it is the right one, "
                f"delete {check.index}"
            )
            check.findings.add(DamageKind.ROLLED_BACK, "checkpoint", message, scope.size)
            return
        problem = index_reader.find_problem(scope.found, scope.size)
        check.index_problem = problem or check.index_problem
        index_reader.close()
    if check.index is None or check.index_problem is None or check.findings.damages:
        return
    wrong = repair_index(check.index, check.log, own)
    outcome = f"it could not be rebuilt: {wrong}" if wrong else "it was rebuilt"
    check.findings.note(f"{check.index} did not match the log ({check.index_problem}); {outcome}")
