"""Opens the ledger for writing."""

import os
from pathlib import Path

import click

from proctor.cli.ledger.options import choose_directory
from proctor.ledger.keys import find_key
from proctor.ledger.place import open_or_create, open_writer, own_directory
from proctor.ledger.reader import LedgerWriter


def open_signed(directory: str | None, key_file: str | None) -> LedgerWriter:
    """Open an existing ledger for what only its owner does."""
    place = own_directory(directory, os.environ)
    return open_writer(place, find_key(Path(key_file) if key_file else None, os.environ))


def open_target(directory: str | None, key_file: str | None) -> LedgerWriter:
    """Open the ledger for writing; a newly created one is reported on stderr."""
    key = find_key(Path(key_file) if key_file else None, os.environ)
    place = choose_directory(directory)
    ledger, is_made = open_or_create(place, key)
    if is_made:
        click.echo(f"proctor: {place}: a new ledger, {ledger.checkpoint().origin}", err=True)
    return ledger
