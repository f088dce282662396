"""Entries that wait for a server which could not be reached, in the order they were made.

    spool/NUMBER-DIGEST.jsonl      signed entries, one batch a file; their evidence is in the copy
    spool/refused/…                batches that the server refused, each with its reason

A batch is durable before `add` returns. The same batch is stored once; the server accepts what it
has already, so that nothing is sealed twice.

What a server acknowledged is kept as well, until it was seen in the log.
"""

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import LedgerError
from proctor.files import replace_durably, replace_file, sync_directory
from proctor.ledger.note import Signer

_DIGITS = 20


class Spool:
    """The waiting batches of one server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, lines: Sequence[bytes]) -> None:
        """Store a batch.

        Raises:
            LedgerError: it cannot be written.
        """
        data = b"\n".join(lines) + b"\n"
        digest = sha256_hex(data)[:32]
        names = self._names()
        if any(name.endswith(f"-{digest}.jsonl") for name in names):
            return
        number = int(names[-1][:_DIGITS]) + 1 if names else 0
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_durably(str(self._directory / f"{number:0{_DIGITS}}-{digest}.jsonl"), data)
        except OSError as error:
            raise LedgerError(
                f"{self._directory}: what the server should get cannot be stored: {error}"
            ) from error

    def __len__(self) -> int:
        return sum(1 for batch in self for _ in batch[1])

    def __iter__(self) -> Iterator[tuple[str, list[bytes]]]:
        """The name and the lines of each batch, in order."""
        for name in self._names():
            yield name, (self._directory / name).read_bytes().splitlines()

    def remove(self, name: str) -> None:
        """Remove a batch that was sent."""
        (self._directory / name).unlink(missing_ok=True)
        sync_directory(self._directory)

    def refuse(self, name: str, why: str) -> Path:
        """Set a batch aside that the server refuses; returns its new path."""
        refused = self._directory / "refused"
        refused.mkdir(mode=0o700, exist_ok=True)
        (refused / f"{name}.why").write_text(f"{why}\n", encoding="utf-8")
        os.replace(self._directory / name, refused / name)  # noqa: PTH105 - as elsewhere
        return refused / name

    def _names(self) -> list[str]:
        try:
            found = sorted(os.listdir(self._directory))  # noqa: PTH208 - names only
        except FileNotFoundError:
            return []
        return [name for name in found if name.endswith(".jsonl") and name[:_DIGITS].isdecimal()]


class Promises:
    """Positions that a server acknowledged, with the digests of the entries, in a file.

    They are checked with the next fetch. The file is not made durable: after a power cut, the
    last ones are not checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, promised: Mapping[int, str]) -> None:
        """Add positions."""
        lines = [msgspec.json.encode([seq, digest]) + b"\n" for seq, digest in promised.items()]
        with contextlib.suppress(OSError), self._path.open("ab") as file:
            file.write(b"".join(lines))

    def read(self) -> dict[int, str]:
        """What was promised and not checked yet."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        found: dict[int, str] = {}
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                seq, digest = msgspec.json.decode(line, type=tuple[int, str])
                found[seq] = digest
        return found

    def forget(self, checked: Mapping[int, str]) -> None:
        """Forget what was checked."""
        left = {seq: digest for seq, digest in self.read().items() if seq not in checked}
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        if left:
            self.add(left)


class MachineName:
    """The name that this machine proposes for its key: kept, because its host name may change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, key: Signer) -> str:
        """The name: that of the host, and the id of the key."""
        key_id = key.verifier.key_id.hex()
        with contextlib.suppress(OSError, UnicodeDecodeError):
            kept = self._path.read_text("utf-8").strip()
            if kept.endswith(f"-{key_id}"):
                return kept
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "machine"
        with contextlib.suppress(OSError):
            replace_file(self._path, f"{host}-{key_id}\n".encode())
        return f"{host}-{key_id}"
