"""The files of a verifier's room that is on this machine. Nothing here starts a container."""

import posixpath
from collections.abc import Sequence
from pathlib import Path

from proctor.environments.docker.merged import MergedFiles
from proctor.environments.sandbox.transfer import Seen


class RoomFiles:
    """The files of a room that is here: its fresh directories, and else those outside of it."""

    def __init__(self, outside: MergedFiles, fresh: MergedFiles, places: Sequence[str]) -> None:
        self._outside = outside
        self._fresh = fresh
        self._places = places

    def _of(self, path: str) -> MergedFiles:
        plain = posixpath.normpath(f"/{path}").replace("//", "/")
        is_fresh = any(plain == place or plain.startswith(f"{place}/") for place in self._places)
        return self._fresh if is_fresh else self._outside

    async def put(self, source: Path, target: str) -> None:
        """See Files."""
        await self._of(target).put(source, target)

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """See Files."""
        return await self._of(source).take(source, target)

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[Seen]:
        """See Files."""
        seen: list[Seen] = []
        for files in (self._fresh, self._outside):
            mine = [place for place in places if self._of(place) is files]
            if mine and len(seen) < n_files:
                seen += await files.list_files(mine, n_files - len(seen))
        return seen

    async def kind_of(self, path: str) -> str | None:
        """See Files."""
        return await self._of(path).kind_of(path)

    async def open_directories(self, paths: Sequence[str]) -> None:
        """See Files."""
        for path in paths:
            await self._of(path).open_directories([path])

    async def mark(self, script: str) -> bool:
        """See Files."""
        return await self._of(script).mark(script)
