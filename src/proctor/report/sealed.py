"""The attempts in a ledger as they stood at a position of its log: a pure function of the two.

What was said after the position does not count: a trial that is superseded later is not superseded
there, a review that comes later is not there. One exception cannot be helped: what was withheld
since is gone, and is listed as withheld.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.errors import InputError
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import looking
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.attempt import Attempt

_COLUMNS = (
    "seq, experiment_id, trial_id, record, status, completeness, dataset_id, task_id, harness, "
    "model, reward, timestamp, reason_code, revision, configuration, run_conditions, "
    "task_conditions, source, cost_usd, tokens_in, tokens_out, advisor_calls, seconds, findings, "
    "collection, exception"
)


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
) -> Position:
    """All attempts, or those of one dataset or experiment, at a size of the log (default: now).

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
        wanted = {"dataset_id": dataset, "experiment_id": experiment}
        asked = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(["seq < ?", *(f"{column} = ?" for column in asked)])
        query = f"SELECT {_COLUMNS} FROM trials WHERE {where} ORDER BY seq"  # noqa: S608 - our names
        rows = ledger.index.select(query, (size, *asked.values()))
        reader = _Reader(
            dict(ledger.index.select("SELECT id, document FROM conditions")),
            _find_reviews(ledger, size),
            _find_superseded(ledger, size),
        )
        return Position(size, [reader.read(row) for row in rows])


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
        self.documents = documents
        self.reviews = reviews
        self.superseded = superseded
        self.runs: dict[int, RunConditions] = {}
        self.tasks: dict[int, TaskConditions] = {}
        self.findings: dict[str, tuple[str, ...]] = {}

    def read(self, row: tuple[Any, ...]) -> Attempt:
        """One attempt."""
        (seq, experiment, trial, record, status, completeness, dataset, task, agent, model, reward,
         when, reason, revision, configuration, run, sat, source, cost, tokens_in, tokens_out,
         advisor_calls, seconds, findings, collection, exception) = row  # fmt: skip
        if status == "superseded" or record in self.superseded:
            known = "superseded" if record in self.superseded else None
            status = known or ("sealed" if completeness == "complete" else "diagnostic")
        return Attempt(
            seq=seq, experiment=experiment, trial=trial, record=record, status=status,
            completeness=completeness, dataset=dataset, task=task, agent=agent, model=model,
            reward=reward, when=when, reason=reason, revision=revision,
            configuration=configuration, run_conditions=self._run(run),
            task_conditions=self._task(sat), source=source, cost_usd=cost, tokens_in=tokens_in,
            tokens_out=tokens_out, advisor_calls=advisor_calls, seconds=seconds,
            findings=self._findings(findings), review=self.reviews.get(record),
            collection=collection, exception=exception,
        )  # fmt: skip

    def _run(self, row: int | None) -> RunConditions | None:
        if row is None:
            return None
        if row not in self.runs:
            self.runs[row] = msgspec.json.decode(self.documents[row], type=RunConditions)
        return self.runs[row]

    def _task(self, row: int | None) -> TaskConditions | None:
        if row is None:
            return None
        if row not in self.tasks:
            self.tasks[row] = msgspec.json.decode(self.documents[row], type=TaskConditions)
        return self.tasks[row]

    def _findings(self, codes: str | None) -> tuple[str, ...]:
        text = codes or ""
        if text not in self.findings:
            self.findings[text] = tuple(text.split())
        return self.findings[text]
