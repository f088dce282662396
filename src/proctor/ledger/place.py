"""Which ledger: `--ledger DIR`, else PROCTOR_LEDGER, else ./ledger.

Commands that write make what is missing; commands that read do not. Which key is for `keys` to say,
which loads slowly and which reading needs not.
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
    """Where the ledger is, or would be."""
    return given or Path(env.get("PROCTOR_LEDGER") or "ledger")


def open_reader(directory: Path) -> AbstractContextManager[LedgerReader]:
    """The ledger for reading, until the end of the block.

    Raises:
        LedgerError: there is none, or one of a newer version.
        NoteError: its checkpoint cannot be read.
        DamageError: it has no first entry.
    """
    return OpenLedger.open(directory)


def open_or_create(
    directory: Path, key: Signer, *, origin: str | None = None
) -> tuple[OpenLedger, bool]:
    """The ledger for writing, and whether it was made just now.

    Raises:
        LedgerError: it can neither be opened nor made.
    """
    checkpoint = directory / "checkpoint"
    if not os.path.lexists(checkpoint):
        name = origin or f"proctor/ledger/{os.urandom(8).hex()}"
        try:
            return OpenLedger.create(directory, key, name), True
        except LedgerError:
            # Two commands may be the first at once: the ledger that one of them made is both's.
            if not os.path.lexists(checkpoint):
                raise
    return OpenLedger.open(directory, key=key), False
