"""Witnesses cosign what a server signs, as C2SP tlog-witness describes."""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from proctor.ledger.keys import SigningKey, cosign, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import Checkpoint, parse_checkpoint
from proctor.ledger.review import append_note
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import check_consistency
from proctor.ledger.verification.verify import verify_ledger
from proctor.serve import witnesses
from proctor.serve.witnesses import COSIGNED, Witnesses
from tests.ledger.ledgers import find_key, small
from tests.serve.servers import serving, wait_until

pytestmark = pytest.mark.process


@dataclass(slots=True)
class Witness:
    """A witness: cosigns what extends the last checkpoint that it saw."""

    key: SigningKey
    seen: Checkpoint | None = None
    is_lying: bool = False
    adds_false: bool = False
    adds: bytes = b""
    is_down: bool = False
    before_answer: Callable[[], None] = lambda: None
    asked: list[int] = field(default_factory=list)

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """The answer to add-checkpoint."""
        head, _, note = body.partition(b"\n\n")
        first, *proof = head.decode().split("\n")
        old, checkpoint = int(first.removeprefix("old ")), parse_checkpoint(note, "the note")
        self.asked.append(old)
        if self.is_down:
            return 503, b"come back later"
        self.before_answer()
        size = self.seen.tree.size if self.seen else 0
        if old != size:
            return 409, f"{size}\n".encode()
        if self.seen is not None and size:
            path = [base64.b64decode(each) for each in proof]
            check_consistency(self.seen.tree, checkpoint.tree, path)
        self.seen = checkpoint
        signed = cosign(checkpoint, self.key, int(time.time()))
        line = signed.signatures[-1].render().encode()
        false = line[:-8] + b"AAAAAA=\n"
        answer = false if self.is_lying else line + self.adds
        return 200, answer + false if self.adds_false else answer


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[tuple[Witness, str]]:
    made = Witness(make_key(tmp_path / "witness", "example.org/witness"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = made.answer(body)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield made, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def cosigned(top: Path, size: int) -> Checkpoint | None:
    """The checkpoint of the ledger, once it has this size and two signatures."""
    for _ in range(200):
        found = parse_checkpoint((top / "ledger/checkpoint").read_bytes(), "checkpoint")
        if found.tree.size == size and len(found.signatures) > 1:
            return found
        time.sleep(0.1)
    return None


def test_checkpoints_are_cosigned_and_machines_get_them(
    tmp_path: Path, witness: tuple[Witness, str]
) -> None:
    made, url = witness
    top = tmp_path / "top"
    top.mkdir()
    with serving(top, "--witness", url, made.key.cosigner, is_encrypted=False) as served:
        assert cosigned(top, 1) is not None
        machine = served.machine()
        machine.seal("one")
        machine.seal("two")
        found = cosigned(top, 4)
        assert found is not None
        check_signature(found, made.key.cosigner, "the checkpoint")
        with machine.opened() as ledger:
            assert ledger.checkpoint().signatures == found.signatures
        bearer = {"authorization": f"Bearer {machine.token}"}
        wait_until(
            lambda: httpx.get(f"{served.url}/cosigned", headers=bearer).content == found.render()
        )
        served.stop()
        # A new server knows no sizes: the witness names its own.
        served.start()
        machine.seal("three")
        assert cosigned(top, 5) is not None
        assert made.asked.count(0) >= 2


@contextmanager
def asking(directory: Path, made: Witness, url: str) -> Iterator[tuple[Witnesses, list[str]]]:
    """A thread that asks a witness about a ledger, and what it says."""
    said: list[str] = []
    asked = witnesses.Witness(url, made.key.cosigner)
    found = Witnesses(directory, [asked], said.append, pause_sec=0.01, retry_sec=0.05)
    found.start()
    try:
        yield found, said
    finally:
        found.close()


def has_seen(witness: witnesses.Witness, size: int) -> bool:
    """Whether a witness has cosigned so many entries."""
    return witness.size == size and witness.problem is None


def read(path: Path) -> Checkpoint | None:
    """A checkpoint; None if the file is not there."""
    return parse_checkpoint(path.read_bytes(), str(path)) if path.exists() else None


def test_a_false_cosignature_is_not_used(tmp_path: Path, witness: tuple[Witness, str]) -> None:
    made, url = witness
    made.is_lying = True
    ledger = small(tmp_path, "one")
    with asking(ledger, made, url) as (_, said):
        wait_until(lambda: said)
    assert "signature" in said[0]
    found = read(ledger / "checkpoint")
    assert found is not None
    assert len(found.signatures) == 1
    assert not (ledger / COSIGNED).exists()


def test_only_the_cosignature_that_was_checked_is_kept(
    tmp_path: Path, witness: tuple[Witness, str]
) -> None:
    made, url = witness
    made.adds_false = True
    ledger = small(tmp_path, "one")
    with asking(ledger, made, url) as (asked, _):
        wait_until(partial(has_seen, asked.witnesses[0], 2))
        wait_until((ledger / COSIGNED).exists)
    found = read(ledger / COSIGNED)
    assert found is not None
    check_signature(found, made.key.cosigner, "the checkpoint")


def test_a_long_answer_is_not_read(tmp_path: Path, witness: tuple[Witness, str]) -> None:
    made, url = witness
    made.adds = b"x" * (17 << 10)
    with asking(small(tmp_path, "one"), made, url) as (_, said):
        wait_until(lambda: said)
    assert "more than 16,384 bytes" in said[0]


def test_what_cannot_be_kept_is_said_once(tmp_path: Path, witness: tuple[Witness, str]) -> None:
    made, url = witness
    ledger = small(tmp_path, "one")
    (ledger / COSIGNED).mkdir()
    with asking(ledger, made, url) as (_, said):
        wait_until(lambda: len(made.asked) >= 3)
    (problem,) = said
    assert "cannot be cosigned" in problem


def test_a_witness_that_was_down_is_asked_again_though_nothing_grows(
    tmp_path: Path, witness: tuple[Witness, str]
) -> None:
    made, url = witness
    made.is_down = True
    ledger = small(tmp_path, "one")
    with asking(ledger, made, url) as (_, said):
        wait_until(lambda: len(made.asked) >= 3)
        # Once, however often it fails.
        (problem,) = said
        assert problem.startswith(f"the witness {url} does not cosign: HTTP 503: come back later")
        made.is_down = False
        wait_until(lambda: len(said) > 1)
        n_asked = len(made.asked)
    assert said[1:] == [f"the witness {url} cosigns again"]
    found = read(ledger / "checkpoint")
    assert found is not None
    check_signature(found, made.key.cosigner, "the checkpoint")
    assert found == read(ledger / COSIGNED)
    # One that has cosigned is left alone until there is something new.
    assert len(made.asked) == n_asked


def test_a_ledger_that_grows_meanwhile_keeps_what_was_cosigned(
    tmp_path: Path, witness: tuple[Witness, str]
) -> None:
    made, url = witness
    ledger = small(tmp_path, "one")

    def grow() -> None:
        with OpenLedger.open(ledger, key=find_key(tmp_path)) as opened:
            append_note(opened, f"while {len(made.asked)} is signed", author="me")

    made.before_answer = grow
    with asking(ledger, made, url) as (asked, _):
        for size in (2, 3, 4):
            wait_until(partial(has_seen, asked.witnesses[0], size))
            asked.grown()
    found, newest = read(ledger / COSIGNED), read(ledger / "checkpoint")
    assert found is not None
    assert newest is not None
    assert found.tree.size >= 4
    check_signature(found, made.key.cosigner, "the checkpoint")
    check_signature(found, find_key(tmp_path).verifier, "the checkpoint")
    assert newest.tree.size > found.tree.size
    assert len(newest.signatures) == 1
    # It is what `verify --since` takes.
    assert verify_ledger(ledger, since=[ledger / COSIGNED]).is_sound
