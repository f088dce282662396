"""What Dockerfiles made, kept by what decides it.

    <layers>/<key>/
      lock                       held while it is being made
      current                    a link to the generation that is used
      <n>/parts/<i>/upper        a generation: what was written, one directory for each overlay
      <n>/layer.json             what it is
      <n>/lease                  held by every process that uses it
      building-<random>/         one that is being made

A generation appears whole or not at all and is never changed: it is a directory that was an
overlay's upper one, moved. Making it again makes a new generation. Nothing here runs anything.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.locks import claimed, hold, locked_soon, make_private
from proctor.environments.sandbox.scratch import Session
from proctor.environments.sandbox.subordinate import delete_mapped
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

type Parts = tuple[tuple[str, tuple[str, ...]], ...]
"""(target, layers on the host with the top one first) of each overlay of a root file system."""

_MADE_BY_FORCE: set[tuple[Path, str]] = set()
"""What this process made again: once is enough, however many of its trials ask for it."""


class Layer(msgspec.Struct, frozen=True):
    """layer.json: what a generation holds."""

    base: str
    """Pin of what lies below it."""
    steps: tuple[str, ...]
    """The instructions that made it, for people."""
    uppers: dict[str, str] = {}
    """Where an overlay was mounted whose upper directory holds something, and that directory."""
    shared_because: str | None = None
    """Why it was made on the host's own network; None where it was not."""
    ids_shared: str | None = None
    """Why root's commands had the host's ids when it was made; None where they had not."""


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A layer that was made, on what lies below it."""

    parts: Parts
    shared_because: str | None = None
    """Why it was made on the host's own network; None where it was not."""
    ids_shared: str | None = None
    """Why root's commands had the host's ids when it was made; None where they had not."""


@dataclass(frozen=True, slots=True)
class Building:
    """A generation that is being made."""

    session: Session
    parts: tuple[tuple[str, tuple[str, ...], Path, Path], ...]
    """(target, layers, upper, work) of each overlay."""

    @property
    def stage(self) -> Path:
        """Where files wait that will be put in; not kept."""
        return self.session.directory / "stage"


class LayerStore:
    """The layers of one cache."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, key: str, parts: Parts) -> LayerCache | None:
        """The parts with the layer of that key on top, if it was made."""
        current = self._root / key / "current"
        try:
            home = self._root / key / current.readlink()
            hold(home / "lease")
            layer = msgspec.json.decode(read_small(str(home / "layer.json")), type=Layer)
        except (FileNotFoundError, msgspec.DecodeError, ImageError):
            return None
        uppers = layer.uppers
        laid = tuple(
            (target, (str(home / uppers[target]), *lowers) if target in uppers else lowers)
            for target, lowers in parts
        )
        return LayerCache(laid, layer.shared_because, layer.ids_shared)

    def is_wanted_again(self, key: str, *, force: bool) -> bool:
        """Whether it is to be made although it is there."""
        return force and (self._root, key) not in _MADE_BY_FORCE

    @contextlib.asynccontextmanager
    async def locked(self, key: str) -> AsyncIterator[None]:
        """Alone with what has that key, among all trials of all processes.

        Raises:
            ImageError: the cache cannot be written.
        """
        make_private(self._root)
        home = make_private(self._root / key)
        async with locked_soon(home / "lock"):
            _remove_leftovers(home)
            yield

    def open(self, key: str, parts: Parts) -> Building:
        """A new directory with what the overlays of a sandbox need.

        Raises:
            ImageError: it cannot be made.
        """
        home = self._root / key
        try:
            directory = Path(tempfile.mkdtemp(prefix="building-", dir=home))
            session = Session(directory)
            session.root.mkdir()
            (directory / "stage").mkdir()
            pairs = [
                (target, lowers, *session.add_part(number, Path(lowers[0])))
                for number, (target, lowers) in enumerate(parts)
            ]
        except OSError as error:
            raise ImageError(f"{home}: cannot be written: {reason_of(error)}") from error
        return Building(session, tuple(pairs))

    def keep(self, key: str, building: Building, layer: Layer) -> None:
        """Make what was built the generation that is used; its uppers are found here.

        Raises:
            ImageError: it cannot be moved.
        """
        directory, home = building.session.directory, self._root / key
        uppers = {
            target: str(upper.relative_to(directory))
            for target, lowers, upper, _ in building.parts
            if _has_changed(upper, Path(lowers[0]))
        }
        try:
            for _, _, _, work in building.parts:
                discard(work)
            for left in directory.iterdir():
                if left.name != "parts":
                    delete_tree(left)
            layer = msgspec.structs.replace(layer, uppers=uppers)
            (directory / "layer.json").write_bytes(msgspec.json.encode(layer))
            number = 1 + max((int(one.name) for one in _generations(home)), default=0)
            directory.rename(home / str(number))
            link = home / ".current"
            link.unlink(missing_ok=True)
            link.symlink_to(str(number))
            link.rename(home / "current")
        except OSError as error:
            raise ImageError(f"{home}: cannot be written: {reason_of(error)}") from error
        _MADE_BY_FORCE.add((self._root, key))

    def reap(self, *, dry_run: bool = False) -> list[Path]:
        """Remove what killed builds left and what nobody uses any more; which directories.

        What is being built meanwhile is passed over.

        Raises:
            ImageError: something cannot be deleted.
        """
        reaped: list[Path] = []
        for lock in sorted(self._root.glob("*/lock")):
            with claimed(lock) as is_free:
                reaped += _find_leftovers(lock.parent) if is_free else ()
                if is_free and not dry_run:
                    _remove_leftovers(lock.parent)
        return reaped


def _find_leftovers(home: Path) -> list[Path]:
    """What was killed while it was made, and generations that are not the current one."""
    link = home / "current"
    current = link.readlink().name if link.is_symlink() else None
    old = [one for one in _generations(home) if one.name != current and _is_unused(one)]
    return [*sorted(home.glob("building-*")), *old]


def _is_unused(generation: Path) -> bool:
    with claimed(generation / "lease") as is_free:
        return is_free


def _remove_leftovers(home: Path) -> None:
    for left in _find_leftovers(home):
        if left.name.isdecimal():
            _remove_unused(left)
        else:
            discard(left)


def _remove_unused(generation: Path) -> None:
    """Remove a generation that nobody uses; it leaves its place in one step."""
    leaving = generation.with_name(f"building-old-{generation.name}")
    with claimed(generation / "lease") as is_free:
        if is_free:
            generation.rename(leaving)
    discard(leaving)


def _generations(home: Path) -> list[Path]:
    return [one for one in home.iterdir() if one.name.isdecimal()]


def _has_changed(upper: Path, lower: Path) -> bool:
    """Whether an overlay's upper directory says anything that the layer below does not."""
    above, below = upper.stat(), lower.stat()
    is_same = stat.S_IMODE(above.st_mode) == stat.S_IMODE(below.st_mode) | stat.S_IRWXU
    is_ours = os.geteuid() != 0 or (above.st_uid, above.st_gid) == (below.st_uid, below.st_gid)
    return any(upper.iterdir()) or not (is_same and is_ours)


def discard(directory: Path) -> None:
    """Delete a directory, whoever made files in it.

    Raises:
        ImageError: it cannot be deleted.
    """
    try:
        try:
            delete_tree(directory)
        except PermissionError:
            delete_mapped(directory)
    except OSError as error:
        raise ImageError(f"{directory}: cannot be deleted: {reason_of(error)}") from error
