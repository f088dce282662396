"""One proof for many entries of a tree: every hash that is needed, once.

The tree is walked from its root, left before right. A part that holds no entry of ours gives one
hash to the list; a part that is one entry of ours gives none, as its leaf is at hand; any other is
split where RFC 6962 splits it. Whoever checks walks the same way and takes the hashes in order.
Pure, like the tree.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from proctor.errors import ProofError
from proctor.ledger.tree import node_hash, root_of

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


def root_from(entries: Mapping[int, bytes], size: int, nodes: Sequence[bytes]) -> bytes:
    """The root that the leaves at these places and the hashes of a proof make.

    Raises:
        ProofError: there are too few hashes or too many, or a place is not in the tree.
    """
    ordered = sorted(entries)
    if not ordered or ordered[0] < 0 or ordered[-1] >= size:
        raise ProofError(f"there is no such set of entries in a tree of {size}")
    rest = iter(nodes)
    root = _root(entries, ordered, (0, size), rest)
    if next(rest, None) is not None:
        raise ProofError(f"the proof has more hashes than {len(entries)} entries need")
    return root


def _root(
    entries: Mapping[int, bytes], ordered: Sequence[int], span: Span, rest: Iterator[bytes]
) -> bytes:
    low, high = span
    if not _holds(ordered, low, high):
        node = next(rest, None)
        if node is None:
            raise ProofError(f"the proof has fewer hashes than {len(entries)} entries need")
        return node
    if high - low == 1:
        return entries[low]
    middle = _middle(low, high)
    left = _root(entries, ordered, (low, middle), rest)
    return node_hash(left, _root(entries, ordered, (middle, high), rest))


def _holds(ordered: Sequence[int], low: int, high: int) -> bool:
    at = bisect_left(ordered, low)
    return at < len(ordered) and ordered[at] < high


def _middle(low: int, high: int) -> int:
    """Where a part of the tree is split: behind the largest power of two below its size."""
    return low + (1 << ((high - low - 1).bit_length() - 1))
