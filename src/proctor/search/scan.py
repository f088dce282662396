"""Answers a query without an index on disk, with the same matching rules.

Some rows at a time are put into an index in memory, queried and dropped: the matches are those of a
ledger's index, and memory does not grow.
"""

from collections.abc import Iterable, Iterator
from itertools import batched
from typing import Self

from proctor.search.index import SearchIndex
from proctor.search.query import Query, TrialCondition
from proctor.search.row import Row
from proctor.search.tags import document_of

_TOGETHER = 400


class Scanner:
    """Finds the rows that match a query. The caller closes it."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._index = SearchIndex.in_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._index.close()

    def fitting(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The matching rows, in their order."""
        for some in batched(rows, _TOGETHER):
            yield from (some[at] for at in self._ask(some))

    def _ask(self, rows: tuple[Row, ...]) -> list[int]:
        connection = self._index.connection
        connection.executemany(
            "INSERT INTO rows (rowid, body) VALUES (?, CAST(? AS TEXT))",
            enumerate(document_of(row) for row in rows),
        )
        asked = "SELECT rowid FROM rows WHERE rows MATCH ? ORDER BY rowid"
        found = [at for (at,) in connection.execute(asked, (self._query.expression,))]
        connection.execute("INSERT INTO rows (rows) VALUES ('delete-all')")
        return found


def fits_condition(condition: TrialCondition, value: str | None) -> bool:
    """Whether a trial's value matches a condition, by the same rules as in a ledger."""
    if value is None:
        return condition.is_not
    wanted, text = condition.value.lower(), value.lower()
    fits = _is_like(text, wanted) or any(
        _is_like(text[at + 1 :], wanted) for at, sign in enumerate(text) if sign == "/"
    )
    return fits != condition.is_not


def _is_like(text: str, wanted: str) -> bool:
    """Whether a text matches, where * matches anything."""
    first, *rest = wanted.split("*")
    if not rest:
        return text == wanted
    if not text.startswith(first):
        return False
    text = text[len(first) :]
    for piece in rest[:-1]:
        at = text.find(piece)
        if at < 0:
            return False
        text = text[at + len(piece) :]
    return text.endswith(rest[-1])
