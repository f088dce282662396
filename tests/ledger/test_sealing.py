"""What is sealed, what is sealed already, and what is refused with nothing written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.errors import (
    ConflictError,
    DamageError,
    KeyFileError,
    NotSealedError,
    ProctorError,
)
from proctor.ledger.entry import TrialEntry, record_digest
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Secrets, Submission, seal
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import EXPERIMENT, find_key, make_ledger, record_bytes


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[OpenLedger]:
    with make_ledger(tmp_path) as made:
        yield made


def submit(trial: str, /, **changes: object) -> Submission:
    return Submission(record=record_bytes(trial, **changes), where=trial)


def files_below(directory: Path) -> dict[str, bytes]:
    """All that a reader can see of a ledger."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_record_keeps_every_byte_but_the_blanks(ledger: OpenLedger) -> None:
    (sealed,) = seal(ledger, [submit("a", **{"evaluation.reward": 1})])
    ledger.refresh()
    entry = ledger.entry(sealed.seq)
    assert isinstance(entry, TrialEntry)
    stored = bytes(entry.record)
    assert b'"reward":1,' in stored
    assert json.loads(stored) == json.loads(record_bytes("a", **{"evaluation.reward": 1}))
    assert sealed.record == record_digest(entry) == sha256_hex(stored)


def test_complete_records_are_sealed_and_partial_ones_are_diagnostic(ledger: OpenLedger) -> None:
    complete, partial = seal(ledger, [submit("a"), submit("b", completeness="partial")])
    assert (complete.status, partial.status) == ("sealed", "diagnostic")


def test_the_same_bytes_again_change_nothing_and_say_so(ledger: OpenLedger) -> None:
    (first,) = seal(ledger, [submit("a")])
    before = files_below(Path(ledger.where))
    (again,) = seal(ledger, [submit("a")])
    assert (again.seq, again.is_new) == (first.seq, False)
    assert files_below(Path(ledger.where)) == before


def test_the_same_trial_twice_in_one_batch_is_one_entry(ledger: OpenLedger) -> None:
    first, second = seal(ledger, [submit("a"), submit("a")])
    assert first.seq == second.seq
    assert ledger.checkpoint().tree.size == 2


def test_other_bytes_under_the_same_name_are_refused_with_both_digests(ledger: OpenLedger) -> None:
    (first,) = seal(ledger, [submit("a")])
    before = files_below(Path(ledger.where))
    with pytest.raises(ConflictError) as refused:
        seal(ledger, [submit("b"), submit("a", **{"evaluation.reward": 0.0})])
    assert first.record in str(refused.value)
    assert files_below(Path(ledger.where)) == before


def test_other_evidence_for_the_same_record_is_refused(ledger: OpenLedger, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("one")
    evidenced = Submission(record=record_bytes("a"), where="a", root=tmp_path, evidence=("trace",))
    seal(ledger, [evidenced])
    (tmp_path / "trace").write_text("two")
    with pytest.raises(ConflictError, match="with the evidence"):
        seal(ledger, [evidenced])


def test_a_trial_of_another_experiment_is_another_trial(ledger: OpenLedger) -> None:
    seal(ledger, [submit("a"), submit("a", experiment_id="other")])
    assert ledger.checkpoint().tree.size == 3


@pytest.mark.parametrize("place", ["record", "evidence", "across a boundary"])
def test_a_declared_secret_is_not_sealed(ledger: OpenLedger, tmp_path: Path, place: str) -> None:
    secret = 'sk-"quoted"-1234567890'  # noqa: S105 - made up
    (tmp_path / "log").write_text(secret if place == "evidence" else "nothing")
    if place == "across a boundary":
        (tmp_path / "log").write_bytes(b"." * ((1 << 20) - 5) + secret.encode())
    changes = {"inputs.instruction": f"use {secret}"} if place == "record" else {}
    submission = Submission(
        record=record_bytes("a", **changes), where="a", root=tmp_path, evidence=("log",)
    )
    before = files_below(Path(ledger.where))
    with pytest.raises(NotSealedError, match="contains the value of API_KEY") as refused:
        seal(ledger, [submission], Secrets({"API_KEY": secret, "SHORT": "a"}))
    assert secret not in str(refused.value)
    assert files_below(Path(ledger.where)) == before


@pytest.mark.parametrize(
    "path", ["../key", "/etc/hostname", "a/../../key", "link", "sub/key", "", "."]
)
def test_evidence_from_outside_is_refused(ledger: OpenLedger, tmp_path: Path, path: str) -> None:
    root = tmp_path / "trial"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "key")
    (root / "sub").symlink_to(tmp_path)
    before = files_below(Path(ledger.where))
    with pytest.raises(NotSealedError):
        seal(
            ledger,
            [Submission(record=record_bytes("a"), where="a", root=root, evidence=(path,))],
        )
    assert files_below(Path(ledger.where)) == before


@pytest.mark.parametrize("name", ["../x", "_x", "a\0b", "x" * 300, "tr\u0456al", ".x", "a/b"])
def test_an_id_that_is_no_name_is_refused(ledger: OpenLedger, name: str) -> None:
    before = files_below(Path(ledger.where))
    for changes in ({"trial_id": name}, {"experiment_id": name}):
        document = json.loads(record_bytes("a")) | changes
        with pytest.raises(ProctorError):
            seal(ledger, [Submission(record=json.dumps(document).encode(), where="a")])
    assert files_below(Path(ledger.where)) == before


def test_a_record_of_a_hundred_megabytes_is_refused(ledger: OpenLedger) -> None:
    with pytest.raises(NotSealedError, match="move large content into an evidence file"):
        seal(ledger, [submit("a", **{"inputs.instruction": "x" * (100 << 20)})])


def test_what_a_crash_left_behind_the_checkpoint_is_put_aside(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    segment = (Path(ledger.where) / "entries") / "000000.jsonl"
    with segment.open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:00:00.000Z","kind":"note","seq":1,"te')
    seal(ledger, [submit("a")])
    (torn,) = (Path(ledger.where) / "torn").iterdir()
    assert torn.read_bytes().endswith(b'"te')
    with OpenLedger.open(Path(ledger.where), key=find_key(tmp_path)) as again:
        again.refresh()
        assert again.find_sealed(EXPERIMENT, "a") is not None


def test_a_whole_line_that_nobody_signed_is_not_signed_later(ledger: OpenLedger) -> None:
    forged = b'{"at":"","kind":"note","seq":1,"text":"mine","author":"x","about":[]}\n'
    with ((Path(ledger.where) / "entries") / "000000.jsonl").open("ab") as file:
        file.write(forged)
    seal(ledger, [submit("a")])
    assert b"mine" not in ((Path(ledger.where) / "entries") / "000000.jsonl").read_bytes()


def test_another_key_signs_from_its_entry_on(ledger: OpenLedger, tmp_path: Path) -> None:
    former = find_key(tmp_path)
    older = tmp_path / "older"
    older.write_bytes(ledger.checkpoint().render())
    heir = make_key(tmp_path / "heir", "example.org/heir")
    assert ledger.change_key(heir) == 1
    seal(ledger, [submit("a")])
    assert verify_ledger(Path(ledger.where), key=former.verifier, since=(older,)).damage == []
    with OpenLedger.open(Path(ledger.where), key=former) as again, pytest.raises(KeyFileError):
        seal(again, [submit("b")])
    with OpenLedger.open(Path(ledger.where), key=heir) as again:
        seal(again, [submit("b")])


def test_an_older_checkpoint_that_was_put_back_is_noticed(ledger: OpenLedger) -> None:
    older = (Path(ledger.where) / "checkpoint").read_bytes()
    seal(ledger, [submit("a")])
    ledger.refresh()
    (Path(ledger.where) / "checkpoint").write_bytes(older)
    with pytest.raises(DamageError, match="an older checkpoint was restored"):
        seal(ledger, [submit("b")])
