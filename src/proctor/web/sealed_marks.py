"""Marks from a ledger's index: the trials of one experiment, and the list of all experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.ledger.counting import (
    RESTARTED,
    WITHHELD,
    account_for,
    count_exceptions,
    find_restarted,
)
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import looking
from proctor.ledger.withheld import render_unnamed
from proctor.report.attempt import Attempt
from proctor.report.sealed import load_position
from proctor.trial.finding import worst_level
from proctor.web.marks import Experiment, Mark, Tally

_COUNTED = (
    "SELECT experiment_id, trial_id, status, reward, reason_code, exception, harness, model, "
    "collection FROM trials WHERE experiment_id IN ({}) ORDER BY seq"
)
_MATCHING = (
    " WHERE experiment_id IN (SELECT experiment_id FROM trials WHERE instr(lower(experiment_id || "
    "' ' || coalesce(harness, '') || ' ' || coalesce(model, '') || ' ' || coalesce(collection, "
    "'')), ?))"
)


class _Row(msgspec.Struct, gc=False):
    """As much of a trial as a list of experiments counts."""

    trial: str
    status: str
    reward: float | None
    reason: str | None
    exception: str | None
    agent: str | None
    model: str | None
    dataset: str | None


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
    # The version first: what is sealed meanwhile is then shown again under its own.
    with looking(ledger):
        version = find_version(ledger, name)
    if version is None:
        return None
    found = load_position(ledger, experiment=name)
    return Experiment(
        name=name,
        marks=list(map(_mark_of, found.attempts)),
        is_finished=False,
        is_job=False,
        version=version,
        boards=tuple(sorted({each.collection for each in found.attempts if each.collection})),
        disclosed=render_unnamed(found.unnamed),
    )


def _mark_of(attempt: Attempt) -> Mark:
    return Mark(
        trial=attempt.trial,
        task=attempt.task or "",
        status=attempt.status,
        reward=attempt.reward,
        reason=attempt.reason,
        exception=attempt.exception,
        why=attempt.exception or attempt.reason,
        agent=attempt.agent,
        model=attempt.model,
        dataset=attempt.collection,
        seconds=attempt.seconds,
        cost_usd=attempt.cost_usd,
        when=attempt.when,
        findings=len(attempt.findings),
        worst=worst_level(attempt.findings),
    )


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
    trials: dict[str, list[_Row]] = {name: [] for name in names}
    for name, *rest in ledger.index.stream(_COUNTED.format(marks), names):
        trials[name].append(_Row(*rest))
    times = dict(
        ledger.index.select(
            f"SELECT seq, at FROM entries WHERE seq IN ({marks})",  # noqa: S608 - question marks
            [seq for _, seq in page],
        )
    )
    return [_list(name, trials[name], times.get(seq, "")) for name, seq in page]


def _list(name: str, trials: list[_Row], when: str) -> Listed:
    restarted = find_restarted([(each.trial, each.status) for each in trials])
    for each in trials if restarted else ():
        if each.trial in restarted:
            each.status = RESTARTED
    groups = {(each.agent, each.model, each.dataset) for each in trials if each.status != WITHHELD}
    return Listed(
        name=name,
        tally=Tally(account_for(trials), sum(count_exceptions(trials).values())),
        agents=_distinct([agent for agent, _, _ in groups]),
        models=_distinct([model for _, model, _ in groups]),
        datasets=_distinct([dataset for _, _, dataset in groups]),
        when=when,
        is_mixed=len(groups) > 1,
    )


def _distinct(names: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name is not None}))
