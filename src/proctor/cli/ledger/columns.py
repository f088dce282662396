"""What a list shows of a trial, column by column."""

from collections.abc import Sequence

import click

from proctor.ledger.row import PUBLIC, TrialRow

NAMES = tuple(PUBLIC)
"""Every column there is."""
SHOWN = ("seq", "experiment_id", "trial_id", "model", "reward", "status", "review")
"""What people see unless they ask for others."""
NUMBERS = ("seq", "reward", "evidence_files", "evidence_bytes")
_HEADINGS = {"experiment_id": "experiment", "trial_id": "trial", "task_id": "task"}
_HEADINGS |= {"dataset_id": "dataset", "reason_code": "reason", "harness": "agent"}


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """The columns of a comma-separated list; None for none.

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
        raise click.UsageError(f"--columns {text!r}: a column stands there twice")
    return found


def heading_of(column: str) -> str:
    """What people see over a column."""
    return _HEADINGS.get(column, column)


def cells_of(row: TrialRow, columns: Sequence[str]) -> list[str]:
    """A row for people: what is not known is a dash, a missing reward is said."""
    return [_render(row, column) for column in columns]


def _render(row: TrialRow, column: str) -> str:
    value = getattr(row, PUBLIC[column])
    if value is not None:
        return str(value)
    return "not scored" if column == "reward" and row.status != "withheld" else "-"
