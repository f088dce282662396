"""The few fields of a sealed record that lists and look-ups need, without reading the rest."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from proctor.errors import DamageError
from proctor.ledger.entry import TrialEntry


class _Task(msgspec.Struct, frozen=True):
    task_id: str


class _Agent(msgspec.Struct, frozen=True):
    adapter: str
    model: str


class _Evaluation(msgspec.Struct, frozen=True):
    reward: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float | None


class RecordHead(msgspec.Struct, frozen=True):
    """What a sealed record is about."""

    trial_id: str
    experiment_id: str
    timestamp: str
    task: _Task
    agent: _Agent
    evaluation: _Evaluation
    completeness: str
    dataset_id: str | None = None

    @property
    def status(self) -> str:
        """How it was admitted: only complete records are `sealed`."""
        return "sealed" if self.completeness == "complete" else "diagnostic"

    @property
    def when(self) -> str:
        """The time in UTC, so that texts sort as times do; as it is where it is no time."""
        try:
            moment = datetime.fromisoformat(self.timestamp)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            moment = moment.astimezone(UTC)
            return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        except (ValueError, OverflowError):
            return self.timestamp


_DECODER = msgspec.json.Decoder(RecordHead)


def read_head_of(entry: TrialEntry) -> RecordHead:
    """The head of an entry's record.

    Raises:
        DamageError: there is no record in it.
    """
    try:
        return _DECODER.decode(entry.record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"entry {entry.seq}: no TrialRecord in it: {error}") from error
