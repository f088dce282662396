"""Chooses the ledger of a job, from options and the environment."""

from collections.abc import Mapping
from pathlib import Path

from proctor.cli.options import check_apart
from proctor.job.options import LedgerOptions
from proctor.ledger.place import ledger_directory


def choose_ledger(
    given: Path | None,
    key: Path | None,
    *,
    is_sealed: bool,
    extends: bool,
    host: Mapping[str, str],
) -> LedgerOptions | None:
    """The ledger of a new job; None if nothing is sealed."""
    check_apart("ledger", "no_ledger")
    check_apart("key", "no_ledger")
    check_apart("extend_experiment", "no_ledger")
    if not is_sealed:
        return None
    # Relative to the working directory, not to the job's paths.
    key_file = key.absolute() if key is not None else None
    return LedgerOptions(find_directory(given, host), key_file, extends)


def find_directory(given: Path | str | None, host: Mapping[str, str]) -> Path:
    """The absolute directory of the ledger, which need not exist; for an address, of its copy."""
    return ledger_directory(given, host).expanduser().absolute()
