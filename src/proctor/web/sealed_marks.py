"""Marks from a ledger's index: the trials of one experiment, and the list of all experiments."""

import sqlite3
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from proctor.errors import LedgerError
from proctor.ledger.claims.standing import KEPT, begun_again_as
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import looking
from proctor.ledger.withheld import find_unnamed, render_unnamed
from proctor.trial.finding import worst_level
from proctor.web.marks import (
    ATTEMPT,
    ERRORED,
    SCORED,
    SUPERSEDED,
    UNSCORED,
    WITHHELD,
    Experiment,
    Mark,
    Tally,
    mean_of,
)

_COLUMNS = (
    "seq, trial_id, task_id, status, reward, reason_code, harness, model, dataset_id, seconds, "
    "cost_usd, timestamp, completeness, findings, exception"
)
_COUNTS = (
    "SELECT experiment_id, harness, model, dataset_id, status, count(*), count(reward), "
    "sum(exception IS NOT NULL), sum(completeness <> 'complete'), "
    "sum(reward IS NULL AND reason_code IS NULL) FROM trials "
    "WHERE experiment_id IN ({}) AND seq NOT IN ({}) GROUP BY 1, 2, 3, 4, 5"
)
_REWARDS = (
    "SELECT experiment_id, reward FROM trials WHERE experiment_id IN ({}) AND reward IS NOT NULL "
    "AND status IN ('sealed', 'diagnostic') AND seq NOT IN ({}) ORDER BY seq"
)
_KEPT = (
    "SELECT experiment_id, trial_id, seq FROM trials WHERE experiment_id IN ({}) "
    "AND status IN ('sealed', 'diagnostic') AND instr(trial_id, ?)"
)
_THERE = "SELECT 1 FROM trials WHERE experiment_id = ? AND trial_id = ? AND status <> 'withheld'"
_MATCHING = (
    " WHERE experiment_id IN (SELECT experiment_id FROM trials WHERE instr(lower(experiment_id || "
    "' ' || coalesce(harness, '') || ' ' || coalesce(model, '') || ' ' || coalesce(dataset_id, "
    "'')), ?))"
)

_BOARDS = (
    "SELECT DISTINCT collection FROM trials WHERE experiment_id = ? AND collection IS NOT NULL "
    "ORDER BY collection LIMIT 20"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An experiment in a list."""

    name: str
    tally: Tally
    agents: tuple[str, ...]
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    when: str
    """When its last trial was sealed."""
    is_mixed: bool
    """Whether its trials are of several agents, models or datasets."""


def load_sealed(ledger: Ledger, name: str) -> Experiment | None:
    """The trials of an experiment as they stand; None where there is none of that name.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    query = f"SELECT {_COLUMNS} FROM trials WHERE experiment_id = ? ORDER BY seq"  # noqa: S608
    texts: dict[str, str] = {}
    with looking(ledger):
        kept = set(_find_begun_again(ledger, [name]))
        marks = [_mark_of(row, texts, kept) for row in _rows(ledger, query, (name,))]
        version = find_version(ledger, name)
        boards = ledger.index.select(_BOARDS, (name,))
        disclosed = render_unnamed(find_unnamed(ledger))
    if not marks or version is None:
        return None
    return Experiment(
        name=name,
        marks=marks,
        is_finished=False,
        is_job=False,
        version=version,
        boards=tuple(board for (board,) in boards),
        disclosed=disclosed,
    )


def _find_begun_again(ledger: Ledger, names: Sequence[str]) -> Iterator[int]:
    """Places of earlier attempts whose own trials are there too: the rule of every report."""
    marks = ", ".join("?" * len(names))
    for experiment, trial, seq in ledger.index.select(_KEPT.format(marks), (*names, KEPT)):
        base = begun_again_as(trial)
        if base is not None and ledger.index.select(_THERE, (experiment, base)):
            yield seq


def find_version(ledger: Ledger, name: str) -> str | None:
    """What differs where anything was sealed into an experiment, or said of one of its trials.

    None where there is no trial in it; the index is up to date.
    """
    trials = "SELECT count(*), max(seq) FROM trials WHERE experiment_id = ?"
    ((number, last),) = ledger.index.select(trials, (name,))
    if not number:
        return None
    # A remark on any trial of the ledger: to find out whose it is would take longer than a page.
    ((said,),) = ledger.index.select("SELECT max(seq) FROM entries WHERE kind <> 'trial'")
    return f"{number}-{last}-{said}"


def _rows(ledger: Ledger, query: str, values: Sequence[object]) -> Iterator[tuple[Any, ...]]:
    """Row by row: a hundred thousand at once would take much memory."""
    try:
        yield from ledger.index.connection.execute(query, values)
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"index.sqlite cannot be used: {error}") from error


def _mark_of(row: tuple[Any, ...], texts: dict[str, str], begun_again: Set[int]) -> Mark:
    (seq, trial, task, status, reward, reason, agent, model, dataset, seconds, cost, when,
     completeness, findings, exception) = row  # fmt: skip

    codes = findings.split() if findings else ()

    def one(text: str | None) -> str | None:
        return None if text is None else texts.setdefault(text, text)

    return Mark(
        trial=trial,
        task=one(task) or "",
        state=ATTEMPT
        if seq in begun_again
        else _STATES.get(status) or _state_of(reward, exception),
        reward=reward,
        why=one(exception or reason),
        agent=one(agent),
        model=one(model),
        dataset=one(dataset),
        seconds=seconds,
        cost_usd=cost,
        when=when,
        is_partial=completeness == "partial",
        findings=len(codes),
        worst=worst_level(codes),
        is_errored=exception is not None,
        no_number=reward is None and reason is None,
    )


def _state_of(reward: float | None, exception: str | None) -> str:
    if reward is not None:
        return SCORED
    return ERRORED if exception is not None else UNSCORED


_STATES = {"superseded": SUPERSEDED, "withheld": WITHHELD}


def list_experiments(
    ledger: Ledger, *, words: str = "", first: int = 0, count: int = 50
) -> tuple[int, list[Listed]]:
    """How many experiments fit, and some of them; the one that was sealed into last first.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    where, values = (_MATCHING, [words.lower()]) if words else ("", [])
    number = f"SELECT count(DISTINCT experiment_id) FROM trials{where}"  # noqa: S608 - our text
    names = f"SELECT experiment_id, max(seq) FROM trials{where} GROUP BY 1 ORDER BY 2 DESC"  # noqa: S608
    with looking(ledger):
        ((total,),) = ledger.index.select(number, values)
        page = ledger.index.select(f"{names} LIMIT ? OFFSET ?", (*values, count, first))
        return total, _describe(ledger, page)


def _describe(ledger: Ledger, page: list[tuple[Any, ...]]) -> list[Listed]:
    names = [name for name, _ in page]
    marks = ", ".join("?" * len(names))
    counts: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    kept = list(_find_begun_again(ledger, names))
    left_out = ", ".join(map(str, kept))
    for name, *rest in ledger.index.select(_COUNTS.format(marks, left_out), names):
        counts[name].append(tuple(rest))
    rewards: dict[str, list[float]] = {name: [] for name in names}
    for name, reward in _rows(ledger, _REWARDS.format(marks, left_out), names):
        rewards[name].append(reward)
    times = dict(
        ledger.index.select(
            f"SELECT seq, at FROM entries WHERE seq IN ({marks})",  # noqa: S608 - question marks
            [seq for _, seq in page],
        )
    )
    return [
        Listed(
            name=name,
            tally=_tally(counts[name], rewards[name]),
            agents=_distinct(counts[name], 0),
            models=_distinct(counts[name], 1),
            datasets=_distinct(counts[name], 2),
            when=times.get(seq, ""),
            is_mixed=len({row[:3] for row in counts[name] if row[3] != "withheld"}) > 1,
        )
        for name, seq in page
    ]


def _tally(rows: list[tuple[Any, ...]], rewards: list[float]) -> Tally:
    by_status: dict[str, int] = {}
    for row in rows:
        by_status[row[3]] = by_status.get(row[3], 0) + row[4]
    counted = [row for row in rows if row[3] in ("sealed", "diagnostic")]
    run = sum(row[4] for row in counted)
    has_numbers = not sum(row[8] or 0 for row in counted)
    return Tally(
        run=run,
        scored=len(rewards),
        errored=sum(row[6] or 0 for row in counted),
        superseded=by_status.get("superseded", 0),
        withheld=by_status.get("withheld", 0),
        partial=sum(row[7] or 0 for row in counted),
        mean=mean_of(rewards, run) if has_numbers else None,
    )


def _distinct(rows: list[tuple[Any, ...]], column: int) -> tuple[str, ...]:
    return tuple(sorted({row[column] for row in rows if row[column] is not None}))
