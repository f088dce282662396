"""Restore withheld bytes from any file or directory that has them.

A file, a directory or another copy of the ledger is searched for a line with the withheld leaf hash
and for files with the withheld digests; everything else is ignored. The log does not change: its
tree is the same with and without the bytes.
"""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from proctor.digest import sha256_pieces
from proctor.errors import DamageError, LedgerError
from proctor.files import open_plain
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import LARGEST_ENTRY, Withheld
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.tree import leaf_hash
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withhold import list_withholdings, overwrite_line

_CHUNK = 1 << 20


@dataclass(slots=True)
class Restored:
    """What was restored, and what is still missing."""

    line: int | None = None
    """Position of the restored line."""
    artifacts: list[str] = field(default_factory=list)
    """Digests of the restored evidence."""
    missing: list[str] = field(default_factory=list)
    """Hashes that were not found in the source."""


@dataclass(slots=True)
class _Wanted:
    """The hashes that are still missing."""

    seq: int
    leaf: str | None
    length: int
    artifacts: set[str]

    def is_all_found(self) -> bool:
        return self.leaf is None and not self.artifacts


def restore(ledger: LedgerWriter, seq: int, source: Path) -> Restored:
    """Restore what was withheld of an entry, as far as the source has it.

    Raises:
        LedgerError: nothing of it is withheld, the source has none of it, or it cannot be written.
    """
    if not os.path.lexists(source):
        raise LedgerError(f"{source}: no such file or directory")
    with ledger.writing():
        ledger.refresh()
        wanted = _find_wanted(ledger, seq)
        if wanted.is_all_found():
            raise LedgerError(f"{ledger.where}: nothing of entry {seq} is withheld")
        restored = Restored()
        try:
            _take_artifacts(ledger, wanted, source, restored)
            for path in _walk(source):
                if wanted.is_all_found():
                    break
                _take_file(ledger, wanted, path, restored)
            ledger.artifacts.settle()
        finally:
            ledger.artifacts.discard()
        restored.missing = [*([wanted.leaf] if wanted.leaf else []), *sorted(wanted.artifacts)]
        if restored.line is None and not restored.artifacts:
            raise LedgerError(f"{source}: has none of the withheld bytes")
        ledger.refresh()
    return restored


def _find_wanted(ledger: LedgerWriter, seq: int) -> _Wanted:
    row = next(ledger.index.trials(TrialFilter(seqs=(seq,))), None)
    digest = row.record if row else None
    artifacts = {
        sha256
        for entry in list_withholdings(ledger)
        if entry.entry == seq or (entry.subject is not None and entry.subject.record == digest)
        for sha256 in entry.artifacts
        if not ledger.artifacts.holds(sha256)
    }
    line = ledger.line(seq)
    left = ledger.entry(seq)
    leaf = left.withheld if isinstance(left, Withheld) else None
    return _Wanted(seq, leaf, len(line), artifacts)


def _take_artifacts(
    ledger: LedgerWriter, wanted: _Wanted, source: Path, restored: Restored
) -> None:
    """Restore artifacts from another copy of the ledger, by their names."""
    others = FileArtifacts(source)
    for sha256 in sorted(wanted.artifacts):
        plain = io.BytesIO()
        if not others.holds(sha256):
            continue
        try:
            others.copy(sha256, plain)
        except DamageError:
            continue
        plain.seek(0)
        _put(ledger, wanted, plain, restored)


def _walk(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        yield source
        return
    for folder, folders, names in os.walk(source):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def _take_file(ledger: LedgerWriter, wanted: _Wanted, path: Path, restored: Restored) -> None:
    try:
        with open_plain(path) as file:
            if wanted.artifacts:
                digest = sha256_pieces(iter(lambda: file.read(_CHUNK), b""))
                if digest in wanted.artifacts:
                    file.seek(0)
                    _put(ledger, wanted, file, restored)
            file.seek(0)
            if wanted.leaf is not None and (line := _find_line(file, wanted)) is not None:
                overwrite_line(ledger, wanted.seq, line)
                restored.line, wanted.leaf = wanted.seq, None
    except OSError as error:
        if path == Path(error.filename or ""):
            return  # an unreadable file of the source is skipped
        raise


def _put(ledger: LedgerWriter, wanted: _Wanted, file: BinaryIO, restored: Restored) -> None:
    digest, _ = ledger.artifacts.put(file)
    wanted.artifacts.discard(digest)
    restored.artifacts.append(digest)


def _find_line(file: BinaryIO, wanted: _Wanted) -> bytes | None:
    with io.BufferedReader(io.FileIO(os.dup(file.fileno()))) as lines:
        while line := lines.readline(LARGEST_ENTRY + 2):
            data = line.removesuffix(b"\n")
            if len(data) == wanted.length and leaf_hash(data).hex() == wanted.leaf:
                return data
    return None
