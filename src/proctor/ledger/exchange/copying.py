"""Sealed files written below a directory: nothing outside of it, and nothing there is replaced.

Names are chosen by the ledger's owner. Each is checked where it becomes a path, and no link below
the directory is followed, whatever lies there already.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from proctor.contained import create_below, open_below
from proctor.digest import sha256_pieces
from proctor.errors import LedgerError
from proctor.ledger.entry import TrialEntry
from proctor.ledger.row import TrialRow, read_row
from proctor.record.ids import check_id

_CHUNK = 1 << 20


def read_checked_row(entry: TrialEntry, where: object) -> TrialRow:
    """The row of a trial whose ids may become names of directories; `where` is its ledger.

    Raises:
        RecordError: they may not.
        DamageError: there is no record in the entry.
    """
    row = read_row(entry)
    check_id(row.experiment_id, f"{where}: entry {entry.seq}: experiment_id")
    check_id(row.trial_id, f"{where}: entry {entry.seq}: trial_id")
    return row


def write_below(
    target: Path,
    path: str,
    sha256: str,
    write: Callable[[BinaryIO], object],
    *,
    size: int = 0,
) -> None:
    """Let `write` fill a new file below a directory; a file with that SHA-256 is left as it is.

    Raises:
        LedgerError: something else is there, or the disk has no room for `size` bytes.
        OSError: it cannot be written, or its path leads elsewhere.
    """
    target.mkdir(parents=True, exist_ok=True)
    if size > (free := shutil.disk_usage(target).free):
        raise LedgerError(f"{target / path}: {size:,} bytes; the disk has {free:,} left")
    try:
        with create_below(target, path) as file:
            write(file)
    except FileExistsError:
        if not _holds(target, path, sha256):
            raise LedgerError(
                f"{target / path}: there is something else already; an export replaces nothing"
            ) from None


def _holds(target: Path, path: str, sha256: str) -> bool:
    try:
        with open_below(target, path) as file:
            return sha256_pieces(iter(lambda: file.read(_CHUNK), b"")) == sha256
    except OSError:
        return False
