"""One line of trajectory.jsonl: the header, and an entry; and the kinds of trace files.

The keys are those of the aec-bench format, all three generations of it. An entry holds what the
format defines and no more: anything else in a line is kept beside the entry (see trajectory.py).
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec


class TraceKind(StrEnum):
    """What a trace can be read from, the preferred first."""

    TRAJECTORY = "trajectory"
    ATIF = "ATIF trajectory"
    CONVERSATION = "conversation"


FORMAT: Final = "aec-bench-trajectory"
VERSION: Final = 1
ROLES: Final = ("system", "user", "assistant", "tool_call", "tool_result")
"""The documented roles. The format takes any string."""

type Object = dict[str, Any]
"""A free JSON object, as a harness wrote it."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a file of the first generation."""

    version: Any = VERSION
    """1; another value is read too, with a note."""
    format: Any = FORMAT
    timestamp: Any = None
    """When the writer was opened; not every writer says."""


class UsualHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header as writers of the format write it."""

    version: Literal[1]
    format: str
    timestamp: str | None = None


class Entry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that happened. Field order is the order in which they are written."""

    role: str
    """Usually one of ROLES."""
    step: Annotated[int, msgspec.Meta(ge=0)]
    """0 for what came before the first turn, then the number of the turn."""
    content: str | None = None
    """Text of a system, user or assistant entry."""
    tool_name: str | None = None
    command: str | None = None
    """What a tool_call ran; "" where the tool has no command."""
    arguments: Object | None = None
    """A tool_call's arguments."""
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    """0 is success, -1 is used for timeouts; null is unknown."""
    duration_ms: int | None = None
    media: list[str] | None = None
    """Names of files: relative to the trial's artifacts, or absolute inside the container."""
    metadata: Object | None = None
    """Further facts from the harness: tokens, progress, advisor calls."""
    output_summary: str | None = None
    """The beginning of a long stdout."""
    call_type: str | None = None
    """warmup, main or subagent."""
    meta_harness: Object | None = None
    """Lineage of a compiled program; later generations only, kept as it is."""
    timestamp: str | None = None
    """As the harness wrote it; usually UTC in ISO 8601."""


KEYS: Final = Entry.__struct_fields__
HEADER_KEYS: Final = Header.__struct_fields__
