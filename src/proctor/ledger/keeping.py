"""Evidence on its way into a ledger: opened where no link leads out, and put.

    <path>          a file of the trial
    _job/<path>     a file of the job around it, sealed with each of its trials

Nothing here knows what a record is, and nothing is sealed.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from proctor.digest import sha256_pieces
from proctor.errors import NotSealedError
from proctor.files import open_plain
from proctor.ledger.admission import is_evidence_path
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.reader import LedgerReader, SealedTrial

AROUND = "_job/"
"""Before the names of the job's own files; no trial has such names itself."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Around:
    """Files that belong to a whole job, and are sealed with each of its trials."""

    root: Path
    """The job's directory."""
    files: tuple[str, ...]
    """Files under it, relative, with slashes."""


class Keeper:
    """Puts the evidence of many trials; what is around several of them, once."""

    def __init__(self, ledger: LedgerReader) -> None:
        self.ledger = ledger
        self._around: dict[Around, list[EvidenceFile]] = {}

    def put(self, files: Iterable[tuple[str, BinaryIO]], *, is_new: bool) -> Iterator[EvidenceFile]:
        """Keep files, and close them; of a trial that is not new they are only looked at.

        Raises:
            OSError: one cannot be read or written.
        """
        for path, file in files:
            with file:
                # Of what is sealed already nothing is put: it may have been withheld since.
                digest, size = self.ledger.artifacts.put(file) if is_new else _measure(file)
            yield EvidenceFile(path=path, sha256=digest, size=size)

    def put_around(self, around: Around, found: SealedTrial | None) -> list[EvidenceFile]:
        """The job's files; of a trial that was found sealed, those that it was sealed with.

        Raises:
            OSError: one cannot be read or written.
        """
        if found is not None:
            sealed = self.ledger.entry(found.seq)
            files = sealed.evidence if isinstance(sealed, TrialEntry) else ()
            return [file for file in files if file.path.startswith(AROUND)]
        if around not in self._around:
            self._around[around] = [*self.put(open_around(around), is_new=True)]
        return self._around[around]


def _measure(file: BinaryIO) -> tuple[str, int]:
    digest = sha256_pieces(iter(lambda: file.read(_CHUNK), b""))
    return digest, file.tell()


def open_around(around: Around) -> Iterator[tuple[str, BinaryIO]]:
    """The job's files, under the names they get.

    Raises:
        NotSealedError: one is no plain file below the job.
    """
    # A job that runs takes files away that were there when it was looked at.
    there = [path for path in around.files if os.path.lexists(around.root / path)]
    for path, file in open_files(around.root, there, str(around.root)):
        yield f"{AROUND}{path}", file


def open_files(root: Path, paths: Iterable[str], where: str) -> Iterator[tuple[str, BinaryIO]]:
    """Plain files under a root: no link on the way leads out of it.

    Raises:
        NotSealedError: one is none.
    """
    real, inside = os.path.realpath(root), {""}
    for path in paths:
        check_evidence_path(path, where)
        folder = os.path.split(path)[0]
        try:
            if not _is_inside(folder, real, inside):
                raise NotSealedError(f"{where}: {path!r} leads out of {real!r}")
            file = open_plain(f"{real}/{path}")
        except OSError as error:
            raise NotSealedError(
                f"{where}: evidence {path!r} cannot be read: {error.strerror}"
            ) from error
        yield path, file


def _is_inside(folder: str, root: str, inside: set[str]) -> bool:
    """Whether no link on the way leads out; `inside` has the folders that were looked at."""
    if folder in inside:
        return True
    place = f"{root}/{folder}"
    is_above = _is_inside(os.path.split(folder)[0], root, inside)
    if not is_above or not stat.S_ISDIR(os.lstat(place).st_mode):
        real = os.path.realpath(place, strict=True)
        if real != root and not real.startswith(f"{root}/"):
            return False
    inside.add(folder)
    return True


def check_evidence_path(path: str, where: str) -> None:
    """Refuse a name of evidence that could lead anywhere else.

    Raises:
        NotSealedError: it is no plain relative path.
    """
    if not is_evidence_path(path):
        raise NotSealedError(f"{where}: evidence {path[:80]!r}; expected a plain relative path")
