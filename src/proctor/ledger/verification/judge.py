"""Judge: does the log give what was signed, and if not, what happened to it?

Signed are the ledger's own checkpoint and the older ones that a verifier brings. What every entry
was is taken from the index, where its leaves give a signed root; else from the numbers that the
lines give themselves. Nothing here checks a signature.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.ledger.note import Checkpoint
from proctor.ledger.tree import Tree
from proctor.ledger.verification.compare import Comparison, Difference, Log, compare_logs
from proctor.ledger.verification.damage import DamageKind, Findings
from proctor.ledger.verification.found import FoundLog
from proctor.ledger.verification.instep import Remembered
from proctor.ledger.verification.leaves import Leaves
from proctor.ledger.verification.scan import NO_SEQ

_FAR = 1 << 20
"""How far beyond the lines that are there a number is taken seriously."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A checkpoint, and whether it counts."""

    where: str
    checkpoint: Checkpoint
    is_signed: bool

    @property
    def tree(self) -> Tree:
        """The tree that it states."""
        return self.checkpoint.tree


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to judge by."""

    found: FoundLog
    remembered: Remembered | None
    number_lines: Callable[[], Sequence[int]]
    """The numbers that the lines give themselves: asked for only where nothing else tells."""

    def fits(self, tree: Tree) -> bool:
        """Whether the log begins with this tree."""
        is_whole = all(line >= tree.size for line in self.found.torn)
        return is_whole and self.found.leaves.gives(tree.size, tree.root)

    def recall(self, tree: Tree) -> Log[bytes] | None:
        """The log as it was when a tree was signed, if the index remembers it."""
        return self.remembered.log(self.found, tree) if self.remembered else None


def judge_log(
    evidence: Evidence, own: Statement | None, older: Sequence[Statement], findings: Findings
) -> Comparison:
    """Hold the log against all that was signed, and name what is not so."""
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
    """What happened to a log that does not give a tree."""
    found = evidence.found
    if recalled is not None:
        comparison = compare_logs(recalled, Log(found.leaves, found.lengths, found.torn))
    else:
        comparison = _compare_numbers(evidence, tree)
    if not comparison.differences:
        same = max((old.tree.size for old in older if evidence.fits(old.tree)), default=0)
        what = f"entries are not what was signed, at or after entry {same}; which ones, the index "
        what += "could tell, and it is not there or does not remember"
        comparison.differences.append(Difference(DamageKind.EDITED, same, same, what))
        comparison.strange.update(range(same, len(found)))
    return comparison


def _compare_numbers(evidence: Evidence, tree: Tree) -> Comparison:
    """The same by the numbers that lines give themselves; a line without one is its own."""
    numbers = evidence.number_lines()
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
    """What happened by the largest older checkpoint that counts, where the own one does not."""
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
    """Whether the ledger's own checkpoint is one that an older one has grown to."""
    old, new = older.tree, own.tree
    signed = f"{older.where} signs {old.size} entries"
    if old.size > new.size:
        if evidence.fits(old):
            message = f"{signed}, and they are there; the ledger's checkpoint signs {new.size}"
            findings.add(DamageKind.ROLLED_BACK, "checkpoint", message, new.size)
        elif own.is_signed:
            message = f"{signed}; the ledger's checkpoint signs {new.size}"
            findings.add(DamageKind.TRUNCATED, "checkpoint", message, new.size)
    elif own.is_signed and not _has_grown(evidence, own, old, recalled):
        message = (
            f"{signed} with the root {old.root.hex()}; the ledger as it is signed has "
            "another history: it was rewritten, or there are two of it"
        )
        findings.add(DamageKind.FORKED, older.where, message)


def _has_grown(evidence: Evidence, own: Statement, old: Tree, recalled: Log[bytes] | None) -> bool:
    """Whether what was signed last began with an older tree, as far as that can be told."""
    if evidence.found.leaves.gives(old.size, old.root):
        return True
    if evidence.fits(own.tree):
        return False
    # The log is damaged, which is told already; the older tree may be its own all the same.
    return recalled is None or Leaves(b"".join(recalled.keys)).gives(old.size, old.root)
