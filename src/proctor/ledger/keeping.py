"""Evidence files on their way into a ledger: opened without following links outside, and stored.

<path>          a file of the trial
_job/<path>     a file of its job, sealed with each of its trials
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from proctor.digest import sha256_pieces
from proctor.errors import NotSealedError
from proctor.files import open_plain
from proctor.ledger.admission import is_evidence_path
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.reader import WAITING, LedgerReader, SealedTrial

JOB_PREFIX = "_job/"
"""Prefix of the job's files in the evidence; no file of a trial may have it."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Files of a job that are sealed with each of its trials."""

    root: Path
    """The job's directory."""
    files: tuple[str, ...]
    """Files in it, by relative paths with slashes."""


class EvidenceWriter:
    """Stores the evidence of several trials; the files of a job are stored once."""

    def __init__(self, ledger: LedgerReader) -> None:
        self.ledger = ledger
        self._job_files: dict[JobFiles, list[EvidenceFile]] = {}

    def put(self, files: Iterable[tuple[str, BinaryIO]], *, is_new: bool) -> Iterator[EvidenceFile]:
        """Store and close files; if the trial is sealed already, only compute digests."""
        for path, file in files:
            with file:
                # The evidence of a sealed trial must not be stored again: it may have been withheld
                # since.
                if is_new:
                    digest, size = self.ledger.artifacts.put(file)
                else:
                    pieces: Iterator[bytes] = iter(partial(file.read, _CHUNK), b"")
                    digest, size = sha256_pieces(pieces), file.tell()
            yield EvidenceFile(path=path, sha256=digest, size=size)

    def put_job_files(self, job_files: JobFiles, found: SealedTrial | None) -> list[EvidenceFile]:
        """Store the job's files; for a trial sealed already, return those sealed with it."""
        if found is not None:
            files = found.waiting
            if found.seq != WAITING:
                sealed = self.ledger.entry(found.seq)
                files = sealed.evidence if isinstance(sealed, TrialEntry) else ()
            return [file for file in files if file.path.startswith(JOB_PREFIX)]
        if job_files not in self._job_files:
            self._job_files[job_files] = [*self.put(open_job_files(job_files), is_new=True)]
        return self._job_files[job_files]


def open_job_files(job_files: JobFiles) -> Iterator[tuple[str, BinaryIO]]:
    """Open the job's files, under their names in the evidence."""
    # A running job may delete files after they were listed.
    there = [path for path in job_files.files if os.path.lexists(job_files.root / path)]
    for path, file in open_files(job_files.root, there, str(job_files.root)):
        yield f"{JOB_PREFIX}{path}", file


def open_files(root: Path, paths: Iterable[str], where: str) -> Iterator[tuple[str, BinaryIO]]:
    """Open plain files under a root; no link on the way leads out of it.

    Raises:
        NotSealedError: one is not such a file.
    """
    # Directories are checked once, not for every file in them: a trial may have thousands.
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
    """Whether no link on the way leads out of the root; `inside` caches checked directories."""
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
    """Refuse an evidence path that could leave its directory.

    Raises:
        NotSealedError: it is not a plain relative path.
    """
    if not is_evidence_path(path):
        raise NotSealedError(f"{where}: evidence {path[:80]!r}; expected a plain relative path")
