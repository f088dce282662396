"""The leaf hashes of a whole log, 32 bytes each, and its root at any size.

The tree of RFC 6962 level by level: pairs are hashed, and a node without a partner moves up as it
is. The roots of full blocks are cached, so that computing a second root is cheap.
"""

from collections.abc import Iterator

from proctor.digest import sha256_records
from proctor.ledger.tree import EMPTY_ROOT, HASH_SIZE

# Leaves of a perfect subtree whose root is cached.
_BLOCK = 1 << 12
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
        """Add leaves, as concatenated hashes."""
        self._packed += packed
        while len(self._packed) >= (len(self._blocks) + 1) * _BYTES:
            begin = len(self._blocks) * _BYTES
            self._blocks.append(_reduce(bytes(self._packed[begin : begin + _BYTES])))

    def packed(self, begin: int, end: int) -> bytes:
        """The concatenated hashes from `begin` up to before `end`."""
        return bytes(self._packed[begin * HASH_SIZE : end * HASH_SIZE])

    def root(self, size: int) -> bytes:
        """Root of the tree over the first `size` leaves."""
        if size == 0:
            return EMPTY_ROOT
        full = min(size // _BLOCK, len(self._blocks))
        rest = bytes(self._packed[full * _BYTES : size * HASH_SIZE])
        return _reduce(b"".join([*self._blocks[:full], _reduce(rest)]))

    def gives(self, size: int, root: bytes) -> bool:
        """Whether the first `size` leaves have this root."""
        return size <= len(self) and self.root(size) == root


def _reduce(nodes: bytes) -> bytes:
    """The root over nodes of one level; each but the last is a perfect subtree."""
    while len(nodes) > HASH_SIZE:
        even = len(nodes) - len(nodes) % (2 * HASH_SIZE)
        nodes = b"".join([_pair(nodes[:even]), nodes[even:]])
    return nodes


def _pair(nodes: bytes) -> bytes:
    """The next level over an even number of nodes."""
    return b"".join(sha256_records(nodes, 2 * HASH_SIZE, b"\x01"))
