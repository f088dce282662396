"""Artifacts: evidence by the SHA-256 of its plain bytes, compressed.

    artifacts/sha256/ab/abcdef….zst

The same bytes are kept once, whoever seals them. A file appears under its name whole and durable
or not at all. Nothing here knows which trial an artifact belongs to.

What is large is compressed in frames that can be unpacked one by one, cut after a line end where
there is one near. Any reader of zstd takes them for one file.
"""

import contextlib
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO, cast

from backports import zstd

from proctor.digest import sha256_copy, sha256_hex
from proctor.errors import AlteredArtifactError, MissingArtifactError
from proctor.files import open_plain, sync_directory, sync_file

_LEVEL = 3
_SMALL = 1 << 18
"""Bytes that are held in memory to see whether they are kept already."""
_FRAME = 1 << 22
"""Plain bytes of a frame, at most: 4 MiB compress as well as more would."""


class _Discard:
    """Takes so many bytes and keeps none: for looking at what an artifact holds."""

    def __init__(self, size: int) -> None:
        self._left = size

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            # A few bytes can unpack to a disk full of them.
            raise AlteredArtifactError("an artifact has more bytes than were sealed")
        return len(data)


class _Frames:
    """Compresses what is written to it, frame by frame."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = bytearray()
        self._is_empty = True

    def write(self, data: bytes) -> int:
        self._held += data
        while len(self._held) >= _FRAME:
            # After a line where there is one: then no line needs two frames to be read.
            self._give(self._held.rfind(b"\n", 0, _FRAME) + 1 or _FRAME)
        return len(data)

    def finish(self) -> None:
        """Write what is left; without a byte of content too, there is a frame."""
        if self._held or self._is_empty:
            self._give(len(self._held))

    def _give(self, size: int) -> None:
        self._file.write(zstd.compress(bytes(memoryview(self._held)[:size]), level=_LEVEL))
        del self._held[:size]
        self._is_empty = False


class Artifacts:
    """The artifacts of one ledger."""

    def __init__(self, ledger: Path) -> None:
        self._root = ledger / "artifacts" / "sha256"
        self._unsettled: set[Path] = set()

    def path_of(self, sha256: str) -> Path:
        """Where an artifact is, or would be."""
        return self._root / sha256[:2] / f"{sha256}.zst"

    def holds(self, sha256: str) -> bool:
        """Whether there is something under that name."""
        return os.path.lexists(self.path_of(sha256))

    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Keep what is left of a stream: its digest, and how many bytes that were.

        Its content is on the disk when this returns; its name is once `settle` was called.

        Raises:
            OSError: it cannot be read or written; nothing is kept.
        """
        begin = source.tell()
        head = source.read(_SMALL)
        if len(head) < _SMALL:
            # Most files are small, and many are the same in all trials: those cost a look.
            digest = sha256_hex(head)
            if not self._is_there(digest):
                self._write(io.BytesIO(head))
            return digest, len(head)
        source.seek(begin)
        digest = self._write(source)
        return digest, source.tell() - begin

    def _write(self, source: BinaryIO) -> str:
        """Keep what is left of a stream, under its digest."""
        self._make_directory(self._root)
        temporary = self._root / f".{os.urandom(8).hex()}.tmp"
        try:
            with temporary.open("xb") as file:
                digest = sha256_copy(source, cast(BinaryIO, target := _Frames(file)))
                target.finish()
            if not self._is_there(digest):
                # Content before name: a name without content would be taken for the artifact.
                sync_file(temporary)
                temporary.rename(self.path_of(digest))
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        return digest

    def _is_there(self, digest: str) -> bool:
        path = self.path_of(digest)
        self._make_directory(path.parent)
        # Also where it is there: whoever put it may not have come to settle it.
        self._unsettled.add(path.parent)
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(mode):
            raise AlteredArtifactError(f"{path}: no plain file; an artifact was swapped for it")
        return True

    def _make_directory(self, directory: Path) -> None:
        if not directory.is_dir():
            self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            self._unsettled.add(directory.parent)

    def settle(self) -> None:
        """See that the names of all that was put are on the disk."""
        for directory in sorted(self._unsettled):
            sync_directory(directory)
        self._unsettled.clear()

    def copy(self, sha256: str, target: BinaryIO) -> int:
        """Write an artifact's plain bytes to a stream; how many those were.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        path = self.path_of(sha256)
        try:
            with open_plain(path) as file, zstd.open(file, "rb") as plain:
                found = sha256_copy(cast(BinaryIO, plain), target)
                size = plain.tell()
        except FileNotFoundError as error:
            raise MissingArtifactError(f"artifact {sha256} is not there") from error
        except (OSError, EOFError, zstd.ZstdError) as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error
        if found != sha256:
            raise AlteredArtifactError(f"artifact {sha256} holds bytes with the SHA-256 {found}")
        return size

    def load(self, sha256: str) -> bytes:
        """An artifact's plain bytes, all at once.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        plain = io.BytesIO()
        self.copy(sha256, plain)
        return plain.getvalue()

    def check(self, sha256: str, size: int) -> None:
        """Refuse an artifact that is not what its name and an entry say.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        found = self.copy(sha256, cast(BinaryIO, _Discard(size)))
        if found != size:
            raise AlteredArtifactError(f"artifact {sha256} has {found} bytes; sealed were {size}")

    def remove(self, sha256: str) -> None:
        """Take an artifact out; it may be gone already."""
        path = self.path_of(sha256)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_directory(path.parent)
