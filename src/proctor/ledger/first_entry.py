"""The first entry of a ledger, which says what format it has. No signature is checked."""

import contextlib
from pathlib import Path

import msgspec

from proctor.errors import DamageError, LedgerError
from proctor.ledger.entry import FORMAT, KeyEntry, decode_line
from proctor.ledger.segments import read_lines


def check_format(directory: Path) -> KeyEntry:
    """The first entry of a ledger, which says what format it has.

    Raises:
        LedgerError: it is of another format.
        DamageError: there is no such entry.
    """
    where = f"{directory / 'entries'}: the first entry"
    first = next(read_lines(directory / "entries"), None)
    if first is None:
        raise DamageError(f"{where} is not there")
    with contextlib.suppress(msgspec.MsgspecError):
        named = msgspec.json.decode(first.data, type=dict[str, object]).get("format")
        if isinstance(named, str) and named != FORMAT:
            raise LedgerError(
                f"{directory}: a ledger of format {named!r}; this proctor reads {FORMAT!r}: "
                "a newer one may read it"
            )
    entry = decode_line(first.data, where)
    if not isinstance(entry, KeyEntry):
        raise DamageError(f"{where} is of kind {getattr(entry, 'kind', 'withheld')!r}, not 'key'")
    return entry
