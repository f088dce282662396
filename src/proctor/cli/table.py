"""Prints tables. Separate from `output`, because rich is slow to import."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.cli.stdout import send
from proctor.sentence import printable


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, fold: Sequence[str]
) -> None:
    """Print rows under headings, as wide as the terminal; only foldable columns are wrapped."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        heading = Text(printable(column))
        table.add_column(heading, overflow="fold", no_wrap=column not in fold)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        send(line.rstrip())
