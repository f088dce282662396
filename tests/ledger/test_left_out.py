"""A bundle leaves out trials and nothing else, and its reader can see that."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from backports import zstd

from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.entry import TrialEntry, Withheld, decode_line, encode_entry
from proctor.ledger.exchange.bundle import check_bundle, read_entries, write_bundle
from proctor.ledger.exchange.take_in import import_bundle
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.tree import leaf_hash
from tests.cli.programs import Proctor
from tests.ledger.hostile import pack
from tests.ledger.ledgers import RichLedger, find_key, make_ledger, make_rich_ledger, small
from tests.ledger.test_bundle import Members, members_of, write_members
from tests.ledger.test_hostile_ledgers import lines_of, sign_anew

TRIAL = 3
"""The place of t2, which has one file of evidence, and supersedes t1."""


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> RichLedger:
    """Every kind of entry: reviews, supersessions, plans, notes, keys, withholdings."""
    return make_rich_ledger(tmp_path_factory.mktemp("rich"), size=80)


@pytest.fixture(scope="module")
def part(rich: RichLedger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("part") / "part.tar.zst"
    with OpenLedger.open(rich.directory) as ledger:
        made = write_bundle(ledger, path, trials={TRIAL})
    assert (made.trials, made.size) == (1, 80)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OpenLedger]:
    (tmp_path / "there").mkdir()
    with make_ledger(tmp_path / "there") as made:
        yield made


def lines_in(members: Members) -> list[bytes]:
    return dict(members)["entries.jsonl"].splitlines()


def change(path: Path, members: Members, **changed: bytes) -> None:
    """The same members, some with other bytes."""
    names = {"head": "bundle.json", "lines": "entries.jsonl"}
    other = {names[key]: data for key, data in changed.items()}
    write_members(path, [(name, other.get(name, data)) for name, data in members])


def hash_line(line: bytes, seq: int) -> bytes:
    return b'{"left_out":"%s","seq":%d}' % (leaf_hash(line).hex().encode(), seq)


def kinds_of(lines: list[bytes]) -> dict[str, int]:
    """A place for each kind of entry that is no trial."""
    found: dict[str, int] = {}
    for seq, line in enumerate(lines):
        entry = decode_line(line, "a line")
        found.setdefault("line gone" if isinstance(entry, Withheld) else entry.kind, seq)
    del found["trial"]
    return found


def test_every_line_is_in_a_part_and_the_evidence_of_one_trial(
    rich: RichLedger, part: Path, other: OpenLedger
) -> None:
    segments = sorted((rich.directory / "entries").glob("*.jsonl"))
    whole = b"".join(segment.read_bytes() for segment in segments)
    assert dict(members_of(part))["entries.jsonl"] == whole
    assert len([name for name, _ in members_of(part) if name.startswith("artifacts/")]) == 1
    found = check_bundle(part, rich.first_key.verifier)
    assert (found.trials, found.left_out, len(found.withheld)) == (1, 67, 2)
    assert [entry.seq for entry in read_entries(part) if entry.kind == "trial"] == [TRIAL]
    assert import_bundle(other, part).new == 1


def test_nothing_but_a_trial_may_be_left_out(part: Path, tmp_path: Path) -> None:
    members = members_of(part)
    lines, head = lines_in(members), msgspec.json.decode(dict(members)["bundle.json"])
    kinds = kinds_of(lines)
    assert kinds.keys() >= {"key", "review", "rescore", "supersede", "plan", "note", "withhold"}
    path = tmp_path / "broken.tar.zst"
    for seq in kinds.values():
        runs = sorted([*head["left_out"], [seq, seq]])
        change(path, members, head=msgspec.json.encode({**head, "left_out": runs}))
        with pytest.raises((DamageError, InputError), match=r"only trials may be|names no key"):
            check_bundle(path)


@pytest.mark.parametrize("kind", ["review", "supersede", "withhold", "plan", "key", "trial"])
def test_a_hash_in_the_place_of_a_line_is_refused(part: Path, tmp_path: Path, kind: str) -> None:
    members = members_of(part)
    lines = lines_in(members)
    seq = {**kinds_of(lines), "trial": TRIAL}[kind]
    lines[seq] = hash_line(lines[seq], seq)
    path = tmp_path / "broken.tar.zst"
    change(path, members, lines=b"\n".join(lines) + b"\n")
    with pytest.raises(DamageError, match=f"entry {seq}: not an entry"):
        check_bundle(path)


@pytest.mark.parametrize(
    "runs",
    [[[5, 4]], [[9, 9], [5, 5]], [[4, 6], [6, 8]], [[-3, -1]], [[200, 300]], [[5, 10**18]], 3, "x"],
)
def test_places_that_are_none_are_refused(part: Path, tmp_path: Path, runs: object) -> None:
    members = members_of(part)
    head = msgspec.json.decode(dict(members)["bundle.json"])
    change(tmp_path / "b.tar.zst", members, head=msgspec.json.encode({**head, "left_out": runs}))
    with pytest.raises((DamageError, InputError), match=r"left_out|leaves? out|left out"):
        check_bundle(tmp_path / "b.tar.zst")


def test_a_trial_whose_successor_is_left_out_does_not_come_in(
    rich: RichLedger, other: OpenLedger, tmp_path: Path
) -> None:
    with OpenLedger.open(rich.directory) as ledger:
        write_bundle(ledger, tmp_path / "one.tar.zst", trials={2})
        write_bundle(ledger, tmp_path / "both.tar.zst", trials={2, 3})
    with pytest.raises(LedgerError, match="t1 was superseded by t2, which is left out"):
        import_bundle(other, tmp_path / "one.tar.zst")
    assert other.refresh().tree.size == 1
    taken = import_bundle(other, tmp_path / "both.tar.zst")
    assert (taken.new, taken.remarks) == (2, 3)
    assert import_bundle(other, tmp_path / "one.tar.zst").known == 1


@pytest.mark.parametrize("field", ["trial_id", "experiment_id"])
def test_a_bundle_with_an_id_that_is_no_name_is_damage_and_leaves_no_new_ledger(
    tmp_path: Path, proctor: Proctor, field: str
) -> None:
    directory = small(tmp_path, "a")
    first, line = lines_of(directory)
    entry = decode_line(line, "the trial")
    assert isinstance(entry, TrialEntry)
    record = msgspec.Raw(
        msgspec.json.encode({**msgspec.json.decode(entry.record), field: "../../evil"})
    )
    changed = encode_entry(msgspec.structs.replace(entry, record=record))
    sign_anew(directory, find_key(tmp_path), [first, changed])
    write_members(tmp_path / "b.tar.zst", pack(directory))
    with pytest.raises(DamageError, match=f"entry 1: {field} is '../../evil'"):
        check_bundle(tmp_path / "b.tar.zst")
    ran = proctor("import", "bundle", tmp_path / "b.tar.zst", "--ledger", tmp_path / "new")
    assert (ran.code, (tmp_path / "new").exists()) == (1, False)


def test_a_size_is_compared_before_anything_is_hashed(part: Path, tmp_path: Path) -> None:
    """A header that tells of a terabyte is refused for what it says, without a byte behind it."""
    *members, (name, data) = members_of(part)
    path = tmp_path / "b.tar.zst"
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for each, content in members:
            info = tarfile.TarInfo(each)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        lie = tarfile.TarInfo(name)
        lie.size = 1 << 40
        written = plain.getvalue() + lie.tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(zstd.compress(written))
    with pytest.raises(DamageError, match=f"has {1 << 40} bytes; sealed were {len(data)}"):
        check_bundle(path)
    write_members(path, [*members, (name, data), (name, data)])
    with pytest.raises(DamageError, match="occurs twice"):
        check_bundle(path)


def test_a_header_with_a_size_below_zero_is_refused(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("bundle.json").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12
    checksum = sum(header[:148]) + 8 * 32 + sum(header[156:512])
    header[148:156] = b"%06o\0 " % checksum
    path = tmp_path / "b.tar.zst"
    path.write_bytes(zstd.compress(bytes(header) + bytes(1 << 16)))
    with pytest.raises(InputError, match="size below 0"):
        check_bundle(path)


def test_more_lines_than_are_signed_end_the_reading(part: Path, tmp_path: Path) -> None:
    members = members_of(part)
    lines = dict(members)["entries.jsonl"]
    extra = lines_in(members)[TRIAL].replace(b'"seq":3,', b'"seq":80,')
    path = tmp_path / "b.tar.zst"
    change(path, members, lines=lines + extra + b"\n")
    with pytest.raises(DamageError, match="more than the 80 entries that are signed"):
        check_bundle(path)
