"""Uploaded evidence that no entry names yet, which is removed after a day.

    unreferenced.jsonl      a line for each: time and SHA-256

A client uploads evidence first and submits the entries that name it next. What it never submits
would stay for ever: this is the list of it. Nothing else is ever removed. A trial for which the
evidence is withheld does not name it.
"""

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from proctor.files import replace_file
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.reader import LedgerReader
from proctor.ledger.withhold import list_unnamed_evidence

KEPT_SEC = 86400.0
"""How long what no entry names is kept."""
_PAUSE_SEC = 3600.0


class _Upload(msgspec.Struct, array_like=True):
    """An uploaded artifact."""

    at: float
    sha256: str


_DECODER = msgspec.json.Decoder(_Upload)


class Unreferenced:
    """What was uploaded to one server and is not sealed."""

    def __init__(self, path: Path, artifacts: FileArtifacts) -> None:
        self._path = path
        self._artifacts = artifacts
        self._lock = threading.Lock()
        self._uploads: dict[str, _Upload] = {}
        # Those that are not in the file yet.
        self._unwritten: list[_Upload] = []
        self._looked = 0.0
        self.removed: set[str] = set()
        """Digests of what was removed when that was last looked for."""

    def add(self, digests: Iterable[str], now: float) -> None:
        """Add artifacts that were not there before."""
        with self._lock:
            for sha256 in digests:
                if sha256 not in self._uploads:
                    self._uploads[sha256] = _Upload(now, sha256)
                    self._unwritten.append(self._uploads[sha256])

    def note(self) -> None:
        """Write what was added and is not sealed yet to the list.

        What comes together with its entries is sealed a moment later, and need not be written.
        """
        if not self._unwritten:
            return
        with self._lock:
            new = [each for each in self._unwritten if self._uploads.get(each.sha256) is each]
            if new:
                with self._path.open("ab") as file:
                    file.write(_render(new))
            self._unwritten.clear()

    def renew(self, digests: Iterable[str], now: float) -> None:
        """Keep artifacts for another day: a client was told that they are there."""
        for sha256 in digests:
            if sha256 in self._uploads:
                # Another server sees that too.
                with contextlib.suppress(OSError):
                    os.utime(self._artifacts.path_of(sha256), (now, now))

    def remove(self, digests: Iterable[str]) -> None:
        """Remove artifacts that an entry names now from the list."""
        if not self._uploads:
            return
        with self._lock:
            for sha256 in digests:
                self._uploads.pop(sha256, None)

    def load(self, ledger: LedgerReader) -> None:
        """Read the list of an earlier server; call `refresh` first."""
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, _Upload] = {}
            for line in self._path.read_bytes().splitlines():
                # The last line may be incomplete.
                with contextlib.suppress(msgspec.MsgspecError):
                    upload = _DECODER.decode(line)
                    found.setdefault(upload.sha256, upload)
            unnamed = list_unnamed_evidence(ledger, found)
            self._uploads |= {name: each for name, each in found.items() if name in unnamed}

    def is_due(self, now: float) -> bool:
        """Whether it is time to look for what is too old; True once for each time."""
        is_due = not 0 <= now - self._looked < _PAUSE_SEC
        if is_due:
            self._looked = now
        return is_due

    def remove_old(self, ledger: LedgerReader, now: float) -> None:
        """Delete artifacts that no entry has named for a day.

        The thread that appends to the ledger calls it, so that no entry comes in between.
        """
        # Another process on this machine may append too.
        with ledger.log.locked():
            ledger.refresh()
            self.removed.clear()
            with self._lock:
                known = [*self._uploads.values()]
            old = [each.sha256 for each in known if now - each.at >= KEPT_SEC]
            unnamed = list_unnamed_evidence(ledger, old)
            for sha256 in old:
                if sha256 in unnamed:
                    path = self._artifacts.path_of(sha256)
                    if _is_in_use(path, now):
                        continue
                    self.removed.add(sha256)
                    # Not durably: what a power cut brings back is on the list no more, and stays.
                    path.unlink(missing_ok=True)
                self.remove([sha256])
        with self._lock:
            replace_file(self._path, _render(self._uploads.values()))
            self._unwritten.clear()


def _is_in_use(path: Path, now: float) -> bool:
    """Whether the artifact was found there within a day, by a client or on this machine.

    Evidence is stored before the log is locked, and its entry appended afterwards.
    """
    try:
        return now - path.lstat().st_mtime < KEPT_SEC
    except FileNotFoundError:
        return False


def _render(uploads: Iterable[_Upload]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in uploads)
