"""verify: what a sound ledger gives, what each damage is called, and what it leaves alone."""

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from proctor.errors import (
    AlteredArtifactError,
    LedgerError,
    MissingArtifactError,
    NoteError,
)
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import FORMAT, EvidenceFile, KeyEntry, NoteEntry, TrialEntry
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import parse_checkpoint, sign_checkpoint
from proctor.ledger.tree import Tree, leaf_hash, root_of
from proctor.ledger.verification import scan
from proctor.ledger.verification.damage import DamageKind, Findings
from proctor.ledger.verification.verify import Verification, verify_ledger
from tests.ledger.ledgers import (
    ORIGIN,
    RichLedger,
    find_key,
    forget_index,
    make_rich_ledger,
    record_bytes,
    small,
)

# As a witness writes it: a name, and base64 of a key id and a signature that is not checked.
OTHER_SIGNATURE = "— example.org/witness a2V5IGEgdGltZXN0YW1wZWQgc2lnbmF0dXJl\n".encode()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> RichLedger:
    return make_rich_ledger(tmp_path_factory.mktemp("original"), size=120, segment_size=20_000)


@pytest.fixture
def rich(original: RichLedger, tmp_path: Path) -> RichLedger:
    """A ledger of 120 entries of all kinds in some ten segments."""
    shutil.copytree(original.directory.parent, tmp_path / "rich")
    place = tmp_path / "rich"
    return RichLedger(
        place / "ledger", original.key, original.first_key, place / "older", original.withheld
    )


def kinds(found: Verification) -> set[DamageKind]:
    return {damage.kind for damage in found.damage}


def files_of(directory: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time and its digest."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def resign(ledger: Path, key: SigningKey, origin: str = ORIGIN) -> None:
    """Sign the lines as they are: what an owner can do."""
    segments = [path.read_bytes() for path in sorted((ledger / "entries").iterdir())]
    lines = [line for data in segments for line in data.split(b"\n")[:-1]]
    tree = Tree(len(lines), root_of(map(leaf_hash, lines)))
    signed = sign_checkpoint(origin, tree, key.verifier, key.sign)
    (ledger / "checkpoint").write_bytes(signed.render())
    forget_index(ledger)


def append_raw(ledger: Path, line: bytes) -> None:
    with (ledger / "entries" / "000000.jsonl").open("ab") as file:
        file.write(line + b"\n")


# A sound one


def test_a_sound_ledger_gives_its_size_its_key_and_what_was_withheld(rich: RichLedger) -> None:
    found = verify_ledger(rich.directory, since=[rich.older])
    assert (found.damage, found.notes) == ([], [])
    assert (found.origin, found.size, found.withheld, found.withheld_artifacts) == (
        ORIGIN, 120, 2, 1,
    )  # fmt: skip
    signed = parse_checkpoint((rich.directory / "checkpoint").read_bytes(), "")
    assert found.root == signed.tree.root.hex()
    assert found.artifacts > 2
    assert (found.key, found.is_key_given) == (str(rich.first_key.verifier), False)


@pytest.mark.parametrize("fast", [False, True])
def test_pieces_do_not_matter(
    rich: RichLedger, *, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "CHUNK", 3001)
    found = verify_ledger(rich.directory, since=[rich.older], fast=fast)
    assert (found.damage, found.notes, found.size, found.withheld) == ([], [], 120, 2)


@pytest.mark.parametrize("size", [97, 700, 1700, 5000])
def test_a_line_is_found_wherever_a_piece_ends(
    rich: RichLedger, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "CHUNK", size)
    assert verify_ledger(rich.directory, since=[rich.older]).damage == []


def test_any_key_of_the_ledger_may_be_the_trusted_one(rich: RichLedger) -> None:
    for key in (rich.key, rich.first_key):
        found = verify_ledger(rich.directory, key=key.verifier, since=[rich.older])
        assert (found.damage, found.key, found.is_key_given) == ([], str(key.verifier), True)


def test_progress_comes_to_its_end(rich: RichLedger) -> None:
    told: list[tuple[str, int, int]] = []
    verify_ledger(rich.directory, progress=lambda *what: told.append(what))
    last = {what: (done, total) for what, done, total in told}
    assert set(last) == {"entries", "artifacts"}
    assert all(done == total for done, total in last.values())


def test_nothing_is_written(rich: RichLedger) -> None:
    before = files_of(rich.directory)
    verify_ledger(rich.directory)
    path = rich.directory / "entries" / "000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))
    after = {**before, "entries/000001.jsonl": files_of(rich.directory)["entries/000001.jsonl"]}
    assert verify_ledger(rich.directory).damage
    assert files_of(rich.directory) == after


# What is said and is no damage


@pytest.mark.parametrize("tail", [b'{"at":"x"}\n', b"torn", b"one\ntwo"])
def test_what_lies_behind_the_checkpoint_is_a_note(tmp_path: Path, tail: bytes) -> None:
    ledger = small(tmp_path, "a")
    with (ledger / "entries" / "000000.jsonl").open("ab") as file:
        file.write(tail)
    for fast in (False, True):
        found = verify_ledger(ledger, fast=fast)
        assert found.damage == []
        (note,) = found.notes
        assert f"{len(tail)} bytes" in note
        assert "after the checkpoint" in note


def test_more_signatures_are_no_damage(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a")
    path = ledger / "checkpoint"
    path.write_bytes(path.read_bytes() + OTHER_SIGNATURE)
    found = verify_ledger(ledger, since=[path])
    assert found.damage == []
    assert "1 more signature" in found.notes[0]


def test_the_first_entry_that_differs_is_named_and_the_others_are_counted(rich: RichLedger) -> None:
    with OpenLedger.open(rich.directory) as ledger:
        ledger.refresh()
    segments = sorted((rich.directory / "entries").iterdir())
    before = segments[0].read_bytes().count(b"\n")
    for path in segments[1:3]:
        lines = path.read_bytes().split(b"\n")
        lines[1] = lines[1].replace(b"a", b"b", 1)
        path.write_bytes(b"\n".join(lines))
    found = verify_ledger(rich.directory)
    (damage,) = found.damage
    assert (damage.kind, damage.seq, found.differing) == (DamageKind.EDITED, before + 1, 2)
    message = f"entry {before + 1} differs from what was signed; 2 of 120 entries differ"
    assert damage.message == message
    forget_index(rich.directory)
    (damage,) = (found := verify_ledger(rich.directory)).damage
    assert (damage.seq, found.differing) == (before + 1, None)


# Keys, origins and older checkpoints


def test_a_key_that_is_not_the_ledgers_is_damage(rich: RichLedger, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger", "example.org/me")
    found = verify_ledger(rich.directory, key=stranger.verifier)
    assert kinds(found) == {DamageKind.WRONG_KEY}
    assert found.key is not None


def test_a_ledger_that_another_key_signed_is_not_taken_for_it(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a")
    stranger = make_key(tmp_path / "stranger", "example.org/me")
    resign(ledger, stranger)
    assert kinds(verify_ledger(ledger)) == {DamageKind.MISSING_SIGNATURE}
    found = verify_ledger(ledger, key=stranger.verifier)
    assert kinds(found) == {DamageKind.WRONG_KEY}


@pytest.mark.parametrize("signature", [None, "", "AAAA", base64.b64encode(bytes(64)).decode()])
def test_a_key_that_the_former_one_did_not_sign_is_damage(
    tmp_path: Path, signature: str | None
) -> None:
    ledger = small(tmp_path, "a")
    stranger = make_key(tmp_path / "stranger", "example.org/me")
    entry = KeyEntry(
        at="2026-01-01T00:00:00.000Z", seq=2, format=FORMAT, origin=ORIGIN,
        key=str(stranger.verifier), signature=signature,
    )  # fmt: skip
    append_raw(ledger, msgspec.json.encode(entry))
    resign(ledger, stranger)
    found = verify_ledger(ledger)
    assert kinds(found) == {DamageKind.BAD_KEY_CHANGE, DamageKind.MISSING_SIGNATURE}
    assert 2 in {damage.seq for damage in found.damage}


def test_an_older_checkpoint_of_another_ledger_is_damage(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one = small(tmp_path / "one", "a")
    other = small(tmp_path / "other", "b")
    resign(other, find_key(tmp_path / "other"), origin="example.org/other")
    found = verify_ledger(one, since=[other / "checkpoint"])
    assert DamageKind.WRONG_ORIGIN in kinds(found)
    # Of the same name, and with other entries and another key.
    resign(other, find_key(tmp_path / "other"))
    found = verify_ledger(one, since=[other / "checkpoint"])
    assert kinds(found) == {DamageKind.MISSING_SIGNATURE, DamageKind.FORKED}


def test_an_older_checkpoint_with_a_bad_signature_is_damage(rich: RichLedger) -> None:
    data = rich.older.read_bytes()
    rich.older.write_bytes(data.replace(data.split(b"\n")[1], b"7", 1))
    found = verify_ledger(rich.directory, since=[rich.older])
    assert DamageKind.BAD_SIGNATURE in kinds(found)


@pytest.mark.parametrize("content", [b"", b"garbage", b"A" * 1_000_000])
def test_what_is_given_as_an_older_checkpoint_must_be_one(rich: RichLedger, content: bytes) -> None:
    rich.older.write_bytes(content)
    with pytest.raises(NoteError, match="older"):
        verify_ledger(rich.directory, since=[rich.older])
    with pytest.raises(NoteError, match="cannot be read"):
        verify_ledger(rich.directory, since=[rich.older.with_name("nowhere")])


# What an owner signs and is no ledger


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b'{"at":"2026-01-01T00:00:00.000Z","kind":"note","seq":2,"text":"x","author":"y"} {}',
        b'{"at":"2026-01-01T00:00:00.000Z","kind":"surprise","seq":2}',
        b'{"at":"2026-01-01T00:00:00.000Z","kind":"note","seq":7,"text":"x","author":"y"}',
        b'{"at":"2026-01-01T00:00:00.000Z","kind":"trial","seq":2,"record":{}}',
        b'{"at":"2026-01-01T00:00:00.000Z","kind":"trial","seq":2,"record":{"reward":nan}}',
        b'{"withheld":"../x","seq":2}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_signed_line_that_is_no_entry_is_malformed(tmp_path: Path, line: bytes) -> None:
    ledger = small(tmp_path, "a")
    append_raw(ledger, line)
    resign(ledger, find_key(tmp_path))
    found = verify_ledger(ledger)
    assert kinds(found) == {DamageKind.MALFORMED}
    assert {damage.seq for damage in found.damage} == {2}


@pytest.mark.parametrize("sha256", ["../../../../etc/passwd", "", "A" * 64, "ab" * 33])
def test_evidence_that_is_no_digest_never_becomes_a_path(tmp_path: Path, sha256: str) -> None:
    ledger = small(tmp_path, "a")
    record = msgspec.Raw(msgspec.json.format(record_bytes("b"), indent=-1))
    entry = TrialEntry(
        at="2026-01-01T00:00:00.000Z", seq=2, record=record,
        evidence=(EvidenceFile(path="x", sha256=sha256, size=1),),
    )  # fmt: skip
    append_raw(ledger, msgspec.json.encode(entry))
    resign(ledger, find_key(tmp_path))
    assert kinds(verify_ledger(ledger)) == {DamageKind.MALFORMED}


def test_a_line_of_no_end_is_never_held_whole(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a")
    with (ledger / "entries" / "000000.jsonl").open("ab") as file:
        file.truncate(file.tell() + (100 << 20))
    found = verify_ledger(ledger)
    assert found.damage == []
    assert "after the checkpoint" in found.notes[0]


# What is no ledger at all


def test_a_directory_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(LedgerError, match="not a ledger"):
            verify_ledger(place)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a")
    path = ledger / "entries" / "000000.jsonl"
    path.write_bytes(path.read_bytes().replace(FORMAT.encode(), b"proctor-ledger-2"))
    # In a ledger that the index knows somebody wrote over the format.
    assert kinds(verify_ledger(ledger)) == {DamageKind.EDITED}
    resign(ledger, find_key(tmp_path))
    with pytest.raises(LedgerError, match="proctor-ledger-2"):
        verify_ledger(ledger)


@pytest.mark.parametrize("put", [os.mkfifo, lambda at: at.symlink_to("/dev/zero"), Path.mkdir])
@pytest.mark.parametrize("name", ["checkpoint", "entries/000000.jsonl"])
def test_a_pipe_a_link_or_a_directory_in_place_of_a_file_is_damage(
    tmp_path: Path, name: str, put: object
) -> None:
    ledger = small(tmp_path, "a")
    (ledger / name).unlink()
    assert callable(put)
    put(ledger / name)
    named = {DamageKind.UNREADABLE_CHECKPOINT, DamageKind.UNREADABLE_SEGMENT}
    assert kinds(verify_ledger(ledger)) & named


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
! touch "$1/x" 2>/dev/null && exec "$2" -c "$3" "$1"
"""
"""Verify a directory that nobody can write to."""
VERIFY = """
import sys
from proctor.ledger.verification.verify import verify_ledger
found = verify_ledger(sys.argv[1])
print(found.damage, found.notes, found.size)
"""


def test_a_ledger_on_a_medium_that_cannot_be_written_is_verified(rich: RichLedger) -> None:
    words = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(rich.directory), sys.executable]
    ran = subprocess.run([*words, VERIFY], capture_output=True, text=True, check=False)
    if ran.returncode == 77 or "unshare" in ran.stderr:
        pytest.skip("nothing can be mounted here")
    assert ran.stdout == "[] [] 120\n", ran.stderr


def test_beyond_a_thousand_of_a_kind_damage_is_only_counted() -> None:
    findings = Findings()
    for number in range(1005):
        findings.add(DamageKind.EDITED, "x", "y", number)
    assert len(findings.damages) == 1000
    assert findings.unlisted() == ["5 more of the kind 'edited' are not listed"]


def test_an_artifact_is_missing_or_altered_and_a_bomb_is_not_unpacked(rich: RichLedger) -> None:
    artifacts = FileArtifacts(rich.directory)
    with pytest.raises(MissingArtifactError, match="is missing"):
        artifacts.check("0" * 64, 1)
    with io.BytesIO(bytes(50 << 20)) as plain:
        sha256, _ = artifacts.put(plain)
    artifacts.settle()
    with pytest.raises(AlteredArtifactError, match="more bytes than were sealed"):
        artifacts.check(sha256, 1000)


def test_a_ledger_that_somebody_appends_to_is_sound_at_any_moment(tmp_path: Path) -> None:
    ledger, stop = small(tmp_path, "a"), threading.Event()

    def append() -> None:
        with OpenLedger.open(ledger, key=find_key(tmp_path)) as opened:
            # Not as fast as a file system in memory allows: every check reads all there is.
            while not stop.wait(0.005):
                with opened.writing():
                    opened.append([NoteEntry(at="", seq=0, text="more", author="ana")] * 20)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        found = [verify_ledger(ledger) for _ in range(30)]
    finally:
        stop.set()
        writer.join()
    assert [one.damage for one in found if one.damage] == []
    assert found[-1].size > found[0].size
