"""Two experiments side by side: `/compare?a=E&b=E`.

Shows what `proctor compare` prints, with links to the trials and to pairs of them. Sides that are
not comparable are refused here too; the form lists what can be allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.errors import InputError, NotThereError
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.trial_index import TrialFilter
from proctor.report.behaviour import Behaviour, summarise_trials
from proctor.report.comparison.compared import Terms, choose_sides, compare_sides
from proctor.report.comparison.document import render_comparison
from proctor.report.comparison.sides import Side, make_side
from proctor.report.groups import group_trials
from proctor.report.page.html import Links, render_blocks
from proctor.report.runs import Run, load_job_run, load_sealed_run
from proctor.web.data_source import DataSource
from proctor.web.format import pair_path, trial_path
from proctor.web.pages import render_page

# Experiments that the form offers; others can be typed.
_MOST_NAMED: Final = 200
# Traces of up to this many trials are read by default; more would take too long for a page.
_MOST_TRACES: Final = 200


@dataclass(frozen=True, slots=True)
class _Params:
    """Parameters of the request."""

    names: tuple[str, str]
    groups: tuple[str, str]
    terms: Terms
    traces: str
    """yes, no, or "" to decide by the number of trials."""

    @property
    def is_whole(self) -> bool:
        """Whether both sides are named."""
        return all(self.names)


def _read_asked(query: Mapping[str, str]) -> _Params:
    return _Params(
        names=(query.get("a", ""), query.get("b", "")),
        groups=(query.get("group_a", ""), query.get("group_b", "")),
        terms=Terms(common="common" in query, allow_unlike="unlike" in query),
        traces=query.get("traces", ""),
    )


def _show_compare(request: Request) -> Response:
    source: DataSource = request.app.state.source
    asked = _read_asked(request.query_params)
    with source.opened() as ledger:
        runs = [_load(source, ledger, name) for name in asked.names if name]
        offered = [[group.full_label for group in group_trials(run.trials)] for run in runs]
        title, body, refusal = "Compare", Markup(""), ""
        if asked.is_whole:
            try:
                title, body = _compare(runs, asked, ledger)
            except NotThereError:
                raise
            except InputError as error:
                refusal = str(error)
        return render_page(
            "compare.html",
            title=title,
            body=body,
            refusal=refusal,
            asked=asked,
            groups=offered if asked.is_whole else [[], []],
            experiments=_list_named(source, ledger),
            most_named=_MOST_NAMED,
            most_traces=_MOST_TRACES,
        )


def _load(source: DataSource, ledger: LedgerReader | None, name: str) -> Run:
    """Load a run by its name."""
    if ledger is None:
        job = source.directories.find(name)
        if job is None:
            raise NotThereError(f"there is no experiment {name[:80]!r}")
        return load_job_run(str(job.directory))
    try:
        return load_sealed_run(ledger, name if name.isprintable() else "")
    except InputError as error:
        raise NotThereError(f"there is no experiment {name[:80]!r}") from error


def _compare(runs: list[Run], asked: _Params, ledger: LedgerReader | None) -> tuple[str, Markup]:
    """Render the comparison; return its title and contents."""
    a = make_side("A", runs[0], asked.groups[0] or None)
    b = make_side("B", runs[1], asked.groups[1] or None)
    behaviour = _read_traces(a, b, asked, ledger)
    document = render_comparison(compare_sides(a, b, asked.terms, behaviour))
    return document.title, render_blocks(document.blocks, _make_links(a, b))


def _read_traces(a: Side, b: Side, asked: _Params, ledger: LedgerReader | None) -> Behaviour | None:
    sides = choose_sides(a, b, asked.terms)
    attempts = {each.name: each for side in sides for each in side.trials}
    wanted = asked.traces or ("yes" if len(attempts) <= _MOST_TRACES else "no")
    if wanted != "yes":
        return None
    # In this process: forking a process that has threads is unsafe.
    return summarise_trials(
        list(attempts.values()), ledger, lambda _what, _done, _of: None, is_alone=True
    )


def _make_links(a: Side, b: Side) -> Links:
    """Addresses by the names that pages use for trials: in a job, those of directories."""
    known = {
        each.name: (side.run.name, Path(each.place).name if each.place else each.trial_id)
        for side in (a, b)
        for each in side.trials
    }
    return Links(
        trial=lambda name: trial_path(*known[name]) if name in known else None,
        pair=lambda one, other: pair_path(known[one], known[other]),
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """A run that can be chosen."""

    name: str
    who: str = ""
    """Its agents and models."""


def _list_named(source: DataSource, ledger: LedgerReader | None) -> list[_Named]:
    if ledger is None:
        return [_Named(name) for name in sorted(job.name for job in source.jobs)[:_MOST_NAMED]]
    with snapshot(ledger):
        names = [name for name, _ in ledger.index.experiments("")[:_MOST_NAMED]]
        who: dict[str, set[str]] = {name: set() for name in names}
        for row in ledger.index.trials(TrialFilter(experiments=tuple(names))):
            if row.agent is not None:
                who[row.experiment_id].add(f"{row.agent}, {row.model}")
    return [_Named(name, "; ".join(sorted(who[name])[:3])) for name in names]


routes: list[BaseRoute] = [Route("/compare", _show_compare, name="compare")]
