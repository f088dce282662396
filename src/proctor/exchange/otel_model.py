"""OTLP JSON as values, the attributes for a trial's fields, and times in nanoseconds.

Ids are hex, 64-bit integers are texts, kinds are numbers. Attributes have the names of the GenAI
conventions where they exist, and `proctor.` names otherwise. One table serves writing and reading
back, so that no field can be written without being compared. An event without a time is placed, in
order, at the last known time.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from proctor.times import render_utc

# Kinds of spans.
INTERNAL: Final = 1
CLIENT: Final = 3
# Status of a failed span; 0, unset, is omitted.
ERROR: Final = 2

type Value = str | int | float | bool
type Attributes = dict[str, Value]


class AnyValue(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """An attribute value; exactly one field is set."""

    string_value: str | None = None
    int_value: str | None = None
    """A 64-bit integer, as text."""
    double_value: float | None = None
    bool_value: bool | None = None


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """One attribute."""

    key: str
    value: AnyValue


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event in a span."""

    time_unix_nano: str
    name: str
    attributes: list[KeyValue] = []


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a span."""

    code: int = 0
    message: str = ""


class Span(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One unit of work."""

    trace_id: str
    """16 bytes, in hex."""
    span_id: str
    """8 bytes, in hex."""
    parent_span_id: str = ""
    name: str
    kind: int
    start_time_unix_nano: str
    """Nanoseconds since 1970."""
    end_time_unix_nano: str
    attributes: list[KeyValue] = []
    events: list[Event] = []
    status: Status | None = None


class Resource(msgspec.Struct, frozen=True):
    """The source of the spans."""

    attributes: list[KeyValue]


class Scope(msgspec.Struct, frozen=True):
    """The writer of the spans."""

    name: str
    version: str


class ScopeSpans(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spans of one writer."""

    scope: Scope
    spans: list[Span]


class ResourceSpans(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spans of one source."""

    resource: Resource
    scope_spans: list[ScopeSpans]


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An ExportTraceServiceRequest, one line of a file."""

    resource_spans: list[ResourceSpans]


def write_attributes(attributes: dict[str, Value | None]) -> list[KeyValue]:
    """Encode the attributes that have a value."""
    return [
        KeyValue(key, _write_value(value)) for key, value in attributes.items() if value is not None
    ]


def _write_value(value: Value) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int() if -(1 << 63) <= value < 1 << 63:
            return AnyValue(int_value=str(value))
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(string_value=str(value))


def read_attributes(attributes: list[KeyValue]) -> Attributes:
    """Decode attributes to values."""
    return {each.key: _read_value(each.value) for each in attributes}


def _read_value(value: AnyValue) -> Value:
    if value.int_value is not None:
        return int(value.int_value)
    known = (value.bool_value, value.double_value, value.string_value)
    return next((each for each in known if each is not None), "")


AGENT: Final = "gen_ai.agent.name"
MODEL: Final = "gen_ai.request.model"
TRIAL: Final = "proctor.trial.id"
DIGEST: Final = "proctor.record.sha256"
STATUS: Final = "proctor.status"

ATTRIBUTES: Final = {
    "record.trial_id": TRIAL,
    "record.experiment_id": "proctor.experiment.id",
    "record.dataset_id": "proctor.dataset.id",
    "record.timestamp": "proctor.trial.timestamp",
    "record.task.task_id": "proctor.task.id",
    "record.task.task_revision": "proctor.task.revision",
    "record.agent.adapter": AGENT,
    "record.agent.adapter_revision": "gen_ai.agent.version",
    "record.agent.model": MODEL,
    "record.environment.runtime_image": "proctor.environment.image",
    "record.environment.compute_backend": "proctor.environment.backend",
    "record.outputs.agent_output.status": "proctor.output.status",
    "record.outputs.agent_output.output_path": "proctor.output.path",
    "record.outputs.agent_output.output_format": "proctor.output.format",
    "record.outputs.agent_output.error_message": "proctor.output.error",
    "record.outputs.conversation_path": "proctor.output.conversation",
    "record.outputs.trajectory_path": "proctor.output.trajectory",
    "record.evaluation.validity.output_parseable": "proctor.validity.output_parseable",
    "record.evaluation.validity.schema_valid": "proctor.validity.schema_valid",
    "record.evaluation.validity.verifier_completed": "proctor.validity.verifier_completed",
    "record.timing.total_seconds": "proctor.timing.total_seconds",
    "record.timing.agent_seconds": "proctor.timing.agent_seconds",
    "record.timing.setup_seconds": "proctor.timing.setup_seconds",
    "record.timing.verification_seconds": "proctor.timing.verification_seconds",
    "record.cost.tokens_in": "gen_ai.usage.input_tokens",
    "record.cost.tokens_out": "gen_ai.usage.output_tokens",
    "record.cost.cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "record.cost.cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "record.cost.estimated_cost_usd": "proctor.cost.usd",
    "record.cost.advisor_calls": "proctor.advisor.calls",
    "record.cost.advisor_input_tokens": "proctor.advisor.input_tokens",
    "record.cost.advisor_output_tokens": "proctor.advisor.output_tokens",
    "record.completeness": "proctor.completeness",
    "cost_basis": "proctor.cost.basis",
    "reason_code": "proctor.reason_code",
    "slot.task": "proctor.slot.task",
    "slot.attempt": "proctor.slot.attempt",
    "source.kind": "proctor.source.kind",
    "source.name": "proctor.source.name",
}

OF_CHAT: Final = {
    "model": "gen_ai.response.model",
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
}
"""Attributes of a model's turn beyond its content."""

STEP: Final = "proctor.step"
PART: Final = "proctor.part"
ENTRY: Final = "proctor.entry"
"""Index in the trace, from 0: of the message, or of the tool call."""
RESULT: Final = "proctor.result_entry"
RESULT_TIME: Final = "proctor.result_time"
"""When a result arrived, if that is not the end of its span."""
TOOL: Final = "gen_ai.tool.name"
CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
STDOUT: Final = "gen_ai.tool.call.result"
EXIT_CODE: Final = "process.exit.code"

OF_RESULT: Final = {
    "stdout": STDOUT,
    "exit_code": EXIT_CODE,
    "stderr": "proctor.tool.stderr",
    "duration_ms": "proctor.tool.duration_ms",
    "output_summary": "proctor.tool.output_summary",
}
"""Fields of a result entry."""
COMMAND: Final = "proctor.tool.command"
"""The command of a call, if its arguments do not contain it under that name."""

INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
SYSTEM: Final = "gen_ai.system_instructions"
UNANSWERED: Final = "proctor.unanswered.messages"
"""Messages after the model's last turn."""

EVALUATION: Final = "gen_ai.evaluation.result"
METRIC: Final = "gen_ai.evaluation.name"
SCORE: Final = "gen_ai.evaluation.score.value"
LABEL: Final = "gen_ai.evaluation.score.label"
EXPLANATION: Final = "gen_ai.evaluation.explanation"
REWARD: Final = "reward"
NOT_SCORED: Final = "not_scored"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = 1_000_000
_LATEST = (1 << 63) - 1


def find_moment(text: str | None) -> int | None:
    """Nanoseconds since 1970 in UTC; None if it is not a time, or earlier."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    nanoseconds = since // timedelta(microseconds=1) * 1000
    return nanoseconds if nanoseconds >= 0 else None


class Clock:
    """The current time in a trace."""

    def __init__(self, start: int) -> None:
        self.now = start
        self.unknown = 0
        """How many events had no time."""

    def advance(self, text: str | None) -> int:
        """Advance to the time of the next event and return it; without a time the clock stays."""
        moment = find_moment(text)
        if moment is None:
            self.unknown += 1
        else:
            self.now = moment
        return self.now


def tool_times(called: int, answered: int | None, duration_ms: int | None) -> tuple[int, int]:
    """Start and end of a tool call; many traces have one time for the call and its result."""
    if answered is not None and answered > called:
        return called, answered
    return called, min(called + max(duration_ms or 0, 0) * _MILLISECOND, _LATEST)


def render_moment(nanoseconds: int) -> str:
    """Format a moment, to the microsecond; as the plain number if beyond the calendar."""
    try:
        moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return str(nanoseconds)
    return render_utc(moment, "microseconds")
