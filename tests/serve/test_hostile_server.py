"""Servers that mean harm: a history that is rewritten, forked, truncated or stale, and worse."""

import contextlib
import io
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from backports import zstd

from proctor.digest import sha256_hex
from proctor.errors import DamageError, ForkError, LedgerError, MissingArtifactError, ProctorError
from proctor.ledger.entry import (
    FORMAT,
    KeyEntry,
    NoteEntry,
    TrialEntry,
    decode_line,
    encode_entry,
)
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.lock import locked
from proctor.ledger.memory import default_memory_path
from proctor.ledger.note import sign_checkpoint
from proctor.ledger.remote.client import LedgerClient
from proctor.ledger.remote.mirror import connect, open_mirror
from proctor.ledger.tiles import TILE, parse_tile_path
from proctor.ledger.tree import Tree, leaf_hash, root_of
from tests.ledger.ledgers import ORIGIN
from tests.serve.servers import Machine

pytestmark = pytest.mark.process
AT = "2026-11-15T10:00:00.000Z"


@dataclass(slots=True)
class Liar:
    """A server whose owner has the key, and says whatever it likes."""

    key: SigningKey
    lines: list[bytes] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    signed: bytes | None = None
    """A checkpoint to show in place of the true one."""
    acknowledged: int | None = None
    """A position to acknowledge whatever is submitted with."""
    is_new: bool = True
    """Whether it says that what is submitted was not there before."""
    keeps_last: bool = False
    """Whether it keeps the last entry of a submission, and acknowledges the others with it."""
    answer: Callable[[str], tuple[int, dict[str, str], bytes] | None] = lambda _: None
    """An answer to a path, in place of the usual one."""

    def begin(self, origin: str = ORIGIN) -> None:
        """The first entry."""
        key = str(self.key.verifier)
        first = KeyEntry(at=AT, seq=0, format=FORMAT, origin=origin, key=key)
        self.lines = [encode_entry(first)]

    def add(self, *texts: str) -> None:
        """Append notes."""
        for text in texts:
            note = NoteEntry(at=AT, seq=len(self.lines), text=text, author="owner")
            self.lines.append(encode_entry(note))

    def checkpoint(self, size: int | None = None, origin: str = ORIGIN) -> bytes:
        """A checkpoint over the first lines."""
        leaves = [leaf_hash(line) for line in self.lines[:size]]
        tree = Tree(len(leaves), root_of(leaves))
        return sign_checkpoint(origin, tree, self.key.verifier, self.key.sign).render()

    def say(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """The answer to a request."""
        if (special := self.answer(path)) is not None:
            return special
        if path == "/checkpoint":
            return 200, {}, self.signed or self.checkpoint()
        if path.startswith("/tile/entries/"):
            tile = parse_tile_path(path[1:])
            begin = tile.number * TILE
            lines = self.lines[begin : begin + tile.width]
            return 200, {}, b"".join(line + b"\n" for line in lines)
        if path.startswith("/artifacts/sha256/"):
            found = self.artifacts.get(path.rpartition("/")[2])
            return (404, {}, b"{}") if found is None else (200, {}, found)
        return 404, {}, b"{}"

    def take(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer to a POST."""
        if path == "/machines":
            return 200, {}, msgspec.json.encode({"name": msgspec.json.decode(body)["name"]})
        if path == "/artifacts/missing":
            return 200, {}, b'{"missing": []}'
        place, lines = self.acknowledged, body.splitlines()
        if self.keeps_last:
            place, entry = len(self.lines), decode_line(lines[-1], "a line")
            assert isinstance(entry, TrialEntry)
            self.lines.append(encode_entry(msgspec.structs.replace(entry, at=AT, seq=place)))
        if place is None:
            return 500, {}, b"{}"
        entries = [{"seq": place, "is_new": self.is_new} for _ in lines]
        return 200, {}, msgspec.json.encode({"entries": entries})


class _Handler(BaseHTTPRequestHandler):
    liar: Liar

    def do_GET(self) -> None:
        self._send(*self.liar.say(self.path))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._send(*self.liar.take(self.path, body))

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def liar(tmp_path: Path) -> Liar:
    made = Liar(make_key(tmp_path / "key", "example.org/liar"))
    made.begin()
    made.add("one", "two", "three")
    return made


@pytest.fixture
def machine(liar: Liar, tmp_path: Path) -> Iterator[Machine]:
    """A machine that uses the liar's server."""
    handler = type("Handler", (_Handler,), {"liar": liar})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        (tmp_path / "home").mkdir()
        port = server.server_address[1]
        yield Machine(tmp_path / "home", f"http://127.0.0.1:{port}", token="t")  # noqa: S106
        server.shutdown()
        thread.join()


def size_of(machine: Machine) -> int:
    """Entries in the copy."""
    with machine.opened() as ledger:
        return ledger.checkpoint().tree.size


def forget_copy(machine: Machine) -> None:
    """Delete the copy, not what was seen."""
    shutil.rmtree(machine.home / ".local/state/proctor/ledgers")


def test_an_honest_server_is_copied_and_followed(liar: Liar, machine: Machine) -> None:
    assert size_of(machine) == 4
    liar.add(*map(str, range(600)))
    assert size_of(machine) == 604
    forget_copy(machine)
    assert size_of(machine) == 604


@pytest.mark.parametrize(
    ("age_sec", "is_fetched"), [(0, False), (10, False), (31, True), (-9, True)]
)
def test_writers_share_a_copy_that_was_fetched_a_moment_ago(
    liar: Liar, machine: Machine, age_sec: int, is_fetched: bool
) -> None:
    # A time in the future: the clock was set back.
    moment = time.time() - age_sec
    os.utime(machine.fetch() / "fetched", (moment, moment))
    liar.add("new")
    with machine.opened(is_fetched=False) as ledger:
        ledger.keep_up()
        assert ledger.checkpoint().tree.size == (5 if is_fetched else 4)
    assert size_of(machine) == 5  # commands always fetch


def test_a_copy_that_could_not_be_fetched_is_not_fresh(liar: Liar, machine: Machine) -> None:
    copy = machine.fetch()
    (copy / "fetched").unlink()
    liar.answer = lambda path: (503, {}, b"{}") if path == "/checkpoint" else None
    machine.fetch()
    assert not (copy / "fetched").exists()


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize("grows", [0, 5])
def test_a_rewritten_history_is_caught(
    liar: Liar, machine: Machine, is_forgotten: bool, grows: int
) -> None:
    machine.fetch()
    liar.lines = liar.lines[:2]
    liar.add("another two", "another three", *map(str, range(grows)))
    if is_forgotten:
        forget_copy(machine)
    with pytest.raises(DamageError):
        machine.fetch()
    # And again: the copy is not changed by what it refused.
    with pytest.raises(DamageError):
        machine.fetch()


def test_both_sides_of_a_fork_are_kept(liar: Liar, machine: Machine) -> None:
    machine.fetch()
    liar.lines = liar.lines[:3]
    liar.add("another three")
    with pytest.raises(ForkError, match="Both signed checkpoints are kept"):
        machine.fetch()
    kept = list((machine.home / ".local/state/proctor/checkpoints/evidence").rglob("4-*"))
    assert len(kept) == 2


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_truncated_or_stale_history_is_caught(
    liar: Liar, machine: Machine, is_forgotten: bool
) -> None:
    machine.fetch()
    if is_forgotten:
        forget_copy(machine)
    liar.signed = liar.checkpoint(2)
    with pytest.raises(ForkError, match="were signed before"):
        machine.fetch()
    liar.signed = None
    assert size_of(machine) == 4


def test_lines_that_were_not_signed_are_caught(liar: Liar, machine: Machine) -> None:
    machine.fetch()
    liar.add("signed")
    liar.signed = liar.checkpoint()
    liar.lines.pop()
    liar.add("another")
    with pytest.raises(DamageError, match="not the ones that it signed"):
        machine.fetch()
    assert b"another" not in b"".join(
        path.read_bytes() for path in next(
            (machine.home / ".local/state/proctor/ledgers").iterdir()
        ).glob("entries/*")
    )  # fmt: skip


def test_a_checkpoint_of_another_key_is_caught(
    liar: Liar, machine: Machine, tmp_path: Path
) -> None:
    machine.fetch()
    liar.key = make_key(tmp_path / "other", "example.org/liar")
    liar.add("more")
    with pytest.raises(DamageError):
        machine.fetch()
    liar.begin()
    liar.add("one", "two", "three", "more")
    forget_copy(machine)
    with pytest.raises(ForkError):
        machine.fetch()


def test_another_ledger_under_the_same_address_is_caught(liar: Liar, machine: Machine) -> None:
    machine.fetch()
    liar.begin("example.org/another")
    liar.add("one", "two", "three", "four")
    liar.signed = liar.checkpoint(origin="example.org/another")
    with pytest.raises(ForkError, match="another ledger"):
        machine.fetch()


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize(
    ("place", "message"),
    [(3, "acknowledged entry 3 with other content"), (900, "acknowledged entry 900")],
)
def test_what_was_acknowledged_must_be_there(
    liar: Liar, machine: Machine, place: int, message: str, is_new: bool
) -> None:
    liar.acknowledged, liar.is_new = place, is_new
    machine.seal("promised")
    # By the next command too, and by every one after it.
    for _ in range(2):
        with pytest.raises(ForkError, match=message):
            machine.fetch()


@pytest.mark.parametrize("is_new", [True, False])
def test_what_waited_and_was_acknowledged_must_be_there(
    liar: Liar, machine: Machine, is_new: bool
) -> None:
    assert machine.seal("promised")[0].status == "waiting"
    liar.acknowledged, liar.is_new = 3, is_new
    with machine.using(), contextlib.closing(connect(machine.fetch(), machine.env)) as mirror:
        mirror.check_writable(machine.key)
        assert mirror.send_waiting() == 1
    for _ in range(2):
        with pytest.raises(ForkError, match="acknowledged entry 3 with other content"):
            machine.fetch()


@pytest.mark.parametrize("is_new", [True, False])
def test_one_entry_is_not_kept_in_place_of_several(
    liar: Liar, machine: Machine, is_new: bool
) -> None:
    liar.keeps_last, liar.is_new = True, is_new
    machine.seal("kept")
    assert size_of(machine) == 5
    machine.seal("dropped", "kept-too")
    with pytest.raises(ForkError, match="acknowledged entry 5 with other content"):
        machine.fetch()


@pytest.mark.parametrize("place", ["-1", '"3"', "true", "1e400", "null"])
def test_a_position_that_is_none_is_no_acknowledgement(
    liar: Liar, machine: Machine, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    answer = b'{"entries": [{"seq": %s, "is_new": true}]}' % place.encode()
    taken = Liar.take

    def take(self: Liar, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        return (200, {}, answer) if path == "/submit" else taken(self, path, body)

    monkeypatch.setattr(Liar, "take", take)
    with pytest.raises(LedgerError, match="not an answer of proctor serve"):
        machine.seal("promised")


@pytest.mark.parametrize("offset", ["-5", "101", "1e400", '"3"', "null"])
def test_a_part_of_an_upload_that_is_none_gets_a_sentence(
    liar: Liar, machine: Machine, offset: str
) -> None:
    liar.answer = lambda _: (200, {}, b'{"offset": %s}' % offset.encode())
    with (
        contextlib.closing(LedgerClient(machine.url, None)) as client,
        pytest.raises(LedgerError, match="does not say how far an upload is"),
    ):
        client.upload_large("0" * 64, 100, 100, io.BytesIO(bytes(100)))


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"not a checkpoint"),
        (200, {}, b"x" * (1 << 20)),
        (200, {}, b""),
        (302, {"location": "http://127.0.0.1:1/"}, b""),
        (401, {}, b"{}"),
        (404, {}, b'{"message": "\x1b[31mred"}'),
        (200, {"content-encoding": "gzip"}, b"\x1f\x8b\x08"),
        (418, {}, b"\xff\xfe"),
    ],
    ids=["text", "large", "empty", "redirect", "401", "404", "gzip", "418"],
)
def test_strange_checkpoints_get_a_sentence(
    liar: Liar, machine: Machine, answer: tuple[int, dict[str, str], bytes]
) -> None:
    liar.answer = lambda path: answer if path == "/checkpoint" else None
    with pytest.raises(ProctorError) as caught:
        machine.fetch()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "body",
    [b"", b"\n", b"{}\n" * 4, b"x" * (20 << 20), b"[" * 100_000 + b"\n", b"\xff\n" * 4],
    ids=["empty", "newline", "objects", "large", "deep", "bytes"],
)
def test_strange_lines_get_a_sentence(liar: Liar, machine: Machine, body: bytes) -> None:
    liar.answer = lambda path: (200, {}, body) if path.startswith("/tile/") else None
    with pytest.raises(ProctorError):
        machine.fetch()
    liar.answer = lambda _: None
    assert size_of(machine) == 4


def test_evidence_that_is_something_else_is_not_believed(liar: Liar, machine: Machine) -> None:
    digest = sha256_hex(b"the evidence")
    with machine.opened() as ledger:
        for body in (zstd.compress(b"something else"), b"not zstd", zstd.compress(bytes(1 << 28))):
            liar.artifacts[digest] = body
            with pytest.raises(MissingArtifactError):
                ledger.artifacts.load(digest, 12)
        liar.artifacts[digest] = zstd.compress(b"the evidence")
        assert ledger.artifacts.load(digest, 12) == b"the evidence"


def test_evidence_without_end_is_not_fetched(
    liar: Liar, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"the evidence"
    digest, compressed = sha256_hex(content), zstd.compress(content)
    # Frames that hold nothing: what is unpacked is the evidence all the same.
    size = 1 << 20
    liar.artifacts[digest] = compressed + b"\x50\x2a\x4d\x18" + size.to_bytes(4, "little")
    liar.artifacts[digest] += bytes(size)
    with machine.opened() as ledger:
        with pytest.raises(MissingArtifactError, match="more than 65,548 bytes"):
            ledger.artifacts.load(digest, len(content))
        with monkeypatch.context() as small:
            small.setattr("proctor.ledger.remote.artifacts.find_room", lambda _: 1 << 19)
            with pytest.raises(MissingArtifactError, match="more than 524,288 bytes"):
                ledger.artifacts.open(digest)
        copy = next((machine.home / ".local/state/proctor/ledgers").iterdir())
        assert not [path for path in (copy / "artifacts").rglob("*") if path.is_file()]
        ledger.artifacts.open(digest).close()
        assert ledger.artifacts.load(digest, len(content)) == content


def test_a_server_that_takes_its_time_holds_back_no_other_ledger(
    liar: Liar, machine: Machine
) -> None:
    asked, may_go_on = threading.Event(), threading.Event()

    def answer(path: str) -> None:
        if path.startswith("/tile/"):
            asked.set()
            may_go_on.wait(60)

    machine.fetch()
    liar.add("more")
    liar.answer = answer
    with machine.using(), ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(open_mirror, machine.url, machine.env, lambda _: None)
        try:
            assert asked.wait(60)
            with locked(default_memory_path(machine.env), 1.0):
                assert not fetching.done()
        finally:
            may_go_on.set()
        fetching.result()
    assert size_of(machine) == 5


def test_what_another_command_sees_meanwhile_is_compared_too(liar: Liar, machine: Machine) -> None:
    # The same ledger at another address has another copy, and the same memory.
    url = machine.url.replace("127.0.0.1", "localhost")
    times: list[str] = []

    def answer(path: str) -> None:
        if path.startswith("/tile/") and not times:
            times.append(path)
            liar.add("meanwhile")
            open_mirror(url, machine.env, lambda _: None)
            if is_rewritten:
                liar.lines = liar.lines[:-1]

    liar.answer, is_rewritten = answer, False
    assert size_of(machine) == 5
    forget_copy(machine)
    times.clear()
    is_rewritten = True
    with pytest.raises(ForkError, match="were signed before"):
        machine.fetch()


def test_a_server_that_hangs_up_leaves_the_copy_as_it_was(liar: Liar, machine: Machine) -> None:
    machine.fetch()
    liar.add(*map(str, range(1000)))
    short = {"content-length": "1000000"}
    liar.answer = lambda path: (200, short, b"{") if path.startswith("/tile/") else None
    # Not an error: the copy is shown, with a warning.
    warnings: list[str] = []
    with machine.using():
        open_mirror(machine.url, machine.env, warnings.append)
    assert len(warnings) == 1
    liar.answer = lambda _: None
    assert size_of(machine) == 1004


def test_a_first_entry_that_is_no_key_is_refused(liar: Liar, machine: Machine) -> None:
    liar.lines = []
    liar.add("zero", "one")
    with pytest.raises((DamageError, LedgerError)):
        machine.fetch()
    assert isinstance(decode_line(liar.lines[0], "a line"), NoteEntry)


def test_the_copy_is_an_ordinary_ledger(liar: Liar, machine: Machine) -> None:
    with machine.opened() as ledger:
        assert isinstance(ledger, OpenLedger)
        assert ledger.where == machine.url
