"""`proctor ledger attest`: signs a statement about all entries of an experiment."""

import getpass

import click
import msgspec

from proctor.cli.ledger.options import key_option, own_ledger_option
from proctor.cli.ledger.target import open_signed
from proctor.cli.output import json_option, print_json, print_line
from proctor.ledger.attestation import append_attestation
from proctor.sentence import count_of


@click.command("attest")
@click.argument("experiment")
@click.option(
    "--author", metavar="NAME", help="Author of the statement.  [default: your login name]"
)
@own_ledger_option
@key_option
@json_option
def command(
    experiment: str,
    author: str | None,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Sign a statement of which entries of an EXPERIMENT the ledger holds.

    The statement contains the count and the digest of all its entries so far: trials (including
    withheld and superseded ones), plans, reviews, rescores, supersessions and withholdings. Claims
    carry the latest statement, so a claim that leaves a trial out contradicts it; `proctor ledger
    verify` recomputes all of them. It says nothing about trials that were never sealed.

    Example: proctor ledger attest nightly
    """
    with open_signed(directory, key_file) as ledger:
        entry = append_attestation(ledger, experiment, author or getpass.getuser())
    if as_json:
        facts = msgspec.to_builtins(entry)
        print_json({name: facts[name] for name in facts if name not in ("at", "kind")})
        return 0
    entries = count_of(entry.entries, "entry", "entries")
    print_line(f"{experiment}: {entries} attested, entry {entry.seq}")
    print_line(f"  covered   the first {entry.size:,} entries of the ledger")
    print_line(f"  digest    {entry.digest}")
    print_line(f"  plan      {'none' if entry.plan is None else f'entry {entry.plan}'}")
    print_line(f"  withheld  {entry.unnamed:,} entries that name no trial: experiment unknown")
    return 0
