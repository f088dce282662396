"""Cosignatures by witnesses, asked for as C2SP tlog-witness describes.

    POST WITNESS/add-checkpoint     old SIZE, a consistency proof, an empty line, the checkpoint

A witness answers 200 with signature lines, or 409 with the size that it has seen, from which it is
then asked again. One thread asks, after the ledger has grown and not more often than every few
seconds; a witness that cannot be reached or refuses is asked again after a while. A cosignature
that is not valid is not used.

A cosignature belongs to the checkpoint that the witness saw. It is added to the ledger's checkpoint
if that is still the same; a ledger that keeps growing has another one by then. So the checkpoint
that was cosigned last is kept in a file beside it, `cosigned`, with all its cosignatures.
"""

import base64
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from proctor.errors import LedgerError, NoteError, ProctorError
from proctor.files import replace_durably
from proctor.ledger.note import Checkpoint, Signature, VerifierKey, parse_checkpoint
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.signature import check_signature
from proctor.ledger.tiles import TiledTree
from proctor.ledger.tree import consistency_path

COSIGNED = "cosigned"
"""File in the directory of a ledger: the checkpoint that was cosigned last."""
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
    """Why it has not cosigned; None if it has."""


@dataclass(slots=True)
class Witnesses:
    """Asks witnesses in a thread of its own; `grown` wakes it."""

    directory: Path
    witnesses: Sequence[Witness]
    say: Callable[[str], None]
    """Gets a sentence when a witness begins or ceases to have a problem."""
    pause_sec: float = 5.0
    retry_sec: float = 30.0
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
            while True:
                has_problem = any(each.problem is not None for each in self.witnesses)
                self._grown.wait(self.retry_sec if has_problem else None)
                if self._ended.is_set():
                    return
                self._grown.clear()
                self._ask_all(ledger, http)
                self._ended.wait(self.pause_sec)

    def _ask_all(self, ledger: LedgerReader, http: httpx.Client) -> None:
        asked = list(self.witnesses)
        try:
            checkpoint = ledger.refresh()
            size = checkpoint.tree.size
            asked = [each for each in asked if each.problem is not None or each.size != size]
            answers = [(each, self._ask(ledger, http, each, checkpoint)) for each in asked]
            found = {each.url: line for each, line in answers if line is not None}
            if found:
                keep_cosignatures(ledger, self.directory, checkpoint, [*found.values()])
            for witness in asked:
                if witness.url in found:
                    self._note(witness, None)
        except ProctorError as error:
            # Of the ledger itself; a cosignature that could not be kept is asked for again.
            for witness in asked:
                self._note(witness, str(error))

    def _ask(
        self, ledger: LedgerReader, http: httpx.Client, witness: Witness, checkpoint: Checkpoint
    ) -> Signature | None:
        try:
            return ask_witness(ledger, http, witness, checkpoint)
        except (httpx.HTTPError, httpx.InvalidURL, ProctorError, ValueError) as error:
            self._note(witness, str(error) or type(error).__name__)
            return None

    def _note(self, witness: Witness, problem: str | None) -> None:
        before, witness.problem = witness.problem, problem
        if before is None and problem is not None:
            self.say(
                f"the witness {witness.url} does not cosign: {problem}; retrying every "
                f"{self.retry_sec:g} seconds"
            )
        elif before is not None and problem is None:
            self.say(f"the witness {witness.url} cosigns again")


def ask_witness(
    ledger: LedgerReader, http: httpx.Client, witness: Witness, checkpoint: Checkpoint
) -> Signature:
    """The cosignature of a witness on a checkpoint.

    Raises:
        HTTPError: it cannot be reached.
        LedgerError: it refuses.
        SignatureError: its signature is invalid.
    """
    for _ in range(2):
        status, answer = _post(ledger, http, witness, checkpoint)
        if status == _CONFLICT:
            witness.size = int(answer[:20])
            if witness.size > checkpoint.tree.size:
                raise LedgerError(f"it has seen {witness.size:,} entries, more than there are")
            continue
        if status != httpx.codes.OK:
            raise LedgerError(f"HTTP {status}: {answer[:200].decode(errors='replace')}")
        signed = parse_checkpoint(checkpoint.body + b"\n" + answer, witness.url)
        check_signature(signed, witness.key, witness.url)
        witness.size = checkpoint.tree.size
        name = (witness.key.name, witness.key.key_id)
        # The first of them, which was checked.
        return next(line for line in signed.signatures if (line.name, line.key_id) == name)
    raise LedgerError("it names another size each time")


def _post(
    ledger: LedgerReader, http: httpx.Client, witness: Witness, checkpoint: Checkpoint
) -> tuple[int, bytes]:
    """Ask to cosign; returns the status and the answer."""
    old, new = witness.size, checkpoint.tree.size
    proof: list[bytes] = []
    if 0 < old < new:
        proof = consistency_path(TiledTree(ledger.index, new).subtree, new, old)
    lines = [f"old {old}", *(base64.b64encode(each).decode() for each in proof), ""]
    body = "\n".join(lines).encode() + b"\n" + checkpoint.render()
    answer = b""
    with http.stream("POST", f"{witness.url}/add-checkpoint", content=body) as response:
        for piece in response.iter_bytes(_LARGEST):
            answer += piece
            if len(answer) > _LARGEST:
                raise LedgerError(f"its answer has more than {_LARGEST:,} bytes")
    return response.status_code, answer


def keep_cosignatures(
    ledger: LedgerReader, directory: Path, checkpoint: Checkpoint, found: Sequence[Signature]
) -> None:
    """Keep a checkpoint with new cosignatures, and add them to the ledger's if it is the same.

    Raises:
        LedgerError: it cannot be written.
    """
    path = directory / COSIGNED
    try:
        with ledger.log.locked():
            own = parse_checkpoint(ledger.log.read_checkpoint(), "checkpoint")
            if own.tree == checkpoint.tree:
                ledger.log.write_checkpoint(_add(own, found).render())
            replace_durably(str(path), _add(_find_kept(path, checkpoint), found).render())
    except (OSError, NoteError) as error:
        raise LedgerError(f"{ledger.where}: the checkpoint cannot be cosigned: {error}") from error


def _find_kept(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint, with the cosignatures that other witnesses gave earlier."""
    with contextlib.suppress(FileNotFoundError, NoteError):
        kept = parse_checkpoint(path.read_bytes(), str(path))
        if kept.tree == checkpoint.tree:
            return kept
    return checkpoint


def _add(checkpoint: Checkpoint, found: Sequence[Signature]) -> Checkpoint:
    """A checkpoint with more signatures; of two by one key, the newer one."""
    signed = {(line.name, line.key_id): line for line in (*checkpoint.signatures, *found)}
    return Checkpoint(checkpoint.origin, checkpoint.tree, tuple(signed.values()))
