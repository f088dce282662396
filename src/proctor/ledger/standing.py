"""What boards and comparisons need of a sealed record, beyond what lists do: for the index."""

from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.errors import DamageError
from proctor.ledger.entry import TrialEntry
from proctor.record.comparable import (
    UNKNOWN,
    find_run_conditions,
    find_task_conditions,
    settings_digest,
    verifier_digest,
)

_LARGEST_COUNT = (1 << 63) - 1


class _Task(msgspec.Struct, frozen=True):
    task_revision: str = UNKNOWN


class _Agent(msgspec.Struct, frozen=True):
    adapter_revision: str | None = None
    configuration: dict[str, Any] = {}


class _Environment(msgspec.Struct, frozen=True):
    runtime_image: str = UNKNOWN
    compute_backend: str = UNKNOWN


class _Timing(msgspec.Struct, frozen=True):
    total_seconds: float | None = None


class _Cost(msgspec.Struct, frozen=True):
    tokens_in: int | None = None
    tokens_out: int | None = None
    estimated_cost_usd: float | None = None
    advisor_calls: int | None = None


class _File(msgspec.Struct, frozen=True):
    path: str
    hash: str
    source: str | None = None


class _Inputs(msgspec.Struct, frozen=True):
    input_files: tuple[_File, ...] | None = None


class _Record(msgspec.Struct, frozen=True):
    task: _Task = _Task()
    agent: _Agent = _Agent()
    environment: _Environment = _Environment()
    inputs: _Inputs = _Inputs()
    timing: _Timing | None = None
    cost: _Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a sealed trial stands among others."""

    revision: str | None
    """Of the agent's adapter."""
    configuration: str
    """Digest of the agent's own settings."""
    run_conditions: bytes
    """RunConditions, as JSON."""
    task_conditions: bytes
    """TaskConditions, as JSON."""
    source: str | None
    """Where it was brought in from; null: proctor ran it."""
    cost_usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    advisor_calls: int | None
    seconds: float | None
    findings: str
    """Codes of its integrity findings, each once, sorted, with spaces between."""


_DECODER = msgspec.json.Decoder(_Record)
_ENCODER = msgspec.json.Encoder(order="sorted")


def read_standing(entry: TrialEntry) -> Standing:
    """The standing of a trial that is sealed, or could be.

    Raises:
        DamageError: there is no record in it.
    """
    try:
        record = _DECODER.decode(entry.record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"entry {entry.seq}: no TrialRecord in it: {error}") from error
    settings, environment = record.agent.configuration, record.environment
    profile = entry.score.profile if entry.score else None
    run = find_run_conditions(settings, environment.compute_backend, profile)
    task = find_task_conditions(
        settings,
        record.task.task_revision,
        environment.runtime_image,
        _find_verifier(record.inputs),
    )
    cost = record.cost or _Cost()
    return Standing(
        revision=record.agent.adapter_revision,
        configuration=settings_digest(record.agent.adapter_revision, settings),
        run_conditions=_ENCODER.encode(run),
        task_conditions=_ENCODER.encode(task),
        source=entry.source.kind if entry.source else None,
        cost_usd=cost.estimated_cost_usd,
        tokens_in=_count(cost.tokens_in),
        tokens_out=_count(cost.tokens_out),
        advisor_calls=_count(cost.advisor_calls),
        seconds=record.timing.total_seconds if record.timing else None,
        findings=" ".join(sorted({str(each.get("code", "?")) for each in entry.findings})),
    )


def _find_verifier(inputs: _Inputs) -> str | None:
    files = inputs.input_files or ()
    return verifier_digest((each.path, each.hash) for each in files if each.source == "verifier")


def _count(value: int | None) -> int | None:
    """A number for the index; more than it can hold is not known."""
    return value if value is None or 0 <= value <= _LARGEST_COUNT else None
