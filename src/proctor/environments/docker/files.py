"""What can be done with the files of a container without running anything in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from proctor.environments.sandbox.transfer import Seen

MOST_BYTES = 8 << 30
"""What is fetched at once: an agent must not be able to fill the host's disk."""


class Files(Protocol):
    """The files of one container."""

    async def put(self, source: Path, target: str) -> None:
        """Copy a file to a path, or the contents of a directory into one; parents are made.

        Raises:
            OSError: the source cannot be read, or the target cannot be written.
            DockerError: the container or the engine is gone.
        """
        ...

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """Copy a file to a path, or the contents of a directory into one; what was refused.

        Raises:
            FileNotFoundError: the source is not there.
            OSError: the target cannot be written.
            SlowTransferError: it took too long.
            DockerError: the container or the engine is gone.
        """
        ...

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[Seen]:
        """The files at or below these paths, with digests of those that are not too large."""
        ...

    async def kind_of(self, path: str) -> str | None:
        """What is at a path, links followed: file, directory, other, or None for nothing."""
        ...

    async def open_directories(self, paths: Sequence[str]) -> None:
        """Make directories, and those above them, for everybody to write to."""
        ...

    async def mark(self, script: str) -> bool:
        """Let everybody execute a file, if that can be done from outside; whether it was."""
        ...
