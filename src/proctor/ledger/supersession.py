"""Which supersessions count: one rule for lists, boards, claims, reports, policies and pages.

A trial is superseded where the log names another one that replaces it, and that one is in the log
too: a trial of the same experiment, dataset, task, agent and model. One that was withheld counts as
well, as far as its name goes: what it ran is not known. To be rid of a trial it is not enough to
name one that never was, one that counts as something else, or the trial itself.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_SAME: Final = ("experiment", "dataset", "task", "agent", "model")
_PAIRS: Final = (
    "SELECT one.record, other.record FROM remarks one JOIN remarks other USING (seq) "
    "WHERE one.kind = 'supersede' AND one.is_subject AND other.kind = 'supersede' "
    "AND NOT other.is_subject AND seq < ? ORDER BY seq"
)
_NAMED: Final = (
    "SELECT record, experiment_id, recorded_dataset, task_id, agent, model, status = 'withheld' "
    "FROM trials WHERE seq < ? AND record IN (SELECT record FROM remarks WHERE kind = 'supersede')"
)
_EVERYTHING: Final = 1 << 62


class Replaceable(msgspec.Struct, frozen=True):
    """As much of a trial as decides which others may replace it."""

    experiment: str
    dataset: str | None
    task: str | None
    agent: str | None
    model: str | None
    is_withheld: bool = False
    """Whether all but the experiment is unknown."""


def judge_supersessions(
    pairs: Iterable[tuple[str, str]], trials: Mapping[str, Replaceable]
) -> dict[str, str | None]:
    """Why each supersession does not count, by the superseded record; None where it does.

    `pairs` are records and those that replace them, in the order of the log: the last one counts.
    Records that are not among `trials` are left out.
    """
    replaced = dict(pairs)
    return {
        record: _find_refusal(record, replaced, trials) for record in replaced if record in trials
    }


def _find_refusal(
    record: str, replaced: Mapping[str, str], trials: Mapping[str, Replaceable]
) -> str | None:
    last = find_stand_in(record, replaced)
    if last is None:
        return "the supersessions go round in a circle"
    if last not in trials:
        return "the trial that replaces it is not in the ledger"
    subject, other = trials[record], trials[last]
    is_known = not (subject.is_withheld or other.is_withheld)
    for what in _SAME if is_known else _SAME[:1]:
        if getattr(subject, what) != getattr(other, what):
            return f"the trial that replaces it is of another {what}"
    return None


def find_stand_in(record: str, replaced: Mapping[str, str]) -> str | None:
    """The record at which supersessions end; None where they go round in a circle."""
    seen, last = {record}, replaced[record]
    while last in replaced and last not in seen:
        seen.add(last)
        last = replaced[last]
    return last if last not in seen else None


def read_supersessions(
    connection: sqlite3.Connection, size: int = _EVERYTHING
) -> dict[str, str | None]:
    """The same for an index, at a size of the log."""
    pairs = connection.execute(_PAIRS, (size,)).fetchall()
    if not pairs:
        return {}
    named = connection.execute(_NAMED, (size,))
    trials = {record: Replaceable(*facts) for record, *facts in named}
    return judge_supersessions(pairs, trials)


def update_statuses(connection: sqlite3.Connection) -> None:
    """Give every trial of an index that a supersession names the status that it has now."""
    for record, refusal in read_supersessions(connection).items():
        connection.execute(
            "UPDATE trials SET status = CASE WHEN ? THEN 'superseded' "
            "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END "
            "WHERE record = ? AND status <> 'withheld'",
            (refusal is None, record),
        )
