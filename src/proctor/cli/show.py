"""`proctor show`: shows a trial, its trace, a step, a record, or the trials of a job.

Modules for files and for sealed trials are imported only when needed, because finding one trial
among 100,000 must be fast.
"""

import importlib
import os
import re

import click

from proctor.cli.options import LEDGER_HELP, PATH, check_unused
from proctor.cli.selection import Expression, Selection, StepRange
from proctor.cli.showing import ShowOptions
from proctor.cli.trace_text import LONGEST


@click.command("show")
@click.argument("thing", type=PATH)
@click.option(
    "--step", type=StepRange(), help="Show only this step of a trace, or a range such as 3-7."
)
@click.option(
    "--errors", is_flag=True, help="Show only steps in which the result of a tool is an error."
)
@click.option("--tool", metavar="NAME", help="Show only steps that use this tool.")
@click.option(
    "--grep",
    type=Expression(),
    help="Show only steps with a text that matches this regular expression.",
)
@click.option("--part", metavar="NAME", help="Show only this part of a multi-step trial.")
@click.option("--changes", is_flag=True, help="Show only the paths that the agent changed.")
@click.option("--failed", is_flag=True, help="Show only the trials of a job that did not pass.")
@click.option("--full", is_flag=True, help=f"Show whole texts, not {LONGEST:,} characters of each.")
@click.option("--raw", is_flag=True, help="Print the bytes of a record exactly as stored.")
@click.option(
    "--evidence",
    "evidence_path",
    metavar="PATH",
    help="Print one file of the evidence of a sealed trial.",
)
@click.option("--ledger", "directory", type=PATH, help=LEDGER_HELP)
@click.option("--no-pager", is_flag=True, help="Do not use a pager, even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    thing: str,
    step: tuple[int, int] | None,
    errors: bool,
    tool: str | None,
    grep: re.Pattern[str] | None,
    part: str | None,
    changes: bool,
    failed: bool,
    full: bool,
    raw: bool,
    evidence_path: str | None,
    directory: str | None,
    no_pager: bool,
    as_json: bool,
) -> int:
    """Show a trial, its trace, one step, a record, or a job's trials.

    THING is a file (a trajectory.jsonl, a conversation.jsonl, an ATIF trajectory.json, a trial
    record), the directory of a trial or of a job, or something sealed: a trial id,
    EXPERIMENT/TRIAL, an entry number, the digest of a record, or a unique prefix of one. A file
    takes precedence. Unreadable parts are marked where they occur; to check a file, use
    `proctor check`.

    --step, --errors, --tool and --grep select steps, which are shown whole; a step must match all
    of the given options. Each turn of the assistant begins a new step of a conversation.

    A job is shown as a table of its trials with reward, outcome and time; `proctor show JOB/TRIAL`
    shows one of them. --failed leaves out those that passed.

    --changes lists the paths in a trial's environment that differ from its image: system paths, the
    working directory and homes as the agent left them, then what changed during verification.

    `proctor show TRIAL --raw | sha256sum` recomputes the digest of a sealed record.

    Example: proctor show jobs/2026-11-15__10-00-00/hello__AbCdEfg --errors
    """
    is_sealed = directory is not None or evidence_path is not None or not os.path.lexists(thing)
    selection = Selection(step, errors, tool, grep, part)
    options = ShowOptions(
        selection, full, raw, as_json, not no_pager, evidence_path, changes, failed
    )
    if is_sealed:
        check_unused("something sealed", failed=failed)
        importlib.import_module("proctor.cli.show_sealed").show(thing, directory, options)
    else:
        importlib.import_module("proctor.cli.show_file").show(thing, options)
    return 0
