"""Which limit ended a trial, according to its record: turns, tokens, cost, time or context."""

import re
from typing import Any, Final

import msgspec

from proctor.record.fields import Object
from proctor.record.model import TrialRecord
from proctor.record.reasons import ReasonCode

# Limits of proctor's own chat agent.
_NAMES: Final = {
    "max_turns": "turns",
    "max_tokens": "tokens",
    "max_cost_usd": "cost",
    "max_seconds": "time",
}
_EXCEPTIONS: Final = {
    "AgentTimeoutError": "time",
    "ModelContextError": "context",
    "ContextLengthExceededError": "context",
    "ContextWindowExceededError": "context",
    "OutputLengthExceededError": "tokens",
}
# The gateway's own limits: the kind is in the sentence.
_MODEL_LIMIT: Final = "ModelLimitError"
_MODEL_LIMITS: Final = (("turns", " requests "), ("tokens", " tokens "), ("cost", "$"))
_STOPS: Final = ("stop_condition", "stop_reason", "completion_status", "finish_reason")
_WORDS: Final = (
    ("turns", re.compile(r"max.?(?:turn|step|iteration)s?|(?:turn|step|iteration).?limit")),
    ("context", re.compile(r"context.?(?:length|window|limit|overflow)|prompt.?too.?long")),
    ("tokens", re.compile(r"max.?tokens|token.?(?:limit|budget)|^length$")),
    ("cost", re.compile(r"(?:cost|budget).?(?:limit|exceeded)|max.?cost")),
    ("time", re.compile(r"time.?(?:out|limit)|timed.?out|deadline|max.?(?:time|seconds)")),
)
_TYPE = re.compile(r"[A-Za-z_]\w{0,80}(?=:|$)")
_SHOWN: Final = 200


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that was reached."""

    kind: str
    """turns, tokens, cost, time, context or other."""
    where: str
    """The field that shows it."""
    said: str
    """The beginning of its value."""


def find_limit(record: TrialRecord, reason_code: str | None) -> Limit | None:
    """The limit that ended a trial, according to its record; None if there was none."""
    result = record.outputs.agent_result or {}
    return (
        _find_reported(result)
        or _find_turns(result)
        or _find_exception(record)
        or (
            Limit(kind="time", where="reason_code", said=str(reason_code))
            if reason_code == ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR
            else None
        )
    )


def exception_types(record: TrialRecord) -> list[tuple[str, str]]:
    """The class of each recorded error, with its whole text; "" if it has none."""
    found = []
    for text in record.evaluation.validity.errors:
        # Recorded errors are `Class: sentence`, as harbor writes them.
        match = _TYPE.match(text)
        found.append((match[0] if match else "", text))
    return found


def find_in(result: Object, key: str) -> Any:
    """The value of a key in an agent's result or in its metadata."""
    beside = result.get("metadata")
    return result.get(key, beside.get(key) if isinstance(beside, dict) else None)


def _find_reported(result: Object) -> Limit | None:
    limit = find_in(result, "limit")
    if isinstance(limit, dict) and find_in(result, "ended") == "limit":
        ours = _NAMES.get(str(limit.get("name")), "other")
        said = f"{limit.get('name')} {limit.get('reached')} of {limit.get('limit')}"
        return Limit(kind=ours, where="outputs.agent_result limit", said=said[:_SHOWN])
    for key in _STOPS:
        value = find_in(result, key)
        kind = _kind_of(value) if isinstance(value, str) else None
        if kind is not None:
            return Limit(kind=kind, where=f"outputs.agent_result {key}", said=str(value)[:_SHOWN])
    if find_in(result, "is_truncated") is True:
        return Limit(kind="other", where="outputs.agent_result is_truncated", said="true")
    return None


def _kind_of(text: str) -> str | None:
    lowered = text[:_SHOWN].lower()
    return next((kind for kind, words in _WORDS if words.search(lowered)), None)


def _find_turns(result: Object) -> Limit | None:
    used, most = whole(find_in(result, "turns_used")), whole(find_in(result, "max_turns"))
    # An agent that used all its turns was stopped by the limit, whether or not it reports it.
    if used is None or most is None or not 0 < most <= used:
        return None
    where = "outputs.agent_result turns_used, max_turns"
    return Limit(kind="turns", where=where, said=f"{used} of {most}")


def _find_exception(record: TrialRecord) -> Limit | None:
    for name, text in exception_types(record):
        kind = _EXCEPTIONS.get(name)
        if name == _MODEL_LIMIT:
            kind = next((kind for kind, mark in _MODEL_LIMITS if mark in text), "other")
        if kind is not None:
            return Limit(kind=kind, where="evaluation.validity.errors", said=text[:_SHOWN])
    return None


def whole(value: Any) -> int | None:
    """The value as a count; None if it is not one."""
    try:
        found = int(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return found if 0 <= found < 1 << 53 else None
