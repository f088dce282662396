"""A node's own directory: copies of what travels, and trials while they run.

    $PROCTOR_CACHE/cluster/
        trees/<digest>/<name>   a task, an agent's files, a skill: unpacked once, used by many
        trials/<key>/<trial>    a trial while it runs; `lock` beside it is held as long as it does

What a killed worker left in trials/ is removed by `sweep`.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from proctor.cluster.archive import unpack
from proctor.digest import is_digest, sha256_file
from proctor.environments.sandbox.scratch import cache_directory
from proctor.errors import TrialError, WorkerLostError
from proctor.record.ids import check_id

_LOCK: Final = "lock"
_YOUNG_SEC: Final = 120
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
            OSError: it cannot be written.
        """
        if not is_digest(digest) or "/" in name or name in ("", ".", ".."):
            raise TrialError(f"{digest}/{name}: not the name of a tree; refused")
        place = self._root / "trees" / digest
        with _locked(self._root / "trees" / f"{digest}.{_LOCK}"):
            if not place.exists():
                self._fetch(digest, name, place, fetch)
        return place / name

    def _fetch(self, digest: str, name: str, place: Path, fetch: Fetch) -> None:
        with tempfile.TemporaryDirectory(dir=self._root / "trees", prefix=".incoming-") as folder:
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
        with _locked(place / _LOCK):
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

    def sweep(self) -> list[str]:
        """Remove what killed workers left; returns sentences about what could not be removed."""
        problems = []
        for place in sorted((self._root / "trials").iterdir()):
            if time.time() - place.stat().st_mtime < _YOUNG_SEC:
                # Its driver may be about to fetch it.
                continue
            with contextlib.suppress(BlockingIOError), _locked(place / _LOCK, wait=False):
                try:
                    shutil.rmtree(place)
                except OSError as error:
                    problems.append(f"{place}: cannot be removed: {error.strerror}")
        return problems


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(fd)
