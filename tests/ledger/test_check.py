"""`proctor check` on what a ledger gives: what is said, what is not, and the exit code."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proctor.errors import DamageError
from proctor.ledger.claims.document import LARGEST, pack
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.withhold import Why, withhold_trial
from tests.cli.programs import Proctor
from tests.ledger.by_hand import append_by_hand, hand_over
from tests.ledger.claims import claim_of, edit, seal_marked, write_claim
from tests.ledger.ledgers import EXPERIMENT, make_ledger, record_bytes


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    """Three trials with marks."""
    made = make_ledger(tmp_path)
    seal_marked(made, {"a": 1.0, "b": 0.0, "c": 1.0})
    return made


@pytest.fixture
def pub(ledger: OpenLedger, tmp_path: Path, proctor: Proctor) -> Path:
    """The ledger's public key in a file."""
    path = tmp_path / "pub"
    ran = proctor(
        "ledger", "checkpoint", "--public-key", "--ledger", Path(ledger.where), "-o", path
    )
    assert ran.code == 0, ran.err
    return path


def prove(proctor: Proctor, ledger: OpenLedger, path: Path, *arguments: object) -> Path:
    ran = proctor("ledger", "prove", *arguments, "--ledger", Path(ledger.where), "-o", path)
    assert ran.code == 0, ran.err
    return path


def test_a_proof_is_checked_without_the_ledger(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    proof = prove(proctor, ledger, tmp_path / "proof.json", "b")
    Path(ledger.where).rename(tmp_path / "gone")
    ran = proctor("check", proof, "--key", pub)
    assert ran.code == 0
    assert f"entry 2 of 4 in example.org/ledger: trial b of {EXPERIMENT}, reward 0.0" in ran.out
    assert "note: the checkpoint: signed by example.org/me+" in ran.out


def test_without_a_key_it_is_said_that_nobody_is_trusted(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    proof = prove(proctor, ledger, tmp_path / "proof.json", "2")
    ran = proctor("check", proof)
    assert ran.code == 0
    assert "not checked: the signature by example.org/me+" in ran.out
    assert "so the signer is unverified" in ran.out


def test_another_key_did_not_sign_it(ledger: OpenLedger, tmp_path: Path, proctor: Proctor) -> None:
    proof = prove(proctor, ledger, tmp_path / "proof.json", "b")
    claim = write_claim(tmp_path / "claim.json", claim_of(ledger))
    other = SigningKey("example.org/me", Ed25519PrivateKey.generate()).verifier
    for path in (proof, claim):
        ran = proctor("check", path, "--key", other)
        assert ran.code == 1
        assert "no signature by example.org/me+" in ran.out


def test_growth_is_checked_without_the_ledger(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    older = tmp_path / "older"
    proctor("ledger", "checkpoint", "--ledger", Path(ledger.where), "-o", older)
    seal(ledger, [Submission(record=record_bytes("later"), where="later")])
    proof = prove(proctor, ledger, tmp_path / "proof.json", "--since", older)
    ran = proctor("check", proof, older, "--key", pub)
    assert ran.code == 0
    assert "grew from 4 to 5 entries, and the first 4 stayed as they were" in ran.out
    edit(proof, "path", 0, value="ab" * 32)
    assert proctor("check", proof, "--key", pub).code == 1


def test_a_proof_that_was_edited_is_exit_1_and_a_torn_one_exit_2(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    proof = prove(proctor, ledger, tmp_path / "proof.json", "b")
    whole = proof.read_text()
    line = json.loads(whole)["line"]
    edit(proof, "line", value=line.replace('"reward":0', '"reward":1'))
    ran = proctor("check", proof, "--key", pub)
    assert (ran.code, "is not in the tree of 4" in ran.out) == (1, True)
    proof.write_text(whole[: len(whole) // 2])
    assert proctor("check", proof, "--key", pub).code == 2


def test_the_signature_covers_the_checkpoint(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(ledger.refresh().render())
    assert proctor("check", copy, "--key", pub).code == 0
    copy.write_bytes(copy.read_bytes().replace(b"\n4\n", b"\n5\n"))
    ran = proctor("check", copy, "--key", pub)
    assert (ran.code, "is invalid" in ran.out) == (1, True)


def test_a_withheld_trial_is_told_of_in_a_claim(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    withhold_trial(ledger, find_trial(ledger, "b"), Why("a key leaked", "me"))
    claim = tmp_path / "claim.json"
    where = ("--ledger", Path(ledger.where))
    made = proctor("ledger", "claim", "--experiment", EXPERIMENT, *where, "-o", claim)
    assert made.code == 0, made.err
    ran = proctor("check", claim, "--key", pub)
    assert ran.code == 0
    assert "planned 3: counted 2" in ran.out
    assert "withheld 1" in ran.out
    proof = prove(proctor, ledger, tmp_path / "proof.json", "b")
    assert "what the entry says: the proof has only its hash" in proctor("check", proof).out


def test_a_key_that_was_replaced_still_vouches_for_its_heir(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    ledger.change_key(make_key(tmp_path / "heir", "example.org/heir"))
    claim = write_claim(tmp_path / "claim.json", claim_of(ledger))
    ran = proctor("check", claim, "--key", pub)
    assert ran.code == 0
    assert "signed by example.org/heir+" in ran.out
    assert "the signature by" not in ran.out


def test_a_key_that_nobody_named_is_no_heir(
    ledger: OpenLedger, pub: Path, tmp_path: Path, proctor: Proctor
) -> None:
    thief = make_key(tmp_path / "thief", "example.org/thief")
    append_by_hand(Path(ledger.where), thief, hand_over(Path(ledger.where), thief, thief))
    with pytest.raises(DamageError, match=r"which example.org/me\+.* did not sign"):
        claim_of(ledger)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nonsense", "is not a public key"),
        ("a+00000000+AQ==", "not an Ed25519 public key"),
        ("key", "a signing key; expected the public one"),
    ],
)
def test_what_is_no_public_key_is_refused(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor, key: str, message: str
) -> None:
    proof = prove(proctor, ledger, tmp_path / "proof.json", "b")
    ran = proctor("check", proof, "--key", tmp_path / "key" if key == "key" else key)
    assert (ran.code, message in ran.err) == (2, True)
    assert "PRIVATE+KEY" not in ran.err


def test_a_key_goes_only_with_what_is_signed(tmp_path: Path, proctor: Proctor) -> None:
    record = tmp_path / "record.json"
    record.write_bytes(record_bytes("a"))
    ran = proctor("check", record, "--key", "x")
    assert (ran.code, "--key requires" in ran.err) == (2, True)


def test_a_compressed_claim_that_is_torn_or_a_bomb_is_refused(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    claim = write_claim(tmp_path / "claim.json", claim_of(ledger))
    packed = pack(claim.read_bytes())
    path = tmp_path / "claim.json.zst"
    for data, message in (
        (packed[:-9], "is incomplete"),
        (packed + b"more", "has bytes after its end"),
        (packed[:4] + b"\xff" * 40, "incomplete or not zstd"),
        (pack(b" " * (LARGEST + 1)), "unpacks to more than"),
    ):
        path.write_bytes(data)
        ran = proctor("check", path)
        assert (ran.code, message in ran.err) == (2, True), ran.err


def test_a_claim_of_a_hundred_megabytes_of_nothing_is_refused(
    tmp_path: Path, proctor: Proctor
) -> None:
    path = tmp_path / "claim.json"
    path.write_bytes(b'{"format": "proctor-claim-1", "certificate": "' + b"x" * 100_000_000 + b'"}')
    ran = proctor("check", path)
    assert (ran.code, "proctor: " in ran.err) == (2, True)
    assert len(ran.err) < 1000


def test_prove_refuses_what_is_not_there(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    where = ("--ledger", Path(ledger.where))
    for arguments, message in (
        (("nobody",), "no trial or entry is named 'nobody'"),
        ((), "expected TRIAL or --since"),
        (("a", "--since", "x"), "expected TRIAL or --since"),
        (("--since", tmp_path / "nothing"), "cannot be read"),
        (("--since", tmp_path / "key"), "not a checkpoint"),
    ):
        ran = proctor("ledger", "prove", *arguments, *where)
        assert (ran.code, message in ran.err) == (2, True), ran.err


def test_what_is_written_goes_over_no_other_file_and_into_no_ledger(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    where = ("--ledger", Path(ledger.where))
    for target in (taken, Path(ledger.where) / "proof"):
        for arguments in (("prove", "a"), ("claim", "--experiment", EXPERIMENT), ("checkpoint",)):
            assert proctor("ledger", *arguments, *where, "-o", target).code == 2
    assert taken.read_text() == "mine"
    assert not (Path(ledger.where) / "proof").exists()


def test_proof_claim_and_checkpoint_come_on_stdout_as_their_files_are(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    where = ("--ledger", Path(ledger.where))
    for words, stdout in (
        (("prove", "a"), ("-o", "-")),
        (("claim", "--experiment", EXPERIMENT), ("-o", "-")),
        (("checkpoint",), ()),
        (("key",), ()),
    ):
        path = tmp_path / f"{words[0]}.out"
        assert proctor("ledger", *words, *where, "-o", path).code == 0
        assert proctor("ledger", *words, *where, *stdout).out == path.read_text()
        assert isinstance(json.loads(proctor("ledger", *words, *where, "--json").out), dict)


@pytest.mark.parametrize(
    ("words", "file", "said"),
    [
        (("prove", "a"), "a.proof.json", "proves that entry 1 is one of 4 in the ledger"),
        (("prove", "2"), "entry-2.proof.json", "proves that entry 2 is one of 4 in the ledger"),
        (("prove", "--since", "old"), "growth-4-4.proof.json", "only grew, from 4 to 4 entries"),
        (("claim", "--experiment", EXPERIMENT), f"{EXPERIMENT}.claim.json", "written"),
    ],
)
def test_a_proof_or_claim_is_a_file_with_the_command_that_checks_it(
    ledger: OpenLedger,
    tmp_path: Path,
    proctor: Proctor,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    file: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_LEDGER", ledger.where)
    proctor("ledger", "checkpoint", "-o", "old")
    for taken in (False, True):
        if taken:
            Path(file).write_text("another file")
        ran = proctor("ledger", *words)
        name = file.replace(".", "-2.", 1) if taken else file
        assert (ran.code, ran.out.startswith(f"{name}: "), said in ran.out) == (0, True, True)
        command = ran.out.splitlines()[-1].removeprefix("check it: ")
        key = proctor("ledger", "key").out.strip()
        assert command == f"proctor check {name} --key {key}"
        assert proctor(*command.split()[1:]).code == 0


def test_a_proof_under_a_former_key_asks_for_that_key(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    old, key = tmp_path / "old", tmp_path / "second"
    where = ("--ledger", ledger.where)
    proctor("ledger", "checkpoint", *where, "-o", old)
    ledger.change_key(make_key(key, "example.org/second"))
    ran = proctor("ledger", "prove", "a", *where, "--checkpoint", old, "-o", tmp_path / "proof")
    assert ran.out.endswith(f"proctor check {tmp_path}/proof --key FORMER_KEY\n")


def test_a_ledger_is_checked_as_a_whole(ledger: OpenLedger, pub: Path, proctor: Proctor) -> None:
    ran = proctor("check", Path(ledger.where))
    assert ran.code == 0, ran.err
    assert "ledger: example.org/ledger, 4 entries, 0 artifacts: no problem" in ran.out
    assert "not checked: whose ledger it is: no --key was given" in ran.out
    assert "whose ledger it is" not in proctor("check", Path(ledger.where), "--key", pub).out
    refused = proctor("check", Path(ledger.where), "--key", pub, "--key", pub)
    assert (refused.code, "2 keys were given" in refused.err) == (2, True)


def test_a_damaged_ledger_is_exit_1(ledger: OpenLedger, proctor: Proctor) -> None:
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"reward":0', b'"reward":1'))
    ran = proctor("check", Path(ledger.where))
    assert (ran.code, "1 problem" in ran.out) == (1, True)


def test_a_ledger_without_its_checkpoint_is_still_taken_for_one(
    ledger: OpenLedger, proctor: Proctor
) -> None:
    (Path(ledger.where) / "checkpoint").unlink()
    ran = proctor("check", Path(ledger.where))
    assert (ran.code, ": ledger: " in ran.out) == (1, True)
