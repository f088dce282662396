"""Taking bytes out of a ledger and bringing them back. Withheld is not absent: the digests stay.

1. An entry says what is withheld, why and by whom: the leaf hash of the line, the digests of the
   evidence. It is signed and on the disk before anything is taken out.
2. The line is written over by what is left of it, as long as it was, so that nothing else moves.
3. Evidence goes that no other trial names; what another one names stays until that is withheld too.
4. The index is made anew, and the one over texts is removed, so that nothing of it is left there
   either; nor in those that earlier versions kept in the ledger. The indexes of other users are
   made anew when they see the entry.

A crash after (1) leaves the bytes; withholding again, for the same reason, goes on with (2).
Bringing back takes any file or directory, and keeps what has the very hashes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from proctor.errors import LedgerError, MissingArtifactError
from proctor.ledger.derived import SEARCH_INDEX, remove_from_ledger, remove_index
from proctor.ledger.entry import (
    AttestEntry,
    EvidenceFile,
    KeyEntry,
    Subject,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
    record_digest,
)
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import FileLog, read_lines
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import LONGEST_NAME, check_words
from proctor.ledger.row import TrialRow, read_row
from proctor.ledger.tree import leaf_hash


@dataclass(frozen=True, slots=True)
class Why:
    """Why bytes are taken out, and who does it."""

    reason: str
    author: str

    def check(self) -> None:
        """Refuse to take something out without a word.

        Raises:
            LedgerError: the reason or the author is missing.
        """
        check_words(self.reason, "the reason")
        check_words(self.author, "the author", longest=LONGEST_NAME)


@dataclass(slots=True)
class Withholding:
    """What was taken out."""

    seq: int
    """The entry that says so."""
    is_new: bool
    """False where it was said before, and only the rest was left to do."""
    line: int | None = None
    """Place of the entry whose line was taken out; None when only evidence was."""
    removed: list[str] = field(default_factory=list)
    """Digests of the evidence that is gone."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Digests of what stays, and the trials that name it too."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What is to go."""

    subject: Subject | None
    entry: int | None
    leaf: str | None
    artifacts: tuple[str, ...]


def withhold_trial(ledger: OpenLedger, row: TrialRow, why: Why) -> Withholding:
    """Take out a trial's record and its evidence.

    Raises:
        LedgerError: it is withheld already, or the ledger cannot be written.
    """
    return _withhold(ledger, why, lambda: _aim_at_trial(ledger, row))


def withhold_evidence(
    ledger: OpenLedger, row: TrialRow, why: Why, paths: Sequence[str] = ()
) -> Withholding:
    """Take out a trial's evidence, all of it or the files of these paths; its record stays.

    Raises:
        LedgerError: there is no such evidence, or the ledger cannot be written.
    """
    return _withhold(ledger, why, lambda: _aim_at_evidence(ledger, row, paths))


def withhold_entry(ledger: OpenLedger, seq: int, why: Why) -> Withholding:
    """Take out an entry that is no trial: a note, a review, a plan.

    Raises:
        LedgerError: it may not be taken out, or the ledger cannot be written.
    """
    return _withhold(ledger, why, lambda: _aim_at_entry(ledger, seq))


def find_withholdings(ledger: LedgerReader) -> list[WithholdEntry]:
    """Every entry that says something was taken out; call `refresh` before."""
    entries = map(ledger.entry, ledger.index.places("withhold"))
    return [entry for entry in entries if isinstance(entry, WithholdEntry)]


def find_withheld(ledger: LedgerReader, files: Iterable[EvidenceFile]) -> list[EvidenceFile]:
    """Which of these files were taken out; call `refresh` before.

    Raises:
        MissingArtifactError: one is not there, and nobody took it out.
    """
    gone = [file for file in files if not ledger.artifacts.holds(file.sha256)]
    if gone:
        withheld = {sha256 for each in find_withholdings(ledger) for sha256 in each.artifacts}
        for file in gone:
            if file.sha256 not in withheld:
                raise MissingArtifactError(
                    f"evidence {file.path!r}: artifact {file.sha256} is not there"
                )
    return gone


def write_over(ledger: OpenLedger, seq: int, line: bytes) -> None:
    """Put another line where an entry's is; the file has the old one or the new one, whole.

    Raises:
        LedgerError: it is longer or shorter, or there is no such entry.
        OSError: it cannot be written.
    """
    found = ledger.index.entry(seq)
    if found is None or found.length != len(line):
        raise LedgerError(f"{ledger.where}: entry {seq} has no line of {len(line)} bytes")
    ledger.log.overwrite(found.place, line)


def _withhold(ledger: OpenLedger, why: Why, aim: Callable[[], _Target]) -> Withholding:
    why.check()
    with ledger.writing():
        ledger.refresh()
        target = aim()
        seq = _find_said(ledger, target, why)
        done = Withholding(-1 if seq is None else seq, is_new=seq is None)
        if seq is None:
            entry = WithholdEntry(
                at="",
                seq=0,
                subject=target.subject,
                entry=target.entry,
                leaf=target.leaf,
                artifacts=target.artifacts,
                reason=why.reason,
                author=why.author,
            )
            (done.seq,) = ledger.append([entry])  # (1)
            ledger.refresh()
        _carry_out(ledger, target, done)
    return done


def _aim_at_trial(ledger: OpenLedger, row: TrialRow) -> _Target:
    line = ledger.line(row.seq)
    entry = decode_line(line, f"{ledger.where}: entry {row.seq}")
    if isinstance(entry, Withheld):
        return _aim_again(ledger, row.seq)
    files = entry.evidence if isinstance(entry, TrialEntry) else ()
    digests = tuple(sorted({file.sha256 for file in files}))
    _check_room(row.seq, line)
    return _Target(row.subject, row.seq, leaf_hash(line).hex(), digests)


def _aim_at_entry(ledger: OpenLedger, seq: int) -> _Target:
    line = ledger.line(seq)
    entry = decode_line(line, f"{ledger.where}: entry {seq}")
    if isinstance(entry, Withheld):
        return _aim_again(ledger, seq)
    if isinstance(entry, KeyEntry | WithholdEntry | AttestEntry):
        raise LedgerError(
            f"{ledger.where}: entry {seq} is of kind {entry.kind!r}, which others rest on; "
            "it cannot be withheld"
        )
    if isinstance(entry, TrialEntry):
        raise LedgerError(f"{ledger.where}: entry {seq} is a trial; withhold it by its name")
    _check_room(seq, line)
    return _Target(None, seq, leaf_hash(line).hex(), ())


def _aim_again(ledger: OpenLedger, seq: int) -> _Target:
    """What was said of a line that is gone: its evidence may still be there."""
    said = [entry for entry in find_withholdings(ledger) if entry.entry == seq]
    if not said:
        raise LedgerError(
            f"{ledger.where}: entry {seq} is gone, and no entry says why; "
            "`proctor ledger verify` tells more"
        )
    return _Target(said[-1].subject, seq, said[-1].leaf, said[-1].artifacts)


def _aim_at_evidence(ledger: OpenLedger, row: TrialRow, paths: Sequence[str]) -> _Target:
    entry = ledger.entry(row.seq)
    name = row.name
    if not isinstance(entry, TrialEntry):
        raise LedgerError(f"{ledger.where}: {name} is withheld already, with its evidence")
    files: dict[str, EvidenceFile] = {file.path: file for file in entry.evidence}
    for path in paths:
        if path not in files:
            raise LedgerError(
                f"{ledger.where}: {name} has no evidence {path[:200]!r}; "
                "`proctor show` lists what it has"
            )
    if not files:
        raise LedgerError(f"{ledger.where}: {name} has no evidence")
    digests = {files[path].sha256 for path in paths or files}
    return _Target(row.subject, None, None, tuple(sorted(digests)))


def _check_room(seq: int, line: bytes) -> None:
    if len(_left_of(seq, line)) != len(line):
        raise LedgerError(f"entry {seq} is shorter than what would be left of it")


def _left_of(seq: int, line: bytes) -> bytes:
    """What stands in a line's place, as long as it was."""
    return encode_entry(Withheld(withheld=leaf_hash(line).hex(), seq=seq)).ljust(len(line))


def _find_said(ledger: OpenLedger, target: _Target, why: Why) -> int | None:
    """The entry that says this already: a crash came between it and the deed."""
    is_gone = target.entry is not None and isinstance(ledger.entry(target.entry), Withheld)
    for entry in reversed(find_withholdings(ledger)):
        is_same = (entry.entry, entry.leaf) == (target.entry, target.leaf)
        if not is_same or entry.subject != target.subject or entry.artifacts != target.artifacts:
            continue
        if is_gone or (entry.reason, entry.author) == (why.reason, why.author):
            return entry.seq
    return None


def _carry_out(ledger: OpenLedger, target: _Target, done: Withholding) -> None:
    if target.entry is not None:
        done.line = target.entry
        line = ledger.line(target.entry)
        if leaf_hash(line).hex() == target.leaf:
            write_over(ledger, target.entry, _left_of(target.entry, line))  # (2)
    others = _find_others(ledger, target)
    for digest in target.artifacts:
        if digest in others:
            done.kept[digest] = others[digest]
        else:
            ledger.artifacts.remove(digest)  # (3)
            done.removed.append(digest)
    ledger.index.erase()  # (4)
    if ledger.index.path is not None:
        remove_index(ledger.index.path.with_name(SEARCH_INDEX))
    if isinstance(ledger.log, FileLog):
        remove_from_ledger(ledger.log.directory)
    ledger.refresh()


class _Named(msgspec.Struct, frozen=True):
    sha256: str


class _Naming(msgspec.Struct, frozen=True):
    """As much of a line as says which evidence it names."""

    seq: int
    evidence: tuple[_Named, ...] = ()


_NAMING = msgspec.json.Decoder(_Naming)


def _find_others(ledger: OpenLedger, target: _Target) -> dict[str, list[str]]:
    """The evidence that other trials name too, with those trials."""
    wanted = set(target.artifacts)
    if not wanted:
        return {}
    gone = {
        (entry.subject.record, digest)
        for entry in find_withholdings(ledger)
        if entry.subject is not None and entry.entry is None
        for digest in entry.artifacts
    }
    others: dict[str, list[str]] = {}
    for entry in _find_naming(ledger, wanted):
        record, row = record_digest(entry), read_row(entry)
        if target.subject is not None and record == target.subject.record:
            continue
        for digest in {file.sha256 for file in entry.evidence} & wanted:
            if (record, digest) not in gone:
                others.setdefault(digest, []).append(row.name)
    return others


def _find_naming(ledger: OpenLedger, wanted: set[str]) -> Iterator[TrialEntry]:
    size = ledger.checkpoint().tree.size
    for line in islice(read_lines(ledger.log), size):
        if any(named.sha256 in wanted for named in _NAMING.decode(line.data).evidence):
            entry = decode_line(line.data, f"{ledger.where}: an entry")
            if isinstance(entry, TrialEntry):
                yield entry
