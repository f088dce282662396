"""Where the index of a ledger lies: in the ledger, else in this user's cache, else in memory."""

import os
from collections.abc import Mapping
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.ledger.derived import SEARCH_INDEX


def find_place(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """The file that holds the index, or will; None where there is no place for one.

    A ledger that may only be read is searched by an index of the reader's own.
    """
    if os.access(directory, os.W_OK, effective_ids=True):
        return directory / SEARCH_INDEX
    cache = _find_cache(environ)
    if cache is None:
        return None
    try:
        # What is in an index is as secret as the ledger is.
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    if cache.stat().st_uid != os.geteuid() or not os.access(cache, os.W_OK, effective_ids=True):
        return None
    name = sha256_hex(os.fsencode(directory.resolve()))[:32]
    return cache / f"{name}.sqlite"


def _find_cache(environ: Mapping[str, str]) -> Path | None:
    if chosen := environ.get("PROCTOR_CACHE"):
        return Path(chosen).absolute() / "search"
    shared = environ.get("XDG_CACHE_HOME", "")
    if shared.startswith("/"):
        return Path(shared) / "proctor" / "search"
    home = environ.get("HOME")
    return Path(home).absolute() / ".cache" / "proctor" / "search" if home else None
