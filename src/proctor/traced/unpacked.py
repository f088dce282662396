"""A sealed file as a temporary copy, gone when nobody reads it any more."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from proctor.ledger.artifacts import Artifacts


@contextlib.contextmanager
def unpacked(artifacts: Artifacts, sha256: str, name: str) -> Iterator[str]:
    """The path of a copy; every byte of it was seen to be what was sealed.

    Raises:
        DamageError: the artifact is missing or altered.
    """
    # The name comes from whoever sealed it: no path is made of more than how it ends.
    ending = Path(name).suffix[:20]
    with tempfile.NamedTemporaryFile(prefix="proctor-trace-", suffix=ending) as file:
        artifacts.copy(sha256, cast(BinaryIO, file))
        file.flush()
        yield file.name
