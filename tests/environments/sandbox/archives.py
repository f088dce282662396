"""Archives of files as a stranger may write them."""

import io
from pathlib import Path

from proctor.environments.sandbox.archive import Limits, pack_head
from proctor.environments.sandbox.unpack import unpack

END = pack_head(b".", "", (0, 0, 0))


def entry(kind: bytes, name: str, data: bytes = b"", mode: int = 0o644) -> bytes:
    """One entry of an archive."""
    return pack_head(kind, name, (mode, 10**18, len(data))) + data


def unpacked(target: Path, *entries: bytes, limits: Limits | None = None) -> tuple[str, ...]:
    """What is refused of an archive that a stranger wrote."""
    stream = io.BytesIO(entry(b"D", "") + b"".join(entries) + END)
    return unpack(stream, target, "name", limits or Limits())
