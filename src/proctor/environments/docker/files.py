"""The protocol for accessing files of a container without running anything in it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from proctor.digest import sha256_hex
from proctor.trial.changes import Change, Phase
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

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """Copy a file out, or the contents of a directory; return the files that were refused.

        Raises:
            FileNotFoundError: the source does not exist.
            OSError: the target cannot be written.
            SlowTransferError: it took too long.
            DockerError: the container or the engine no longer runs.
        """

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[SeenFile]:
        """List the files at or below these paths, with digests of those that are not too large."""

    async def kind_of(self, path: str) -> str | None:
        """Return what is at a path, following links: file, directory, other, None for nothing."""

    async def open_directories(self, paths: Sequence[str]) -> None:
        """Create directories, with parents, writable by everyone."""

    async def mark(self, script: str) -> bool:
        """Make a file executable if that is possible from outside; return whether it is."""


# The files of /etc that Docker mounts into every container, which are in no layer of it
#
#     /etc/hosts, /etc/hostname, /etc/resolv.conf
#
# They are files of the engine, which the container's root may write. They are read and written in
# the engine's directory, where a mounted file cannot be replaced by a symlink.


ETC_FILES = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
# Bytes of each file that are compared and kept.
_MOST_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class EtcFiles:
    """The files of one container, at its start and now."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """`places` is the path of each file on this machine; missing files are ignored."""
        self._places = places
        self._first = self._read()

    def find_changed(self) -> Mapping[str, bytes]:
        """Return the bytes of each changed file."""
        first = self._first
        return {path: data for path, data in self._read().items() if data != first.get(path)}

    def list_changes(self, known: Mapping[str, str]) -> Iterator[Change]:
        """Yield a change for each changed file."""
        for path, data in self.find_changed().items():
            mark = sha256_hex(data)
            yield Change(
                path=path,
                how="changed",
                kind="file",
                when=Phase.SETUP if known.get(path) == mark else Phase.AGENT,
                size=len(data),
                sha256=mark,
                in_image=True,
                mark=mark,
            )

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write some of the files."""
        for path in contents.keys() & self._places.keys():
            # In place, because this very file is mounted in the container.
            with os.fdopen(os.open(self._places[path], _WRITE), "wb") as file:
                file.write(contents[path])

    def _read(self) -> dict[str, bytes]:
        found = {}
        for path, place in self._places.items():
            with suppress(OSError), os.fdopen(os.open(place, _READ), "rb") as file:
                found[path] = file.read(_MOST_BYTES)
        return found
