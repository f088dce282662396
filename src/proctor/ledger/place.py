"""Which ledger is used: `--ledger DIR`, else PROCTOR_LEDGER, else ./ledger.

Commands that write create a missing ledger; commands that read do not. Keys are loaded in keys.py,
which is slow to import and not needed for reading.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import Signer
from proctor.ledger.reader import LedgerReader


def ledger_directory(given: Path | None, env: Mapping[str, str]) -> Path:
    """The directory of the ledger, whether or not it exists."""
    return given or Path(env.get("PROCTOR_LEDGER") or "ledger")


def open_reader(directory: Path) -> AbstractContextManager[LedgerReader]:
    """Open the ledger for reading; use it in a `with` block.

    Raises:
        LedgerError: there is none, or one of a newer version.
        NoteError: its checkpoint cannot be read.
        DamageError: it has no first entry.
    """
    return OpenLedger.open(directory)


def open_or_create(
    directory: Path, key: Signer, *, origin: str | None = None
) -> tuple[OpenLedger, bool]:
    """Open the ledger for writing, or create it; returns it, and whether it was created.

    Raises:
        LedgerError: it can neither be opened nor created.
    """
    checkpoint = directory / "checkpoint"
    if not os.path.lexists(checkpoint):
        name = origin or f"proctor/ledger/{os.urandom(8).hex()}"
        try:
            return OpenLedger.create(directory, key, name), True
        except LedgerError:
            # Two commands may create it at the same time: use the ledger of the one that was first.
            if not os.path.lexists(checkpoint):
                raise
    return OpenLedger.open(directory, key=key), False
