"""A sealed file as a temporary copy, gone when nobody reads it any more."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from proctor.errors import DamageError
from proctor.files import find_room
from proctor.ledger.artifacts import Artifacts
from proctor.ledger.entry import EvidenceFile


@contextlib.contextmanager
def unpacked(artifacts: Artifacts, sealed: EvidenceFile) -> Iterator[str]:
    """The path of a copy; every byte of it was seen to be what was sealed.

    Raises:
        DamageError: the artifact is missing or altered, or too large to be unpacked here.
    """
    # The name comes from whoever sealed it: no path is made of more than how it ends.
    ending = Path(sealed.path).suffix[:20]
    if sealed.size > (room := find_room(tempfile.gettempdir())):
        raise DamageError(
            f"{sealed.path}: {sealed.size:,} bytes; at most {room:,} are unpacked to "
            f"{tempfile.gettempdir()}"
        )
    with tempfile.NamedTemporaryFile(prefix="proctor-trace-", suffix=ending) as file:
        artifacts.copy_sealed(sealed.sha256, sealed.size, cast(BinaryIO, file))
        file.flush()
        yield file.name
