"""The tree of RFC 6962, with the roots and paths that Certificate Transparency publishes."""

import hashlib
import random

import pytest

from proctor.errors import ProofError
from proctor.ledger.tree import (
    EMPTY_ROOT,
    Frontier,
    Tree,
    check_consistency,
    check_inclusion,
    consistency_path,
    inclusion_path,
    leaf_hash,
    node_hash,
    root_of,
    subtree_of,
)
from proctor.ledger.verification.leaves import Leaves

INPUTS = [
    bytes.fromhex(text)
    for text in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
"""The leaves of the tree that Certificate Transparency's own tests use."""
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""The roots over the first one, two, … eight of them."""
LEAVES = [leaf_hash(data) for data in INPUTS]


def textbook_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962, section 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = textbook_root(leaves[:split]), textbook_root(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@pytest.mark.parametrize("size", range(1, 9))
def test_the_roots_are_the_published_ones(size: int) -> None:
    assert root_of(LEAVES[:size]).hex() == ROOTS[size - 1]
    assert Leaves(b"".join(LEAVES)).root(size).hex() == ROOTS[size - 1]


def test_the_root_of_nothing_is_the_hash_of_nothing() -> None:
    assert root_of([]) == Leaves().root(0) == EMPTY_ROOT == hashlib.sha256(b"").digest()


def test_a_published_path_leads_to_the_root() -> None:
    path = [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    assert [step.hex() for step in inclusion_path(subtree_of(LEAVES), 8, 5)] == path
    check_inclusion(LEAVES[5], 5, 8, [bytes.fromhex(step) for step in path], root_of(LEAVES))


def test_a_published_consistency_path_leads_from_root_to_root() -> None:
    path = [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    assert [step.hex() for step in consistency_path(subtree_of(LEAVES), 8, 6)] == path
    older, newer = Tree(6, bytes.fromhex(ROOTS[5])), Tree(8, bytes.fromhex(ROOTS[7]))
    check_consistency(older, newer, [bytes.fromhex(step) for step in path])


@pytest.mark.parametrize("size", [*range(40), 63, 64, 65, 1000, 4095, 4096, 4097, 8192, 9001])
def test_three_ways_to_a_root_are_one(size: int) -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(size)]
    frontier, packed = Frontier(), Leaves()
    frontier.extend(leaves)
    for at in range(0, size, 700):
        packed.extend(b"".join(leaves[at : at + 700]))
    assert frontier.root() == packed.root(size) == textbook_root(leaves)
    assert packed.root(size // 3) == textbook_root(leaves[: size // 3])
    assert list(packed) == leaves


@pytest.mark.parametrize("size", [*range(1, 20), 100])
def test_every_proof_holds_and_none_holds_for_another(size: int) -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(size)]
    root, chance = root_of(leaves), random.Random(size)
    for index in range(size):
        path = inclusion_path(subtree_of(leaves), size, index)
        check_inclusion(leaves[index], index, size, path, root)
        for wrong in ([*path, root], path[:-1], [leaf_hash(b"x"), *path[1:]]):
            if wrong != path:
                with pytest.raises(ProofError):
                    check_inclusion(leaves[index], index, size, wrong, root)
        with pytest.raises(ProofError):
            check_inclusion(leaf_hash(b"x"), index, size, path, root)
    for older in range(1, size):
        path = consistency_path(subtree_of(leaves), size, older)
        check_consistency(Tree(older, root_of(leaves[:older])), Tree(size, root), path)
        forged = root_of([*leaves[: older - 1], leaf_hash(b"x")])
        with pytest.raises(ProofError):
            check_consistency(Tree(older, forged), Tree(size, root), path)
        at = chance.randrange(len(path))
        bent = [*path[:at], leaf_hash(b"x"), *path[at + 1 :]]
        with pytest.raises(ProofError):
            check_consistency(Tree(older, root_of(leaves[:older])), Tree(size, root), bent)


def test_a_leaf_is_no_node() -> None:
    left, right = LEAVES[:2]
    assert leaf_hash(left + right) != node_hash(left, right)


@pytest.mark.parametrize("index", [-1, 8, 100])
def test_there_is_no_proof_of_an_entry_that_is_not_there(index: int) -> None:
    with pytest.raises(ProofError, match="no entry"):
        inclusion_path(subtree_of(LEAVES), 8, index)
    with pytest.raises(ProofError, match="no entry"):
        check_inclusion(LEAVES[0], index, 8, [], root_of(LEAVES))
