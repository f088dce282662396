"""Restores the image's tools before the tests, if the agent changed them.

proctor.environments.tools finds the changes. Files are restored from the image's layers on the
host, and added files are removed, in the agent's sandbox or container itself.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.command import PATH
from proctor.environments.tools import BUILT, MOVED, Lookup
from proctor.errors import SandboxError
from proctor.trial.environment import ChangedFile

_HOME = "/root"


def lookup_of(env: Mapping[str, str], workdir: str) -> Lookup:
    """Return how tests with these variables find their tools."""
    places = [place for place in env.get("PATH", PATH).split(":") if place.startswith("/")]
    homes = dict.fromkeys((_HOME, env.get("HOME", _HOME)))
    return Lookup(places, [home for home in homes if home.startswith("/")], workdir)


class Place(Protocol):
    """A sandbox, or the root of a container."""

    async def put(self, source: Path, target: str) -> None:
        """Copy the contents of a directory into another."""
        ...

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files, if they exist."""
        ...


async def give_back(place: Place, changes: LayeredChanges, changed: Sequence[ChangedFile]) -> None:
    """Replace changed files by the image's, and remove added ones.

    Raises:
        SandboxError: a directory was replaced, or a file cannot be written.
    """
    moved = next((file.path for file in changed if file.how == MOVED), None)
    if moved is not None:
        raise SandboxError(f"{moved} is no longer the image's directory, and cannot be restored")
    # An interpreter that was built may be what the task asks for, so it stays.
    owed_files = [file.path for file in changed if file.how != BUILT]
    originals = {path: changes.find_original(path) for path in owed_files}
    await place.remove([path for path, original in originals.items() if original is None])
    owed = sorted((path, original) for path, original in originals.items() if original)
    for directory, files in groupby(owed, lambda file: file[0].rpartition("/")[0]):
        with tempfile.TemporaryDirectory(prefix="proctor-tools-") as stage:
            await asyncio.to_thread(_gather, Path(stage), list(files))
            await place.put(Path(stage), directory)


def _gather(stage: Path, files: Iterable[tuple[str, str]]) -> None:
    for path, original in files:
        shutil.copy2(original, stage / path.rpartition("/")[2], follow_symlinks=False)
