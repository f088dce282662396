"""Opens the files of a `docker save` archive or an OCI image layout.

They are in a directory or a tar archive, and are distinguished from a root file system by the names
at the top.
"""

import posixpath
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol, cast

from proctor.digest import Sha256Reader, sha256_copy, sha256_pieces
from proctor.environments.sandbox.roots.image_tar import (
    DAMAGE,
    EXPECTED_LAYER,
    Budget,
    Putter,
    damage_named,
    inside,
    open_tar,
    opened,
    unpacked,
)
from proctor.environments.sandbox.roots.tree import Kind, Tree
from proctor.environments.sandbox.tar_ops import CheckedMember, members_of, take_member
from proctor.errors import ImageError
from proctor.files import open_plain
from proctor.sentence import render_limit

DOCKER = "manifest.json"
LAYOUT = "oci-layout"
INDEX = "index.json"
# Every root file system has one of them, and no saved image does.
_ROOT_NAMES = frozenset({"bin", "usr"})
_NAMES = _ROOT_NAMES | {DOCKER, LAYOUT, INDEX}
# Limit of the memory, in bytes, that the list of an archive's files takes, and the share of each
# without its names: about 200,000 files.
_MOST_KEPT = 1 << 28
_MEMBER = 1024
LARGEST_DOCUMENT = 1 << 22
"""Bytes of a manifest, an index or a configuration, at most."""


class SavedFiles(Protocol):
    """Files by their names."""

    def open(self, name: str) -> BinaryIO | None:
        """Open a regular file; None if there is none of that name."""


class _Directory:
    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, name: str) -> BinaryIO | None:
        path = self._root / name
        if not path.is_file() or path.is_symlink():
            return None
        return open_plain(path)


class _Tar:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members: dict[str, tarfile.TarInfo] = {}
        n_kept = 0
        while (member := take_member(archive)) is not None:
            member.pax_headers = {}
            n_kept += _MEMBER + sys.getsizeof(member.name) + sys.getsizeof(member.linkname)
            if n_kept > _MOST_KEPT:
                raise ImageError("too many files, or too long names, for an image; refused")
            self._members[posixpath.normpath(member.name)] = member

    def open(self, name: str) -> BinaryIO | None:
        member = self._members.get(name)
        if member is not None and member.issym():
            # Older Dockers link a layer that two images share: ../<other>/layer.tar
            to = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
            member = self._members.get(to)
        elif member is not None and member.islnk():
            member = self._members.get(posixpath.normpath(member.linkname))
        if member is None or not member.isreg() or member.issparse():
            return None
        return cast(BinaryIO, self._archive.extractfile(member))


def read_document(files: SavedFiles, name: str) -> bytes | None:
    """Read a small file; None if it does not exist.

    Raises:
        ImageError: it is too large for a document.
    """
    file = files.open(name)
    if file is None:
        return None
    with file:
        data = file.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise ImageError(f"{name}: larger than {render_limit(LARGEST_DOCUMENT)}; refused")
    return data


@contextmanager
def saved_files(source: Path, room: Path, budget: Budget) -> Iterator[SavedFiles | None]:
    """Open an image with its layers; yields None if `source` is something else.

    `room` is a directory in which a compressed archive is unpacked temporarily.
    """
    if source.is_dir():
        top = {path.name for path in source.iterdir()}
        yield _Directory(source) if _is_saved(top) else None
        return
    with damage_named(str(source)):
        # Only looked at, not written, so an uncompressed archive may be larger than the room.
        found = _look(source, Budget(room, source.stat().st_size))
    if found is None:
        yield None
        return
    with _rewindable(source, room, budget, is_packed=found) as file:
        with damage_named(str(source)):
            archive = tarfile.open(fileobj=file, mode="r:", tarinfo=CheckedMember)  # noqa: SIM115 - it holds only `file`
            files = _Tar(archive)
        yield files


def _is_saved(top: set[str]) -> bool:
    return not top & _ROOT_NAMES and (DOCKER in top or {LAYOUT, INDEX} <= top)


def _look(source: Path, budget: Budget) -> bool | None:
    """Return whether an archive with layers is compressed; None if it has no layers."""
    top: set[str] = set()
    with opened(source, budget) as stream:
        try:
            with open_tar(str(source), stream) as archive:
                for member in members_of(archive, stream):
                    name = posixpath.normpath(member.name).lstrip("/").partition("/")[0]
                    # Not any other: a name can have megabytes.
                    top |= {name} & _NAMES
                    if top & _ROOT_NAMES:
                        return None
        except DAMAGE:
            return None  # unpacking it will report what is wrong
        except OSError as error:
            if error.errno is not None:
                raise
            return None
        return stream.is_packed if _is_saved(top) else None


@contextmanager
def _rewindable(source: Path, room: Path, budget: Budget, *, is_packed: bool) -> Iterator[BinaryIO]:
    if not is_packed:
        with source.open("rb") as file:
            yield file
        return
    with TemporaryFile(dir=room) as plain:
        with damage_named(str(source)), opened(source, budget) as stream:
            sha256_copy(cast(BinaryIO, stream), cast(BinaryIO, plain))
        plain.seek(0)
        yield cast(BinaryIO, plain)


# Merges the layers of a saved image; whiteouts remove entries of lower layers
#
# Each layer is checked against its digests, compressed and uncompressed. A member below a symlink
# is written to the symlink's target if that is a directory of this tree, and refused otherwise.


_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image."""

    name: str
    """Name of its file."""
    digest: str | None
    """SHA-256 of the file, in hex, if the image contains it."""
    size: int | None
    """Size of the file in bytes, if the image contains it."""
    diff_id: str
    """SHA-256 of the uncompressed archive, in hex."""


def put_layers(
    files: SavedFiles, layers: tuple[Layer, ...], tree: Tree, budget: Budget
) -> dict[str, int]:
    """Write layers on top of each other; return what was left out, with counts."""
    putter = Putter(tree, budget)
    for layer in layers:
        where = damage_named(f"layer {layer.name}", EXPECTED_LAYER)
        with where, _checked(files, layer) as file:
            _put_layer(file, layer, putter, budget)
    return dict(putter.left_out)


def put_layer(file: BinaryIO, layer: Layer, tree: Tree, budget: Budget) -> dict[str, int]:
    """Write one layer, whose file was checked already; return what was left out, with counts."""
    putter = Putter(tree, budget)
    with damage_named(f"layer {layer.name}", EXPECTED_LAYER):
        _put_layer(file, layer, putter, budget)
    return dict(putter.left_out)


@contextmanager
def _checked(files: SavedFiles, layer: Layer) -> Iterator[BinaryIO]:
    file = files.open(layer.name)
    if file is None:
        raise ImageError("is missing; save the image again")
    with file:
        if layer.digest is not None:
            size = file.seek(0, 2)
            file.seek(0)
            if layer.size is not None and size != layer.size:
                raise ImageError(f"has {size:,} bytes; expected {layer.size:,}")
            check_digest(sha256_pieces(iter(lambda: file.read(_CHUNK), b"")), layer.digest)
            file.seek(0)
        yield file


def check_digest(found: str, expected: str) -> None:
    """Compare digests.

    Raises:
        ImageError: they differ.
    """
    if found != expected:
        raise ImageError(f"its SHA-256 is {found}; expected {expected}: it was altered or damaged")


def _put_layer(file: BinaryIO, layer: Layer, putter: Putter, budget: Budget) -> None:
    with unpacked(file, budget) as stream:
        reader = Sha256Reader(cast(BinaryIO, stream))
        with open_tar(f"layer {layer.name}", stream, cast(BinaryIO, reader)) as archive:
            upper = _Upper(putter)
            for member in members_of(archive, stream):
                upper.put(archive, member)
        stream.drain(reader)
        check_digest(reader.digest, layer.diff_id)


class _Upper:
    """A layer that is being written on top of the tree."""

    def __init__(self, putter: Putter) -> None:
        self._putter = putter
        self._tree = putter.tree
        # Paths of this layer, with their parents.
        self._own: set[str] = set()

    def put(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._putter.count(member)
        path = self._tree.through_links(inside(member.name))
        above, _, name = path.rpartition("/")
        if name.startswith(_WHITEOUT):
            if name == _OPAQUE:
                self._tree.remove_below(above, self._own)
            else:
                hidden = name.removeprefix(_WHITEOUT)
                if hidden in ("", ".", ".."):
                    raise ImageError(f"{member.name}: a whiteout without a name; refused")
                if not hidden.startswith(_WHITEOUT):  # internal files of aufs
                    self._tree.remove(posixpath.join(above, hidden), self._own)
            return
        of = self._tree.through_links(inside(member.linkname)) if member.islnk() else ""
        if member.isdir() or member.isreg() or member.issym() or member.islnk():
            self._make_way(path, is_directory=member.isdir())
            self._putter.put(archive, member, path, of)
            self._mark_own(path)
        else:
            self._putter.put(archive, member, path, of)

    def _make_way(self, path: str, *, is_directory: bool) -> None:
        """Remove an entry of a lower layer that has another kind; within one layer it is kept."""
        found = self._tree.kind_of(path)
        if found is None or path in self._own or not path:
            return
        if (found is Kind.DIRECTORY) != is_directory:
            self._tree.remove(path, frozenset())

    def _mark_own(self, path: str) -> None:
        while path and path not in self._own:
            self._own.add(path)
            path = posixpath.dirname(path)
