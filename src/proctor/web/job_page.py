"""One experiment, trial by trial: what it scored, task by task, and which trial to open.

What a page shows is kept for as long as nothing of the experiment changes: a page of thousands of
trials is then made once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.ledger.row import TrialRow
from proctor.trial.finding import worst_level
from proctor.web.experiment import (
    Experiment,
    Tally,
    count_trials,
    grade_of,
    is_errored,
    state_of,
    text_of,
    why_of,
)
from proctor.web.job_query import (
    OUTCOMES,
    SORTS,
    VIEWS,
    Asked,
    TaskRow,
    choose_trials,
    group_tasks,
    read_asked,
    sort_trials,
)
from proctor.web.listing import make_address, make_pages
from proctor.web.live import stream_events
from proctor.web.pages import ENVIRONMENT, render_page
from proctor.web.shown import experiment_path, path_part, trial_path
from proctor.web.subject import Subject

ENVIRONMENT.filters.update(
    state=state_of, grade=grade_of, cell=text_of, why=why_of, worst=worst_level
)
ENVIRONMENT.tests["errored"] = is_errored

_MARKS = 6000
"""Trials on a page of tasks; one task more where a page would have none."""
_TASKS = 300
_TRIALS = 200
_OF_A_TASK = 1500


def _show_job(request: Request) -> Response:
    subject: Subject = request.app.state.subject
    name: str = request.path_params["experiment"]
    asked = read_asked(request.query_params)
    version = subject.version(name)
    shown = subject.kept.find((name, version, asked))
    if shown is None:
        experiment = subject.experiment(name)
        shown = _render(experiment, asked)
        subject.kept.keep((name, experiment.version, asked), shown)
    return render_page(
        "job.html",
        title=name,
        name=name,
        shown=shown,
        events=f"{experiment_path(name)}/events?since={version}",
        is_job=subject.ledger is None,
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """The trials of one agent, model and dataset."""

    agent: str | None
    model: str | None
    dataset: str | None
    tally: Tally


def _render(experiment: Experiment, asked: Asked) -> Markup:
    """All that changes while an experiment runs."""
    chosen = choose_trials(experiment.trials, asked)
    path = experiment_path(experiment.name)
    by_trial = asked.view == "trials"
    trials = sort_trials(chosen, asked.sort) if by_trial else []
    pages = list(_split(group_tasks(chosen, asked.sort))) if not by_trial else []
    last = -(-len(trials) // _TRIALS) if by_trial else len(pages)
    around = make_pages(path, asked.fields, asked.page, last)
    at = around.number - 1
    template = ENVIRONMENT.get_template("job_shown.html")
    return Markup(  # noqa: S704 - the template has escaped every value
        template.render(
            experiment=experiment,
            tally=count_trials(experiment.trials),
            chosen=count_trials(chosen) if asked.is_narrowed else None,
            chosen_groups=len(_find_groups(chosen)),
            matching=len(chosen),
            groups=_find_groups(experiment.trials),
            asked=asked,
            choices=_Choices(experiment.trials),
            tasks=[_Task(experiment.name, row) for row in (pages[at] if pages else [])],
            trials=trials[at * _TRIALS : (at + 1) * _TRIALS],
            pages=around,
            path=path,
        )
    )


class _Choices:
    """What the form offers."""

    def __init__(self, trials: list[TrialRow]) -> None:
        self.outcomes = OUTCOMES
        self.sorts = SORTS
        self.views = VIEWS
        self.models = sorted({row.model for row in trials if row.model})
        self.agents = sorted({row.agent for row in trials if row.agent})


class _Task:
    """A task as the table has it."""

    def __init__(self, experiment: str, row: TaskRow) -> None:
        self.name = row.task
        self.tally = row.tally
        self.number = len(row.trials)
        shown = row.trials[:_OF_A_TASK]
        beginning = escape(trial_path(experiment, ""))
        self.marks = Markup("".join(_render_link(beginning, trial) for trial in shown))  # noqa: S704
        self.more = len(row.trials) - len(shown)
        self.rest = make_address(experiment_path(experiment), {"task": row.task, "view": "trials"})


def _render_link(beginning: Markup, row: TrialRow) -> str:
    """A link; made here and not by a template, because there are thousands."""
    title = f"{row.trial_id}: {why}" if (why := why_of(row)) else row.trial_id
    flag = " err" if is_errored(row) else ""
    return (
        f'<a class="m {grade_of(row)}{flag}" href="{beginning}{escape(path_part(row.trial_id))}" '
        f'title="{escape(title)}">{escape(text_of(row))}</a> '
    )


def _split(rows: list[TaskRow]) -> Iterator[list[TaskRow]]:
    """Tasks in pages, none of which has too many trials."""
    page: list[TaskRow] = []
    number = 0
    for row in rows:
        size = min(len(row.trials), _OF_A_TASK)
        if page and (number + size > _MARKS or len(page) == _TASKS):
            yield page
            page, number = [], 0
        page.append(row)
        number += size
    if page:
        yield page


def _find_groups(trials: list[TrialRow]) -> list[_Group]:
    """Agent, model and dataset: what differs in them is never one mean."""
    groups: dict[tuple[str, str, str], list[TrialRow]] = {}
    for row in trials:
        if row.agent is not None:
            key = (row.agent, row.model or "", row.dataset_id or "")
            groups.setdefault(key, []).append(row)
    return [
        _Group(agent, model or None, dataset or None, count_trials(groups[agent, model, dataset]))
        for agent, model, dataset in sorted(groups)
    ]


routes: list[BaseRoute] = [
    Route("/experiments/{experiment}", _show_job, name="job"),
    Route("/experiments/{experiment}/events", stream_events, name="events"),
]
