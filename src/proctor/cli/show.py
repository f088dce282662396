"""`proctor show`: a trial, its trace, a step of it, or a record, readable.

What shows files and what shows sealed trials are loaded only when they are needed: a trial among a
hundred thousand is to be found at once.
"""

import importlib
import os
import re

import click

from proctor.cli.options import PATH
from proctor.cli.selection import Expression, Selection, StepRange
from proctor.cli.showing import Wish
from proctor.cli.trace_text import LONGEST


@click.command("show")
@click.argument("thing", type=PATH)
@click.option("--step", type=StepRange(), help="Only this step of a trace, or these: 3-7.")
@click.option("--errors", is_flag=True, help="Only steps in which a tool's result is an error.")
@click.option("--tool", metavar="NAME", help="Only steps that use this tool.")
@click.option("--grep", type=Expression(), help="Only steps with a text that this is found in.")
@click.option("--part", metavar="NAME", help="Only this part of a trial of several steps.")
@click.option("--changes", is_flag=True, help="Only what the agent changed, path by path.")
@click.option("--full", is_flag=True, help=f"Whole texts, not {LONGEST:,} characters of each.")
@click.option("--raw", is_flag=True, help="The bytes of a record, exactly as they are stored.")
@click.option(
    "--evidence", "evidence_path", metavar="PATH", help="One file of a sealed trial's evidence."
)
@click.option(
    "--ledger", "directory", type=PATH, help="The ledger.  [default: PROCTOR_LEDGER, ./ledger]"
)
@click.option("--no-pager", is_flag=True, help="Print it, also where there is a screen.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    thing: str,
    step: tuple[int, int] | None,
    errors: bool,
    tool: str | None,
    grep: re.Pattern[str] | None,
    part: str | None,
    changes: bool,
    full: bool,
    raw: bool,
    evidence_path: str | None,
    directory: str | None,
    no_pager: bool,
    as_json: bool,
) -> int:
    """Show a trial, its trace, a step of it, or a record, readable.

    THING is a file (a trajectory.jsonl, a conversation.jsonl, an ATIF trajectory.json, a trial
    record), the directory of a trial, or something sealed: a trial's id, EXPERIMENT/TRIAL, the
    number of an entry, the digest of a record, or the beginning of one that fits no other. A file
    goes first. What cannot be read of it is said where it stands; `proctor check` judges it.

    --step, --errors, --tool and --grep choose steps, which are shown whole; given together, all of
    them have to fit. A step of a conversation begins with each turn of the assistant.

    --changes lists the paths of a trial's environment that differ from its image: system paths,
    the working directory and homes as the agent left them, then what changed during verification.

    `proctor show TRIAL --raw | sha256sum` recomputes the digest of a sealed record.

    Example: proctor show jobs/2026-11-15__10-00-00/hello__AbCdEfg --errors
    """
    is_sealed = directory is not None or evidence_path is not None or not os.path.lexists(thing)
    selection = Selection(step, errors, tool, grep, part)
    wish = Wish(selection, full, raw, as_json, not no_pager, evidence_path, changes)
    if is_sealed:
        importlib.import_module("proctor.cli.show_sealed").show(thing, directory, wish)
    else:
        importlib.import_module("proctor.cli.show_file").show(thing, wish)
    return 0
