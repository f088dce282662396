"""Which trials are sealed: lists by filter, and one by its name. All of it from the index.

    find_trials(ledger, TrialFilter(model="anthropic/claude-x", limit=20))
    find_one(ledger, "nightly/fix-bug__a1B2c3D")    also an entry's number, or a unique prefix

Nothing here reads a record. What was withheld is listed with what is left of it.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import msgspec

from proctor.errors import InputError, LedgerError
from proctor.ledger.counting import KEPT, RESTARTED, SUPERSEDED, WITHHELD, find_restarted
from proctor.ledger.ledger import Ledger
from proctor.ledger.row import TrialRow, admitted_status
from proctor.ledger.supersession import read_supersessions
from proctor.ledger.withheld import UnnamedWithholding, find_unnamed

STATUSES = ("sealed", "diagnostic", "superseded", "withheld")
_MOST_NAMED = 5
_TRIES = 100
_HIGHEST = "\U0010ffff"
_SHORTEST_DIGEST = 8
"""Characters of a record's digest that name it; fewer are taken for the beginning of an id."""


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
                raise InputError(f"{name} is nan, which no reward can be compared with")


_EQUAL = {
    "experiment": "experiment_id",
    "trial": "trial_id",
    "dataset": "dataset_id",
    "harness": "agent",
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
    raise LedgerError(f"{ledger.where}: its index is being rebuilt; try again")


def select_trials(ledger: Ledger, wanted: TrialFilter) -> list[TrialRow]:
    """The same from an index that is up to date."""
    conditions, values = _make_conditions(wanted)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    if wanted.limit is None:
        return list(ledger.index.trials(f"{where} ORDER BY seq", values))
    latest = ledger.index.trials(f"{where} ORDER BY seq DESC LIMIT {wanted.limit:d}", values)
    return list(latest)[::-1]


@dataclass(frozen=True, slots=True)
class Position:
    """The trials of a ledger as they stood at a size of its log.

    What was appended later does not count: neither a supersession nor a review. The exception is
    what was withheld since: it is gone, and listed as withheld.
    """

    size: int
    """Entries of the log that count."""
    trials: list[TrialRow]
    """In the order they were sealed."""
    supersessions: dict[str, str | None]
    """Why each supersession does not count, by the superseded record; None where it does."""
    unnamed: list[UnnamedWithholding]
    """What was withheld without naming a trial: it may be of any experiment."""


def load_position(
    ledger: Ledger,
    *,
    at: int | None = None,
    experiment: str | None = None,
    dataset: str | None = None,
) -> Position:
    """All trials, or those of one dataset or experiment, at a size of the log (default: now).

    Raises:
        InputError: the log was never of that size.
        DamageError: the log does not give what its checkpoint says.
    """
    with looking(ledger) as size:
        if at is not None and not 0 < at <= size:
            raise InputError(
                f"{ledger.where}: the log has {size:,} entries; expected a position from 1 to "
                f"{size}, not {at}"
            )
        size = at or size
        wanted = {"experiment_id": experiment, "dataset_id": dataset}
        asked = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(["seq < ?", *(f"{column} = ?" for column in asked)])
        values = (size, *asked.values())
        found = ledger.index.trials(f"WHERE {where} ORDER BY seq", values, size=size)
        judged = read_supersessions(ledger.index.connection, size)
        trials = with_restarted([_at_position(row, judged) for row in found])
        return Position(size, trials, judged, find_unnamed(ledger, size))


def _at_position(row: TrialRow, judged: Mapping[str, str | None]) -> TrialRow:
    """The row with its status there: the index has the status that it has now."""
    is_superseded = judged.get(row.record, "") is None and row.status != WITHHELD
    status = SUPERSEDED if is_superseded else row.status
    if row.status == SUPERSEDED and not is_superseded:
        status = admitted_status(row.completeness)
    return row if status == row.status else msgspec.structs.replace(row, status=status)


def with_restarted(trials: list[TrialRow]) -> list[TrialRow]:
    """The same trials, with the status of attempts that were restarted."""
    names: dict[str, list[tuple[str, str]]] = {}
    for row in trials:
        if KEPT in row.trial_id:
            names[row.experiment_id] = []
    if not names:
        return trials
    for row in trials:
        if row.experiment_id in names:
            names[row.experiment_id].append((row.trial_id, row.status))
    restarted = {name: find_restarted(found) for name, found in names.items()}
    return [
        msgspec.structs.replace(row, status=RESTARTED)
        if row.trial_id in restarted.get(row.experiment_id, ())
        else row
        for row in trials
    ]


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
        f"{ledger.where}: no trial or entry is called {name[:200]!r}; expected "
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
        raise LedgerError(f"{ledger.where}: entry {found} is not a trial")
    return found


def render_missing(ledger: Ledger, experiment: str) -> str:
    """That an experiment is not in a ledger, and which are: those that were sealed last."""
    newest = "SELECT experiment_id, max(seq) FROM trials GROUP BY 1 ORDER BY 2 DESC LIMIT ?"
    names = [name for name, _ in ledger.index.select(newest, (_MOST_NAMED + 1,))]
    named = ", ".join(names[:_MOST_NAMED])
    more = ", … (`proctor ledger list` has all)" if len(names) > _MOST_NAMED else ""
    there = f"{ledger.where}: no trial of the experiment {experiment[:200]!r} is sealed"
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
    return list(ledger.index.trials(f"WHERE {condition} ORDER BY seq LIMIT 100", values))


def _render_experiment(ledger: Ledger, name: str, rows: list[TrialRow]) -> str:
    return (
        f"{ledger.where}: {name!r} is an experiment; expected one of its trials, such as "
        f"{rows[0].name} (`proctor trace summary {name}` has them all)"
    )


def _render_several(ledger: Ledger, name: str, rows: list[TrialRow]) -> str:
    named = ", ".join(row.name for row in rows[:_MOST_NAMED])
    more = ", …" if len(rows) > _MOST_NAMED else ""
    return (
        f"{ledger.where}: {name!r} may be any of {named}{more}; "
        "expected EXPERIMENT/TRIAL, an entry's number, or more of the name"
    )
