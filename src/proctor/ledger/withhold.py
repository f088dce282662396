"""Withholds bytes of a ledger. Withheld is not deleted without trace: the digests stay.

1. An entry states what is withheld, why and by whom: the leaf hash of the line, the digests of the
   evidence. It is signed and durable before anything is removed.
2. The line is overwritten by a placeholder of the same length, so that nothing else moves.
3. Evidence that no other trial names is deleted; the rest stays until those are withheld too.
4. The index is built again, and the search index is deleted, so that they contain nothing of it
   either. Indexes of other users follow when they read the entry.

A crash after (1) leaves the bytes; withholding again for the same reason continues with (2).
Only trials are withheld: a line without a name could be anybody's trial.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from proctor.errors import LedgerError, MissingArtifactError
from proctor.ledger.derived import SEARCH_INDEX, remove_index
from proctor.ledger.entry import (
    EvidenceFile,
    Subject,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
    record_digest,
)
from proctor.ledger.reader import LedgerReader, LedgerWriter
from proctor.ledger.review import LONGEST_NAME, check_words
from proctor.ledger.row import TrialRow, read_row
from proctor.ledger.tree import leaf_hash

# Other trials that are named for evidence that stays.
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Why:
    """Why bytes are withheld, and by whom."""

    reason: str
    author: str

    def check(self) -> None:
        """Refuse a missing reason or author."""
        check_words(self.reason, "the reason")
        check_words(self.author, "the author", longest=LONGEST_NAME)


@dataclass(slots=True)
class Withholding:
    """The result of withholding."""

    seq: int
    """Position of the entry that states it."""
    is_new: bool
    """False if the entry existed, and only the remaining steps were done."""
    line: int | None = None
    """Position of the withheld line; None if only evidence was withheld."""
    removed: list[str] = field(default_factory=list)
    """Digests of the deleted evidence."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Digests of evidence that stays, with trials that also name it: the first few."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What is to be withheld."""

    subject: Subject | None
    entry: int | None
    leaf: str | None
    artifacts: tuple[str, ...]


def withhold_trial(ledger: LedgerWriter, row: TrialRow, why: Why) -> Withholding:
    """Withhold a trial's record and its evidence."""
    return _withhold(ledger, why, lambda: _target_trial(ledger, row))


def withhold_evidence(
    ledger: LedgerWriter, row: TrialRow, why: Why, paths: Sequence[str] = ()
) -> Withholding:
    """Withhold a trial's evidence, all of it or these files; its record stays."""
    return _withhold(ledger, why, lambda: _target_evidence(ledger, row, paths))


def list_withholdings(ledger: LedgerReader) -> list[WithholdEntry]:
    """Every entry that withholds something; call `refresh` first."""
    entries = map(ledger.entry, ledger.index.places("withhold"))
    return [entry for entry in entries if isinstance(entry, WithholdEntry)]


def withheld_digests(ledger: LedgerReader) -> set[str]:
    """Evidence that is withheld, perhaps only for some of the trials that name it."""
    return {sha256 for each in list_withholdings(ledger) for sha256 in each.artifacts}


def list_unnamed_evidence(ledger: LedgerReader, digests: Iterable[str]) -> set[str]:
    """The artifacts that no trial names, except trials for which they are withheld."""
    withheld, gone = withheld_digests(ledger), _list_gone(ledger)

    def is_named(sha256: str) -> bool:
        if sha256 in withheld:
            return bool(list_naming(ledger, sha256, gone))
        return any(True for _ in ledger.index.naming(sha256))

    return {sha256 for sha256 in digests if not is_named(sha256)}


def list_withheld(ledger: LedgerReader, files: Iterable[EvidenceFile]) -> list[EvidenceFile]:
    """The files that are withheld; call `refresh` first.

    Raises:
        MissingArtifactError: a file is missing, and no entry withholds it.
    """
    gone = [file for file in files if not ledger.artifacts.holds(file.sha256)]
    if gone:
        withheld = withheld_digests(ledger)
        for file in gone:
            if file.sha256 not in withheld:
                raise MissingArtifactError(
                    f"evidence {file.path!r}: artifact {file.sha256} is missing"
                )
    return gone


def overwrite_line(ledger: LedgerWriter, seq: int, line: bytes) -> None:
    """Replace the line of an entry atomically.

    Raises:
        LedgerError: the new line has another length, or there is no such entry.
        OSError: it cannot be written.
    """
    found = ledger.index.entry(seq)
    if found is None or found.length != len(line):
        raise LedgerError(f"{ledger.where}: entry {seq} has no line of {len(line)} bytes")
    ledger.log.overwrite(found.place, line)


def _withhold(ledger: LedgerWriter, why: Why, make_target: Callable[[], _Target]) -> Withholding:
    why.check()
    with ledger.writing():
        ledger.refresh()
        target = make_target()
        seq = _find_unfinished(ledger, target, why)
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


def _target_trial(ledger: LedgerWriter, row: TrialRow) -> _Target:
    line = ledger.line(row.seq)
    entry = decode_line(line, f"{ledger.where}: entry {row.seq}")
    if isinstance(entry, Withheld):
        return _target_withheld(ledger, row.seq)
    files = entry.evidence if isinstance(entry, TrialEntry) else ()
    digests = tuple(sorted({file.sha256 for file in files}))
    _check_room(row.seq, line)
    return _Target(row.subject, row.seq, leaf_hash(line).hex(), digests)


def _target_withheld(ledger: LedgerWriter, seq: int) -> _Target:
    """The target of an earlier withholding of a line: its evidence may still be there."""
    earlier = [entry for entry in list_withholdings(ledger) if entry.entry == seq]
    if not earlier:
        raise LedgerError(
            f"{ledger.where}: entry {seq} is withheld, but no entry says why; "
            "run `proctor ledger verify`"
        )
    return _Target(earlier[-1].subject, seq, earlier[-1].leaf, earlier[-1].artifacts)


def _target_evidence(ledger: LedgerWriter, row: TrialRow, paths: Sequence[str]) -> _Target:
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
    if len(_make_placeholder(seq, line)) != len(line):
        raise LedgerError(f"entry {seq} is too short to be replaced by a placeholder")


def _make_placeholder(seq: int, line: bytes) -> bytes:
    """The placeholder of a line, padded to its length."""
    return encode_entry(Withheld(withheld=leaf_hash(line).hex(), seq=seq)).ljust(len(line))


def _find_unfinished(ledger: LedgerWriter, target: _Target, why: Why) -> int | None:
    """An existing entry for the same target: a crash prevented the steps after it."""
    is_withheld = target.entry is not None and isinstance(ledger.entry(target.entry), Withheld)
    for entry in reversed(list_withholdings(ledger)):
        is_same = (entry.entry, entry.leaf) == (target.entry, target.leaf)
        if not is_same or entry.subject != target.subject or entry.artifacts != target.artifacts:
            continue
        if is_withheld or (entry.reason, entry.author) == (why.reason, why.author):
            return entry.seq
    return None


def _carry_out(ledger: LedgerWriter, target: _Target, done: Withholding) -> None:
    if target.entry is not None:
        done.line = target.entry
        line = ledger.line(target.entry)
        if leaf_hash(line).hex() == target.leaf:
            overwrite_line(ledger, target.entry, _make_placeholder(target.entry, line))  # (2)
    others = _find_shared(ledger, target)
    for digest in target.artifacts:
        if digest in others:
            done.kept[digest] = others[digest]
        else:
            ledger.artifacts.remove(digest)  # (3)
            done.removed.append(digest)
    if ledger.index.path is not None:
        remove_index(ledger.index.path.with_name(SEARCH_INDEX))
    ledger.refresh()  # (4)


def _find_shared(ledger: LedgerWriter, target: _Target) -> dict[str, list[str]]:
    """The evidence that other trials also name, with the first few of these trials."""
    gone = _list_gone(ledger)
    if target.subject is not None:
        gone |= {(target.subject.record, digest) for digest in target.artifacts}
    found = {digest: list_naming(ledger, digest, gone) for digest in target.artifacts}
    return {digest: others for digest, others in found.items() if others}


def _list_gone(ledger: LedgerReader) -> set[tuple[str, str]]:
    """Records that stay while their evidence is withheld, each with a digest of the evidence."""
    return {
        (entry.subject.record, digest)
        for entry in list_withholdings(ledger)
        if entry.subject is not None and entry.entry is None
        for digest in entry.artifacts
    }


def list_naming(
    ledger: LedgerReader, digest: str, gone: Collection[tuple[str, str]] = ()
) -> list[str]:
    """The first trials that name an artifact and are not withheld.

    `gone`: pairs of a record and a digest that do not count.
    """
    # A million trials may share an empty file: the rest of them change nothing.
    entries = map(ledger.entry, ledger.index.naming(digest))
    others = (
        read_row(entry).name
        for entry in entries
        if isinstance(entry, TrialEntry)
        and any(file.sha256 == digest for file in entry.evidence)
        and (record_digest(entry), digest) not in gone
    )
    return list(islice(others, _MOST_NAMED))
