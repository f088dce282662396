"""A quorum of named witnesses: who counts, and what their checkpoint must cover."""

import json
from pathlib import Path

import pytest

from proctor.errors import PolicyError
from proctor.ledger.claims.witness import cosign_copy, load_copy
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import VerifierKey
from proctor.ledger.sealing import Submission, seal
from proctor.report.policy.document import parse_policy
from proctor.report.policy.witness_checks import count_witnesses
from tests.cli.programs import Proctor, run_here
from tests.ledger.ledgers import EXPERIMENT, find_key, make_ledger, record_bytes

HEAD = 'format = "proctor-policy-1"\nname = "witnessed"\n'


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    return make_ledger(tmp_path, ["a", "b"])


@pytest.fixture
def witnesses(tmp_path: Path) -> list[SigningKey]:
    return [make_key(tmp_path / f"w{n}", f"example.org/w{n}") for n in range(3)]


def asking(tmp_path: Path, quorum: int, *keys: VerifierKey) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(f"{HEAD}[witnesses]\nquorum = {quorum}\nkeys = {list(map(str, keys))}\n")
    return path


def cosigned(ledger: OpenLedger, path: Path, *keys: SigningKey) -> Path:
    path.write_bytes(ledger.refresh().render())
    for key in keys:
        cosign_copy(path, load_copy(path), key, 1_700_000_000)
    return path


def codes(proctor: Proctor, policy: Path, ledger: OpenLedger, *since: Path) -> set[str]:
    given = [word for path in since for word in ("--since", path)]
    where = ("--policy", policy, "--ledger", Path(ledger.where), *given, "--json")
    (document,) = json.loads(proctor("check", EXPERIMENT, *where).out)["submissions"]
    checked = next(each for each in document["checks"] if each["check"] == "witnesses")
    failures = {each["code"] for each in document["failures"]}
    assert checked["passed"] is not ("too-few-witnesses" in failures)
    return failures & {"too-few-witnesses", "damaged-ledger"}


def test_a_quorum_of_named_witnesses_passes_and_one_less_fails(
    proctor: Proctor, ledger: OpenLedger, witnesses: list[SigningKey], tmp_path: Path
) -> None:
    policy = asking(tmp_path, 2, *(key.cosigner for key in witnesses))
    one = cosigned(ledger, tmp_path / "one", witnesses[0])
    other = cosigned(ledger, tmp_path / "other", witnesses[2])
    both = cosigned(ledger, tmp_path / "both", *witnesses[:2])
    assert codes(proctor, policy, ledger, both) == set()
    assert codes(proctor, policy, ledger, one, other) == set()
    assert codes(proctor, policy, ledger, one, one) == {"too-few-witnesses"}
    assert codes(proctor, policy, ledger) == {"too-few-witnesses"}


def test_a_stranger_and_the_owner_are_no_witnesses(
    proctor: Proctor, ledger: OpenLedger, witnesses: list[SigningKey], tmp_path: Path
) -> None:
    owner = find_key(tmp_path)
    policy = asking(tmp_path, 1, witnesses[0].cosigner, owner.cosigner)
    copy = cosigned(ledger, tmp_path / "copy", witnesses[1], owner)
    assert codes(proctor, policy, ledger, copy) == {"too-few-witnesses"}


def test_the_checkpoint_must_cover_every_trial(
    proctor: Proctor, ledger: OpenLedger, witnesses: list[SigningKey], tmp_path: Path
) -> None:
    policy = asking(tmp_path, 1, witnesses[0].cosigner)
    copy = cosigned(ledger, tmp_path / "copy", witnesses[0])
    seal(ledger, [Submission(record=record_bytes("later"), where="later")])
    assert codes(proctor, policy, ledger, copy) == {"too-few-witnesses"}
    newer = cosigned(ledger, tmp_path / "newer", witnesses[0])
    assert codes(proctor, policy, ledger, newer) == set()


def test_a_cosigned_checkpoint_of_another_history_counts_for_nothing(
    proctor: Proctor, ledger: OpenLedger, witnesses: list[SigningKey], tmp_path: Path
) -> None:
    policy = asking(tmp_path, 1, witnesses[0].cosigner)
    (tmp_path / "key.d").mkdir()
    other = OpenLedger.create(tmp_path / "fork", find_key(tmp_path), ledger.refresh().origin)
    seal(other, [Submission(record=record_bytes(name), where=name) for name in ("a", "x")])
    copy = cosigned(other, tmp_path / "copy", witnesses[0])
    found = codes(proctor, policy, ledger, copy)
    assert found == {"too-few-witnesses", "damaged-ledger"}


def test_a_directory_without_a_ledger_has_no_witnesses(
    proctor: Proctor, witnesses: list[SigningKey], tmp_path: Path
) -> None:
    job = Path(__file__).parents[2] / "data/harbor/jobs/04-binary-scripted-k5"
    ran = proctor("check", job, "--policy", asking(tmp_path, 1, witnesses[0].cosigner), "--json")
    (document,) = json.loads(ran.out)["submissions"]
    assert "no-ledger" in {each["code"] for each in document["failures"]}


def test_one_name_or_one_key_is_one_witness(tmp_path: Path) -> None:
    first, second = (make_key(tmp_path / name, "example.org/w") for name in ("1", "2"))
    other = make_key(tmp_path / "3", "example.org/other").cosigner
    renamed = VerifierKey("example.org/alias", first.cosigner.public, first.cosigner.algorithm)
    assert count_witnesses([first.cosigner, second.cosigner]) == 1
    assert count_witnesses([renamed, second.cosigner, first.cosigner]) == 1
    assert count_witnesses([first.cosigner, other]) == 2


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("quorum = 1", "expected both quorum and keys"),
        ("quorum = 2\nkeys = ['{0}']", "quorum is 2, but the keys are those of 1"),
        ("quorum = 2\nkeys = ['{0}', '{0}']", "quorum is 2, but the keys are those of 1"),
        ("quorum = 1\nkeys = ['{1}']", "a log's key; expected a cosigner's"),
        ("quorum = 1\nkeys = ['x']", "is not a public key"),
    ],
)
def test_a_policy_that_no_witness_could_meet_is_refused(
    tmp_path: Path, rule: str, sentence: str
) -> None:
    key = make_key(tmp_path / "w", "example.org/w")
    text = f"{HEAD}[witnesses]\n{rule.format(key.cosigner, key.verifier)}\n"
    with pytest.raises(PolicyError, match=sentence):
        parse_policy(text.encode(), "policy.toml")
