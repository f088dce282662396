"""Proofs as files: that an entry is in a ledger, and that a ledger only grew.

    {"format": "proctor-proof-1", "kind": "inclusion", "checkpoint": note, "seq": n,
     "line": the entry as stored, or "leaf": its hash alone, "path": [hash, …]}
    {"format": "proctor-proof-1", "kind": "consistency", "older": note, "newer": note,
     "path": [hash, …]}

A proof is checked without the ledger. The signatures show whose checkpoint it is.
"""

from typing import Literal

import msgspec

from proctor.errors import DamageError, LedgerError, ProofError, ProofFileError
from proctor.files import read_head
from proctor.ledger.admission import find_fault
from proctor.ledger.claims.document import check_unique, parse_document, parse_hash
from proctor.ledger.entry import AnyEntry, Seq, Withheld, decode_line
from proctor.ledger.note import LARGEST_NOTE, Checkpoint, parse_checkpoint
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tiles import TiledTree
from proctor.ledger.tree import (
    check_consistency,
    check_inclusion,
    consistency_path,
    inclusion_path,
    leaf_hash,
)

FORMAT = "proctor-proof-1"
LARGEST_PROOF = 64 << 20
"""Bytes; a line in it has up to 16 MiB, and more when escaped in JSON."""
# Hashes of a path in the largest tree that a checkpoint can state.
_LONGEST_PATH = 64


class InclusionProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proof that an entry is the n-th of the ledger of a checkpoint."""

    format: str
    """proctor-proof-1"""
    kind: Literal["inclusion"]
    checkpoint: str
    """The signed note."""
    seq: Seq
    """The entry's position in the log, from 0."""
    line: str | None = None
    """The stored entry, without its newline."""
    leaf: str | None = None
    """Its leaf hash in hex, if the line was withheld; one of the two is null."""
    path: list[str]
    """The sibling hashes up to the root, in hex."""


class ConsistencyProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proof that the log of a newer checkpoint extends the log of an older one."""

    format: str
    """proctor-proof-1"""
    kind: Literal["consistency"]
    older: str
    """The signed note."""
    newer: str
    """The signed note."""
    path: list[str]
    """The hashes of RFC 6962's consistency proof, in hex."""


type Proof = InclusionProof | ConsistencyProof


class _Kind(msgspec.Struct, frozen=True):
    format: str
    kind: str


def load_checkpoint(path: str) -> Checkpoint:
    """Load the checkpoint in a file; its signature is not checked.

    Raises:
        LedgerError: it cannot be read.
        NoteError: it is not a checkpoint.
    """
    try:
        data = read_head(path, LARGEST_NOTE + 1)
    except OSError as error:
        raise LedgerError(f"{path}: the checkpoint cannot be read: {error.strerror}") from error
    return parse_checkpoint(data, path)


def signed_tree(ledger: LedgerReader, checkpoint: Checkpoint, where: str) -> TiledTree:
    """The tree under a checkpoint of this ledger; call `refresh` first.

    Raises:
        DamageError: the ledger does not extend the checkpoint.
        LedgerError: it is a checkpoint of another ledger.
    """
    check_origin(checkpoint, ledger.checkpoint(), where)
    size, there = checkpoint.tree.size, ledger.index.size()
    if there < size:
        raise DamageError(
            f"{where}: signs {size:,} entries; the ledger has {there:,}: it was cut, or "
            "this copy of it is older than the checkpoint"
        )
    tree = TiledTree(ledger.index, size)
    if tree.root() != checkpoint.tree.root:
        raise DamageError(
            f"{where}: the first {size:,} entries of the ledger are not those that it signs: "
            "they are different histories"
        )
    return tree


def check_origin(checkpoint: Checkpoint, other: Checkpoint, where: str) -> None:
    """Refuse a checkpoint of another ledger.

    Raises:
        LedgerError: the two have different origins.
    """
    if checkpoint.origin != other.origin:
        raise LedgerError(
            f"{where}: a checkpoint of {checkpoint.origin!r}; expected one of {other.origin!r}"
        )


def make_inclusion(ledger: LedgerReader, seq: int, checkpoint: Checkpoint) -> InclusionProof:
    """Prove that an entry is in the ledger under a checkpoint; call `refresh` first.

    Raises:
        LedgerError: there is no such entry under the checkpoint.
        DamageError: the ledger does not match the checkpoint.
    """
    tree = signed_tree(ledger, checkpoint, "the checkpoint")
    if not 0 <= seq < tree.size:
        raise LedgerError(
            f"{ledger.where}: there is no entry {seq} among the {tree.size:,} of the checkpoint"
        )
    line = ledger.line(seq)
    is_withheld = isinstance(decode_line(line, f"entry {seq}"), Withheld)
    leaf, path = tree.leaf(seq), inclusion_path(tree.subtree, tree.size, seq)
    # The index is derived: a wrong hash in it must not become a wrong proof.
    check_inclusion(leaf, seq, tree.size, path, checkpoint.tree.root)
    return InclusionProof(
        format=FORMAT,
        kind="inclusion",
        checkpoint=checkpoint.render().decode(),
        seq=seq,
        line=None if is_withheld else line.decode(),
        leaf=leaf.hex() if is_withheld else None,
        path=[node.hex() for node in path],
    )


def make_consistency(
    ledger: LedgerReader, older: Checkpoint, newer: Checkpoint
) -> ConsistencyProof:
    """Prove that the ledger grew from one checkpoint to the other; call `refresh` first.

    Raises:
        LedgerError: one of them is of another ledger.
        DamageError: the ledger does not match one of them.
    """
    signed_tree(ledger, older, "the older checkpoint")
    tree = signed_tree(ledger, newer, "the newer checkpoint")
    if older.tree.size > newer.tree.size:
        raise LedgerError(
            f"the older checkpoint has {older.tree.size:,} entries, the newer one "
            f"{newer.tree.size:,}; swap them"
        )
    path = consistency_path(tree.subtree, tree.size, older.tree.size)
    check_consistency(older.tree, newer.tree, path)
    return ConsistencyProof(
        format=FORMAT,
        kind="consistency",
        older=older.render().decode(),
        newer=newer.render().decode(),
        path=[node.hex() for node in path],
    )


def parse_proof(data: bytes, where: str) -> Proof:
    """Parse a proof, without checking it.

    Raises:
        ProofFileError: it is not a proof, or of another format.
    """
    if len(data) > LARGEST_PROOF:
        raise ProofFileError(f"{where}: {len(data):,} bytes; at most {LARGEST_PROOF:,}")
    head = parse_document(data, _Kind, where)
    if head.format != FORMAT:
        raise ProofFileError(f"{where}: format is {head.format[:60]!r}; expected {FORMAT!r}")
    if head.kind not in ("inclusion", "consistency"):
        raise ProofFileError(
            f"{where}: kind is {head.kind[:60]!r}; expected 'inclusion' or 'consistency'"
        )
    proof: Proof
    if head.kind == "inclusion":
        proof = parse_document(data, InclusionProof, where)
        if (proof.line is None) == (proof.leaf is None):
            raise ProofFileError(f"{where}: expected either `line` or `leaf`, and not both")
    else:
        proof = parse_document(data, ConsistencyProof, where)
    if len(proof.path) > _LONGEST_PATH:
        raise ProofFileError(f"{where}: a path of {len(proof.path):,} hashes; no tree is that high")
    return proof


def proven_entry(proof: InclusionProof, where: str) -> tuple[Checkpoint, AnyEntry | None]:
    """Check an inclusion proof; returns its checkpoint and entry, None if it has only the hash."""
    checkpoint = parse_checkpoint(proof.checkpoint.encode(), f"{where}: checkpoint")
    path = [parse_hash(node, f"{where}: path") for node in proof.path]
    if proof.line is None:
        leaf = parse_hash(proof.leaf or "", f"{where}: leaf")
    else:
        leaf = leaf_hash(proof.line.encode())
    tree = checkpoint.tree
    check_inclusion(leaf, proof.seq, tree.size, path, tree.root)
    entry = None if proof.line is None else read_entry(proof.line.encode(), proof.seq)
    return checkpoint, entry


def read_entry(line: bytes, seq: int) -> AnyEntry:
    """Decode the line that is proven to be the n-th entry.

    Raises:
        DamageError: it states another position, is ambiguous or not an entry, or has inadmissible
            ids, paths or digests.
    """
    where = f"entry {seq}"
    try:
        check_unique(line, where)
    except ProofFileError as error:
        raise DamageError(str(error)) from error
    entry = decode_line(line, where)
    if isinstance(entry, Withheld):
        raise DamageError(f"{where}: a placeholder of a withheld entry")
    if entry.seq != seq:
        raise DamageError(f"{where} says that it is entry {entry.seq}")
    if fault := find_fault(entry):
        raise DamageError(f"{where}: {fault.message}")
    return entry


def proven_growth(proof: ConsistencyProof, where: str) -> tuple[Checkpoint, Checkpoint]:
    """Check a consistency proof; returns its checkpoints, the older first.

    Raises:
        NoteError, ProofFileError: a part of it cannot be parsed.
        ProofError: it does not prove that one extends the other.
    """
    older = parse_checkpoint(proof.older.encode(), f"{where}: the older checkpoint")
    newer = parse_checkpoint(proof.newer.encode(), f"{where}: the newer checkpoint")
    path = [parse_hash(node, f"{where}: path") for node in proof.path]
    if older.origin != newer.origin:
        raise ProofError(
            f"the older checkpoint is of {older.origin!r}, the newer one of {newer.origin!r}: "
            "two ledgers"
        )
    check_consistency(older.tree, newer.tree, path)
    return older, newer
