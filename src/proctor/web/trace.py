"""The page of a trace, and the JSON that its script requests.

    …/trace                    the page: the first entries, or those that `from` and filters select
    …/steps?from=&count=       some entries, as JSON; of a running trial, asked for again and again
    …/outline                  counts of entries by role and tool, and the errors
    …/find?q=                  which entries contain a text

All take `part` (for trials of several parts), `role`, `tool` and `errors=1`. Without script the
page is a plain list with links to the previous and next entries.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.errors import ChangedTraceError, InputError, NotThereError, ProctorError
from proctor.sentence import count_of
from proctor.web.data_source import DataSource
from proctor.web.format import trial_path
from proctor.web.pages import render_page
from proctor.web.traces.cache import CACHE, CachedTrace
from proctor.web.traces.entry_filter import LONGEST, Choice, choose, find_position, find_text
from proctor.web.traces.index import TraceIndex
from proctor.web.traces.place import TracePlace, find_place
from proctor.web.traces.rows import Row, Showing, read_beginning, read_rows

_FIRST: Final = 40
_MOST: Final = 500
# Traces up to this many bytes are indexed before their first entries are shown.
_SHORT: Final = 1 << 20
# Most characters of a text that is requested in full; the file has the rest.
_WHOLE: Final = 400_000
_STRIP: Final = 240
_TRIES: Final = 3
_NO_TRACE: Final = "has no trace"
_YET: Final = "has no trace yet"


@dataclass(frozen=True, slots=True)
class _Params:
    """Parameters of the request."""

    place: TracePlace
    traces: list[CachedTrace]
    trace: CachedTrace
    choice: Choice
    base: str
    kept: dict[str, str]
    """Parameters that links within the plain list keep."""

    def showing(self, *, whole: bool = False) -> Showing:
        return Showing(
            base=self.base,
            has_file=self.place.has_file,
            start=self.trace.start,
            longest=_WHOLE if whole else None,
        )


def _in_json(answer: Callable[[Request], object]) -> Callable[[Request], Response]:
    """Return the answer as JSON, errors included: the script shows their message."""

    @wraps(answer)
    def respond(request: Request) -> Response:
        try:
            return _render_json(_look_again(answer, request), 200)
        except NotThereError as error:
            return _render_json({"problem": str(error)}, 404)
        except InputError as error:
            return _render_json({"problem": str(error)}, 400)
        except ProctorError as error:
            return _render_json({"problem": str(error)}, 500)

    return respond


def _render_json(value: object, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _look_again[T](answer: Callable[[Request], T], request: Request) -> T:
    """Retry an answer whose trace was being written meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return answer(request)
        except ChangedTraceError:
            continue
    return answer(request)


@contextmanager
def _asked(request: Request) -> Iterator[_Params]:
    source: DataSource = request.app.state.source
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    asked = request.query_params
    with find_place(source, experiment, trial) as place:
        traces = CACHE.find(place)
        if not traces:
            raise NotThereError(f"{place.name}: {_YET if place.is_running else _NO_TRACE}")
        trace = _choose_part(place, traces, asked.get("part", ""))
        choice = Choice(asked.get("role", ""), asked.get("tool", ""), asked.get("errors") == "1")
        try:
            kept = {name: asked[name] for name in ("plain", "count", "whole") if name in asked}
            yield _Params(place, traces, trace, choice, trial_path(experiment, trial), kept)
        except ChangedTraceError:
            CACHE.forget(place)
            raise


def _choose_part(place: TracePlace, traces: list[CachedTrace], part: str) -> CachedTrace:
    found = [trace for trace in traces if trace.part == part or not part]
    if not found:
        raise NotThereError(f"{place.name}: has no part {part[:80]!r}")
    return found[0]


def _number(request: Request, name: str, usual: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise InputError(f"{name}={text[:40]!r}; expected a whole number, 0 or more")
    return min(int(text), most)


def _show_trace(request: Request) -> Response:
    return _look_again(_show_once, request)


def _show_once(request: Request) -> Response:
    try:
        with _asked(request) as asked:
            return _render(request, asked)
    except NotThereError as error:
        if str(error).endswith((_YET, _NO_TRACE)):
            return _render_none(request, is_running=str(error).endswith(_YET))
        raise


def _render_none(request: Request, *, is_running: bool) -> Response:
    experiment, trial = request.path_params["experiment"], request.path_params["trial"]
    return render_page(
        "trace_none.html",
        status=404,
        is_running=is_running,
        title=f"Trace of {trial}",
        trial=trial,
        base=trial_path(experiment, trial),
    )


def _render(request: Request, asked: _Params) -> Response:
    count = _number(request, "count", _FIRST, _MOST) or _FIRST
    begin = _number(request, "from", 0, 1 << 52)
    index = _find_index(asked, begin)
    whole = request.query_params.get("whole") == "1"
    if index is None:
        showing = asked.showing(whole=whole)
        rows, total = read_beginning(asked.trace.lines, count, showing), None
    else:
        chosen = choose(index, asked.choice)
        total = len(chosen)
        begin = min(begin, max(total - 1, 0))
        rows = _read_rows(asked, index, chosen[begin : begin + count], whole=whole)
    return render_page(
        "trace.html",
        title=f"Trace of {asked.place.name}",
        trial=request.path_params["trial"],
        base=asked.base,
        trace=asked.trace,
        is_running=asked.place.is_running,
        choice=asked.choice,
        index=index,
        count_of=count_of,
        beside=f"/diff?{urlencode({'a': asked.place.name})}",
        rows=rows,
        plain=request.query_params.get("plain") == "1",
        begin=begin,
        total=total,
        links=_find_links(asked, (begin, len(rows), count), total),
        part_links=[(each.part, _link(asked, part=each.part)) for each in asked.traces],
    )


def _find_index(asked: _Params, begin: int) -> TraceIndex | None:
    """The index of a trace; None if its beginning can be shown without one."""
    trace = asked.trace
    is_beginning = not begin and asked.choice.is_all
    if is_beginning and trace.lines.size > _SHORT and not trace.index.done():
        return None
    return CACHE.index_of(trace)


def _read_rows(
    asked: _Params, index: TraceIndex, wanted: Sequence[int], *, whole: bool = False
) -> list[Row]:
    trace = asked.trace
    is_labelled = trace.labels.done() and trace.labels.exception() is None
    labels = trace.labels.result() if is_labelled else None
    return read_rows(trace.lines, index, wanted, asked.showing(whole=whole), labels)


def _find_links(
    asked: _Params, shown: tuple[int, int, int], total: int | None
) -> dict[str, str | None]:
    """Links to the previous and next entries of the plain list."""
    begin, length, count = shown
    after = begin + length
    has_more = length == count if total is None else after < total
    return {
        "first": _link(asked, begin=0) if begin else None,
        "previous": _link(asked, begin=max(begin - count, 0)) if begin else None,
        "next": _link(asked, begin=after) if has_more else None,
        "last": _link(asked, begin=max(total - count, 0)) if total and has_more else None,
    }


def _link(asked: _Params, *, part: str | None = None, begin: int = 0) -> str:
    choice = asked.choice
    words = {
        "part": asked.trace.part if part is None else part,
        "role": choice.role,
        "tool": choice.tool,
        "errors": "1" if choice.errors else "",
        "from": str(begin) if begin else "",
        **asked.kept,
    }
    query = urlencode({name: value for name, value in words.items() if value})
    return f"{asked.base}/trace{f'?{query}' if query else ''}"


@_in_json
def _give_steps(request: Request) -> object:
    with _asked(request) as asked:
        index = CACHE.index_of(asked.trace)
        chosen = choose(index, asked.choice)
        count = _number(request, "count", 100, _MOST)
        at = _find_around(request, index, chosen)
        begin = _number(request, "from", 0, 1 << 52)
        if at is not None:
            begin = max(at - count // 2, 0)
        whole = request.query_params.get("whole") == "1"
        rows = _read_rows(asked, index, chosen[begin : begin + count], whole=whole)
        return {
            "total": len(chosen),
            "entries": len(index),
            "from": begin,
            "at": at,
            "labelled": asked.trace.labels.done(),
            "file": asked.trace.file,
            "running": asked.place.is_running,
            "rows": rows,
        }


def _find_around(request: Request, index: TraceIndex, chosen: Sequence[int]) -> int | None:
    """Position of the requested anchor, such as step-12 or entry-40; None without one."""
    name = request.query_params.get("around")
    if name is None or not chosen:
        return None
    kind, _, text = name.partition("-")
    if kind not in ("step", "entry") or not (text.isdecimal() and len(text) < 17):
        raise InputError(f"around={name[:40]!r}; expected step-12 or entry-40")
    row = index.find_step(int(text)) if kind == "step" else int(text)
    return find_position(chosen, len(index) - 1 if row is None else row)


@_in_json
def _give_outline(request: Request) -> object:
    with _asked(request) as asked:
        trace = asked.trace
        index = CACHE.index_of(trace)
        labels = trace.labels.result() if request.query_params.get("labels") == "1" else None
        return {
            "entries": len(index),
            "steps": index.count_steps(),
            "errors": len(index.errors),
            "roles": index.count_roles(),
            "tools": index.count_tools(),
            "strip": index.draw(_STRIP),
            "problems": index.problems + trace.problems,
            "noticed": [*trace.noticed, *index.noticed],
            "labels": None if labels is None else labels.count(),
        }


@_in_json
def _give_hits(request: Request) -> object:
    """Positions, among the selected entries, of errors or of a text."""
    with _asked(request) as asked:
        index = CACHE.index_of(asked.trace)
        text = request.query_params.get("q", "")
        if len(text) > LONGEST:
            raise InputError(f"a text of {len(text):,} characters; expected at most {LONGEST}")
        if text:
            hits = find_text(asked.trace.lines, index, text)
            rows, is_all = hits.rows, hits.is_all
        else:
            rows, is_all = list(index.errors), True
        chosen = choose(index, asked.choice)
        if not asked.choice.is_all:
            there = {row: at for at, row in enumerate(chosen)}
            rows = [there[row] for row in rows if row in there]
        return {"at": rows, "is_all": is_all}


_PREFIX = "/trials/{experiment}/{trial}"
routes: list[BaseRoute] = [
    Route(f"{_PREFIX}/trace", _show_trace, name="trace"),
    Route(f"{_PREFIX}/steps", _give_steps, name="steps"),
    Route(f"{_PREFIX}/outline", _give_outline, name="outline"),
    Route(f"{_PREFIX}/find", _give_hits, name="find"),
]
