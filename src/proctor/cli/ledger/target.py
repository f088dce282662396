"""The ledger that something is written into."""

import os
from pathlib import Path

import click

from proctor.cli.ledger.options import find_directory
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.place import open_or_create


def open_signed(directory: str | None, key_file: str | None) -> OpenLedger:
    """A ledger that is there, for writing.

    Raises:
        LedgerError: there is none.
        KeyFileError: the key cannot be read or made.
    """
    key = find_key(Path(key_file) if key_file else None, os.environ)
    return OpenLedger.open(find_directory(directory), key=key)


def open_target(directory: str | None, key_file: str | None) -> OpenLedger:
    """The ledger for writing; one that is made now is named on stderr.

    Raises:
        LedgerError: it can neither be opened nor made.
        KeyFileError: the key cannot be read or made.
    """
    key = find_key(Path(key_file) if key_file else None, os.environ)
    place = find_directory(directory)
    ledger, is_made = open_or_create(place, key)
    if is_made:
        click.echo(f"proctor: {place}: a new ledger, {ledger.checkpoint().origin}", err=True)
    return ledger
