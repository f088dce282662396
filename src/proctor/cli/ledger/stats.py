"""`proctor ledger stats`: prints counts and sizes per experiment."""

from functools import partial

import click
import msgspec

from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.plain_table import print_rows
from proctor.ledger.counting import RESTARTED, SHOWN
from proctor.ledger.stats import ExperimentStats, measure
from proctor.ledger.withheld import list_unnamed, render_unnamed
from proctor.sentence import count_of, render_size

_COLUMNS = (
    "experiment", "trials", "sealed", "diagnostic", "superseded", SHOWN[RESTARTED], "withheld",
    "records", "files", "plain", "on disk",
)  # fmt: skip


@click.command("stats")
@ledger_option
@json_option
def command(directory: str | None, as_json: bool) -> int:
    """Show counts and bytes per experiment.

    `records` are the entries of trials, `plain` is the uncompressed size of their evidence, `on
    disk` its compressed size. Identical files are stored once: each experiment counts the files
    that it names, the last line counts every file once.

    Example: proctor ledger stats
    """
    with open_ledger(directory) as ledger:
        stats = measure(ledger, partial(make_progress(), "entries"))
        unnamed = render_unnamed(list_unnamed(ledger))
    if as_json:
        print_json(msgspec.to_builtins(stats))
        return 0
    rows = [_row(each) for each in stats.experiments]
    if rows:
        rows.append(_row(stats.total))
        # Omit columns of statuses that no trial has.
        shown = [at for at in range(len(_COLUMNS)) if at == 0 or rows[-1][at] != "0"]
        headings = [_COLUMNS[at] for at in shown]
        cells = [[row[at] for at in shown] for row in rows]
        print_rows(headings, cells, right=headings[1:], dear=headings[1:])
        print_line()
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in stats.kinds.items())
    print_line(f"{stats.origin}: {count_of(stats.entries, 'entry', 'entries')} ({kinds})")
    if unnamed:
        print_line(f"note: {unnamed}")
    print_line(f"log {render_size(stats.log_bytes)}, index {render_size(stats.index_bytes)}")
    return 0


def _row(stats: ExperimentStats) -> tuple[str, ...]:
    statuses = (stats.sealed, stats.diagnostic, stats.superseded, stats.begun_again, stats.withheld)
    return (
        stats.experiment_id or "all",
        *(f"{number:,}" for number in (stats.trials, *statuses)),
        render_size(stats.entry_bytes),
        f"{stats.evidence_files:,}",
        render_size(stats.evidence_bytes),
        render_size(stats.compressed_bytes),
    )
