"""A root file system from elsewhere, an archive or a directory, put on disk safely.

Archives: tar, plain or packed by gzip, xz or bzip2; `docker export` writes one. What lies outside
is refused, links stay links, devices and sockets are left out with a note. Nothing here gives it a
name.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from proctor.environments.sandbox.roots.tree import Entry, Kind, Tree, entry_of
from proctor.errors import ImageError
from proctor.sentence import count_of, reason_of

_EXPECTED = "expected a tar of a root file system, as `docker export` writes it"
_BLOCK = 512
_LATEST = 1 << 33
"""Seconds; later times are not times."""
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OverflowError)


def put_source(source: Path, root: Path) -> tuple[Tree, list[str]]:
    """Put an archive or a directory below `root`, which is empty; the tree and notes on it.

    Raises:
        ImageError: it is neither, is damaged, or holds no root file system.
        OSError: it cannot be read or written.
    """
    tree = Tree(root)
    left_out: Counter[str] = Counter()
    if source.is_dir():
        _put_directory(source, tree, left_out)
    else:
        _put_archive(source, tree, left_out)
    _check_root(source, tree)
    return tree, [
        f"{what} left out: {count_of(n, 'entry', 'entries')}" for what, n in left_out.items()
    ]


def _check_root(source: Path, tree: Tree) -> None:
    if not len(tree):
        raise ImageError(f"{source}: is empty; expected a root file system")
    if "bin" in tree or "usr" in tree:
        return
    if "manifest.json" in tree or "oci-layout" in tree:
        raise ImageError(
            f"{source}: an image with its layers, as `docker save` writes it; expected its root "
            "file system: `docker export $(docker create NAME) > root.tar`"
        )
    top = tree.top
    shown = ", ".join(top[:5]) + (", …" if len(top) > 5 else "")
    raise ImageError(
        f"{source}: not a root file system: neither bin nor usr at its top, but {shown}; "
        "if it lies in a directory inside, give that one (or `tar -C DIRECTORY -c .` of it)"
    )


# Archives


def _put_archive(source: Path, tree: Tree, left_out: Counter[str]) -> None:
    with _opened(source) as stream, _damage(source):
        with _archive(source, stream) as archive:
            for member in archive:
                _put_member(archive, member, tree, left_out)
        stream.drain()
        if not stream.is_ended:
            raise ImageError(f"{source}: ends before its end mark: it is cut short; {_EXPECTED}")


def _archive(source: Path, stream: "_Stream") -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", bufsize=1 << 16)
    except tarfile.ReadError as error:
        damaged = "damaged, or " if stream.is_packed else ""
        found = f"{damaged}not a tar archive" if stream.size or stream.is_packed else "is empty"
        raise ImageError(f"{source}: {found}; {_EXPECTED}") from error


@contextmanager
def _damage(source: Path) -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        where = "" if str(error).startswith(str(source)) else f"{source}: "
        raise ImageError(f"{where}{error}") from error
    except _DAMAGE as error:
        raise ImageError(f"{source}: cut short or damaged: {error}; {_EXPECTED}") from error
    except OSError as error:
        # The system's own errors have a number; those of an unpacker have none.
        if error.errno is not None:
            raise
        raise ImageError(f"{source}: cut short or damaged: {error}; {_EXPECTED}") from error


def _put_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree, left_out: Counter[str]
) -> None:
    path = _inside(member.name)
    if member.isdir():
        tree.add_directory(path, _entry_of_member(member, Kind.DIRECTORY))
    elif not path:
        raise ImageError(f"{member.name!r}: a file without a name")
    elif member.issym():
        tree.add_link(path, _entry_of_member(member, Kind.LINK))
    elif member.islnk():
        tree.add_name(path, _inside(member.linkname))
    elif member.isreg():
        content = archive.extractfile(member)
        if content is None:
            raise ImageError(f"{path}: a file without contents")
        tree.add_file(path, _entry_of_member(member, Kind.FILE), cast(BinaryIO, content))
        if content.tell() != member.size:
            raise tarfile.ReadError(f"{path} has not all of its {member.size:,} bytes")
    else:
        left_out["devices and pipes"] += 1


def _inside(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ImageError(f"{name}: leads out of the root file system by `..`; refused")
    return "/".join(parts)


def _entry_of_member(member: tarfile.TarInfo, kind: Kind) -> Entry:
    return Entry(
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime_ns=int(min(max(member.mtime, 0), _LATEST) * 1_000_000_000),
        content=member.linkname if kind is Kind.LINK else "",
    )


class _Stream:
    """What comes out of the packing, and whether it ended as an archive does: in zeros."""

    def __init__(self, file: BinaryIO, *, is_packed: bool) -> None:
        self._file = file
        self.is_packed = is_packed
        self._tail = b""
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.size += len(data)
        self._tail = (self._tail + data[-_BLOCK:])[-_BLOCK:]
        return data

    def drain(self) -> None:
        while self.read(1 << 20):
            pass

    @property
    def is_ended(self) -> bool:
        return self._tail == bytes(_BLOCK)


type _Unpack = Callable[[Path], object]
_PACKINGS: tuple[tuple[bytes, _Unpack], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"\xfd7zXZ\x00", lzma.open),
    (b"BZh", bz2.open),
)


@contextmanager
def _opened(source: Path) -> Iterator[_Stream]:
    # A pipe would be waited for, and a device might never end.
    if not source.is_file():
        raise ImageError(f"{source}: neither a file nor a directory; {_EXPECTED}")
    with source.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise ImageError(f"{source}: packed by zstd; unpack it first: `zstd -d {source}`")
    unpack = next((found for magic, found in _PACKINGS if head.startswith(magic)), None)
    with cast(BinaryIO, unpack(source) if unpack else source.open("rb")) as opened:
        yield _Stream(opened, is_packed=unpack is not None)


# Directories


def _put_directory(source: Path, tree: Tree, left_out: Counter[str]) -> None:
    top = source.stat()
    tree.add_directory("", entry_of(top, Kind.DIRECTORY))
    first_names: dict[tuple[int, int], str] = {}
    waiting = [("", source)]
    while waiting:
        below, directory = waiting.pop()
        for entry in sorted(os.scandir(directory), key=lambda found: found.name):
            path = f"{below}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                _put_found(entry, path, tree, first_names, left_out)
                continue
            tree.add_directory(path, entry_of(status, Kind.DIRECTORY))
            if status.st_dev == top.st_dev:
                waiting.append((f"{path}/", Path(entry.path)))
            else:
                left_out[f"what is mounted on {path}"] += 1


def _put_found(
    entry: os.DirEntry[str],
    path: str,
    tree: Tree,
    first_names: dict[tuple[int, int], str],
    left_out: Counter[str],
) -> None:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        to = os.readlink(entry.path)  # noqa: PTH115 - the text as it is
        tree.add_link(path, entry_of(status, Kind.LINK, to))
    elif not stat.S_ISREG(status.st_mode):
        left_out["devices and pipes"] += 1
    elif first := first_names.get((status.st_dev, status.st_ino)):
        tree.add_name(path, first)
    else:
        if status.st_nlink > 1:
            first_names[status.st_dev, status.st_ino] = path
        with Path(entry.path).open("rb") as file:
            tree.add_file(path, entry_of(status, Kind.FILE), file)


def reason_not_put(source: Path, store: Path, error: OSError) -> str:
    """Why an import stopped, as a sentence; `error` says which file and what the system said."""
    where = error.filename if isinstance(error.filename, str) else str(source)
    if where.startswith(str(store)) or error.filename is None:
        return f"{store}: the image cannot be written there: {reason_of(error)}"
    return f"{where}: cannot be read: {reason_of(error)}"
