"""One request to a model and its answer, in terms that all protocols share."""

from enum import StrEnum

import msgspec

from proctor.record.cost import Usage
from proctor.traces.entry import Object
from proctor.traces.turn import Turn


class Wire(StrEnum):
    """The protocols that the gateway understands."""

    OPENAI_CHAT = "openai-chat"
    """POST …/chat/completions."""
    OPENAI_RESPONSES = "openai-responses"
    """POST …/responses."""
    ANTHROPIC = "anthropic-messages"
    """POST …/messages."""
    GEMINI = "gemini"
    """POST …/models/MODEL:generateContent or :streamGenerateContent."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked."""

    model: str | None = None
    """As in the request, or in its path."""
    is_stream: bool = False
    turns: tuple[Turn, ...] = ()
    """The conversation so far, the system prompt first; `line` is the turn's number from 1."""
    tools: tuple[Object, ...] = ()
    """Definitions of tools, as in the request."""
    previous_id: str | None = None
    """`previous_response_id`: the provider keeps the turns up to that answer, `turns` are new."""
    problem: str | None = None
    """Why it could not be understood, or not completely."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered."""

    turn: Turn | None = None
    """Text, thinking and calls of the answer; None if there is none."""
    model: str | None = None
    """The model that answered, according to the answer."""
    response_id: str | None = None
    fingerprint: str | None = None
    """`system_fingerprint`, where the protocol has one."""
    finish_reason: str | None = None
    usage: Usage | None = None
    """None if the answer has none; a lower bound if the answer is not complete."""
    reasoning_tokens: int | None = None
    """The part of the output tokens that was reasoning."""
    n_choices: int = 1
    """Number of choices; `turn` is the first one."""
    error: str | None = None
    """The provider's error message, if it answered with one."""
    is_complete: bool = True
    """False if a stream ended before the protocol's last event, or a body inside its JSON."""
    problem: str | None = None
    """Why it could not be understood, or not completely."""
