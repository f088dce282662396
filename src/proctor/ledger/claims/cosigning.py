"""Cosigning: somebody else's signature and time under a copy of a ledger's checkpoint.

A cosigner says: I saw this checkpoint at this time, and it extends what I had seen before.
`witness` decides whether it does; here the copy is read and replaced in one step, and the log that
is to show it is read. No ledger is written.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from proctor.errors import DamageError, LedgerError, NoteError, ProofFileError
from proctor.files import write_atomic
from proctor.ledger.claims.document import parse_hash
from proctor.ledger.claims.proof import load_checkpoint
from proctor.ledger.entry import AnyEntry, KeyEntry, Withheld, decode_line
from proctor.ledger.keys import SigningKey, cosign
from proctor.ledger.note import LARGEST_NOTE, Checkpoint
from proctor.ledger.segments import read_lines
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import leaf_hash, root_of


@dataclass(frozen=True, slots=True)
class Cosigned:
    """A checkpoint with a cosignature under it."""

    checkpoint: Checkpoint
    time: int
    """When it was cosigned, in seconds since 1970."""
    is_new: bool
    """False where the same key had cosigned it already."""


def check_copy(path: Path) -> None:
    """Refuse the checkpoint that a ledger replaces with every append.

    Raises:
        LedgerError: it is one.
    """
    place = path.resolve()
    if place.name == "checkpoint" and (place.parent / "entries").is_dir():
        raise LedgerError(
            f"{path}: the ledger's own checkpoint, which the next append replaces; save a copy "
            f"with `proctor ledger checkpoint --ledger {place.parent} -o FILE` and cosign that"
        )


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log as its lines give it; the index, which proves nothing, is not asked."""

    leaves: list[bytes]
    keys: list[tuple[int, KeyEntry]]
    """The keys among the entries of the checkpoint, by their places."""

    def root_at(self, size: int) -> bytes:
        """Root of the tree over the first entries."""
        return root_of(self.leaves[:size])


def read_log(directory: Path, size: int, wanted: int) -> LogRead:
    """The first entries of a log: `size` at least, `wanted` if there are so many.

    Raises:
        DamageError: the log is shorter, or holds what is no entry.
    """
    found = LogRead([], [])
    for line in islice(read_lines(directory / "entries"), wanted):
        seq = len(found.leaves)
        where = f"{directory}: entry {seq}"
        entry = decode_line(line.data, where)
        found.leaves.append(leaf_of(entry, line.data, where))
        if isinstance(entry, KeyEntry) and seq < size:
            found.keys.append((seq, entry))
    if len(found.leaves) < size:
        raise DamageError(
            f"{directory}: has {len(found.leaves):,} entries; the checkpoint speaks of {size:,}"
        )
    return found


def leaf_of(entry: AnyEntry | Withheld, line: bytes, where: str) -> bytes:
    """The leaf of a line: that of one that was withheld is the hash it names.

    Raises:
        DamageError: it names none.
    """
    if not isinstance(entry, Withheld):
        return leaf_hash(line)
    try:
        return parse_hash(entry.withheld, where)
    except ProofFileError as error:
        raise DamageError(str(error)) from error


def load_copy(path: Path) -> Checkpoint:
    """The checkpoint that is to be cosigned.

    Raises:
        LedgerError: it is a ledger's own file, or cannot be read.
        NoteError: it is no checkpoint, or nobody signed it.
    """
    check_copy(path)
    checkpoint = load_checkpoint(str(path))
    if not checkpoint.signatures:
        raise NoteError(f"{path}: nobody signed it; only what its log signed is cosigned")
    return checkpoint


def cosign_copy(path: Path, checkpoint: Checkpoint, key: SigningKey, time: int) -> Cosigned:
    """Put a cosignature under a copy of a checkpoint; one that is there already stays.

    Raises:
        LedgerError: it cannot be written.
        NoteError: it is full.
        SignatureError: a cosignature by the same key is there and is not right.
    """
    name = (key.name, key.cosigner.key_id)
    if any((line.name, line.key_id) == name for line in checkpoint.signatures):
        before = check_signature(checkpoint, key.cosigner, str(path))
        return Cosigned(checkpoint, before or 0, is_new=False)
    cosigned = cosign(checkpoint, key, time)
    if len(data := cosigned.render()) > LARGEST_NOTE:
        raise NoteError(f"{path}: no room for one more signature")
    try:
        write_atomic(path.resolve(), data)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written: {error.strerror}") from error
    return Cosigned(cosigned, time, is_new=True)
