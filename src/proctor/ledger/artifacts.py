"""Artifacts: evidence stored by the SHA-256 of its content, compressed with zstd.

    artifacts/sha256/ab/abcdef….zst

Equal content is stored once. A file gets its name only when it is complete and durable; temporary
files of a killed writer are removed by the next one.

Large content is compressed in frames that can be decompressed one by one, split at line ends where
possible. Every zstd reader treats them as one file.
"""

import contextlib
import fcntl
import io
import os
import shutil
import stat
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Self, cast

from backports import zstd

from proctor.contained import make_below, open_below
from proctor.digest import is_digest, sha256_copy, sha256_hex
from proctor.errors import AlteredArtifactError, DamageError, MissingArtifactError
from proctor.files import (
    LARGEST_UNPACKED,
    find_room,
    sync_directory,
    sync_file,
    try_lock,
    write_small,
)
from proctor.ledger.entry import EvidenceFile

# Temporary directories of writers: artifacts/sha256/.HEX.tmp/
#
# Each writer holds a lock on its own directory while it lives. The next writer removes the
# directories that are not locked: their writers were killed.


class WriterDirectory:
    """The temporary directory of one writer."""

    def __init__(self, directory: Path, fd: int) -> None:
        self._directory = directory
        self._fd = fd

    @classmethod
    def make(cls, parent: Path) -> Self:
        """Create a locked directory, and remove those of dead writers."""
        # Serialised: another writer must not remove a directory between mkdir and flock.
        with _locked(parent):
            for left in parent.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    # Never through a link: what is below is deleted.
                    dead = _open(left, os.O_NOFOLLOW)
                    try:
                        # A writer that is alive has it locked.
                        if try_lock(dead):
                            shutil.rmtree(left, ignore_errors=True)
                    finally:
                        os.close(dead)
            directory = parent / f".{os.urandom(8).hex()}.tmp"
            directory.mkdir()
            fd = _open(directory)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(directory, fd)

    def new_path(self) -> Path:
        """An unused path in the directory."""
        return self._directory / os.urandom(8).hex()

    def remove(self) -> None:
        """Remove the directory with its files, and release the lock."""
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._fd)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    fd = _open(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _open(directory: Path, more: int = 0) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | more)


_LEVEL = 3
LARGEST_LOADED = 1 << 29
"""Bytes: the largest artifact that `load` reads into memory, 512 MiB."""
# Bytes. Smaller files are hashed in memory first, and not written if they are stored already.
_SMALL = 1 << 18
# Plain bytes of a frame, at most: larger frames hardly compress better.
_FRAME = 1 << 22
# Temporary files that wait for their names at the same time.
_MAX_UNNAMED = 4000
# Concurrent fsyncs: a disk flushes many files in hardly more time than one.
_SYNC_THREADS = 16
# Up to this number of files, starting threads takes longer than syncing one after the other.
_FEW_FILES = 32
# An artifact that is found stored is marked as used, unless it was within this time.
_TOUCHED_SEC = 3600.0


class _Bounded:
    """A stream that accepts at most `size` bytes; without a target it discards them."""

    def __init__(self, size: int, target: BinaryIO | None = None) -> None:
        self._left = size
        self._target = target

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            # A small compressed file can expand to more than the disk holds.
            raise AlteredArtifactError("an artifact has more bytes than were sealed")
        return self._target.write(data) if self._target is not None else len(data)


class _Frames:
    """A stream that compresses what is written to it, frame by frame."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._locked = bytearray()
        self._is_empty = True

    def write(self, data: bytes) -> int:
        self._locked += data
        while len(self._locked) >= _FRAME:
            # Split after a newline where possible, so that reading a line needs one frame only.
            self._flush(self._locked.rfind(b"\n", 0, _FRAME) + 1 or _FRAME)
        return len(data)

    def finish(self) -> None:
        """Write the remaining bytes; empty content becomes one empty frame."""
        if self._locked or self._is_empty:
            self._flush(len(self._locked))

    def _flush(self, size: int) -> None:
        self._file.write(zstd.compress(bytes(memoryview(self._locked)[:size]), level=_LEVEL))
        del self._locked[:size]
        self._is_empty = False


def _check_compressed(file: BinaryIO, sha256: str, size: int | None) -> None:
    limit = cast(BinaryIO, _Bounded(LARGEST_UNPACKED if size is None else size))
    try:
        with zstd.open(file, "rb") as plain:
            found = sha256_copy(cast(BinaryIO, plain), limit)
            n_bytes = plain.tell()
    except (EOFError, zstd.ZstdError) as error:
        raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error
    if found != sha256 or size not in (None, n_bytes):
        raise AlteredArtifactError(
            f"artifact {sha256} holds {n_bytes:,} bytes with the SHA-256 {found}"
        )


class ArtifactStore(ABC):
    """A store for evidence: by the SHA-256 of its content, compressed with zstd."""

    @abstractmethod
    def open(self, sha256: str) -> BinaryIO:
        """Open the compressed bytes of an artifact; the stream can be positioned.

        Raises:
            DamageError: it is missing, or cannot be read.
        """

    @abstractmethod
    def holds(self, sha256: str) -> bool:
        """Whether an artifact with this digest is stored."""

    @abstractmethod
    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Add the rest of a stream; returns its digest and size in bytes.

        It is durable and has its name after `settle`: settling many at once costs little more than
        one.

        Raises:
            OSError: it cannot be read or written; nothing is added.
        """

    @abstractmethod
    def settle(self) -> None:
        """Make everything that was added durable, under its name.

        Raises:
            OSError: that failed; call `discard`.
        """

    @abstractmethod
    def discard(self) -> None:
        """Drop what was added and not settled."""

    @abstractmethod
    def remove(self, sha256: str) -> None:
        """Delete an artifact, if it is there."""

    @abstractmethod
    def stored_size(self, sha256: str) -> int | None:
        """The compressed size of an artifact in bytes; None if it is not stored."""

    def copy(self, sha256: str, target: BinaryIO) -> int:
        """Write an artifact's content to a stream; returns its size in bytes.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        try:
            with self.open(sha256) as file, zstd.open(file, "rb") as plain:
                found = sha256_copy(cast(BinaryIO, plain), target)
                size = plain.tell()
        except (OSError, EOFError, zstd.ZstdError) as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error
        if found != sha256:
            raise AlteredArtifactError(f"artifact {sha256} holds bytes with the SHA-256 {found}")
        return size

    def load_head(self, sha256: str, size: int) -> bytes:
        """The first bytes of an artifact's content, not checked against its digest.

        Raises:
            DamageError: it is missing or unreadable.
        """
        try:
            with self.open(sha256) as file, zstd.open(file, "rb") as plain:
                return plain.read(size)
        except (OSError, EOFError, zstd.ZstdError) as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error

    def load(self, sha256: str, size: int) -> bytes:
        """Read an artifact's content into memory; `size` is the size that its entry states.

        Raises:
            DamageError: it is missing, unreadable, holds other bytes, or is too large for memory.
        """
        # The size comes from an entry, which anyone can write: refuse before allocating.
        if size > LARGEST_LOADED:
            raise DamageError(
                f"artifact {sha256} has {size:,} bytes; at most {LARGEST_LOADED:,} are held in "
                "memory"
            )
        plain = io.BytesIO()
        self.copy_sealed(sha256, size, plain)
        return plain.getvalue()

    def check(self, sha256: str, size: int) -> None:
        """Refuse an artifact that does not match its digest and the size that its entry states.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        self.copy_sealed(sha256, size, None)

    def copy_sealed(self, sha256: str, size: int, target: BinaryIO | None) -> None:
        """Write an artifact's content to a stream, never more than the sealed size.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        found = self.copy(sha256, cast(BinaryIO, _Bounded(size, target)))
        if found != size:
            raise AlteredArtifactError(f"artifact {sha256} has {found} bytes; sealed were {size}")


class FileArtifacts(ArtifactStore):
    """Artifacts in the directory of a ledger."""

    def __init__(self, ledger: Path, durable: Iterable[Path] = ()) -> None:
        self._ledger = ledger
        self._root = ledger / "artifacts" / "sha256"
        # Temporary files that wait for their names, by digest.
        self._unnamed: dict[str, Path] = {}
        # The directory with these files.
        self._temporary_files: WriterDirectory | None = None
        # Directories that exist; their own names are durable or in `_unsettled`.
        self._seen = set(durable)
        # Directories whose new names may not be durable yet.
        self._unsettled: set[Path] = set()
        self.one_by_one = _FEW_FILES
        """Up to this number of files are synced one after the other instead of concurrently."""

    @property
    def durable(self) -> frozenset[Path]:
        """Directories that exist and are durable, once `settle` has returned."""
        return frozenset(self._seen)

    def path_of(self, sha256: str) -> Path:
        """The path of an artifact, whether or not it is stored.

        Raises:
            AlteredArtifactError: the name is not a digest, and could lead to any path.
        """
        if not is_digest(sha256):
            raise AlteredArtifactError(f"{sha256[:80]!r} is not the SHA-256 of an artifact")
        return self._root / sha256[:2] / f"{sha256}.zst"

    def open(self, sha256: str) -> BinaryIO:
        """Open the compressed file without following links: see `ArtifactStore`."""
        path = self.path_of(sha256).relative_to(self._ledger)
        try:
            return open_below(self._ledger, str(path))
        except FileNotFoundError as error:
            raise MissingArtifactError(f"artifact {sha256} is missing") from error
        except OSError as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error

    def holds(self, sha256: str) -> bool:
        """Whether an artifact with this digest is stored."""
        return is_digest(sha256) and os.path.lexists(self.path_of(sha256))

    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Add the rest of a stream: see `ArtifactStore`."""
        begin = source.tell()
        head = source.read(_SMALL)
        if len(head) < _SMALL:
            # Most files are small and equal in all trials: hashing them first avoids writing them.
            digest, size = sha256_hex(head), len(head)
            if not self._is_stored(digest):
                temporary = self._make_temporary()
                write_small(str(temporary), zstd.compress(head, level=_LEVEL), is_new=True)
                self._unnamed[digest] = temporary
        else:
            source.seek(begin)
            temporary = self._make_temporary()
            with temporary.open("xb") as file:
                digest = sha256_copy(source, cast(BinaryIO, target := _Frames(file)))
                target.finish()
            size = source.tell() - begin
            if self._is_stored(digest):
                temporary.unlink(missing_ok=True)
            else:
                self._unnamed[digest] = temporary
        if len(self._unnamed) >= _MAX_UNNAMED:
            self._name_all()
        return digest, size

    def put_compressed(self, sha256: str, size: int | None, source: BinaryIO) -> bool:
        """Add an artifact that is compressed already; the size of its content may be unknown.

        Of unknown size, it has at most `LARGEST_UNPACKED` bytes. It is durable and has its name
        after `settle`. Returns False if it was there.

        Raises:
            AlteredArtifactError: the content has another digest or size.
            OSError: it cannot be read or written.
        """
        if self._is_stored(sha256):
            return False
        temporary, head = self._make_temporary(), source.read(_SMALL)
        if len(head) < _SMALL:
            # Most are small: checked before they are written.
            _check_compressed(io.BytesIO(head), sha256, size)
            write_small(str(temporary), head, is_new=True)
            self._unnamed[sha256] = temporary
            return True
        with temporary.open("xb+") as file:
            file.write(head)
            shutil.copyfileobj(source, file)
            file.seek(0)
            _check_compressed(file, sha256, size)
        self._unnamed[sha256] = temporary
        return True

    def _make_temporary(self) -> Path:
        if self._temporary_files is None:
            self._make_directory(self._root)
            self._temporary_files = WriterDirectory.make(self._root)
        return self._temporary_files.new_path()

    def _is_stored(self, digest: str) -> bool:
        if digest in self._unnamed:
            return True
        path = self.path_of(digest)
        self._make_directory(path.parent)
        # Also if the file exists: its writer may have been killed before it synced the directory.
        self._unsettled.add(path.parent)
        try:
            # Not `exists`: a link with the right name would make us trust a file outside of the
            # ledger.
            found = path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode):
            raise AlteredArtifactError(f"{path}: no plain file; an artifact was swapped for it")
        if time.time() - found.st_mtime > _TOUCHED_SEC:
            # A server removes what no entry has named for a day; the entry of this one comes next.
            try:
                os.utime(path)
            except FileNotFoundError:
                return False
            except OSError:
                # Another user's, which no server of this one removes.
                return True
        return True

    def _make_directory(self, directory: Path) -> None:
        if directory in self._seen:
            return
        if directory != self._ledger:
            self._make_directory(directory.parent)
            make_below(self._ledger, str(directory.relative_to(self._ledger)))
            # Also if it existed: its writer may have been killed before it synced the parent.
            self._unsettled.add(directory.parent)
        self._seen.add(directory)

    def settle(self) -> None:
        """Make everything that was added durable: see `ArtifactStore`."""
        self._name_all()
        self._sync(sync_directory, sorted(self._unsettled))
        self._unsettled.clear()
        self._remove_temporary()

    def _name_all(self) -> None:
        # Sync the content before it gets the name: after a crash, a name means complete content.
        self._sync(sync_file, list(self._unnamed.values()))
        for digest, temporary in list(self._unnamed.items()):
            # Atomic, and equal content from another writer may simply be replaced.
            temporary.rename(self.path_of(digest))
            del self._unnamed[digest]

    def _sync(self, sync: Callable[[Path], None], paths: Sequence[Path]) -> None:
        def sync_each(some: Sequence[Path]) -> None:
            for path in some:
                sync(path)

        if len(paths) <= self.one_by_one:
            sync_each(paths)
            return
        with ThreadPoolExecutor(_SYNC_THREADS) as pool:
            for _ in pool.map(
                sync_each, [paths[begin::_SYNC_THREADS] for begin in range(_SYNC_THREADS)]
            ):
                pass

    def discard(self) -> None:
        """Drop what was added and not settled."""
        self._unnamed.clear()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary_files is not None:
            self._temporary_files.remove()
            self._temporary_files = None

    def stored_size(self, sha256: str) -> int | None:
        """The size of the file: see `ArtifactStore`."""
        try:
            return os.lstat(self.path_of(sha256)).st_size
        except OSError:
            return None

    def remove(self, sha256: str) -> None:
        """Delete an artifact: see `ArtifactStore`."""
        path = self.path_of(sha256)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_directory(path.parent)


@contextlib.contextmanager
def unpacked(artifacts: ArtifactStore, sealed: EvidenceFile) -> Iterator[str]:
    """The path of a temporary copy, checked against the sealed digest.

    Raises:
        DamageError: the artifact is missing or altered, or too large for the temporary directory.
    """
    # The path comes from the entry's author: only its suffix is used, for readers that need one.
    ending = Path(sealed.path).suffix[:20]
    if sealed.size > (room := find_room(tempfile.gettempdir())):
        raise DamageError(
            f"{sealed.path}: {sealed.size:,} bytes; at most {room:,} are unpacked to "
            f"{tempfile.gettempdir()}"
        )
    with tempfile.NamedTemporaryFile(prefix="proctor-trace-", suffix=ending) as file:
        artifacts.copy_sealed(sealed.sha256, sealed.size, cast(BinaryIO, file))
        file.flush()
        yield file.name
