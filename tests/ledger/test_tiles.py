"""The tree in tiles: paths as tlog-tiles has them, and the proofs that all leaves would give."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.claims.proof import make_inclusion
from proctor.ledger.entry import NoteEntry
from proctor.ledger.index import Index
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import Place
from proctor.ledger.tiles import (
    Tile,
    TiledTree,
    entry_bundle,
    list_tiles,
    parse_tile_path,
    tile_hashes,
    tile_path,
)
from proctor.ledger.tree import (
    Frontier,
    consistency_path,
    inclusion_path,
    leaf_hash,
    prove_entries,
    root_of,
    subtree_of,
)
from proctor.ledger.trial_index import Indexed, Position
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import ORIGIN, find_key

SIZE = 70_000
NOTES = 600


def make_note(number: int) -> NoteEntry:
    return NoteEntry(at="2026-11-15T10:00:00Z", seq=number, text=f"note {number}", author="ana")


@pytest.fixture(scope="module")
def leaves() -> list[bytes]:
    return [leaf_hash(b"%d" % number) for number in range(SIZE)]


@pytest.fixture(scope="module")
def index(leaves: list[bytes]) -> Iterator[Index]:
    """An index with three levels, filled in batches of odd sizes."""
    chance, frontier = random.Random(7), Frontier()
    with contextlib.closing(Index.in_memory(ORIGIN)) as index:
        while (begin := frontier.size) < SIZE:
            some = leaves[begin : begin + chance.choice((1, 255, 256, 257, 3001))]
            frontier.extend(some)
            lines = [
                Indexed(Place(), 1, leaf, make_note(begin + at)) for at, leaf in enumerate(some)
            ]
            assert index.add(lines, Position(Place(), frontier.copy(), ""), after=begin)
        yield index


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenLedger]:
    """A ledger of notes."""
    place = tmp_path_factory.mktemp("tiles")
    with OpenLedger.create(place / "ledger", find_key(place), ORIGIN) as ledger:
        with ledger.writing():
            ledger.append([make_note(number) for number in range(NOTES)])
        ledger.refresh()
        yield ledger


PATHS = {
    "tile/0/000": Tile(0, 0),
    "tile/1/067.p/112": Tile(1, 67, 112),
    "tile/0/x001/x234/067": Tile(0, 1_234_067),
    "tile/63/x123/456.p/255": Tile(63, 123_456, 255),
    "tile/entries/x273/112": Tile(None, 273_112),
    "tile/entries/000.p/1": Tile(None, 0, 1),
}


@pytest.mark.parametrize(("path", "tile"), PATHS.items())
def test_a_tile_has_the_path_of_tlog_tiles(path: str, tile: Tile) -> None:
    assert tile_path(*tile) == path
    assert parse_tile_path(path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "tile/0/0", "tile/00/000", "tile/64/000", "tile/-1/000", "tile/0/x000/001", "tile/0/1000",
        "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000/", "/tile/0/000",
        "tile/0/x001/x002", "tile/0/\u0660\u0660\u0660", "tile/0/000\n", "tile/../000",
        "tile/entries", "",
    ],
)  # fmt: skip
def test_no_other_path_names_a_tile(path: str) -> None:
    with pytest.raises(InputError, match="is not a tile"):
        parse_tile_path(path)


def test_a_tile_has_the_roots_over_the_tile_below(index: Index, leaves: list[bytes]) -> None:
    assert tile_hashes(index, 0, 3) == b"".join(leaves[768:1024])
    last = SIZE // 256
    assert tile_hashes(index, 0, last, SIZE % 256) == b"".join(leaves[last * 256 :])
    assert tile_hashes(index, 1, 0)[32:64] == root_of(leaves[256:512])
    assert tile_hashes(index, 2, 0, 1) == root_of(leaves[:65536])
    for level, number, width in ((0, last, 256), (1, 1, 256), (2, 0, 2), (3, 0, 1)):
        with pytest.raises(LedgerError, match="not in a tree of 70,000 entries"):
            tile_hashes(index, level, number, width)


def test_the_tiles_of_a_tree_are_listed_and_those_of_a_smaller_one_left_out(index: Index) -> None:
    everything = list_tiles(SIZE)
    assert len(everything) == 2 * 274 + 2 + 1
    for tile in everything:
        if tile.level is not None:
            assert len(tile_hashes(index, tile.level, tile.number, tile.width)) == tile.width * 32
    assert list_tiles(SIZE, SIZE) == list_tiles(0) == []
    assert list_tiles(513, 512) == [Tile(None, 2, 1), Tile(0, 2, 1)]
    assert set(list_tiles(600, 500)) | set(list_tiles(500)) >= set(list_tiles(600))


def test_proofs_are_those_of_all_leaves(index: Index, leaves: list[bytes]) -> None:
    chance = random.Random(11)
    sizes = [1, 2, 255, 256, 257, 511, 513, 65535, 65536, 65537, SIZE]
    for size in [*sizes, *(chance.randint(1, 3000) for _ in range(40))]:
        tree, some = TiledTree(index, size), leaves[:size]
        assert tree.root() == root_of(some)
        seq, older = chance.randrange(size), chance.randint(0, size)
        assert tree.leaf(seq) == leaves[seq]
        assert inclusion_path(tree.subtree, size, seq) == inclusion_path(
            subtree_of(some), size, seq
        )
        expected = consistency_path(subtree_of(some), size, older)
        assert consistency_path(tree.subtree, size, older) == expected
        places = [chance.randrange(size) for _ in range(chance.randint(1, 9))]
        asked = prove_entries(tree.subtree, size, places)
        assert asked == prove_entries(subtree_of(some), size, places)


def test_a_proof_reads_few_hashes_however_long_the_log_is(index: Index) -> None:
    class Counting:
        read = 0

        def hashes(self, level: int, first: int, end: int) -> list[bytes]:
            found = index.hashes(level, first, end)
            self.read += len(found)
            return found

    counting = Counting()
    tree = TiledTree(counting, SIZE)  # type: ignore[arg-type]
    tree.root()
    inclusion_path(tree.subtree, SIZE, 1234)
    assert counting.read <= 16 * 10


def test_a_bundle_has_the_stored_lines(ledger: OpenLedger) -> None:
    whole = b"".join(ledger.line(seq) + b"\n" for seq in range(NOTES + 1))
    bundles = [entry_bundle(ledger, *tile[1:]) for tile in list_tiles(NOTES + 1) if tile[0] is None]
    assert b"".join(bundles) == whole
    assert entry_bundle(ledger, 2, 5) == b"".join(ledger.line(512 + at) + b"\n" for at in range(5))
    for number, width in ((2, 256), (9, 1)):
        with pytest.raises(LedgerError, match="not in a log of 601 entries"):
            entry_bundle(ledger, number, width)


def test_a_wrong_hash_in_the_index_gives_no_wrong_proof_and_verify_repairs_it(
    ledger: OpenLedger,
) -> None:
    checkpoint = ledger.refresh()
    proof = make_inclusion(ledger, 7, checkpoint)
    assert isinstance(ledger.index, Index)
    ledger.index.connection.execute(
        "UPDATE hashes SET hash = zeroblob(32) WHERE level = 1 AND number = 1"
    )
    with pytest.raises(DamageError):
        make_inclusion(ledger, 7, checkpoint)
    found = verify_ledger(Path(ledger.where))
    assert found.is_sound
    with OpenLedger.open(ledger.where) as again:
        again.refresh()
        assert make_inclusion(again, 7, checkpoint) == proof
