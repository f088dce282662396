"""Reads single steps of a sealed trajectory without decompressing all of it.

Large artifacts are stored in frames that can be decompressed one by one (see artifacts.py). The
first time, the whole artifact is decompressed and checked against the sealed digest; the positions
of its steps and the SHA-256 of every part are then cached. From then on, only the parts that may
contain a step are decompressed and checked against their SHA-256. The cache can be deleted at any
time.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from backports import zstd

from proctor.digest import sha256_hex, sha256_pieces
from proctor.errors import AlteredArtifactError
from proctor.files import read_small, replace_file
from proctor.ledger.artifacts import ArtifactStore
from proctor.traces.trajectory import Chunk, Survey, narrow, read_pieces, survey_piece

LARGE = 1 << 23
"""Bytes from which caching the positions of steps is worthwhile: 8 MiB, two frames."""
_VERSION = 1
_READ = 1 << 20
# Plain bytes of a part; an artifact with longer lines is decompressed as a whole.
_MOST = 1 << 26


class SealedPart(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive frames that contain whole lines."""

    begin: int
    """Offset in the compressed file."""
    end: int
    size: int
    """Uncompressed bytes."""
    line: int
    """Number of its first line, from 1."""
    survey: Survey
    sha256: str
    """Of its uncompressed bytes."""


class _Map(msgspec.Struct, frozen=True):
    """The parts of one artifact."""

    version: int
    stored: int
    """Compressed size of the artifact; stored differently, it has other parts."""
    parts: list[SealedPart]


def read_sealed_steps(
    artifacts: ArtifactStore, sha256: str, steps: tuple[int, int], cache: Path | None
) -> Iterator[Chunk] | None:
    """The entries of a range of steps, inclusive; None if all must be decompressed."""
    found = find_sealed_parts(artifacts, sha256, cache)
    if found is None:
        return None
    wanted = [part for part in found if part.survey.may_hold(*steps)]
    return (
        narrow(chunk, *steps)
        for part in wanted
        for chunk in read_pieces([(part.line, load_sealed_part(artifacts, sha256, part))])
    )


def find_sealed_parts(
    artifacts: ArtifactStore, sha256: str, cache: Path | None
) -> list[SealedPart] | None:
    """The parts of an artifact; None if it must be decompressed as a whole."""
    note = None if cache is None else cache / "steps" / f"{sha256}.msgpack"
    with artifacts.open(sha256) as file:
        stored = os.fstat(file.fileno()).st_size
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            known = msgspec.msgpack.decode(read_small(str(note)), type=_Map) if note else None
            # A digest can be stored in other frames later; the positions would then be wrong.
            if known is not None and (known.version, known.stored) == (_VERSION, stored):
                return known.parts
        explorer = _Explorer()
        try:
            digest = sha256_pieces(explorer.frames(file))
        except OverflowError:
            return None
        except (zstd.ZstdError, EOFError) as error:
            raise AlteredArtifactError(f"artifact {sha256} cannot be read: {error}") from error
    if digest != sha256:
        raise AlteredArtifactError(f"artifact {sha256} holds bytes with the SHA-256 {digest}")
    # Without a note it is only slower the next time.
    with contextlib.suppress(OSError):
        if note is not None:
            note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(note, msgspec.msgpack.encode(_Map(_VERSION, stored, explorer.parts)))
    return explorer.parts


def load_sealed_part(artifacts: ArtifactStore, sha256: str, part: SealedPart) -> bytes:
    """The plain bytes of one part, checked against their SHA-256."""
    with artifacts.open(sha256) as file:
        file.seek(part.begin)
        packed = file.read(part.end - part.begin)
    try:
        plain = b"".join(_unpack_frames(packed, part.size))
    except (zstd.ZstdError, EOFError) as error:
        raise AlteredArtifactError(f"an artifact cannot be read: {error}") from error
    if sha256_hex(plain) != part.sha256:
        raise AlteredArtifactError(
            "an artifact has changed since its digest was last checked; "
            "`proctor ledger verify` says which"
        )
    return plain


def _unpack_frames(packed: bytes, size: int) -> Iterator[bytes]:
    while packed:
        unpacker = zstd.ZstdDecompressor()
        # One byte more than expected is enough to notice a bomb.
        yield unpacker.decompress(packed, size + 1)
        if not unpacker.eof:
            raise EOFError("more bytes than there were, or cut off")
        packed = unpacker.unused_data


class _Explorer:
    """Splits the frames of an artifact into parts."""

    def __init__(self) -> None:
        self.parts: list[SealedPart] = []
        self._line = 1
        self._begin = 0
        self._held = bytearray()

    def frames(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the plain bytes of one frame after the other.

        Raises:
            OverflowError: a line or frame is too long to be held in memory.
            ZstdError: the bytes are not zstd frames.
        """
        at, packed = 0, b""
        while packed := packed or file.read(_READ):
            unpacker = zstd.ZstdDecompressor()
            plain = bytearray()
            while not unpacker.eof:
                packed = packed or file.read(_READ)
                if not packed and unpacker.needs_input:
                    raise EOFError("cut off inside a frame")
                at += len(packed)
                plain += unpacker.decompress(packed, _MOST)
                packed = b""
                if len(plain) + len(self._held) >= _MOST:
                    raise OverflowError("a line or a frame that is too long to be held")
            packed = unpacker.unused_data
            at -= len(packed)
            yield bytes(plain)
            self._take(bytes(plain), at)
        if self._held:
            self._close(bytes(self._held), at)

    def _take(self, plain: bytes, end: int) -> None:
        if self._held or not plain.endswith(b"\n"):
            self._held += plain
            if not plain.endswith(b"\n"):
                return
            plain = bytes(self._held)
            self._held.clear()
        self._close(plain, end)

    def _close(self, plain: bytes, end: int) -> None:
        survey = survey_piece(plain)
        self.parts.append(
            SealedPart(self._begin, end, len(plain), self._line, survey, sha256_hex(plain))
        )
        self._begin, self._line = end, self._line + survey.lines
