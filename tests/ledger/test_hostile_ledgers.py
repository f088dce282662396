"""What an enemy and a newcomer found: each of these was accepted, lost or shown once."""

import io
import re
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from backports import zstd

from proctor.errors import (
    DamageError,
    InputError,
    KeyFileError,
    LedgerError,
    NotSealedError,
)
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.entry import (
    FORMAT,
    AnyEntry,
    KeyEntry,
    NoteEntry,
    TrialEntry,
    Withheld,
    decode_line,
    encode_entry,
    now_text,
)
from proctor.ledger.exchange.aec_tree import write_tree
from proctor.ledger.exchange.bundle import check_bundle, write_bundle
from proctor.ledger.exchange.take_in import import_bundle
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import sign_checkpoint
from proctor.ledger.sealing import Secrets, Submission, seal
from proctor.ledger.tree import Tree, leaf_hash, root_of
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.by_hand import hand_over
from tests.ledger.ledgers import ORIGIN, find_key, forget_index, make_ledger, record_bytes, small

VALUE = "hünter2-very-secret"


def lines_of(directory: Path) -> list[bytes]:
    return (directory / "entries" / "000000.jsonl").read_bytes().splitlines()


def sign_anew(directory: Path, key: SigningKey, lines: Sequence[bytes]) -> None:
    """A ledger with other lines, signed as they are: what the owner of a key can do."""
    (directory / "entries" / "000000.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    tree = Tree(len(lines), root_of(map(leaf_hash, lines)))
    signed = sign_checkpoint(ORIGIN, tree, key.verifier, key.sign)
    (directory / "checkpoint").write_bytes(signed.render())
    forget_index(directory)


def key_line(key: SigningKey) -> bytes:
    named = str(key.verifier)
    return encode_entry(KeyEntry(at=now_text(), seq=0, format=FORMAT, origin=ORIGIN, key=named))


def kinds(directory: Path, key: SigningKey | None = None) -> set[DamageKind]:
    found = verify_ledger(directory, key=key.verifier if key else None)
    return {damage.kind for damage in found.damage}


def test_a_key_that_stands_behind_the_checkpoint_vouches_for_nothing(tmp_path: Path) -> None:
    directory, enemy = small(tmp_path, "a", "b"), find_key(tmp_path)
    trusted = make_key(tmp_path / "trusted", "example.org/me")
    with (directory / "entries" / "000000.jsonl").open("ab") as file:
        file.write(encode_entry(hand_over(directory, enemy, trusted)) + b"\n")
    assert DamageKind.WRONG_KEY in kinds(directory, trusted)


@pytest.mark.parametrize("is_given", [True, False])
def test_a_first_key_that_stands_behind_the_checkpoint_replaces_none(
    tmp_path: Path, is_given: bool
) -> None:
    directory, owner = small(tmp_path, "a"), find_key(tmp_path)
    enemy = make_key(tmp_path / "enemy", "example.org/me")
    forged = NoteEntry(at=now_text(), seq=2, text="forged", author="ana")
    sign_anew(directory, enemy, [*lines_of(directory), encode_entry(forged)])
    named = encode_entry(hand_over(directory, enemy, owner))
    with (directory / "entries" / "000000.jsonl").open("ab") as file:
        file.write(key_line(enemy) + b"\n" + named + b"\n")
    assert kinds(directory, owner if is_given else None) == {DamageKind.MISSING_SIGNATURE}


@pytest.mark.parametrize("seq", [-1, 1 << 63, 10**30])
def test_a_place_that_is_none_is_malformed(tmp_path: Path, seq: int) -> None:
    directory = small(tmp_path, "a")
    note = encode_entry(NoteEntry(at=now_text(), seq=2, text="x", author="ana"))
    line = note.replace(b'"seq":2', b'"seq":%d' % seq)
    sign_anew(directory, find_key(tmp_path), [*lines_of(directory), line])
    assert kinds(directory) == {DamageKind.MALFORMED}


def _twice(line: bytes) -> bytes:
    return line.replace(b'"record":', b'"record":{"trial_id":"other"},"record":')


def _strange(line: bytes) -> bytes:
    return line.replace(b'"record":', b'"results":1,"record":')


def _huge(line: bytes) -> bytes:
    return re.sub(rb'"reward":[0-9.]+', b'"reward":1' + b"0" * 30, line)


def _no_text(line: bytes) -> bytes:
    return line.replace(b'"trial_id":"a"', b'"trial_id":"a\xff"')


@pytest.mark.parametrize("change", [_twice, _strange, _huge, _no_text])
def test_a_signed_trial_that_can_be_read_in_two_ways_is_malformed(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    directory = small(tmp_path, "a")
    first, trial = lines_of(directory)
    assert change(trial) != trial
    sign_anew(directory, find_key(tmp_path), [first, change(trial)])
    assert kinds(directory) == {DamageKind.MALFORMED}


@pytest.mark.parametrize("change", [_huge, _no_text])
def test_a_trial_that_cannot_be_listed_is_damage_and_no_crash(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    directory = small(tmp_path, "a")
    first, trial = lines_of(directory)
    sign_anew(directory, find_key(tmp_path), [first, change(trial)])
    with OpenLedger.open(directory) as ledger, pytest.raises(DamageError, match="entry 1"):
        ledger.refresh()


def test_a_reward_that_no_list_could_hold_is_refused_before_it_is_sealed(tmp_path: Path) -> None:
    with make_ledger(tmp_path) as ledger:
        record = record_bytes("a", **{"evaluation.reward": 10**30})
        with pytest.raises(NotSealedError, match=r"evaluation\.reward"):
            seal(ledger, [Submission(record=record, where="a")])
        assert ledger.refresh().tree.size == 1


# Bundles


def bundle_of(directory: Path, change: Callable[[AnyEntry | Withheld], bytes]) -> Path:
    """A bundle of a ledger with one trial and one file, its entry changed and signed so."""
    bundle = directory / "b.tar.zst"
    (directory / "file").write_text("hello\n")
    with make_ledger(directory) as ledger:
        submission = Submission(
            record=record_bytes("a"), where="a", root=directory, evidence=("file",)
        )
        seal(ledger, [submission])
        write_bundle(ledger, bundle)
    first, line = lines_of(directory / "ledger")
    changed = change(decode_line(line, "the trial"))
    sign_anew(directory / "ledger", find_key(directory), [first, changed])
    others = {
        "checkpoint": (directory / "ledger" / "checkpoint").read_bytes(),
        "entries.jsonl": b"".join(line + b"\n" for line in (first, changed)),
    }
    # By hand: such a ledger is not read, and so no bundle is made of it.
    pack(bundle, [(each, others.get(each.name, data)) for each, data in unpack(bundle)])
    return bundle


def with_evidence(**changes: object) -> Callable[[AnyEntry | Withheld], bytes]:
    def change(entry: AnyEntry | Withheld) -> bytes:
        assert isinstance(entry, TrialEntry)
        file = msgspec.structs.replace(entry.evidence[0], **changes)
        return encode_entry(msgspec.structs.replace(entry, evidence=(file,)))

    return change


HOSTILE = [
    {"path": "../../../outside"},
    {"path": "/outside"},
    {"path": "_generation2/../../outside"},
    {"size": 3},
    {"sha256": "../../outside"},
]


@pytest.mark.parametrize("changes", HOSTILE)
def test_evidence_that_no_ledger_would_seal_does_not_come_in_with_a_bundle(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    bundle = bundle_of(there, with_evidence(**changes))
    with make_ledger(here) as ledger:
        with pytest.raises(DamageError):
            import_bundle(ledger, bundle)
        assert ledger.refresh().tree.size == 1


def test_a_size_that_is_a_lie_does_not_come_in_for_evidence_that_is_here(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    bundle = bundle_of(there, with_evidence(size=3))
    pack(bundle, [each for each in unpack(bundle) if not each[0].name.startswith("artifacts/")])
    with make_ledger(here) as ledger:
        ledger.artifacts.put(io.BytesIO(b"hello\n"))
        ledger.artifacts.settle()
        with pytest.raises(DamageError):
            import_bundle(ledger, bundle)
        assert ledger.refresh().tree.size == 1


def unpack(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress(path.read_bytes()))) as tar:
        return [(each, (tar.extractfile(each) or io.BytesIO()).read()) for each in tar]


def pack(path: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    path.write_bytes(zstd.compress(plain.getvalue()))


def test_an_export_writes_nothing_outside_of_its_directory(tmp_path: Path) -> None:
    bundle_of(tmp_path, with_evidence(path="../../../outside"))
    with (
        OpenLedger.open(tmp_path / "ledger") as ledger,
        pytest.raises(DamageError, match="plain relative path"),
    ):
        write_tree(ledger, [ledger.refresh().tree.size - 1], tmp_path / "out")
    assert not list(tmp_path.rglob("outside"))


def test_a_line_taken_out_of_a_bundle_without_a_word_is_damage(tmp_path: Path) -> None:
    directory = small(tmp_path, "a", "b")
    with OpenLedger.open(directory) as ledger:
        write_bundle(ledger, tmp_path / "b.tar.zst")
    first, line, last = lines_of(directory)
    left = encode_entry(Withheld(withheld=leaf_hash(line).hex(), seq=1))
    members = unpack(tmp_path / "b.tar.zst")
    entries = b"".join(each + b"\n" for each in (first, left, last))
    changed = [(each, entries if each.name == "entries.jsonl" else data) for each, data in members]
    pack(tmp_path / "c.tar.zst", changed)
    with pytest.raises(DamageError, match="entry 1 was removed, and no entry says so"):
        check_bundle(tmp_path / "c.tar.zst", find_key(tmp_path).verifier)


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE]
)
def test_a_header_of_any_size_is_not_read(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 40
    path = tmp_path / "b.tar.zst"
    path.write_bytes(zstd.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    with pytest.raises(InputError, match="not a plain file"):
        check_bundle(path)


def test_a_bundle_is_of_one_moment_though_others_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_ledger(tmp_path, ["a"]) as ledger, make_second(tmp_path) as second:
        refresh = ledger.refresh

        def refresh_and_lose_the_race() -> object:
            found = refresh()
            seal(second, [Submission(record=record_bytes("b"), where="b")])
            return found

        monkeypatch.setattr(ledger, "refresh", refresh_and_lose_the_race)
        write_bundle(ledger, tmp_path / "b.tar.zst")
    assert check_bundle(tmp_path / "b.tar.zst").checkpoint.tree.size == 2


def make_second(directory: Path) -> OpenLedger:
    return OpenLedger.open(directory / "ledger", key=find_key(directory))


# Beginnings, secrets, keys


@pytest.mark.parametrize("cut", [None, 0, 5, 100])
def test_a_ledger_that_a_kill_kept_from_its_first_checkpoint_can_be_made(
    tmp_path: Path, cut: int | None
) -> None:
    directory = small(tmp_path)
    (directory / "checkpoint").unlink()
    first = directory / "entries" / "000000.jsonl"
    first.write_bytes(first.read_bytes()[:cut])
    with OpenLedger.create(directory, find_key(tmp_path), ORIGIN) as ledger:
        seal(ledger, [Submission(record=record_bytes("a"), where="a")])
    assert verify_ledger(directory).is_sound


def test_a_ledger_that_lost_its_checkpoint_is_not_made_anew(tmp_path: Path) -> None:
    directory = small(tmp_path, "a")
    (directory / "checkpoint").unlink()
    before = lines_of(directory)
    with pytest.raises(LedgerError, match="there is a ledger already"):
        OpenLedger.create(directory, find_key(tmp_path), ORIGIN)
    assert lines_of(directory) == before


def test_a_secret_is_found_as_json_may_spell_it_and_in_names_and_findings(tmp_path: Path) -> None:
    (tmp_path / VALUE).write_text("x")
    escaped = VALUE.encode("ascii", "backslashreplace").replace(b"\\xfc", b"\\u00fc")
    record = record_bytes("a")
    tried = [
        Submission(record=record, where="a", attached={"log.json": b'"' + escaped + b'"'}),
        Submission(record=record, where="a", root=tmp_path, evidence=(VALUE,)),
        Submission(record=record, where="a", findings=({"detail": {"files": [VALUE]}},)),
    ]
    with make_ledger(tmp_path) as ledger:
        for submission in tried:
            with pytest.raises(NotSealedError, match="contains the value of API_KEY"):
                seal(ledger, [submission], Secrets({"API_KEY": VALUE}))
        assert ledger.refresh().tree.size == 1


def test_a_private_key_given_for_a_public_one_is_not_shown(tmp_path: Path) -> None:
    find_key(tmp_path)
    text = (tmp_path / "key").read_text().strip()
    (tmp_path / "blank").write_text(f"\n {text}\n")
    (tmp_path / "token").write_text("ghp_0123456789\n")
    for given in (text, str(tmp_path / "key"), str(tmp_path / "blank"), str(tmp_path / "token")):
        with pytest.raises(KeyFileError) as raised:
            load_verifier_key(given)
        assert text[-20:] not in str(raised.value)
        assert "ghp_" not in str(raised.value)
