"""Turns an endpoint's error responses into exceptions. Does not retry."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from proctor.errors import (
    ModelAuthError,
    ModelContextError,
    ModelError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelRequestError,
    ModelServerError,
)

# Characters of an endpoint's message that an error shows.
_SHOWN: Final = 500
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# How endpoints report a conversation that exceeds the context window: most have no code for it.
_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|reduce the length|exceed_context_size|input is too long|maximum prompt length"
    r"|exceeds the maximum number of tokens",
    re.IGNORECASE,
)
# "billing" alone does not match: some endpoints use it for rate limits that pass within a minute.
_USED_UP = re.compile(
    r"insufficient_quota|billing_(hard_limit|not_active)|credit balance", re.IGNORECASE
)
# Temporary refusals that are worth a retry, like everything from 500 on.
_PASSING: Final = frozenset({408, 409, 425, 429})
_REFUSALS: Final[Mapping[int, tuple[type[ModelError], str]]] = {
    401: (ModelAuthError, "is OPENAI_API_KEY the key of this endpoint?"),
    403: (ModelAuthError, "may the key of OPENAI_API_KEY use this model?"),
    404: (ModelNotFoundError, "is base_url right, and the model, which is sent as -m names it?"),
    429: (ModelRateLimitError, "fewer trials at once (-n) may help, or more --ak retries"),
}


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that got no answer."""

    error: ModelError
    is_passing: bool
    """Whether another try may succeed."""
    retry_after: float | None = None
    """Seconds to wait, if the endpoint says so."""


class _Error(msgspec.Struct, frozen=True):
    """The error object of a response."""

    message: Any = None
    code: Any = None
    type: Any = None


class _Body(msgspec.Struct, frozen=True):
    error: Any = None
    message: Any = None
    detail: Any = None


def judge_refusal(status: int, body: bytes, location: str = "") -> Failed:
    """Return the failure for a status other than 200."""
    said, code = read_refusal(body)
    shown = f"HTTP {status}: {said or 'no reason given'}"
    if 300 <= status < 400:
        to = clean(location or "nowhere")
        error: ModelError = ModelRequestError(
            f"HTTP {status}: redirects to {to}; set that as base_url if you trust it"
        )
        return Failed(error, is_passing=False)
    if _OVERFLOW.search(f"{code} {said}") and status != 429:
        error = ModelContextError(f"{shown}; the conversation exceeds the model's context window")
        return Failed(error, is_passing=False)
    if status >= 500 or status in _PASSING - _REFUSALS.keys():
        return Failed(ModelServerError(shown), is_passing=True)
    kind, advice = _REFUSALS.get(status, (ModelRequestError, ""))
    error = kind("; ".join(filter(None, (shown, advice))))
    return Failed(error, is_passing=status in _PASSING and not _USED_UP.search(f"{code} {said}"))


def judge_error(error: object) -> Failed:
    """Return the failure for an error object in a response with status 200."""
    found = _parse_error(error)
    if isinstance(found.code, int) and 400 <= found.code < 600:
        return judge_refusal(found.code, msgspec.json.encode({"error": error}))
    said = _message_of(found)
    if _OVERFLOW.search(f"{found.code} {said}"):
        return Failed(ModelContextError(f"an error instead of an answer: {said}"), is_passing=False)
    return Failed(ModelServerError(f"an error instead of an answer: {said}"), is_passing=True)


def read_refusal(body: bytes) -> tuple[str, str]:
    """Return the endpoint's message on one line, and its error code."""
    try:
        bodies = msgspec.json.decode(body, type=_Body | tuple[_Body, ...])
    except (msgspec.DecodeError, RecursionError):
        return clean(body.decode(errors="replace")), ""
    # Some endpoints, such as Gemini's, wrap the error in a list.
    found = bodies if isinstance(bodies, _Body) else (*bodies, _Body())[0]
    error = _parse_error(found.error or found.message or found.detail)
    return _message_of(error), f"{error.code} {error.type}"


def _parse_error(error: object) -> _Error:
    try:
        return msgspec.convert(error, _Error)
    except msgspec.ValidationError:
        return _Error(message=error)


def _message_of(error: _Error) -> str:
    said = error.message if error.message is not None else error.code or error.type or ""
    return clean(said if isinstance(said, str) else str(said))


def clean(text: str) -> str:
    """Return untrusted text on one line, of bounded length, without control characters."""
    line = _UNPRINTABLE.sub(" ", text).strip()
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
