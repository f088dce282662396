"""The page of a search over all traces: `proctor search`, with links to the steps.

    /search?q=&page=&order=rank

Errors in a query are shown above the explanation of its syntax.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.errors import InputError, JobError, ProctorError
from proctor.harbor.documents import TRIAL
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import NOT_IN_A_LOG
from proctor.ledger.trial_index import TrialFilter
from proctor.search.find import (
    COUNTED,
    Found,
    Hit,
    Marker,
    Page,
    Scanner,
    Snippet,
    find_hits,
    fits_condition,
)
from proctor.search.index import SearchIndex
from proctor.search.query import LONGEST_QUERY, Query, parse_query
from proctor.search.row import Row, is_change
from proctor.search.texts import rows_of_trace
from proctor.search.upkeep import ask_index
from proctor.sentence import count_of
from proctor.traces.traced_trial import FoundTrace, open_parts
from proctor.web.data_source import DataSource
from proctor.web.format import trial_path
from proctor.web.pages import render_page
from proctor.web.sanitize import make_plain
from proctor.web.traces.place import find_place

# Answering a query: from a ledger's index, or by scanning the traces of jobs
#
# A missing index is built in the background, once for all requests; meanwhile requests show its
# progress. Jobs have no index: their traces are scanned for a few seconds, and the page says how
# many were left out.


PATIENCE: Final = 1.0
"""Seconds that a request waits for the index."""
# Seconds for which traces of jobs are scanned.
_SECONDS: Final = 4.0
_AT_ONCE: Final = 2
# Entries between two checks of the clock.
_OFTEN: Final = 100


@dataclass(slots=True)
class _Run:
    """Update of one ledger's index."""

    done: int = 0
    total: int = 0
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def bring_up(self, directory: Path) -> None:
        try:
            with open_reader(directory) as ledger:
                ask_index(ledger, lambda _: None, self.watch)
        except Exception as error:  # noqa: BLE001 - the request that waits for it says it
            self.error = error
        finally:
            self.ended.set()


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an index, in bytes of evidence."""

    done: int
    total: int


class IndexUpdater:
    """Updates indexes from their logs, with one thread per ledger."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[Path, _Run] = {}

    def wait(self, directory: Path, patience: float = PATIENCE) -> Progress | None:
        """Wait for the index; return its progress, or None once it is up to date.

        Raises:
            ProctorError: it cannot be built.
        """
        with self._lock:
            run = self._runs.get(directory)
            if run is None:
                run = self._runs[directory] = _Run()
                # A daemon thread ends with the program; what it has indexed by then is kept.
                threading.Thread(target=run.bring_up, args=(directory,), daemon=True).start()
        if not run.ended.wait(patience):
            return Progress(run.done, run.total)
        with self._lock:
            # Another request may have started a newer update meanwhile.
            if self._runs.get(directory) is run:
                del self._runs[directory]
        if run.error is not None:
            raise run.error
        return None


INDEX_UPDATER: Final = IndexUpdater()
"""The instance of this process."""
_SCANS: Final = threading.Semaphore(_AT_ONCE)


def search_ledger(ledger: LedgerReader, query: Query, page: Page) -> tuple[Found, list[str]]:
    """Return a page of hits, and notes about what could not be searched."""

    def ask(index: SearchIndex) -> tuple[Found, list[str]]:
        return find_hits(ledger, index, query, TrialFilter(), page), [*index.problems()]

    return ask_index(ledger, ask)


@dataclass(slots=True)
class Scanned:
    """Matches in the traces of jobs."""

    hits: list[Hit] = field(default_factory=list)
    looked: int = 0
    """Trials that were scanned completely."""
    trials: int = 0
    """Number of trials."""
    problems: list[str] = field(default_factory=list)

    @property
    def is_all(self) -> bool:
        """Whether everything was scanned."""
        return self.looked == self.trials and len(self.hits) < COUNTED


def search_jobs(source: DataSource, query: Query, seconds: float = _SECONDS) -> Scanned:
    """Scan for matching entries, the most recently run trial first, until the time is up."""
    scanned = Scanned()
    # Limited, because a scan keeps a core busy for seconds.
    with _SCANS, Scanner(query) as scanner:
        until = time.monotonic() + seconds
        places = _list_trials(source)
        scanned.trials = len(places)
        for job, trial in places:
            if _is_meant(query, job, trial):
                _scan_trial(source, (job.name, trial), _TimedScanner(scanner, until), scanned)
            if time.monotonic() > until or len(scanned.hits) >= COUNTED:
                break
            scanned.looked += 1
    return scanned


@dataclass(frozen=True, slots=True)
class _TimedScanner:
    """A scanner that stops when the time is up."""

    scanner: Scanner
    until: float

    def fitting(self, trace: FoundTrace) -> Iterator[Row]:
        return self.scanner.fitting(self._in_time(rows_of_trace(trace)))

    def _in_time(self, rows: Iterator[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if not number % _OFTEN and time.monotonic() > self.until:
                return
            yield row


def _list_trials(source: DataSource) -> list[tuple[Path, str]]:
    found = []
    for job in source.jobs:
        with contextlib.suppress(OSError):
            for place in job.iterdir():
                if place.is_dir() and not place.is_symlink():
                    found.append((place.stat().st_mtime_ns, place.name, job))
    return [(job, name) for _, name, job in sorted(found, key=lambda each: each[:2], reverse=True)]


def _scan_trial(
    source: DataSource, names: tuple[str, str], looking: _TimedScanner, scanned: Scanned
) -> None:
    hits: list[Hit] = []
    try:
        with find_place(source, *names) as place, ExitStack() as stack:
            for trace in open_parts(place.parts, place.open_file, stack):
                hits += [_hit_in_job(names, row) for row in looking.fitting(trace)]
                del hits[COUNTED:]
    except (ProctorError, OSError) as error:
        scanned.problems.append(f"{'/'.join(names)}: {error}")
    # Newest first, like the trials.
    scanned.hits += reversed(hits)
    del scanned.hits[COUNTED:]


def _hit_in_job(names: tuple[str, str], row: Row) -> Hit:
    experiment, trial = names
    return Hit(seq=NOT_IN_A_LOG, experiment_id=experiment, trial_id=trial, row=row)


def _is_meant(query: Query, job: Path, trial: str) -> bool:
    if not query.conditions:
        return True
    known: dict[str, str | None] = {"experiment": job.name, "trial": trial}
    with contextlib.suppress(JobError):
        result = TRIAL.load(str(job / trial / "result.json"))
        known |= {"task": result.task_name, "model": result.config.agent.model_name}
    return all(fits_condition(each, known.get(each.name)) for each in query.conditions)


def list_pages(total: int, page: Page) -> Iterator[tuple[str, int]]:
    """The previous and next page, by name."""
    if page.number > 1:
        yield "previous", page.number - 1
    if page.skipped + page.limit < total:
        yield "next", page.number + 1


_LIMIT: Final = 20
_LAST_PAGE: Final = 500
_SNIPPET: Final = 260


@dataclass(frozen=True, slots=True)
class _Params:
    """Parameters of the request."""

    text: str
    page: Page

    def link(self, number: int) -> str:
        order = {"order": "rank"} if self.page.by_relevance else {}
        return f"/search?{urlencode({'q': self.text, **order, 'page': number})}"


@dataclass(frozen=True, slots=True)
class _ShownHit:
    """An entry as the page shows it."""

    name: str
    href: str
    row: Row
    snippet: Snippet


def _search(request: Request) -> Response:
    source: DataSource = request.app.state.source
    asked = _Params(request.query_params.get("q", "").strip(), _find_page(request))
    if not asked.text:
        return _render(asked, source)
    try:
        query = parse_query(asked.text)
    except InputError as error:
        return _render(asked, source, status=400, problem=str(error))
    marker = Marker(query.words)
    with source.opened() as ledger:
        if ledger is None:
            scanned = search_jobs(source, query)
            page = asked.page
            shown = scanned.hits[page.skipped : page.skipped + page.limit]
            trials = len({(hit.experiment_id, hit.trial_id) for hit in scanned.hits})
            return _render(
                asked, source,
                heading=_tell(len(scanned.hits), trials, is_all=scanned.is_all),
                hits=[_show(hit, marker) for hit in shown],
                pages=list(list_pages(len(scanned.hits), page)),
                problems=scanned.problems,
                scanned=scanned,
            )  # fmt: skip
        return _search_ledger(asked, source, ledger, marker)


def _search_ledger(
    asked: _Params, source: DataSource, ledger: LedgerReader, marker: Marker
) -> Response:
    progress = INDEX_UPDATER.wait(Path(ledger.log.where).resolve())
    if progress is not None:
        return _render(asked, source, progress=progress)
    found, problems = search_ledger(ledger, parse_query(asked.text), asked.page)
    return _render(
        asked, source,
        heading=_tell(found.matches, found.trials, is_all=found.is_exact),
        hits=[_show(hit, marker) for hit in found.hits],
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


def _show(hit: Hit, marker: Marker) -> _ShownHit:
    experiment, trial, row = hit.experiment_id, hit.trial_id, hit.row
    cut, named = marker.cut(row, _SNIPPET), row.part
    row = msgspec.structs.replace(
        row,
        role=make_plain(row.role),
        tool=row.tool and make_plain(row.tool[:120]),
        part=make_plain(row.part),
    )
    snippet = Snippet(make_plain(cut.before), make_plain(cut.match), make_plain(cut.after))
    if experiment is None or trial is None:
        return _ShownHit(f"entry {hit.seq}", f"/ledger/entries/{hit.seq}", row, snippet)
    base = trial_path(experiment, trial)
    if row.step is None:
        place = f"{base}#changes" if is_change(row) else base
        return _ShownHit(f"{experiment}/{trial}", place, row, snippet)
    part = f"?{urlencode({'part': named})}" if named else ""
    return _ShownHit(f"{experiment}/{trial}", f"{base}/trace{part}#step-{row.step}", row, snippet)


def _render(asked: _Params, source: DataSource, *, status: int = 200, **more: object) -> Response:
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
        source=source,
        longest=LONGEST_QUERY,
        **values,
    )
    if values["progress"] is not None:
        response.headers["Refresh"] = "1"
    return response


routes: list[BaseRoute] = [Route("/search", _search, name="search")]
