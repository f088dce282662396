"""Verifies a ledger: recomputes all of it, and says whether it is as it was signed.

1. The checkpoints are parsed, the ledger's own and the older ones that are given.
2. Every line is hashed; trials are decoded, unless the verification is fast.
3. The keys are followed from the first entry on, and the signatures checked.
4. The log is compared with what was signed: the first entry that differs is named.
5. Signed lines must be valid entries, and no two the same trial; withheld lines must be named by an
   entry.
6. Every artifact that an entry names is read, unless the verification is fast.
7. An index that does not match is rebuilt.

Nothing else is written. If entries are appended meanwhile, the ledger is read again.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from proctor.errors import LedgerError, NoteError
from proctor.files import read_head
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.derived import INDEX, find_folder
from proctor.ledger.entry import FORMAT
from proctor.ledger.ledger import find_remote
from proctor.ledger.log import FileLog, LogStore, Place, segment_name
from proctor.ledger.note import (
    LARGEST_NOTE,
    Checkpoint,
    VerifierKey,
    parse_checkpoint,
)
from proctor.ledger.tree import leaf_hash
from proctor.ledger.verification.damage import Damage, DamageKind, Findings
from proctor.ledger.verification.evidence import NamedEvidence
from proctor.ledger.verification.index_check import IndexReader, repair_index
from proctor.ledger.verification.judge import judge_log
from proctor.ledger.verification.scan import ScannedLog
from proctor.ledger.verification.steps import (
    Check,
    Progress,
    Scope,
    check_artifacts,
    check_entries,
    check_gaps,
    check_identities,
    check_keys,
    check_signatures,
    check_withheld,
    no_progress,
    note_unsigned_lines,
)
from proctor.sentence import count_of

_TRIES = 3
_MOST_NAMED = 5
_FIRST_LINE = 1 << 16
_OTHER_INDEX = "it is of another version or of another log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verification."""

    where: str
    """The name of the ledger in messages."""
    origin: str | None
    """Name of the log; None if the checkpoint cannot be read."""
    size: int
    """The number of signed entries."""
    root: str | None
    """Root of their tree, in hex."""
    key: str | None
    """The trusted public key."""
    is_key_given: bool
    """Whether it was given; otherwise it is the one that the first entry names."""
    is_fast: bool
    """Whether trials were not decoded and artifacts not read."""
    since: tuple[str, ...]
    """The older checkpoints that it was compared with."""
    withheld: int
    """Withheld entries."""
    unnamed: tuple[int, ...]
    """Entries that were withheld without naming a trial."""
    withheld_artifacts: int
    """Withheld artifacts that entries name."""
    artifacts: int
    """Artifacts that were read."""
    bytes_read: int
    """Bytes of the segments."""
    differing: int | None
    """Entries that differ from what was signed; None if nothing shows how many."""
    damage: list[Damage]
    """What is wrong. Of entries that differ from what was signed, only the first is named."""
    notes: list[str]

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.damage


def render_unnamed(places: Sequence[int]) -> str | None:
    """The entries that were withheld without naming a trial, in a sentence; None if none was."""
    if not places:
        return None
    named = ", ".join(f"entry {seq}" for seq in places[:_MOST_NAMED])
    more = ", …" if len(places) > _MOST_NAMED else ""
    what = count_of(len(places), "entry", "entries")
    return f"{what} withheld without naming a trial ({named}{more}): any experiment may be meant"


def verify_ledger(
    directory: Path | str,
    *,
    key: VerifierKey | None = None,
    since: Sequence[Path | str] = (),
    fast: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Verify a ledger completely; its damage is in the result."""
    directory = Path(directory)
    log = FileLog(directory)
    log.check_begun()
    folder = find_folder(directory)
    remote = find_remote(directory)
    check = Check(
        log=log,
        artifacts=FileArtifacts(directory) if remote is None else remote.artifacts,
        where=log.where if remote is None else remote.url,
        given=key,
        is_fast=fast,
        progress=progress or no_progress,
        index=None if folder is None else folder / INDEX,
    )
    return verify_log(check, since)


def verify_log(check: Check, since: Sequence[Path | str] = ()) -> Verification:
    """`verify_ledger` for any log and artifact store.

    Raises:
        LedgerError: the ledger has another format.
        NoteError: an older checkpoint is invalid.
    """
    log = check.log
    older = [(str(path), _load_older(Path(path))) for path in since]
    before = _read_checkpoint(log)
    result = _verify(check, before, older)
    for _ in range(_TRIES):
        # Damage may be due to a writer: what was read is then a mix of two states.
        if result.is_sound or (now := _read_checkpoint(log)) == before:
            break
        before = now
        result = _verify(replace(check, findings=Findings()), before, older)
    return result


def _load_older(path: Path) -> Checkpoint:
    try:
        data = read_head(str(path), LARGEST_NOTE + 1)
    except OSError as error:
        raise NoteError(f"{path}: the checkpoint cannot be read: {error.strerror}") from error
    return parse_checkpoint(data, str(path))


def _read_checkpoint(log: LogStore) -> bytes | None:
    try:
        return log.read_checkpoint()
    except OSError:
        return None


def _verify(
    check: Check, data: bytes | None, given: Sequence[tuple[str, Checkpoint]]
) -> Verification:
    """Run the steps, numbered as at the top of this file."""
    findings = check.findings
    own = _parse_own(data, findings)  # (1)
    index_reader, index_problem = _open_index(check, own)
    with contextlib.ExitStack() as stack:
        if index_reader is not None:
            stack.callback(index_reader.close)
        named = stack.enter_context(NamedEvidence())
        found = ScannedLog(named, is_decoded=not check.is_fast)
        _check_format(check.log, own, index_reader)
        _read_log(check, found)  # (2)
        signed = check_signatures(check, found, own, given)  # (3)
        difference = judge_log(found, index_reader, signed.own, signed.older, findings)  # (4)
        scope = Scope(found, own.tree.size if own else len(found), difference)
        check_keys(check, scope, signed)
        check_entries(scope, findings)  # (5)
        withheld, unnamed = check_withheld(scope, findings)
        if disclosed := render_unnamed(unnamed):
            findings.note(disclosed)
        check_identities(check, scope)
        counts = check_artifacts(check, scope)  # (6)
        note_unsigned_lines(scope, findings)
        if own is not None and signed.own is not None and signed.own.is_signed and scope.is_same:
            check_gaps(check, scope)
            if index_reader is not None:
                index_problem = _check_index(check, scope, own, index_reader)  # (7)
                index_reader.close()
            if index_problem is not None and check.index is not None and not findings.damages:
                wrong = repair_index(check.index, check.log, own)
                outcome = f"it could not be rebuilt: {wrong}" if wrong else "it was rebuilt"
                findings.note(f"{check.index} did not match the log ({index_problem}); {outcome}")
    trusted = signed.keys.trusted
    return Verification(
        where=check.where or check.log.where,
        origin=own.origin if own else None,
        size=scope.size,
        root=own.tree.root.hex() if own else None,
        key=str(trusted) if trusted else None,
        is_key_given=check.given is not None,
        is_fast=check.is_fast,
        since=tuple(where for where, _ in given),
        withheld=withheld,
        unnamed=tuple(unnamed),
        withheld_artifacts=counts.withheld,
        artifacts=counts.read,
        bytes_read=check.total,
        differing=0 if difference is None else difference.count,
        damage=findings.damages,
        notes=[*findings.notes, *findings.unlisted()],
    )


def _parse_own(data: bytes | None, findings: Findings) -> Checkpoint | None:
    """Parse the ledger's checkpoint; damage if that fails."""
    message = "there is no readable checkpoint"
    if data is not None:
        try:
            return parse_checkpoint(data, "checkpoint")
        except NoteError as error:
            message = str(error)
    findings.add(DamageKind.UNREADABLE_CHECKPOINT, "checkpoint", message)
    return None


def _open_index(check: Check, own: Checkpoint | None) -> tuple[IndexReader | None, str | None]:
    """The index, if there is a valid one, and why it is none."""
    if check.index is None:
        return None, None
    try:
        index_reader = IndexReader.open(check.index, own.origin if own else None)
    except FileNotFoundError:
        return None, None
    return index_reader, _OTHER_INDEX if index_reader is None else None


def _check_format(log: LogStore, own: Checkpoint | None, index_reader: IndexReader | None) -> None:
    """Refuse a ledger of another format, unless only its first line was tampered with."""
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


def _read_log(check: Check, found: ScannedLog) -> None:
    """Read every line of every segment."""
    segments = check.log.stamps()
    check.total = sum(size for _, size, _ in segments.values())
    done = 0
    for segment, (_, size, _) in segments.items():
        try:
            for read in found.read(check.log, segment):
                check.progress("entries", done + min(read, size), check.total)
        except OSError as error:
            message = f"the segment cannot be read: {error.strerror or error}"
            where = segment_name(segment)
            check.findings.add(DamageKind.UNREADABLE_SEGMENT, where, message)
        done += size
    check.progress("entries", check.total, check.total)


def _check_index(
    check: Check, scope: Scope, own: Checkpoint, index_reader: IndexReader
) -> str | None:
    """Compare the index with the log; returns why it has to be rebuilt, or None."""
    if index_reader.is_ahead(scope.found, scope.size):
        message = (
            f"the checkpoint signs {scope.size} entries, but the log still has those that were "
            "signed before: an older checkpoint was restored; if it is the right one, "
            f"delete {check.index}"
        )
        check.findings.add(DamageKind.ROLLED_BACK, "checkpoint", message, scope.size)
    if check.is_fast or check.findings.damages:
        return None
    return index_reader.find_problem(check.log, scope.found, own)
