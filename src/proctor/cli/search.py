"""`proctor search`: searches all sealed traces, with the step of each match."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import click

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import check_apart, name_ledger, sample_option
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.stdout import print_stderr, send
from proctor.ledger.reader import LedgerReader
from proctor.ledger.trial_index import TrialFilter
from proctor.search.find import (
    COUNTED,
    Found,
    Hit,
    Marker,
    Page,
    TrialCount,
    count_by_trial,
    find_hits,
)
from proctor.search.index import SearchIndex
from proctor.search.query import Query, parse_query
from proctor.search.row import Row, is_change
from proctor.search.upkeep import Watch, ask_index, update_index
from proctor.sentence import printable

# Rendering of hits: usually two lines each, within 80 columns. Control characters of traces are
# escaped.


_INDENT = "    "
_NARROWEST = 40
_WIDEST = 200


def render_heading(found: Found, page: Page) -> str:
    """The number of matches, and which of them follow."""
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
    """The position of a hit, and the words around it."""
    snippet = marker.cut(hit.row, _width() - len(_INDENT))
    match = printable(snippet.match)
    if is_coloured and "NO_COLOR" not in os.environ:
        match = click.style(match, bold=True, fg="yellow")
    line = f"{_INDENT}{printable(snippet.before)}{match}{printable(snippet.after)}"
    return [printable("  ".join(_head(hit))), line]


def _head(hit: Hit) -> Iterator[str]:
    row = hit.row
    where = f"entry {hit.seq}" if hit.trial_id is None else f"{hit.experiment_id}/{hit.trial_id}"
    yield " ".join([where, *step_options(row)])
    if row.part and row.step is None and not is_change(row):
        yield f"in {row.part}"
    yield f"{row.role} {row.tool}" if row.tool else row.role
    if row.exit_code is not None:
        yield f"exit {row.exit_code}"


def step_options(row: Row) -> list[str]:
    """The options with which `proctor show` shows the step of a hit."""
    part = ["--part", row.part] if row.part else []
    if is_change(row):
        return ["--changes", *part]
    return [] if row.step is None else ["--step", str(row.step), *part]


def render_counts(shown: Sequence[TrialCount], matches: int, trials: int) -> Iterator[str]:
    """A line for each trial, with its count first."""
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


_LIMIT = 20
_MEGABYTE = 1_000_000
# Characters of a snippet in JSON.
_SNIPPET = 200


@click.command("search")
@click.argument("words", metavar="QUERY…", nargs=-1)
@ledger_option
@sample_option
@filter_options
@click.option(
    "--page", "number", type=click.IntRange(min=1, max=1_000_000), default=1,
    help="Show this page of results.  [default: 1]",
)  # fmt: skip
@click.option("--rank", is_flag=True, help="Sort by relevance instead of newest first.")
@click.option(
    "--exact", is_flag=True, help="Count and rank all matches, not only the newest 10,000."
)
@click.option(
    "--trials",
    "by_trial",
    is_flag=True,
    help="Print one line per trial, with its number of matches.",
)
@click.option(
    "--now", "is_now", is_flag=True, help="Search only what is indexed, and report what is not."
)
@click.option(
    "--update",
    "is_update",
    is_flag=True,
    help="Only update the index, at low priority; `run` and `ledger seal` start this after many "
    "trials.",
)
@json_option
def command(
    words: tuple[str, ...],
    directory: str | None,
    number: int,
    rank: bool,
    exact: bool,
    by_trial: bool,
    is_now: bool,
    is_update: bool,
    as_json: bool,
    wanted: TrialFilter,
) -> int:
    """Search all sealed traces for words, with the step of each match.

    All words must be in one entry: a message, a command, an output. "two words" in quotes are a
    phrase, and so is apt-get; instal* matches the beginning of a word; -word excludes a word; OR
    combines alternatives. role:tool_call, tool:bash, exit:0 and exit:!0 select entries; model:,
    task:, experiment: and trial: select trials. Case is ignored. A call has the exit code of its
    result.

    The search covers traces, and the roles instruction, answer, exception, verifier, change, review
    and note; a change is the path of a file that the agent changed. The most recently sealed trial
    comes first, and within it the last step. The index is updated from the ledger first; it is
    derived data and can be deleted.

    Example: proctor search role:tool_call apt-get exit:!0
    """
    for other in ("rank", "number", "exact"):
        check_apart("by_trial", other)
    if not words and not is_update:
        raise click.UsageError("Missing argument 'QUERY…', or --update.")
    if words and is_update:
        raise click.UsageError("--update cannot be combined with a QUERY")
    if is_update:
        return _update(directory)
    if not by_trial and (wanted.limit or 0) > COUNTED:
        raise click.UsageError(f"--limit {wanted.limit}; expected no more than {COUNTED} a page")
    query = parse_query(" ".join(words))
    page = Page(wanted.limit or _LIMIT, number, by_relevance=rank, exact=exact)
    chosen = replace(wanted, limit=None)
    with open_ledger(directory) as ledger:
        ledger.refresh()
        if by_trial:
            counts = _ask(
                ledger, lambda index: count_by_trial(ledger, index, query, chosen), is_now=is_now
            )
            _print_counts(counts, wanted.limit, as_json=as_json)
        else:
            found = _ask(
                ledger, lambda index: find_hits(ledger, index, query, chosen, page), is_now=is_now
            )
            _print_hits(found, page, query, directory, as_json=as_json)
    return 0


def _update(directory: str | None) -> int:
    with open_ledger(directory) as ledger:
        ledger.refresh()
        if not update_index(ledger, _make_watch()):
            print_stderr("proctor: another process is updating the index")
    return 0


def _make_watch() -> Watch:
    show = make_progress()

    def watch(done: int, total: int) -> None:
        show("MB of evidence indexed", done // _MEGABYTE, max(1, total // _MEGABYTE))

    return watch


def _ask[T](ledger: LedgerReader, ask: Callable[[SearchIndex], T], *, is_now: bool) -> T:
    """The answer of the index, with a note about what is not indexed."""

    def ask_and_tell(index: SearchIndex) -> T:
        size = ledger.index.size()
        if (behind := size - index.position().size) > 0:
            print_stderr(f"proctor: not searched: {behind:,} of {size:,} entries, not indexed yet")
        if problems := index.problems():
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            print_stderr(f"proctor: not searched: {printable(problems[0])}{more}")
        return ask(index)

    return ask_index(ledger, ask_and_tell, _make_watch(), is_now=is_now)


def _print_hits(
    found: Found, page: Page, query: Query, directory: str | None, *, as_json: bool
) -> None:
    marker = Marker(query.words)
    if as_json:
        print_json(
            {
                "matches": found.matches,
                "is_exact": found.is_exact,
                "trials": found.trials,
                "page": page.number,
                "hits": [_describe(hit, marker, directory) for hit in found.hits],
            }
        )
        return
    print_line(render_heading(found, page))
    for hit in found.hits:
        send("\n".join(["", *render_hit(hit, marker, is_coloured=sys.stdout.isatty())]))
    if found.hits:
        print_line()
        if page.skipped + len(found.hits) < found.matches:
            print_line(f"more: --page {page.number + 1}")
        print_line(f"show the first: {shlex.join(_show_command(found.hits[0], directory))}")


def _describe(hit: Hit, marker: Marker, directory: str | None) -> dict[str, object]:
    row, snippet = hit.row, marker.cut(hit.row, _SNIPPET)
    return {
        "experiment_id": hit.experiment_id,
        "trial_id": hit.trial_id,
        "entry": hit.seq,
        "part": row.part or None,
        "step": row.step,
        "role": row.role,
        "tool": row.tool,
        "exit_code": row.exit_code,
        "snippet": {"before": snippet.before, "match": snippet.match, "after": snippet.after},
        "show": _show_command(hit, directory),
    }


def _show_command(hit: Hit, directory: str | None) -> list[str]:
    """The command that shows a hit."""
    name = str(hit.seq) if hit.trial_id is None else f"{hit.experiment_id}/{hit.trial_id}"
    return ["proctor", "show", name, *step_options(hit.row), *name_ledger(directory)]


def _print_counts(counts: list[TrialCount], limit: int | None, *, as_json: bool) -> None:
    shown = counts[:limit]
    total = sum(count.matches for count in counts)
    if as_json:
        document = {
            "matches": total,
            "trials": len(counts),
            "by_trial": [
                {
                    "experiment_id": count.experiment_id,
                    "trial_id": count.trial_id,
                    "entry": count.seq,
                    "matches": count.matches,
                }
                for count in shown
            ],
        }
        print_json(document)
        return
    for line in render_counts(shown, total, len(counts)):
        print_line(line)
