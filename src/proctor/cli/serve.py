"""`proctor serve`: a ledger for many machines, behind HTTP."""

import os
from importlib import import_module
from pathlib import Path

import click

from proctor.cli.ledger.options import key_option, own_ledger_option
from proctor.cli.ledger.target import open_signed
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.stdout import print_stderr
from proctor.errors import InputError
from proctor.ledger.machines import load_machines
from proctor.ledger.place import open_reader, own_directory
from proctor.ledger.reader import LedgerReader
from proctor.serve.tokens import Tokens, serve_directory
from proctor.serve.writer import revoke


@click.group("serve", invoke_without_command=True)
@own_ledger_option
@key_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8390, show_default=True,
              help="Port to listen on; 0 picks a free one.")  # fmt: skip
@click.option("--tls-certificate", type=PATH, help="Certificate, with its chain, in PEM form.")
@click.option("--tls-key", type=PATH, help="Private key of the certificate, in PEM form.")
@click.option("--public", is_flag=True, help="Let anyone read; writing still requires a token.")
@click.option("--max-artifact", metavar="MB", type=click.IntRange(1), default=8192,
              show_default=True, help="Maximum size of an evidence file.")  # fmt: skip
@json_option
@click.pass_context
def command(
    context: click.Context,
    directory: str | None,
    key_file: str | None,
    host: str,
    port: int,
    tls_certificate: str | None,
    tls_key: str | None,
    public: bool,
    max_artifact: int,
    as_json: bool,
) -> int:
    """Serve a ledger to many machines, over HTTP or HTTPS.

    Other machines name it as `--ledger https://HOST:PORT` in run, resume, import, seal, verify,
    board, compare, report, search and view, with a token in PROCTOR_TOKEN. What they submit is
    checked again before it is sealed; only this machine signs. A certificate is required to listen
    on other addresses than loopback. Runs until interrupted.

    Example: proctor serve --ledger ledger
    """
    if context.invoked_subcommand is not None:
        context.obj = directory
        return 0
    # Imported late: the server is slow to import, and --help does not need it.
    serving = import_module("proctor.serve.serving")
    tls = _find_tls(tls_certificate, tls_key)
    options = serving.ServeOptions(
        directory=own_directory(directory, os.environ),
        host=host,
        port=port,
        tls=tls,
        key_file=Path(key_file) if key_file else None,
        is_public=public,
        largest=max_artifact << 20,
    )
    server = serving.prepare(options, os.environ)
    if as_json:
        print_json({"address": server.address, "origin": server.served.origin})
    else:
        print_stderr(f"the ledger {options.directory}: {server.address} (Ctrl-C ends it)")
        if not server.served.tokens.read() and not public:
            print_stderr(
                "no tokens exist yet: `proctor serve access add NAME [--write]` makes a token"
            )
    server.run()
    return 0


def _find_tls(certificate: str | None, key: str | None) -> object:
    if (certificate is None) != (key is None):
        raise InputError("--tls-certificate and --tls-key must be given together")
    if certificate is None or key is None:
        return None
    tls = import_module("proctor.web.server").Tls(Path(certificate), Path(key))
    tls.check()
    return tls


def _tokens(ledger: LedgerReader) -> Tokens:
    return Tokens(serve_directory(ledger.checkpoint().origin, os.environ))


@command.group("access")
def access() -> None:
    """Add, list and revoke access: tokens, and the machines that submitted with one."""


@access.command("add")
@click.argument("name")
@click.option("--write", "may_write", is_flag=True, help="Allow submitting, not only reading.")
@click.option("--experiment", "experiments", multiple=True, metavar="ID",
              help="Allow submitting to this experiment only; repeatable.")  # fmt: skip
@own_ledger_option
@json_option
@click.pass_context
def add_token(
    context: click.Context,
    name: str,
    may_write: bool,
    experiments: tuple[str, ...],
    directory: str | None,
    as_json: bool,
) -> int:
    """Make a token and print it, once: only its hash is stored.

    A token that may not write reads the whole ledger. A machine that submits with one that may is
    enrolled with its own key.

    Example: proctor serve access add node-1 --write --ledger ledger
    """
    if experiments and not may_write:
        raise InputError(
            "--experiment limits what is written: it needs --write. A reader verifies the whole "
            "ledger; `proctor ledger claim` shares one experiment with its proof"
        )
    with open_reader(own_directory(directory or context.obj, os.environ)) as ledger:
        made = _tokens(ledger).add(name, may_write=may_write, experiments=experiments)
    if as_json:
        print_json({"name": name, "token": made})
    else:
        print_line(made)
    return 0


@access.command("list")
@own_ledger_option
@json_option
@click.pass_context
def list_access(context: click.Context, directory: str | None, as_json: bool) -> int:
    """List the tokens, which cannot be printed again, and the machines with their public keys.

    Example: proctor serve access list --ledger ledger
    """
    with open_reader(own_directory(directory or context.obj, os.environ)) as ledger:
        ledger.refresh()
        tokens, machines = _tokens(ledger).read(), load_machines(ledger).keys
    if as_json:
        print_json(
            [
                *(
                    {
                        "kind": "token",
                        "name": each.name,
                        "may_write": each.may_write,
                        "experiments": each.experiments,
                        "made": each.made,
                    }
                    for each in tokens
                ),
                *(
                    {"kind": "machine", "name": name, "key": str(key)}
                    for name, key in machines.items()
                ),
            ]
        )
        return 0
    for each in tokens:
        what = "reads and writes" if each.may_write else "reads"
        of = f" {', '.join(each.experiments)}" if each.experiments else ""
        print_line(f"token {each.name}: {what}{of}, made {each.made}")
    for name, key in machines.items():
        print_line(f"machine {name}: {key}")
    return 0


@access.command("revoke")
@click.argument("name")
@own_ledger_option
@key_option
@json_option
@click.pass_context
def revoke_access(
    context: click.Context,
    name: str,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Revoke a token, or a machine by its name or public key.

    A running server refuses it from now on; what is sealed stays. A name that both have is the
    token's.

    Example: proctor serve access revoke node-1 --ledger ledger
    """
    revoked, seq = name, None
    with open_reader(own_directory(directory or context.obj, os.environ)) as ledger:
        ledger.refresh()
        tokens, machines = _tokens(ledger), load_machines(ledger).keys
        names = [each.name for each in tokens.read()]
        machine = next((each for each in machines if name in (each, str(machines[each]))), None)
    if name in names:
        tokens.revoke(name)
    elif machine is not None:
        with open_signed(directory or context.obj, key_file) as owned:
            revoked, seq = machine, revoke(owned, machine, "owner")
    else:
        known = ", ".join([*names, *machines]) or "none"
        raise InputError(f"there is no token or machine {name!r}; there are: {known}")
    if as_json:
        print_json({"name": revoked, "seq": seq})
    else:
        print_line(f"{revoked}: revoked" if seq is None else f"{revoked}: revoked, entry {seq}")
    return 0
