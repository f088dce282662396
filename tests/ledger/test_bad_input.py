"""What a ledger must not take, and what is no ledger: sentences, and nothing is written."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.errors import (
    AlteredArtifactError,
    DamageError,
    KeyFileError,
    LedgerError,
    NotSealedError,
    ProctorError,
    RecordError,
    SignatureError,
)
from proctor.ledger.api import Ledger
from proctor.ledger.keys import make_key
from proctor.ledger.verification.verify import verify_ledger
from tests.cli.programs import environment, run_child
from tests.ledger.ledgers import (
    EXPERIMENT,
    artifact_path,
    find_key,
    forget_index,
    index_of,
    record_bytes,
)
from tests.ledger.trials import all_bytes, open_ledger, seal_files
from tests.unprivileged import unprivileged

HOSTILE = [
    "../x",
    "_x",
    ".x",
    "a\0b",
    "a/b",
    "x" * 300,
    "",
    "\u0430-cyrillic",
    "\uff41",
    "a\n",
    "a\u200b",
]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path, "one", "two") as ledger:
        seal_files(ledger, "three", {"trace.jsonl": b"{}\n"})
        yield ledger


@pytest.fixture
def unchanged(ledger: Ledger) -> Iterator[None]:
    """Whatever happens, no byte of the log and no artifact is another afterwards."""
    kept = [path for path in Path(ledger.where).rglob("*") if "index" not in path.name]
    before = {path: path.read_bytes() for path in kept if path.is_file()}
    yield
    after = [path for path in Path(ledger.where).rglob("*") if "index" not in path.name]
    assert {path: path.read_bytes() for path in after if path.is_file()} == before
    assert len(after) == len(kept)


# What is to be sealed


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", ["trial_id", "experiment_id"])
def test_ids_that_could_become_paths_are_refused(ledger: Ledger, field: str, name: str) -> None:
    record = json.loads(record_bytes("good")) | {field: name}
    with pytest.raises((NotSealedError, RecordError), match=field):
        ledger.seal(json.dumps(record).encode())


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "name", ["../key", "/etc/passwd", "a/../../key", "", ".", "./trace", "a//b", "a\0b", "x" * 2000]
)
def test_evidence_outside_of_its_root_is_refused(ledger: Ledger, tmp_path: Path, name: str) -> None:
    with pytest.raises(NotSealedError, match=r"plain relative path|leads out|cannot be read"):
        ledger.seal(record_bytes("new"), [name], root=tmp_path / "trials")


@pytest.mark.usefixtures("unchanged")
def test_evidence_that_is_a_link_or_a_pipe_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "key")
    (tmp_path / "out").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "out/passwd"):
        with pytest.raises(NotSealedError, match=r"cannot be read|leads out"):
            ledger.seal(record_bytes("new"), [name], root=tmp_path)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "data",
    [
        record_bytes("new").replace(b'"reward": 1.0', b'"reward": NaN'),
        record_bytes("new").replace(b'"reward": 1.0', b'"reward": Infinity'),
        record_bytes("new").replace(b'"reward": 1.0', b'"reward": 1e999'),
        record_bytes("new") + b"trailing",
        record_bytes("new")[:-20],
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"trial_id": ' * 5000,
    ],
    ids=["nan", "inf", "too-large", "trailing", "torn", "empty", "list", "no-text", "deep"],
)
def test_what_is_no_record_is_refused(ledger: Ledger, data: bytes) -> None:
    assert data != record_bytes("new")
    with pytest.raises((NotSealedError, RecordError)):
        ledger.seal(data)


@pytest.mark.usefixtures("unchanged")
def test_a_record_of_100_megabytes_is_refused_unread(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.write(record_bytes("new")[:-2])
        file.truncate(100 << 20)
    ran = run_child(
        "ledger", "seal", path, "--ledger", Path(ledger.where), "--key", tmp_path / "key"
    )
    assert ran.code == 2
    assert f"{100 << 20:,} bytes; a record has at most 8,388,608" in ran.err
    with pytest.raises(NotSealedError, match="move large content into an evidence file"):
        ledger.seal(record_bytes("new", **{"inputs.instruction": "x" * (9 << 20)}))


@pytest.mark.usefixtures("unchanged")
def test_a_wrong_key_writes_nothing_not_even_evidence(ledger: Ledger, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other", "example.org/me")
    (tmp_path / "new.txt").write_text("evidence")
    with Ledger.open(Path(ledger.where), key=other) as foreign:
        with pytest.raises(KeyFileError, match=r"the key at hand is example\.org/me"):
            foreign.seal(record_bytes("new"), ["new.txt"], root=tmp_path)
        with pytest.raises(KeyFileError, match=r"the key at hand is example\.org/me"):
            foreign.withhold(foreign.find("one"), reason="r", author="a")


# What is no ledger, or not this one


def edit_first(ledger: Path, change: Callable[[dict[str, object]], None]) -> None:
    path = ledger / "entries" / "000000.jsonl"
    first, _, rest = path.read_bytes().partition(b"\n")
    document = json.loads(first)
    change(document)
    path.write_bytes(json.dumps(document).encode() + b"\n" + rest)


def test_a_ledger_of_a_newer_version_is_left_alone(ledger: Ledger) -> None:
    edit_first(Path(ledger.where), lambda entry: entry.update(format="proctor-ledger-9", more=1))
    before = all_bytes(Path(ledger.where) / "entries")
    for attempt in (Ledger.open, verify_ledger):
        with pytest.raises(LedgerError, match="format 'proctor-ledger-9'; this proctor reads"):
            attempt(Path(ledger.where))
    assert all_bytes(Path(ledger.where) / "entries") == before


@pytest.mark.parametrize("kind", ["nothing", "empty", "file", "full"])
def test_what_is_no_ledger_is_not_made_one(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("x")
    elif kind != "nothing":
        place.mkdir()
    if kind == "full":
        (place / "letters").write_text("dear ana")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.open(place)
    for command in (["list"], ["verify"]):
        ran = run_child("ledger", *command, "--ledger", place)
        assert (ran.code, "not a ledger" in ran.err, "Traceback" in ran.err) == (2, True, False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == {
        "nothing": [], "empty": ["place"], "file": ["place"], "full": ["letters", "place"],
    }[kind]  # fmt: skip


def test_a_ledger_is_not_made_where_something_is(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("x")
    key = find_key(tmp_path)
    with pytest.raises(LedgerError, match="no ledger can be made there"):
        Ledger.create(tmp_path / "place", key, "o")
    (tmp_path / "half" / "entries").mkdir(parents=True)
    (tmp_path / "half" / "entries" / "000000.jsonl").write_text("{}\n")
    with pytest.raises(LedgerError, match="there is a ledger already"):
        Ledger.create(tmp_path / "half", key, "o")


@pytest.mark.parametrize("change", ["origin", "signature", "other", "unsigned"])
def test_nothing_is_added_to_what_the_key_did_not_sign(
    ledger: Ledger, tmp_path: Path, change: str
) -> None:
    path = Path(ledger.where) / "checkpoint"
    signed = path.read_text()
    if change == "origin":
        path.write_text(signed.replace("example.org/ledger", "example.org/Ledger", 1))
    elif change == "unsigned":
        path.write_text(signed.partition("\n\n")[0] + "\n\n")
    elif change == "signature":
        path.write_text(signed.replace("=\n", "=\n").replace(signed[-8:-4], "AAAA"))
    else:
        (tmp_path / "second").mkdir()
        with open_ledger(tmp_path / "second", "x", "y", "z") as second:
            shutil.copy(Path(second.where) / "checkpoint", path)
    before = all_bytes(Path(ledger.where) / "entries")
    expected: type[ProctorError] = DamageError if change == "other" else SignatureError
    with Ledger.open(Path(ledger.where), key=ledger.key) as opened, pytest.raises(expected):
        opened.seal(record_bytes("new"))
    assert all_bytes(Path(ledger.where) / "entries") == before
    assert path.read_text() != signed
    ran = run_child("ledger", "verify", "--ledger", Path(ledger.where))
    assert (ran.code, "DAMAGED" in ran.out) == (1, True)


def test_a_checkpoint_of_another_ledger_is_named_so(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with open_ledger(tmp_path / "second") as second:
        other = Path(second.where) / "checkpoint"
        note = other.read_text().replace("example.org/ledger", "example.org/other")
    (tmp_path / "older").write_text(note)
    found = verify_ledger(Path(ledger.where), since=[tmp_path / "older"])
    assert "wrong-origin" in {str(damage.kind) for damage in found.damage}


@pytest.mark.parametrize("garbage", [b" x", b"{}", b"\x00"])
def test_an_entry_with_trailing_garbage_is_damage(ledger: Ledger, garbage: bytes) -> None:
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[2] += garbage
    path.write_bytes(b"\n".join(lines))
    ledger.close()
    forget_index(Path(ledger.where))
    for command in ("list", "verify"):
        ran = run_child("ledger", command, "--ledger", Path(ledger.where))
        assert (ran.code, "Traceback" in ran.err) == (1, False)


@pytest.mark.parametrize("what", ["symlink", "fifo", "directory", "device"])
def test_an_artifact_swapped_for_something_else_is_never_read(
    ledger: Ledger, tmp_path: Path, what: str
) -> None:
    path = artifact_path(ledger, sha256_hex(b"{}\n"))
    shutil.copy(path, tmp_path / "same.zst")
    path.unlink()
    if what == "symlink":
        path.symlink_to(tmp_path / "same.zst")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    ran = run_child("show", "three", "--evidence", "trace.jsonl", "--ledger", Path(ledger.where))
    assert (ran.code, ran.out, "cannot be read" in ran.err) == (1, "", True)
    size = ledger.checkpoint().tree.size
    with pytest.raises(AlteredArtifactError, match="no plain file"):
        seal_files(ledger, "four", {"copy": b"{}\n"})
    assert ledger.checkpoint().tree.size == size
    assert [str(each.kind) for each in verify_ledger(Path(ledger.where)).damage] == (
        ["altered-artifact"]
    )


@pytest.mark.parametrize("what", ["garbage", "empty", "directory", "cut", "fifo"])
def test_a_broken_index_costs_nothing(ledger: Ledger, what: str) -> None:
    ledger.trials()
    ledger.close()
    path = index_of(Path(ledger.where))
    data = path.read_bytes()
    forget_index(Path(ledger.where))
    if what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(
            {"garbage": b"x" * 9000, "empty": b"", "cut": data[: len(data) // 2]}[what]
        )
    ran = run_child("ledger", "list", "--json", "--ledger", Path(ledger.where))
    assert (ran.code, len(json.loads(ran.out))) == (0, 3)


# Places where nothing can be written


def test_a_ledger_on_a_read_only_medium_can_be_read(ledger: Ledger) -> None:
    expected = ledger.trials()
    ledger.close()
    place = Path("/tmp") / f"read-only-{os.getpid()}"  # noqa: S108 - where nobody may enter
    shutil.copytree(Path(ledger.where), place)
    try:
        for path in [place, *place.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        with unprivileged():
            with Ledger.open(place, key=ledger.key) as reader:
                assert reader.trials() == expected
                with pytest.raises(LedgerError, match=r"the evidence cannot be stored|written"):
                    reader.seal(record_bytes("new"), ["checkpoint"], root=place)
                with pytest.raises(LedgerError, match="cannot be written"):
                    reader.seal(record_bytes("new"))
            assert verify_ledger(place).damage == []
    finally:
        shutil.rmtree(place)


# Several at once

SEALER = """
import sys
from pathlib import Path
from proctor.ledger.api import Ledger
from tests.ledger.ledgers import artifact_path, find_key, record_bytes
root, name, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
(root / name).write_text(name)
with Ledger.open(root / "ledger", key=find_key(root)) as ledger:
    for n in range(number):
        ledger.seal(record_bytes(f"{name}-{n}"), [name], root=root)
"""


def seal_at_once(root: Path, number: int) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SEALER, str(root), name, str(number)], env=environment()
        )
        for name in ("left", "right")
    ]
    assert [child.wait(timeout=600) for child in children] == [0, 0]


@pytest.mark.parametrize("number", [30, pytest.param(200, marks=pytest.mark.soak)])
def test_two_processes_seal_at_once_and_readers_read_meanwhile(tmp_path: Path, number: int) -> None:
    open_ledger(tmp_path).close()
    worker = threading.Thread(target=seal_at_once, args=(tmp_path, number))
    worker.start()
    seen = 0
    with Ledger.open(tmp_path / "ledger") as reader:
        while worker.is_alive():
            rows = reader.trials()
            assert len(rows) >= seen
            assert all(sha256_hex(reader.record(row)) == row.record for row in rows[-3:])
            seen = len(rows)
        worker.join()
        rows = reader.trials()
    names = {f"{name}-{n}" for name in ("left", "right") for n in range(number)}
    assert {row.trial_id for row in rows} == names
    assert {row.experiment_id for row in rows} == {EXPERIMENT}
    assert [row.seq for row in rows] == list(range(1, 2 * number + 1))
    assert verify_ledger(tmp_path / "ledger").damage == []
