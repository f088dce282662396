"""Witnesses cosign what a server signs, as C2SP tlog-witness describes."""

import base64
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proctor.ledger.keys import SigningKey, cosign, make_key
from proctor.ledger.note import Checkpoint, parse_checkpoint
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import check_consistency
from tests.serve.servers import serving

pytestmark = pytest.mark.process


@dataclass(slots=True)
class Witness:
    """A witness: cosigns what extends the last checkpoint that it saw."""

    key: SigningKey
    seen: Checkpoint | None = None
    is_lying: bool = False
    asked: list[int] = field(default_factory=list)

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """The answer to add-checkpoint."""
        head, _, note = body.partition(b"\n\n")
        first, *proof = head.decode().split("\n")
        old, checkpoint = int(first.removeprefix("old ")), parse_checkpoint(note, "the note")
        self.asked.append(old)
        size = self.seen.tree.size if self.seen else 0
        if old != size:
            return 409, f"{size}\n".encode()
        if self.seen is not None and size:
            path = [base64.b64decode(each) for each in proof]
            check_consistency(self.seen.tree, checkpoint.tree, path)
        self.seen = checkpoint
        signed = cosign(checkpoint, self.key, int(time.time()))
        line = signed.signatures[-1].render().encode()
        return 200, line[:-8] + b"AAAAAA=\n" if self.is_lying else line


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
        served.stop()
        # A new server knows no sizes: the witness names its own.
        served.start()
        machine.seal("three")
        assert cosigned(top, 5) is not None
        assert made.asked.count(0) >= 2


def test_a_false_cosignature_is_not_used(tmp_path: Path, witness: tuple[Witness, str]) -> None:
    made, url = witness
    made.is_lying = True
    top = tmp_path / "top"
    top.mkdir()
    with serving(top, "--witness", url, made.key.cosigner, is_encrypted=False) as served:
        served.machine().seal("one")
        time.sleep(1)
        found = parse_checkpoint((top / "ledger/checkpoint").read_bytes(), "checkpoint")
        assert len(found.signatures) == 1
