"""The attempts in a ledger as they stood at a position of its log: a pure function of the two.

What was said after the position does not count: a trial that is superseded later is not superseded
there, a review that comes later is not there. One exception cannot be helped: what was withheld
since is gone, and is listed as withheld.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.errors import InputError
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import looking
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.attempt import Attempt

_COLUMNS = (
    "experiment_id, trial_id, record, status, dataset_id, task_id, harness, revision, model, "
    "configuration, run_conditions, task_conditions, reward, reason_code, completeness, source, "
    "timestamp, cost_usd, tokens_in, tokens_out, advisor_calls, seconds, findings, collection, "
    "exception, seq"
)


_PLAIN = ("sealed", "diagnostic", "withheld")


@dataclass(frozen=True, slots=True)
class Position:
    """Attempts as they stood somewhere in the log."""

    size: int
    """Entries of the log that count."""
    attempts: list[Attempt]
    """In the order they were sealed."""


def load_position(
    ledger: Ledger,
    *,
    at: int | None = None,
    dataset: str | None = None,
    experiment: str | None = None,
    collection: str | None = None,
) -> Position:
    """All attempts, or those of one dataset or experiment, at a size of the log (default: now).

    A collection is a dataset by what the job called it, where none is on record.

    Raises:
        InputError: the log was never of that size.
        DamageError: the log does not give what its checkpoint says.
    """
    with looking(ledger) as size:
        if at is not None and not 0 < at <= size:
            raise InputError(
                f"{ledger.directory}: the log has {size:,} entries; expected a position from 1 to "
                f"{size}, not {at}"
            )
        size = at or size
        wanted = {"dataset_id": dataset, "experiment_id": experiment, "collection": collection}
        asked = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(["seq < ?", *(f"{column} = ?" for column in asked)])
        query = f"SELECT {_COLUMNS} FROM trials WHERE {where} ORDER BY seq"  # noqa: S608 - our names
        rows = ledger.index.stream(query, (size, *asked.values()))
        reader = _Reader(
            dict(ledger.index.select("SELECT id, document FROM conditions")),
            _find_reviews(ledger, size),
            _find_superseded(ledger, size),
        )
        return Position(size, reader.read(rows))


def _find_reviews(ledger: Ledger, size: int) -> dict[str, str]:
    query = "SELECT record, verdict FROM remarks WHERE verdict IS NOT NULL AND seq < ? ORDER BY seq"
    return dict(ledger.index.select(query, (size,)))


def _find_superseded(ledger: Ledger, size: int) -> set[str]:
    query = "SELECT record FROM remarks WHERE kind = 'supersede' AND is_subject AND seq < ?"
    return {record for (record,) in ledger.index.select(query, (size,))}


class _Reader:
    """Rows of the index to attempts; equal conditions are one object."""

    def __init__(
        self, documents: dict[int, bytes], reviews: dict[str, str], superseded: set[str]
    ) -> None:
        self.reviews = reviews
        self.superseded = superseded
        self.runs = _Decoded(documents, RunConditions)
        self.tasks = _Decoded(documents, TaskConditions)
        self.findings = _Split()

    def read(self, rows: Iterable[tuple[Any, ...]]) -> list[Attempt]:
        """All attempts; there may be a hundred thousand, so each is made by one call."""
        runs, tasks, split = self.runs, self.tasks, self.findings
        reviews, superseded = self.reviews, self.superseded
        return [
            Attempt(
                experiment, trial, record,
                status if status in _PLAIN and record not in superseded
                else self._status(record, completeness),
                dataset, task, agent, revision, model, configuration, runs[run], tasks[sat],
                reward, reason, completeness, source, when, cost, tokens_in, tokens_out,
                advisor_calls, seconds, split[findings], collection, exception, seq, None,
                reviews.get(record),
            )
            for (
                experiment, trial, record, status, dataset, task, agent, revision, model,
                configuration, run, sat, reward, reason, completeness, source, when, cost,
                tokens_in, tokens_out, advisor_calls, seconds, findings, collection, exception, seq,
            ) in rows
        ]  # fmt: skip

    def _status(self, record: str, completeness: str | None) -> str:
        """Of a trial that is superseded, here or later."""
        if record in self.superseded:
            return "superseded"
        return "sealed" if completeness == "complete" else "diagnostic"


class _Decoded[Conditions](dict[int | None, Conditions | None]):
    """Conditions by their rows of the index, each decoded when it is first asked for."""

    def __init__(self, documents: dict[int, bytes], kind: type[Conditions]) -> None:
        super().__init__({None: None})
        self._documents = documents
        self._kind = kind

    def __missing__(self, row: int | None) -> Conditions | None:
        document = self._documents[row] if row is not None else b"null"
        found = self[row] = msgspec.json.decode(document, type=self._kind)
        return found


class _Split(dict[str | None, tuple[str, ...]]):
    """Codes by the text that holds them."""

    def __missing__(self, text: str | None) -> tuple[str, ...]:
        found = self[text] = tuple((text or "").split())
        return found
