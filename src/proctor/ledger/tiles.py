"""The Merkle tree of a ledger in tiles, as C2SP tlog-tiles names them, and proofs read from them.

    tile/L/N[.p/W]          256 (or W) hashes of level L: each is the root over 256 of level L - 1
    tile/entries/N[.p/W]    256 (or W) entries

N is written in groups of three digits, all but the last with an `x` before them: x001/x234/067.
Entry bundles are proctor's own: stored lines, each with its newline, because the bundles of the
specification hold at most 64 KiB an entry. A withheld line is there as its placeholder.

The index has the hashes (`TrialIndex.hashes`), those of tiles and one level between two of them: a
proof of a million entries reads some eighty hashes.
"""

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.log import read_lines
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tree import BRANCHES, EMPTY_ROOT, node_hash, root_of, split
from proctor.ledger.trial_index import TrialIndex

TILE = 256
"""Hashes of a complete tile, and entries of a complete bundle."""
HIGHEST_LEVEL = 63
# Levels of the index between two levels of tiles.
_STEP = 2
# Binary levels between two levels of the index.
_HEIGHT = 4
_KEPT = 4096
_PATH = re.compile(
    r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?"
)


class Tile(NamedTuple):
    """What a path names."""

    level: int | None
    """None: a bundle of entries."""
    number: int
    width: int = TILE
    """Hashes or entries in it; fewer than 256 in a partial one."""


def tile_path(level: int | None, number: int, width: int = TILE) -> str:
    """The path of a tile; without a level, of a bundle."""
    digits = str(number)
    digits = digits.zfill(len(digits) + -len(digits) % 3)
    *groups, last = (digits[at : at + 3] for at in range(0, len(digits), 3))
    of = "entries" if level is None else str(level)
    part = f".p/{width}" if width < TILE else ""
    return "/".join(["tile", of, *(f"x{group}" for group in groups), last]) + part


def parse_tile_path(path: str) -> Tile:
    """Parse the path of a tile or a bundle.

    Raises:
        InputError: it is none; every tile has exactly one path.
    """
    if found := _PATH.fullmatch(path):
        level, number, width = found.groups()
        tile = Tile(
            None if level == "entries" else int(level),
            int(number.replace("/", "").replace("x", "")),
            int(width or TILE),
        )
        if (tile.level or 0) <= HIGHEST_LEVEL and tile_path(*tile) == path:
            return tile
    raise InputError(
        f"{path[:120]!r} is not a tile; expected tile/0/000, tile/1/x001/234.p/56 or "
        "tile/entries/000"
    )


def list_tiles(size: int, since: int = 0) -> list[Tile]:
    """The tiles and bundles of a tree, partial ones last, that a tree of `since` does not have."""
    full: list[Tile] = []
    partial: list[Tile] = []
    level: int | None = None
    while True:
        full += [Tile(level, number) for number in range(since // TILE, size // TILE)]
        if size % TILE and size != since:
            partial.append(Tile(level, size // TILE, size % TILE))
        if level is not None:
            size, since = size // TILE, since // TILE
        level = 0 if level is None else level + 1
        if not size or level > HIGHEST_LEVEL:
            return full + partial


def tile_hashes(index: TrialIndex, level: int, number: int, width: int = TILE) -> bytes:
    """The hashes of a tile, concatenated.

    Raises:
        LedgerError: the tree has fewer.
    """
    found = index.hashes(_STEP * level, number * TILE, number * TILE + width)
    if len(found) < width:
        path = tile_path(level, number, width)
        raise LedgerError(f"{path}: not in a tree of {index.size():,} entries")
    return b"".join(found)


def entry_bundle(ledger: LedgerReader, number: int, width: int = TILE) -> bytes:
    """The stored lines of a bundle, each with its newline; call `refresh` first.

    Raises:
        LedgerError: the log has fewer.
    """
    size, first = ledger.index.size(), ledger.index.entry(number * TILE)
    if first is None or number * TILE + width > size:
        path = tile_path(None, number, width)
        raise LedgerError(f"{path}: not in a log of {size:,} entries")
    lines = islice(read_lines(ledger.log, first.place), width)
    return b"".join(line.data + b"\n" for line in lines)


class TiledTree:
    """The tree over the first entries of an index, hashed from what the index has of it."""

    def __init__(self, index: TrialIndex, size: int) -> None:
        self.size = size

        # A claim asks for thousands of neighbours.
        @lru_cache(maxsize=_KEPT)
        def read_branches(level: int, begin: int) -> list[bytes]:
            return index.hashes(level, begin, begin + BRANCHES)

        self._branches = read_branches

    def leaf(self, seq: int) -> bytes:
        """The leaf hash of an entry."""
        return self._hashes(0, seq, seq + 1)[0]

    def root(self) -> bytes:
        """The root of the tree."""
        return self.subtree(0, self.size) if self.size else EMPTY_ROOT

    def subtree(self, low: int, high: int) -> bytes:
        """The root over entries from `low` up to before `high`, where RFC 6962 splits the tree."""
        length = high - low
        if length & (length - 1):
            middle = split(low, high)
            return node_hash(self.subtree(low, middle), self.subtree(middle, high))
        # A perfect subtree: at most 8 hashes of one level, all below one hash of the next.
        level = (length.bit_length() - 1) // _HEIGHT
        shift = level * _HEIGHT
        return root_of(self._hashes(level, low >> shift, high >> shift))

    def _hashes(self, level: int, first: int, end: int) -> list[bytes]:
        begin = first - first % BRANCHES
        found = self._branches(level, begin)[first - begin : end - begin]
        if len(found) < end - first:
            raise DamageError(
                f"the index lacks hashes of the tree at level {level}; run `proctor ledger verify`"
            )
        return found
