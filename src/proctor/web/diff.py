"""Two trials side by side: the shared beginning, where they diverge, and what follows.

    /diff?a=EXPERIMENT/TRIAL&b=EXPERIMENT/TRIAL     and part= for trials of several parts

Only actions are compared, or recorded output line by line; docs/guide/traces.md says how.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.errors import ChangedTraceError, InputError, NotThereError
from proctor.traces.actions import NORMALISATIONS
from proctor.traces.divergence import First, Sides, describe_divergence
from proctor.traces.entry import TraceKind
from proctor.web.data_source import DataSource
from proctor.web.format import trial_path
from proctor.web.pages import render_page
from proctor.web.traces.cache import CACHE, CachedTrace
from proctor.web.traces.place import TracePlace, find_place
from proctor.web.traces.trace_diff import (
    Side,
    TracePair,
    compare_traces,
    count_unshown,
    pair_up,
    show_action,
)

_STRETCHES: Final = 60
_MOST: Final = 2000


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two trials."""

    base: str
    """Address of the trial's page."""
    place: TracePlace
    traces: list[CachedTrace]
    trace: CachedTrace

    @property
    def is_output(self) -> bool:
        return self.trace.kind is TraceKind.OUTPUT

    @property
    def unit(self) -> str:
        """What one action of it is called."""
        return "line" if self.is_output else "step"

    def read(self) -> Side:
        return Side(self.trace.lines, CACHE.index_of(self.trace), is_output=self.is_output)

    def link(self, step: int) -> str:
        part = f"?{urlencode({'part': self.trace.part})}" if self.trace.part else ""
        # Recorded output has no steps to link to.
        anchor = "" if self.is_output else f"#step-{step}"
        return f"{self.base}/trace{part}{anchor}"


def _show_diff(request: Request) -> Response:
    asked = request.query_params
    if not asked.get("a") or not asked.get("b"):
        return render_page(
            "diff_ask.html", title="Two traces", a=asked.get("a", ""), b=asked.get("b", "")
        )
    with ExitStack() as stack:
        a, b = (_open_side(request, name, stack) for name in ("a", "b"))
        try:
            beside = compare_traces(a.read(), b.read(), _count(request))
        except ChangedTraceError:
            CACHE.forget(a.place)
            CACHE.forget(b.place)
            raise
    return _render(request, a, b, beside)


def _count(request: Request) -> int:
    text = request.query_params.get("count", str(_STRETCHES))
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 9):
        raise InputError(f"count={text[:40]!r}; expected a whole number")
    return min(int(text), _MOST)


def _open_side(request: Request, name: str, stack: ExitStack) -> _Side:
    source: DataSource = request.app.state.source
    text = request.query_params[name]
    experiment, slash, trial = text.partition("/")
    if not (experiment and slash and trial):
        raise InputError(f"{name}={text[:200]!r}; expected EXPERIMENT/TRIAL")
    place = stack.enter_context(find_place(source, experiment, trial))
    traces = CACHE.find(place)
    part = request.query_params.get("part", "")
    found = [trace for trace in traces if trace.part == part or not part]
    if not found:
        what = f"has no part {part[:80]!r}" if traces else "has no trace"
        raise NotThereError(f"{place.name}: {what}")
    return _Side(trial_path(experiment, trial), place, traces, found[0])


def _render(request: Request, a: _Side, b: _Side, beside: TracePair) -> Response:
    found = beside.found
    parts = [trace.part for trace in a.traces if any(each.part == trace.part for each in b.traces)]
    words = {"a": a.place.name, "b": b.place.name}
    asked = dict(request.query_params)
    both_output = a.is_output and b.is_output
    return render_page(
        "diff.html",
        title="Two traces",
        a=a,
        b=b,
        beside=beside,
        found=found,
        noun="line" if both_output else "action",
        first="the output differs" if both_output else _name_first(found.first),
        sentence=describe_divergence(found, is_output=both_output),
        answer=_show_sides(found.answer),
        action=_show_sides(found.action),
        rows=[(each, list(pair_up(each)), count_unshown(each)) for each in beside.stretches],
        shared=list(pair_up(beside.shared)),
        parts=[(part, f"/diff?{urlencode({**words, 'part': part})}") for part in parts if part],
        swapped=f"/diff?{urlencode({**asked, 'a': words['b'], 'b': words['a']})}",
        more=f"/diff?{urlencode({**asked, 'count': _MOST})}",
        is_most=_count(request) >= _MOST,
        not_counted=[name for name, _, _ in NORMALISATIONS],
    )


def _name_first(first: First) -> str:
    match first:
        case First.AGENT:
            return "the agent's action differed first"
        case First.ENVIRONMENT:
            return "the environment's answer differed first"
        case First.NEITHER:
            return "nothing differs"


def _show_sides(sides: Sides | None) -> object:
    if sides is None:
        return None
    shown = (None if side is None else show_action(side) for side in (sides.a, sides.b))
    return sides.number, *shown


routes: list[BaseRoute] = [Route("/diff", _show_diff, name="diff")]
