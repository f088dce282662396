"""Converts the tar of `docker cp` to the sandbox's archive format, so that one module unpacks both.

Only regular files, directories and symlinks are passed on; the rest is listed as refused. Names are
relative to the requested path.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from proctor.environments.sandbox.archive import (
    DIRECTORY,
    END,
    FILE,
    LINK,
    REFUSED,
    BrokenArchiveError,
    Limits,
    pack_head,
)

_PIECE = 1 << 18


class TarArchive(io.RawIOBase):
    """A tar stream, read as an archive."""

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._pieces = _pieces_of(stream, limits)
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as many bytes as are available, up to the buffer's size."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        n_taken = min(len(buffer), len(self._rest))
        buffer[:n_taken] = self._rest[:n_taken]
        self._rest = self._rest[n_taken:]
        return n_taken


def open_tar(stream: BinaryIO) -> tarfile.TarFile:
    """Open a tar stream, which can be read once.

    Raises:
        BrokenArchiveError: it is not a tar.
    """
    try:
        return tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE, errorlevel=2)
    except (tarfile.TarError, EOFError) as error:
        raise BrokenArchiveError(f"the container's output is not a tar archive: {error}") from error


def _pieces_of(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    try:
        with open_tar(stream) as tar:
            n_bytes = 0
            for number, member in enumerate(tar):
                name = below_top(member.name)
                if limits.n_entries is not None and number >= limits.n_entries:
                    yield _refused(name, f"more than {limits.n_entries} entries; the rest is left")
                    break
                if member.isreg() and limits.n_bytes is not None:
                    n_bytes += member.size
                    if n_bytes > limits.n_bytes:
                        n_bytes -= member.size
                        yield _refused(name, f"{member.size} bytes, which is over the limit")
                        continue
                yield from _entry_of(tar, member, name)
    except (tarfile.TarError, EOFError) as error:
        raise BrokenArchiveError(f"the container's output is not a tar archive: {error}") from error
    yield pack_head(END, "", (0, 0, 0))


def below_top(name: str) -> str:
    """Return a member's name without its first part, which is the requested path itself."""
    return name.rstrip("/").partition("/")[2]


def _entry_of(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Iterator[bytes]:
    facts = (member.mode & 0o7777, int(member.mtime * 1_000_000_000))
    if member.isdir():
        yield pack_head(DIRECTORY, name, (*facts, 0))
    elif member.issym():
        target = os.fsencode(member.linkname)
        yield pack_head(LINK, name, (*facts, len(target))) + target
    elif member.isreg() and (file := tar.extractfile(member)) is not None:
        yield pack_head(FILE, name, (*facts, member.size))
        while data := file.read(_PIECE):
            yield data
    elif member.islnk():
        yield _refused(name, f"another name of {below_top(member.linkname)}")
    else:
        yield _refused(name, "neither a file, a directory nor a link")


def _refused(name: str, reason: str) -> bytes:
    text = reason.encode()
    return pack_head(REFUSED, name, (0, 0, len(text))) + text
