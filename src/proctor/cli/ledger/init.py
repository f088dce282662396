"""`proctor ledger init`: creates a ledger."""

import os
from pathlib import Path

import click

from proctor.cli.ledger.options import key_option, own_ledger_option
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import LedgerError
from proctor.ledger.keys import default_key_path, find_key, load_key, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import is_ledger
from proctor.ledger.place import own_directory

_LONGEST = 200


@click.command("init")
@own_ledger_option
@click.option(
    "--origin", help="Name of the ledger in checkpoints, usually a URL without its scheme."
)
@key_option
@click.option(
    "--next-key", "next_file", type=PATH, help="Sign an existing ledger with this key from now on."
)
@json_option
def command(
    directory: str | None,
    origin: str | None,
    key_file: str | None,
    next_file: str | None,
    as_json: bool,
) -> int:
    """Create a ledger signed by your key; create the key if it is missing.

    Keep the key: without it nothing more can be sealed. Give the public key and an early checkpoint
    to someone else: with them anyone can check later whether the log only grew.

    With --next-key, an existing ledger gets a new key, through an entry signed by the current key.
    Anyone who trusts the former key can follow the change.

    Example: proctor ledger init --origin example.org/our-runs
    """
    place = own_directory(directory, os.environ)
    check_apart("origin", "next_file")
    if origin is not None:
        is_plain = origin.isprintable() and origin == origin.strip() and len(origin) <= _LONGEST
        if not origin or not is_plain:
            raise click.UsageError(
                f"--origin {origin[:80]!r}; expected a name on one line, such as "
                "example.org/our-runs"
            )
    if next_file is not None:
        return _change_key(place, key_file, Path(next_file), as_json=as_json)
    if is_ledger(place):
        raise LedgerError(f"{place}: there is a ledger already")
    given = Path(key_file) if key_file else None
    path = given or default_key_path(os.environ)
    is_new_key = not os.path.lexists(path)
    # The log's name, if it is valid for keys.
    is_name = origin and "+" not in origin and not any(map(str.isspace, origin))
    name = origin if origin and is_name else f"proctor/{os.urandom(6).hex()}"
    key = make_key(path, name) if is_new_key else find_key(given, os.environ)
    with OpenLedger.create(place, key, origin or f"proctor/ledger/{os.urandom(8).hex()}") as ledger:
        checkpoint = ledger.checkpoint()
    facts = {
        "ledger": str(place),
        "origin": checkpoint.origin,
        "key_file": str(path),
        "is_new_key": is_new_key,
        "public_key": str(key.verifier),
        "size": checkpoint.tree.size,
        "root": checkpoint.tree.root.hex(),
    }
    if as_json:
        print_json(facts)
        return 0
    print_line(f"{place}: a new ledger")
    print_line(f"  origin      {checkpoint.origin}")
    print_line(f"  key         {path}{', made just now: keep it safe' if is_new_key else ''}")
    print_line(f"  public key  {key.verifier}")
    return 0


def _change_key(place: Path, key_file: str | None, path: Path, *, as_json: bool) -> int:
    former = find_key(Path(key_file) if key_file else None, os.environ)
    with OpenLedger.open(place, key=former) as ledger:
        # Before a key is created: a ledger that cannot be written needs none.
        ledger.refresh()
        ledger.check_key()
        is_new_key = not os.path.lexists(path)
        heir = make_key(path, former.name) if is_new_key else load_key(path)
        seq = ledger.change_key(heir)
    facts = {
        "ledger": str(place),
        "entry": seq,
        "key_file": str(path),
        "is_new_key": is_new_key,
        "public_key": str(heir.verifier),
        "former_key": str(former.verifier),
    }
    if as_json:
        print_json(facts)
        return 0
    print_line(f"{place}: another key from entry {seq} on")
    print_line(f"  key         {path}{', made just now: keep it safe' if is_new_key else ''}")
    print_line(f"  public key  {heir.verifier}")
    print_line(f"  former key  {former.verifier}")
    return 0
