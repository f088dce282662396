"""Answers a query: a page of hits with their count, or trials with their counts.

Newest first: the trial sealed last, and within a trial the last step. Matches are counted up to a
limit, so that a common word takes no longer than a rare one; `exact` counts all of them. Sorting by
relevance ranks the newest matches up to the same limit.
"""

import contextlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import batched
from typing import Final, Self

import msgspec

from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.trial_index import NameColumn, NamePattern, TrialFilter
from proctor.search.index import ROW_BITS, TOKENIZER, SearchIndex, tags_of
from proctor.search.query import Query, TrialCondition, quote, sign_tags
from proctor.search.row import Row

COUNTED: Final = 10_000
"""Most matches that are counted and ranked, unless `exact` is set."""
_COLUMNS: Final[dict[str, NameColumn]] = {
    "model": "model",
    "task": "task_id",
    "experiment": "experiment_id",
    "trial": "trial_id",
}
_NAMED_AT_ONCE = 500
"""Values in one query, of which SQLite takes only so many."""


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


def find_hits(
    ledger: LedgerReader, index: SearchIndex, query: Query, wanted: TrialFilter, page: Page
) -> Found:
    """The hits of one page, and the number of all matches."""
    bound = None if page.exact else max(COUNTED, page.skipped + page.limit)
    with snapshot(ledger):
        # One more than is counted tells whether there are more.
        found = _list_numbers(ledger, index, query, wanted, None if bound is None else bound + 1)
        is_exact = bound is None or len(found) <= bound
        found = found[:bound]
        ranked = _rank(index, query, found) if page.by_relevance else found
        shown = ranked[page.skipped : page.skipped + page.limit]
        names = _load_names(ledger, {number >> ROW_BITS for number in shown})
    hits = []
    for number in shown:
        seq = number >> ROW_BITS
        experiment, trial = names[seq]
        row = index.load_row(number)
        hits.append(Hit(seq=seq, experiment_id=experiment, trial_id=trial, row=row))
    trials = len({number >> ROW_BITS for number in found})
    return Found(matches=len(found), trials=trials, is_exact=is_exact, hits=hits)


def count_by_trial(
    ledger: LedgerReader, index: SearchIndex, query: Query, wanted: TrialFilter
) -> list[TrialCount]:
    """Every trial with a match, with its number of matches, most recently sealed first."""
    with snapshot(ledger):
        numbers = _list_numbers(ledger, index, query, wanted, None)
        counts = Counter(number >> ROW_BITS for number in numbers)
        names = _load_names(ledger, counts)
    return [
        TrialCount(seq=seq, experiment_id=names[seq][0], trial_id=names[seq][1], matches=matches)
        for seq, matches in counts.items()
    ]


def _list_numbers(
    ledger: LedgerReader,
    index: SearchIndex,
    query: Query,
    wanted: TrialFilter,
    bound: int | None,
) -> list[int]:
    """Numbers of matching rows, newest first, up to a limit."""
    select = "SELECT rowid FROM rows WHERE rows MATCH ?"
    values: list[object] = [query.expression]
    if query.conditions or wanted != TrialFilter():
        names = [
            NamePattern(_COLUMNS[each.name], each.value, each.is_not) for each in query.conditions
        ]
        trials = ledger.index.trials(replace(wanted, names=tuple(names)))
        select += " AND rowid >> ? IN (SELECT value FROM json_each(?))"
        values += [ROW_BITS, json.dumps([row.seq for row in trials])]
    select += " ORDER BY rowid DESC LIMIT ?"
    found = index.execute(select, *values, -1 if bound is None else bound)
    return [number for (number,) in found]


def _rank(index: SearchIndex, query: Query, found: Sequence[int]) -> list[int]:
    """Matching rows, most relevant first; of equals, the newest."""
    known = set(found)
    select = (
        "SELECT rowid FROM rows WHERE rows MATCH ? AND rowid >= ? "
        "ORDER BY bm25(rows, 1, 0), rowid DESC"
    )
    ranked = index.execute(select, query.expression, min(found, default=0))
    return [number for (number,) in ranked if number in known]


def _load_names(
    ledger: LedgerReader, seqs: Iterable[int]
) -> dict[int, tuple[str | None, str | None]]:
    """Experiment and trial of entries by their places; None where an entry is not a trial."""
    names: dict[int, tuple[str | None, str | None]] = dict.fromkeys(seqs, (None, None))
    for some in batched(tuple(names), _NAMED_AT_ONCE):
        for row in ledger.index.trials(TrialFilter(seqs=some)):
            names[row.seq] = (row.experiment_id, row.trial_id)
    return names


# Without an index on disk, by the same rules


class Scanner:
    """Finds the rows that match a query. The caller closes it.

    Some rows at a time are put into an index in memory, queried and dropped: the matches are those
    of a ledger's index, and memory does not grow.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._index = SearchIndex.in_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._index.close()

    def fitting(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The matching rows, in their order."""
        connection = self._index.connection
        for some in batched(rows, 400):
            connection.executemany(
                "INSERT INTO rows (rowid, body, tags) VALUES (?, ?, ?)",
                ((at, row.text, tags_of(row)) for at, row in enumerate(some)),
            )
            select = "SELECT rowid FROM rows WHERE rows MATCH ? ORDER BY rowid"
            found = connection.execute(select, (self._query.expression,)).fetchall()
            connection.execute("INSERT INTO rows (rows) VALUES ('delete-all')")
            yield from (some[at] for (at,) in found)


def fits_condition(condition: TrialCondition, value: str | None) -> bool:
    """Whether a trial's value matches a condition, by the same rules as in a ledger."""
    if value is None:
        return condition.is_not
    # Only * is special here.
    pattern = re.sub(r"[\[?]", r"[\g<0>]", condition.value.lower())
    parts = value.lower().split("/")
    ends = ("/".join(parts[at:]) for at in range(len(parts)))
    return any(fnmatchcase(end, pattern) for end in ends) != condition.is_not


# The words around a match


# What FTS5 puts around a match, and a sign that may follow it.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MATCH = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}(\\+\\+|#)?")
_MARKS = str.maketrans("", "", _OPEN + _CLOSE)
# Escape sequences of a terminal, such as colours.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Characters used on each side of the match; white space among them is collapsed.
_MARGIN = 400


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of a text, on one line."""

    before: str
    match: str
    """"" where the match is not in the text: a role, a tool or an exit code."""
    after: str


class Marker:
    """Finds the words of one query in texts, as the index does."""

    def __init__(self, words: Sequence[tuple[str, bool]]) -> None:
        self._expression = " OR ".join(
            quote(word) + (" *" if is_prefix else "") for word, is_prefix in words
        )
        self._is_signed = any(sign_tags(word) for word, _ in words)

    def cut(self, row: Row, width: int) -> Snippet:
        """As much of a row's text as fits into a width, around the first match."""
        text = row.text.translate(_MARKS)
        found = self._find(text) if self._expression else None
        if found is None:
            return Snippet("", "", _shorten(_squeeze(text[: 2 * _MARGIN]).strip(), width))
        match = _squeeze(found[0].translate(_MARKS))[:width]
        before = _squeeze(found.string[: found.start()].translate(_MARKS)[-_MARGIN:]).lstrip()
        after = _squeeze(found.string[found.end() :].translate(_MARKS)[:_MARGIN]).rstrip()
        # A third of the remaining width goes before the match; one side gets what the other leaves.
        room = max(0, width - len(match))
        before = _shorten(before[::-1], max(room // 3, room - len(after)))[::-1]
        return Snippet(before, match, _shorten(after, room - len(before)))

    def _find(self, text: str) -> re.Match[str] | None:
        """The first match in a text, in which FTS5 has marked all of them."""
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE VIRTUAL TABLE shown USING fts5(body, {TOKENIZER})")
            connection.execute("INSERT INTO shown VALUES (?)", (text,))
            select = "SELECT highlight(shown, 0, ?, ?) FROM shown WHERE shown MATCH ?"
            values = (_OPEN, _CLOSE, self._expression)
            marked = connection.execute(select, values).fetchone()
        found = list(_MATCH.finditer(marked[0])) if marked else []
        signed = [match for match in found if match[2]] if self._is_signed else []
        return next(iter([*signed, *found]), None)


def _squeeze(text: str) -> str:
    """Text on one line, without colours and other control characters, which have no width."""
    line = re.sub(r"\s+", " ", _SEQUENCE.sub("", text))
    return "".join(char if char.isprintable() else "·" for char in line)


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…" * (width > 0)
