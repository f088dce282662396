"""The few fields of a sealed record that lists and look-ups need, without reading the rest."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from proctor.errors import DamageError
from proctor.ledger.entry import TrialEntry
from proctor.reward.number import find_primary, is_finite

type Reward = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float | None
"""What the index can hold."""


class TaskHead(msgspec.Struct, frozen=True):
    """The task, by its name."""

    task_id: str


class AgentHead(msgspec.Struct, frozen=True):
    """Who sat."""

    adapter: str
    model: str


class EvaluationHead(msgspec.Struct, frozen=True):
    """What it scored."""

    reward: Reward


class RecordHead(msgspec.Struct, frozen=True):
    """What a sealed record is about."""

    trial_id: str
    experiment_id: str
    timestamp: str
    task: TaskHead
    agent: AgentHead
    evaluation: EvaluationHead
    completeness: str
    dataset_id: str | None = None

    @property
    def status(self) -> str:
        """How it was admitted: only complete records are `sealed`."""
        return "sealed" if self.completeness == "complete" else "diagnostic"

    @property
    def when(self) -> str:
        """The time in UTC, so that texts sort as times do; as it is where it is no time."""
        text = self.timestamp
        try:
            moment = datetime.fromisoformat(text)
            # As most records have it: no need to take it apart. Weeks have no dash there.
            if text[7:8] == "-" and text[10:11] == "T" and text[19:] == "Z":
                return f"{text[:19]}.000000Z"
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            moment = moment.astimezone(UTC)
            return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        except (ValueError, OverflowError):
            return text


_DECODER = msgspec.json.Decoder(RecordHead)


def find_certified_reward(entry: TrialEntry) -> float | None:
    """The reward that the certificate of a trial's score gives; None where it gives none."""
    certificate = entry.score.certificate if entry.score else None
    written = certificate.get("rewards") if certificate else None
    if not isinstance(written, dict) or not written:
        return None
    try:
        rewards = {
            key: value if isinstance(value, int) else float.fromhex(value)
            for key, value in written.items()
        }
        primary = find_primary(rewards)
        return float(primary) if primary is not None and is_finite(primary) else None
    except (TypeError, ValueError, OverflowError):
        return None  # what is no number is for the claim to refuse


def read_head_of(entry: TrialEntry) -> RecordHead:
    """The head of an entry's record.

    Raises:
        DamageError: there is no record in it.
    """
    try:
        return _DECODER.decode(entry.record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"entry {entry.seq}: no TrialRecord in it: {error}") from error
