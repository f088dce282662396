"""A change of keys is signed for its place in one log; a key that was replaced signs no more."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from proctor.errors import KeyFileError
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import VerifierKey, parse_verifier_key
from proctor.ledger.tree import (
    hash_parts,
    leaf_hash,
    prove_entries,
    root_before_entry,
    root_of,
    subtree_of,
)
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.verify import verify_ledger
from tests.cli.programs import Proctor
from tests.ledger.by_hand import append_by_hand, hand_over, trial
from tests.ledger.ledgers import EXPERIMENT, find_key, small
from tests.ledger.test_independent_checker import CHECKER, run

SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
)
"""All points whose order divides 8."""


@pytest.fixture
def keys(tmp_path: Path) -> list[SigningKey]:
    """Three keys, the first of them the ledger's."""
    more = [make_key(tmp_path / name, f"example.org/{name}") for name in ("b", "c")]
    return [find_key(tmp_path), *more]


def damage_of(directory: Path, key: SigningKey | None = None) -> set[DamageKind]:
    found = verify_ledger(directory, key=key.verifier if key else None)
    return {each.kind for each in found.damage}


def check_printed(directory: Path) -> int:
    (directory.parent / "checker.py").write_text(CHECKER.read_text())
    return run(directory.parent, sys.executable, "-I", "checker.py", directory.name).returncode


def test_a_change_of_keys_binds_its_place_and_the_log(
    tmp_path: Path, keys: Sequence[SigningKey], proctor: Proctor
) -> None:
    directory, (first, second, third) = small(tmp_path, "t1", "t2"), keys
    for former, heir in ((first, second), (second, third)):
        with OpenLedger.open(directory, key=former) as ledger:
            ledger.refresh()
            ledger.change_key(heir)
    found = verify_ledger(directory, key=first.verifier)
    assert (found.is_sound, found.notes) == (True, [])
    assert check_printed(directory) == 0
    pub = tmp_path / "pub"
    pub.write_text(str(first.verifier))
    claim, bundle = tmp_path / "claim.json", tmp_path / "bundle.tar.zst"
    where = ("--ledger", directory)
    proctor("ledger", "claim", "--experiment", EXPERIMENT, *where, "-o", claim)
    proctor("export", *where, "-o", bundle)
    for made in (claim, bundle):
        ran = proctor("check", made, "--key", pub)
        assert ran.code == 0, ran.out + ran.err


@pytest.mark.parametrize(
    "changes",
    [{"root": "0" * 64}, {"root": "ab"}, {"root": ""}, {"key": "example.org/b+00000000+AAAA"}],
    ids=["another-log", "no-root", "no-place", "no-key"],
)
def test_a_handover_of_another_log_is_none(
    tmp_path: Path, keys: Sequence[SigningKey], changes: dict[str, object]
) -> None:
    directory, (first, second, _) = small(tmp_path, "t1"), keys
    append_by_hand(directory, second, hand_over(directory, first, second, **changes))
    assert DamageKind.BAD_KEY_CHANGE in damage_of(directory)
    assert check_printed(directory) != 0


def test_a_handover_of_another_place_is_none(tmp_path: Path, keys: Sequence[SigningKey]) -> None:
    directory, (first, second, _) = small(tmp_path, "t1"), keys
    kept = hand_over(directory, first, second)
    append_by_hand(directory, first, trial("t2"))
    append_by_hand(directory, second, kept)
    assert DamageKind.BAD_KEY_CHANGE in damage_of(directory)
    assert check_printed(directory) != 0


def test_a_key_that_was_replaced_signs_nothing_again(
    tmp_path: Path, keys: Sequence[SigningKey], proctor: Proctor
) -> None:
    directory, (first, second, _) = small(tmp_path, "t1"), keys
    append_by_hand(directory, second, hand_over(directory, first, second))
    append_by_hand(directory, first, hand_over(directory, second, first))
    assert DamageKind.BAD_KEY_CHANGE in damage_of(directory, first)
    assert check_printed(directory) != 0
    ran = proctor("ledger", "claim", "--experiment", EXPERIMENT, "--ledger", directory)
    assert (ran.code, "signed before and was replaced" in ran.err) == (1, True)


def test_a_ledger_is_not_given_back_to_a_key_that_it_had(
    tmp_path: Path, keys: Sequence[SigningKey]
) -> None:
    directory, (first, second, _) = small(tmp_path), keys
    again = SigningKey("example.org/other-name", first.private)
    with OpenLedger.open(directory, key=first) as ledger:
        ledger.refresh()
        ledger.change_key(second)
        for former in (first, again):
            with pytest.raises(KeyFileError, match="entry 0, which was replaced"):
                ledger.change_key(former)
    assert damage_of(directory) == set()


def test_a_claim_with_a_handover_of_another_log_proves_nothing(
    tmp_path: Path, keys: Sequence[SigningKey], proctor: Proctor
) -> None:
    directory, (first, second, _) = small(tmp_path, "t1"), keys
    with OpenLedger.open(directory, key=first) as ledger:
        ledger.refresh()
        ledger.change_key(second)
    claim, pub = tmp_path / "claim.json", tmp_path / "pub"
    pub.write_text(str(first.verifier))
    where = ("--ledger", directory, "-o", claim)
    assert proctor("ledger", "claim", "--experiment", EXPERIMENT, *where).code == 0
    document = json.loads(claim.read_text())
    *rest, last = document["entries"]
    document["entries"] = rest
    document["nodes"] = [*document["nodes"], leaf_hash(last["line"].encode()).hex()]
    claim.write_text(json.dumps(document))
    # Without the entry that names the heir, the heir's signature is nobody's.
    ran = proctor("check", claim, "--key", pub)
    assert (ran.code, "no signature by example.org/me+" in ran.out) == (1, True)


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_key_of_small_order_is_refused(point: str) -> None:
    weak = VerifierKey("example.org/weak", bytes.fromhex(point))
    with pytest.raises(KeyFileError, match="small order"):
        parse_verifier_key(str(weak))


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("ed" + "ff" * 30 + "7f", "too large"),
        ("01" + "00" * 30 + "80", "is 0 with its sign bit set"),
        ("02" + "00" * 31, "not a point of the curve"),
    ],
)
def test_bytes_that_are_no_key_are_refused(point: str, said: str) -> None:
    with pytest.raises(KeyFileError, match=said):
        parse_verifier_key(str(VerifierKey("a", bytes.fromhex(point))))


def test_no_key_of_small_order_signs_a_ledger(tmp_path: Path, keys: Sequence[SigningKey]) -> None:
    directory = small(tmp_path, "t1")
    weak = VerifierKey("example.org/weak", bytes.fromhex(SMALL_ORDER[0]))
    append_by_hand(directory, keys[0], hand_over(directory, keys[0], keys[1], key=str(weak)))
    assert damage_of(directory) == {DamageKind.BAD_KEY_CHANGE}


def test_the_root_before_an_entry_follows_from_its_proof() -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(33)]
    for size in range(1, len(leaves) + 1):
        for place in range(size):
            wanted = root_of(leaves[:place])
            places = sorted({0, place, size // 2})
            nodes = prove_entries(subtree_of(leaves), size, places)
            parts = hash_parts({at: leaves[at] for at in places}, size, nodes)
            assert root_before_entry(parts, size, place) == wanted
