"""What is asked of an experiment's page, and the trials that fit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import QueryParams

from proctor.ledger.counting import SUPERSEDED, WITHHELD
from proctor.ledger.row import TrialRow
from proctor.web.experiment import (
    ASIDE,
    ATTEMPT,
    BROKEN,
    ERRORED,
    RUNNING,
    UNSCORED,
    Tally,
    count_trials,
    grade_of,
    is_errored,
    state_of,
)
from proctor.web.listing import read_choice, read_page, read_words

OUTCOMES: Final = {
    "": "any",
    "full": "full reward",
    "part": "part of the reward",
    "none": "reward 0",
    "errored": "errored, whatever it scored",
    "unscored": "ended without a reward",
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
class Asked:
    """What a page shall show."""

    task: str = ""
    """Part of the task's or the trial's name."""
    outcome: str = ""
    model: str = ""
    agent: str = ""
    sort: str = "task"
    view: str = "tasks"
    page: int = 1

    @property
    def fields(self) -> dict[str, str]:
        """As an address has it, but for the page; what is usual is left out."""
        sort = "" if self.sort == "task" else self.sort
        view = "" if self.view == "tasks" else self.view
        return {
            "task": self.task, "outcome": self.outcome, "model": self.model, "agent": self.agent,
            "sort": sort, "view": view,
        }  # fmt: skip

    @property
    def is_narrowed(self) -> bool:
        """Whether trials are left out."""
        return bool(self.task or self.outcome or self.model or self.agent)


def read_asked(query: QueryParams) -> Asked:
    """What an address asks for.

    Raises:
        InputError: it asks for something that there is not.
    """
    return Asked(
        task=read_words(query, "task"),
        outcome=read_choice(query, "outcome", OUTCOMES),
        model=read_words(query, "model"),
        agent=read_words(query, "agent"),
        sort=read_choice(query, "sort", SORTS),
        view=read_choice(query, "view", VIEWS),
        page=read_page(query),
    )


def choose_trials(trials: list[TrialRow], asked: Asked) -> list[TrialRow]:
    """The trials that fit."""
    word = asked.task.lower()
    return [
        row
        for row in trials
        if (not word or word in (row.task_id or "").lower() or word in row.trial_id.lower())
        and (not asked.model or row.model == asked.model)
        and (not asked.agent or row.agent == asked.agent)
        and (not asked.outcome or _fits(row, asked.outcome))
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
    """The tasks with their trials, in the order asked for."""
    tasks: dict[str, list[TrialRow]] = {}
    for row in trials:
        tasks.setdefault(row.task_id or "", []).append(row)
    rows = [TaskRow(task, found, count_trials(found)) for task, found in tasks.items()]
    return sorted(rows, key=_TASK_ORDERS[sort])


def sort_trials(trials: list[TrialRow], sort: str) -> list[TrialRow]:
    """The trials in the order asked for."""
    return sorted(trials, key=_TRIAL_ORDERS[sort])


type _Key = tuple[bool, float, str, str]


def _by(value: Callable[[TrialRow], float | None], sign: int) -> Callable[[TrialRow], _Key]:
    """An order in which what is not known comes last."""

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
