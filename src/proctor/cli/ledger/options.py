"""Options that the ledger's commands share."""

import os
import shlex
from contextlib import AbstractContextManager
from pathlib import Path

import click

from proctor.cli.options import PATH
from proctor.errors import SignatureError
from proctor.ledger.memory import Memory, default_memory_path
from proctor.ledger.note import VerifierKey, parse_checkpoint, parse_verifier_key
from proctor.ledger.place import ledger_directory, open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.signature import check_signature

ledger_option = click.option(
    "--ledger",
    "directory",
    type=PATH,
    help="Ledger directory.  [default: PROCTOR_LEDGER, ./ledger]",
)
key_option = click.option(
    "--key", "key_file", type=PATH, help="Signing key.  [default: PROCTOR_KEY, your own key]"
)
state_option = click.option(
    "--state",
    type=PATH,
    help="Directory of the checkpoints seen before.  [default: "
    "$XDG_STATE_HOME/proctor/checkpoints]",
)
extend_option = click.option(
    "--extend-experiment",
    is_flag=True,
    help="Allow adding trials of another job by other agents to an experiment.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def choose_directory(given: str | None) -> Path:
    """The directory of the ledger, whether or not it exists."""
    return ledger_directory(Path(given) if given else None, os.environ)


def open_ledger(given: str | None) -> AbstractContextManager[LedgerReader]:
    """Open the ledger for reading.

    Raises:
        LedgerError: there is none.
    """
    return open_reader(choose_directory(given))


def load_public_key(ledger: LedgerReader) -> VerifierKey:
    """The public key that signs a ledger now, after checking that it signed the checkpoint.

    Raises:
        SignatureError: it did not.
    """
    key = parse_verifier_key(ledger.index.position().key)
    check_signature(ledger.checkpoint(), key, f"{ledger.where}/checkpoint")
    return key


def render_check(path: str, checkpoint: str, key: VerifierKey) -> str:
    """The command that checks a proof or a claim with the ledger's key.

    A copy of an older checkpoint may be signed by a former key, which the reader must know.
    """
    try:
        check_signature(parse_checkpoint(checkpoint.encode(), path), key, path)
    except SignatureError:
        return f"{shlex.join(['proctor', 'check', path])} --key FORMER_KEY"
    return shlex.join(["proctor", "check", path, "--key", str(key)])


def open_memory(given: str | None) -> Memory:
    """The store of seen checkpoints."""
    return Memory(Path(given) if given else default_memory_path(os.environ))
