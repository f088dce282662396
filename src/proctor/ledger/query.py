"""Which trials are sealed: lists by filter, and one by its name. All of it from the index.

    find_trials(ledger, TrialFilter(model="anthropic/claude-x", limit=20))
    find_one(ledger, "nightly/fix-bug__a1B2c3D")    also an entry's number, or a unique prefix

Nothing here reads a record. What was withheld is listed with what is left of it.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import msgspec

from proctor.errors import InputError, LedgerError
from proctor.ledger.ledger import Ledger

STATUSES = ("sealed", "diagnostic", "superseded", "withheld")
_MOST_NAMED = 5
_TRIES = 100
_HIGHEST = "\U0010ffff"
_SHORTEST_DIGEST = 8
"""Characters of a record's digest that name it; fewer are taken for the beginning of an id."""


class TrialRow(msgspec.Struct, frozen=True, gc=False):
    """What a list says of one sealed trial."""

    seq: int
    """Its entry's place in the log."""
    experiment_id: str
    trial_id: str
    record: str
    """SHA-256 of the record's bytes as stored."""
    status: str
    """sealed, diagnostic (a partial record), superseded or withheld."""
    completeness: str | None
    """complete or partial. Null, as everything below, where the entry was withheld."""
    dataset_id: str | None
    """The dataset on record, else the name that the job has for it: the one that boards are of."""
    task_id: str | None
    harness: str | None
    """The agent's adapter."""
    model: str | None
    reward: int | float | None
    """Null: not scored, which is not 0."""
    timestamp: str | None
    """When the trial ran, in UTC."""
    reason_code: str | None
    """Why it has no score."""
    evidence_files: int
    evidence_bytes: int
    review: str | None = None
    """The verdict of its latest review: pass, fail or defer; null: nobody reviewed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Which trials are wanted; what is None is not asked for."""

    experiment: str | None = None
    trial: str | None = None
    """A trial's id."""
    dataset: str | None = None
    task: str | None = None
    """How the task's id begins."""
    harness: str | None = None
    model: str | None = None
    lowest: float | None = None
    """The lowest reward; what is not scored has none, and is left out."""
    highest: float | None = None
    """The highest reward."""
    status: str | None = None
    since: datetime | str | None = None
    """When the trial ran, or later; as text in ISO 8601, in UTC unless it says otherwise."""
    limit: int | None = None
    """At most so many, the ones that were sealed last."""

    def __post_init__(self) -> None:
        if self.status is not None and self.status not in STATUSES:
            raise InputError(f"status is {self.status!r}; expected one of {', '.join(STATUSES)}")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit is {self.limit}; expected 1 or more")
        for name in ("lowest", "highest"):
            bound = getattr(self, name)
            if bound is not None and math.isnan(bound):
                raise InputError(f"{name} is nan, which no reward can be held against")


_COLUMNS = ", ".join(
    "collection" if name == "dataset_id" else name
    for name in TrialRow.__struct_fields__
    if name != "review"
)
_EQUAL = {
    "experiment": "experiment_id",
    "trial": "trial_id",
    "dataset": "collection",
    "harness": "harness",
    "model": "model",
    "status": "status",
}


def find_trials(ledger: Ledger, wanted: TrialFilter | None = None) -> list[TrialRow]:
    """The trials that a filter lets through, in the order they were sealed.

    Raises:
        DamageError: the log does not give what its checkpoint says.
        InputError: a time of the filter is none.
    """
    with looking(ledger):
        return select_trials(ledger, wanted or TrialFilter())


@contextlib.contextmanager
def looking(ledger: Ledger) -> Iterator[int]:
    """One moment of the index, which is as far as the log; how many entries that are.

    Raises:
        LedgerError: others write without a pause.
    """
    for _ in range(_TRIES):
        size = ledger.refresh().tree.size
        with ledger.index.reading():
            # Another process may have begun to make it anew just now.
            if ledger.index.size() >= size:
                yield size
                return
    raise LedgerError(f"{ledger.directory}: its index is being made anew; try again")


def select_trials(ledger: Ledger, wanted: TrialFilter) -> list[TrialRow]:
    """The same from an index that is up to date."""
    conditions, values = _make_conditions(wanted)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = f"LIMIT {wanted.limit:d}" if wanted.limit is not None else ""
    order = "DESC" if limit else ""
    query = f"SELECT {_COLUMNS} FROM trials {where} ORDER BY seq {order} {limit}"  # noqa: S608
    rows = ledger.index.select(query, values)
    if limit:
        rows.reverse()
    return _make_rows(ledger, rows)


def _make_rows(ledger: Ledger, rows: list[tuple[Any, ...]]) -> list[TrialRow]:
    reviews = dict(
        ledger.index.select(
            "SELECT record, verdict FROM remarks WHERE verdict IS NOT NULL ORDER BY seq"
        )
    )
    if not reviews:
        return [TrialRow(*row) for row in rows]
    return [TrialRow(*(*row, reviews.get(row[3]))) for row in rows]


def _make_conditions(wanted: TrialFilter) -> tuple[list[str], list[object]]:
    conditions: list[str] = []
    values: list[object] = []
    for field in fields(wanted):
        value = getattr(wanted, field.name)
        if value is None or field.name == "limit":
            continue
        if isinstance(value, str):
            check_text(value, field.name)
        if column := _EQUAL.get(field.name):
            conditions.append(f"{column} = ?")
            values.append(value)
        elif field.name == "task":
            conditions.append("task_id >= ? AND task_id < ?")
            values += [value, value + _HIGHEST]
        elif field.name == "since":
            conditions.append("timestamp >= ?")
            values.append(_time_text(value))
        else:
            conditions.append(f"reward {'>=' if field.name == 'lowest' else '<='} ?")
            values.append(value)
    return conditions, values


def check_text(text: str, what: str) -> None:
    """Refuse what cannot stand in a ledger, and so cannot be found there.

    Raises:
        InputError: it has control characters, or bytes that are no text.
    """
    if not text.isprintable():
        raise InputError(f"{what} is {text[:80]!r}; expected text without control characters")


def _time_text(given: datetime | str) -> str:
    """A time as the index has it."""
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"since is {str(given)[:60]!r}; expected a time such as 2026-11-15 or "
            "2026-11-15T10:00:00Z"
        ) from error
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def find_one(ledger: Ledger, name: str) -> TrialRow | int:
    """The trial, or else the number of the entry, that somebody means.

    In this order: an entry's number; EXPERIMENT/TRIAL; a trial's id; the digest of a record; the
    beginning of one of these, where it fits only one.

    Raises:
        LedgerError: none fits, or several do.
        DamageError: the log does not give what its checkpoint says.
    """
    check_text(name, "a name")
    with looking(ledger) as size:
        if name.isascii() and name.isdigit() and int(name[:20]) < size:
            found = _select(ledger, "seq = ?", int(name))
            return found[0] if found else int(name)
        for rows in _look_up(ledger, name):
            if len(rows) == 1:
                return rows[0]
            if rows:
                raise LedgerError(_render_several(ledger, name, rows))
        if trials := _select(ledger, "experiment_id = ?", name):
            raise LedgerError(_render_experiment(ledger, name, trials))
    raise LedgerError(
        f"{ledger.directory}: no trial or entry is called {name[:200]!r}; expected "
        "EXPERIMENT/TRIAL, a trial's id, an entry's number, or the beginning of one: "
        "`proctor ledger list` has them"
    )


def find_trial(ledger: Ledger, name: str) -> TrialRow:
    """The sealed trial that somebody means, likewise.

    Raises:
        LedgerError: none fits, several do, or it is an entry of another kind.
        DamageError: the log does not give what its checkpoint says.
    """
    found = find_one(ledger, name)
    if isinstance(found, int):
        raise LedgerError(f"{ledger.directory}: entry {found} is not a trial")
    return found


def render_missing(ledger: Ledger, experiment: str) -> str:
    """That an experiment is not in a ledger, and which are: those that were sealed last."""
    newest = "SELECT experiment_id, max(seq) FROM trials GROUP BY 1 ORDER BY 2 DESC LIMIT ?"
    names = [name for name, _ in ledger.index.select(newest, (_MOST_NAMED + 1,))]
    named = ", ".join(names[:_MOST_NAMED])
    more = ", … (`proctor ledger list` has all)" if len(names) > _MOST_NAMED else ""
    there = f"{ledger.directory}: no trial of the experiment {experiment[:200]!r} is sealed"
    return f"{there}; there are {named}{more}" if names else f"{there}, nor any other"


def _look_up(ledger: Ledger, name: str) -> Iterator[list[TrialRow]]:
    experiment, slash, trial = name.partition("/")
    if slash:
        yield _select(ledger, "experiment_id = ? AND trial_id = ?", experiment, trial)
        yield _select(
            ledger, "experiment_id = ? AND trial_id >= ? AND trial_id < ?",
            experiment, trial, trial + _HIGHEST,
        )  # fmt: skip
        return
    if not name:
        return
    yield _select(ledger, "trial_id = ?", name)
    yield _select(ledger, "trial_id >= ? AND trial_id < ?", name, name + _HIGHEST)
    digest = name.removeprefix("sha256:")
    if len(digest) >= _SHORTEST_DIGEST:
        yield _select(ledger, "record >= ? AND record < ?", digest, digest + _HIGHEST)


def _select(ledger: Ledger, condition: str, *values: object) -> list[TrialRow]:
    query = f"SELECT {_COLUMNS} FROM trials WHERE {condition} ORDER BY seq LIMIT 100"  # noqa: S608
    return _make_rows(ledger, ledger.index.select(query, values))


def _render_experiment(ledger: Ledger, name: str, rows: list[TrialRow]) -> str:
    return (
        f"{ledger.directory}: {name!r} is an experiment; expected one of its trials, such as "
        f"{rows[0].experiment_id}/{rows[0].trial_id} (`proctor trace summary {name}` has them all)"
    )


def _render_several(ledger: Ledger, name: str, rows: list[TrialRow]) -> str:
    named = ", ".join(f"{row.experiment_id}/{row.trial_id}" for row in rows[:_MOST_NAMED])
    more = ", …" if len(rows) > _MOST_NAMED else ""
    return (
        f"{ledger.directory}: {name!r} may be any of {named}{more}; "
        "expected EXPERIMENT/TRIAL, an entry's number, or more of the name"
    )
