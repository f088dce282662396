"""Artifacts: evidence by the SHA-256 of its plain bytes, compressed.

    artifacts/sha256/ab/abcdef….zst

The same bytes are kept once, whoever seals them. A file appears under its name whole and durable
or not at all; what a kill leaves without a name goes with the next writer. Nothing here knows which
trial an artifact belongs to.

What is large is compressed in frames that can be unpacked one by one, cut after a line end where
there is one near. Any reader of zstd takes them for one file.
"""

import contextlib
import fcntl
import io
import os
import shutil
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Self, cast

from backports import zstd

from proctor.contained import make_below, open_below
from proctor.digest import is_digest, sha256_copy, sha256_hex
from proctor.errors import AlteredArtifactError, DamageError, MissingArtifactError
from proctor.files import find_room, sync_directory, sync_file, write_small
from proctor.ledger.entry import EvidenceFile

# Where artifacts lie until they have their names: a directory for each writer, and gone with it
#
#     artifacts/sha256/.HEX.tmp/…
#
# A writer holds a lock on its own directory as long as it lives. Whoever makes the next one removes
# those that nobody holds: what a kill left. Nothing here knows what the files are.


class Unnamed:
    """A writer's directory."""

    def __init__(self, directory: Path, fd: int) -> None:
        self._directory = directory
        self._fd = fd

    @classmethod
    def make(cls, parent: Path) -> Self:
        """A new directory, held; those of writers that are dead go.

        Raises:
            OSError: none can be made.
        """
        # One at a time: a directory that is made and not held yet is nobody's to remove.
        with _held(parent):
            _clear(parent)
            directory = parent / f".{os.urandom(8).hex()}.tmp"
            directory.mkdir()
            fd = _open(directory)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(directory, fd)

    def new_path(self) -> Path:
        """A name in it that nothing has."""
        return self._directory / os.urandom(8).hex()

    def remove(self) -> None:
        """Let go of the directory and of what is still in it."""
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._fd)


def _clear(parent: Path) -> None:
    for left in parent.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            fd = _open(left, os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living writer's is left alone
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(fd)


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
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
"""Bytes of an artifact that is held in memory as a whole: 512 MiB."""
_SMALL = 1 << 18
"""Bytes that are held in memory to see whether they are kept already."""
_FRAME = 1 << 22
"""Plain bytes of a frame, at most: 4 MiB compress as well as more would."""
_MOST_UNNAMED = 4000
"""Files that wait for their name at the same time."""
_AT_ONCE = 16
"""Files that the disk is asked for at once: it writes many in hardly more time than one."""
_FEW = 32


class _Bounded:
    """Takes so many bytes and hands them on; without a target it keeps none."""

    def __init__(self, size: int, target: BinaryIO | None = None) -> None:
        self._left = size
        self._target = target

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            # A few bytes can unpack to a disk full of them.
            raise AlteredArtifactError("an artifact has more bytes than were sealed")
        return self._target.write(data) if self._target is not None else len(data)


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


class ArtifactStore(ABC):
    """Where evidence is kept: by the SHA-256 of its plain bytes, compressed with zstd."""

    @abstractmethod
    def open(self, sha256: str) -> BinaryIO:
        """An artifact as it is stored, compressed; it can be read from any position.

        Raises:
            DamageError: it is missing, or cannot be read.
        """

    @abstractmethod
    def holds(self, sha256: str) -> bool:
        """Whether there is something under that name."""

    @abstractmethod
    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Keep what is left of a stream: its digest, and how many bytes that were.

        It gets its name and is durable once `settle` was called: many at once cost little more than
        one.

        Raises:
            OSError: it cannot be read or written; nothing is kept.
        """

    @abstractmethod
    def settle(self) -> None:
        """See that all that was put is durable, under its name.

        Raises:
            OSError: that failed; call `discard`.
        """

    @abstractmethod
    def discard(self) -> None:
        """Let go of what was put and is not settled."""

    @abstractmethod
    def remove(self, sha256: str) -> None:
        """Take an artifact out; it may be gone already."""

    @abstractmethod
    def stored_size(self, sha256: str) -> int | None:
        """Bytes that an artifact takes as it is stored; None where it is not there."""

    def copy(self, sha256: str, target: BinaryIO) -> int:
        """Write an artifact's plain bytes to a stream; how many those were.

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
        """An artifact's first plain bytes, which nobody has seen to be what was sealed.

        Raises:
            DamageError: it is missing or unreadable.
        """
        try:
            with self.open(sha256) as file, zstd.open(file, "rb") as plain:
                return plain.read(size)
        except (OSError, EOFError, zstd.ZstdError) as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error

    def load(self, sha256: str, size: int) -> bytes:
        """An artifact's plain bytes, all at once, as many as an entry says there are.

        Raises:
            DamageError: it is missing, unreadable, holds other bytes, or is too large for memory.
        """
        if size > LARGEST_LOADED:
            raise DamageError(
                f"artifact {sha256} has {size:,} bytes; at most {LARGEST_LOADED:,} are held in "
                "memory"
            )
        plain = io.BytesIO()
        self.copy_sealed(sha256, size, plain)
        return plain.getvalue()

    def check(self, sha256: str, size: int) -> None:
        """Refuse an artifact that is not what its name and an entry say.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        self.copy_sealed(sha256, size, None)

    def copy_sealed(self, sha256: str, size: int, target: BinaryIO | None) -> None:
        """Write an artifact's plain bytes to a stream, never more than an entry says there are.

        Raises:
            DamageError: it is missing, unreadable, or holds other bytes.
        """
        found = self.copy(sha256, cast(BinaryIO, _Bounded(size, target)))
        if found != size:
            raise AlteredArtifactError(f"artifact {sha256} has {found} bytes; sealed were {size}")


class FileArtifacts(ArtifactStore):
    """The artifacts of a ledger in a directory."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._root = ledger / "artifacts" / "sha256"
        self._unnamed: dict[str, Path] = {}
        """What was written and has no name yet: by its digest, where it lies meanwhile."""
        self._meanwhile: Unnamed | None = None
        """The directory where it does."""
        self._seen: set[Path] = set()
        """Directories that are there, and whose own names are on the disk or unsettled."""
        self._unsettled: set[Path] = set()
        """Directories with names in them that may not be on the disk."""
        self.one_by_one = _FEW
        """Up to so many files the disk is asked for one after the other."""

    def path_of(self, sha256: str) -> Path:
        """Where an artifact is, or would be.

        Raises:
            AlteredArtifactError: the name is not a digest, and could lead anywhere.
        """
        if not is_digest(sha256):
            raise AlteredArtifactError(f"{sha256[:80]!r} is not the SHA-256 of an artifact")
        return self._root / sha256[:2] / f"{sha256}.zst"

    def open(self, sha256: str) -> BinaryIO:
        """A file with an artifact; no link on the way is followed: see `ArtifactStore`."""
        path = self.path_of(sha256).relative_to(self._ledger)
        try:
            return open_below(self._ledger, str(path))
        except FileNotFoundError as error:
            raise MissingArtifactError(f"artifact {sha256} is not there") from error
        except OSError as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error

    def holds(self, sha256: str) -> bool:
        """Whether there is something under that name."""
        return is_digest(sha256) and os.path.lexists(self.path_of(sha256))

    def put(self, source: BinaryIO) -> tuple[str, int]:
        """Keep what is left of a stream: see `ArtifactStore`."""
        begin = source.tell()
        head = source.read(_SMALL)
        if len(head) < _SMALL:
            # Most files are small, and many are the same in all trials: those cost a look.
            digest, size = sha256_hex(head), len(head)
            if not self._is_there(digest):
                self._unnamed[digest] = self._write_small(head)
        else:
            source.seek(begin)
            digest = self._write(source)
            size = source.tell() - begin
        if len(self._unnamed) >= _MOST_UNNAMED:
            self._name_all()
        return digest, size

    def _write_small(self, data: bytes) -> Path:
        temporary = self._make_temporary()
        try:
            write_small(str(temporary), zstd.compress(data, level=_LEVEL), is_new=True)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _write(self, source: BinaryIO) -> str:
        """Write what is left of a stream; its digest."""
        temporary = self._make_temporary()
        try:
            with temporary.open("xb") as file:
                digest = sha256_copy(source, cast(BinaryIO, target := _Frames(file)))
                target.finish()
            is_there = self._is_there(digest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if is_there:
            temporary.unlink(missing_ok=True)
        else:
            self._unnamed[digest] = temporary
        return digest

    def _make_temporary(self) -> Path:
        if self._meanwhile is None:
            self._make_directory(self._root)
            self._meanwhile = Unnamed.make(self._root)
        return self._meanwhile.new_path()

    def _is_there(self, digest: str) -> bool:
        if digest in self._unnamed:
            return True
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
        if directory in self._seen:
            return
        if directory != self._ledger:
            self._make_directory(directory.parent)
            make_below(self._ledger, str(directory.relative_to(self._ledger)))
            # Also where it was there: whoever made it may not have come to settle it.
            self._unsettled.add(directory.parent)
        self._seen.add(directory)

    def settle(self) -> None:
        """See that all that was put is on the disk: see `ArtifactStore`."""
        self._name_all()
        self._sync(sync_directory, sorted(self._unsettled))
        self._unsettled.clear()
        self._let_go()

    def _name_all(self) -> None:
        # Content before name: a name without content would be taken for the artifact.
        self._sync(sync_file, list(self._unnamed.values()))
        for digest, temporary in list(self._unnamed.items()):
            temporary.rename(self.path_of(digest))
            del self._unnamed[digest]

    def _sync(self, sync: Callable[[Path], None], paths: Sequence[Path]) -> None:
        def sync_each(some: Sequence[Path]) -> None:
            for path in some:
                sync(path)

        if len(paths) <= self.one_by_one:
            sync_each(paths)
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(sync_each, [paths[begin::_AT_ONCE] for begin in range(_AT_ONCE)]):
                pass

    def discard(self) -> None:
        """Let go of what was put and is not settled."""
        self._unnamed.clear()
        self._let_go()

    def _let_go(self) -> None:
        if self._meanwhile is not None:
            self._meanwhile.remove()
            self._meanwhile = None

    def stored_size(self, sha256: str) -> int | None:
        """Bytes of the file: see `ArtifactStore`."""
        try:
            return os.lstat(self.path_of(sha256)).st_size
        except OSError:
            return None

    def remove(self, sha256: str) -> None:
        """Take an artifact out: see `ArtifactStore`."""
        path = self.path_of(sha256)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_directory(path.parent)


@contextlib.contextmanager
def unpacked(artifacts: ArtifactStore, sealed: EvidenceFile) -> Iterator[str]:
    """The path of a copy; every byte of it was seen to be what was sealed.

    Raises:
        DamageError: the artifact is missing or altered, or too large to be unpacked here.
    """
    # The name comes from whoever sealed it: no path is made of more than how it ends.
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
