"""Makes a board from a ledger at a position."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import msgspec

from proctor.errors import InputError, StatisticsError
from proctor.ledger.counting import RESTARTED
from proctor.ledger.query import read_position, snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.run_plan import SealedPlan, list_plans
from proctor.ledger.trial_index import TrialFilter, check_text
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.board.model import (
    Board,
    BoardRow,
    BoardSection,
    PlannedCount,
    PolicyCheck,
    run_differences,
    task_difference,
)
from proctor.report.board.numbers import Counted, Reducing, count_reduced
from proctor.report.board.trials import BoardTrials, TrialReading
from proctor.sentence import count_of

# Sections: only runs under the same conditions are listed together. A group, the trials of one
# experiment by one agent, model and configuration, goes into the first section that has its run
# conditions and the same conditions for every shared task (revision, image, limits). So one changed
# task does not split a run, and the sections depend only on the log.


type RowKey = tuple[str | None, str | None, str | None, str | None, bool]
"""Agent, model, configuration, source, and whether records are partial: identifies a row."""

_ENCODER = msgspec.json.Encoder(order="sorted")


@dataclass(slots=True)
class AgentTrials:
    """Trials of one experiment that belong to one row and have consistent conditions."""

    key: RowKey
    run: int
    experiment: str
    revision: str | None
    """Of the first trial."""
    reducing: Reducing = field(default_factory=Reducing)
    trials: list[Counted] = field(default_factory=list)
    tasks: dict[str | None, int] = field(default_factory=dict)
    """The number of each task's conditions."""


@dataclass(slots=True)
class Placed:
    """A section that is being filled."""

    run: int
    conditions: RunConditions
    tasks: dict[str | None, int] = field(default_factory=dict)
    groups: list[AgentTrials] = field(default_factory=list)


class Numbered:
    """Assigns numbers to distinct conditions; each object is compared only once."""

    def __init__(self) -> None:
        self.by_identity: dict[int, int] = {}
        """Numbers of seen conditions, by object identity."""
        self._by_text: dict[bytes, int] = {}
        self.values: list[RunConditions | TaskConditions | None] = []

    def number(self, value: RunConditions | TaskConditions | None) -> int:
        """The number of conditions that were not seen before."""
        # Kept alive: an identity may be reused after its object is gone.
        self.values.append(value)
        found = self._by_text.setdefault(_ENCODER.encode(value), len(self.values) - 1)
        self.by_identity[id(value)] = found
        return found

    def run(self, number: int) -> RunConditions:
        """Run conditions by number."""
        found = self.values[number]
        return found if isinstance(found, RunConditions) else RunConditions(backend="unknown")

    def task(self, number: int) -> TaskConditions:
        """Task conditions by number."""
        found = self.values[number]
        if isinstance(found, TaskConditions):
            return found
        return TaskConditions(revision="unknown", image="unknown")


def place_trials(rows: Iterable[TrialRow], numbered: Numbered) -> list[Placed]:
    """Place trials, given in the order of sealing, into sections."""
    sections: list[Placed] = []
    for group in _group_trials(rows, numbered):
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


def _group_trials(rows: Iterable[TrialRow], numbered: Numbered) -> list[AgentTrials]:
    """Groups in the order in which they began; a trial that fits none begins a new one."""
    found: dict[tuple[object, ...], AgentTrials] = {}
    number, known = numbered.number, numbered.by_identity
    for row in rows:
        # 100,000 trials share a few conditions: mostly a dictionary look-up each.
        if (run := known.get(id(row.run_conditions))) is None:
            run = number(row.run_conditions)
        if (task := known.get(id(row.task_conditions))) is None:
            task = number(row.task_conditions)
        row_key = (
            row.agent,
            row.model,
            row.configuration,
            row.source,
            row.completeness != "complete",
        )
        key: tuple[object, ...] = (row.experiment_id, run, *row_key)
        group = found.get(key)
        if group is None:
            group = found[key] = AgentTrials(row_key, run, row.experiment_id, row.revision)
        elif group.tasks.get(row.task_id, task) != task:
            group = _find_other(found, key, row, task)
        group.tasks[row.task_id] = task
        group.trials.append(group.reducing.reduce(row))
    return list(found.values())


def _find_other(
    found: dict[tuple[object, ...], AgentTrials],
    key: tuple[object, ...],
    row: TrialRow,
    number: int,
) -> AgentTrials:
    """A group with the same key and the same conditions of the task; a new one if needed."""
    first = found[key]
    for more in count(1):
        other = found.get((*key, more))
        if other is None:
            other = AgentTrials(first.key, first.run, row.experiment_id, row.revision)
            found[*key, more] = other
        if other.tasks.get(row.task_id, number) == number:
            return other
    raise AssertionError("unreachable: the numbers do not end")


_MOST_NAMED = 20
_UNKNOWN = "unknown"


class DatasetCount(msgspec.Struct, frozen=True):
    """A dataset that has a board."""

    dataset: str
    trials: int
    experiments: int


def list_datasets(ledger: LedgerReader, at: int | None = None) -> list[DatasetCount]:
    """The datasets at a position, by name; trials without a dataset are in none."""
    with snapshot(ledger) as size:
        found = ledger.index.datasets(size=size if at is None else at)
    return [DatasetCount(*each) for each in found]


def make_board(
    ledger: LedgerReader,
    dataset: str,
    *,
    at: int | None = None,
    policy_check: PolicyCheck | None = None,
) -> Board:
    """Make the board of a dataset at a size of the log (default: now), optionally with a policy.

    Raises:
        InputError: there is no such dataset, or the log never had that size.
        StatisticsError: the trials do not add up.
        DamageError: the log does not match its checkpoint.
    """
    check_text(dataset, "the dataset")
    numbered = Numbered()
    with read_position(ledger, TrialFilter(dataset=dataset), at=at) as (position, rows):
        reading = TrialReading(ledger, position)
        placed = place_trials(reading.read(rows), numbered)
        trials = reading.finish()
    if not trials.listed:
        raise InputError(_render_absence(ledger, dataset, position.size))
    load = _TrialLoader(ledger, dataset, position.size)
    sections: list[BoardSection] = []
    for number, each in enumerate(placed, start=1):
        tasks = {task: numbered.task(found) for task, found in each.tasks.items()}
        section = BoardSection(
            number=number,
            conditions=each.conditions,
            tasks=tasks,
            apart=tuple(_explain_separation(each.conditions, tasks, sections)),
            rows=_make_rows(each, number, load, policy_check),
        )
        sections.append(section)
    board = Board(
        dataset=dataset,
        origin=ledger.checkpoint().origin,
        sections=tuple(sections),
        trials=trials,
        planned=_count_planned(ledger, trials),
        policy=policy_check.name if policy_check is not None else None,
    )
    _check_sum(board)
    return board


def _render_absence(ledger: LedgerReader, dataset: str, size: int) -> str:
    names = [each.dataset for each in list_datasets(ledger, size)]
    said = count_of(size, "entry", "entries")
    there = f"{ledger.where}: no trial of the dataset {dataset!r} at {said}"
    if not names:
        return f"{there}, and no other dataset; `proctor ledger list` shows the sealed trials"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{there}; the datasets are {', '.join(names[:_MOST_NAMED])}{more}"


def _explain_separation(
    conditions: RunConditions,
    tasks: Mapping[str | None, TaskConditions],
    before: Sequence[BoardSection],
) -> Iterator[str]:
    for section in before:
        if differences := list(run_differences(conditions, section.conditions)):
            yield f"separate from {section.number}: {'; '.join(differences)}"
            continue
        differing = [
            task_difference(task or _UNKNOWN, tasks[task], section.tasks[task])
            for task in tasks
            if task in section.tasks and tasks[task] != section.tasks[task]
        ]
        more = f"; and {len(differing) - 1} more tasks" if len(differing) > 1 else ""
        yield f"separate from {section.number}: {differing[0]}{more}"


@dataclass(frozen=True, slots=True)
class _TrialLoader:
    """Loads the trials of a row as they were at the position of the board."""

    ledger: LedgerReader
    dataset: str
    size: int

    def __call__(self, experiments: tuple[str, ...], seqs: Collection[int]) -> list[TrialRow]:
        wanted, chosen = TrialFilter(dataset=self.dataset, experiments=experiments), set(seqs)
        with read_position(self.ledger, wanted, at=self.size) as (position, rows):
            found = TrialReading(self.ledger, position).read(rows)
            return [row for row in found if row.seq in chosen]


def _make_rows(
    placed: Placed, number: int, load: _TrialLoader, policy_check: PolicyCheck | None
) -> tuple[BoardRow, ...]:
    groups_by_key: dict[RowKey, list[AgentTrials]] = {}
    for group in placed.groups:
        groups_by_key.setdefault(group.key, []).append(group)
    rows = [_make_row(groups, load, policy_check) for groups in groups_by_key.values()]
    rows.sort(key=_rank)
    return tuple(replace(row, number=f"{number}.{at}") for at, row in enumerate(rows, start=1))


def _make_row(
    groups: Sequence[AgentTrials], load: _TrialLoader, policy_check: PolicyCheck | None
) -> BoardRow:
    agent, model, configuration, source, is_diagnostic = groups[0].key
    experiments = tuple(dict.fromkeys(group.experiment for group in groups))
    found = [each for group in groups for each in group.trials]
    if len(groups) > 1:
        # Two experiments may have been sealed in turns.
        found.sort(key=lambda each: each.seq)
    load_trials = partial(load, experiments, array("q", [each.seq for each in found]))
    mark = None
    if policy_check is not None:
        judged = [each for each in load_trials() if each.status != RESTARTED]
        mark = policy_check.mark(judged, load.size)
    return BoardRow(
        number="",
        agent=agent or _UNKNOWN,
        model=model or _UNKNOWN,
        configuration=configuration or _UNKNOWN,
        revision=groups[0].revision,
        source=source,
        is_diagnostic=is_diagnostic,
        experiments=experiments,
        load_trials=load_trials,
        numbers=count_reduced(found),
        mark=mark,
    )


def _rank(row: BoardRow) -> tuple[object, ...]:
    score = row.numbers.score
    names = (row.agent, row.model, row.configuration, row.source or "")
    return (row.is_diagnostic, score is None, -(score or 0.0), *names)


def _count_planned(ledger: LedgerReader, trials: BoardTrials) -> tuple[PlannedCount, ...]:
    plans: dict[str, SealedPlan] = {}
    for sealed in list_plans(ledger, at=trials.size):
        plans.setdefault(sealed.experiment, sealed)
    if not plans:
        return ()
    return tuple(
        PlannedCount(name, sealed.seq, sealed.n_trials, trials.counted[name])
        for name, sealed in plans.items()
        if name in trials.counted and sealed.n_trials is not None
    )


def _check_sum(board: Board) -> None:
    """Check that every trial is in exactly one row."""
    listed = sum(row.numbers.account.listed for row in board.rows)
    if listed != board.trials.listed:
        raise StatisticsError(
            f"{board.trials.listed} trials were found, but the rows list {listed}"
        )
