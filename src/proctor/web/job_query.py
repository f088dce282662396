"""What is asked of an experiment's page, and the trials that fit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import QueryParams

from proctor.ledger.counting import SUPERSEDED, WITHHELD
from proctor.web.listing import read_choice, read_page, read_words
from proctor.web.marks import (
    ASIDE,
    ATTEMPT,
    BROKEN,
    ERRORED,
    RUNNING,
    UNSCORED,
    Mark,
    Tally,
    count_marks,
)

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


def choose_marks(marks: list[Mark], asked: Asked) -> list[Mark]:
    """The trials that fit."""
    word = asked.task.lower()
    return [
        mark
        for mark in marks
        if (not word or word in mark.task.lower() or word in mark.trial.lower())
        and (not asked.model or mark.model == asked.model)
        and (not asked.agent or mark.agent == asked.agent)
        and (not asked.outcome or _fits(mark, asked.outcome))
    ]


def _fits(mark: Mark, outcome: str) -> bool:
    match outcome:
        case "errored":
            return mark.is_errored
        case "unscored":
            return mark.state in (UNSCORED, ERRORED)
        case _:
            return mark.grade == outcome


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task with its trials."""

    task: str
    marks: list[Mark]
    tally: Tally


def group_tasks(marks: list[Mark], sort: str) -> list[TaskRow]:
    """The tasks with their trials, in the order asked for."""
    tasks: dict[str, list[Mark]] = {}
    for mark in marks:
        tasks.setdefault(mark.task, []).append(mark)
    rows = [TaskRow(task, found, count_marks(found)) for task, found in tasks.items()]
    return sorted(rows, key=_TASK_ORDERS[sort])


def sort_trials(marks: list[Mark], sort: str) -> list[Mark]:
    """The trials in the order asked for."""
    return sorted(marks, key=_TRIAL_ORDERS[sort])


type _Key = tuple[bool, float, str, str]


def _by(value: Callable[[Mark], float | None], sign: int) -> Callable[[Mark], _Key]:
    """An order in which what is not known comes last."""

    def key(mark: Mark) -> _Key:
        found = value(mark)
        return (found is None, sign * (found or 0), mark.task, mark.trial)

    return key


_TRIAL_ORDERS: dict[str, Callable[[Mark], _Key]] = {
    "task": _by(lambda _: 0, 1),
    "low": _by(lambda mark: mark.reward, 1),
    "high": _by(lambda mark: mark.reward, -1),
    "errors": _by(lambda mark: 0 if mark.is_errored else 1, 1),
    "slow": _by(lambda mark: mark.seconds, -1),
    "cost": _by(lambda mark: mark.cost_usd, -1),
}


def _by_task(value: Callable[[TaskRow], float | None], sign: int) -> Callable[[TaskRow], _Key]:
    def key(row: TaskRow) -> _Key:
        found = value(row)
        return (found is None, sign * (found or 0), row.task, "")

    return key


def _most(row: TaskRow, value: Callable[[Mark], float | None]) -> float | None:
    return max((known for mark in row.marks if (known := value(mark)) is not None), default=None)


_TASK_ORDERS: dict[str, Callable[[TaskRow], _Key]] = {
    "task": _by_task(lambda _: 0, 1),
    "low": _by_task(lambda row: row.tally.mean, 1),
    "high": _by_task(lambda row: row.tally.mean, -1),
    "errors": _by_task(lambda row: row.tally.errored, -1),
    "slow": _by_task(lambda row: _most(row, lambda mark: mark.seconds), -1),
    "cost": _by_task(lambda row: _most(row, lambda mark: mark.cost_usd), -1),
}
