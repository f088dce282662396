"""The only hashing. SHA-256 everywhere, written as lower-case hex."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 as entries have it; anything else must not become a path."""
    return _DIGEST.fullmatch(text) is not None


def sha256_hex(data: bytes) -> str:
    """Digest of bytes at hand."""
    return hashlib.sha256(data).hexdigest()


def sha256_digest(data: bytes) -> bytes:
    """The same as 32 bytes, for trees."""
    return hashlib.sha256(data).digest()


def sha256_slices(data: memoryview, cuts: Iterable[tuple[int, int]]) -> list[bytes]:
    """The same of many slices, each from its first byte up to its last; nothing is copied."""
    new = hashlib.sha256
    return [new(data[begin:end]).digest() for begin, end in cuts]


def sha256_records(data: bytes, width: int, prefix: bytes) -> list[bytes]:
    """The same of records that follow one another, all of one width, each with a prefix."""
    new = hashlib.sha256
    return [new(prefix + data[at : at + width]).digest() for at in range(0, len(data), width)]


def sha256_pieces(pieces: Iterable[bytes]) -> str:
    """Digest of bytes that come in pieces."""
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def sha256_file(path: Path) -> str:
    """Digest of a file's bytes, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def sha1_hex(data: bytes) -> str:
    """A short name by SHA-1, where harbor makes one so; it secures nothing."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def md5_hex(data: bytes) -> str:
    """What Debian's lists of files have; it secures nothing."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha256_copy(source: BinaryIO, target: BinaryIO) -> str:
    """Copy the rest of one stream into another, and give the digest of what was copied."""
    hasher = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        hasher.update(chunk)
        target.write(chunk)
    return hasher.hexdigest()


class Sha256Reader:
    """A stream that is read through, and the digest of what was read of it so far."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._hasher = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read as the stream does."""
        data = self._source.read(size)
        self._hasher.update(data)
        return data

    @property
    def digest(self) -> str:
        """SHA-256 in hex."""
        return self._hasher.hexdigest()
