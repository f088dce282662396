"""Merges the layers of a saved image; whiteouts remove entries of lower layers.

Each layer is checked against its digests, compressed and uncompressed. A member below a symlink is
written to the symlink's target if that is a directory of this tree, and refused otherwise.
"""

import posixpath
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from proctor.digest import Sha256Reader, sha256_pieces
from proctor.environments.sandbox.roots.image_tar import (
    EXPECTED_LAYER,
    Budget,
    Putter,
    damage_named,
    inside,
    open_tar,
    unpacked,
)
from proctor.environments.sandbox.roots.saved_files import SavedFiles
from proctor.environments.sandbox.roots.tree import Kind, Tree
from proctor.environments.sandbox.tar_members import members_of
from proctor.errors import ImageError

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
            self._take_away(member.name, above, name)
            return
        of = self._tree.through_links(inside(member.linkname)) if member.islnk() else ""
        if member.isdir() or member.isreg() or member.issym() or member.islnk():
            self._make_way(path, is_directory=member.isdir())
            self._putter.put(archive, member, path, of)
            self._mark_own(path)
        else:
            self._putter.put(archive, member, path, of)

    def _take_away(self, said: str, above: str, name: str) -> None:
        if name == _OPAQUE:
            self._tree.remove_below(above, self._own)
            return
        hidden = name.removeprefix(_WHITEOUT)
        if hidden in ("", ".", ".."):
            raise ImageError(f"{said}: a whiteout without a name; refused")
        if not hidden.startswith(_WHITEOUT):  # internal files of aufs
            self._tree.remove(posixpath.join(above, hidden), self._own)

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
