"""Leaves: the leaf hashes of a whole log, 32 bytes each, and its root at any size.

RFC 6962's tree, level by level: pairs are hashed, and a node without a partner moves up as it is.
The roots of full blocks are kept, so that a second root costs little.
"""

from collections.abc import Iterator

from proctor.digest import sha256_records
from proctor.ledger.tree import EMPTY_ROOT, HASH_SIZE

_BLOCK = 1 << 12
"""Leaves of a perfect subtree whose root is kept."""
_BYTES = _BLOCK * HASH_SIZE


class Leaves:
    """The leaf hashes of a log, in order."""

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = bytearray(packed)
        self._blocks: list[bytes] = []

    def __len__(self) -> int:
        return len(self._packed) // HASH_SIZE

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return bytes(self._packed[index * HASH_SIZE : (index + 1) * HASH_SIZE])

    def __iter__(self) -> Iterator[bytes]:
        packed = self._packed
        for at in range(0, len(packed), HASH_SIZE):
            yield bytes(packed[at : at + HASH_SIZE])

    def extend(self, packed: bytes) -> None:
        """Take more leaves, as their bytes one after the other."""
        self._packed += packed
        while len(self._packed) >= (len(self._blocks) + 1) * _BYTES:
            begin = len(self._blocks) * _BYTES
            self._blocks.append(_reduce(bytes(self._packed[begin : begin + _BYTES])))

    def packed(self, begin: int, end: int) -> bytes:
        """The bytes of some of them."""
        return bytes(self._packed[begin * HASH_SIZE : end * HASH_SIZE])

    def root(self, size: int) -> bytes:
        """Root of the tree over the first of them."""
        if size == 0:
            return EMPTY_ROOT
        full = min(size // _BLOCK, len(self._blocks))
        rest = bytes(self._packed[full * _BYTES : size * HASH_SIZE])
        return _reduce(b"".join([*self._blocks[:full], _reduce(rest)]))

    def gives(self, size: int, root: bytes) -> bool:
        """Whether the first of them are a tree with this root."""
        return size <= len(self) and self.root(size) == root


def _reduce(nodes: bytes) -> bytes:
    """The root over nodes of one level, each but the last a perfect subtree."""
    while len(nodes) > HASH_SIZE:
        even = len(nodes) - len(nodes) % (2 * HASH_SIZE)
        above = sha256_records(nodes[:even], 2 * HASH_SIZE, b"\x01")
        nodes = b"".join([*above, nodes[even:]])
    return nodes
