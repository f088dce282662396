"""`proctor report`: writes a report about runs, as one document or a site."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import click
import msgspec

from proctor.cli.compare import opened_for
from proctor.cli.ledger.options import choose_directory, ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH, STDOUT, check_apart, sample_option
from proctor.cli.output import json_option, print_json, print_line, terminal_width, write_file
from proctor.cli.stdout import print_stderr, send
from proctor.harbor.render import render_json
from proctor.ledger.reader import LedgerReader
from proctor.report.behaviour import Behaviour, summarise_trials
from proctor.report.document.document import render_report
from proctor.report.document.facts import ReportFacts, gather_facts
from proctor.report.page.markdown import render_markdown
from proctor.report.page.text import render_text
from proctor.report.runs import Run, load_run
from proctor.sentence import count_of, printable

_FORMATS: Final = ("text", "markdown", "html", "json")
_SUFFIXES: Final = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}


@click.command("report")
@click.argument("things", metavar="RUN...", nargs=-1, required=True, type=PATH)
@ledger_option
@sample_option
@click.option(
    "--format", "face", type=click.Choice(_FORMATS),
    help="Output format.  [default: by the file name of -o, else text]",
)  # fmt: skip
@click.option("-o", "--output", type=PATH, help="Write the report to this file.  [default: stdout]")
@click.option(
    "--site", type=PATH, help="Write a site, with a page per trial, into this new directory."
)
@click.option(
    "--no-behaviour", is_flag=True, help="Skip the traces: report only scores, time and cost."
)
@json_option
def command(
    things: tuple[str, ...],
    directory: str | None,
    face: str | None,
    output: str | None,
    site: str | None,
    no_behaviour: bool,
    as_json: bool,
) -> int:
    """Write a report about runs, as one document or a site of pages.

    The report shows what was run, the results, their uncertainty and what they are based on. A RUN
    is an experiment in a ledger, or the directory of a harbor job. HTML is one self-contained file,
    including plots. --site writes pages that open from a disk or any static host: the report, and
    one page per trial with its score, its trace and the output of its verifier.

    Example: proctor report nightly -o nightly.html
    """
    _check_asked()
    with opened_for(things, directory) as ledger:
        is_named = directory is not None
        runs = [load_run(thing, ledger, prefers_ledger=is_named) for thing in things]
        behaviour = None if no_behaviour else _read_traces(runs, ledger)
        facts = gather_facts(runs, behaviour)
        read = [thing for thing in things if os.path.lexists(thing)]
        read += [str(choose_directory(directory))] if ledger is not None else []
        if site is not None and behaviour is not None:
            # Imported late: HTML is slow to import, and most reports are text.
            pages = import_module("proctor.cli.report_html").write_pages(
                Path(site), facts, runs, behaviour, ledger, read
            )
            return _tell_site(Path(site), pages, as_json=as_json)
    _deliver(facts, "json" if as_json else face or _face_of(output), output, read)
    return 0


def _deliver(facts: ReportFacts, face: str, output: str | None, read: Sequence[str]) -> None:
    if output is None or output == STDOUT:
        _print(facts, face)
        return
    write_file(Path(output), _render(facts, face).encode("utf-8", "backslashreplace"), read)
    print_stderr(f"{printable(output)}: the report, as {face}")


def _check_asked() -> None:
    for first, second in (
        ("site", "output"),
        ("site", "face"),
        ("as_json", "face"),
        ("site", "no_behaviour"),
    ):
        check_apart(first, second)


def _face_of(output: str | None) -> str:
    return _SUFFIXES.get(Path(output).suffix.lower(), "text") if output is not None else "text"


def _read_traces(runs: Sequence[Run], ledger: LedgerReader | None) -> Behaviour:
    attempts = {each.name: each for run in runs for each in run.trials}
    return summarise_trials(list(attempts.values()), ledger, make_progress())


def _print(facts: ReportFacts, face: str) -> None:
    if face == "json":
        print_json(msgspec.to_builtins(facts))
    elif face == "text":
        for line in render_text(render_report(facts), terminal_width()):
            print_line(line)
    else:
        send(_render(facts, face).rstrip("\n"))


def _render(facts: ReportFacts, face: str) -> str:
    """Render a report as the content of a file."""
    match face:
        case "json":
            return render_json(msgspec.to_builtins(facts), indent=2) + "\n"
        case "markdown":
            return render_markdown(render_report(facts))
        case "html":
            page: str = import_module("proctor.cli.report_html").render_html(facts)
            return page
        case _:
            return "\n".join(render_text(render_report(facts), None)) + "\n"


def _tell_site(place: Path, pages: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        print_json({"site": str(place), "pages": len(pages)})
    else:
        index = printable(str(place / "index.html"))
        trials = sum(each.startswith("trials/") for each in pages)
        print_line(f"{index}: the report, and {count_of(trials, 'page')} of trials")
    return 0
