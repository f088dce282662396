"""The front page: all experiments or jobs, the newest first."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.ledger.reader import LedgerReader
from proctor.ledger.withheld import list_unnamed, render_unnamed
from proctor.web.experiment import list_experiments
from proctor.web.job_files import JobFiles, JobSummary
from proctor.web.listing import make_pages, read_page, read_words
from proctor.web.pages import render_page
from proctor.web.shelf import JobShelf
from proctor.web.subject import Subject

_ON_A_PAGE = 50
_METRICS = 3


@dataclass(frozen=True, slots=True)
class _ListedJob:
    name: str
    about: JobSummary
    changed_at: float

    @property
    def metrics(self) -> list[tuple[str, str]]:
        """The first metrics in result.json."""
        return list(self.about.published.items())[:_METRICS]

    @property
    def further(self) -> int:
        """Number of further metrics."""
        return max(len(self.about.published) - _METRICS, 0)


def _show_index(request: Request) -> Response:
    subject: Subject = request.app.state.subject
    words, number = read_words(request.query_params, "q"), read_page(request.query_params)
    with subject.opened() as ledger:
        total, rows = (
            _page_of_jobs(subject.shelf, words, number)
            if ledger is None
            else _page_of_sealed(ledger, words, number)
        )
        disclosed = None if ledger is None else render_unnamed(list_unnamed(ledger))
    return render_page(
        "index.html",
        title="Experiments" if subject.ledger else "Jobs",
        is_sealed=subject.ledger is not None,
        words=words,
        disclosed=disclosed,
        total=total,
        rows=rows,
        pages=make_pages("/", {"q": words}, number, -(-total // _ON_A_PAGE)),
    )


def _page_of_sealed(ledger: LedgerReader, words: str, number: int) -> tuple[int, list[object]]:
    first = (number - 1) * _ON_A_PAGE
    total, rows = list_experiments(ledger, words=words, first=first, count=_ON_A_PAGE)
    if not rows and total:
        first = (total - 1) // _ON_A_PAGE * _ON_A_PAGE
        total, rows = list_experiments(ledger, words=words, first=first, count=_ON_A_PAGE)
    return total, list(rows)


def _page_of_jobs(shelf: JobShelf, words: str, number: int) -> tuple[int, list[object]]:
    jobs = [job for job in shelf.all() if words.lower() in job.directory.name.lower()]
    dated = sorted(((job.changed_at(), job.directory.name, job) for job in jobs), key=_order)
    first = min(number - 1, max(len(dated) - 1, 0) // _ON_A_PAGE) * _ON_A_PAGE
    page = dated[first : first + _ON_A_PAGE]
    return len(dated), [_ListedJob(name, job.glance(), at) for at, name, job in page]


def _order(dated: tuple[float, str, JobFiles]) -> tuple[float, str]:
    return -dated[0], dated[1]


routes: list[BaseRoute] = [Route("/", _show_index, name="index")]
