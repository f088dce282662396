"""Answers a query: a page of hits with their count, or trials with their counts.

Newest first: the trial sealed last, and within a trial the last step. Matches are counted up to a
limit, so that a common word takes no longer than a rare one; `exact` counts all of them. Sorting by
relevance ranks the newest matches up to the same limit.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import batched, islice
from typing import Final

import msgspec

from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.trial_index import NameColumn, NamePattern, TrialFilter
from proctor.search.index import ROW_BITS, SearchIndex
from proctor.search.query import Query, TrialCondition
from proctor.search.row import Row

# Which trials a query's filters select, as ranges of the log


_COLUMNS: Final[dict[str, NameColumn]] = {
    "model": "model",
    "task": "task_id",
    "experiment": "experiment_id",
    "trial": "trial_id",
}

type Span = tuple[int, int]
"""First and last of consecutive entries of the log."""


def choose_spans(
    ledger: LedgerReader, conditions: Sequence[TrialCondition], wanted: TrialFilter
) -> list[Span] | None:
    """The ranges of the matching trials, in order; None if every entry matches."""
    if not conditions and wanted == TrialFilter():
        return None
    names = [NamePattern(_COLUMNS[each.name], each.value, each.is_not) for each in conditions]
    chosen = ledger.index.trials(replace(wanted, names=tuple(names)))
    return _join([row.seq for row in chosen])


def _join(chosen: Sequence[int]) -> list[Span]:
    spans: list[Span] = []
    for seq in chosen:
        if spans and spans[-1][1] == seq - 1:
            spans[-1] = (spans[-1][0], seq)
        else:
            spans.append((seq, seq))
    return spans


COUNTED: Final = 10_000
"""Most matches that are counted and ranked, unless `exact` is set."""
# Up to here one range query per span is faster than a temporary table.
_FEW_SPANS = 50
_NAMED_AT_ONCE = 500
"""Values in one query, of which SQLite takes only so many."""
_LAST = (1 << ROW_BITS) - 1


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One matching entry."""

    seq: int
    """Position of the entry it belongs to; -1 in a job directory."""
    experiment_id: str | None
    """Null, like trial_id, for a review or a note."""
    trial_id: str | None
    row: Row


class TrialCount(msgspec.Struct, frozen=True, kw_only=True):
    """A trial, and how many of its entries match."""

    seq: int
    experiment_id: str | None
    trial_id: str | None
    matches: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits."""

    matches: int
    """Matching entries; a lower bound if `is_exact` is false."""
    trials: int
    """Trials with a match."""
    is_exact: bool
    hits: list[Hit]


@dataclass(frozen=True, slots=True)
class Page:
    """Which page of matches to return."""

    limit: int = 20
    number: int = 1
    """Page number, from 1."""
    by_relevance: bool = False
    exact: bool = False

    @property
    def skipped(self) -> int:
        """The number of matches on earlier pages."""
        return (self.number - 1) * self.limit

    @property
    def bound(self) -> int | None:
        """The largest number of matches counted; None: all."""
        return None if self.exact else max(COUNTED, self.skipped + self.limit)


def find_hits(
    ledger: LedgerReader, index: SearchIndex, query: Query, wanted: TrialFilter, page: Page
) -> Found:
    """The hits of one page, and the number of all matches."""
    with snapshot(ledger):
        spans = choose_spans(ledger, query.conditions, wanted)
        bound = page.bound
        found = _list_numbers(index, query, spans, None if bound is None else bound + 1)
        is_exact = bound is None or len(found) <= bound
        found = found if bound is None else found[:bound]
        n_trials = len({number >> ROW_BITS for number in found})
        chosen = _rank(index, query, found) if page.by_relevance else found
        chosen = chosen[page.skipped : page.skipped + page.limit]
        names = _load_names(ledger, {number >> ROW_BITS for number in chosen})
        hits = [_load_hit(index, names, number) for number in chosen]
    return Found(matches=len(found), trials=n_trials, is_exact=is_exact, hits=hits)


def count_by_trial(
    ledger: LedgerReader, index: SearchIndex, query: Query, wanted: TrialFilter
) -> list[TrialCount]:
    """Every trial with a match, with its number of matches, most recently sealed first."""
    with snapshot(ledger):
        spans = choose_spans(ledger, query.conditions, wanted)
        counts: dict[int, int] = {}
        for number in _list_numbers(index, query, spans, None):
            seq = number >> ROW_BITS
            counts[seq] = counts.get(seq, 0) + 1
        names = _load_names(ledger, counts)
        return [
            TrialCount(seq=seq, experiment_id=experiment, trial_id=trial, matches=matches)
            for seq, matches in counts.items()
            for experiment, trial in [names[seq]]
        ]


type _Names = dict[int, tuple[str | None, str | None]]
"""Experiment and trial of entries by their places; None where an entry is not a trial."""


def _load_names(ledger: LedgerReader, seqs: Iterable[int]) -> _Names:
    names: _Names = dict.fromkeys(seqs, (None, None))
    for some in batched(tuple(names), _NAMED_AT_ONCE):
        for row in ledger.index.trials(TrialFilter(seqs=some)):
            names[row.seq] = (row.experiment_id, row.trial_id)
    return names


def _load_hit(index: SearchIndex, names: _Names, number: int) -> Hit:
    seq = number >> ROW_BITS
    experiment, trial = names[seq]
    row = index.load_row(number)
    return Hit(seq=seq, experiment_id=experiment, trial_id=trial, row=row)


def _list_numbers(
    index: SearchIndex, query: Query, spans: Sequence[Span] | None, bound: int | None
) -> list[int]:
    """Numbers of matching rows, newest first, up to a limit."""
    select = "SELECT rowid FROM rows WHERE rows MATCH ?"
    ask = _asker(index)
    if spans is None:
        numbers = ask(f"{select} ORDER BY rowid DESC", query.expression)
    elif len(spans) <= _FEW_SPANS:
        ranged = f"{select} AND rowid BETWEEN ? AND ? ORDER BY rowid DESC"
        numbers = (
            number
            for first, last in reversed(spans)
            for number in ask(
                ranged, query.expression, first << ROW_BITS, (last << ROW_BITS) | _LAST
            )
        )
    else:
        _set_chosen(index, spans)
        among = "rowid >> ? IN (SELECT seq FROM chosen)"
        numbers = ask(f"{select} AND {among} ORDER BY rowid DESC", query.expression, ROW_BITS)
    return list(numbers if bound is None else islice(numbers, bound))


def _asker(index: SearchIndex) -> Callable[..., Iterator[int]]:
    def ask(statement: str, *values: object) -> Iterator[int]:
        for (number,) in index.connection.execute(statement, values):
            yield number

    return ask


def _set_chosen(index: SearchIndex, spans: Sequence[Span]) -> None:
    execute = index.connection.execute
    execute("CREATE TEMP TABLE IF NOT EXISTS chosen (seq INTEGER PRIMARY KEY)")
    execute("DELETE FROM chosen")
    index.connection.executemany(
        "INSERT INTO chosen VALUES (?)",
        ((seq,) for first, last in spans for seq in range(first, last + 1)),
    )


def _rank(index: SearchIndex, query: Query, found: Sequence[int]) -> list[int]:
    """Matching rows, most relevant first; of equals, the newest."""
    if not found:
        return []
    known = set(found)
    statement = (
        "SELECT rowid, bm25(rows) FROM rows WHERE rows MATCH ? AND rowid BETWEEN ? AND ? "
        "ORDER BY rowid DESC"
    )
    rows = index.connection.execute(statement, (query.expression, found[-1], found[0]))
    ranked = sorted((score, -number) for number, score in rows if number in known)
    return [-number for _, number in ranked]
