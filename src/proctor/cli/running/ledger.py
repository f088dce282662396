"""Which ledger a job is sealed into, from what was given and the environment."""

from collections.abc import Mapping
from pathlib import Path

from proctor.cli.options import check_apart
from proctor.job.options import LedgerOptions
from proctor.ledger.place import ledger_directory


def wish_for_ledger(
    given: Path | None,
    key: Path | None,
    *,
    is_sealed: bool,
    extends: bool,
    host: Mapping[str, str],
) -> LedgerOptions | None:
    """The ledger for a new job; None where nothing is to be sealed.

    Raises:
        UsageError: a ledger was named, and none is wanted.
    """
    check_apart("ledger", "no_ledger")
    check_apart("key", "no_ledger")
    check_apart("extend_experiment", "no_ledger")
    if not is_sealed:
        return None
    # From here, not from wherever the job's own paths start.
    key_file = key.absolute() if key is not None else None
    directory = ledger_directory(given, host).expanduser().absolute()
    return LedgerOptions(directory, key_file, extends)
