"""The only hashing. SHA-256 everywhere, written as lower-case hex."""

import hashlib
from pathlib import Path

_CHUNK = 1 << 20


def sha256_hex(data: bytes) -> str:
    """Digest of bytes at hand."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Digest of a file's bytes, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()
