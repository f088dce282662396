"""All hashing: SHA-256 in lower-case hex, and the few older hashes that other formats require."""

import hashlib
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    # Every fork of the sandbox's zygote would copy its memory.
    from pathlib import Path

_CHUNK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in lower-case hex. Check this before building a path from it."""
    return _DIGEST.fullmatch(text) is not None


def sha256_hex(data: bytes) -> str:
    """SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_digest(data: bytes) -> bytes:
    """SHA-256 of bytes, as 32 bytes, for Merkle trees."""
    return hashlib.sha256(data).digest()


def sha256_records(data: bytes, width: int, prefix: bytes) -> list[bytes]:
    """SHA-256 of consecutive records of one width, each hashed with a prefix."""
    new = hashlib.sha256
    return [new(prefix + data[at : at + width]).digest() for at in range(0, len(data), width)]


def sha256_pieces(pieces: Iterable[bytes]) -> str:
    """SHA-256, in hex, of bytes that arrive in pieces."""
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def sha256_start(fd: int, size: int) -> str:
    """SHA-256, in hex, of the next `size` bytes of an open file, or of fewer if it ends before.

    A file that another process writes meanwhile may grow without end.
    """
    hasher = hashlib.sha256()
    while size and (chunk := os.read(fd, min(size, _CHUNK))):
        hasher.update(chunk)
        size -= len(chunk)
    return hasher.hexdigest()


def sha256_file(path: "Path") -> str:
    """SHA-256 of a file, in hex, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def sha1_hex(data: bytes) -> str:
    """SHA-1 in hex, where harbor names things by it; not used for security."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def md5_hex(data: bytes) -> str:
    """MD5 in hex, as in Debian's file lists; not used for security."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha256_copy(source: BinaryIO, target: BinaryIO) -> str:
    """Copy the rest of one stream into another; return the SHA-256 of the copied bytes."""
    hasher = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        hasher.update(chunk)
        target.write(chunk)
    return hasher.hexdigest()


class Sha256:
    """SHA-256 of bytes that arrive one after the other."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def update(self, data: bytes) -> None:
        """Add bytes."""
        self._hasher.update(data)

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything so far."""
        return self._hasher.hexdigest()


class Sha256Reader:
    """A stream that hashes what is read through it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._hasher = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read from the stream."""
        data = self._source.read(size)
        self._hasher.update(data)
        return data

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything read so far."""
        return self._hasher.hexdigest()
