"""Unpacks untrusted tar archives, member by member, into a tree.

Plain, or compressed with gzip, xz, bzip2 or zstd, detected by their first bytes. Paths outside the
root are refused, symlinks are kept as symlinks, devices and sockets are left out with a note, and
archives that do not fit on the disk when unpacked, with a reserve, are refused.
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

from proctor.environments.sandbox.archive import BrokenArchiveError
from proctor.environments.sandbox.roots.tree import Entry, Kind, Tree
from proctor.environments.sandbox.tar_ops import MOST_HEADERS, CheckedMember, HeaderStream, Readable
from proctor.errors import ImageError
from proctor.sentence import render_limit, render_size

EXPECTED = "expected a tar of a root file system, as `docker export` writes it"
EXPECTED_LAYER = "expected a layer of an image, a plain or compressed tar archive"
DAMAGE = (
    *(tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError),
    *(ValueError, OverflowError, RecursionError),
)
"""Exceptions that decompressors and tarfile raise for invalid or damaged archives."""
_BLOCK = 512
# Seconds; later times are capped, because file systems cannot store them.
_LATEST = 1 << 33
_DEEPEST = 500
# 256 GiB: no image is larger.
_MOST_BYTES = 1 << 38
# Left free for everything else on the disk: 5 GiB, or a twentieth of a smaller disk.
_RESERVE = 5 << 30
_RESERVE_PART = 20
# Each entry takes at least a block of the disk, whatever its size in the archive.
_DISK_BLOCK = 4096
# More than what gzip can make of zeros, 1,032. zstd makes 30,000, so honest layers of files that
# are full of zeros, such as those of databases, need an allowance whatever their compressed size.
_RATIO = 1100
_ALLOWANCE = 16 << 30
# Zeros after the last member; GNU tar can write up to a record of some MiB.
_MOST_PADDING = 1 << 26
_MOST_ENTRIES = 5_000_000
_XATTR = "SCHILY.xattr."


def most_unpacked(compressed: int) -> int:
    """Return how many bytes an image of so many compressed bytes may have when it is unpacked."""
    return _ALLOWANCE + _RATIO * compressed


class Budget:
    """Remaining bytes and entries that may be unpacked, against decompression bombs."""

    def __init__(self, place: Path, more: int = 0, most: int | None = None) -> None:
        """Allow the free space on the disk of `place` but for a reserve, plus `more` bytes.

        `most` is what `most_unpacked` allows; None: any size.
        """
        disk = shutil.disk_usage(place)
        free = max(0, disk.free - min(_RESERVE, disk.total // _RESERVE_PART))
        self._space = self._most_space = min(_MOST_BYTES, free + more)
        self._bytes = self._most_bytes = _MOST_BYTES if most is None else most
        self._entries = _MOST_ENTRIES

    def take(self, n_bytes: int) -> None:
        """Count unpacked bytes."""
        self.check(n_bytes)
        self._space -= n_bytes
        self._bytes -= n_bytes

    @property
    def n_taken(self) -> int:
        """Number of bytes that were unpacked."""
        return self._most_bytes - self._bytes

    def check(self, n_bytes: int) -> None:
        """Check that there is room for so many bytes more, before any of them is unpacked.

        Raises:
            ImageError: there is not.
        """
        if n_bytes > self._space:
            raise ImageError(
                f"unpacks to more than {render_size(self._most_space)}, the free space on the disk "
                "of the images without a reserve (at most 256 GiB); if it is not a decompression "
                "bomb, set PROCTOR_CACHE to another directory"
            )
        if n_bytes > self._bytes:
            raise ImageError(
                f"unpacks to more than {render_size(self._most_bytes)}; an image may have "
                f"{_RATIO:,} times its compressed size and {render_limit(_ALLOWANCE)}; refused as "
                "a decompression bomb"
            )

    def take_entry(self) -> None:
        """Count an entry.

        Raises:
            ImageError: the budget is exceeded.
        """
        self._entries -= 1
        if self._entries < 0:
            raise ImageError(f"has more than {_MOST_ENTRIES:,} entries; refused")
        self.check(0)
        self._space -= _DISK_BLOCK


class Stream(HeaderStream):
    """Decompressed bytes, which knows whether it ended as an archive does: in zeros."""

    def __init__(self, file: BinaryIO, budget: Budget, *, is_packed: bool) -> None:
        super().__init__(file)
        self._budget = budget
        self._tail = b""
        self.is_packed = is_packed

    def read(self, size: int = -1) -> bytes:
        """Read like a file."""
        data = super().read(size)
        self._budget.take(len(data))
        self._tail = (self._tail + data[-_BLOCK:])[-_BLOCK:]
        return data

    def drain(self, through: Readable | None = None) -> None:
        """Read to the end, through a stream that reads from this one if one is given.

        Raises:
            ImageError: too much comes after the last member.
        """
        self.allow(None)
        end = self.size + _MOST_PADDING
        while (through or self).read(1 << 20):
            if self.size > end:
                raise ImageError(
                    f"has more than {_MOST_PADDING:,} bytes after its last member; refused"
                )

    @property
    def is_ended(self) -> bool:
        """Whether the last block was all zeros."""
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
    """Open an archive file, decompressed.

    Raises:
        ImageError: it is not a file.
        OSError: it cannot be read.
    """
    # A pipe would block, and a device may never end.
    if not source.is_file():
        raise ImageError(f"{source}: neither a file nor a directory; {EXPECTED}")
    with source.open("rb") as file, unpacked(file, budget) as stream:
        yield stream


def is_archive(source: Path) -> bool:
    """Whether a file is a tar archive, compressed or not: by Docker's rule, if a member is found.

    Raises:
        OSError: it cannot be read.
    """
    try:
        # Nothing is written, so the disk may be full.
        with opened(source, Budget(source.parent, MOST_HEADERS)) as stream:
            stream.allow(MOST_HEADERS)
            through = cast("BinaryIO", stream)
            # No more than the header at once: damage after it is reported when it is unpacked.
            with tarfile.open(
                fileobj=through, mode="r|", bufsize=_BLOCK, tarinfo=CheckedMember
            ) as archive:
                # Zeros, with which disk images begin, are an archive without members.
                return archive.next() is not None
    except (*DAMAGE, ImageError, BrokenArchiveError):
        return False
    except OSError as error:
        # Errors of the system have an errno; those of a decompressor do not.
        if error.errno is not None:
            raise
        return False


@contextmanager
def unpacked(file: BinaryIO, budget: Budget) -> Iterator[Stream]:
    """Decompress a seekable file."""
    head = file.read(8)
    file.seek(0)
    unpack = next((found for magic, found in _PACKINGS if head.startswith(magic)), None)
    if unpack is None:
        yield Stream(file, budget, is_packed=False)
        return
    with cast(BinaryIO, unpack(file)) as plain:
        yield Stream(plain, budget, is_packed=True)


def open_tar(where: str, stream: Stream, layer: BinaryIO | None = None) -> tarfile.TarFile:
    """Open the tar archive in a stream; `layer` is a reader of the stream that hashes it.

    Raises:
        ImageError: it is not a tar archive.
    """
    through = cast(BinaryIO, layer or stream)
    stream.allow(MOST_HEADERS)
    try:
        return tarfile.open(fileobj=through, mode="r|", bufsize=1 << 16, tarinfo=CheckedMember)
    except tarfile.ReadError as error:
        damaged = "damaged, or " if stream.is_packed else ""
        found = f"{damaged}not a tar archive" if stream.size or stream.is_packed else "is empty"
        expected = EXPECTED_LAYER if layer else EXPECTED
        raise ImageError(f"{where}: {found}; {expected}") from error


@contextmanager
def damage_named(where: str, expected: str = EXPECTED) -> Iterator[None]:
    """Add the archive's name to errors, and turn those of decompressors into ImageError.

    Raises:
        ImageError: the archive is invalid or damaged.
    """
    try:
        yield
    except (ImageError, BrokenArchiveError) as error:
        begin = "" if str(error).startswith(where) else f"{where}: "
        raise ImageError(f"{begin}{error}") from error
    except DAMAGE as error:
        raise ImageError(f"{where}: cut short or damaged: {error}; {expected}") from error
    except OSError as error:
        # Errors of the system have an errno; those of a decompressor do not.
        if error.errno is not None:
            raise
        raise ImageError(f"{where}: cut short or damaged: {error}; {expected}") from error


class Putter:
    """Writes members to a tree."""

    def __init__(self, tree: Tree, budget: Budget) -> None:
        self.tree = tree
        self.left_out: Counter[str] = Counter()
        self._budget = budget

    def put(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, of: str) -> None:
        """Write one member to `path`; `of` is the target if it is a hard link.

        Raises:
            ImageError: the path is invalid, or the member is too large.
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
            content = archive.extractfile(member)
            if content is None:
                raise ImageError(f"{path}: a file without contents")
            self.tree.add_file(path, entry_of_member(member, Kind.FILE), cast(BinaryIO, content))
            if content.tell() != member.size:
                raise tarfile.ReadError(f"{path} is shorter than its {member.size:,} bytes")
        else:
            self.left_out["devices and pipes"] += 1

    def count(self, member: tarfile.TarInfo) -> None:
        """Count a member before it is written."""
        self._budget.take_entry()
        if member.issparse():
            self._budget.take(member.size)  # its zeros are not in the archive
        elif member.isreg():
            # A bomb is refused before it is written.
            self._budget.check(member.size)


def inside(name: str) -> str:
    """Return a member's name as a path relative to the root.

    Raises:
        ImageError: it leads out of the root, or is too deep.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ImageError(f"{name}: leads out of the root file system with `..`; refused")
    if len(parts) > _DEEPEST:
        raise ImageError(f"{name[:60]}…: is more than {_DEEPEST} directories deep; refused")
    return "/".join(parts)


def entry_of_member(member: tarfile.TarInfo, kind: Kind) -> Entry:
    """Return a member's metadata."""
    return Entry(
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime_ns=int(min(max(member.mtime, 0), _LATEST) * 1_000_000_000),
        content=member.linkname if kind is Kind.LINK else "",
        xattrs=tuple(
            (name.removeprefix(_XATTR), value.encode(errors="surrogateescape"))
            for name, value in member.pax_headers.items()
            if name.startswith(_XATTR)
        ),
    )
