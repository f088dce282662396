"""Yields the members of an untrusted tar archive in limited memory.

tarfile reads the headers of a member whole, and keeps every member with them. Does not unpack
anything. Uses only the standard library.
"""

import re
import tarfile
from collections.abc import Iterator
from typing import Any, Protocol

from proctor.environments.sandbox.archive import BrokenArchiveError

MOST_HEADERS = 1 << 22
"""Bytes of the headers of one member: a long name, a long target, attributes."""
# Bytes of the extended header of one member, as in Docker.
_MOST_EXTENDED = 1 << 20
_LENGTH = re.compile(rb"([0-9]{1,7}) [^=]")
# Values in headers for all members, of which git and GNU tar write one or two.
_MOST_GLOBAL = 100
_MOST_GLOBAL_TEXT = 1 << 16


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Read like a file."""
        ...


class HeaderStream:
    """A stream that ends with an error if the headers of a member are too large."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._end: int | None = None
        self.size = 0
        """Bytes read so far."""

    def read(self, size: int = -1) -> bytes:
        """Read like a file.

        Raises:
            BrokenArchiveError: more than was allowed.
        """
        data = self._file.read(size)
        self.size += len(data)
        if self._end is not None and self.size > self._end:
            raise BrokenArchiveError(
                f"the headers of a member have more than {MOST_HEADERS:,} bytes; refused"
            )
        return data

    def allow(self, n_bytes: int | None) -> None:
        """Limit the bytes that may be read from here on; None for no limit."""
        self._end = None if n_bytes is None else self.size + n_bytes


class CheckedMember(tarfile.TarInfo):
    """A member whose extended headers are checked before tarfile parses them.

    Before 3.12.6, Python's parser takes the square of the size of a malformed one in memory:
    gigabytes for 80 KB (CVE-2024-6232). To be passed to tarfile.open.
    """

    __slots__ = ()

    def _proc_pax(self, archive: Any) -> tarfile.TarInfo:
        if self.size > _MOST_EXTENDED:
            raise BrokenArchiveError(
                f"the headers of a member have more than {_MOST_EXTENDED:,} bytes; refused"
            )
        source = archive.fileobj
        data = source.read(max(0, -(-self.size // tarfile.BLOCKSIZE)) * tarfile.BLOCKSIZE)
        _check_records(data[: self.size], self.size)
        archive.fileobj = _Replay(archive, data)
        try:
            return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]
        finally:
            archive.fileobj = source


class _Replay:
    """The stream of an archive, with a header that was read from it before the rest."""

    def __init__(self, archive: Any, header: bytes) -> None:
        self._archive = archive
        self._source = archive.fileobj
        self._header = header

    def read(self, _size: int) -> bytes:
        self._archive.fileobj = self._source
        return self._header


def _check_records(header: bytes, size: int) -> None:
    """Check an extended header: records of a length, a name, `=`, a value and an end of line."""
    if len(header) != size:
        raise tarfile.ReadError("unexpected end of data")
    at = 0
    while at < size:
        found = _LENGTH.match(header, at)
        end = at + int(found[1]) if found else 0
        if found is None or header[end - 1 : end] != b"\n" or b"=" not in header[found.end() : end]:
            raise tarfile.ReadError("invalid extended header")
        at = end


def members_of(archive: tarfile.TarFile, stream: HeaderStream) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive that is read from a stream.

    Hard links have to be resolved by the caller: the archive forgets each member. Opening an
    archive reads the first headers, so the stream has to be limited before.
    """
    stream.allow(MOST_HEADERS)
    while (member := take_member(archive)) is not None:
        stream.allow(member.size + MOST_HEADERS)
        yield member


def take_member(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    """Return the next member, which the archive forgets; None at the end."""
    member = archive.next()
    archive.members.clear()  # type: ignore[attr-defined]  # it is in the documentation only
    _check_global(archive)
    return member


def _check_global(archive: tarfile.TarFile) -> None:
    """Check the headers for all members, which are kept, and copied for each member."""
    found = archive.pax_headers
    if (
        len(found) > _MOST_GLOBAL
        or sum(len(name) + len(value) for name, value in found.items()) > _MOST_GLOBAL_TEXT
    ):
        raise BrokenArchiveError("has too large headers for all its members; refused")
