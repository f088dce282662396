"""Proofs as files: what they prove, and what they are refused for."""

import json
from pathlib import Path

import pytest

from proctor.errors import DamageError, LedgerError, ProofError, ProofFileError
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.proof import (
    ConsistencyProof,
    InclusionProof,
    make_consistency,
    make_inclusion,
    parse_proof,
    proven_entry,
    proven_growth,
)
from proctor.ledger.entry import TrialEntry
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import Checkpoint
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.tree import Tree, hash_parts, leaf_hash, prove_entries, root_of, subtree_of
from tests.ledger.ledgers import find_key, make_ledger, record_bytes

LEAVES = [leaf_hash(b"%d" % number) for number in range(40)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 31, 40])
def test_one_proof_leads_from_any_set_of_entries_to_the_root(size: int) -> None:
    leaves = LEAVES[:size]
    for step in range(1, size + 1):
        places = list(range(0, size, step))
        nodes = prove_entries(subtree_of(leaves), len(leaves), places)
        parts = hash_parts({place: leaves[place] for place in places}, size, nodes)
        assert parts[0, size] == root_of(leaves)


def test_a_proof_of_many_entries_has_every_hash_once() -> None:
    assert prove_entries(subtree_of(LEAVES), len(LEAVES), range(40)) == []
    assert len(prove_entries(subtree_of(LEAVES), len(LEAVES), [7])) == 6
    assert len(prove_entries(subtree_of(LEAVES), len(LEAVES), range(8, 16))) == 3


@pytest.mark.parametrize("change", [-1, 1])
def test_a_proof_of_many_entries_with_a_hash_too_few_or_too_many_is_refused(change: int) -> None:
    nodes = prove_entries(subtree_of(LEAVES), len(LEAVES), [3, 20])
    nodes = nodes[:-1] if change < 0 else [*nodes, nodes[0]]
    with pytest.raises(ProofError, match="fewer hashes" if change < 0 else "more hashes"):
        hash_parts({3: LEAVES[3], 20: LEAVES[20]}, 40, nodes)


def test_an_entry_at_another_place_gives_another_root() -> None:
    nodes = prove_entries(subtree_of(LEAVES), len(LEAVES), [3])
    assert hash_parts({2: LEAVES[3]}, 40, nodes)[0, 40] != root_of(LEAVES)


def test_a_tree_of_any_size_that_a_checkpoint_can_state_takes_no_time() -> None:
    with pytest.raises(ProofError, match="fewer hashes"):
        hash_parts({0: LEAVES[0], (1 << 63) - 2: LEAVES[1]}, (1 << 63) - 1, [])


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    """A ledger of six entries, the first its key."""
    return make_ledger(tmp_path, [f"t{number}" for number in range(5)])


def test_every_entry_is_proven_with_its_record(ledger: OpenLedger) -> None:
    checkpoint = ledger.refresh()
    for seq in range(6):
        proof = parse_proof(render_document(make_inclusion(ledger, seq, checkpoint)), "proof")
        assert isinstance(proof, InclusionProof)
        found, entry = proven_entry(proof, "proof")
        assert found == checkpoint
        assert entry is not None
        assert entry.seq == seq
        assert isinstance(entry, TrialEntry) == (seq > 0)


def test_an_entry_is_proven_under_an_older_checkpoint_too(ledger: OpenLedger) -> None:
    older = ledger.refresh()
    seal(ledger, [Submission(record=record_bytes("later"), where="later")])
    ledger.refresh()
    found, _ = proven_entry(make_inclusion(ledger, 3, older), "proof")
    assert found.tree.size == 6
    with pytest.raises(LedgerError, match="no entry 6 among the 6"):
        make_inclusion(ledger, 6, older)


def test_growth_is_proven_between_any_two_checkpoints(ledger: OpenLedger) -> None:
    checkpoints = [ledger.refresh()]
    for number in range(4):
        seal(ledger, [Submission(record=record_bytes(f"more{number}"), where="more")])
        checkpoints.append(ledger.refresh())
    for at, older in enumerate(checkpoints):
        for newer in checkpoints[at:]:
            proof = parse_proof(render_document(make_consistency(ledger, older, newer)), "proof")
            assert isinstance(proof, ConsistencyProof)
            assert proven_growth(proof, "proof") == (older, newer)


def test_a_ledger_that_did_not_grow_from_a_checkpoint_proves_nothing(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    fork = make_ledger(tmp_path / "fork", ["t0", "another", "t2"])
    with pytest.raises(DamageError, match="not those that it signs: they"):
        make_consistency(ledger, fork.refresh(), ledger.refresh())


def test_a_checkpoint_of_another_ledger_is_refused(ledger: OpenLedger, tmp_path: Path) -> None:
    other = OpenLedger.create(tmp_path / "other", find_key(tmp_path), "example.org/other")
    with pytest.raises(LedgerError, match=r"of 'example.org/other'; expected one of"):
        make_consistency(ledger, other.refresh(), ledger.refresh())


def test_two_checkpoints_the_wrong_way_round_are_refused(ledger: OpenLedger) -> None:
    older = ledger.refresh()
    seal(ledger, [Submission(record=record_bytes("later"), where="later")])
    with pytest.raises(LedgerError, match="swap them"):
        make_consistency(ledger, ledger.refresh(), older)


def test_a_line_that_was_edited_on_the_disk_is_not_proven(ledger: OpenLedger) -> None:
    checkpoint = ledger.refresh()
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"t3"', b'"t9"'))
    with pytest.raises(DamageError, match="entry 4 differs from what was signed"):
        make_inclusion(ledger, 4, checkpoint)


def proof_document(ledger: OpenLedger) -> dict[str, object]:
    document: dict[str, object] = json.loads(
        render_document(make_inclusion(ledger, 3, ledger.refresh()))
    )
    return document


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq": 2}, "entry 2 is not in the tree"),
        ({"seq": 6}, "no entry 6 in a tree of 6"),
        ({"seq": (1 << 63) - 1}, "in a tree of 6"),
        ({"path": []}, "shorter than a tree"),
        ({"path": ["ab" * 32] * 9}, "longer than a tree"),
        ({"path": ["ab" * 32] * 3}, "not in the tree"),
        ({"line": '{"at":"","kind":"note","seq":3,"text":"","author":""}'}, "not in the tree"),
    ],
)
def test_a_proof_that_was_meddled_with_proves_nothing(
    ledger: OpenLedger, changes: dict[str, object], message: str
) -> None:
    document = proof_document(ledger) | changes
    proof = parse_proof(json.dumps(document).encode(), "proof")
    assert isinstance(proof, InclusionProof)
    with pytest.raises(DamageError, match=message):
        proven_entry(proof, "proof")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq": -1}, "seq"),
        ({"seq": 10**30}, "seq"),
        ({"seq": "3"}, "seq"),
        ({"format": "proctor-proof-2"}, "expected 'proctor-proof-1'"),
        ({"kind": "exclusion"}, "expected 'inclusion' or 'consistency'"),
        ({"leaf": "ab" * 32}, "either `line` or `leaf`"),
        ({"line": None}, "either `line` or `leaf`"),
        ({"path": ["ab" * 32] * 65}, "no tree is that high"),
        ({"path": [7]}, "path"),
        ({"more": 1}, "more"),
        ({"line": "\ud800"}, "torn or not JSON"),
    ],
)
def test_what_is_no_proof_is_refused_with_a_sentence(
    ledger: OpenLedger, changes: dict[str, object], message: str
) -> None:
    document = proof_document(ledger) | changes
    with pytest.raises(ProofFileError, match=message):
        parse_proof(json.dumps(document).encode(), "proof")


@pytest.mark.parametrize("bad", ["xy" * 32, "AB" * 32, "ab" * 31, "", "٣" * 64])
def test_a_path_of_what_is_no_hash_is_refused(ledger: OpenLedger, bad: str) -> None:
    proof = parse_proof(json.dumps(proof_document(ledger) | {"path": [bad]}).encode(), "proof")
    assert isinstance(proof, InclusionProof)
    with pytest.raises(ProofFileError, match="not a hash; expected 64 hex digits"):
        proven_entry(proof, "proof")


def test_a_key_that_stands_twice_is_refused(ledger: OpenLedger) -> None:
    data = json.dumps(proof_document(ledger)).encode()
    with pytest.raises(ProofFileError, match="'seq' occurs twice"):
        parse_proof(data[:-1] + b', "seq": 3}', "proof")


def prove_lines(*lines: bytes) -> InclusionProof:
    """The proof of the last of these lines, whatever it holds."""
    checkpoint = Checkpoint("example.org/x", _tree(lines))
    leaves = [leaf_hash(line) for line in lines]
    nodes = prove_entries(subtree_of(leaves), len(leaves), [len(lines) - 1])
    return InclusionProof(
        format="proctor-proof-1",
        kind="inclusion",
        checkpoint=checkpoint.render().decode(),
        seq=len(lines) - 1,
        line=lines[-1].decode(),
        path=[node.hex() for node in nodes],
    )


def _tree(lines: tuple[bytes, ...]) -> Tree:
    return Tree(len(lines), root_of(leaf_hash(line) for line in lines))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"at":"","kind":"note","seq":7,"text":"","author":""}', "says that it is entry 7"),
        (b'{"at":"","kind":"note","seq":1,"seq":1,"text":"","author":""}', "occurs twice"),
        (b'{"withheld":"' + b"ab" * 32 + b'","seq":1}', "placeholder of a withheld entry"),
        (b"[1]", "not an entry"),
        (b"[" * 100_000, "recursion"),
        (b'{"at":"","kind":"vote","seq":1}', "kind 'vote'"),
    ],
)
def test_a_line_that_is_in_the_tree_and_is_not_that_entry_is_refused(
    line: bytes, message: str
) -> None:
    with pytest.raises(DamageError, match=message):
        proven_entry(prove_lines(b"first", line), "proof")


def test_a_proof_of_a_hundred_megabytes_is_refused() -> None:
    with pytest.raises(ProofFileError, match="at most 67,108,864"):
        parse_proof(b'{"format":"' + b"x" * 100_000_000 + b'"}', "proof")
