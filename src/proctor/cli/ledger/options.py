"""Options that the ledger's commands share."""

import os
from pathlib import Path

import click

from proctor.cli.options import LEDGER_HELP, PATH
from proctor.ledger.place import ledger_directory, open_reader
from proctor.ledger.reader import LedgerReader

ledger_option = click.option("--ledger", "directory", type=PATH, help=LEDGER_HELP)
own_ledger_option = click.option(
    "--ledger",
    "directory",
    type=PATH,
    help="Ledger directory, not an address.  [default: PROCTOR_LEDGER, ./ledger]",
)
key_option = click.option(
    "--key", "key_file", type=PATH, help="Signing key.  [default: PROCTOR_KEY, your own key]"
)
extend_option = click.option(
    "--extend-experiment",
    is_flag=True,
    help="Allow adding trials of another job by other agents to an experiment.",
)


def choose_directory(given: str | None) -> Path:
    """The directory of the ledger, whether or not it exists."""
    return ledger_directory(given, os.environ)


def open_ledger(given: str | None) -> LedgerReader:
    """Open the ledger for reading."""
    return open_reader(choose_directory(given))
