"""Decides whether the log is what was signed, and names the first entry that differs.

Signed are the ledger's checkpoint and the older ones that a verifier passes. What every entry was
is taken from the index if its leaf hashes give a signed root, else from the sequence numbers that
the lines state. Signatures are checked elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.ledger.note import Checkpoint
from proctor.ledger.tree import Tree
from proctor.ledger.verification.damage import DamageKind, Findings
from proctor.ledger.verification.index_check import IndexReader
from proctor.ledger.verification.leaves import Leaves
from proctor.ledger.verification.scan import NO_SEQ, ScannedLog


@dataclass(frozen=True, slots=True)
class Statement:
    """A checkpoint, and whether its signature is valid."""

    where: str
    checkpoint: Checkpoint
    is_signed: bool

    @property
    def tree(self) -> Tree:
        """The tree that it states."""
        return self.checkpoint.tree


@dataclass(frozen=True, slots=True)
class Difference:
    """How a log differs from what was signed."""

    kind: DamageKind
    first: int
    """The first entry that differs; the lines before it are as they were signed."""
    what: str
    count: int | None
    """The number of entries that differ; None if nothing shows it."""


def judge_log(
    log: ScannedLog,
    index_reader: IndexReader | None,
    own: Statement | None,
    older: Sequence[Statement],
    findings: Findings,
) -> Difference | None:
    """Compare the log with everything that was signed; adds what differs to the findings."""
    statements = [own] if own is not None and own.is_signed else []
    if not statements:
        # The ledger's checkpoint shows nothing: the largest older one does, if there is one.
        signed = [each for each in older if each.is_signed]
        statements = sorted(signed, key=lambda each: each.tree.size, reverse=True)
    wrong = next((each for each in statements if not _fits(log, each.tree)), None)
    difference = recalled = None
    if wrong is not None:
        recalled = index_reader.recall(log, wrong.tree) if index_reader else None
        difference = _find_difference(log, wrong.tree, recalled)
        if difference is None:
            same = max((old.tree.size for old in older if _fits(log, old.tree)), default=0)
            what = f"entries at or after entry {same} are not what was signed; no index shows "
            difference = Difference(DamageKind.EDITED, same, what + "which ones", None)
        findings.add(
            difference.kind, log.where(difference.first), difference.what, difference.first
        )
    if own is not None:
        for each in older:
            _judge_older(log, own, each, recalled if wrong is own else None, findings)
    return difference


def _fits(log: ScannedLog, tree: Tree) -> bool:
    """Whether the log begins with this tree."""
    is_whole = all(line >= tree.size for line in log.torn)
    return is_whole and log.leaves.gives(tree.size, tree.root)


def _find_difference(log: ScannedLog, tree: Tree, recalled: Leaves | None) -> Difference | None:
    """The first difference from a tree that the log does not have; None if nothing shows it."""
    size = tree.size
    if recalled is not None:
        places = {leaf: seq for seq, leaf in reversed(list(enumerate(recalled)))}
        seqs: Sequence[int] = [places.get(leaf, NO_SEQ) for leaf in log.leaves]
    elif log.is_decoded:
        seqs = log.seqs
    else:
        return None
    first = next((line for line, seq in enumerate(seqs) if seq != line or line >= size), len(seqs))
    torn = min((line for line in log.torn if line < size), default=None)
    if first >= size:
        if torn is None:
            return None
        what = f"before entry {torn} are bytes that are not a line"
        return Difference(DamageKind.INSERTED, torn, what, 0)
    kind, what = _name(seqs, size, first, is_torn=torn == first)
    if recalled is None:
        # An edited entry may still state its number.
        return Difference(kind, first, what, None)
    known = {seq for seq in seqs if 0 <= seq < size}
    last = max((line for line, seq in enumerate(seqs) if 0 <= seq < size), default=-1)
    # Entries that are missing, or lines among the signed ones that are not one of them.
    count = max(size - len(known), last + 1 - len(known))
    if count == 0:
        count = sum(line != seq for line, seq in enumerate(seqs[:size]))
    what += f"; {count:,} of {size:,} entries differ" if count > 1 else ""
    return Difference(kind, first, what, count)


def _name(seqs: Sequence[int], size: int, first: int, *, is_torn: bool) -> tuple[DamageKind, str]:
    """What is wrong with the first line that is not its entry; `seqs` are the lines' entries."""
    if first >= len(seqs):
        last = size - 1
        cut = f"entry {last} is" if first == last else f"entries {first} to {last} are"
        return DamageKind.TRUNCATED, f"{cut} cut off"
    here = seqs[first]
    is_entry = 0 <= here < size
    if first in seqs[first:]:
        if not is_entry:
            return DamageKind.INSERTED, f"line {first} was never signed"
        if sum(seq == here for seq in seqs) > 1:
            return DamageKind.DUPLICATED, f"line {first} is a copy of entry {here}"
        return DamageKind.REORDERED, f"entry {here} is at line {first}"
    if is_torn:
        return DamageKind.TRUNCATED, f"entry {first} does not end with a newline: it is cut off"
    goes_on = list(seqs[first + 1 : first + 2]) == ([first + 1] if first + 1 < size else [])
    if is_entry and not goes_on:
        return DamageKind.REMOVED, f"entry {first} is missing"
    return DamageKind.EDITED, f"entry {first} differs from what was signed"


def _judge_older(
    log: ScannedLog,
    own: Statement,
    older: Statement,
    recalled: Leaves | None,
    findings: Findings,
) -> None:
    """Check that the ledger's checkpoint extends an older one."""
    old, new = older.tree, own.tree
    signed = f"{older.where} signs {old.size} entries"
    if old.size > new.size:
        if _fits(log, old):
            message = f"{signed}, which are in the log; the ledger's checkpoint signs {new.size}"
            findings.add(DamageKind.ROLLED_BACK, "checkpoint", message, new.size)
        elif own.is_signed:
            message = f"{signed}; the ledger's checkpoint signs {new.size}"
            findings.add(DamageKind.TRUNCATED, "checkpoint", message, new.size)
    elif own.is_signed and not log.leaves.gives(old.size, old.root):
        # A damaged log, which is reported already, may still have had the older tree.
        if not _fits(log, new) and (recalled is None or recalled.gives(old.size, old.root)):
            return
        message = (
            f"{signed} with the root {old.root.hex()}; the ledger as it is signed has "
            "a different history: it was rewritten or forked"
        )
        findings.add(DamageKind.FORKED, older.where, message)
