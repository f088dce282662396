"""A ledger and a position to a board."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from proctor.errors import InputError, StatisticsError
from proctor.ledger.counting import RESTARTED, counted_trials
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import check_text, load_position, looking
from proctor.ledger.row import TrialRow
from proctor.ledger.sealed_plans import SealedPlan, find_plans
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.board.conditions import tell_runs_apart, tell_tasks_apart
from proctor.report.board.model import Board, BoardRow, BoardSection, Desk, PlannedCount
from proctor.report.board.numbers import count_row
from proctor.report.board.sections import Numbered, Placed, Sitter, place_attempts
from proctor.report.board.trials import BoardTrials, settle
from proctor.sentence import count_of

_MOST_NAMED = 20
_UNKNOWN = "unknown"


class DatasetCount(msgspec.Struct, frozen=True):
    """A dataset that a board can be made of."""

    dataset: str
    trials: int
    experiments: int


def list_datasets(ledger: Ledger, at: int | None = None) -> list[DatasetCount]:
    """What boards there are at a position, by name; trials of no dataset are in none.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    with looking(ledger) as size:
        found = ledger.index.datasets(size=size if at is None else at)
    return [DatasetCount(*each) for each in found]


def make_board(
    ledger: Ledger, dataset: str, *, at: int | None = None, desk: Desk | None = None
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


def _render_absence(ledger: Ledger, dataset: str, size: int) -> str:
    names = [each.dataset for each in list_datasets(ledger, size)]
    said = count_of(size, "entry", "entries")
    there = f"{ledger.directory}: no trial of a dataset {dataset!r} at {said}"
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
    placed: Placed, number: int, trials: BoardTrials, desk: Desk | None
) -> tuple[BoardRow, ...]:
    sitters: dict[Sitter, list[TrialRow]] = {}
    for sitting in placed.sittings:
        if (known := sitters.setdefault(sitting.sitter, sitting.attempts)) is not sitting.attempts:
            # Two experiments may have been sealed in turns.
            together = sorted([*known, *sitting.attempts], key=lambda attempt: attempt.seq)
            sitters[sitting.sitter] = together
    rows = [_make_row(sitter, found, trials, desk) for sitter, found in sitters.items()]
    rows.sort(key=_rank)
    return tuple(replace(row, number=f"{number}.{at}") for at, row in enumerate(rows, start=1))


def _make_row(
    sitter: Sitter, found: list[TrialRow], trials: BoardTrials, desk: Desk | None
) -> BoardRow:
    agent, model, configuration, source, is_diagnostic = sitter
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


def _count_planned(ledger: Ledger, trials: BoardTrials) -> tuple[PlannedCount, ...]:
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
