"""OTLP JSON as values: ids are hex, whole numbers of 64 bits are texts, kinds are numbers."""

from typing import Final

import msgspec

INTERNAL: Final = 1
CLIENT: Final = 3
"""Kinds of spans."""
ERROR: Final = 2
"""The status of what failed; 0 is not said, and so left out."""

type Value = str | int | float | bool
type Attributes = dict[str, Value]


class AnyValue(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A value of an attribute; one of its fields is set."""

    string_value: str | None = None
    int_value: str | None = None
    """A whole number of 64 bits, as text."""
    double_value: float | None = None
    bool_value: bool | None = None


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """One attribute."""

    key: str
    value: AnyValue


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happened in a span."""

    time_unix_nano: str
    name: str
    attributes: list[KeyValue] = []


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a span ended."""

    code: int = 0
    message: str = ""


class Span(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One piece of work."""

    trace_id: str
    """16 bytes."""
    span_id: str
    """8 bytes."""
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
    """What the spans come from."""

    attributes: list[KeyValue]


class Scope(msgspec.Struct, frozen=True):
    """What wrote them."""

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
    """An ExportTraceServiceRequest, which is what a line of a file is."""

    resource_spans: list[ResourceSpans]


def write_attributes(attributes: dict[str, Value | None]) -> list[KeyValue]:
    """The attributes that are known."""
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
    """The same as values."""
    return {each.key: _read_value(each.value) for each in attributes}


def _read_value(value: AnyValue) -> Value:
    if value.int_value is not None:
        return int(value.int_value)
    known = (value.bool_value, value.double_value, value.string_value)
    return next((each for each in known if each is not None), "")
