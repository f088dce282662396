"""A node's own directory: copies of what travels, and trials while they run.

    $PROCTOR_CACHE/cluster/
        trees/<digest>/<name>   a task, an agent's files, a skill: unpacked once, used by many
        trials/<key>/<trial>    a trial while it runs; `lock` beside it is held as long as it does
        trials/<key>/left       when a `sweep` first found the trial without its worker

What killed workers left, and copies that no trial has used for a month, are removed by `sweep`:
whenever a job on the cluster begins, and by `proctor clean`. Drivers have two minutes after the
first sweep that finds it to fetch what is left of a trial.
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
_LEFT: Final = "left"
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
            # Trees of the same content under other names are beside it.
            if not (place / name).exists():
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
            tree = Path(folder, "tree")
            tree.mkdir()
            with archive.open("rb") as file:
                unpack(file, tree)
            place.mkdir(exist_ok=True)
            # Whole or not at all: a worker may be killed at any time.
            tree.rename(place / name)

    @contextlib.contextmanager
    def open_trial(self, key: str) -> Iterator[Path]:
        """Yield a directory for one trial, which is removed in the end.

        A worker that lost its driver leaves it, as a killed one does: see `claim_left`.
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

    @contextlib.contextmanager
    def claim_left(self, key: str) -> Iterator[Path | None]:
        """Yield the directory that a killed worker left of a trial, which no `sweep` removes then.

        None: there is none. Blocks until whatever still uses it has ended.
        """
        check_id(key, "trial")
        place = self._root / "trials" / key
        if not place.is_dir():
            yield None
            return
        with locked(place / _LOCK):
            below = place.iterdir() if place.is_dir() else ()
            yield next((path for path in below if path.is_dir()), None)


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
        trials, trees = _list_directories(root / "trials"), _list_directories(root / "trees")
    except (ImageError, SandboxError, OSError) as error:
        swept.kept.append(f"what trials of a cluster left cannot be read: {error}")
        return swept
    for place in trials:
        with _noting(place, swept), claimed(place / _LOCK) as is_unused:
            if is_unused and _is_young(place / _LEFT, dry_run=dry_run):
                swept.waiting.append(place)
            elif is_unused:
                _remove(place, swept, dry_run=dry_run)
    for place in trees:
        is_partial = place.name.startswith(_INCOMING)
        digest = place.name.replace(_INCOMING, "").partition(".")[0]
        with _noting(place, swept), claimed(place.with_name(f"{digest}.{_LOCK}")) as is_unused:
            if is_unused and (is_partial or _find_age(place) > _UNUSED_SEC):
                _remove(place, swept, dry_run=dry_run)
    return swept


def _list_directories(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir())
    except FileNotFoundError:
        # No trial of a cluster ever ran here.
        return []


@contextlib.contextmanager
def _noting(place: Path, swept: Swept) -> Iterator[None]:
    """Let what keeps one directory from being removed not keep the others."""
    try:
        yield
    except FileNotFoundError:
        # Its worker, or its driver, removed it meanwhile.
        pass
    except OSError as error:
        swept.kept.append(f"{place}: cannot be removed: {reason_of(error)}")
    except ImageError as error:
        swept.kept.append(str(error))


def _is_young(marker: Path, *, dry_run: bool) -> bool:
    """Whether what is left of a trial was found only a while ago, or just now."""
    try:
        return _find_age(marker) < _YOUNG_SEC
    except FileNotFoundError:
        if not dry_run:
            marker.touch()
        return True


def _find_age(place: Path) -> float:
    return time.time() - place.stat().st_mtime


def _remove(place: Path, swept: Swept, *, dry_run: bool) -> None:
    if not dry_run:
        if place.parent.name == "trees" and not place.name.startswith(_INCOMING):
            # Under another name: half of a tree must not be taken for the tree.
            delete_tree(place.rename(place.with_name(f"{_INCOMING}{place.name}.gone")))
        else:
            delete_tree(place)
    swept.removed.append(place)
