"""Members of a zip archive from a stranger, read one by one within limits.

The standard library reads the directory of the archive. Members are unpacked here, in pieces: so
none gets larger than its limit, whatever the archive claims, and those compressed with zstd, which
zipfile does not know before Python 3.14, are read too. Nothing is written, so that names of members
lead nowhere.
"""

import io
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from backports import zstd

from proctor.errors import InspectError
from proctor.files import open_plain
from proctor.sentence import reason_of, shown

LARGEST_MEMBER = 256 << 20
"""Bytes of one unpacked member."""
MOST_MEMBERS = 200_000
LARGEST_DIRECTORY = 64 << 20
"""Bytes of the directory, which is read whole."""
_CHUNK = 1 << 20
_LOCAL, _LOCAL_SIZE = b"PK\x03\x04", 30
_ENCRYPTED = 0x1
_UNREADABLE = (zipfile.BadZipFile, NotImplementedError, EOFError, OverflowError, ValueError)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an archive, as the directory describes it."""

    name: str
    method: int
    """0: stored, 8: deflate, 93: zstd."""
    offset: int
    """Where its local header is."""
    packed: int
    """Bytes in the archive."""
    size: int
    """Bytes unpacked."""
    crc: int
    is_encrypted: bool


def list_members(path: Path) -> dict[str, Member]:
    """The members of an archive by name; of several with the same name, the last counts.

    Raises:
        InspectError: it cannot be read, or is larger than the limits.
    """
    try:
        with _Limited(_open(path)) as file:
            size = file.seek(0, os.SEEK_END)
            with zipfile.ZipFile(file) as archive:
                found = archive.infolist()
    except OSError as error:
        raise InspectError(f"{path}: cannot be read: {reason_of(error)}") from error
    except _UNREADABLE as error:
        raise InspectError(f"{path}: not a whole zip archive: {error}") from error
    if len(found) > MOST_MEMBERS:
        raise InspectError(f"{path}: {len(found):,} members; expected at most {MOST_MEMBERS:,}")
    if sum(info.compress_size for info in found) > size:
        # Members that share bytes are how a small archive unpacks to petabytes.
        raise InspectError(f"{path}: its members overlap; expected a zip archive of its own bytes")
    return {
        info.filename: Member(
            name=info.filename,
            method=info.compress_type,
            offset=info.header_offset,
            packed=info.compress_size,
            size=info.file_size,
            crc=info.CRC,
            is_encrypted=bool(info.flag_bits & _ENCRYPTED),
        )
        for info in found
    }


class _Limited(io.BufferedReader):
    """An archive whose directory, which zipfile reads in one piece, must not fill the memory.

    How large it is depends on which of several end records counts, which only zipfile knows.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LARGEST_DIRECTORY:
            raise zipfile.BadZipFile(
                f"a directory of {size:,} bytes; expected at most {LARGEST_DIRECTORY:,}"
            )
        return super().read(size)


def _open(path: Path) -> io.FileIO:
    file = open_plain(path)
    assert isinstance(file, io.FileIO)  # noqa: S101 - for the type: it is opened without a buffer
    return file


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Stored:
    """A member that is not compressed."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return data[:max_length]


_UNPACKERS: dict[int, Callable[[], _Unpacker]] = {
    0: _Stored,
    8: lambda: zlib.decompressobj(-zlib.MAX_WBITS),
    93: zstd.ZstdDecompressor,
}


def read_member(path: Path, member: Member) -> bytes:
    """Unpack a member.

    Raises:
        InspectError: it is too large, damaged, encrypted, or compressed by an unknown method.
    """
    where = f"{path}: {shown(member.name)}"
    if member.is_encrypted:
        raise InspectError(f"{where}: encrypted; expected a log without a password")
    if member.size > LARGEST_MEMBER:
        raise InspectError(f"{where}: {member.size:,} bytes; expected at most {LARGEST_MEMBER:,}")
    unpacker = _UNPACKERS.get(member.method)
    if unpacker is None:
        raise InspectError(
            f"{where}: compression method {member.method}; expected 0 (stored), 8 (deflate) or "
            "93 (zstd)"
        )
    try:
        with io.BufferedReader(_open(path)) as file:
            _seek_content(file, member)
            data = _unpack(file, member, unpacker())
    except OSError as error:
        raise InspectError(f"{where}: cannot be read: {reason_of(error)}") from error
    except (*_UNREADABLE, zlib.error, zstd.ZstdError) as error:
        raise InspectError(f"{where}: damaged: {error}") from error
    if len(data) != member.size or zlib.crc32(data) != member.crc:
        raise InspectError(f"{where}: damaged: its size or checksum is not that of the directory")
    return data


def _seek_content(file: BinaryIO, member: Member) -> None:
    file.seek(member.offset)
    header = file.read(_LOCAL_SIZE)
    if len(header) < _LOCAL_SIZE or header[:4] != _LOCAL:
        raise zipfile.BadZipFile("it is not where the directory says")
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    file.seek(member.offset + _LOCAL_SIZE + name + extra)


def _unpack(file: BinaryIO, member: Member, unpacker: _Unpacker) -> bytes:
    """Unpack up to one byte more than the directory claims: the caller compares the sizes."""
    found, left = bytearray(), member.packed
    while left and len(found) <= member.size:
        piece = file.read(min(left, _CHUNK))
        if not piece:
            break
        left -= len(piece)
        found += unpacker.decompress(piece, member.size + 1 - len(found))
    return bytes(found)
