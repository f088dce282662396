"""The page of a search over all traces: `proctor search`, with links to the steps.

    /search?q=&page=&order=rank

What is wrong with a query is said as a sentence, above how one is written.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.errors import InputError
from proctor.ledger.ledger import Ledger
from proctor.search.find import Page
from proctor.search.query import LONGEST_QUERY, parse_query
from proctor.search.row import Row, is_change
from proctor.search.snippet import Marker, Snippet
from proctor.sentence import count_of
from proctor.web.pages import render_page
from proctor.web.searching import UPKEEP, list_pages, search_jobs, search_ledger
from proctor.web.shown import trial_path
from proctor.web.subject import Subject
from proctor.web.traces.plain import make_plain

_LIMIT: Final = 20
_LAST_PAGE: Final = 500
_SNIPPET: Final = 260


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for."""

    text: str
    page: Page

    def link(self, number: int) -> str:
        order = {"order": "rank"} if self.page.by_relevance else {}
        return f"/search?{urlencode({'q': self.text, **order, 'page': number})}"


@dataclass(frozen=True, slots=True)
class _Hit:
    """What the page shows of one entry."""

    name: str
    href: str
    row: Row
    snippet: Snippet


def _search(request: Request) -> Response:
    subject: Subject = request.app.state.subject
    asked = _Asked(request.query_params.get("q", "").strip(), _find_page(request))
    if not asked.text:
        return _render(asked, subject)
    try:
        query = parse_query(asked.text)
    except InputError as error:
        return _render(asked, subject, status=400, problem=str(error))
    marker = Marker(query.words)
    with subject.opened() as ledger:
        if ledger is None:
            scanned = search_jobs(subject, query)
            page = asked.page
            shown = scanned.hits[page.skipped : page.skipped + page.limit]
            trials = len({(hit.experiment, hit.trial) for hit in scanned.hits})
            return _render(
                asked, subject,
                heading=_tell(len(scanned.hits), trials, is_all=scanned.is_all),
                hits=[_show(hit.experiment, hit.trial, 0, hit.row, marker) for hit in shown],
                pages=list(list_pages(len(scanned.hits), page)),
                problems=scanned.problems,
                scanned=scanned,
            )  # fmt: skip
        return _search_ledger(asked, subject, ledger, marker)


def _search_ledger(asked: _Asked, subject: Subject, ledger: Ledger, marker: Marker) -> Response:
    progress = UPKEEP.wait(ledger.directory.resolve())
    if progress is not None:
        return _render(asked, subject, progress=progress)
    found, problems = search_ledger(ledger, parse_query(asked.text), asked.page)
    return _render(
        asked, subject,
        heading=_tell(found.matches, found.trials, is_all=found.is_exact),
        hits=[
            _show(hit.experiment_id, hit.trial_id, hit.seq, hit.row, marker) for hit in found.hits
        ],
        pages=list(list_pages(found.matches, asked.page)),
        problems=problems,
    )  # fmt: skip


def _find_page(request: Request) -> Page:
    text = request.query_params.get("page", "1")
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _LAST_PAGE):
        raise InputError(f"page={text[:40]!r}; expected a number from 1 to {_LAST_PAGE}")
    return Page(_LIMIT, int(text), by_relevance=request.query_params.get("order") == "rank")


def _tell(matches: int, trials: int, *, is_all: bool) -> str:
    if not matches:
        return "no match"
    if is_all:
        return f"{count_of(matches, 'match', 'matches')} in {count_of(trials, 'trial')}"
    return f"{matches:,}+ matches in {trials:,}+ trials"


def _show(experiment: str | None, trial: str | None, seq: int, row: Row, marker: Marker) -> _Hit:
    cut, named = marker.cut(row, _SNIPPET), row.part
    row = msgspec.structs.replace(
        row,
        role=make_plain(row.role),
        tool=row.tool and make_plain(row.tool[:120]),
        part=make_plain(row.part),
    )
    snippet = Snippet(make_plain(cut.before), make_plain(cut.match), make_plain(cut.after))
    if experiment is None or trial is None:
        return _Hit(f"entry {seq}", f"/ledger/entries/{seq}", row, snippet)
    base = trial_path(experiment, trial)
    if row.step is None:
        place = f"{base}#changes" if is_change(row) else base
        return _Hit(f"{experiment}/{trial}", place, row, snippet)
    part = f"?{urlencode({'part': named})}" if named else ""
    return _Hit(f"{experiment}/{trial}", f"{base}/trace{part}#step-{row.step}", row, snippet)


def _render(asked: _Asked, subject: Subject, *, status: int = 200, **more: object) -> Response:
    values = {
        "problem": None,
        "heading": None,
        "hits": [],
        "pages": [],
        "problems": [],
        "scanned": None,
        "progress": None,
        **more,
    }
    response = render_page(
        "search.html",
        status=status,
        title=f"Search: {asked.text[:60]}" if asked.text else "Search",
        asked=asked,
        subject=subject,
        longest=LONGEST_QUERY,
        **values,
    )
    if values["progress"] is not None:
        response.headers["Refresh"] = "1"
    return response


routes: list[BaseRoute] = [Route("/search", _search, name="search")]
