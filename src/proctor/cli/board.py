"""`proctor board`: the scores of all agents on a dataset, at a position of a ledger."""

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import click
import msgspec

from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.options import check_apart, check_companions, sample_option
from proctor.cli.output import json_option, print_json, print_line, terminal_width
from proctor.cli.stdout import print_stderr
from proctor.cli.tables import draw_rows, print_rows
from proctor.errors import InputError
from proctor.ledger.reader import LedgerReader
from proctor.record.reasons import NO_NUMBER
from proctor.report.board.document import describe_board, describe_cells, describe_trials
from proctor.report.board.making import list_datasets, make_board
from proctor.report.board.model import Board, BoardRow, BoardSection, PolicyCheck
from proctor.report.board.text import (
    FIRST,
    HEADINGS,
    NUMBERS,
    headings_of,
    render_basis,
    render_brief,
    render_cells,
    render_heading,
    render_notes,
    render_parts,
    render_remarks,
    render_title,
    render_withheld,
    split_rows,
)
from proctor.report.page.markdown import escape, render_table
from proctor.sentence import count_of

# Columns without a terminal: fixed, so that the output is the same everywhere.
_WIDTH = 100
_NARROWEST = 40
_INDENT = " " * 5
# Cells that a row may lack; every row has their columns anyway.
_PARTS = {
    "policy": ("policy", "passed"),
    "score_interval": ("low", "high"),
    "pass_interval": ("low", "high"),
    "pass_at_k": ("k", "value", "n_tasks", "n_trials"),
}
_FORMS = ("as_json", "as_markdown", "as_csv", "trials_of")


@click.command("board")
@click.option(
    "--dataset",
    metavar="NAME",
    help="Show the board of this dataset. Without it, list the datasets.",
)
@click.option(
    "--at", type=int, metavar="SIZE", help="Show the board as it was when the log had SIZE entries."
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    help="Check the experiments against a policy, and mark the rows.",
)
@click.option(
    "--trials",
    "trials_of",
    metavar="ROW",
    help="Show all details of one row, such as 1.2, and its trials.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line per row.")
@ledger_option
@sample_option
@json_option
def command(
    dataset: str | None,
    at: int | None,
    policy: str | None,
    trials_of: str | None,
    as_markdown: bool,
    as_csv: bool,
    directory: str | None,
    as_json: bool,
) -> int:
    """Show every agent's score on a dataset, and what it is based on.

    A board is computed from the ledger alone: the same position always gives the same bytes. A row
    is one agent with one model and one configuration. Runs under different conditions (limits,
    multipliers, images, task revisions, scoring rules) are listed in separate sections. The score
    is harbor's mean, in which a missing reward counts as 0. --json lists every trial of every cell,
    with its digest.

    --policy checks every experiment that a row is based on, as `proctor check --policy` does, and
    marks the row with the result. It changes no number.

    Example: proctor board --dataset terminal-bench@2.1
    """
    _check_forms()
    with open_ledger(directory) as ledger:
        if dataset is None:
            return _list(ledger, as_json=as_json)
        board = make_board(ledger, dataset, at=at, policy_check=_open_policy_check(ledger, policy))
        if as_json:
            print_json(describe_board(board))
        elif as_csv:
            _print_csv(board)
            for note in render_withheld(board.trials):
                print_stderr(f"note: {note}")
        elif as_markdown:
            for line in _render_markdown(board):
                print_line(line)
        elif trials_of is not None:
            _print_trials(board, trials_of)
        else:
            _print(board)
    return 0


def _open_policy_check(ledger: LedgerReader, policy: str | None) -> PolicyCheck | None:
    if policy is None:
        return None
    # Imported late: policy checks are slow to import, and most boards have none.
    module = import_module("proctor.report.board.policies")
    policy_check: PolicyCheck = module.LedgerPolicyCheck(ledger, policy)
    return policy_check


def _check_forms() -> None:
    names = ("at", "policy", "trials_of", "as_markdown", "as_csv")
    check_companions(dict.fromkeys(names, "dataset"))
    for place, first in enumerate(_FORMS):
        for second in _FORMS[place + 1 :]:
            check_apart(first, second)


def _list(ledger: LedgerReader, *, as_json: bool) -> int:
    found = list_datasets(ledger)
    if as_json:
        print_json({"datasets": msgspec.to_builtins(found)})
    elif found:
        rows = [(each.dataset, f"{each.trials:,}", f"{each.experiments:,}") for each in found]
        print_rows(("dataset", "trials", "experiments"), rows, right=("trials", "experiments"))
    else:
        print_line("no trial of a dataset is sealed yet")
    return 0


def _print(board: Board) -> None:
    print_line(render_title(board))
    for section in board.sections:
        print_line()
        print_line(render_heading(section))
        for sentence in section.apart:
            print_line(f"   {sentence}")
        for title, rows in split_rows(section.rows):
            print_line()
            if title:
                print_line(title)
            _print_rows(section, rows)
    for note in render_notes(board):
        print_line()
        print_line(f"note: {note}")


def _print_rows(section: BoardSection, rows: Sequence[BoardRow]) -> None:
    """Print each row, and below it one line of what its columns leave out."""
    cells = [dict(zip(HEADINGS, render_cells(row, section), strict=False)) for row in rows]
    chosen = [[cell[name] for name in FIRST] for cell in cells]
    heading, *lines = draw_rows(FIRST, chosen, right=NUMBERS, dear=NUMBERS)
    print_line(heading)
    width = max(terminal_width() or _WIDTH, _NARROWEST)
    for row, line in zip(rows, lines, strict=True):
        print_line(line)
        print_line(f"{_INDENT}{render_brief(row, section, width - len(_INDENT))}")


def _render_markdown(board: Board) -> Iterator[str]:
    yield f"# {escape(render_title(board))}"
    for section in board.sections:
        yield from ("", f"## {escape(render_heading(section))}")
        yield from (line for sentence in section.apart for line in ("", escape(sentence)))
        for title, rows in split_rows(section.rows):
            yield from ("", f"**{title}**") if title else ()
            yield ""
            headings = headings_of(board)
            cells = (render_cells(row, section) for row in rows)
            rights = [heading in NUMBERS for heading in headings]
            yield from render_table(headings, cells, rights=rights)
            yield ""
            for row in rows:
                text = "; ".join([render_parts(row), *render_remarks(row)])
                yield f"- {row.number}: {escape(text)}"
    for note in render_notes(board):
        yield from ("", f"Note: {escape(note)}")


def _print_csv(board: Board) -> None:
    text = io.StringIO()
    lines = [_flatten(section, row) for section in board.sections for row in section.rows]
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    for line in text.getvalue().splitlines():
        print_line(line)


def _flatten(section: BoardSection, row: BoardRow) -> dict[str, object]:
    """The cells of a row with full precision; unknown values are empty."""
    cells = {
        name: dict.fromkeys(_PARTS[name]) if name in _PARTS and value is None else value
        for name, value in describe_cells(row).items()
    }
    flat: dict[str, object] = {"section": section.number}
    for name, value in cells.items():
        match value:
            case dict() if name in ("findings", "reviews", "below_grade"):
                flat[name] = " ".join(f"{key}={number}" for key, number in value.items())
            case dict():
                parts = _PARTS.get(name) or [key for key in value if _is_plain(value[key])]
                flat |= {f"{name}.{key}": value[key] for key in parts}
            case list():
                flat[name] = " ".join(map(str, value))
            case _:
                flat[name] = value
    return flat


def _is_plain(value: object) -> bool:
    return not isinstance(value, dict | list)


def _print_trials(board: Board, number: str) -> None:
    rows = {row.number: row for row in board.rows}
    if number not in rows:
        last = list(rows)[-1]
        raise InputError(f"--trials is {number!r}; expected a row of this board, 1.1 to {last}")
    row = rows[number]
    print_line(f"{row.agent} {row.model}")
    section = next(each for each in board.sections if row in each.rows)
    width = max(terminal_width() or _WIDTH, _NARROWEST)
    for sentence in render_basis(row, section):
        for part in textwrap.wrap(sentence, width - len(_INDENT), break_on_hyphens=False):
            print_line(f"{_INDENT}{part}")
    headings = ("seq", "trial", "task", "status", "reward", "record")
    documents = describe_trials(row, board.trials)
    print_rows(headings, [_trial_cells(each) for each in documents], right=("seq", "reward"))
    print_line(count_of(len(documents), "trial"))


def _trial_cells(trial: dict[str, Any]) -> list[str]:
    reward = trial["reason"] or NO_NUMBER if trial["reward"] is None else str(trial["reward"])
    status = trial["status"]
    if stand_in := trial.get("superseded_by"):
        status = f"{status} ({stand_in['cause']}, by {stand_in['by']})"
    return [str(trial["seq"]), trial["trial"], trial["task"] or "", status, reward, trial["record"]]
