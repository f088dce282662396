"""A board as text: cells and sentences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proctor.report.board.model import Board, BoardRow, BoardSection, describe_run, describe_tasks
from proctor.report.board.numbers import RowNumbers
from proctor.report.board.trials import BoardTrials
from proctor.report.page.figures import render_ends, render_percent_ends, render_ranked
from proctor.report.statistics.bootstrap import FEW_TASKS
from proctor.report.wording import render_scored
from proctor.sentence import (
    count_of,
    render_errored,
    render_figure,
    render_money,
    render_percent,
)
from proctor.trial.finding import Level, level_of, sort_codes

_NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a board."""

    heading: str
    render: Callable[[BoardRow, BoardSection], str]
    """The cell of a row."""
    is_number: bool = True
    on_page: str | None = None
    """Its heading on the board's page; None if the page lays out these cells itself."""


COLUMNS = (
    Column("row", lambda row, _: row.number, is_number=False),
    Column("agent", lambda row, _: row.agent, is_number=False),
    Column("model", lambda row, _: row.model, is_number=False),
    Column("config", lambda row, _: row.configuration, is_number=False),
    Column("from", lambda row, _: render_source(row), is_number=False),
    Column("score [95 %]", lambda row, _: render_score(row.numbers)),
    Column("passed [95 %]", lambda row, _: render_passed(row.numbers)),
    Column("pass@k", lambda row, _: render_pass_at(row.numbers), on_page="pass@k"),
    Column("tasks", lambda row, section: _render_tasks(row, section), on_page="Tasks"),
    Column("trials", lambda row, _: f"{row.numbers.account.counted:,}", on_page="Trials"),
    Column("cost", lambda row, _: render_cost(row.numbers), on_page="Cost"),
    Column(
        "per success",
        lambda row, _: _render_per_success(row.numbers.cost.per_success),
        on_page="Per success",
    ),
    Column("grade", lambda row, _: _render_grade(row), is_number=False),
)
HEADINGS = tuple(column.heading for column in COLUMNS)
NUMBERS = tuple(column.heading for column in COLUMNS if column.is_number)
"""Headings of numeric columns."""
FIRST = ("row", "agent", "model", "score [95 %]", "passed [95 %]", "trials")
"""Headings of the columns that fit a narrow screen; the others can go below a row."""
POLICY = "policy"


def render_title(board: Board) -> str:
    """The title of a board."""
    n = sum(1 for _ in board.rows)
    trials = count_of(board.trials.listed, "trial")
    where = f"{count_of(board.size, 'entry', 'entries')} of {board.origin}"
    return f"{board.dataset} at {where}: {count_of(n, 'row')} from {trials}"


def render_heading(section: BoardSection) -> str:
    """The conditions of a section."""
    described = f"{describe_run(section.conditions)}; {describe_tasks(section.tasks)}"
    return f"{section.number}. {described}"


def headings_of(board: Board) -> tuple[str, ...]:
    """Headings of the cells of its rows."""
    return (*HEADINGS, POLICY) if board.policy is not None else HEADINGS


def render_cells(row: BoardRow, section: BoardSection) -> list[str]:
    """One row under the headings."""
    cells = [column.render(row, section) for column in COLUMNS]
    if row.mark is not None:
        cells.append(render_mark(row))
    return cells


def render_brief(row: BoardRow, section: BoardSection, width: int) -> str:
    """What the narrow columns leave out, on one line: the most important that fits."""
    said = ""
    for part in _list_brief(row, section):
        joined = f"{said}; {part}" if said else part
        if said and len(joined) > width:
            break
        said = joined
    return said


def _list_brief(row: BoardRow, section: BoardSection) -> Iterator[str]:
    """What a row has in addition to its narrow columns, the most important first; no zeros."""
    numbers = row.numbers
    if row.mark is not None:
        yield f"policy {render_mark(row)}"
    if numbers.score is None:
        yield f"no score: {numbers.why_none}"
    yield from _list_outcomes(numbers)
    if row.source is not None:
        yield f"imported ({row.source})"
    if numbers.n_tasks != len(section.tasks):
        yield f"{numbers.n_tasks:,} of {count_of(len(section.tasks), 'task')}"
    if sum((each.agent, each.model) == (row.agent, row.model) for each in section.rows) > 1:
        yield f"configuration {row.configuration}"
    yield from _list_worth(numbers)


def _list_worth(numbers: RowNumbers) -> Iterator[str]:
    if not numbers.below_grade:
        yield "leaderboard grade"
    if numbers.pass_at_k is not None and numbers.pass_at_k.value is not None:
        yield f"pass@{numbers.pass_at_k.k} {render_figure(numbers.pass_at_k.value)}"
    if numbers.cost.n_known:
        yield f"cost {render_cost(numbers)}"
    if numbers.cost.per_success is not None:
        yield f"{render_money(numbers.cost.per_success)} per success"


def _list_outcomes(numbers: RowNumbers) -> Iterator[str]:
    account = numbers.account
    alarms = sum(n for code, n in numbers.findings.items() if level_of(code) is Level.ALARM)
    if alarms:
        yield count_of(alarms, "integrity alarm")
    if account.zero_by_missing:
        yield f"{account.zero_by_missing:,} missing"
    if numbers.errored:
        yield render_errored(numbers.errored)
    left = {"superseded": account.superseded, "restarted": account.begun_again}
    yield from (f"{number:,} {why}" for why, number in left.items() if number)


def render_basis(row: BoardRow, section: BoardSection) -> Iterator[str]:
    """All details of a row, one sentence each."""
    cells = dict(zip(HEADINGS, render_cells(row, section), strict=False))
    said = [f"configuration {row.configuration}", cells["from"]]
    if cells["grade"] != _NOTHING:
        said.append("leaderboard grade")
    named = ("pass@k", "tasks", "cost", "per success")
    said += [f"{name} {cells[name]}" for name in named if cells[name] != _NOTHING]
    if row.mark is not None:
        said.append(f"policy {render_mark(row)}")
    yield "; ".join(said)
    yield render_parts(row)
    if remarks := list(render_remarks(row)):
        yield "; ".join(remarks)


def render_source(row: BoardRow) -> str:
    """The source of a row."""
    if row.source is None:
        return "run by proctor"
    if row.mark is not None and row.mark.has_passed:
        return f"imported ({row.source}), policy passed"
    return f"imported ({row.source})"


def render_mark(row: BoardRow) -> str:
    """The result of the policy for a row."""
    mark = row.mark
    if mark is None:
        return _NOTHING
    return "passed" if mark.has_passed else f"failed: {_render_counts(mark.reasons)}"


def _render_tasks(row: BoardRow, section: BoardSection) -> str:
    found, there = row.numbers.n_tasks, len(section.tasks)
    return str(found) if found == there else f"{found}/{there}"


def _render_grade(row: BoardRow) -> str:
    return _NOTHING if row.numbers.below_grade else "leaderboard"


def render_score(numbers: RowNumbers) -> str:
    """The mean reward with its interval."""
    if numbers.score is None:
        return _NOTHING
    return f"{render_ranked(numbers.score)} {render_ends(numbers.score_interval)}".rstrip()


def render_passed(numbers: RowNumbers) -> str:
    """The pass rate with its interval."""
    if numbers.pass_rate is None:
        return _NOTHING
    ends = render_percent_ends(numbers.pass_interval)
    return f"{render_percent(numbers.pass_rate)} {ends}".rstrip()


def render_pass_at(numbers: RowNumbers) -> str:
    """pass@k, with its k."""
    found = numbers.pass_at_k
    if found is None or found.value is None:
        return _NOTHING
    return f"{render_figure(found.value)} (k={found.k})"


def render_cost(numbers: RowNumbers) -> str:
    """The known cost, and for how many trials it is known."""
    cost = numbers.cost
    if not cost.n_known:
        return _NOTHING
    if not cost.n_unknown:
        return render_money(cost.known)
    return f"{render_money(cost.known)} ({cost.n_known}/{cost.n_known + cost.n_unknown})"


def _render_per_success(amount: float | None) -> str:
    return _NOTHING if amount is None else render_money(amount)


def render_parts(row: BoardRow) -> str:
    """The denominators of a row, as sums."""
    numbers, account = row.numbers, row.numbers.account
    return (
        f"{account.listed:,} listed = {account.counted:,} counted + {account.superseded:,} "
        f"superseded + {account.begun_again:,} restarted; {account.counted:,} counted = "
        f"{render_scored(account)} "
        f"+ {account.zero_by_missing:,} missing (counted as 0); {render_errored(numbers.errored)}"
    )


def render_remarks(row: BoardRow) -> Iterator[str]:
    """More details of a row: missing rewards, errors, findings, reviews, grade."""
    numbers = row.numbers
    if numbers.why_none is not None:
        yield f"no score: {numbers.why_none}"
    if numbers.score_excluding is not None:
        yield f"errors excluded {render_ranked(numbers.score_excluding)}"
    counts = {
        "missing": numbers.account.reasons,
        "errors": numbers.exceptions,
        "integrity findings": {
            f"{code} ({level_of(code)})": numbers.findings[code]
            for code in sort_codes(numbers.findings)
        },
        f"reviewed {numbers.n_reviewed:,}": numbers.reviews,
        "not of leaderboard grade": numbers.below_grade,
    }
    yield from (f"{what}: {_render_counts(found)}" for what, found in counts.items() if found)
    if numbers.advice.trials:
        asked = count_of(numbers.advice.trials, "trial")
        yield f"advisor asked in {asked}, {count_of(numbers.advice.calls, 'call')}"


def render_notes(board: Board) -> Iterator[str]:
    """Notes about a board."""
    trials = board.trials
    for section in board.sections:
        if any(row.numbers.n_tasks != len(section.tasks) for row in section.rows):
            yield f"section {section.number}: its rows are based on different tasks"
    if any(row.numbers.score_interval and row.numbers.n_tasks < FEW_TASKS for row in board.rows):
        yield f"score intervals from fewer than {FEW_TASKS} tasks are too narrow"
    for each in board.planned:
        if each.planned != each.counted:
            said = f"{each.planned:,} planned (entry {each.seq}), {each.counted:,} counted here"
            yield f"{each.experiment}: {said}"
    refused = [found for found in trials.supersessions.values() if found.refused is not None]
    for found in refused:
        yield f"entry {found.seq}: its supersession does not count: {found.refused}"
    if trials.remarks:
        yield f"{count_of(len(trials.remarks), 'trial')} rescored; the later score counts"
    yield from render_withheld(trials)


def render_withheld(trials: BoardTrials) -> Iterator[str]:
    """Sentences about withheld trials."""
    if trials.withheld:
        since = sum(g.said_at is not None and g.said_at >= trials.size for g in trials.withheld)
        after = f", {since} of them after this position" if since else ""
        said = count_of(len(trials.withheld), "trial")
        yield f"withheld: {said} of these experiments{after}; their scores are unknown"
    if trials.withheld_elsewhere:
        said = count_of(trials.withheld_elsewhere, "trial")
        yield f"withheld in other experiments: {said}; their datasets are unknown"


def split_rows(rows: Sequence[BoardRow]) -> Iterator[tuple[str, list[BoardRow]]]:
    """The rows in separate tables, each with its title."""
    sealed = [row for row in rows if not row.is_diagnostic]
    partial = [row for row in rows if row.is_diagnostic]
    if sealed:
        yield "", sealed
    if partial:
        yield "partial records (diagnostic): not eligible for a leaderboard", partial


def _render_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())
