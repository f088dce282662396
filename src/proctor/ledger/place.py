"""Which ledger, and which key: from what was given, the environment and what is there.

    --ledger DIR, else PROCTOR_LEDGER, else ./ledger
    --key FILE, else PROCTOR_KEY, else the user's own key

Commands that write make what is missing; commands that read do not.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from proctor.ledger.keys import SigningKey, default_key_path, load_key, make_key
from proctor.ledger.ledger import Ledger


def ledger_directory(given: Path | None, env: Mapping[str, str]) -> Path:
    """Where the ledger is, or would be."""
    return given or Path(env.get("PROCTOR_LEDGER") or "ledger")


def find_key(given: Path | None, env: Mapping[str, str]) -> SigningKey:
    """The signing key; the user's own is made when it is needed for the first time.

    Raises:
        KeyFileError: it cannot be read or made; a key that was named must be there.
    """
    path = given or default_key_path(env)
    if given is None and not env.get("PROCTOR_KEY") and not os.path.lexists(path):
        return make_key(path, f"proctor/{os.urandom(6).hex()}")
    return load_key(path)


def open_or_create(
    directory: Path, key: SigningKey, *, origin: str | None = None
) -> tuple[Ledger, bool]:
    """The ledger for writing, and whether it was made just now.

    Raises:
        LedgerError: it can neither be opened nor made.
    """
    if os.path.lexists(directory / "checkpoint"):
        return Ledger.open(directory, key=key), False
    return Ledger.create(directory, key, origin or f"proctor/ledger/{os.urandom(8).hex()}"), True
