"""The page of one experiment: its scores by task, with links to its trials.

Rendered pages are cached until the experiment changes: one with thousands of trials is rendered
once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proctor.ledger.counting import SUPERSEDED, WITHHELD, counted_trials
from proctor.ledger.row import TrialRow
from proctor.record.reasons import NOT_SCORED, outcome_of
from proctor.report.board.numbers import count_row
from proctor.report.scores import choose_ks
from proctor.report.statistics.efficiency import efficiency_of, is_success, time_phases
from proctor.report.statistics.passk import PassEstimate, pass_at
from proctor.sentence import render_errored, render_percent
from proctor.trial.finding import Level, is_common, level_of, render_common, sort_codes, worst_level
from proctor.web.bars import draw_bar, draw_shares, find_scale
from proctor.web.data_source import DataSource
from proctor.web.experiment import (
    ASIDE,
    ATTEMPT,
    BROKEN,
    ERRORED,
    NUMBERLESS,
    RUNNING,
    UNSCORED,
    Experiment,
    Tally,
    count_trials,
    ended_trials,
    grade_of,
    is_errored,
    state_of,
    text_of,
    why_of,
)
from proctor.web.format import experiment_path, path_part, show_score, show_usd, trial_path
from proctor.web.listing import make_address, make_pages, read_choice, read_page, read_words
from proctor.web.live import stream_events
from proctor.web.pages import ENVIRONMENT, render_page

# Parameters of an experiment's page, and the trials that match


OUTCOMES: Final = {
    "": "any",
    "full": "full reward",
    "part": "part of the reward",
    "none": "reward 0",
    "errored": "errored (scored or not)",
    "unscored": "not scored",
    NUMBERLESS: "scored without a number",
    RUNNING: "no result yet",
    BROKEN: "cannot be read",
    SUPERSEDED: "superseded",
    WITHHELD: "withheld",
    ASIDE: "of an earlier plan",
    ATTEMPT: "earlier attempt",
}
VIEWS: Final = {"tasks": "by task", "trials": "trial by trial"}
SORTS: Final = {
    "task": "task",
    "low": "lowest mean first",
    "high": "highest mean first",
    "errors": "most errors first",
    "slow": "slowest first",
    "cost": "dearest first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParams:
    """Parameters of the page."""

    task: str = ""
    """Part of the task's or the trial's name."""
    outcome: str = ""
    error: str = ""
    """The exception that a trial raised."""
    finding: str = ""
    """The code of an integrity finding."""
    model: str = ""
    agent: str = ""
    sort: str = "task"
    view: str = "tasks"
    page: int = 1

    @property
    def fields(self) -> dict[str, str]:
        """As query fields, without the page number and default values."""
        sort = "" if self.sort == "task" else self.sort
        view = "" if self.view == "tasks" else self.view
        return {
            "task": self.task, "outcome": self.outcome, "error": self.error,
            "finding": self.finding, "model": self.model, "agent": self.agent,
            "sort": sort, "view": view,
        }  # fmt: skip

    @property
    def is_narrowed(self) -> bool:
        """Whether a filter is set."""
        return any((self.task, self.outcome, self.error, self.finding, self.model, self.agent))


def parse_params(query: QueryParams) -> PageParams:
    """Parse the parameters of an address."""
    return PageParams(
        task=read_words(query, "task"),
        outcome=read_choice(query, "outcome", OUTCOMES),
        error=read_words(query, "error"),
        finding=read_words(query, "finding"),
        model=read_words(query, "model"),
        agent=read_words(query, "agent"),
        sort=read_choice(query, "sort", SORTS),
        view=read_choice(query, "view", VIEWS),
        page=read_page(query),
    )


def choose_trials(trials: list[TrialRow], asked: PageParams) -> list[TrialRow]:
    """The trials that match."""
    word = asked.task.lower()
    return [
        row
        for row in trials
        if (not word or word in (row.task_id or "").lower() or word in row.trial_id.lower())
        and (not asked.model or row.model == asked.model)
        and (not asked.agent or row.agent == asked.agent)
        and (not asked.outcome or _fits(row, asked.outcome))
        and (not asked.error or (row.exception == asked.error and is_errored(row)))
        and (not asked.finding or asked.finding in row.findings)
    ]


def _fits(row: TrialRow, outcome: str) -> bool:
    match outcome:
        case "errored":
            return is_errored(row)
        case "unscored":
            return state_of(row) in (UNSCORED, ERRORED)
        case _:
            return grade_of(row) == outcome


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task with its trials."""

    task: str
    trials: list[TrialRow]
    tally: Tally


def group_tasks(trials: list[TrialRow], sort: str) -> list[TaskRow]:
    """Group trials by task, in the requested order."""
    tasks: dict[str, list[TrialRow]] = {}
    for row in trials:
        tasks.setdefault(row.task_id or "", []).append(row)
    rows = [TaskRow(task, found, count_trials(found)) for task, found in tasks.items()]
    return sorted(rows, key=_TASK_ORDERS[sort])


def sort_trials(trials: list[TrialRow], sort: str) -> list[TrialRow]:
    """Sort trials in the requested order."""
    return sorted(trials, key=_TRIAL_ORDERS[sort])


type _Key = tuple[bool, float, str, str]


def _by(value: Callable[[TrialRow], float | None], sign: int) -> Callable[[TrialRow], _Key]:
    """A sort key that puts unknown values last."""

    def key(row: TrialRow) -> _Key:
        found = value(row)
        return (found is None, sign * (found or 0), row.task_id or "", row.trial_id)

    return key


_TRIAL_ORDERS: dict[str, Callable[[TrialRow], _Key]] = {
    "task": _by(lambda _: 0, 1),
    "low": _by(lambda row: row.reward, 1),
    "high": _by(lambda row: row.reward, -1),
    "errors": _by(lambda row: 0 if is_errored(row) else 1, 1),
    "slow": _by(lambda row: row.seconds, -1),
    "cost": _by(lambda row: row.cost_usd, -1),
}


def _by_task(value: Callable[[TaskRow], float | None], sign: int) -> Callable[[TaskRow], _Key]:
    def key(row: TaskRow) -> _Key:
        found = value(row)
        return (found is None, sign * (found or 0), row.task, "")

    return key


def _most(task: TaskRow, value: Callable[[TrialRow], float | None]) -> float | None:
    return max((known for row in task.trials if (known := value(row)) is not None), default=None)


_TASK_ORDERS: dict[str, Callable[[TaskRow], _Key]] = {
    "task": _by_task(lambda _: 0, 1),
    "low": _by_task(lambda row: row.tally.mean, 1),
    "high": _by_task(lambda row: row.tally.mean, -1),
    "errors": _by_task(lambda row: row.tally.errored, -1),
    "slow": _by_task(lambda task: _most(task, lambda row: row.seconds), -1),
    "cost": _by_task(lambda task: _most(task, lambda row: row.cost_usd), -1),
}


ENVIRONMENT.filters.update(
    state=state_of,
    grade=grade_of,
    cell=text_of,
    why=why_of,
    worst=worst_level,
    errored_count=render_errored,
)
ENVIRONMENT.tests["errored"] = is_errored

# Most trials on a page of tasks; every page has at least one task, whatever its size.
_MARKS = 6000
_TASKS = 300
_TRIALS = 200
_OF_A_TASK = 1500


def _show_job(request: Request) -> Response:
    source: DataSource = request.app.state.source
    name: str = request.path_params["experiment"]
    asked = parse_params(request.query_params)
    version = source.version(name)
    shown = source.kept.find((name, version, asked))
    if shown is None:
        experiment = source.experiment(name)
        shown = _render(experiment, asked)
        source.kept.keep((name, experiment.version, asked), shown)
    return render_page(
        "job.html",
        title=name,
        name=name,
        shown=shown,
        events=f"{experiment_path(name)}/events?since={version}",
        is_job=source.ledger is None,
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """The trials of one agent, model and dataset."""

    agent: str | None
    model: str | None
    dataset: str | None
    tally: Tally


@dataclass(frozen=True, slots=True)
class _Phase:
    """The average time of one phase."""

    name: str
    kind: str
    """Colour class."""
    mean: float
    share: float
    """Of the phases together."""


@dataclass(frozen=True, slots=True)
class _Error:
    """One kind of exception."""

    kind: str
    count: int
    scored: int
    address: str
    """Where the trials that raised it are listed."""


# pass@k is shown for this many values of k.
_PASSES = 4


class _Summary:
    """The numbers of all trials that count: those of a board row, and times."""

    def __init__(self, experiment: Experiment, path: str) -> None:
        ended = ended_trials(experiment.trials)
        counted = counted_trials(ended)
        self.path = path
        self.numbers = count_row(ended)
        self.seconds = efficiency_of(counted).seconds
        self.passes = _estimate_passes(counted) if self.numbers.pass_rate is not None else []
        self.phases = _find_phases(counted)
        self.shares = [(phase.kind, phase.mean) for phase in self.phases]
        self.phase_shares = ", ".join(
            f"{each.name} {render_percent(each.share)}" for each in self.phases
        )
        self.errors = [
            _Error(
                kind,
                count,
                sum(row.exception == kind and outcome_of(row) != NOT_SCORED for row in counted),
                make_address(path, {"error": kind, "view": "trials"}),
            )
            for kind, count in sorted(self.numbers.exceptions.items(), key=lambda each: -each[1])
        ]
        total = len(counted)
        self.common = {
            code: render_common(code, n, total)
            for code, n in self.numbers.findings.items()
            if is_common(code, n, total)
        }
        """Findings that most trials have, each with its sentence: lists of trials omit them."""
        self.live_cost = _sum_live_costs(experiment.trials)
        self.has_alarms = any(level_of(code) is Level.ALARM for code in self.numbers.findings)

    def finding_path(self, code: str) -> str:
        """The address of the trials with a finding."""
        return make_address(self.path, {"finding": code, "view": "trials"})


def _sum_live_costs(trials: Sequence[TrialRow]) -> float | None:
    """What trials without a result have cost so far, as far as it is known."""
    costs = [row.cost_usd for row in trials if row.status == RUNNING]
    known = [usd for usd in costs if usd is not None]
    return sum(known) if known else None


def _estimate_passes(counted: Sequence[TrialRow]) -> list[PassEstimate]:
    """pass@k for the first values of k that reports have."""
    tasks: dict[str, list[bool]] = {}
    for row in counted:
        tasks.setdefault(row.task_id or "", []).append(is_success(row))
    ks = choose_ks([len(found) for found in tasks.values()])[:_PASSES]
    return [pass_at(k, tasks) for k in ks] if len(ks) > 1 else []


def _find_phases(counted: Sequence[TrialRow]) -> list[_Phase]:
    times = time_phases(counted)
    named = (
        ("Setup", "setup", times.setup),
        ("Agent", "agent", times.agent),
        ("Verification", "verifier", times.verification),
    )
    means = [
        (name, kind, spent.known / spent.n_known) for name, kind, spent in named if spent.n_known
    ]
    total = sum(mean for *_, mean in means)
    return [_Phase(name, kind, mean, mean / total) for name, kind, mean in means] if total else []


def _render(experiment: Experiment, asked: PageParams) -> Markup:
    """Render the part of the page that changes while an experiment runs."""
    chosen = choose_trials(experiment.trials, asked)
    path = experiment_path(experiment.name)
    by_trial = asked.view == "trials"
    trials = sort_trials(chosen, asked.sort) if by_trial else []
    pages = list(_split(group_tasks(chosen, asked.sort))) if not by_trial else []
    last = -(-len(trials) // _TRIALS) if by_trial else len(pages)
    around = make_pages(path, asked.fields, asked.page, last)
    at = around.number - 1
    template = ENVIRONMENT.get_template("job_shown.html")
    summary = _Summary(experiment, path)
    return Markup(  # noqa: S704 - the template has escaped every value
        template.render(
            experiment=experiment,
            tally=count_trials(experiment.trials),
            summary=summary,
            bar=draw_bar,
            shares=draw_shares,
            scale=find_scale([summary.numbers]),
            words={"score": show_score, "money": show_usd},
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
    """Options that the form offers."""

    def __init__(self, trials: list[TrialRow]) -> None:
        self.outcomes = OUTCOMES
        self.sorts = SORTS
        self.views = VIEWS
        self.errors = sorted({row.exception for row in trials if row.exception and is_errored(row)})
        self.findings = sort_codes(sorted({code for row in trials for code in row.findings}))
        self.models = sorted({row.model for row in trials if row.model})
        self.agents = sorted({row.agent for row in trials if row.agent})


class _Task:
    """A row of the task table."""

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
    """Render a link without a template, which would be too slow for thousands of them."""
    title = f"{row.trial_id}: {why}" if (why := why_of(row)) else row.trial_id
    flag = " err" if is_errored(row) else ""
    flag += " flagged" if row.findings and worst_level(row.findings) is Level.ALARM else ""
    return (
        f'<a class="m {grade_of(row)}{flag}" href="{beginning}{escape(path_part(row.trial_id))}" '
        f'title="{escape(title)}">{escape(text_of(row))}</a>'
    )


def _split(rows: list[TaskRow]) -> Iterator[list[TaskRow]]:
    """Split tasks into pages with a limited number of trials."""
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
    """Group by agent, model and dataset: a mean over different ones would be meaningless."""
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
