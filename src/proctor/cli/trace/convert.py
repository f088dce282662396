"""`proctor trace convert`: converts a trace to another format."""

from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from proctor.audit.file_kind import find_file_kind
from proctor.cli.options import PATH, STDOUT, check_unused
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.redaction import make_redactor, secret_option
from proctor.cli.stdout import send_bytes
from proctor.digest import sha256_hex
from proctor.errors import InputError
from proctor.sentence import count_of, printable
from proctor.traces.atif.model import UNKNOWN_AGENT, Agent
from proctor.traces.convert import (
    Loaded,
    load_entries,
    redact_entries,
    render_as_atif,
    render_as_trajectory,
)
from proctor.traces.entry import TraceKind
from proctor.traces.loss import Loss
from proctor.traces.writer import Redactor

_SHOWN = 50


@click.command("convert")
@click.argument("trace", type=PATH)
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(["trajectory", "atif"]),
    help="Output format.",
)
@click.option("-o", "--output", type=PATH, help="Write to this file instead of stdout.")
@click.option("--salvage", is_flag=True, help="Convert the readable part of a damaged trace.")
@click.option("--no-header", is_flag=True, help="Leave out the header line of a trajectory.")
@click.option("--agent", "agent_name", help="Name of the agent, if the trace has none.")
@click.option("--agent-version", help="Version of that agent.")
@secret_option
@json_option
def command(
    trace: str,
    target: str,
    output: str | None,
    salvage: bool,
    no_header: bool,
    agent_name: str | None,
    agent_version: str | None,
    secret_names: tuple[str, ...],
    as_json: bool,
) -> int:
    """Convert any trace to a trajectory or an ATIF file.

    Every field that is lost is listed on stderr. Converting ATIF to a trajectory and back gives the
    same document: what a trajectory has no field for is kept in its metadata.

    Example: proctor trace convert agent/trajectory.json --to trajectory -o trajectory.jsonl
    """
    output = None if output == STDOUT else output
    if as_json and output is None:
        raise click.UsageError("--json requires --output: stdout holds one or the other")
    if target == "atif":
        check_unused("ATIF", no_header=no_header)
    else:
        check_unused("a trajectory", agent_name=agent_name, agent_version=agent_version)
    redactor = make_redactor(secret_names)
    loaded = load_entries(trace, _find_kind(trace), salvage=salvage)
    if secret_names:
        loaded = redact_entries(loaded, redactor)
    render = _renderer(target, header=not no_header, agent=_find_agent(agent_name, agent_version))
    data, losses = render(loaded)
    if output is None:
        send_bytes(data)
    else:
        write_new_file(Path(output), data, [])
    if as_json:
        lost = [msgspec.to_builtins(loss) for loss in losses]
        facts = {"path": output, "sha256": sha256_hex(data), "losses": lost}
        print_json(facts | {"redactions": redactor.report()})
        return 0
    if output is not None:
        entries = count_of(len(loaded.entries), "entry", "entries")
        print_line(f"{output}: {target} of {entries}; {count_of(len(losses), 'field')} lost")
    _report(losses, redactor)
    return 0


def _find_kind(path: str) -> TraceKind:
    thing = find_file_kind(path)
    try:
        return TraceKind(str(thing))
    except ValueError:
        raise InputError(
            f"{path}: a {thing}; expected a trajectory, a conversation or ATIF"
        ) from None


def _find_agent(name: str | None, version: str | None) -> Agent | None:
    if name is None and version is None:
        return None
    return Agent(name=name or UNKNOWN_AGENT.name, version=version or UNKNOWN_AGENT.version)


def _renderer(
    target: str, *, header: bool, agent: Agent | None
) -> Callable[[Loaded], tuple[bytes, list[Loss]]]:
    if target == "atif":
        return lambda loaded: render_as_atif(loaded, agent)
    return lambda loaded: render_as_trajectory(loaded, header=header)


def _report(losses: list[Loss], redactor: Redactor) -> None:
    for hidden in redactor.report():
        click.echo(f"redacted: {hidden['name']} {count_of(hidden['count'], 'time')}", err=True)
    for loss in losses[:_SHOWN]:
        click.echo(f"lost: {printable(str(loss))}", err=True)
    if len(losses) > _SHOWN:
        click.echo(f"lost: {len(losses) - _SHOWN:,} more; --json lists all of them", err=True)
