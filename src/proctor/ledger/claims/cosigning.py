"""Cosigning: somebody else's signature and time under a copy of a ledger's checkpoint.

Who cosigns says: I saw this checkpoint at this time, and it did not contradict what I had seen
before. That is why the older checkpoint, and the log between the two, are looked at first where
they are at hand. The copy is replaced in one step. Nothing here touches a ledger.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from proctor.errors import DamageError, LedgerError, NoteError
from proctor.files import write_atomic
from proctor.ledger.claims.proof import check_origin, load_checkpoint
from proctor.ledger.keys import SigningKey, cosign
from proctor.ledger.note import LARGEST_NOTE, Checkpoint, VerifierKey
from proctor.ledger.segments import read_lines
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import root_of
from proctor.ledger.upkeep import read_leaf


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


def read_tree(directory: Path, size: int) -> list[bytes]:
    """The leaves of a ledger as its log gives them; its index, which proves nothing, is not asked.

    Raises:
        DamageError: the log is shorter, or holds what is no entry.
    """
    leaves: list[bytes] = []
    for line in islice(read_lines(directory / "entries"), size):
        where = f"{directory}: entry {len(leaves)}"
        leaves.append(read_leaf(line.data, where))
    if len(leaves) < size:
        raise DamageError(
            f"{directory}: has {len(leaves):,} entries; the checkpoint speaks of {size:,}"
        )
    return leaves


def check_growth(checkpoint: Checkpoint, older: Checkpoint | None, directory: Path) -> None:
    """See that a ledger has what a checkpoint says, and grew from an older one.

    Raises:
        LedgerError: the older one is of another ledger, or the newer of the two.
        DamageError: the log gives another tree: it was cut or rewritten.
    """
    if older is not None:
        check_origin(older, checkpoint, "the older checkpoint")
        if older.tree.size > checkpoint.tree.size:
            raise LedgerError(
                f"the older checkpoint speaks of {older.tree.size:,} entries, more than the "
                f"{checkpoint.tree.size:,} of the one to be cosigned"
            )
    leaves = read_tree(directory, checkpoint.tree.size)
    if root_of(leaves) != checkpoint.tree.root:
        raise DamageError(
            f"{directory}: its first {len(leaves):,} entries are not those that the checkpoint "
            "speaks of; it is not cosigned"
        )
    if older is not None and root_of(leaves[: older.tree.size]) != older.tree.root:
        raise DamageError(
            f"{directory}: its first {older.tree.size:,} entries are not those that the older "
            "checkpoint speaks of: the log was rewritten; it is not cosigned"
        )


def load_copy(path: Path, log_key: VerifierKey | None) -> Checkpoint:
    """The checkpoint that is to be cosigned.

    Raises:
        LedgerError: it is a ledger's own file, or cannot be read.
        NoteError: it is no checkpoint, or nobody signed it.
        SignatureError: the log's key, where it is known, did not sign it.
    """
    check_copy(path)
    checkpoint = load_checkpoint(str(path))
    if not checkpoint.signatures:
        raise NoteError(f"{path}: nobody signed it; only what its log signed is cosigned")
    if log_key is not None:
        check_signature(checkpoint, log_key, str(path))
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
        write_atomic(path, data)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written: {error.strerror}") from error
    return Cosigned(cosigned, time, is_new=True)
