"""A report as HTML: one page, or a site. Loaded on use."""

from collections.abc import Sequence
from pathlib import Path

from proctor.cli.ledger.progress import make_progress
from proctor.ledger.ledger import Ledger
from proctor.report.behaviour import Behaviour
from proctor.report.document.document import tell_report
from proctor.report.document.facts import ReportFacts
from proctor.report.page.html import Frame, render_page
from proctor.report.runs import Run
from proctor.report.site.pages import make_pages
from proctor.report.site.writing import write_site
from proctor.web.style import load_style


def render_html(facts: ReportFacts) -> str:
    """One page that needs nothing beside itself."""
    return render_page(tell_report(facts), Frame(load_style()))


def write_pages(
    place: Path,
    facts: ReportFacts,
    runs: Sequence[Run],
    behaviour: Behaviour,
    ledger: Ledger | None,
    read: Sequence[str],
) -> int:
    """Write a site; how many pages it has.

    Raises:
        InputError: something else is there, or it cannot be written.
    """
    pages = make_pages(facts, runs, behaviour, ledger, load_style(), make_progress())
    return write_site(place, pages, read)
