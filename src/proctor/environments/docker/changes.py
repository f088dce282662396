"""Changes of a container since its image: tools, and everything that was written.

    here    this process can read the container's layers: each path with its kind, mode, owner and
            digest
    there   only the paths that `docker diff` lists

Nothing is run inside, and only changed tools are restored.
"""

import posixpath
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from proctor.environments.docker.files import ETC_FILES, EtcFiles
from proctor.environments.docker.inside import Inside
from proctor.environments.docker.merged import MergedFiles
from proctor.environments.docker.program import run_docker
from proctor.environments.running import DEVICES, MOST_DEVICES, StartedEnvironment
from proctor.environments.sandbox.accounting import (
    USERS,
    changes_in_memory,
    find_surroundings,
    list_changes,
    surroundings_of,
)
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges, give_back, lookup_of
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.walk import CHANGED, CREATED, DELETED, Limits
from proctor.environments.tools import Lookup, is_touched
from proctor.trial.changes import Change, Phase, Surroundings
from proctor.trial.environment import ChangedFile, EnvironmentOrder

_HOW = {"A": CREATED, "C": CHANGED, "D": DELETED}


class ChangedContainer(Inside, StartedEnvironment):
    """A container that can be compared with its image."""

    def __init__(self, order: EnvironmentOrder) -> None:
        super().__init__(order)
        # Directories of its layers on the engine's machine.
        self._layers: tuple[Part, ...] = ()
        self._is_paused = False
        # Pid of its first process on the engine's machine.
        self._first = 0
        self._etc_files = EtcFiles({})
        # Contents that /etc/passwd has had; only if the layers cannot be read.
        self._users: dict[str, None] = {}

    def _has_layers_here(self) -> bool:
        files = self._now().files
        return bool(self._layers) and isinstance(files, MergedFiles) and is_all_powerful()

    def surroundings(self) -> Surroundings:
        """Return how programs in it find their files; see Accounting."""
        now = self._now()
        env = {**now.image.env, **now.env}
        if self._has_layers_here():
            return find_surroundings(LayeredChanges(self._layers), env, now.workdir)
        return surroundings_of(self._users, env, posixpath.normpath(now.workdir))

    async def list_written(
        self, known: Mapping[str, str], *, is_hashing: bool = True
    ) -> tuple[Sequence[Change], bool]:
        """List everything that differs from the image; see Accounting.

        If the layers cannot be read, a path of `known` counts as written before, even if it was
        written again since.
        """
        if self._has_layers_here():
            in_layers = {path: mark for path, mark in known.items() if path not in ETC_FILES}
            changes, is_cut = await list_changes(self._layers, in_layers, is_hashing=is_hashing)
            # Through /proc, which includes the container's mounts; the merged root does not.
            whole = MergedFiles(f"/proc/{self._first}/root")
            changes += changes_in_memory(await whole.list_files([DEVICES], MOST_DEVICES), known)
            listed = {change.path for change in changes}
            own = self._etc_files.list_changes(known)
            changes += (change for change in own if change.path not in listed)
            return changes, is_cut
        with tempfile.TemporaryDirectory() as top, suppress(OSError):
            copy = Path(top, "passwd")
            await self._now().files.take(USERS, copy)
            self._users[copy.read_text(encoding="utf-8", errors="replace")] = None
        diff = await run_docker("diff", self._now().container)
        changes = list(parse_diff(diff.out, known))
        most = Limits().n_entries
        return changes[:most], len(changes) > most

    async def resume(self) -> None:
        """Resume the container; see Pausing."""
        if self._is_paused:
            self._is_paused = False
            await run_docker("unpause", self._now().container)

    async def restore_tools(self, changed: Sequence[ChangedFile]) -> None:
        """Restore the image's tools for the tests; see ToolRestoring."""
        files, seen = self._now().files, self._look_at_tools()
        if seen is not None and isinstance(files, MergedFiles):
            await give_back(files, seen[0], changed)

    def _look_at_tools(self) -> tuple[LayeredChanges, Lookup] | None:
        now = self._now()
        if not self._layers or not isinstance(now.files, MergedFiles):
            return None
        changes = LayeredChanges(self._layers)
        lookup = lookup_of({**now.image.env, **now.env}, now.workdir)
        return (changes, lookup) if is_touched(changes, lookup) else None


def parse_diff(text: str, known: Mapping[str, str]) -> Iterator[Change]:
    """Parse the output of `docker diff`; a path is a directory if others below it are listed."""
    lines = (line.partition(" ") for line in text.split("\n"))
    found = {path: letter for letter, _, path in lines if letter in _HOW and path.startswith("/")}
    above = {parent for path in found for parent in _list_parents(path)}
    for path, letter in found.items():
        # A directory of the image is listed as changed whenever something below it is.
        if letter != "C" or path not in above:
            yield Change(
                path=path,
                how=_HOW[letter],
                kind="directory" if path in above else "file",
                when=Phase.SETUP if known.get(path) == letter else Phase.AGENT,
                in_image=letter != "A",
                mark=letter,
            )
    for path, mark in known.items():
        if mark and path not in found:
            yield Change(path=path, how=DELETED, kind="file")


def _list_parents(path: str) -> Iterator[str]:
    while (path := posixpath.dirname(path)) != "/":
        yield path
