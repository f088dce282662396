"""Checkpoints, and other people's signatures under them."""

import json
from pathlib import Path

import pytest

from proctor.errors import LedgerError, NoteError
from proctor.ledger.claims.witness import cosign_copy, load_copy
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import parse_checkpoint, parse_verifier_key
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.signature import check_signature
from tests.cli.programs import Proctor
from tests.ledger.ledgers import find_key, make_ledger, record_bytes

TIME = 1_700_000_000


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    """A ledger of four entries."""
    return make_ledger(tmp_path, ["a", "b", "c"])


@pytest.fixture
def copy(ledger: OpenLedger, tmp_path: Path) -> Path:
    """A copy of its checkpoint."""
    path = tmp_path / "copy"
    path.write_bytes(ledger.refresh().render())
    return path


def grow(ledger: OpenLedger, trial: str) -> None:
    seal(ledger, [Submission(record=record_bytes(trial), where=trial)])


def test_a_cosignature_stands_under_the_logs_own_and_says_when(copy: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "witness", "example.org/witness")
    cosign_copy(copy, load_copy(copy), key, TIME)
    found = parse_checkpoint(copy.read_bytes(), "copy")
    assert check_signature(found, key.cosigner, "copy") == TIME
    assert check_signature(found, find_key(tmp_path).verifier, "copy") is None


def test_cosigning_twice_changes_nothing(copy: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "witness", "example.org/witness")
    cosign_copy(copy, load_copy(copy), key, TIME)
    before = copy.read_bytes()
    again = cosign_copy(copy, load_copy(copy), key, TIME + 1)
    assert (again.is_new, again.time) == (False, TIME)
    assert copy.read_bytes() == before


def test_several_people_cosign_one_checkpoint(copy: Path, tmp_path: Path) -> None:
    keys = [make_key(tmp_path / f"w{number}", f"example.org/w{number}") for number in range(3)]
    for key in keys:
        cosign_copy(copy, load_copy(copy), key, TIME)
    found = parse_checkpoint(copy.read_bytes(), "copy")
    assert [check_signature(found, key.cosigner, "copy") for key in keys] == [TIME] * 3


def test_the_ledgers_own_checkpoint_is_not_cosigned(ledger: OpenLedger) -> None:
    with pytest.raises(LedgerError, match="the next append replaces; save a copy"):
        load_copy(Path(ledger.where) / "checkpoint")


def test_a_link_to_the_ledgers_own_checkpoint_is_not_cosigned(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(Path(ledger.where) / "checkpoint")
    with pytest.raises(LedgerError, match="the next append replaces"):
        load_copy(link)


def test_what_nobody_signed_is_not_cosigned(copy: Path) -> None:
    unsigned = copy.read_bytes().split(b"\n\n")[0] + b"\n\n"
    copy.write_bytes(unsigned)
    with pytest.raises(NoteError, match=" not signed"):
        load_copy(copy)


def test_the_command_makes_a_key_once_and_prints_the_public_one(
    ledger: OpenLedger, copy: Path, tmp_path: Path, proctor: Proctor
) -> None:
    key = tmp_path / "keys" / "witness"
    log_key = find_key(tmp_path).verifier
    seen = ("--state", tmp_path / "state", "--log-key", log_key)
    arguments = ("ledger", "cosign", copy, "--key", key, "--ledger", Path(ledger.where), *seen)
    refused = proctor(*arguments)
    assert refused.code == 2
    assert "the signing key cannot be read" in refused.err
    made = proctor(*arguments, "--name", "example.org/witness", "--json")
    facts = json.loads(made.out)
    assert (made.code, facts["key_made"], facts["is_new"]) == (0, True, True)
    assert key.stat().st_mode & 0o777 == 0o600
    again = proctor(*arguments)
    assert (again.code, facts["public_key"] in again.out) == (0, True)
    assert "already cosigned; unchanged" in again.out
    public = parse_verifier_key(facts["public_key"])
    checkpoint = parse_checkpoint(copy.read_bytes(), "copy")
    assert check_signature(checkpoint, public, "copy") == facts["time"]
    assert proctor("check", copy, "--key", facts["public_key"]).code == 0


def test_the_command_leaves_no_key_behind_where_nothing_was_cosigned(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    key = tmp_path / "witness"
    own = Path(ledger.where) / "checkpoint"
    ran = proctor("ledger", "cosign", own, "--key", key, "--name", "example.org/witness")
    assert (ran.code, key.exists()) == (2, False)
    assert "save a copy" in ran.err


def test_a_claim_under_a_cosigned_copy_carries_the_cosignature(
    ledger: OpenLedger, copy: Path, tmp_path: Path, proctor: Proctor
) -> None:
    key = make_key(tmp_path / "witness", "example.org/witness")
    cosign_copy(copy, load_copy(copy), key, TIME)
    grow(ledger, "later")
    claim = tmp_path / "claim.json"
    where = ("--ledger", Path(ledger.where), "--checkpoint", copy)
    made = proctor("ledger", "claim", "--experiment", "experiment-001", *where, "-o", claim)
    assert made.code == 0, made.err
    keys = ("--key", find_key(tmp_path).verifier, "--key", key.cosigner)
    ran = proctor("check", claim, *keys)
    assert ran.code == 0
    assert "cosigned by example.org/witness" in ran.out
    assert "2023-11-14T22:13:20Z" in ran.out
