"""Evidence that machines upload: small artifacts in bulk, large ones in parts.

    body of a bulk upload      for each artifact: SHA-256 (64 hex), size and compressed size
                               (16 hex each), compressed bytes
    uploads/TOKEN/SHA256-N     the parts so far of a large one of N compressed bytes
    unreferenced.jsonl         a line for each artifact that no entry names yet: time and SHA-256

Every artifact is decompressed and hashed before it gets its name. What is complete when a
connection breaks is kept, so that a client goes on where it stopped.

A machine may upload withheld evidence again: it does not know that its trial was sealed, and
withheld since. Such an upload stays below `uploads` until a trial that is not sealed yet names it.

A client uploads evidence first and submits the entries that name it next. What it never submits is
removed after a day. Nothing else is ever removed. A trial for which the evidence is withheld does
not name it.
"""

import contextlib
import io
import os
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from proctor.digest import is_digest, sha256_hex
from proctor.errors import AlteredArtifactError, InputError, LedgerError, NotSealedError
from proctor.files import replace_file
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import EvidenceFile
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


LARGEST_BODY = 8 << 20
"""Bytes of one request, at most."""
_HEAD = 64 + 16 + 16
_WEEK_SEC = 7 * 86400
# Free bytes that no client uses, or this part of a small disk.
_RESERVE = 1 << 30
_RESERVED_PART = 20
# Uploads of different artifacts rarely wait for each other.
_N_LOCKS = 64


class Part(NamedTuple):
    """A part of a large artifact."""

    sha256: str
    offset: int
    """In the compressed bytes."""
    size: int
    """Bytes of the artifact."""
    total: int
    """Compressed bytes of the artifact."""


class Uploads:
    """The uploads of one server.

    A disk that is full is a `LedgerError`: the client tries again later.
    """

    def __init__(self, ledger: Path, directory: Path, largest: int) -> None:
        self._ledger = ledger
        self._directory = directory
        # Directories that need not be made again, for all uploads.
        self._durable: frozenset[Path] = frozenset()
        # The folders of tokens with parts.
        self._folders = {path.name for path in (directory / "uploads").glob("*")}
        self._locks = [threading.Lock() for _ in range(_N_LOCKS)]
        self.unreferenced = Unreferenced(directory / "unreferenced.jsonl", FileArtifacts(ledger))
        self.largest = largest
        """Bytes of an artifact, at most."""

    def store_small(
        self, token: str, body: bytes, now: float, withheld: Collection[str] = ()
    ) -> int:
        """Store the artifacts of a bulk upload; returns their number. Call `note` then.

        Those that are withheld are not stored: see `finish`.
        """
        with self._writing(len(body)):
            return self._store_small(token, body, now, withheld)

    def _store_small(self, token: str, body: bytes, now: float, withheld: Collection[str]) -> int:
        count, plain, artifacts = 0, 0, FileArtifacts(self._ledger, self._durable)
        new: list[str] = []
        try:
            try:
                for sha256, size, data in _split(body):
                    # All of them together are no more work than a large one.
                    plain += size
                    self._check_size(plain)
                    if sha256 in withheld and not artifacts.holds(sha256):
                        self._hold_back(token, sha256, data)
                    elif artifacts.put_compressed(sha256, size, io.BytesIO(data)):
                        new.append(sha256)
                    count += 1
            finally:
                # The complete ones stay, so that they need not be sent again.
                self.unreferenced.add(new, now)
                artifacts.settle()
                self._durable |= artifacts.durable
        finally:
            artifacts.discard()
        return count

    def _hold_back(self, token: str, sha256: str, data: bytes) -> None:
        """Keep a small artifact that is withheld as an upload that is not finished."""
        path = self._path_of(token, sha256, len(data))
        with self._lock_of(sha256):
            self._make_folder(path)
            path.write_bytes(data)

    def finish(self, token: str, files: Sequence[EvidenceFile], now: float) -> None:
        """Store those of a token's complete uploads that a trial names which is not sealed yet."""
        wanted = {file.sha256: file.size for file in files}
        for path in self._list_parts(token):
            sha256, _, total = path.name.partition("-")
            if sha256 not in wanted:
                continue
            part = Part(sha256, 0, wanted[sha256], int(total))
            with self._lock_of(sha256), self._writing(0):
                # Another request may have stored it by now.
                if _is_complete(path):
                    self._finish(path, part, now)

    def find_offset(self, token: str, sha256: str, total: int) -> int:
        """The bytes that are there of an upload; `total` if it is complete."""
        with self._lock_of(sha256):
            if FileArtifacts(self._ledger).holds(sha256):
                return total
            path = self._path_of(token, sha256, total)
            there = _size_of(path)
            if 0 < total <= there:
                # A server was killed before it gave the artifact its name: the last byte is sent
                # again.
                os.truncate(path, total - 1)
                return total - 1
            return there

    def store_part(
        self, token: str, part: Part, data: bytes, now: float, withheld: Collection[str] = ()
    ) -> int:
        """Add a part of a large artifact; returns where the next goes.

        A part for another place than that is not used: another connection may have sent it.
        An artifact that is withheld is not stored: see `finish`.

        Raises:
            InputError: it is empty, or goes beyond the end.
            NotSealedError: the artifact is too large.
            AlteredArtifactError: the whole is not what it is called; it must be sent anew.
            LedgerError: there is no room for it.
        """
        self._check_size(part.size)
        # Incompressible content grows a little when it is compressed.
        self._check_size(part.total - (part.total >> 6) - 4096)
        end = part.offset + len(data)
        if not data or end > part.total:
            raise InputError(f"{part.sha256}: a part from {part.offset} to {end} of {part.total}")
        path = self._path_of(token, part.sha256, part.total)
        with self._lock_of(part.sha256), self._writing(len(data)):
            if FileArtifacts(self._ledger).holds(part.sha256):
                path.unlink(missing_ok=True)
                return part.total
            there = _size_of(path)
            if part.offset != there:
                return there
            self._make_folder(path)
            try:
                with path.open("ab") as file:
                    file.write(data)
                if end == part.total and part.sha256 not in withheld:
                    self._finish(path, part, now)
            except OSError:
                # No room: this part is sent again.
                with contextlib.suppress(OSError):
                    os.truncate(path, there)
                raise
        return end

    def _finish(self, path: Path, part: Part, now: float) -> None:
        artifacts = FileArtifacts(self._ledger)
        try:
            with path.open("rb") as file:
                artifacts.put_compressed(part.sha256, part.size, file)
            self.unreferenced.add([part.sha256], now)
            self.unreferenced.note()
            artifacts.settle()
        except AlteredArtifactError:
            path.unlink(missing_ok=True)
            raise
        finally:
            artifacts.discard()
        path.unlink(missing_ok=True)

    def _lock_of(self, sha256: str) -> threading.Lock:
        return self._locks[hash(sha256) % _N_LOCKS]

    def _path_of(self, token: str, sha256: str, total: int) -> Path:
        if not is_digest(sha256):
            raise InputError(f"{sha256[:80]!r} is not a SHA-256")
        # By the number of bytes too: another version may compress the same content otherwise.
        return self._folder(token) / f"{sha256}-{total}"

    def _folder(self, token: str) -> Path:
        # By a digest: the name of a token is not meant as a path.
        return self._directory / "uploads" / sha256_hex(token.encode())[:32]

    def _make_folder(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folders.add(path.parent.name)

    def _list_parts(self, token: str) -> list[Path]:
        """A token's unfinished uploads."""
        folder = self._folder(token)
        return [*folder.iterdir()] if folder.name in self._folders else []

    def _check_size(self, size: int) -> None:
        if size > self.largest:
            raise NotSealedError(
                f"evidence of {size:,} bytes; this server takes at most {self.largest:,} at once"
            )

    @contextlib.contextmanager
    def _writing(self, size: int) -> Iterator[None]:
        """Refuse what there is no room for."""
        try:
            self.check_disk(size)
            yield
        except OSError as error:
            raise LedgerError(f"no room on the server: {error.strerror}") from error

    def check_disk(self, size: int) -> None:
        """Refuse what would fill the disk: the owner needs room to withhold and to revoke.

        Raises:
            LedgerError: too little of the disk would be left.
            OSError: the disk cannot be read.
        """
        for directory in (self._ledger, self._directory):
            disk = shutil.disk_usage(directory)
            if disk.free - size < min(_RESERVE, disk.total // _RESERVED_PART):
                raise LedgerError(f"no room on the server: its disk has {disk.free:,} bytes left")

    def note(self) -> None:
        """Note what is in the store and not sealed, so that another server knows it too.

        Raises:
            LedgerError: it cannot be written.
        """
        try:
            self.unreferenced.note()
        except OSError as error:
            raise LedgerError(f"no room on the server: {error.strerror}") from error

    def begin(self, ledger: LedgerReader, now: float) -> None:
        """Read what an earlier server left, and remove what is too old."""
        self.unreferenced.load(ledger)
        self.remove_old(ledger, now)

    def remove_old(self, ledger: LedgerReader, now: float) -> None:
        """Remove evidence that no entry has named for a day, and uploads unfinished for a week."""
        with contextlib.suppress(OSError):
            self.unreferenced.remove_old(ledger, now)
        for part in (self._directory / "uploads").glob("*/*"):
            with contextlib.suppress(OSError):
                kept = KEPT_SEC if _is_complete(part) else _WEEK_SEC
                if now - part.stat().st_mtime > kept:
                    part.unlink()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_complete(part: Path) -> bool:
    return part.name.endswith(f"-{_size_of(part)}")


def _split(body: bytes) -> Iterator[tuple[str, int, bytes]]:
    at = 0
    while at < len(body):
        head = body[at : at + _HEAD]
        try:
            sha256 = head[:64].decode("ascii")
            size, length = int(head[64:80], 16), int(head[80:96], 16)
        except ValueError:
            sha256, size, length = "", 0, 0
        data = body[at + _HEAD : at + _HEAD + length]
        if not is_digest(sha256) or len(data) != length or min(size, length) < 0:
            raise InputError(f"byte {at} of the body does not begin a whole artifact")
        yield sha256, size, data
        at += _HEAD + length
