"""The front page: all experiments or jobs, the newest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.report.board.text import render_cost
from proctor.web.bars import draw_bar, find_scale
from proctor.web.data_source import DataSource
from proctor.web.experiment import Listed, list_experiments
from proctor.web.format import show_score
from proctor.web.job_directories import JobDirectories, JobFiles, JobSummary
from proctor.web.listing import make_pages, read_page, read_words
from proctor.web.pages import render_page, render_text

_ON_A_PAGE = 50
_METRICS = 3


@dataclass(frozen=True, slots=True)
class _ListedJob:
    name: str
    about: JobSummary
    live_cost: float | None
    """What its trials without a result have cost so far."""
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
    source: DataSource = request.app.state.source
    words, number = read_words(request.query_params, "q"), read_page(request.query_params)
    with source.opened() as ledger:
        if ledger is None:
            shown = _render_jobs(source.directories, words, number)
        else:
            with snapshot(ledger) as size:
                key = ("index", size, words, number)
            # A page of large experiments takes a while: their intervals are resampled.
            shown = source.kept.find_or_make(key, lambda: _render_sealed(ledger, words, number))
    return render_page(
        "index.html",
        title="Experiments" if source.ledger else "Jobs",
        is_sealed=source.ledger is not None,
        words=words,
        shown=shown,
    )


def _render_sealed(ledger: LedgerReader, words: str, number: int) -> Markup:
    total, rows = _page_of_sealed(ledger, words, number)
    return _render(
        words,
        number,
        total,
        is_sealed=True,
        rows=rows,
        dataset=_find_dataset(rows),
        bar=draw_bar,
        scale=find_scale([row.numbers for row in rows]),
        words_for={"score": show_score, "cost": render_cost},
    )


def _find_dataset(rows: Sequence[Listed]) -> str | None:
    """The dataset that all of them have in common."""
    datasets = {each for row in rows for each in row.datasets or ("",)}
    return (datasets.pop() or None) if len(datasets) == 1 else None


def _render_jobs(directories: JobDirectories, words: str, number: int) -> Markup:
    total, rows = _page_of_jobs(directories, words, number)
    return _render(words, number, total, is_sealed=False, rows=rows)


def _render(words: str, number: int, total: int, **values: object) -> Markup:
    pages = make_pages("/", {"q": words}, number, -(-total // _ON_A_PAGE))
    text = render_text("index_shown.html", words=words, total=total, pages=pages, **values)
    return Markup(text)  # noqa: S704 - the template has escaped every value


def _page_of_sealed(ledger: LedgerReader, words: str, number: int) -> tuple[int, list[Listed]]:
    first = (number - 1) * _ON_A_PAGE
    total, rows = list_experiments(ledger, words=words, first=first, count=_ON_A_PAGE)
    if not rows and total:
        first = (total - 1) // _ON_A_PAGE * _ON_A_PAGE
        total, rows = list_experiments(ledger, words=words, first=first, count=_ON_A_PAGE)
    return total, rows


def _page_of_jobs(
    directories: JobDirectories, words: str, number: int
) -> tuple[int, list[_ListedJob]]:
    jobs = [job for job in directories.all() if words.lower() in job.directory.name.lower()]
    dated = sorted(((job.changed_at(), job.directory.name, job) for job in jobs), key=_order)
    first = min(number - 1, max(len(dated) - 1, 0) // _ON_A_PAGE) * _ON_A_PAGE
    page = dated[first : first + _ON_A_PAGE]
    return len(dated), [
        _ListedJob(name, job.glance(), job.live_cost(), at) for at, name, job in page
    ]


def _order(dated: tuple[float, str, JobFiles]) -> tuple[float, str]:
    return -dated[0], dated[1]


routes: list[BaseRoute] = [Route("/", _show_index, name="index")]
