"""One line of trajectory.jsonl, header or entry, and the kinds of trace files.

The keys are those of all three generations of the aec-bench format. An entry has only what the
format defines; anything else in a line is kept next to the entry (see trajectory.py).
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec


class TraceKind(StrEnum):
    """The kinds of trace files, in order of preference."""

    TRAJECTORY = "trajectory"
    ATIF = "ATIF trajectory"
    CONVERSATION = "conversation"
    OUTPUT = "command output"

    @property
    def is_lines(self) -> bool:
        """Whether its files have the lines of trajectory.jsonl."""
        return self in (TraceKind.TRAJECTORY, TraceKind.OUTPUT)


FORMAT: Final = "aec-bench-trajectory"
VERSION: Final = 1
ROLES: Final = ("system", "user", "assistant", "tool_call", "tool_result")
"""The documented roles. The format allows any string."""

MODEL_TRACE: Final = "model-trace.jsonl"
"""The trace made from an agent's recorded exchanges with its model; see proctor.gateway."""
OUTPUT_FILE: Final = "proctor-output.jsonl"
"""What the agent's commands printed, with times; see proctor.trial.output_log."""
OUTPUT_FORMAT: Final = "proctor-output"
OUTPUT: Final = "output"
"""The role of its entries, which are no steps."""

type Object = dict[str, Any]
"""A free-form JSON object, as a harness wrote it."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a file of the first generation."""

    version: Any = VERSION
    """1; another value is read too, with a note."""
    format: Any = FORMAT
    timestamp: Any = None
    """When the writer was opened; not every writer has it."""


class UsualHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header in the usual form."""

    version: Literal[1]
    format: str
    timestamp: str | None = None


class Entry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One event of a trace. Fields are written in this order."""

    role: str
    """Usually one of ROLES."""
    step: Annotated[int, msgspec.Meta(ge=0)]
    """0 before the first turn, then the number of the turn."""
    content: str | None = None
    """Text of a system, user or assistant entry."""
    tool_name: str | None = None
    command: str | None = None
    """The command of a tool_call; "" if the tool has none."""
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
    """Further data from the harness: tokens, progress, advisor calls."""
    output_summary: str | None = None
    """The beginning of a long stdout."""
    call_type: str | None = None
    """warmup, main or subagent."""
    meta_harness: Object | None = None
    """Lineage of a compiled program; only in later generations, kept unchanged."""
    timestamp: str | None = None
    """As the harness wrote it; usually UTC in ISO 8601."""


KEYS: Final = Entry.__struct_fields__
HEADER_KEYS: Final = Header.__struct_fields__
