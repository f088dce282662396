"""A sealed file as a temporary copy, gone when nobody reads it any more."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proctor.ledger.artifacts import Artifacts


@contextlib.contextmanager
def unpacked(artifacts: Artifacts, sha256: str, name: str) -> Iterator[str]:
    """The path of a copy; every byte of it was seen to be what was sealed.

    Raises:
        DamageError: the artifact is missing or altered.
    """
    with tempfile.TemporaryDirectory(prefix="proctor-trace-") as place:
        # The name comes from whoever sealed it: no path is made of more than its last part.
        path = Path(place, f"trace{Path(name).suffix[:20]}")
        with path.open("wb") as file:
            artifacts.copy(sha256, file)
        yield str(path)
