"""Which supersessions count: the rule for lists, boards, claims, reports, policies and pages.

A trial is superseded if the log names another trial that replaces it, and that trial is in the log
with the same experiment, dataset, task, agent and model. For a withheld replacement only the
experiment is compared: the rest is unknown. So a trial cannot be removed from the numbers by naming
a replacement that does not exist, that counts as something else, or that is the trial itself.
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
SET_STATUS: Final = (
    "UPDATE trials SET status = CASE WHEN ? THEN 'superseded' "
    "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END "
    "WHERE record = ? AND status <> 'withheld'"
)
"""Sets the status of a trial: whether it is superseded, and its record."""


class Replaceable(msgspec.Struct, frozen=True):
    """The fields of a trial that decide which trials may replace it."""

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
    """Why each supersession does not count, by superseded record; None if it counts.

    `pairs` are records with their replacements, in the order of the log: the last one counts.
    Records that are not in `trials` are left out.
    """
    # Later pairs overwrite earlier ones: the last supersession of a record counts.
    replaced = dict(pairs)
    return {
        record: _find_refusal(record, replaced, trials) for record in replaced if record in trials
    }


def _find_refusal(
    record: str, replaced: Mapping[str, str], trials: Mapping[str, Replaceable]
) -> str | None:
    last = find_replacement(record, replaced)
    if last is None:
        return "the supersessions form a cycle"
    if last not in trials:
        return "the trial that replaces it is not in the ledger"
    subject, other = trials[record], trials[last]
    # Of a withheld trial only the ids are left to compare.
    is_known = not (subject.is_withheld or other.is_withheld)
    for what in _SAME if is_known else _SAME[:1]:
        if getattr(subject, what) != getattr(other, what):
            return f"the trial that replaces it is of another {what}"
    return None


def find_replacement(record: str, replaced: Mapping[str, str]) -> str | None:
    """The record at the end of a chain of supersessions; None if it is a cycle."""
    seen, last = {record}, replaced[record]
    while last in replaced and last not in seen:
        seen.add(last)
        last = replaced[last]
    return last if last not in seen else None


def read_supersessions(
    connection: sqlite3.Connection, size: int = _EVERYTHING
) -> dict[str, str | None]:
    """`judge_supersessions` for an index, at a size of the log."""
    pairs = connection.execute(_PAIRS, (size,)).fetchall()
    if not pairs:
        return {}
    named = connection.execute(_NAMED, (size,))
    trials = {record: Replaceable(*facts) for record, *facts in named}
    return judge_supersessions(pairs, trials)


def update_statuses(connection: sqlite3.Connection) -> None:
    """Set the present status of every trial that a supersession names."""
    for record, refusal in read_supersessions(connection).items():
        connection.execute(SET_STATUS, (refusal is None, record))
