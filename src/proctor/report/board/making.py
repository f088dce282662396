"""A ledger and a position to a board."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import msgspec

from proctor.errors import InputError, StatisticsError
from proctor.ledger.counting import RESTARTED, counted_trials
from proctor.ledger.query import load_position, looking
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.sealed_plans import SealedPlan, find_plans
from proctor.ledger.trial_index import check_text
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.board.conditions import tell_runs_apart, tell_tasks_apart
from proctor.report.board.model import Board, BoardRow, BoardSection, PlannedCount, PolicyCheck
from proctor.report.board.numbers import count_row
from proctor.report.board.trials import BoardTrials, settle
from proctor.sentence import count_of

# Runs of like conditions side by side, unlike ones apart
#
# What is placed is a group: the trials of one experiment by one agent, model and configuration.
# It goes, in the order of sealing, into the first section that has its run conditions and in which
# no task that both have was another one: other revision, other image, other limits. So a run is
# never torn apart because one of its tasks changed, and the split depends on the log alone.


type RowKey = tuple[str | None, str | None, str | None, str | None, bool]
"""Agent, model, configuration, source, and whether the records are partial: what makes a row."""

_ENCODER = msgspec.json.Encoder(order="sorted")


@dataclass(slots=True)
class AgentTrials:
    """Trials of one experiment that belong into one row, under conditions that agree."""

    key: RowKey
    run: int
    attempts: list[TrialRow] = field(default_factory=list)
    tasks: dict[str | None, int] = field(default_factory=dict)
    """The number of a task's conditions, by the task."""


@dataclass(slots=True)
class Placed:
    """A section as it is being filled."""

    run: int
    conditions: RunConditions
    tasks: dict[str | None, int] = field(default_factory=dict)
    groups: list[AgentTrials] = field(default_factory=list)


class Numbered:
    """Equal conditions get one number; those that are one object are compared once."""

    def __init__(self) -> None:
        self.by_identity: dict[int, int] = {}
        """Numbers of conditions that were seen, by the identity of the object."""
        self._by_text: dict[bytes, int] = {}
        self.values: list[RunConditions | TaskConditions | None] = []

    def number(self, value: RunConditions | TaskConditions | None) -> int:
        """Of conditions that were not seen before."""
        # The identity is a name only as long as the value lives: it is kept.
        self.values.append(value)
        found = self._by_text.setdefault(_ENCODER.encode(value), len(self.values) - 1)
        self.by_identity[id(value)] = found
        return found

    def run(self, number: int) -> RunConditions:
        """Run conditions by their number."""
        found = self.values[number]
        return found if isinstance(found, RunConditions) else RunConditions(backend="unknown")

    def task(self, number: int) -> TaskConditions:
        """A task's conditions by their number."""
        found = self.values[number]
        if isinstance(found, TaskConditions):
            return found
        return TaskConditions(revision="unknown", image="unknown")


def place_attempts(attempts: Sequence[TrialRow], numbered: Numbered) -> list[Placed]:
    """The sections of attempts that are given in the order of sealing."""
    sections: list[Placed] = []
    for group in _group_trials(attempts, numbered):
        section = next((each for each in sections if _is_like(each, group)), None)
        if section is None:
            section = Placed(group.run, numbered.run(group.run))
            sections.append(section)
        section.groups.append(group)
        section.tasks.update(group.tasks)
    return sections


def _is_like(section: Placed, group: AgentTrials) -> bool:
    if section.run != group.run:
        return False
    known = section.tasks
    return all(known.get(task, number) == number for task, number in group.tasks.items())


def _group_trials(attempts: Iterable[TrialRow], numbered: Numbered) -> list[AgentTrials]:
    """In the order in which they began; an attempt that fits no other begins one of its own."""
    found: dict[tuple[object, ...], AgentTrials] = {}
    number, known = numbered.number, numbered.by_identity
    for attempt in attempts:
        # A hundred thousand attempts share a few conditions: a look-up each, and seldom a call.
        if (run := known.get(id(attempt.run_conditions))) is None:
            run = number(attempt.run_conditions)
        if (task := known.get(id(attempt.task_conditions))) is None:
            task = number(attempt.task_conditions)
        row_key = (
            attempt.agent,
            attempt.model,
            attempt.configuration,
            attempt.source,
            attempt.completeness != "complete",
        )
        key: tuple[object, ...] = (attempt.experiment_id, run, *row_key)
        group = found.get(key)
        if group is None:
            group = found[key] = AgentTrials(row_key, run)
        elif group.tasks.get(attempt.task_id, task) != task:
            group = _find_other(found, key, attempt.task_id, task)
        group.tasks[attempt.task_id] = task
        group.attempts.append(attempt)
    return list(found.values())


def _find_other(
    found: dict[tuple[object, ...], AgentTrials],
    key: tuple[object, ...],
    task: str | None,
    number: int,
) -> AgentTrials:
    """A group of the same key in which the task is the same; perhaps a new one."""
    first = found[key]
    for more in count(1):
        other = found.setdefault((*key, more), AgentTrials(first.key, first.run))
        if other.tasks.get(task, number) == number:
            return other
    raise AssertionError("unreachable: the numbers do not end")


_MOST_NAMED = 20
_UNKNOWN = "unknown"


class DatasetCount(msgspec.Struct, frozen=True):
    """A dataset that a board can be made of."""

    dataset: str
    trials: int
    experiments: int


def list_datasets(ledger: LedgerReader, at: int | None = None) -> list[DatasetCount]:
    """What boards there are at a position, by name; trials of no dataset are in none.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    with looking(ledger) as size:
        found = ledger.index.datasets(size=size if at is None else at)
    return [DatasetCount(*each) for each in found]


def make_board(
    ledger: LedgerReader, dataset: str, *, at: int | None = None, desk: PolicyCheck | None = None
) -> Board:
    """The board of a dataset at a size of the log (default: now); a desk marks its rows.

    Raises:
        InputError: there is no such dataset, or the log was never of that size.
        StatisticsError: the trials do not add up.
        DamageError: the log does not give what its checkpoint says.
    """
    check_text(dataset, "the dataset")
    position = load_position(ledger, at=at, dataset=dataset)
    if not position.trials:
        raise InputError(_render_absence(ledger, dataset, position.size))
    trials = settle(ledger, position)
    numbered = Numbered()
    placed = place_attempts(trials.attempts, numbered)
    sections: list[BoardSection] = []
    for number, each in enumerate(placed, start=1):
        tasks = {task: numbered.task(found) for task, found in each.tasks.items()}
        section = BoardSection(
            number=number,
            conditions=each.conditions,
            tasks=tasks,
            apart=tuple(_tell_apart(each.conditions, tasks, sections)),
            rows=_make_rows(each, number, trials, desk),
        )
        sections.append(section)
    board = Board(
        dataset=dataset,
        origin=ledger.checkpoint().origin,
        sections=tuple(sections),
        trials=trials,
        planned=_count_planned(ledger, trials),
        policy=desk.name if desk is not None else None,
    )
    _check_sum(board)
    return board


def _render_absence(ledger: LedgerReader, dataset: str, size: int) -> str:
    names = [each.dataset for each in list_datasets(ledger, size)]
    said = count_of(size, "entry", "entries")
    there = f"{ledger.where}: no trial of a dataset {dataset!r} at {said}"
    if not names:
        return f"{there}, nor of any other; `proctor ledger list` shows what is sealed"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{there}; there are {', '.join(names[:_MOST_NAMED])}{more}"


def _tell_apart(
    conditions: RunConditions,
    tasks: Mapping[str | None, TaskConditions],
    before: Sequence[BoardSection],
) -> Iterator[str]:
    for section in before:
        if differences := list(tell_runs_apart(conditions, section.conditions)):
            yield f"not beside {section.number}: {'; '.join(differences)}"
            continue
        told = [
            tell_tasks_apart(task or _UNKNOWN, tasks[task], section.tasks[task])
            for task in tasks
            if task in section.tasks and tasks[task] != section.tasks[task]
        ]
        more = f"; and {len(told) - 1} more tasks" if len(told) > 1 else ""
        yield f"not beside {section.number}: {told[0]}{more}"


def _make_rows(
    placed: Placed, number: int, trials: BoardTrials, desk: PolicyCheck | None
) -> tuple[BoardRow, ...]:
    rows_by_key: dict[RowKey, list[TrialRow]] = {}
    for group in placed.groups:
        if (known := rows_by_key.setdefault(group.key, group.attempts)) is not group.attempts:
            # Two experiments may have been sealed in turns.
            together = sorted([*known, *group.attempts], key=lambda attempt: attempt.seq)
            rows_by_key[group.key] = together
    rows = [_make_row(key, found, trials, desk) for key, found in rows_by_key.items()]
    rows.sort(key=_rank)
    return tuple(replace(row, number=f"{number}.{at}") for at, row in enumerate(rows, start=1))


def _make_row(
    key: RowKey, found: list[TrialRow], trials: BoardTrials, desk: PolicyCheck | None
) -> BoardRow:
    agent, model, configuration, source, is_diagnostic = key
    judged = [each for each in found if each.status != RESTARTED]
    return BoardRow(
        number="",
        agent=agent or _UNKNOWN,
        model=model or _UNKNOWN,
        configuration=configuration or _UNKNOWN,
        revision=found[0].revision,
        source=source,
        is_diagnostic=is_diagnostic,
        experiments=tuple(dict.fromkeys(each.experiment_id for each in found)),
        attempts=found,
        numbers=count_row(found),
        mark=desk.mark(judged, trials.size) if desk is not None else None,
    )


def _rank(row: BoardRow) -> tuple[object, ...]:
    score = row.numbers.score
    names = (row.agent, row.model, row.configuration, row.source or "")
    return (row.is_diagnostic, score is None, -(score or 0.0), *names)


def _count_planned(ledger: LedgerReader, trials: BoardTrials) -> tuple[PlannedCount, ...]:
    plans: dict[str, SealedPlan] = {}
    for sealed in find_plans(ledger, at=trials.size):
        plans.setdefault(sealed.experiment, sealed)
    if not plans:
        return ()
    counted = Counter(each.experiment_id for each in counted_trials(trials.attempts))
    return tuple(
        PlannedCount(name, sealed.seq, sealed.n_trials, counted[name])
        for name, sealed in plans.items()
        if name in counted and sealed.n_trials is not None
    )


def _check_sum(board: Board) -> None:
    """Every trial that was found is in one row, and in one only."""
    listed = sum(row.numbers.account.listed for row in board.rows)
    if listed != len(board.trials.attempts):
        raise StatisticsError(
            f"{len(board.trials.attempts)} trials were found, but the rows list {listed}"
        )
