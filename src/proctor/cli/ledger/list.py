"""`proctor ledger list`: lists sealed trials as a table, CSV or JSON."""

import csv
import io
import json
from collections.abc import Sequence

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.options import check_apart, sample_option
from proctor.cli.output import json_option
from proctor.cli.stdout import send, send_bytes
from proctor.cli.tables import print_rows
from proctor.ledger import counting
from proctor.ledger.query import list_trials
from proctor.ledger.row import PUBLIC, TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.record.reasons import outcome_of
from proctor.sentence import printable, render_figure

# Columns of the list


NAMES = tuple(PUBLIC)
"""All columns."""
SHOWN = ("seq", "experiment_id", "trial_id", "model", "reward", "status", "review")
"""The default columns."""
NUMBERS = ("seq", "reward", "evidence_files", "evidence_bytes")
_HEADINGS = {"experiment_id": "experiment", "trial_id": "trial", "task_id": "task"}
_HEADINGS |= {"dataset_id": "dataset", "reason_code": "reason", "harness": "agent"}


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Parse a comma-separated list of columns; None if there is none.

    Raises:
        UsageError: there is no such column, or one stands there twice.
    """
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    long = {short: name for name, short in _HEADINGS.items()}
    found = tuple(long.get(name, name) for name in names)
    for name, given in zip(found, names, strict=True):
        if name not in NAMES:
            raise click.UsageError(f"--columns {given!r}; expected some of {', '.join(NAMES)}")
    if len(set(found)) != len(found):
        raise click.UsageError(f"--columns {text!r}: a column occurs twice")
    return found


def heading_of(column: str) -> str:
    """The heading of a column."""
    return _HEADINGS.get(column, column)


def cells_of(row: TrialRow, columns: Sequence[str]) -> list[str]:
    """The cells of a row for people: a dash for unknown values, and why there is no reward."""
    return [_render(row, column) for column in columns]


def _render(row: TrialRow, column: str) -> str:
    value = getattr(row, PUBLIC[column])
    if column == "status":
        return counting.SHOWN.get(row.status, row.status)
    if value is not None:
        return render_figure(value) if column == "reward" else str(value)
    return outcome_of(row) if column == "reward" and row.status != counting.WITHHELD else "-"


@click.command("list")
@ledger_option
@sample_option
@filter_options
@click.option("--columns", metavar="A,B,…", help=f"Columns to show: {', '.join(NAMES)}.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print one JSON object per line.")
@json_option
def command(
    directory: str | None,
    columns: str | None,
    as_csv: bool,
    as_jsonl: bool,
    as_json: bool,
    wanted: TrialFilter,
) -> int:
    """List sealed trials, in the order they were sealed.

    Without a reward, a trial is `not scored`, or scored `without a number`: null in CSV and JSON,
    which is not 0; a reward range excludes both. A partial record is `diagnostic`. An earlier
    attempt that does not count is `restarted`, in CSV and JSON `begun again`. A trial whose bytes
    were withheld keeps its ids and its digest. An entry that was withheld without naming a trial is
    a row without ids in CSV and JSON, and a note. `review` is the latest verdict; `proctor show
    TRIAL` shows all of them.

    Example: proctor ledger list --experiment nightly --where reward=0.5.. --json
    """
    for first, second in (("as_csv", "as_json"), ("as_csv", "as_jsonl"), ("as_json", "as_jsonl")):
        check_apart(first, second)
    chosen = parse_columns(columns)
    with open_ledger(directory) as ledger:
        rows = list_trials(ledger, wanted)
    if as_json or as_jsonl:
        _print_documents(rows, chosen or NAMES, is_lines=as_jsonl)
    elif as_csv:
        _print_csv(rows, chosen or NAMES)
    else:
        _print_table(rows, chosen or _find_shown(rows, wanted), wanted)
    return 0


def _find_shown(rows: Sequence[TrialRow], wanted: TrialFilter) -> list[str]:
    """The default columns, without those that are equal in all rows."""
    empty = {"experiment_id"} if wanted.experiment is not None else set()
    if all(row.review is None for row in rows):
        empty.add("review")
    return [name for name in SHOWN if name not in empty]


def _print_documents(rows: Sequence[TrialRow], columns: Sequence[str], *, is_lines: bool) -> None:
    encoder = msgspec.json.Encoder()
    lines = [_spell(encoder.encode(row.public(columns)).decode()) for row in rows]
    if is_lines:
        send_bytes("".join(f"{line}\n" for line in lines).encode())
    else:
        # One line for each trial, so that people can read a long list too.
        send("[\n  " + ",\n  ".join(lines) + "\n]" if lines else "[]")


def _spell(line: str) -> str:
    """JSON with control characters escaped for terminals."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def _print_csv(rows: Sequence[TrialRow], columns: Sequence[str]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(row.public(columns).values() for row in rows)
    printed = text.getvalue().removesuffix("\n")
    send("\n".join(map(printable, printed.split("\n"))))


def _print_table(rows: Sequence[TrialRow], columns: Sequence[str], wanted: TrialFilter) -> None:
    if not rows:
        send("no trial is sealed yet" if wanted == TrialFilter() else "no trial matches")
        return
    right = [heading_of(name) for name in NUMBERS]
    headings = [heading_of(name) for name in columns]
    cells = [cells_of(row, columns) for row in rows]
    print_rows(headings, cells, right=right, dear=[heading_of("trial_id"), *right])
