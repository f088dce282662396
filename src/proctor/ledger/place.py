"""Which ledger is used: `--ledger DIR`, else PROCTOR_LEDGER, else ./ledger.

In place of a directory, the address of a `proctor serve` or of a published ledger names the copy of
it, which is fetched first.

Commands that write create a missing ledger; commands that read do not. Keys are loaded in keys.py,
which is slow to import and not needed for reading.
"""

import importlib
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.ledger import REMOTE, OpenLedger, find_remote
from proctor.ledger.note import Signer
from proctor.ledger.reader import LedgerReader, LedgerWriter

# A path has one slash where an address has two, and none at its end.
_ADDRESS = re.compile(r"(https?|s3):(?:/+|$)", re.IGNORECASE)
# A copy, as mirror.py names it, of whichever user on whichever machine.
_COPY = re.compile(r"/proctor/ledgers/[0-9a-f]{32}/*$")


def ledger_directory(given: Path | str | None, env: Mapping[str, str]) -> Path:
    """The directory of the ledger, whether or not it exists; for an address, of the copy.

    Raises:
        LedgerError: the server of an address cannot be used; or the directory is that of a copy
            which is gone, where nobody wants another ledger.
        DamageError: the server shows another history than before.
    """
    chosen = _choose(given, env)
    if found := _ADDRESS.match(chosen):
        return _fetch(f"{found[1].lower()}://{chosen[found.end() :]}")
    directory = Path(chosen)
    if _COPY.search(chosen) and not os.path.lexists(directory / REMOTE):
        raise LedgerError(
            f"{directory}: there was a copy of another machine's ledger, which is gone; name that "
            "ledger by its address"
        )
    return directory


def local_directory(given: Path | str | None, env: Mapping[str, str]) -> Path:
    """The directory of the ledger, for commands that take no address.

    Raises:
        LedgerError: it is an address.
    """
    chosen = _choose(given, env)
    if _ADDRESS.match(chosen):
        raise LedgerError(
            f"{hide_secrets(chosen)}: an address; expected the directory of a ledger: this command "
            "runs on the machine where the ledger is"
        )
    return Path(chosen)


def own_directory(given: Path | str | None, env: Mapping[str, str]) -> Path:
    """The directory of the ledger, for what only its owner does.

    Raises:
        LedgerError: it is an address, or the copy of another machine's ledger.
    """
    directory = local_directory(given, env)
    if os.path.lexists(directory / REMOTE):
        raise LedgerError(
            f"{directory}: a copy of another machine's ledger; this command runs on the machine "
            "where the ledger is"
        )
    return directory


def hide_secrets(address: str) -> str:
    """An address without the user, password or token that somebody put into it."""
    return re.sub(r"(?<=:)(/+)[^/]*@", r"\1…@", re.split(r"[?#]", address, maxsplit=1)[0])


def _choose(given: Path | str | None, env: Mapping[str, str]) -> str:
    return str(given or env.get("PROCTOR_LEDGER") or "ledger")


@cache
def _fetch(url: str) -> Path:
    """The copy of a server's ledger, fetched once by a command."""
    # Imported on use: it loads an HTTP client.
    mirror = importlib.import_module("proctor.ledger.remote.mirror")
    directory: Path = mirror.open_mirror(url, os.environ, _warn)
    return directory


def _warn(text: str) -> None:
    sys.stderr.write(f"proctor: {text}\n")


def find_url(directory: Path) -> str | None:
    """The address of the server whose ledger this directory is a copy of; None if it is none."""
    remote = find_remote(directory)
    return None if remote is None else remote.url


def open_reader(directory: Path) -> LedgerReader:
    """Open the ledger for reading; use it in a `with` block."""
    return OpenLedger.open(directory)


def open_writer(directory: Path, key: Signer, *, patience_sec: float | None = None) -> LedgerWriter:
    """Open the ledger for writing; use it in a `with` block.

    Other writers are waited for `patience_sec`, or without limit.
    """
    ledger = OpenLedger.open(directory, key=key)
    ledger.patience_sec = patience_sec
    return ledger


def open_or_create(
    directory: Path, key: Signer, *, origin: str | None = None
) -> tuple[LedgerWriter, bool]:
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
    return open_writer(directory, key), False
