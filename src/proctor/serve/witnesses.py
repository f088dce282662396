"""Cosignatures by witnesses, asked for as C2SP tlog-witness describes.

    POST WITNESS/add-checkpoint     old SIZE, a consistency proof, an empty line, the checkpoint

A witness answers 200 with signature lines, or 409 with the size that it has seen, from which it is
then asked again. One thread asks, after the ledger has grown and not more often than every few
seconds; a witness that cannot be reached is asked again later. A cosignature that is not valid is
not used.
"""

import base64
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from proctor.errors import LedgerError, NoteError, ProctorError
from proctor.ledger.note import Checkpoint, Signature, VerifierKey, parse_checkpoint
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.signature import check_signature
from proctor.ledger.tiles import TiledTree
from proctor.ledger.tree import consistency_path

_PAUSE_SEC = 5.0
_TIMEOUT = httpx.Timeout(10.0)
_LARGEST = 16 << 10
_CONFLICT = 409


@dataclass(slots=True)
class Witness:
    """A witness, with the size that it has seen."""

    url: str
    key: VerifierKey
    size: int = 0
    problem: str | None = None


@dataclass(slots=True)
class Witnesses:
    """Asks witnesses in a thread of its own; `grown` wakes it."""

    directory: Path
    witnesses: Sequence[Witness]
    _grown: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to ask."""
        if self.witnesses:
            self._thread = threading.Thread(target=self._work, name="witnesses", daemon=True)
            self._grown.set()
            self._thread.start()

    def grown(self) -> None:
        """Say that the ledger has grown."""
        self._grown.set()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._grown.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        with open_reader(self.directory) as ledger, httpx.Client(timeout=_TIMEOUT) as http:
            while not self._ended.is_set():
                self._grown.wait()
                self._grown.clear()
                with contextlib.suppress(ProctorError):
                    self._ask_all(ledger, http)
                self._ended.wait(_PAUSE_SEC)

    def _ask_all(self, ledger: LedgerReader, http: httpx.Client) -> None:
        checkpoint = ledger.refresh()
        found: list[Signature] = []
        for witness in self.witnesses:
            try:
                found += ask_witness(ledger, http, witness, checkpoint)
                witness.problem = None
            except (httpx.HTTPError, ProctorError, ValueError) as error:
                witness.problem = f"{witness.url}: {str(error) or type(error).__name__}"
        if found:
            add_cosignatures(ledger, checkpoint, found)


def ask_witness(
    ledger: LedgerReader, http: httpx.Client, witness: Witness, checkpoint: Checkpoint
) -> list[Signature]:
    """The cosignatures of a witness on a checkpoint.

    Raises:
        HTTPError: it cannot be reached.
        LedgerError: it refuses.
        SignatureError: its signature is invalid.
    """
    for _ in range(2):
        answer = _post(ledger, http, witness, checkpoint)
        if answer.status_code == _CONFLICT:
            witness.size = int(answer.text.strip()[:20])
            if witness.size > checkpoint.tree.size:
                raise LedgerError(f"it has seen {witness.size:,} entries, more than there are")
            continue
        if answer.status_code != httpx.codes.OK or len(answer.content) > _LARGEST:
            raise LedgerError(f"HTTP {answer.status_code}: {answer.text[:200]}")
        signed = parse_checkpoint(checkpoint.body + b"\n" + answer.content, witness.url)
        check_signature(signed, witness.key, witness.url)
        witness.size = checkpoint.tree.size
        name = (witness.key.name, witness.key.key_id)
        return [line for line in signed.signatures if (line.name, line.key_id) == name]
    raise LedgerError("it names another size each time")


def _post(
    ledger: LedgerReader, http: httpx.Client, witness: Witness, checkpoint: Checkpoint
) -> httpx.Response:
    old, new = witness.size, checkpoint.tree.size
    proof: list[bytes] = []
    if 0 < old < new:
        proof = consistency_path(TiledTree(ledger.index, new).subtree, new, old)
    lines = [f"old {old}", *(base64.b64encode(each).decode() for each in proof), ""]
    body = "\n".join(lines).encode() + b"\n" + checkpoint.render()
    return http.post(f"{witness.url}/add-checkpoint", content=body)


def add_cosignatures(
    ledger: LedgerReader, checkpoint: Checkpoint, found: Sequence[Signature]
) -> bool:
    """Add cosignatures to the checkpoint of a ledger, unless it has grown since.

    Raises:
        LedgerError: it cannot be written.
    """
    try:
        with ledger.log.locked():
            own = parse_checkpoint(ledger.log.read_checkpoint(), "checkpoint")
            if own.tree != checkpoint.tree:
                return False
            there = {(line.name, line.key_id) for line in own.signatures}
            new = tuple(line for line in found if (line.name, line.key_id) not in there)
            if new:
                signed = Checkpoint(own.origin, own.tree, (*own.signatures, *new))
                ledger.log.write_checkpoint(signed.render())
    except (OSError, NoteError) as error:
        raise LedgerError(f"{ledger.where}: the checkpoint cannot be cosigned: {error}") from error
    return True
