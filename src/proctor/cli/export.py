"""`proctor export`: sealed trials taken out, as a bundle, a tree of files, or Parquet."""

from importlib import import_module
from pathlib import Path

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import json_option, ledger_option, open_ledger
from proctor.cli.options import PATH
from proctor.cli.output import print_json, print_line
from proctor.errors import InputError
from proctor.ledger.exchange.aec_tree import write_tree
from proctor.ledger.exchange.bundle import write_bundle
from proctor.ledger.exchange.harbor_jobs import write_jobs
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import TrialFilter, TrialRow, find_trials
from proctor.sentence import count_of

_SOME_LEFT_OUT = 3


@click.command("export")
@click.option("-o", "--output", required=True, type=PATH, help="Where to; nothing is replaced.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["bundle", "harbor", "aec-bench", "parquet"]),
    default="bundle",
    show_default=True,
    help="One file that proves itself, harbor's jobs, a directory of records, or a table.",
)
@ledger_option
@json_option
@filter_options
def command(
    output: str, form: str, directory: str | None, as_json: bool, wanted: TrialFilter
) -> int:
    """Take sealed trials out: a bundle, harbor's jobs, aec-bench's tree, Parquet.

    A bundle (.tar.zst) holds the chosen trials with their evidence, and the leaf hash of every
    other entry: whoever gets it can check the signed root, and how many trials it leaves out.
    harbor's jobs are JOB/TRIAL with every file byte for byte as it was imported, and the job's own.
    aec-bench's tree is EXPERIMENT/TRIAL.json; what aec-bench could not read back, such as a
    reward that is null, is told and left out (exit 3). Parquet needs proctor[parquet].

    Example: proctor export --experiment nightly -o nightly.tar.zst
    """
    with open_ledger(directory) as ledger:
        rows = find_trials(ledger, wanted)
        if not rows and form != "bundle":
            raise InputError(f"{ledger.directory}: no trial is meant by these options")
        exported = _export(ledger, rows, Path(output), form, is_all=wanted == TrialFilter())
    if as_json:
        print_json(msgspec.to_builtins(exported))
    else:
        _print(exported)
    return _SOME_LEFT_OUT if exported.refused else 0


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out."""

    output: str
    trials: int
    entries: int | None = None
    """Of the whole ledger; only a bundle speaks of it."""
    left_out: int | None = None
    """Entries whose lines are not in the bundle."""
    evidence: int | None = None
    """Files of evidence in the bundle."""
    jobs: int | None = None
    """Directories of harbor's jobs."""
    refused: list[str] = []
    """A sentence for each record that the form cannot hold."""


def _export(
    ledger: Ledger, rows: list[TrialRow], target: Path, form: str, *, is_all: bool
) -> Exported:
    output = str(target)
    if form == "bundle":
        made = write_bundle(ledger, target, None if is_all else {row.seq for row in rows})
        return Exported(
            output=output,
            trials=made.trials,
            entries=made.size,
            left_out=made.left_out,
            evidence=made.artifacts,
        )
    if form == "harbor":
        jobs = write_jobs(ledger, [row.seq for row in rows], target)
        return Exported(output=output, trials=jobs.written, jobs=jobs.jobs, refused=jobs.refused)
    if form == "aec-bench":
        tree = write_tree(ledger, [row.seq for row in rows], target)
        return Exported(output=output, trials=tree.written, refused=tree.refused)
    _write_parquet(rows, target)
    return Exported(output=output, trials=len(rows))


def _print(exported: Exported) -> None:
    said = f"{exported.output}: {count_of(exported.trials, 'trial')}"
    if exported.entries is not None:
        said += (
            f" of a ledger of {count_of(exported.entries, 'entry', 'entries')}, "
            f"{exported.left_out} left out, {count_of(exported.evidence or 0, 'file')} of evidence"
        )
    if exported.jobs is not None:
        said += f" of {count_of(exported.jobs, 'job')}"
    print_line(said)
    for sentence in exported.refused:
        print_line(f"left out: {sentence}")


def _write_parquet(rows: list[TrialRow], target: Path) -> None:
    try:
        parquet = import_module("proctor.ledger.exchange.parquet")
    except ModuleNotFoundError as error:
        raise InputError(
            "--format parquet needs pyarrow, which is not installed: pip install 'proctor[parquet]'"
        ) from error
    parquet.write_parquet(rows, target)
