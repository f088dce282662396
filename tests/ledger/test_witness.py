"""A witness: what it signs, what it refuses, and what it remembers."""

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from proctor.errors import DamageError, ForkError, LedgerError, ProofError, SignatureError
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.proof import make_consistency, make_inclusion
from proctor.ledger.claims.witness import Cosigned, WitnessInput, witness_copy
from proctor.ledger.entry import NoteEntry
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.memory import Memory, Seen, default_memory_path
from proctor.ledger.note import Checkpoint, parse_checkpoint
from proctor.ledger.signature import check_signature
from tests.cli.programs import Proctor
from tests.ledger.ledgers import ORIGIN, find_key, make_ledger

TIME = 1_700_000_000


def grow(ledger: OpenLedger, *texts: str) -> Checkpoint:
    with ledger.writing():
        ledger.append([NoteEntry(at="", seq=0, text=text, author="ana") for text in texts])
    return ledger.refresh()


@dataclass
class Desk:
    """A witness and the files of its day."""

    place: Path
    memory: Memory
    key: SigningKey
    n: int = 0

    def copy(self, checkpoint: Checkpoint) -> Path:
        self.n += 1
        path = self.place / f"copy-{self.n}"
        path.write_bytes(checkpoint.render())
        return path

    def witness(self, checkpoint: Checkpoint, **shown: object) -> Cosigned:
        copy = self.copy(checkpoint)
        return witness_copy(copy, self.memory, WitnessInput(**shown), lambda: self.key, TIME)  # type: ignore[arg-type]

    def refused(self, error: type[Exception], checkpoint: Checkpoint, **shown: object) -> str:
        before = self.memory.find(checkpoint.origin)
        copy = self.copy(checkpoint)
        with pytest.raises(error) as caught:
            witness_copy(copy, self.memory, WitnessInput(**shown), lambda: self.key, TIME)  # type: ignore[arg-type]
        assert copy.read_bytes() == checkpoint.render()
        assert self.memory.find(checkpoint.origin) == before
        return str(caught.value)

    def evidence(self) -> list[Checkpoint]:
        files = sorted((self.memory.directory / "evidence").glob("*/*"))
        return [parse_checkpoint(file.read_bytes(), str(file)) for file in files]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    key = make_key(tmp_path / "witness", "example.org/witness")
    return Desk(tmp_path, Memory(tmp_path / "state"), key)


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    return make_ledger(tmp_path)


@pytest.fixture
def fork(tmp_path: Path) -> Callable[[], OpenLedger]:
    """Another history of the same origin under the same key."""
    (tmp_path / "other").mkdir()
    return lambda: OpenLedger.create(tmp_path / "other" / "ledger", find_key(tmp_path), ORIGIN)


def proof_of(ledger: OpenLedger, older: Checkpoint, path: Path) -> str:
    path.write_bytes(render_document(make_consistency(ledger, older, ledger.refresh())))
    return str(path)


def test_first_contact_needs_the_logs_key_by_name(desk: Desk, ledger: OpenLedger) -> None:
    said = desk.refused(LedgerError, ledger.refresh(), ledger=Path(ledger.where))
    assert "first contact" in said
    assert "--log-key" in said
    stranger = make_key(desk.place / "stranger", "example.org/stranger")
    desk.refused(SignatureError, ledger.refresh(), log_key=stranger.verifier)
    done = desk.witness(ledger.refresh(), log_key=find_key(desk.place).verifier)
    assert check_signature(done.checkpoint, desk.key.cosigner, "it") == TIME


def test_growth_is_shown_by_the_log_or_by_a_proof(desk: Desk, ledger: OpenLedger) -> None:
    first = ledger.refresh()
    desk.witness(first, log_key=find_key(desk.place).verifier)
    second = grow(ledger, "a", "b")
    assert "--ledger DIR or --proof FILE" in desk.refused(LedgerError, second)
    proof = proof_of(ledger, first, desk.place / "p1")
    assert desk.witness(second, proof=proof).is_new
    third = grow(ledger, "c")
    assert "expected from the 3 that were seen" in desk.refused(LedgerError, third, proof=proof)
    assert desk.witness(third, ledger=Path(ledger.where)).is_new
    seen = desk.memory.find(ORIGIN)
    assert seen is not None
    assert seen.checkpoint == third


def test_a_proof_that_proves_something_else_is_refused(desk: Desk, ledger: OpenLedger) -> None:
    first = ledger.refresh()
    desk.witness(first, log_key=find_key(desk.place).verifier)
    second = grow(ledger, "a", "b", "c")
    path = desk.place / "p1"
    path.write_bytes(render_document(make_inclusion(ledger, 1, second)))
    assert "inclusion proof" in desk.refused(LedgerError, second, proof=str(path))
    document = json.loads(Path(proof_of(ledger, first, path)).read_text())
    document["path"][0] = "00" * 32
    path.write_text(json.dumps(document))
    desk.refused(ProofError, second, proof=str(path))
    assert desk.evidence() == []


def test_the_same_checkpoint_again_is_signed_again(desk: Desk, ledger: OpenLedger) -> None:
    desk.witness(ledger.refresh(), log_key=find_key(desk.place).verifier)
    assert desk.witness(ledger.refresh()).is_new


def test_two_histories_of_one_size_are_a_fork_and_both_are_kept(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger]
) -> None:
    other = grow(fork(), "x")
    seen = grow(ledger, "a")
    desk.witness(seen, log_key=find_key(desk.place).verifier)
    said = desk.refused(ForkError, other)
    assert "two histories of 2 entries" in said
    kept = desk.evidence()
    assert {each.tree for each in kept} == {seen.tree, other.tree}
    for each in kept:
        assert check_signature(each, find_key(desk.place).verifier, "kept") is None
        assert each.render().decode().split("\n")[0] == ORIGIN
        assert str(each.tree.size) in said


def test_a_longer_fork_is_refused_whatever_shows_it(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger]
) -> None:
    seen = grow(ledger, "a")
    desk.witness(seen, log_key=find_key(desk.place).verifier)
    forked = fork()
    other = grow(forked, "x", "y")
    said = desk.refused(ForkError, other, ledger=Path(forked.where))
    assert "the first 2 entries were rewritten" in said
    assert len(desk.evidence()) == 2
    with pytest.raises(DamageError):
        proof_of(forked, seen, desk.place / "p")


def test_a_log_that_went_back_is_refused_and_an_old_copy_is_told_apart(
    desk: Desk, ledger: OpenLedger
) -> None:
    first = ledger.refresh()
    second = grow(ledger, "a")
    desk.witness(second, log_key=find_key(desk.place).verifier)
    said = desk.refused(DamageError, first, ledger=Path(ledger.where))
    assert "save a new copy" in said
    assert desk.evidence() == []
    assert "went back from 2 to 1" in desk.refused(ForkError, first)
    assert len(desk.evidence()) == 2


def test_a_log_that_does_not_give_the_checkpoint_is_refused(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger]
) -> None:
    checkpoint = grow(ledger, "a")
    trusted = find_key(desk.place).verifier
    other = fork()
    said = desk.refused(DamageError, checkpoint, ledger=Path(other.where), log_key=trusted)
    assert "has 1 entries; the checkpoint signs 2" in said
    grow(other, "x")
    said = desk.refused(DamageError, checkpoint, ledger=Path(other.where), log_key=trusted)
    assert "not those of the checkpoint" in said


def test_a_handover_of_the_key_is_followed_through_the_log(desk: Desk, ledger: OpenLedger) -> None:
    desk.witness(ledger.refresh(), log_key=find_key(desk.place).verifier)
    heir = make_key(desk.place / "heir", "example.org/heir")
    before = ledger.refresh()
    ledger.change_key(heir)
    now = ledger.refresh()
    proof = proof_of(ledger, before, desk.place / "p")
    assert "no signature by" in desk.refused(SignatureError, now, proof=proof)
    desk.witness(now, ledger=Path(ledger.where))
    seen = desk.memory.find(ORIGIN)
    assert seen is not None
    assert seen.keys == (find_key(desk.place).verifier, heir.verifier)
    desk.witness(now, log_key=heir.verifier)
    desk.witness(now, log_key=find_key(desk.place).verifier)
    stranger = make_key(desk.place / "stranger", "example.org/stranger")
    said = desk.refused(LedgerError, now, log_key=stranger.verifier)
    assert "this witness knows" in said


def test_a_fork_signed_by_a_retired_key_is_shown_as_one(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger]
) -> None:
    forked = fork()
    ledger.change_key(make_key(desk.place / "heir", "example.org/heir"))
    trusted = find_key(desk.place).verifier
    desk.witness(ledger.refresh(), ledger=Path(ledger.where), log_key=trusted)
    desk.refused(ForkError, grow(forked, "x"))
    desk.refused(ForkError, grow(forked, "y"), ledger=Path(forked.where))
    assert len(desk.evidence()) == 3


def test_what_a_monitor_took_from_a_stranger_binds_no_log_that_a_person_named(
    desk: Desk, ledger: OpenLedger
) -> None:
    stranger = make_key(desk.place / "stranger", "example.org/stranger")
    theirs = OpenLedger.create(desk.place / "theirs", stranger, ORIGIN)
    with desk.memory.locked():
        checkpoint = grow(theirs, "x")
        keys = (stranger.verifier,)
        desk.memory.keep(Seen(checkpoint=checkpoint, keys=keys, is_key_given=False))
    assert "first contact" in desk.refused(
        LedgerError, grow(theirs, "y"), ledger=Path(theirs.where)
    )
    assert desk.witness(ledger.refresh(), log_key=find_key(desk.place).verifier).is_new


def test_it_is_remembered_before_the_cosignature_is_written(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger]
) -> None:
    copy = desk.copy(ledger.refresh())
    trusted = WitnessInput(log_key=find_key(desk.place).verifier)

    def look_and_fail() -> SigningKey:
        copy.unlink()
        copy.mkdir()
        return desk.key

    with pytest.raises(LedgerError, match="cannot be written"):
        witness_copy(copy, desk.memory, trusted, look_and_fail, TIME)
    seen = desk.memory.find(ORIGIN)
    assert seen is not None
    assert seen.checkpoint == ledger.refresh()


def test_of_two_forks_at_once_one_is_signed(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger]
) -> None:
    copies = [desk.copy(grow(ledger, "a")), desk.copy(grow(fork(), "x"))]
    trusted = WitnessInput(log_key=find_key(desk.place).verifier)
    inside, refused = threading.Barrier(2, timeout=0.3), []

    def find_slowly() -> SigningKey:
        # Without the lock both would be here at once, each having found nothing against it.
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait()
        return desk.key

    def ask(copy: Path) -> None:
        try:
            witness_copy(copy, desk.memory, trusted, find_slowly, TIME)
        except ForkError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert sum(b"example.org/witness" in copy.read_bytes() for copy in copies) == 1


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format":"proctor-seen-9"}'])
def test_a_memory_that_cannot_be_read_signs_nothing(
    desk: Desk, ledger: OpenLedger, content: bytes
) -> None:
    desk.memory.directory.mkdir()
    desk.memory.path_of(ORIGIN).write_bytes(content)
    copy = desk.copy(ledger.refresh())
    with pytest.raises(LedgerError, match="cannot be read") as caught:
        witness_copy(copy, desk.memory, WitnessInput(), lambda: desk.key, TIME)
    assert "restore the file from a backup" in str(caught.value)
    assert copy.read_bytes() == ledger.refresh().render()


def test_a_link_in_the_place_of_the_memory_is_not_followed(desk: Desk, ledger: OpenLedger) -> None:
    desk.witness(ledger.refresh(), log_key=find_key(desk.place).verifier)
    path = desk.memory.path_of(ORIGIN)
    path.rename(desk.place / "elsewhere")
    path.symlink_to(desk.place / "elsewhere")
    with pytest.raises(LedgerError, match="cannot be read"):
        desk.memory.find(ORIGIN)


def test_the_command_shows_a_fork_with_exit_1(
    desk: Desk, ledger: OpenLedger, fork: Callable[[], OpenLedger], proctor: Proctor
) -> None:
    state = ("--key", desk.place / "witness", "--state", desk.place / "state")
    first, other = desk.copy(grow(ledger, "a")), desk.copy(grow(fork(), "x"))
    log_key = find_key(desk.place).verifier
    assert proctor("ledger", "cosign", first, *state).code == 2
    assert proctor("ledger", "cosign", first, *state, "--log-key", log_key).code == 0
    ran = proctor("ledger", "cosign", other, *state)
    assert ran.code == 1
    assert "Both signed checkpoints are kept" in ran.err
    for path in (desk.place / "state" / "evidence").glob("*/*"):
        assert str(path) in ran.err
        assert proctor("check", path, "--key", log_key).code == 0
    both = proctor(
        "ledger", "cosign", first, *state, "--proof", "p", "--ledger", Path(ledger.where)
    )
    assert (both.code, "cannot be combined with" in both.err) == (2, True)


def test_checkpoints_are_remembered_in_the_users_state_directory() -> None:
    assert str(default_memory_path({"HOME": "/h"})) == "/h/.local/state/proctor/checkpoints"
    assert str(default_memory_path({"XDG_STATE_HOME": "/s"})) == "/s/proctor/checkpoints"
