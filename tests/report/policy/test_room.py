"""What an owner states of sizes, and what is unpacked of it."""

import json
from pathlib import Path

import pytest

from proctor.errors import AlteredArtifactError, DamageError
from proctor.ledger.artifacts import FileArtifacts, unpacked
from proctor.ledger.entry import EvidenceFile
from proctor.ledger.exchange.harbor_jobs import Room, write_jobs
from proctor.ledger.keys import load_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import parse_checkpoint, sign_checkpoint
from proctor.ledger.query import list_trials
from proctor.ledger.tree import Tree, leaf_hash, root_of
from proctor.report.policy.from_ledger import opened_experiment, verify_sealed
from tests.cli.programs import Proctor, run_here

JOB = Path(__file__).parent.parent.parent / "data" / "harbor" / "jobs" / "04-binary-scripted-k5"


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


@pytest.fixture
def ledger(proctor: Proctor, tmp_path: Path) -> Path:
    place = ("--ledger", tmp_path / "ledger", "--key", tmp_path / "key")
    assert proctor("ledger", "init", *place, "--origin", "example.org/room").code == 0
    assert proctor("import", "harbor", JOB, "--experiment", "nightly", *place).code == 0
    return tmp_path / "ledger"


def state_size(ledger: Path, path: str, size: int) -> None:
    """State another size of one file of the last trial, and sign all of it again."""
    segment = ledger / "entries" / "000000.jsonl"
    lines = segment.read_bytes().splitlines()
    last = max(at for at, line in enumerate(lines) if path.encode() in line)
    before, found, rest = lines[last].partition(f'"path":"{path}"'.encode())
    head, mark, tail = rest.partition(b'"size":')
    digits = len(tail) - len(tail.lstrip(b"0123456789"))
    lines[last] = before + found + head + mark + str(size).encode() + tail[digits:]
    segment.write_bytes(b"".join(line + b"\n" for line in lines))
    checkpoint = parse_checkpoint((ledger / "checkpoint").read_bytes(), "checkpoint")
    leaves = [leaf_hash(line) for line in lines]
    key = load_key(ledger.parent / "key")
    tree = Tree(len(leaves), root_of(leaves))
    signed = sign_checkpoint(checkpoint.origin, tree, key.verifier, key.sign)
    (ledger / "checkpoint").write_bytes(signed.render())
    for index in ledger.glob("index.sqlite*"):
        index.unlink()


def test_a_trial_of_terabytes_is_not_unpacked_and_fails_the_policy(
    proctor: Proctor, ledger: Path
) -> None:
    asked = ("check", "nightly", "--policy", "leaderboard", "--ledger", ledger, "--json")
    assert "too-large" not in proctor(*asked).out
    state_size(ledger, "trial.log", 1 << 44)
    ran = proctor(*asked)
    assert ran.code == 1
    assert "too-large" in ran.out
    json.loads(ran.out)


def test_what_fits_is_unpacked_and_the_rest_is_named(ledger: Path, tmp_path: Path) -> None:
    with OpenLedger.open(ledger) as opened:
        opened.refresh()
        rows = list_trials(opened)
        sizes = {row.seq: len(opened.entry(row.seq).evidence) for row in rows}  # type: ignore[union-attr]
        room = Room(size=1 << 30, files=max(sizes.values()) + 1)
        made = write_jobs(opened, sizes, tmp_path / "out", room=room)
    assert made.written == 1
    assert len(made.too_large) == len(rows) - 1
    assert sum("too large: " in sentence for sentence in made.refused) == len(rows) - 1
    assert room.files < min(sizes.values())


def test_a_whole_experiment_has_room(ledger: Path) -> None:
    sealed = verify_sealed(ledger)
    with (
        OpenLedger.open(ledger) as opened,
        opened_experiment(opened, "nightly", sealed) as submission,
    ):
        assert not any(trial.is_too_large for trial in submission.trials)


def test_an_export_unpacks_no_more_than_was_stated(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    state_size(ledger, "config.json", 3)
    asked = ("export", "--format", "harbor", "--ledger", ledger, "-o", tmp_path / "out")
    ran = proctor(*asked)
    assert ran.code != 0
    assert "more bytes than were sealed" in ran.err
    state_size(ledger, "config.json", 1 << 44)
    ran = proctor(*asked)
    assert ran.code != 0
    assert "the disk has" in ran.err


def test_no_artifact_is_held_that_is_larger_than_memory_or_than_stated(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    (tmp_path / "plain").write_bytes(bytes(1000))
    with (tmp_path / "plain").open("rb") as plain:
        digest, size = artifacts.put(plain)
    artifacts.settle()
    assert artifacts.load(digest, size) == bytes(1000)
    with pytest.raises(AlteredArtifactError, match="more bytes than were sealed"):
        artifacts.load(digest, 999)
    with pytest.raises(DamageError, match="are held in memory"):
        artifacts.load(digest, 1 << 40)
    huge = EvidenceFile(path="agent/trajectory.jsonl", sha256=digest, size=1 << 50)
    with pytest.raises(DamageError, match=r"at most .* are unpacked"), unpacked(artifacts, huge):
        pass
