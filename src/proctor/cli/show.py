"""`proctor show`: shows a trial, its trace, a step, a record, or the trials of a job.

Modules for records and for sealed trials are imported only when needed, because finding one trial
among 100,000 must be fast.
"""

import contextlib
import importlib
import os
import re
from pathlib import Path

import click

from proctor.audit.file_kind import TRACES, FileKind, find_file_kind
from proctor.cli.options import LEDGER_HELP, PATH, check_apart, check_unused, sample_option
from proctor.cli.showing.options import Expression, Selection, ShowOptions, StepRange
from proctor.cli.showing.text import LONGEST
from proctor.cli.showing.trace import show_trace
from proctor.errors import InputError
from proctor.harbor.documents import is_trial
from proctor.sentence import count_of
from proctor.traces.entry import TraceKind

_NAMED = 3
_SIGNS = ("lock.json", "job.log", "result.json", "config.json")


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
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Show also what is written to the trace from now on.",
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
@sample_option
@click.option("--no-pager", is_flag=True, help="Do not use a pager, even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    thing: str,
    step: tuple[int, int] | None,
    errors: bool,
    tool: str | None,
    grep: re.Pattern[str] | None,
    follow: bool,
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

    --follow shows a trajectory, or what an agent's commands print, as it is written. THING is the
    file, or the directory of a running trial; if its agent has not begun, the command waits. A line
    that is not a valid entry is shown with what is wrong with it.

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
    if follow and directory is None and evidence_path is None and is_sealed:
        raise InputError(
            f"{thing}: no such file or directory; --follow shows a trace, or the directory of a "
            "trial, while it is written"
        )
    if is_sealed:
        check_unused("something sealed", failed=failed, follow=follow)
        importlib.import_module("proctor.cli.showing.sealed").show(thing, directory, options)
    elif follow:
        options.check_unused_for("--follow")
        check_unused("--follow", changes=changes, failed=failed, raw=raw, as_json=as_json)
        importlib.import_module("proctor.cli.showing.follow").follow(thing, is_full=full)
    else:
        _show_path(thing, options)
    return 0


def _show_path(thing: str, options: ShowOptions) -> None:
    kind = find_file_kind(thing)
    if kind is not FileKind.JOB:
        check_unused(f"a {kind}", failed=options.failed)
    if kind in TRACES:
        show_trace(thing, TraceKind(str(kind)), options)
    elif options.changes and kind in (FileKind.RECORD, FileKind.TRIAL):
        options.check_unchosen("--changes")
        check_apart("changes", "raw")
        check_apart("full", "as_json")
        importlib.import_module("proctor.cli.showing.files").show_changes_of(thing, options)
    elif kind is FileKind.RECORD:
        options.check_unused_for("a record")
        check_unused("a record", full=options.full)
        check_apart("raw", "as_json")
        # Imported late: records and trials are slow to import, and a trace needs neither.
        importlib.import_module("proctor.cli.showing.files").show_record(thing, options)
    elif kind is FileKind.TRIAL:
        check_unused("a trial that is not sealed", raw=options.raw)
        check_apart("full", "as_json")
        importlib.import_module("proctor.cli.showing.files").show_trial(thing, options)
    elif kind is FileKind.JOB:
        options.check_unused_for("a job")
        check_unused("a job", raw=options.raw, full=options.full, changes=options.changes)
        importlib.import_module("proctor.cli.showing.job").show_job(thing, options)
    else:
        expected = "expected a trace, a trial, a trial record or a job"
        raise InputError(f"{thing}: a {kind}; {expected}{_inside(thing)}")


def _inside(directory: str) -> str:
    """The jobs in a directory, for a message about it."""
    with contextlib.suppress(OSError):
        below = sorted(each for each in Path(directory).iterdir() if each.is_dir())
        jobs = [
            each
            for each in below
            if any((each / name).is_file() for name in _SIGNS) and not is_trial(str(each))
        ]
        if jobs:
            named = ", ".join(str(each) for each in jobs[:_NAMED])
            return f", such as {named} ({count_of(len(jobs), 'job')} in all)"
    return ""
