"""Decides whether the log is what was signed, and if not, what happened to it.

Signed are the ledger's checkpoint and the older ones that a verifier passes. What every entry was
is taken from the index if its leaf hashes give a signed root, else from the sequence numbers that
the lines state. Signatures are checked elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.ledger.note import Checkpoint
from proctor.ledger.tree import Tree
from proctor.ledger.verification.compare import Comparison, Difference, Log, compare_logs
from proctor.ledger.verification.damage import DamageKind, Findings
from proctor.ledger.verification.found import FoundLog
from proctor.ledger.verification.instep import IndexReader
from proctor.ledger.verification.leaves import Leaves
from proctor.ledger.verification.scan import NO_SEQ

# How far beyond the number of lines a stated sequence number is believed.
_FAR = 1 << 20


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
class Evidence:
    """What the decision is based on."""

    found: FoundLog
    index_reader: IndexReader | None
    number_lines: Callable[[], Sequence[int]]
    """The sequence numbers that lines state; called only if the index cannot decide."""

    def fits(self, tree: Tree) -> bool:
        """Whether the log begins with this tree."""
        is_whole = all(line >= tree.size for line in self.found.torn)
        return is_whole and self.found.leaves.gives(tree.size, tree.root)

    def recall(self, tree: Tree) -> Log[bytes] | None:
        """The log when a tree was signed, if the index has it."""
        return self.index_reader.log(self.found, tree) if self.index_reader else None


def judge_log(
    evidence: Evidence, own: Statement | None, older: Sequence[Statement], findings: Findings
) -> Comparison:
    """Compare the log with everything that was signed, and add the differences to the findings."""
    comparison, recalled = Comparison(), None
    fits = own is not None and evidence.fits(own.tree)
    if own is not None and not fits:
        recalled = evidence.recall(own.tree)
    if own is not None and not fits and (own.is_signed or recalled is not None):
        comparison = _compare(evidence, own.tree, recalled, older)
    elif own is None or not own.is_signed:
        comparison = _compare_older(evidence, older)
    for difference in comparison.differences:
        where = evidence.found.where(difference.line)
        findings.add(difference.kind, where, difference.message, difference.seq)
    for statement in older:
        if own is not None:
            _judge_older(evidence, own, statement, recalled, findings)
    return comparison


def _compare(
    evidence: Evidence, tree: Tree, recalled: Log[bytes] | None, older: Sequence[Statement]
) -> Comparison:
    """Find out what happened to a log that does not have a tree."""
    found = evidence.found
    if recalled is not None:
        comparison = compare_logs(recalled, Log(found.leaves, found.lengths, found.torn))
    else:
        comparison = _compare_numbers(evidence, tree)
    if not comparison.differences:
        same = max((old.tree.size for old in older if evidence.fits(old.tree)), default=0)
        what = f"entries at or after entry {same} are not what was signed; no index "
        what += "shows which ones"
        comparison.differences.append(Difference(DamageKind.EDITED, same, same, what))
        comparison.strange.update(range(same, len(found)))
    return comparison


def _compare_numbers(evidence: Evidence, tree: Tree) -> Comparison:
    """Compare by the sequence numbers that lines state; a line without one matches nothing."""
    numbers = evidence.number_lines()
    # Negative keys are unique and match no entry.
    keys = [seq if seq != NO_SEQ else -2 - line for line, seq in enumerate(numbers)]
    far = max(len(keys), min(max(keys, default=0) + 1, len(keys) + _FAR))
    size = min(tree.size, far)
    comparison = compare_logs(Log(range(size)), Log(keys, None, evidence.found.torn))
    if size < tree.size:
        what = f"entries {size} to {tree.size - 1} are cut off"
        cut = Difference(DamageKind.TRUNCATED, size, len(keys), what)
        comparison.differences.append(cut)
    return comparison


def _compare_older(evidence: Evidence, older: Sequence[Statement]) -> Comparison:
    """Compare with the largest older checkpoint that is validly signed, if the ledger's is not."""
    counting = [statement for statement in older if statement.is_signed]
    for statement in sorted(counting, key=lambda found: found.tree.size, reverse=True):
        if not evidence.fits(statement.tree):
            recalled = evidence.recall(statement.tree)
            return _compare(evidence, statement.tree, recalled, older)
    return Comparison()


def _judge_older(
    evidence: Evidence,
    own: Statement,
    older: Statement,
    recalled: Log[bytes] | None,
    findings: Findings,
) -> None:
    """Check that the ledger's checkpoint extends an older one."""
    old, new = older.tree, own.tree
    signed = f"{older.where} signs {old.size} entries"
    if old.size > new.size:
        if evidence.fits(old):
            message = f"{signed}, which are in the log; the ledger's checkpoint signs {new.size}"
            findings.add(DamageKind.ROLLED_BACK, "checkpoint", message, new.size)
        elif own.is_signed:
            message = f"{signed}; the ledger's checkpoint signs {new.size}"
            findings.add(DamageKind.TRUNCATED, "checkpoint", message, new.size)
    elif own.is_signed and not _has_grown(evidence, own, old, recalled):
        message = (
            f"{signed} with the root {old.root.hex()}; the ledger as it is signed has "
            "a different history: it was rewritten or forked"
        )
        findings.add(DamageKind.FORKED, older.where, message)


def _has_grown(evidence: Evidence, own: Statement, old: Tree, recalled: Log[bytes] | None) -> bool:
    """Whether what was signed last began with an older tree, as far as that is known."""
    if evidence.found.leaves.gives(old.size, old.root):
        return True
    if evidence.fits(own.tree):
        return False
    # The log is damaged, which is reported already; it may still have had the older tree.
    return recalled is None or Leaves(b"".join(recalled.keys)).gives(old.size, old.root)
