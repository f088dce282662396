"""Sealed trials by filter or by name, from the index.

    list_trials(ledger, TrialFilter(model="anthropic/claude-x", limit=20))
    resolve_name(ledger, "nightly/fix-bug__a1B2c3D")    also an entry number, or a unique prefix

Withheld trials are listed with their ids and digests.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from proctor.errors import InputError, LedgerError
from proctor.ledger.counting import (
    ATTEMPT,
    RESTARTED,
    SUPERSEDED,
    WITHHELD,
    is_lost,
    restarted_attempts,
)
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow, admitted_status
from proctor.ledger.trial_index import NamePattern, TrialFilter, check_text

_MOST_NAMED = 5
_TRIES = 100
# Candidates read to decide whether a name is ambiguous.
_MOST = 100
# Digits that a record digest needs at least; a shorter prefix is matched against ids only.
_SHORTEST_DIGEST = 8


def list_trials(ledger: LedgerReader, wanted: TrialFilter | None = None) -> list[TrialRow]:
    """The trials that match a filter, in the order they were sealed."""
    wanted = wanted or TrialFilter()
    with snapshot(ledger):
        rows = list(ledger.index.trials(wanted))
        kept = tuple({row.experiment_id for row in rows if ATTEMPT in row.trial_id})
        if not kept:
            return rows
        # Whether an attempt counts depends on trials that the filter may leave out.
        restarted = _find_restarted(ledger.index.trials(TrialFilter(experiments=kept)))
    marked = [_mark_restarted(row, restarted) for row in rows]
    return [row for row in marked if wanted.status in (None, row.status)]


@contextlib.contextmanager
def snapshot(ledger: LedgerReader) -> Iterator[int]:
    """A consistent view of an up-to-date index; yields the number of entries in it.

    Raises:
        LedgerError: other processes keep writing.
    """
    for _ in range(_TRIES):
        size = ledger.refresh().tree.size
        with ledger.index.reading():
            # Another process may have begun to rebuild the index in between.
            if ledger.index.size() >= size:
                yield size
                return
    raise LedgerError(f"{ledger.where}: its index is being rebuilt; try again")


@dataclass(frozen=True, slots=True)
class Position:
    """The trials of a ledger at a size of its log.

    Later entries do not count, such as supersessions and reviews. The exception is bytes that were
    withheld since: their trials are listed as withheld.
    """

    size: int
    """The number of entries that count."""
    trials: list[TrialRow]
    """In the order they were sealed."""
    supersessions: dict[str, str | None]
    """Why each supersession does not count, by superseded record; None if it counts."""


def load_position(
    ledger: LedgerReader,
    *,
    at: int | None = None,
    experiment: str | None = None,
) -> Position:
    """All trials, or those of one experiment, at a size of the log (default: now)."""
    wanted = TrialFilter(experiment=experiment)
    with read_position(ledger, wanted, at=at) as (position, rows):
        return replace(position, trials=list(rows))


@contextlib.contextmanager
def read_position(
    ledger: LedgerReader, wanted: TrialFilter, *, at: int | None = None
) -> Iterator[tuple[Position, Iterator[TrialRow]]]:
    """A position without its trials, and the trials that a filter selects, one at a time.

    For ledgers of so many trials that a list of them takes a gigabyte. All attempts at a trial, or
    none, must be selected.

    Raises:
        InputError: the log never had that size.
        DamageError: the log does not match its checkpoint.
    """
    with snapshot(ledger) as size:
        if at is not None and not 0 < at <= size:
            raise InputError(
                f"{ledger.where}: the log has {size:,} entries; expected a position from 1 to "
                f"{size}, not {at}"
            )
        size = at or size
        judged = ledger.index.supersessions(size)

        def select(wanted: TrialFilter) -> Iterator[TrialRow]:
            found = ledger.index.trials(wanted, size=size)
            return (_at_position(row, judged) for row in found)

        names = (*wanted.names, NamePattern("trial_id", f"*{ATTEMPT}*"))
        kept = {row.experiment_id for row in select(replace(wanted, names=names))}
        some = replace(wanted, experiments=tuple(kept))
        restarted = _find_restarted(select(some)) if kept else {}
        position = Position(size, [], judged)
        yield position, (_mark_restarted(row, restarted) for row in select(wanted))


def _at_position(row: TrialRow, judged: Mapping[str, str | None]) -> TrialRow:
    """The row with its status at that size: the index has the present status."""
    is_superseded = judged.get(row.record, "") is None and row.status != WITHHELD
    status = SUPERSEDED if is_superseded else row.status
    if row.status == SUPERSEDED and not is_superseded:
        status = admitted_status(row.completeness)
    return row if status == row.status else msgspec.structs.replace(row, status=status)


def with_restarted(trials: list[TrialRow]) -> list[TrialRow]:
    """The trials, with the status of restarted attempts set."""
    # Most ledgers have no kept attempts: then the rows are returned without another pass.
    names = {row.experiment_id for row in trials if ATTEMPT in row.trial_id}
    if not names:
        return trials
    restarted = _find_restarted(row for row in trials if row.experiment_id in names)
    return [_mark_restarted(row, restarted) for row in trials]


def _find_restarted(rows: Iterable[TrialRow]) -> dict[str, frozenset[str]]:
    """Ids of restarted attempts, by experiment."""
    names: dict[str, list[tuple[str, str, bool]]] = {}
    for row in rows:
        known = row.trial_id, row.status, is_lost(row)
        names.setdefault(row.experiment_id, []).append(known)
    return {name: restarted_attempts(found) for name, found in names.items()}


def _mark_restarted(row: TrialRow, restarted: Mapping[str, frozenset[str]]) -> TrialRow:
    is_restarted = row.trial_id in restarted.get(row.experiment_id, ())
    return msgspec.structs.replace(row, status=RESTARTED) if is_restarted else row


def resolve_name(ledger: LedgerReader, name: str) -> TrialRow | int:
    """Find a trial by name; an entry of another kind is returned as its number.

    Tried in this order: an entry number; EXPERIMENT/TRIAL; a trial id; a record digest; a unique
    prefix of one of these.

    Raises:
        LedgerError: nothing matches, or several trials do.
        DamageError: the log does not match its checkpoint.
    """
    check_text(name, "a name")
    with snapshot(ledger) as size:
        # Cut before int(): Python refuses to parse very long numbers.
        if name.isascii() and name.isdigit() and int(name[:20]) < size:
            found = _select(ledger, TrialFilter(seqs=(int(name),)))
            return found[0] if found else int(name)
        for rows in _look_up(ledger, name):
            if len(rows) == 1:
                return rows[0]
            if rows:
                named = ", ".join(row.name for row in rows[:_MOST_NAMED])
                more = ", …" if len(rows) > _MOST_NAMED else ""
                raise LedgerError(
                    f"{ledger.where}: {name!r} may be any of {named}{more}; "
                    "expected EXPERIMENT/TRIAL, an entry's number, or more of the name"
                )
        if trials := _select(ledger, TrialFilter(experiment=name, first=1)):
            raise LedgerError(
                f"{ledger.where}: {name!r} is an experiment; expected one of its trials, such as "
                f"{trials[0].name} (`proctor trace summary {name}` has them all)"
            )
    raise LedgerError(
        f"{ledger.where}: no trial or entry is named {name[:200]!r}; expected "
        "EXPERIMENT/TRIAL, a trial's id, an entry's number, or the beginning of one: "
        "`proctor ledger list` has them"
    )


def find_trial(ledger: LedgerReader, name: str) -> TrialRow:
    """Find a sealed trial by name, like `resolve_name`.

    Raises:
        LedgerError: nothing matches, several trials do, or it is an entry of another kind.
        DamageError: the log does not match its checkpoint.
    """
    found = resolve_name(ledger, name)
    if isinstance(found, int):
        raise LedgerError(f"{ledger.where}: entry {found} is not a trial")
    return found


def render_missing(ledger: LedgerReader, experiment: str) -> str:
    """Message for an experiment that is not in a ledger, with the most recent ones that are."""
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
