"""`proctor export`: exports sealed trials in formats of other tools."""

from importlib import import_module
from pathlib import Path

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH, sample_option
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import InputError
from proctor.exchange.exporting import Exported, Exporter, Selection
from proctor.ledger.query import list_trials
from proctor.ledger.trial_index import TrialFilter
from proctor.sentence import count_of

_SOME_LEFT_OUT = 3
# The exporter of each format, imported on use.
_FORMS = {
    "bundle": "proctor.exchange.copies:export_bundle",
    "harbor": "proctor.exchange.copies:export_jobs",
    "aec-bench": "proctor.exchange.copies:export_records",
    "atif": "proctor.exchange.atif:export_trials",
    "inspect": "proctor.exchange.inspect.exporting:export_trials",
    "parquet": "proctor.exchange.parquet:export_trials",
}


@click.command("export")
@click.option(
    "-o", "--output", required=True, type=PATH, help="Write to this path; never overwrite anything."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_FORMS)),
    default="bundle",
    show_default=True,
    help="Output format.",
)
@ledger_option
@sample_option
@json_option
@filter_options
def command(
    output: str, form: str, directory: str | None, as_json: bool, wanted: TrialFilter
) -> int:
    """Export sealed trials in a format that other tools read.

    bundle (.tar.zst) contains the selected trials with their evidence, and every other entry
    without it: the recipient can check the signed root, and that only trials were left out. The
    records of those trials are readable in it; to share one trial alone, use
    `proctor ledger prove`. harbor is a directory of JOB/TRIAL with every file byte for byte as
    imported, and the job's own files. aec-bench is a directory of EXPERIMENT/TRIAL.json. atif is a
    directory of trajectory.json files that pass harbor's validator. inspect is a directory of .eval
    logs, which `inspect view` opens. parquet is a table, and needs proctor[parquet].

    For the last three, every field that is lost is listed in losses.jsonl in the directory, or in
    PATH.losses.jsonl beside the file. What the format cannot hold at all, such as a withheld trial,
    is reported and left out (exit code 3).

    Example: proctor export --experiment nightly -o nightly.tar.zst
    """
    export_trials = _load_exporter(form)
    with open_ledger(directory) as ledger:
        rows = list_trials(ledger, wanted)
        if not rows and form != "bundle":
            raise InputError(f"{ledger.where}: no trial matches these options")
        progress = make_progress()
        selection = Selection(
            ledger,
            rows,
            wanted == TrialFilter(),
            watch=lambda done: progress("trials", done, len(rows)),
        )
        exported = export_trials(selection, Path(output))
    if as_json:
        print_json(msgspec.to_builtins(exported))
    else:
        _print(exported)
    return _SOME_LEFT_OUT if exported.refused else 0


def _load_exporter(form: str) -> Exporter:
    try:
        module, _, name = _FORMS[form].partition(":")
        exporter: Exporter = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("proctor"):
            raise
        raise InputError(
            f"--format {form} needs {error.name}, which is not installed: "
            f"pip install 'proctor[{form}]'"
        ) from error
    return exporter


def _print(exported: Exported) -> None:
    line = f"{exported.output}: {count_of(exported.trials, 'trial')}"
    if exported.entries is not None:
        line += (
            f" of a ledger of {count_of(exported.entries, 'entry', 'entries')}, "
            f"{exported.left_out} left out, {count_of(exported.evidence or 0, 'file')} of evidence"
        )
    if exported.losses is not None:
        line += f"; {count_of(exported.losses, 'field')} lost: {exported.loss_report}"
    if exported.jobs is not None:
        line += f" of {count_of(exported.jobs, 'job')}"
    print_line(line)
    for sentence in exported.refused:
        print_line(f"left out: {sentence}")
