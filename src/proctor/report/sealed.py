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
from proctor.ledger.standing import Sitter
from proctor.ledger.supersession import read_supersessions
from proctor.ledger.withheld import UnnamedWithholding, find_unnamed
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.attempt import Attempt, with_restarted

_COLUMNS = (
    "sitter, CASE WHEN sitter IS NULL THEN experiment_id END, trial_id, record, status, task_id, "
    "run_conditions, task_conditions, reward, reason_code, completeness, timestamp, cost_usd, "
    "tokens_in, tokens_out, advisor_calls, seconds, findings, exception, seq"
)
_PLAIN = ("sealed", "diagnostic", "withheld")


@dataclass(frozen=True, slots=True)
class Position:
    """Attempts as they stood somewhere in the log."""

    size: int
    """Entries of the log that count."""
    attempts: list[Attempt]
    """In the order they were sealed."""
    supersessions: dict[str, str | None]
    """Why each supersession of the ledger does not count, by the record; None where it does."""
    unnamed: list[UnnamedWithholding]
    """What was withheld without naming a trial: any of these attempts' experiments may be meant."""


def load_position(
    ledger: Ledger,
    *,
    at: int | None = None,
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
        wanted = {"experiment_id": experiment, "collection": collection}
        asked = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(["seq < ?", *(f"{column} = ?" for column in asked)])
        query = f"SELECT {_COLUMNS} FROM trials WHERE {where} ORDER BY seq"  # noqa: S608 - our names
        rows = ledger.index.stream(query, (size, *asked.values()))
        supersessions = read_supersessions(ledger.index.connection, size)
        reader = _Reader(
            dict(ledger.index.select("SELECT id, document FROM conditions")),
            _find_reviews(ledger, size),
            {record for record, refusal in supersessions.items() if refusal is None},
        )
        attempts = with_restarted(reader.read(rows))
        return Position(size, attempts, supersessions, find_unnamed(ledger, size))


def _find_reviews(ledger: Ledger, size: int) -> dict[str, str]:
    query = "SELECT record, verdict FROM remarks WHERE verdict IS NOT NULL AND seq < ? ORDER BY seq"
    return dict(ledger.index.select(query, (size,)))


class _Reader:
    """Rows of the index to attempts; equal conditions are one object."""

    def __init__(
        self, documents: dict[int, bytes], reviews: dict[str, str], superseded: set[str]
    ) -> None:
        self.reviews = reviews
        self.superseded = superseded
        self.sitters = _Decoded(documents, Sitter)
        self.runs = _Decoded(documents, RunConditions)
        self.tasks = _Decoded(documents, TaskConditions)
        self.findings = _Split()

    def read(self, rows: Iterable[tuple[Any, ...]]) -> list[Attempt]:
        """All attempts; there may be a hundred thousand, so each is made by one call."""
        sitters, runs, tasks, split = self.sitters, self.runs, self.tasks, self.findings
        reviews, superseded = self.reviews, self.superseded
        return [
            Attempt(
                (who := sitters[sitter] or _Unknown(experiment)).experiment, trial, record,
                status if status in _PLAIN and record not in superseded
                else self._status(record, completeness),
                who.dataset, task, who.agent, who.revision, who.model, who.configuration,
                runs[run], tasks[sat], reward, reason, completeness, who.source, when, cost,
                tokens_in, tokens_out, advisor_calls, seconds, split[findings], who.collection,
                exception, seq, None, reviews.get(record),
            )
            for (
                sitter, experiment, trial, record, status, task, run, sat, reward, reason,
                completeness, when, cost, tokens_in, tokens_out, advisor_calls, seconds, findings,
                exception, seq,
            ) in rows
        ]  # fmt: skip

    def _status(self, record: str, completeness: str | None) -> str:
        """Of a trial that is superseded, here or later."""
        if record in self.superseded:
            return "superseded"
        return "sealed" if completeness == "complete" else "diagnostic"


class _Unknown(msgspec.Struct, frozen=True):
    """Who sat a trial that was withheld: all but the experiment is gone."""

    experiment: str
    dataset: None = None
    agent: None = None
    revision: None = None
    model: None = None
    configuration: None = None
    source: None = None
    collection: None = None


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
