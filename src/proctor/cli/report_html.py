"""Reports as HTML: one page, or a site. Imported on use."""

from collections.abc import Sequence
from pathlib import Path

from proctor.cli.ledger.progress import make_progress
from proctor.ledger.reader import LedgerReader
from proctor.report.behaviour import Behaviour
from proctor.report.document.document import render_report
from proctor.report.document.facts import ReportFacts
from proctor.report.page.html import render_page
from proctor.report.runs import Run
from proctor.web.export import make_pages, write_site
from proctor.web.pages import load_style


def render_html(facts: ReportFacts) -> str:
    """Render a self-contained page."""
    return render_page(render_report(facts), load_style())


def write_pages(
    place: Path,
    facts: ReportFacts,
    runs: Sequence[Run],
    behaviour: Behaviour,
    ledger: LedgerReader | None,
    read: Sequence[str],
) -> list[str]:
    """Write a site; returns the names of its pages."""
    pages = make_pages(facts, runs, behaviour, ledger, make_progress())
    return write_site(place, pages, read)
