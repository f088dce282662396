"""One Merkle proof for many entries, with every needed hash once.

The tree is walked from its root, left before right. A subtree without a proven entry adds one hash
to the list; a proven leaf adds none, because its hash is known; any other subtree is split where
RFC 6962 splits it. The checker walks the same way and takes the hashes in order. Pure functions.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from proctor.errors import ProofError
from proctor.ledger.tree import EMPTY_ROOT, Subtree, node_hash, split

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
