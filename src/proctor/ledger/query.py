"""Which trials are sealed: lists by filter, and one by its name. All of it from the index.

    find_trials(ledger, TrialFilter(model="anthropic/claude-x", limit=20))
    find_one(ledger, "nightly/fix-bug__a1B2c3D")    also an entry's number, or a unique prefix

Nothing here reads a record. What was withheld is listed with what is left of it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from proctor.errors import InputError, LedgerError
from proctor.ledger.counting import KEPT, RESTARTED, SUPERSEDED, WITHHELD, find_restarted
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow, admitted_status
from proctor.ledger.trial_index import TrialFilter, check_text
from proctor.ledger.withheld import UnnamedWithholding, find_unnamed

_MOST_NAMED = 5
_TRIES = 100
_MOST = 100
"""Trials that are looked at to find out which one is meant."""
_SHORTEST_DIGEST = 8
"""Characters of a record's digest that name it; fewer are taken for the beginning of an id."""


def find_trials(ledger: LedgerReader, wanted: TrialFilter | None = None) -> list[TrialRow]:
    """The trials that a filter lets through, in the order they were sealed.

    Raises:
        DamageError: the log does not give what its checkpoint says.
        InputError: a time of the filter is none.
    """
    with looking(ledger):
        return list(ledger.index.trials(wanted or TrialFilter()))


@contextlib.contextmanager
def looking(ledger: LedgerReader) -> Iterator[int]:
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
    ledger: LedgerReader,
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
        found = ledger.index.trials(TrialFilter(experiment=experiment, dataset=dataset), size=size)
        judged = ledger.index.supersessions(size)
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


def find_one(ledger: LedgerReader, name: str) -> TrialRow | int:
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
            found = _select(ledger, TrialFilter(seqs=(int(name),)))
            return found[0] if found else int(name)
        for rows in _look_up(ledger, name):
            if len(rows) == 1:
                return rows[0]
            if rows:
                raise LedgerError(_render_several(ledger, name, rows))
        if trials := _select(ledger, TrialFilter(experiment=name, first=_MOST)):
            raise LedgerError(_render_experiment(ledger, name, trials))
    raise LedgerError(
        f"{ledger.where}: no trial or entry is called {name[:200]!r}; expected "
        "EXPERIMENT/TRIAL, a trial's id, an entry's number, or the beginning of one: "
        "`proctor ledger list` has them"
    )


def find_trial(ledger: LedgerReader, name: str) -> TrialRow:
    """The sealed trial that somebody means, likewise.

    Raises:
        LedgerError: none fits, several do, or it is an entry of another kind.
        DamageError: the log does not give what its checkpoint says.
    """
    found = find_one(ledger, name)
    if isinstance(found, int):
        raise LedgerError(f"{ledger.where}: entry {found} is not a trial")
    return found


def render_missing(ledger: LedgerReader, experiment: str) -> str:
    """That an experiment is not in a ledger, and which are: those that were sealed last."""
    names = [name for name, _ in ledger.index.experiments()]
    named = ", ".join(names[:_MOST_NAMED])
    more = ", … (`proctor ledger list` has all)" if len(names) > _MOST_NAMED else ""
    there = f"{ledger.where}: no trial of the experiment {experiment[:200]!r} is sealed"
    return f"{there}; there are {named}{more}" if names else f"{there}, nor any other"


def _look_up(ledger: LedgerReader, name: str) -> Iterator[list[TrialRow]]:
    experiment, slash, trial = name.partition("/")
    if slash:
        yield _select(ledger, TrialFilter(experiment=experiment, trial=trial))
        yield _select(ledger, TrialFilter(experiment=experiment, trial_prefix=trial, first=_MOST))
        return
    if not name:
        return
    yield _select(ledger, TrialFilter(trial=name, first=_MOST))
    yield _select(ledger, TrialFilter(trial_prefix=name, first=_MOST))
    digest = name.removeprefix("sha256:")
    if len(digest) >= _SHORTEST_DIGEST:
        yield _select(ledger, TrialFilter(record_prefix=digest, first=_MOST))


def _select(ledger: LedgerReader, wanted: TrialFilter) -> list[TrialRow]:
    return list(ledger.index.trials(wanted))


def _render_experiment(ledger: LedgerReader, name: str, rows: list[TrialRow]) -> str:
    return (
        f"{ledger.where}: {name!r} is an experiment; expected one of its trials, such as "
        f"{rows[0].name} (`proctor trace summary {name}` has them all)"
    )


def _render_several(ledger: LedgerReader, name: str, rows: list[TrialRow]) -> str:
    named = ", ".join(row.name for row in rows[:_MOST_NAMED])
    more = ", …" if len(rows) > _MOST_NAMED else ""
    return (
        f"{ledger.where}: {name!r} may be any of {named}{more}; "
        "expected EXPERIMENT/TRIAL, an entry's number, or more of the name"
    )
