"""The Merkle tree of RFC 6962: hashes, roots, inclusion and consistency proofs.

    leaf_hash(line)                    SHA-256(0x00 ‖ line without its newline)
    Frontier                           a growing tree: its root at any time, in O(log n) memory
    inclusion_path, check_inclusion    a leaf is the n-th of a tree
    consistency_path, check_consistency    a tree is the beginning of another one
    prove_entries, hash_parts          one proof for many leaves, with every needed hash once

A proof for many leaves is a list. The tree is walked from its root, left before right. A subtree
without a proven leaf adds one hash to the list; a proven leaf adds none, because its hash is known;
any other subtree is split where RFC 6962 splits it. The checker walks the same way and takes the
hashes in order.

Pure functions over hashes. `inclusion_path` and `consistency_path` ask for the subtrees that a
proof needs, which tiles.py reads from the index.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce

import msgspec

from proctor.digest import sha256_digest
from proctor.errors import ProofError

HASH_SIZE = 32
LEAF_PREFIX = b"\x00"
"""Hashed before a line, so that a leaf is never a node."""
BRANCHES = 16
"""Hashes of one level of an index below one hash of the next: see `TrialIndex.hashes`."""
EMPTY_ROOT = sha256_digest(b"")
"""Root of a tree without leaves."""


def leaf_hash(line: bytes) -> bytes:
    """Hash of a stored entry, without its newline."""
    return sha256_digest(LEAF_PREFIX + line)


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of two neighbouring subtrees."""
    return sha256_digest(b"\x01" + left + right)


@dataclass(slots=True)
class Frontier:
    """A growing tree: the roots of its perfect subtrees, the largest first."""

    size: int = 0
    peaks: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> None:
        """Add a leaf."""
        peaks, size = self.peaks, self.size
        while size & 1:
            leaf = node_hash(peaks.pop(), leaf)
            size >>= 1
        peaks.append(leaf)
        self.size += 1

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add leaves."""
        for leaf in leaves:
            self.append(leaf)

    def root(self) -> bytes:
        """Root of the present tree."""
        if not self.peaks:
            return EMPTY_ROOT
        *smaller, root = self.peaks
        for peak in reversed(smaller):
            root = node_hash(peak, root)
        return root

    def copy(self) -> "Frontier":
        """An independent copy."""
        return Frontier(self.size, list(self.peaks))


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Root of the tree over these leaves."""
    frontier = Frontier()
    frontier.extend(leaves)
    return frontier.root()


type Subtree = Callable[[int, int], bytes]
"""The root over the leaves from one position up to before another, where RFC 6962 splits a tree."""


def subtree_of(leaves: Sequence[bytes]) -> Subtree:
    """The subtrees over these leaves; each is hashed once."""

    @cache
    def subtree(low: int, high: int) -> bytes:
        if high - low == 1:
            return leaves[low]
        middle = split(low, high)
        return node_hash(subtree(low, middle), subtree(middle, high))

    return subtree


def inclusion_path(subtree: Subtree, size: int, index: int) -> list[bytes]:
    """The sibling hashes from a leaf up to the root of a tree of this size.

    Raises:
        ProofError: there is no such leaf.
    """
    if not 0 <= index < size:
        raise ProofError(f"there is no entry {index} in a tree of {size}")
    path: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        middle = split(low, high)
        if index < middle:
            path.append(subtree(middle, high))
            high = middle
        else:
            path.append(subtree(low, middle))
            low = middle
    return path[::-1]


def split(low: int, high: int) -> int:
    """Where a subtree is split: after the largest power of two below its size."""
    return low + (1 << ((high - low - 1).bit_length() - 1))


def check_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Refuse a path that does not lead from the leaf to the root.

    Raises:
        ProofError: the path has the wrong length, or leads to another root.
    """
    if root_along(leaf, index, size, path) != root:
        raise ProofError(f"entry {index} is not in the tree of {size} with root {root.hex()}")


def root_along(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root to which a path leads from a leaf.

    Raises:
        ProofError: the path has the wrong length.
    """
    if not 0 <= index < size:
        raise ProofError(f"there is no entry {index} in a tree of {size}")
    node, last, at = leaf, size - 1, index
    for step in path:
        if last == 0:
            raise ProofError(f"the path of entry {index} is longer than a tree of {size} is high")
        if at & 1 or at == last:
            node = node_hash(step, node)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            node = node_hash(node, step)
        at, last = at >> 1, last >> 1
    if last:
        raise ProofError(f"the path of entry {index} is shorter than a tree of {size} is high")
    return node


def consistency_path(subtree: Subtree, size: int, older: int) -> list[bytes]:
    """The hashes that prove the first `older` leaves to be the beginning of a tree of this size.

    Raises:
        ProofError: the older tree is larger.
    """
    if not 0 <= older <= size:
        raise ProofError(f"a tree of {size} cannot have grown from one of {older}")
    if older in (0, size):
        return []
    path: list[bytes] = []
    low, high = 0, size
    while high != older:
        middle = split(low, high)
        if older <= middle:
            path.append(subtree(middle, high))
            high = middle
        else:
            path.append(subtree(low, middle))
            low = middle
    # A checker knows the older root, and with it the subtree that begins the log.
    return [*([subtree(low, high)] if low else []), *path[::-1]]


class Tree(msgspec.Struct, frozen=True):
    """Size and root of a tree, as a checkpoint states them."""

    size: int
    root: bytes


def check_consistency(older: Tree, newer: Tree, path: Sequence[bytes]) -> None:
    """Refuse a path that does not prove the older tree to be the beginning of the newer one.

    Raises:
        ProofError: the path has the wrong length, or leads to another root.
    """
    if older.size > newer.size:
        raise ProofError(f"a tree of {newer.size} cannot have grown from one of {older.size}")
    if older.size in (0, newer.size):
        is_same = older.size == 0 or older.root == newer.root
        if path or not is_same or (older.size == 0 and older.root != EMPTY_ROOT):
            raise ProofError(f"trees of {newer.size} and {older.size} are not consistent")
        return
    # RFC 6962 omits the first hash of the path if the older tree is itself a perfect subtree.
    is_power = older.size & (older.size - 1) == 0
    steps = [older.root, *path] if is_power else list(path)
    if not steps:
        raise ProofError("the path between two trees is empty")
    _follow(older, newer, steps)


def _follow(older: Tree, newer: Tree, steps: Sequence[bytes]) -> None:
    # Skip to the last perfect subtree of the older tree, which both trees share.
    height = ((older.size - 1) ^ older.size).bit_length() - 1
    at, last = (older.size - 1) >> height, (newer.size - 1) >> height
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            raise ProofError(f"the path is longer than a tree of {newer.size} is high")
        if at & 1 or at == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            new = node_hash(new, step)
        at, last = at >> 1, last >> 1
    if last:
        raise ProofError(f"the path is shorter than a tree of {newer.size} is high")
    if old != older.root:
        raise ProofError(f"the tree of {older.size} has another root: the log was rewritten")
    if new != newer.root:
        raise ProofError(f"the tree of {newer.size} has another root than the path gives")


type Span = tuple[int, int]


def prove_entries(subtree: Subtree, size: int, places: Sequence[int]) -> list[bytes]:
    """The hashes that lead from the entries at these positions to the root of a tree of this size.

    Raises:
        ProofError: a position is not in the tree.
    """
    ordered = sorted(set(places))
    if not ordered or ordered[0] < 0 or ordered[-1] >= size:
        raise ProofError(f"there is no such set of entries in a tree of {size}")
    nodes: list[bytes] = []
    spans: list[Span] = [(0, size)]
    while spans:
        low, high = spans.pop()
        if not _holds(ordered, low, high):
            nodes.append(subtree(low, high))
        elif high - low > 1:
            middle = split(low, high)
            spans += [(middle, high), (low, middle)]
    return nodes


type Parts = Mapping[Span, bytes]
"""Hashes of the subtrees that a proof computes or contains."""


def root_before_entry(parts: Parts, size: int, place: int) -> bytes:
    """Root of the tree before a proven entry; its subtrees are all in the proof."""
    low, high, lefts = 0, size, list[bytes]()
    while high - low > 1:
        middle = split(low, high)
        if place < middle:
            high = middle
        else:
            lefts.append(parts[low, middle])
            low = middle
    return (
        reduce(lambda root, left: node_hash(left, root), reversed(lefts)) if lefts else EMPTY_ROOT
    )


def hash_parts(entries: Mapping[int, bytes], size: int, nodes: Sequence[bytes]) -> Parts:
    """All subtree hashes computed from leaf hashes by position and the hashes of a proof.

    Raises:
        ProofError: there are too few or too many hashes, or a position is not in the tree.
    """
    ordered = sorted(entries)
    if not ordered or ordered[0] < 0 or ordered[-1] >= size:
        raise ProofError(f"there is no such set of entries in a tree of {size}")
    rest = iter(nodes)
    parts: dict[Span, bytes] = {}
    _hash((0, size), entries, ordered, rest, parts)
    if next(rest, None) is not None:
        raise ProofError(f"the proof has more hashes than {len(entries)} entries need")
    return parts


def _hash(
    span: Span,
    entries: Mapping[int, bytes],
    ordered: Sequence[int],
    rest: Iterator[bytes],
    parts: dict[Span, bytes],
) -> bytes:
    low, high = span
    if not _holds(ordered, low, high):
        node = next(rest, None)
        if node is None:
            raise ProofError(f"the proof has fewer hashes than {len(entries)} entries need")
    elif high - low == 1:
        node = entries[low]
    else:
        middle = split(low, high)
        left = _hash((low, middle), entries, ordered, rest, parts)
        node = node_hash(left, _hash((middle, high), entries, ordered, rest, parts))
    parts[span] = node
    return node


def _holds(ordered: Sequence[int], low: int, high: int) -> bool:
    at = bisect_left(ordered, low)
    return at < len(ordered) and ordered[at] < high
