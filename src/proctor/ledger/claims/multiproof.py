"""One proof for many entries of a tree: every hash that is needed, once.

The tree is walked from its root, left before right. A part that holds no entry of ours gives one
hash to the list; a part that is one entry of ours gives none, as its leaf is at hand; any other is
split where RFC 6962 splits it. Whoever checks walks the same way and takes the hashes in order.
Pure, like the tree.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from proctor.errors import ProofError
from proctor.ledger.tree import EMPTY_ROOT, node_hash, root_of

type Span = tuple[int, int]


def prove_entries(leaves: Sequence[bytes], places: Sequence[int]) -> list[bytes]:
    """The hashes that lead from the entries at these places to the root.

    Raises:
        ProofError: a place is not in the tree.
    """
    ordered = sorted(set(places))
    if not ordered or ordered[0] < 0 or ordered[-1] >= len(leaves):
        raise ProofError(f"there is no such set of entries in a tree of {len(leaves)}")
    nodes: list[bytes] = []
    spans: list[Span] = [(0, len(leaves))]
    while spans:
        low, high = spans.pop()
        if not _holds(ordered, low, high):
            nodes.append(root_of(leaves[place] for place in range(low, high)))
        elif high - low > 1:
            middle = _middle(low, high)
            spans += [(middle, high), (low, middle)]
    return nodes


type Parts = Mapping[Span, bytes]
"""Hashes of the parts of a tree that a proof leads through."""


def root_from(entries: Mapping[int, bytes], size: int, nodes: Sequence[bytes]) -> bytes:
    """The root that the leaves at these places and the hashes of a proof make.

    Raises:
        ProofError: there are too few hashes or too many, or a place is not in the tree.
    """
    return hash_parts(entries, size, nodes)[0, size]


def find_root_before(parts: Parts, size: int, place: int) -> bytes:
    """Root of the tree before an entry of the proof: its parts are all in there."""
    low, high, lefts = 0, size, list[bytes]()
    while high - low > 1:
        middle = _middle(low, high)
        if place < middle:
            high = middle
        else:
            lefts.append(parts[low, middle])
            low = middle
    return (
        reduce(lambda root, left: node_hash(left, root), reversed(lefts)) if lefts else EMPTY_ROOT
    )


def hash_parts(entries: Mapping[int, bytes], size: int, nodes: Sequence[bytes]) -> Parts:
    """All that the leaves at these places and the hashes of a proof make, up to the root.

    Raises:
        ProofError: there are too few hashes or too many, or a place is not in the tree.
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
        middle = _middle(low, high)
        left = _hash((low, middle), entries, ordered, rest, parts)
        node = node_hash(left, _hash((middle, high), entries, ordered, rest, parts))
    parts[span] = node
    return node


def _holds(ordered: Sequence[int], low: int, high: int) -> bool:
    at = bisect_left(ordered, low)
    return at < len(ordered) and ordered[at] < high


def _middle(low: int, high: int) -> int:
    """Where a part of the tree is split: behind the largest power of two below its size."""
    return low + (1 << ((high - low - 1).bit_length() - 1))
