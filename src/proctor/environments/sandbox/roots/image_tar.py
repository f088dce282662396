"""Tar archives of strangers, read member by member and put into a tree.

Plain, or packed by gzip, xz, bzip2 or zstd, told by their first bytes. What lies outside the root
is refused, links stay links, devices and sockets are left out with a note, and what unpacks to more
than the disk holds ends. Nothing here knows what the archive is for.
"""

import bz2
import gzip
import lzma
import shutil
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from backports import zstd

from proctor.environments.sandbox.roots.tree import Entry, Kind, Tree
from proctor.errors import ImageError

EXPECTED = "expected a tar of a root file system, as `docker export` writes it"
EXPECTED_LAYER = "expected a layer of an image, a tar plain or packed"
DAMAGE = (
    *(tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError),
    *(ValueError, OverflowError),
)
"""What unpackers raise at archives that are none, or are no longer whole."""
_BLOCK = 512
_LATEST = 1 << 33
"""Seconds; later times are not times."""
_DEEPEST = 500
_MOST_BYTES = 1 << 38
_MOST_ENTRIES = 5_000_000
_MOST_HEADERS = 1 << 24
"""Bytes that may describe one member; tarfile holds all of them in memory."""


class Budget:
    """How much may still be unpacked: a few bytes can unpack to a disk full of them."""

    def __init__(self, place: Path, besides: int = 0) -> None:
        """As much as the disk of `place` has free, and so many bytes besides."""
        self._bytes = self._most = min(_MOST_BYTES, shutil.disk_usage(place).free + besides)
        self._entries = _MOST_ENTRIES

    def take(self, n_bytes: int) -> None:
        """Count bytes that came out.

        Raises:
            ImageError: it is more than there may be.
        """
        self._bytes -= n_bytes
        if self._bytes < 0:
            raise ImageError(
                f"unpacks to more than {self._most:,} bytes, as many as the disk of the images has "
                "free (at most 256 GiB); if it is no bomb, name another place with PROCTOR_CACHE"
            )

    def take_entry(self) -> None:
        """Count an entry.

        Raises:
            ImageError: it is more than there may be.
        """
        self._entries -= 1
        if self._entries < 0:
            raise ImageError(f"has more than {_MOST_ENTRIES:,} entries; refused")


class Stream:
    """What comes out of the packing, and whether it ended as an archive does: in zeros."""

    def __init__(self, file: BinaryIO, budget: Budget, *, is_packed: bool) -> None:
        self._file = file
        self._budget = budget
        self._end: int | None = None
        self._tail = b""
        self.is_packed = is_packed
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        """Read as a file does; refuses to go on where more comes than was allowed."""
        data = self._file.read(size)
        self.size += len(data)
        self._budget.take(len(data))
        if self._end is not None and self.size > self._end:
            raise ImageError(f"the headers of a member have more than {_MOST_HEADERS:,} bytes")
        self._tail = (self._tail + data[-_BLOCK:])[-_BLOCK:]
        return data

    def allow(self, n_bytes: int | None) -> None:
        """How many bytes may come from here on; None for all."""
        self._end = None if n_bytes is None else self.size + n_bytes

    def drain(self) -> None:
        """Read to the end."""
        self.allow(None)
        while self.read(1 << 20):
            pass

    @property
    def is_ended(self) -> bool:
        """Whether the last block was one of zeros."""
        return self._tail == bytes(_BLOCK)


type _Unpack = Callable[[BinaryIO], object]
_PACKINGS: tuple[tuple[bytes, _Unpack], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"\xfd7zXZ\x00", lzma.open),
    (b"BZh", bz2.open),
    (b"\x28\xb5\x2f\xfd", zstd.open),
)


@contextmanager
def opened(source: Path, budget: Budget) -> Iterator[Stream]:
    """The bytes of an archive's file, unpacked.

    Raises:
        ImageError: it is no file.
        OSError: it cannot be read.
    """
    # A pipe would be waited for, and a device might never end.
    if not source.is_file():
        raise ImageError(f"{source}: neither a file nor a directory; {EXPECTED}")
    with source.open("rb") as file, unpacked(file, budget) as stream:
        yield stream


@contextmanager
def unpacked(file: BinaryIO, budget: Budget) -> Iterator[Stream]:
    """The bytes of a file that can be rewound, unpacked."""
    head = file.read(8)
    file.seek(0)
    unpack = next((found for magic, found in _PACKINGS if head.startswith(magic)), None)
    if unpack is None:
        yield Stream(file, budget, is_packed=False)
        return
    with cast(BinaryIO, unpack(file)) as plain:
        yield Stream(plain, budget, is_packed=True)


def open_tar(where: str, stream: Stream, layer: BinaryIO | None = None) -> tarfile.TarFile:
    """The archive in a stream; of a layer, what reads through it and sees all bytes.

    Raises:
        ImageError: there is none.
    """
    through = cast(BinaryIO, layer or stream)
    try:
        return tarfile.open(fileobj=through, mode="r|", bufsize=1 << 16)
    except tarfile.ReadError as error:
        damaged = "damaged, or " if stream.is_packed else ""
        found = f"{damaged}not a tar archive" if stream.size or stream.is_packed else "is empty"
        expected = EXPECTED_LAYER if layer else EXPECTED
        raise ImageError(f"{where}: {found}; {expected}") from error


def members_of(archive: tarfile.TarFile, stream: Stream) -> Iterator[tarfile.TarInfo]:
    """The members one after another, none with more headers than any honest one has."""
    stream.allow(_MOST_HEADERS)
    for member in archive:
        stream.allow(member.size + _MOST_HEADERS)
        yield member


@contextmanager
def damage_named(where: str, expected: str = EXPECTED) -> Iterator[None]:
    """Say of which archive an error is, and make one of what unpackers raise.

    Raises:
        ImageError: instead of theirs.
    """
    try:
        yield
    except ImageError as error:
        begin = "" if str(error).startswith(where) else f"{where}: "
        raise ImageError(f"{begin}{error}") from error
    except DAMAGE as error:
        raise ImageError(f"{where}: cut short or damaged: {error}; {expected}") from error
    except OSError as error:
        # The system's own errors have a number; those of an unpacker have none.
        if error.errno is not None:
            raise
        raise ImageError(f"{where}: cut short or damaged: {error}; {expected}") from error


class Putter:
    """Puts members into a tree."""

    def __init__(self, tree: Tree, budget: Budget) -> None:
        self.tree = tree
        self.left_out: Counter[str] = Counter()
        self._budget = budget

    def put(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, of: str) -> None:
        """Put one member at `path`; `of` is the other name, where it is a hard link.

        Raises:
            ImageError: it cannot be there, or is too large.
        """
        tree = self.tree
        if member.isdir():
            tree.add_directory(path, entry_of_member(member, Kind.DIRECTORY))
        elif not path:
            raise ImageError(f"{member.name!r}: a file without a name")
        elif member.issym():
            tree.add_link(path, entry_of_member(member, Kind.LINK))
        elif member.islnk():
            tree.add_name(path, of)
        elif member.isreg():
            self._put_file(archive, member, path)
        else:
            self.left_out["devices and pipes"] += 1

    def count(self, member: tarfile.TarInfo) -> None:
        """Count a member before anything is done with it.

        Raises:
            ImageError: it is one too many, or has more bytes than may be written.
        """
        self._budget.take_entry()
        if member.issparse():
            self._budget.take(member.size)  # its zeros are not in the archive

    def _put_file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        content = archive.extractfile(member)
        if content is None:
            raise ImageError(f"{path}: a file without contents")
        self.tree.add_file(path, entry_of_member(member, Kind.FILE), cast(BinaryIO, content))
        if content.tell() != member.size:
            raise tarfile.ReadError(f"{path} has not all of its {member.size:,} bytes")


def inside(name: str) -> str:
    """A member's name as a path below the root.

    Raises:
        ImageError: it leads out, or is deeper than any honest one.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ImageError(f"{name}: leads out of the root file system by `..`; refused")
    if len(parts) > _DEEPEST:
        raise ImageError(f"{name[:60]}…: lies more than {_DEEPEST} directories deep; refused")
    return "/".join(parts)


def entry_of_member(member: tarfile.TarInfo, kind: Kind) -> Entry:
    """An entry as the archive has it."""
    return Entry(
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime_ns=int(min(max(member.mtime, 0), _LATEST) * 1_000_000_000),
        content=member.linkname if kind is Kind.LINK else "",
    )
