"""A node's own directory: copies of what travels, and trials while they run.

    $PROCTOR_CACHE/cluster/
        trees/<digest>/<name>   a task, an agent's files, a skill: unpacked once, used by many
        trials/<key>/<trial>    a trial while it runs; `lock` beside it is held as long as it does

What killed workers left, and copies that no trial has used for a month, are removed by `sweep`:
whenever a job on the cluster begins, and by `proctor clean`.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from proctor.cluster.archive import unpack
from proctor.digest import is_digest, sha256_file
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.locks import claimed, locked
from proctor.environments.sandbox.scratch import cache_directory
from proctor.errors import ImageError, SandboxError, TrialError, WorkerLostError
from proctor.record.ids import check_id
from proctor.sentence import reason_of

_LOCK: Final = "lock"
_INCOMING: Final = ".incoming-"
_YOUNG_SEC: Final = 120
# Longer than any trial: one that runs still reads its trees.
_UNUSED_SEC: Final = 30 * 24 * 3600
type Fetch = Callable[[BinaryIO], None]
"""Writes an archive to a file."""


class NodeHome:
    """The directory of one node."""

    def __init__(self) -> None:
        self._root = cache_directory() / "cluster"
        for name in ("trees", "trials"):
            (self._root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def find_tree(self, digest: str, name: str, fetch: Fetch) -> Path:
        """Return the copy of a tree, fetched and unpacked if it is not there yet.

        Raises:
            TrialError: what was fetched is not what was sent.
            OSError, ImageError: it cannot be written, or locked.
        """
        if not is_digest(digest) or "/" in name or name in ("", ".", ".."):
            raise TrialError(f"{digest}/{name}: not the name of a tree; refused")
        place = self._root / "trees" / digest
        with locked(self._root / "trees" / f"{digest}.{_LOCK}"):
            if not place.exists():
                self._fetch(digest, name, place, fetch)
            # When it was last used.
            os.utime(place)
        return place / name

    def _fetch(self, digest: str, name: str, place: Path, fetch: Fetch) -> None:
        prefix = f"{_INCOMING}{digest}."
        with tempfile.TemporaryDirectory(dir=self._root / "trees", prefix=prefix) as folder:
            archive = Path(folder, "archive")
            with archive.open("wb") as file:
                fetch(file)
            if sha256_file(archive) != digest:
                raise TrialError(f"{name}: what arrived is not what was sent")
            tree = Path(folder, "tree", name)
            tree.mkdir(parents=True)
            with archive.open("rb") as file:
                unpack(file, tree)
            # Whole or not at all: a worker may be killed at any time.
            tree.parent.rename(place)

    @contextlib.contextmanager
    def open_trial(self, key: str) -> Iterator[Path]:
        """Yield a directory for one trial, which is removed in the end.

        A worker that lost its driver leaves it, as a killed one does: see `find_left`.
        """
        check_id(key, "trial")
        place = self._root / "trials" / key
        place.mkdir(mode=0o700)
        with locked(place / _LOCK):
            try:
                yield place
            except WorkerLostError:
                raise
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
            shutil.rmtree(place, ignore_errors=True)

    def find_left(self, key: str) -> Path | None:
        """Return the directory that a killed worker left of a trial; None if there is none."""
        check_id(key, "trial")
        place = self._root / "trials" / key
        below = place.iterdir() if place.is_dir() else ()
        return next((path for path in below if path.is_dir()), None)


@dataclass(slots=True)
class Swept:
    """What was found in the directory of a node that nobody needs any more."""

    removed: list[Path] = field(default_factory=list)
    waiting: list[Path] = field(default_factory=list)
    """Trials of killed workers that their drivers may be about to fetch."""
    kept: list[str] = field(default_factory=list)
    """What could not be removed, as sentences."""


def sweep(*, dry_run: bool = False) -> Swept:
    """Remove what killed workers left on this machine, and trees that have long been unused.

    Nothing that a worker uses is touched. With `dry_run`, it is only listed.
    """
    swept = Swept()
    try:
        root = cache_directory() / "cluster"
        for place in _list_directories(root / "trials"):
            # Its worker may remove it meanwhile.
            with contextlib.suppress(FileNotFoundError), claimed(place / _LOCK) as is_unused:
                if is_unused and _find_age(place) < _YOUNG_SEC:
                    swept.waiting.append(place)
                elif is_unused:
                    _remove(place, swept, dry_run=dry_run)
        for place in _list_directories(root / "trees"):
            is_partial = place.name.startswith(_INCOMING)
            digest = place.name.replace(_INCOMING, "").partition(".")[0]
            lock = place.with_name(f"{digest}.{_LOCK}")
            with contextlib.suppress(FileNotFoundError), claimed(lock) as is_unused:
                if is_unused and (is_partial or _find_age(place) > _UNUSED_SEC):
                    _remove(place, swept, dry_run=dry_run)
    except (ImageError, SandboxError, OSError) as error:
        swept.kept.append(f"what trials of a cluster left cannot be read: {error}")
    return swept


def _list_directories(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir())
    except FileNotFoundError:
        # No trial of a cluster ever ran here.
        return []


def _find_age(place: Path) -> float:
    return time.time() - place.stat().st_mtime


def _remove(place: Path, swept: Swept, *, dry_run: bool) -> None:
    try:
        if not dry_run:
            # Under another name: half of a tree must not be taken for the tree.
            delete_tree(place.rename(place.with_name(f"{_INCOMING}{place.name}.gone")))
        swept.removed.append(place)
    except OSError as error:
        swept.kept.append(f"{place}: cannot be removed: {reason_of(error)}")
