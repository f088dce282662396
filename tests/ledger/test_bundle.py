"""A ledger, or a part of it, in one file that proves what it holds."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports import zstd

from proctor.errors import ConflictError, DamageError, InputError, LedgerError, SignatureError
from proctor.ledger.entry import TrialEntry
from proctor.ledger.exchange.bundle import check_bundle, write_bundle
from proctor.ledger.exchange.take_in import import_bundle
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import EXPERIMENT, make_ledger, record_bytes

type Members = list[tuple[str, bytes]]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[OpenLedger]:
    """Three trials: two with a file of evidence each, one of them shared."""
    here = tmp_path / "here"
    here.mkdir()
    for name, text in {"own": "only a's\n", "shared": "a's and b's\n"}.items():
        (here / name).write_text(text)
    with make_ledger(here) as made:
        seal(
            made,
            [
                submission("a", here, "own", "shared"),
                submission("b", here, "shared"),
                submission("c", here),
            ],
        )
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OpenLedger]:
    (tmp_path / "there").mkdir()
    with make_ledger(tmp_path / "there") as made:
        yield made


@pytest.fixture
def bundle(ledger: OpenLedger, tmp_path: Path) -> Path:
    path = tmp_path / "all.tar.zst"
    write_bundle(ledger, path)
    return path


def submission(trial: str, root: Path, *evidence: str) -> Submission:
    return Submission(record=record_bytes(trial), where=trial, root=root, evidence=evidence)


def members_of(path: Path) -> Members:
    with zstd.open(path) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def write_members(path: Path, members: Members) -> None:
    with zstd.open(path, "wb") as plain, tarfile.open(fileobj=plain, mode="w|") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_a_bundle_comes_in_with_every_record_and_all_evidence(
    ledger: OpenLedger, other: OpenLedger, bundle: Path
) -> None:
    taken = import_bundle(other, bundle)
    assert (taken.new, taken.known, taken.without) == (3, 0, 0)
    other.refresh()
    for trial in "abc":
        ours = ledger.find_sealed(EXPERIMENT, trial)
        theirs = other.find_sealed(EXPERIMENT, trial)
        assert ours is not None
        assert theirs is not None
        assert (ours.record, ours.evidence) == (theirs.record, theirs.evidence)
        entry = other.entry(theirs.seq)
        assert isinstance(entry, TrialEntry)
        assert entry.source is not None
        assert (entry.source.name, entry.source.seq) == ("example.org/ledger", ours.seq)
    assert verify_ledger(Path(other.where)).damage == []


def test_a_second_import_changes_nothing(other: OpenLedger, bundle: Path) -> None:
    import_bundle(other, bundle)
    before = other.refresh()
    assert import_bundle(other, bundle).known == 3
    assert other.refresh() == before


def test_what_is_left_out_still_counts(
    ledger: OpenLedger, other: OpenLedger, tmp_path: Path
) -> None:
    path = tmp_path / "part.tar.zst"
    bundled = write_bundle(ledger, path, trials={2})
    assert (bundled.trials, bundled.left_out, bundled.size) == (1, 2, 4)
    checked = check_bundle(path)
    assert (checked.trials, checked.left_out) == (1, 2)
    assert checked.checkpoint == ledger.checkpoint()
    assert b"only a's" not in b"".join(data for _, data in members_of(path))
    assert import_bundle(other, path).new == 1


def test_the_same_ledger_gives_the_same_bundle(
    ledger: OpenLedger, bundle: Path, tmp_path: Path
) -> None:
    write_bundle(ledger, tmp_path / "again.tar.zst")
    assert (tmp_path / "again.tar.zst").read_bytes() == bundle.read_bytes()


def test_a_bundle_replaces_nothing(ledger: OpenLedger, bundle: Path) -> None:
    before = bundle.read_bytes()
    with pytest.raises(LedgerError, match="a bundle replaces nothing"):
        write_bundle(ledger, bundle)
    assert bundle.read_bytes() == before


def test_an_edited_a_moved_and_a_missing_entry_are_refused(bundle: Path, tmp_path: Path) -> None:
    members = members_of(bundle)
    lines = dict(members)["entries.jsonl"].splitlines(keepends=True)
    edited = [*lines[:2], lines[2].replace(b'"adapter"', b'"Adapter"', 1), lines[3]]
    for broken in (edited, [lines[0], lines[2], lines[1], lines[3]], lines[:3], [*lines, lines[3]]):
        path = tmp_path / "broken.tar.zst"
        write_members(
            path,
            [
                (name, b"".join(broken) if name == "entries.jsonl" else data)
                for name, data in members
            ],
        )
        with pytest.raises(DamageError):
            check_bundle(path)


def test_altered_and_strange_evidence_is_refused(bundle: Path, tmp_path: Path) -> None:
    members = members_of(bundle)
    name, data = members[-1]
    path = tmp_path / "broken.tar.zst"
    write_members(path, [*members[:-1], (name, b"x" * len(data))])
    with pytest.raises(DamageError, match="holds bytes with the SHA-256"):
        check_bundle(path)
    write_members(path, [*members, ("artifacts/" + "0" * 64, b"mine")])
    with pytest.raises(DamageError, match="evidence of no trial"):
        check_bundle(path)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "artifacts/../../x", "artifacts/a/b"])
def test_a_member_that_is_none_is_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "broken.tar.zst"
    write_members(path, [*members_of(bundle), (name, b"x")])
    with pytest.raises((InputError, DamageError)):
        check_bundle(path)


def test_another_key_did_not_sign_it(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(SignatureError):
        check_bundle(bundle, make_key(tmp_path / "stranger", "example.org/me").verifier)


@pytest.mark.parametrize("size", [0, 10, 100, -1])
def test_a_torn_bundle_is_refused_and_nothing_is_taken(
    bundle: Path, other: OpenLedger, size: int
) -> None:
    bundle.write_bytes(bundle.read_bytes()[:size])
    before = other.refresh()
    with pytest.raises((InputError, DamageError)):
        import_bundle(other, bundle)
    assert other.refresh() == before
    assert not (Path(other.where) / "artifacts").exists()


def test_evidence_that_the_bundle_lacks_is_put_down_as_withheld(
    ledger: OpenLedger, other: OpenLedger, tmp_path: Path
) -> None:
    shutil.rmtree(Path(ledger.where) / "artifacts")
    path = tmp_path / "bare.tar.zst"
    write_bundle(ledger, path)
    taken = import_bundle(other, path)
    assert (taken.new, taken.without) == (3, 3)
    assert verify_ledger(Path(other.where)).damage == []


def test_a_trial_that_is_sealed_here_with_other_bytes_is_refused(
    other: OpenLedger, bundle: Path
) -> None:
    changed = record_bytes("b", **{"evaluation.reward": 0.0})
    seal(other, [Submission(record=changed, where="b")])
    with pytest.raises(ConflictError, match="is sealed already"):
        import_bundle(other, bundle)
