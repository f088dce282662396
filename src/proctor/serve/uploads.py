"""Evidence that machines upload: small artifacts in bulk, large ones in parts.

    body of a bulk upload      for each artifact: SHA-256 (64 hex), size and compressed size
                               (16 hex each), compressed bytes
    uploads/TOKEN/SHA256       the parts of a large one so far

Every artifact is decompressed and hashed before it gets its name. What is complete when a
connection breaks is kept, so that a client goes on where it stopped.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

from proctor.digest import is_digest, sha256_hex
from proctor.errors import InputError
from proctor.files import find_room
from proctor.ledger.artifacts import FileArtifacts

LARGEST_BODY = 8 << 20
"""Bytes of one request, at most."""
_HEAD = 64 + 16 + 16
# Bytes of unfinished uploads of one token.
_MOST_UNFINISHED = 1 << 36
_WEEK_SEC = 7 * 86400


class Uploads:
    """The uploads of one server."""

    def __init__(self, ledger: Path, directory: Path, largest: int) -> None:
        self._ledger = ledger
        self._directory = directory
        # Directories that need not be made again, for all uploads.
        self._durable: frozenset[Path] = frozenset()
        self.largest = largest
        """Bytes of an artifact, at most."""

    def store_small(self, body: bytes) -> int:
        """Store the artifacts of a bulk upload; returns their number.

        Raises:
            InputError: the body is not one, or an artifact is too large.
            AlteredArtifactError: an artifact is not what it is called.
            OSError: it cannot be written.
        """
        count, artifacts = 0, FileArtifacts(self._ledger, self._durable)
        self._check_room(len(body))
        try:
            try:
                for sha256, size, data in _split(body):
                    self._check_size(size)
                    artifacts.put_compressed(sha256, size, io.BytesIO(data))
                    count += 1
            finally:
                # The complete ones stay, so that they need not be sent again.
                artifacts.settle()
                self._durable |= artifacts.durable
        finally:
            artifacts.discard()
        return count

    def find_offset(self, token: str, sha256: str) -> int:
        """The bytes that are there of an unfinished upload."""
        try:
            return self._part(token, sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def store_part(
        self, token: str, sha256: str, data: bytes, *, offset: int, size: int, total: int
    ) -> int:
        """Add a part of a large artifact of `total` compressed bytes; returns where the next goes.

        Raises:
            InputError: it does not continue what is there, or is too large.
            AlteredArtifactError: the whole is not what it is called; it must be sent anew.
            OSError: it cannot be written.
        """
        self._check_size(size)
        # Incompressible content grows a little when it is compressed.
        self._check_size(total - (total >> 6) - 4096)
        self._check_room(len(data))
        part = self._part(token, sha256)
        there = self.find_offset(token, sha256)
        if offset != there or offset + len(data) > total:
            raise InputError(f"{sha256}: {there} bytes are there; a part for {offset} does not fit")
        if self._measure(token) + len(data) > _MOST_UNFINISHED:
            raise InputError("too much of other uploads is unfinished; finish those first")
        part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with part.open("ab") as file:
            file.write(data)
        if offset + len(data) == total:
            self._finish(part, sha256, size)
        return offset + len(data)

    def _finish(self, part: Path, sha256: str, size: int) -> None:
        artifacts = FileArtifacts(self._ledger)
        try:
            with part.open("rb") as file:
                artifacts.put_compressed(sha256, size, file)
            artifacts.settle()
        finally:
            artifacts.discard()
            part.unlink(missing_ok=True)

    def _part(self, token: str, sha256: str) -> Path:
        if not is_digest(sha256):
            raise InputError(f"{sha256[:80]!r} is not a SHA-256")
        # By a digest: the name of a token is not meant as a path.
        return self._directory / "uploads" / sha256_hex(token.encode())[:32] / sha256

    def _measure(self, token: str) -> int:
        folder, total = self._part(token, "0" * 64).parent, 0
        with contextlib.suppress(OSError):
            total = sum(path.stat().st_size for path in folder.iterdir())
        return total

    def _check_size(self, size: int) -> None:
        if size > self.largest:
            raise InputError(
                f"an artifact of {size:,} bytes; this server takes at most {self.largest:,}"
            )

    def _check_room(self, size: int) -> None:
        room = find_room(str(self._ledger))
        if size > room:
            raise InputError(f"no room on the server: {size:,} bytes, {room:,} may be used")

    def remove_old(self, now: float) -> None:
        """Remove uploads that nobody went on with for a week."""
        for part in (self._directory / "uploads").glob("*/*"):
            with contextlib.suppress(OSError):
                if now - part.stat().st_mtime > _WEEK_SEC:
                    part.unlink()


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
