"""What a verification checks besides the tree: keys, entries, trials and evidence, in this order.

Only lines that are as they were signed are checked: those before the first difference.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.digest import is_digest
from proctor.errors import AlteredArtifactError, DamageError, MissingArtifactError
from proctor.ledger.admission import render_duplicate, render_misnamed
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import Subject, TrialEntry, decode_line
from proctor.ledger.log import LogStore, read_line, segment_name
from proctor.ledger.note import Checkpoint, VerifierKey
from proctor.ledger.row import read_row
from proctor.ledger.verification.damage import DamageKind, Findings
from proctor.ledger.verification.judge import Difference, Statement
from proctor.ledger.verification.keychain import Keychain, is_signed, read_keychain
from proctor.ledger.verification.scan import NO_SEQ, ScannedLog

type Progress = Callable[[str, int, int], None]
"""Called with what is read (`entries` in bytes, `artifacts` by number), the amount done, the
total."""

# Artifacts read between two reports of progress.
_REPORT_EVERY = 64


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


@dataclass(frozen=True, slots=True)
class Scope:
    """The lines that count."""

    found: ScannedLog
    size: int
    """The number of signed entries."""
    difference: Difference | None

    @property
    def is_same(self) -> bool:
        """Whether nothing differs from what was signed."""
        return self.difference is None

    @property
    def end(self) -> int:
        """The number of leading lines that are what was signed."""
        return self.size if self.difference is None else min(self.size, self.difference.first)

    def entries[Entry](self, lines: Iterable[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
        """Those of some lines that are what was signed."""
        return [(line, entry) for line, entry in lines if line < self.end]


@dataclass(frozen=True, slots=True)
class Signed:
    """The checkpoints, and whether their signatures are valid."""

    keys: Keychain
    own: Statement | None
    older: tuple[Statement, ...]
    older_findings: Findings
    """Problems with the signatures of older checkpoints."""


# Signatures and keys


def check_signatures(
    check: Check, found: ScannedLog, own: Checkpoint | None, given: Sequence[tuple[str, Checkpoint]]
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
    older_findings, older = Findings(), []
    for where, checkpoint in given:
        is_valid = is_signed(checkpoint, keys, where, older_findings)
        if own is not None and checkpoint.origin != own.origin:
            message = (
                f"{where} is of the log {checkpoint.origin!r}; "
                f"the ledger's checkpoint is of {own.origin!r}"
            )
            check.findings.add(DamageKind.WRONG_ORIGIN, where, message)
        else:
            older.append(Statement(where, checkpoint, is_valid))
    return Signed(keys, statement, tuple(older), older_findings)


def check_keys(check: Check, scope: Scope, signed: Signed) -> None:
    """Check that the keys that entries name follow from one another and belong to this log."""
    findings = check.findings
    for damage in signed.older_findings.damages:
        # A log that was tampered with does not show which keys it had.
        if scope.is_same or damage.kind is DamageKind.BAD_SIGNATURE:
            findings.add(damage.kind, damage.where, damage.message)
        else:
            findings.note(f"{damage.where}: its signature could not be checked")
    findings.notes.extend(signed.older_findings.notes)
    entries = scope.entries(scope.found.keys)
    root_of = scope.found.leaves.root if scope.is_same else None
    keys = read_keychain(entries, signed.keys.given, findings, root_of)
    if scope.is_same:
        first = "entries/000000.jsonl"
        if not entries or entries[0][0] != 0:
            findings.add(DamageKind.WRONG_KEY, first, "the first entry names no key", 0)
        if check.given and signed.keys.given and not keys.is_given_known:
            message = f"no signed entry names the given key, {check.given}"
            findings.add(DamageKind.WRONG_KEY, first, message, 0)
        else:
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


# Entries


def check_entries(scope: Scope, findings: Findings) -> None:
    """Check that every signed line is an entry, states its own position, and is its machine's."""
    found = scope.found
    for seq, wrong in scope.entries(found.malformed):
        message = f"entry {seq} is signed as it is, but is not a valid entry: {wrong}"
        findings.add(DamageKind.MALFORMED, found.where(seq), message, seq)
    for seq, fault in scope.entries(found.faults):
        kind = DamageKind.BAD_ID if fault.is_id else DamageKind.MALFORMED
        findings.add(kind, found.where(seq), f"entry {seq}: {fault.message}", seq)
    for seq, number in scope.entries(enumerate(found.seqs)):
        if number not in (seq, NO_SEQ):
            # The tree does not cover the placeholder of a withheld line.
            kind = DamageKind.EDITED if seq in found.withheld else DamageKind.MALFORMED
            message = f"entry {seq} says that it is entry {number}"
            findings.add(kind, found.where(seq), message, seq)
    for seq, wrong in scope.entries(found.unsigned):
        findings.add(DamageKind.BAD_SUBMISSION, found.where(seq), f"entry {seq} {wrong}", seq)


def check_withheld(scope: Scope, findings: Findings) -> tuple[int, list[int]]:
    """Count the withheld lines; one that no entry withholds is damage.

    Returns their number, and the entries withheld without naming a trial. Earlier versions could
    withhold those; each may have been a trial of any experiment.
    """
    found = scope.found
    withholdings = scope.entries(found.withholdings)
    said = {(entry.entry, entry.leaf) for _, entry in withholdings}
    withheld = scope.entries(found.withheld.items())
    for seq, wrong in withheld:
        if wrong:
            message = f"what is at the position of entry {seq}, which was withheld, is {wrong}"
            findings.add(DamageKind.EDITED, found.where(seq), message, seq)
        # A log that was tampered with may have lost the entry that withholds it.
        if scope.is_same and (seq, found.leaves[seq].hex()) not in said:
            message = f"entry {seq} was removed, and no entry says so"
            findings.add(DamageKind.WITHHELD, found.where(seq), message, seq)
    named = {entry.entry for _, entry in withholdings if entry.subject is not None}
    unnamed = [seq for seq, _ in withheld if seq not in named]
    for seq, entry in withholdings:
        if entry.entry is None and entry.subject is None:
            unnamed.append(seq)
        elif scope.is_same and entry.entry is not None and entry.entry not in found.withheld:
            findings.note(
                f"entry {entry.entry} is present although entry {seq} withholds it: an earlier "
                "version restored it, or the command was interrupted: repeat it to finish"
            )
    return len(withheld), unnamed


# Identities: no two entries are the same trial. A withheld trial keeps its name, which its
# withholding states; if its line is present after all, it must be that trial.


def check_identities(check: Check, scope: Scope) -> None:
    """Find trials that are in two entries, and entries that are named as two trials."""
    # Without decoded trials there is nothing to compare; a log that differs is reported already.
    if check.is_fast or not scope.is_same:
        return
    found, findings = scope.found, check.findings
    withheld: dict[int, Subject] = {}
    for seq, entry in scope.entries(found.withholdings):
        if entry.subject is None or entry.entry is None:
            continue
        subject: Subject | None
        if entry.entry in found.withheld:
            subject = withheld.setdefault(entry.entry, entry.subject)
        else:
            subject = _read_subject(check, scope, entry.entry)
        if subject != entry.subject:
            message = render_misnamed(seq, entry.entry, entry.subject, subject)
            findings.add(DamageKind.DUPLICATE_TRIAL, found.where(seq), message, seq)
    found.evidence.identify(
        (line, subject.experiment_id, subject.trial_id) for line, subject in withheld.items()
    )
    for first, last, experiment_id, trial_id in found.evidence.duplicates(scope.size):
        message = render_duplicate(first, last, experiment_id, trial_id)
        findings.add(DamageKind.DUPLICATE_TRIAL, found.where(last), message, last)


def _read_subject(check: Check, scope: Scope, line: int) -> Subject | None:
    """The trial in a present line, or None."""
    place, length = scope.found.place_of(line)
    try:
        entry = decode_line(read_line(check.log, place, length), f"entry {line}")
        return read_row(entry).subject if isinstance(entry, TrialEntry) else None
    except DamageError:
        return None


# Evidence: every artifact must be present with the sealed bytes. It may be missing if an entry
# withholds it from the trial that names it. Another trial may name the same bytes; for that one
# they must still be present.


@dataclass(slots=True)
class ArtifactCounts:
    """The number of artifacts read, and of those withheld."""

    read: int = 0
    withheld: int = 0


def check_artifacts(check: Check, scope: Scope) -> ArtifactCounts:
    """Read every artifact that an entry names."""
    found, artifacts, end = scope.found, check.artifacts, scope.end
    # In a log that was tampered with, the entry that withholds some may be after the difference.
    lines = found.withholdings if not scope.is_same else scope.entries(found.withholdings)
    withholdings = [entry for _, entry in lines]
    said = {sha256 for entry in withholdings for sha256 in entry.artifacts if is_digest(sha256)}
    taken_out = {sha256 for sha256 in said if not artifacts.holds(sha256)}
    counts = ArtifactCounts(withheld=len(taken_out))
    if check.is_fast:
        return counts
    missing: set[str] = set()
    total = found.evidence.count(end)
    for number, (line, sha256, size) in enumerate(found.evidence.artifacts(end), start=1):
        counts.read += 1
        try:
            artifacts.check(sha256, size)
        except MissingArtifactError as error:
            if sha256 in taken_out:
                counts.read -= 1
                missing.add(sha256)
            else:
                _add_damage(check, DamageKind.MISSING_ARTIFACT, line, sha256, str(error))
        except (AlteredArtifactError, DamageError) as error:
            _add_damage(check, DamageKind.ALTERED_ARTIFACT, line, sha256, str(error))
        if number % _REPORT_EVERY == 0 or number == total:
            check.progress("artifacts", number, total)
    withheld_from = {
        (entry.subject.experiment_id, entry.subject.trial_id, sha256)
        for entry in withholdings
        if entry.subject is not None
        for sha256 in entry.artifacts
    }
    for line, sha256 in found.evidence.naming(missing):
        subject = _read_subject(check, scope, line) if line < end else None
        name = (subject.experiment_id, subject.trial_id, sha256) if subject else None
        if line < end and name not in withheld_from:
            message = f"artifact {sha256} is missing"
            _add_damage(check, DamageKind.MISSING_ARTIFACT, line, sha256, message)
    return counts


def _add_damage(check: Check, kind: DamageKind, seq: int, sha256: str, message: str) -> None:
    where = f"artifacts/sha256/{sha256[:2]}/{sha256}.zst"
    check.findings.add(kind, where, f"entry {seq}: {message}", seq)


# The rest of the log


def note_unsigned_lines(scope: Scope, findings: Findings) -> None:
    """Note unsigned lines after the checkpoint, which a crash leaves."""
    found, size = scope.found, scope.size
    lines = max(len(found) - size, 0)
    torn = sum(length for line, length in found.torn.items() if line >= size)
    if scope.is_same and (lines or torn):
        length = sum(found.lengths[size:]) + lines + torn
        findings.note(
            f"{length:,} bytes ({lines} complete lines) after the checkpoint: they are "
            "not signed, and the next write sets them aside"
        )


def check_gaps(check: Check, scope: Scope) -> None:
    """Check that no segment is missing among those with signed lines."""
    numbers = [number for number, first in scope.found.segments if first < scope.size]
    for lacking in sorted(set(range(max(numbers, default=-1))) - set(check.log.stamps())):
        message = "the segment is missing, and the log continues in the next one"
        where = segment_name(lacking)
        check.findings.add(DamageKind.REMOVED, where, message)
