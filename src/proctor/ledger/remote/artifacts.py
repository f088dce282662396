"""The evidence in a copy: fetched when it is read, and held in memory until the server has it."""

import io
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from backports import zstd

from proctor.digest import sha256_hex
from proctor.errors import DamageError, LedgerError, MissingArtifactError
from proctor.files import find_room
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.remote.client import Source
from proctor.ledger.remote.connections import UnreachableError

# Bytes of an artifact that is held in memory, and of all of them.
_SMALL = 1 << 18
_MOST_HELD = 64 << 20
# Bytes by which an artifact may be larger compressed than it is: zstd needs less.
_OVERHEAD = 1 << 16


class FetchedArtifacts(FileArtifacts):
    """Artifacts of a copy. One that is missing is fetched; new small ones are held in memory."""

    def __init__(self, directory: Path, client: Source) -> None:
        super().__init__(directory)
        self._client = client
        self._fetching = threading.Lock()
        self.held: dict[str, tuple[int, bytes]] = {}
        """Size and compressed bytes of artifacts that were added, until the server has them."""

    def open(self, sha256: str) -> BinaryIO:
        """Open the compressed file; fetch it first if it is missing."""
        return self._open(sha256, None)

    def copy_sealed(self, sha256: str, size: int, target: BinaryIO | None) -> None:
        """Write an artifact's content to a stream; no more than the sealed size is fetched."""
        self._open(sha256, size).close()
        super().copy_sealed(sha256, size, target)

    def _open(self, sha256: str, size: int | None) -> BinaryIO:
        try:
            return self.open_here(sha256)
        except MissingArtifactError:
            self._fetch(sha256, size)
        return super().open(sha256)

    def open_here(self, sha256: str) -> BinaryIO:
        """Open the compressed file if it is on this machine."""
        found = self.held.get(sha256)
        return super().open(sha256) if found is None else io.BytesIO(found[1])

    def holds(self, sha256: str) -> bool:
        """Whether the artifact is here, or on the server."""
        if sha256 in self.held or super().holds(sha256):
            return True
        try:
            return not self._client.missing([sha256])
        except (UnreachableError, LedgerError):
            return False

    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Add the rest of a stream: small ones are not written, because the server stores them."""
        begin = source.tell()
        head = source.read(_SMALL)
        if len(head) == _SMALL or sum(len(data) for _, data in self.held.values()) > _MOST_HELD:
            source.seek(begin)
            return super().put(source)
        digest = sha256_hex(head)
        if digest not in self.held:
            self.held[digest] = len(head), zstd.compress(head)
        return digest, len(head)

    def keep(self, digests: Iterable[str]) -> None:
        """Write what is held in memory, because the server cannot be reached."""
        for sha256 in digests:
            if (found := self.held.pop(sha256, None)) is not None:
                self.put_compressed(sha256, found[0], io.BytesIO(found[1]))
        self.settle()

    def _fetch(self, sha256: str, size: int | None) -> None:
        with self._fetching:
            part = self.path_of(sha256).with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
            try:
                part.parent.mkdir(parents=True, exist_ok=True)
                largest = find_room(str(part.parent))
                if size is not None:
                    largest = min(largest, size + size // 64 + _OVERHEAD)
                with part.open("wb+") as file:
                    self._client.save_artifact(sha256, file, largest)
                    file.seek(0)
                    self.put_compressed(sha256, size, file)
                self.settle()
            except UnreachableError as error:
                raise MissingArtifactError(f"artifact {sha256}: {error}") from error
            except DamageError as error:
                raise MissingArtifactError(f"artifact {sha256} is missing: {error}") from error
            except OSError as error:
                raise LedgerError(f"artifact {sha256} cannot be stored: {error}") from error
            finally:
                self.discard()
                part.unlink(missing_ok=True)
