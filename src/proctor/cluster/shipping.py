"""Files of the driver's machine, sent once to each node that needs them.

An archive is put into Ray's object store in pieces, and each node keeps it by its digest: the
second trial of a task on a node fetches nothing.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import ray

from proctor.cluster.archive import pack
from proctor.digest import sha256_file
from proctor.errors import ClusterError
from proctor.sentence import reason_of
from proctor.trial.spec import TrialSpec

_PIECE: Final = 32 << 20

type Parcels = Mapping[str, Sequence[Any]]
"""References to the pieces of archives in the object store, by digest."""


class Tree(msgspec.Struct, frozen=True):
    """A file or directory that a trial reads."""

    path: str
    """On the driver's machine, as the trial's specification has it."""
    digest: str
    """Of its archive."""
    is_file: bool


class Shipping:
    """The archives of one job. Keeps references to them until it is dropped."""

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}
        self._parcels: dict[str, Sequence[Any]] = {}

    def send(self, spec: TrialSpec) -> tuple[Sequence[Tree], Parcels]:
        """Put what a trial reads into the object store, unless it is there. Blocks."""
        paths = [str(spec.task.directory), *spec.find_paths()]
        trees = [self._find_tree(path) for path in dict.fromkeys(paths)]
        return trees, {tree.digest: self._parcels[tree.digest] for tree in trees}

    def _find_tree(self, path: str) -> Tree:
        if path not in self._trees:
            try:
                self._trees[path] = self._pack(path)
            except OSError as error:
                raise ClusterError(f"{path}: cannot be sent: {reason_of(error)}") from error
        return self._trees[path]

    def _pack(self, path: str) -> Tree:
        source = Path(path).expanduser()
        with tempfile.NamedTemporaryFile(prefix="proctor-tree-") as file:
            pack(source, cast(BinaryIO, file))
            file.flush()
            digest = sha256_file(Path(file.name))
            if digest not in self._parcels:
                file.seek(0)
                self._parcels[digest] = put_pieces(cast(BinaryIO, file))
        return Tree(path, digest, is_file=not source.is_dir())


def put_pieces(file: BinaryIO) -> Sequence[Any]:
    """Put the rest of a file into the object store, in pieces."""
    return [ray.put(piece) for piece in iter(lambda: file.read(_PIECE), b"")]


def write_parcel(pieces: Sequence[Any], file: BinaryIO) -> None:
    """Write an archive from the object store to a file."""
    file.writelines(ray.get(piece) for piece in pieces)
