"""What a search found as text for people: two lines a hit, within 80 columns as a rule.

Nothing is printed here, and no control character of a trace gets through.
"""

import os
import shutil
from collections.abc import Iterator, Sequence

import click

from proctor.cli.printable import printable
from proctor.search.find import Found, Hit, Page, TrialCount
from proctor.search.row import Row, is_change
from proctor.search.snippet import Marker

_INDENT = "    "
_NARROWEST = 40
_WIDEST = 200


def render_heading(found: Found, page: Page) -> str:
    """How many there are, and which of them follow."""
    if not found.matches:
        return "no match"
    counted = _count(found.matches, "match", "matches", is_exact=found.is_exact)
    trials = _count(found.trials, "trial", "trials", is_exact=found.is_exact)
    heading = f"{counted} in {trials}"
    if not found.hits:
        return f"{heading}; none on page {page.number}"
    order = "the most relevant" if page.by_relevance else "newest"
    last = page.skipped + len(found.hits)
    shown = "" if last == found.matches and page.number == 1 else f"; {page.skipped + 1} to {last}"
    return f"{heading}, {order} first{shown}"


def render_hit(hit: Hit, marker: Marker, *, is_coloured: bool) -> list[str]:
    """Where it is, and the words around it."""
    snippet = marker.cut(hit.row, _width() - len(_INDENT))
    match = printable(snippet.match)
    if is_coloured and "NO_COLOR" not in os.environ:
        match = click.style(match, bold=True, fg="yellow")
    line = f"{_INDENT}{printable(snippet.before)}{match}{printable(snippet.after)}"
    return [printable("  ".join(_head(hit))), line]


def _head(hit: Hit) -> Iterator[str]:
    row = hit.row
    where = f"entry {hit.seq}" if hit.trial_id is None else f"{hit.experiment_id}/{hit.trial_id}"
    yield " ".join([where, *name_step(row)])
    if row.part and row.step is None and not is_change(row):
        yield f"in {row.part}"
    yield f"{row.role} {row.tool}" if row.tool else row.role
    if row.exit_code is not None:
        yield f"exit {row.exit_code}"


def name_step(row: Row) -> list[str]:
    """The options that make `proctor show` show the step of a hit, of its part of the trial."""
    part = ["--part", row.part] if row.part else []
    if is_change(row):
        return ["--changes", *part]
    return [] if row.step is None else ["--step", str(row.step), *part]


def render_counts(shown: Sequence[TrialCount], matches: int, trials: int) -> Iterator[str]:
    """A line a trial, the count first."""
    if not matches:
        yield "no match"
        return
    total = _count(matches, "match", "matches", is_exact=True)
    yield f"{total} in {_count(trials, 'trial', 'trials', is_exact=True)}, newest first"
    yield ""
    width = max(len(f"{count.matches:,}") for count in shown)
    for count in shown:
        is_trial = count.trial_id is not None
        name = f"{count.experiment_id}/{count.trial_id}" if is_trial else f"entry {count.seq}"
        yield f"{count.matches:>{width},}  {name}"


def _count(number: int, one: str, many: str, *, is_exact: bool) -> str:
    if not is_exact:
        return f"{number:,}+ {many}"
    return f"{number:,} {one if number == 1 else many}"


def _width() -> int:
    return max(_NARROWEST, min(shutil.get_terminal_size((80, 24)).columns, _WIDEST))
