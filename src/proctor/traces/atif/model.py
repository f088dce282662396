"""An ATIF document, field for field and in the order harbor writes them. It checks nothing.

Optional fields are null when absent, and a null in a file is the same as no field: harbor makes no
difference either. The one exception says so.
"""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from proctor.traces.entry import Object

VERSIONS: Final = tuple(f"ATIF-v1.{minor}" for minor in range(9))
"""Every version that is read."""
WRITTEN_VERSION: Final = "ATIF-v1.7"
"""The version that is written, and that a document without one has."""
AUDIO_VERSION: Final = "ATIF-v1.8"
"""The first version with audio."""
SOURCES: Final = ("system", "user", "agent")


class _Object(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An object of a document; harbor allows no other fields and omits null ones."""


class MediaSource(_Object, frozen=True, kw_only=True):
    """Where an image or a sound lies."""

    media_type: str
    """MIME type; of an image one of png, jpeg, gif and webp."""
    path: str
    """Relative to the document, absolute, or a URL."""
    duration_sec: float | UnsetType | None = UNSET
    """Seconds of audio, 0 or more. An image must not have the key at all, not even null."""


class ContentPart(_Object, frozen=True, kw_only=True):
    """One part of a message or result that is not plain text alone."""

    type: str
    """text, image or, from v1.8, audio."""
    text: str | None = None
    """Of a text part, and of no other."""
    source: MediaSource | None = None
    """Of an image or audio part, and of no other."""


type Content = str | tuple[ContentPart, ...]


class ToolCall(_Object, frozen=True, kw_only=True):
    """One tool the agent called."""

    tool_call_id: str
    """Results of the same step name it."""
    function_name: str
    arguments: Object
    """{} when there are none."""
    extra: Object | None = None
    """Free; from v1.7."""


class SubagentRef(_Object, frozen=True, kw_only=True):
    """Names the trajectory of a subagent, by id or by path; one of the two is needed."""

    trajectory_id: str | None = None
    """An entry of the document's `subagent_trajectories`."""
    session_id: str | None = None
    """The subagent's run; it resolves nothing."""
    trajectory_path: str | None = None
    """A file elsewhere."""
    extra: Object | None = None


class ObservationResult(_Object, frozen=True, kw_only=True):
    """What came back from one call, or from the system."""

    source_call_id: str | None = None
    """The call of the same step; null when no call made it."""
    content: Content | None = None
    subagent_trajectory_ref: tuple[SubagentRef, ...] | None = None
    extra: Object | None = None
    """Free; from v1.7."""


class Observation(_Object, frozen=True, kw_only=True):
    """What the environment gave back in one step."""

    results: tuple[ObservationResult, ...]


class Metrics(_Object, frozen=True, kw_only=True):
    """What the model calls of one step used."""

    prompt_tokens: int | None = None
    """All input tokens, cached ones included."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of prompt_tokens that was read from a cache."""
    cost_usd: float | None = None
    """US dollars."""
    prompt_token_ids: tuple[int, ...] | None = None
    completion_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    """One for each generated token, natural logarithm."""
    extra: Object | None = None


class Step(_Object, frozen=True, kw_only=True):
    """One turn of the system, the user or the agent."""

    step_id: int
    """Counted from 1 without a gap."""
    timestamp: str | None = None
    """ISO 8601."""
    source: str
    """One of SOURCES."""
    model_name: str | None = None
    """Agent steps only; null means the agent's own."""
    reasoning_effort: str | float | None = None
    """Agent steps only; a word or a number."""
    message: Content
    reasoning_content: str | None = None
    """Agent steps only."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """Agent steps only."""
    observation: Observation | None = None
    """Any source may have one."""
    metrics: Metrics | None = None
    """Agent steps only."""
    is_copied_context: bool | None = None
    """Copied from an earlier trajectory when that was continued; from v1.5."""
    llm_call_count: int | None = None
    """Model calls in this step, 0 or more; null is not counted. From v1.7."""
    extra: Object | None = None


class Agent(_Object, frozen=True, kw_only=True):
    """Which agent it was."""

    name: str
    version: str
    model_name: str | None = None
    """The model of every step that names none."""
    tool_definitions: tuple[Object, ...] | None = None
    """The tools it could call, as OpenAI's function schema has them."""
    extra: Object | None = None


class FinalMetrics(_Object, frozen=True, kw_only=True):
    """Sums over the whole trajectory."""

    total_prompt_tokens: int | None = None
    """Cached tokens included."""
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    """US dollars, subagents included."""
    total_steps: int | None = None
    """0 or more; it need not be the number of steps in the document."""
    extra: Object | None = None


def _written_version() -> str:
    return WRITTEN_VERSION


class Atif(_Object, frozen=True, kw_only=True):
    """One ATIF document."""

    # A factory, because a plain default would not be written out.
    schema_version: str = msgspec.field(default_factory=_written_version)
    """One of VERSIONS."""
    session_id: str | None = None
    """The run; several documents may share it."""
    trajectory_id: str | None = None
    """This document; needed, and unique among its siblings, when it is embedded. From v1.7."""
    agent: Agent
    steps: tuple[Step, ...]
    """At least one."""
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    """The file that goes on where this one ends."""
    extra: Object | None = None
    subagent_trajectories: tuple["Atif", ...] | None = None
    """Documents of subagents, each whole; from v1.7."""


UNKNOWN_AGENT: Final = Agent(name="unknown", version="unknown")
"""Used where the agent is not named."""
