"""`proctor show`: a trace, a record or a sealed trial, readable.

What shows files and what shows sealed trials are loaded only when they are needed: a trial among a
hundred thousand is to be found at once.
"""

import importlib
import os

import click

from proctor.cli.options import PATH

LONGEST = 2000
"""Characters of one text that are shown unless more are asked for."""


@click.command("show")
@click.argument("thing", type=PATH)
@click.option("--step", type=click.IntRange(min=0), help="Only this step of a trace.")
@click.option("--full", is_flag=True, help=f"Whole texts, not {LONGEST:,} characters of each.")
@click.option("--raw", is_flag=True, help="The bytes of a record, exactly as they are stored.")
@click.option(
    "--evidence", "evidence_path", metavar="PATH", help="One file of a sealed trial's evidence."
)
@click.option(
    "--ledger", "directory", type=PATH, help="The ledger.  [default: PROCTOR_LEDGER, ./ledger]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    thing: str,
    step: int | None,
    full: bool,
    raw: bool,
    evidence_path: str | None,
    directory: str | None,
    as_json: bool,
) -> int:
    """Show a trace, a record or a sealed trial, readable.

    THING is a file (a trajectory.jsonl, a conversation.jsonl, an ATIF trajectory.json, a trial
    record), or something sealed: a trial's id, EXPERIMENT/TRIAL, the number of an entry, the digest
    of a record, or the beginning of one that fits no other. A file goes first. What cannot be read
    of it is said where it stands; `proctor check` judges it.

    `proctor show TRIAL --raw | sha256sum` recomputes the digest of a sealed record.

    Example: proctor show trial/agent/trajectory.json --step 3
    """
    is_sealed = directory is not None or evidence_path is not None or not os.path.lexists(thing)
    name = "proctor.cli.show_sealed" if is_sealed else "proctor.cli.show_file"
    shower = importlib.import_module(name)
    if is_sealed:
        shower.show(thing, directory, shower.View(step, full, raw, evidence_path, as_json))
    else:
        shower.show(thing, shower.Wish(step, full, raw, as_json))
    return 0
