"""Which ledger: `--ledger DIR`, else PROCTOR_LEDGER, else ./ledger.

Commands that write make what is missing; commands that read do not. Which key is for `keys` to say,
which loads slowly and which reading needs not.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from proctor.ledger.ledger import Ledger
from proctor.ledger.note import Signer


def ledger_directory(given: Path | None, env: Mapping[str, str]) -> Path:
    """Where the ledger is, or would be."""
    return given or Path(env.get("PROCTOR_LEDGER") or "ledger")


def open_or_create(
    directory: Path, key: Signer, *, origin: str | None = None
) -> tuple[Ledger, bool]:
    """The ledger for writing, and whether it was made just now.

    Raises:
        LedgerError: it can neither be opened nor made.
    """
    if os.path.lexists(directory / "checkpoint"):
        return Ledger.open(directory, key=key), False
    return Ledger.create(directory, key, origin or f"proctor/ledger/{os.urandom(8).hex()}"), True
