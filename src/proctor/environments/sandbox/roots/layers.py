"""Cache of layers that Dockerfiles made, by a key of what determines them.

    <layers>/<key>/
      lock                       locked while a generation is built
      current                    symlink to the current generation
      build.log                  what the last build printed, also if it failed
      <n>/parts/<i>/upper        a generation: what was written, one directory for each overlay
      <n>/layer.json             its description
      <n>/lease                  locked by every process that uses it
      building-<random>/         a generation that is being built

A generation appears atomically and is never changed: it is the renamed upper directory of an
overlay. Building it again makes a new generation with another id. The key of a layer on top of
another contains the id of that one: it is never used on files other than those it was built on.

A lease's time is when its generation was last used, by which `prune` chooses what to remove.
"""

import atexit
import contextlib
import functools
import os
import secrets
import stat
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.locks import claimed, hold, locked_soon, make_private, release
from proctor.environments.sandbox.scratch import Session, cache_directory, find_fault
from proctor.environments.sandbox.subordinate import delete_mapped
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import reason_of

type Parts = tuple[tuple[str, tuple[str, ...]], ...]
"""(target, layers on the host, topmost first) of each overlay of a root file system."""

# As `du` counts them.
_BLOCK = 512

# Layers that this process has rebuilt: once is enough, even if many of its trials force a build.
_MADE_BY_FORCE: set[tuple[Path, str]] = set()


class Layer(msgspec.Struct, frozen=True):
    """layer.json: describes a generation."""

    base: str
    """Pin of the root file system at the bottom."""
    steps: tuple[str, ...]
    """The instructions that made it, for people."""
    parent: str | None = None
    """Id of the layer below it; None: it is on an image or on the host's files."""
    id: str = ""
    """Random, different for each generation."""
    uppers: dict[str, str] = {}
    """Upper directories that are not empty, by the mount point of their overlay."""
    shared_because: str | None = None
    """Why it was built on the host's network; None if it was not."""
    ids_shared: str | None = None
    """Why root's commands had the host's ids during the build; None if they had not."""
    size: int | None = None
    """Bytes on the disk; None: not measured."""


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A layer of the cache, as people see it."""

    key: str
    id: str
    parent: str | None
    """Id of the layer below it; None: it is on an image or on the host's files."""
    base: str
    """Pin of the root file system at the bottom."""
    steps: tuple[str, ...]
    """The instructions that made it."""
    size: int
    """Bytes on the disk."""
    used_at: datetime
    """When a trial last started with it."""
    is_used: bool
    """Whether a running process uses it."""


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A cached layer, on top of its base."""

    parts: Parts
    id: str
    shared_because: str | None = None
    """Why it was built on the host's network; None if it was not."""
    ids_shared: str | None = None
    """Why root's commands had the host's ids during the build; None if they had not."""


@dataclass(frozen=True, slots=True)
class Building:
    """A generation that is being built."""

    session: Session
    parts: tuple[tuple[str, tuple[str, ...], Path, Path], ...]
    """(target, layers, upper, work) of each overlay."""

    @property
    def stage(self) -> Path:
        """Directory for files that are to be copied in; not kept."""
        return self.session.directory / "stage"


class LayerStore:
    """The layers of one cache."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, key: str, parts: Parts) -> LayerCache | None:
        """Return the parts with the layer of that key on top; None if it is not cached."""
        current = self._root / key / "current"
        try:
            home = self._root / key / current.readlink()
        except FileNotFoundError:
            return None
        try:
            # Before it is read, so that it cannot be removed meanwhile.
            hold(home / "lease")
            layer = msgspec.json.decode(read_small(str(home / "layer.json")), type=Layer)
            os.utime(home / "lease")
        except (FileNotFoundError, msgspec.DecodeError, ImageError):
            # Another generation may get the same path, and then has another lease.
            release(home / "lease")
            return None
        uppers = layer.uppers
        laid = tuple(
            (target, (str(home / uppers[target]), *lowers) if target in uppers else lowers)
            for target, lowers in parts
        )
        return LayerCache(laid, layer.id, layer.shared_because, layer.ids_shared)

    def log(self, key: str) -> Path:
        """Return the path of what the last build of a layer printed."""
        return self._root / key / "build.log"

    def mark_made(self, key: str) -> None:
        """Note that this process has built something: once is enough if builds are forced."""
        _MADE_BY_FORCE.add((self._root, key))

    def is_wanted_again(self, key: str, *, force: bool) -> bool:
        """Whether to build it although it is cached."""
        return force and (self._root, key) not in _MADE_BY_FORCE

    @contextlib.asynccontextmanager
    async def locked(self, key: str) -> AsyncIterator[None]:
        """Lock a key against all other trials and processes."""
        make_private(self._root)
        home = make_private(self._root / key)
        async with locked_soon(home / "lock"):
            _remove_leftovers(home)
            yield

    def open(self, key: str, parts: Parts) -> Building:
        """Make a directory with what the overlays of a sandbox need.

        Raises:
            ImageError: it cannot be created.
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
        """Make what was built the current generation.

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
            layer = msgspec.structs.replace(
                layer, id=secrets.token_hex(16), uppers=uppers, size=measure(directory)
            )
            (directory / "layer.json").write_bytes(msgspec.json.encode(layer))
            number = 1 + max((int(one.name) for one in _generations(home)), default=0)
            directory.rename(home / str(number))
            link = home / ".current"
            link.unlink(missing_ok=True)
            link.symlink_to(str(number))
            # Replaces the symlink atomically: other processes see the old generation or the new
            # one.
            link.rename(home / "current")
        except OSError as error:
            raise ImageError(f"{home}: cannot be written: {reason_of(error)}") from error
        self.mark_made(key)

    def reap(self, *, dry_run: bool = False) -> list[Path]:
        """Remove what killed builds left, and unused generations; return the directories.

        Keys that are being built are skipped.
        """
        reaped: list[Path] = []
        for lock in sorted(self._root.glob("*/lock")):
            with claimed(lock) as is_free:
                reaped += _find_leftovers(lock.parent) if is_free else ()
                if is_free and not dry_run:
                    _remove_leftovers(lock.parent)
        return reaped

    def list_layers(self) -> list[StoredLayer]:
        """Return the current generations, the most recently used first."""
        found = []
        for link in self._root.glob("*/current"):
            # Another process may be removing it.
            with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
                home = link.parent / link.readlink()
                layer = msgspec.json.decode(read_small(str(home / "layer.json")), type=Layer)
                lease = home / "lease"
                used = (lease if lease.exists() else home).stat().st_mtime
                found.append(
                    StoredLayer(
                        key=link.parent.name,
                        id=layer.id,
                        parent=layer.parent,
                        base=layer.base,
                        steps=layer.steps,
                        size=measure(home) if layer.size is None else layer.size,
                        used_at=datetime.fromtimestamp(used, UTC),
                        is_used=not _is_unused(home),
                    )
                )
        return sorted(found, key=lambda layer: layer.used_at, reverse=True)

    def remove(self, key: str) -> bool:
        """Remove the current generation of a layer; return False if it is in use."""
        home = self._root / key
        link = home / "current"
        with claimed(home / "lock") as is_free:
            if not is_free or not link.is_symlink():
                return False
            generation = home / link.readlink()
            with claimed(generation / "lease") as is_unused:
                if not is_unused:
                    return False
                leaving = generation.with_name(f"building-old-{generation.name}")
                generation.rename(leaving)
                link.unlink()
            discard(leaving)
        return True


def measure(directory: Path) -> int:
    """Return the bytes on the disk of a directory's files, as far as they can be read."""
    total, waiting = 0, [os.fspath(directory)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total


def _find_leftovers(home: Path) -> list[Path]:
    """Return the remains of killed builds, and unused generations that are not current."""
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
            # Renamed first, so that it disappears atomically.
            leaving = left.with_name(f"building-old-{left.name}")
            with claimed(left / "lease") as is_free:
                if is_free:
                    left.rename(leaving)
            discard(leaving)
        else:
            discard(left)


def _generations(home: Path) -> list[Path]:
    return [one for one in home.iterdir() if one.name.isdecimal()]


def _has_changed(upper: Path, lower: Path) -> bool:
    """Whether an overlay's upper directory differs from the layer below."""
    above, below = upper.stat(), lower.stat()
    # add_part gives the owner all rights to an upper directory, which is not a change.
    is_same = stat.S_IMODE(above.st_mode) == stat.S_IMODE(below.st_mode) | stat.S_IRWXU
    is_ours = os.geteuid() != 0 or (above.st_uid, above.st_gid) == (below.st_uid, below.st_gid)
    return any(upper.iterdir()) or not (is_same and is_ours)


def discard(directory: Path) -> None:
    """Delete a directory, including files of subordinate ids.

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


# Directory of layers: in the cache, or in the run's scratch if the cache's file system is unfit


def layers_directory(scratch: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the directory of layers, and a note if it is not in the cache."""
    layers = cache_directory() / "layers"
    fault = _find_fault(layers)
    if fault is None:
        return layers, ()
    return _temporary_layers(scratch, os.getpid()), (f"{fault}; builds are kept for this run only",)


@functools.lru_cache(maxsize=8)
def _temporary_layers(scratch: Path, pid: int) -> Path:
    """Return a directory that is deleted when this process, not a fork of it, ends."""
    layers = scratch / "layers"
    atexit.register(lambda: discard(layers) if os.getpid() == pid else None)
    return layers


@functools.lru_cache(maxsize=8)
def _find_fault(directory: Path) -> str | None:
    """Cached: a cache does not move while a job runs."""
    return find_fault(directory)
