"""Opens the files of a `docker save` archive or an OCI image layout.

They are in a directory or a tar archive, and are distinguished from a root file system by the names
at the top.
"""

import posixpath
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol, cast

from proctor.digest import sha256_copy
from proctor.environments.sandbox.roots.image_tar import (
    DAMAGE,
    Budget,
    damage_named,
    open_tar,
    opened,
)
from proctor.environments.sandbox.tar_members import CheckedMember, members_of, take_member
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
