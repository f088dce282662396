"""The protocol for accessing files of a container without running anything in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from proctor.trial.environment import SeenFile

MOST_BYTES = 8 << 30
"""Limit for one download, so that an agent cannot fill the host's disk."""


class Files(Protocol):
    """The files of one container."""

    async def put(self, source: Path, target: str) -> None:
        """Copy a file to a path, or the contents of a directory into one; create parents.

        Raises:
            OSError: the source cannot be read, or the target cannot be written.
            DockerError: the container or the engine no longer runs.
        """
        ...

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """Copy a file out, or the contents of a directory; return the files that were refused.

        Raises:
            FileNotFoundError: the source does not exist.
            OSError: the target cannot be written.
            SlowTransferError: it took too long.
            DockerError: the container or the engine no longer runs.
        """
        ...

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[SeenFile]:
        """List the files at or below these paths, with digests of those that are not too large."""
        ...

    async def kind_of(self, path: str) -> str | None:
        """Return what is at a path, following links: file, directory, other, None for nothing."""
        ...

    async def open_directories(self, paths: Sequence[str]) -> None:
        """Create directories, with parents, writable by everyone."""
        ...

    async def mark(self, script: str) -> bool:
        """Make a file executable if that is possible from outside; return whether it is."""
        ...
