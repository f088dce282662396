"""Clients with a token that send what they like, and what can be seen of the server afterwards."""

import contextlib
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from backports import zstd

from proctor.digest import sha256_hex
from proctor.ledger.entry import AnyEntry, EvidenceFile, encode_entry
from proctor.ledger.keys import SigningKey
from proctor.ledger.machines import load_machines, sign_enrolment, sign_entries
from proctor.ledger.place import open_reader
from proctor.ledger.remote.client import pack_artifact
from proctor.serve.tokens import serve_directory
from tests.ledger.ledgers import ORIGIN
from tests.serve.servers import Machine, ServedLedger


@dataclass(slots=True)
class Attacker:
    """A client with a token that may write, and its own idea of what to send."""

    machine: Machine
    http: httpx.Client
    name: str

    def submit(self, *entries: AnyEntry, is_signed: bool = True) -> httpx.Response:
        """Send entries."""
        if is_signed:
            entries = tuple(self.sign(*entries))
        return self.send([encode_entry(entry) for entry in entries])

    def send(self, lines: Sequence[bytes]) -> httpx.Response:
        """Send lines."""
        return self.http.post("/submit", content=b"\n".join(lines) + b"\n")

    def sign(self, *entries: AnyEntry, origin: str = ORIGIN, name: str = "") -> list[AnyEntry]:
        """Sign entries with this machine's key."""
        return sign_entries(entries, origin, name or self.name, self.machine.key)

    def upload(self, data: bytes) -> EvidenceFile:
        """Upload a file; returns it as evidence."""
        digest = sha256_hex(data)
        body = pack_artifact(digest, len(data), zstd.compress(data))
        assert self.http.post("/artifacts", content=body).status_code == 200
        return EvidenceFile(path="file", sha256=digest, size=len(data))

    def enrol(self, key: SigningKey, name: str, *, origin: str = ORIGIN) -> httpx.Response:
        """Ask to enrol a key, with a signature of this machine's."""
        asked = {"name": name, "key": str(key.verifier)}
        signed = sign_enrolment(origin, name, self.machine.key)
        return self.http.post("/machines", json={**asked, "signature": signed})


@contextlib.contextmanager
def attacking(
    served: ServedLedger, *, experiments: tuple[str, ...] = (), address: str | None = None
) -> Iterator[Attacker]:
    """A new client, which may have another address than that of the machine."""
    machine = served.machine(experiments=experiments)
    context = ssl.create_default_context(cafile=machine.certificate)
    headers = {"authorization": f"Bearer {machine.token}"}
    transport = httpx.HTTPTransport(verify=context, local_address=address)
    with httpx.Client(base_url=served.url, headers=headers, transport=transport) as http:
        made = Attacker(machine, http, "")
        made.name = made.enrol(machine.key, machine.home.name).json()["name"]
        yield made


def refused(answer: httpx.Response, words: str, status: int = 422) -> None:
    """A request was refused, with a sentence."""
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


def audit_lines(served: ServedLedger, **facts: object) -> list[dict[str, Any]]:
    """The lines of the log of requests with these facts."""
    path = serve_directory(ORIGIN, served.env) / "requests.jsonl"
    lines = map(json.loads, path.read_bytes().splitlines())
    return [line for line in lines if facts.items() <= line.items()]


def machines_of(served: ServedLedger) -> dict[str, str]:
    """The enrolled machines: their keys, by name."""
    with open_reader(served.directory) as ledger:
        ledger.refresh()
        return {name: str(key) for name, key in load_machines(ledger).keys.items()}


def memory_of(process: Path, name: str) -> int:
    """Bytes of memory that a process has."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def bytes_below(top: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in top.rglob("*") if path.is_file())
