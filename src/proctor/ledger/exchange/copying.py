"""Writes sealed files below a directory, without replacing files or following links.

Names are chosen by the ledger's owner: each is checked where it becomes a path.
"""

import contextlib
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
    """Read the row of a trial whose ids are used as directory names; `where` is its ledger."""
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
    """Create a file below a directory and let `write` fill it; an equal file is left as it is.

    Raises:
        LedgerError: another file exists there, or the disk has no room for `size` bytes.
        OSError: it cannot be written, or its path leads outside.
    """
    target.mkdir(parents=True, exist_ok=True)
    # Before decompressing: an export must not fill the disk and fail half-way.
    if size > (free := shutil.disk_usage(target).free):
        raise LedgerError(f"{target / path}: {size:,} bytes; the disk has {free:,} left")
    try:
        with create_below(target, path) as file:
            write(file)
    except FileExistsError:
        found = None
        with contextlib.suppress(OSError), open_below(target, path) as file:
            found = sha256_pieces(iter(lambda: file.read(_CHUNK), b""))
        if found != sha256:
            raise LedgerError(
                f"{target / path}: exists with other content; an export replaces nothing"
            ) from None
