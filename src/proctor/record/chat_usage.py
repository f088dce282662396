"""Parses the usage object of a chat completion, as OpenAI and compatible endpoints report it."""

from typing import Any, Final

import msgspec

from proctor.errors import RecordError
from proctor.record.cost import Usage

# Larger amounts are taken for errors of the endpoint.
_MOST_USD: Final = 1e12

type _Object = dict[str, Any]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one answer, as the endpoint reports it."""

    usage: Usage = Usage()
    """Tokens; null if not reported."""
    reasoning: int | None = None
    """Tokens spent on reasoning, which are part of the output tokens."""
    cost_usd: float | None = None
    """Cost, if the endpoint reports one."""
    problem: str | None = None
    """Why the reported tokens were rejected as impossible."""


def parse_spent(usage: object) -> Spent:
    """Parse the usage of an answer; impossible figures are rejected."""
    if not isinstance(usage, dict):
        return Spent()
    prompt = _object_in(usage, "prompt_tokens_details")
    completion = _object_in(usage, "completion_tokens_details")
    cached = prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    cost = _find_cost(usage)
    try:
        tokens = Usage(
            input=usage.get("prompt_tokens"),
            output=usage.get("completion_tokens"),
            cache_read=cached,
            # OpenAI itself counts no writes; OpenRouter does.
            cache_write=prompt.get("cache_write_tokens"),
        )
    except RecordError as error:
        return Spent(problem=str(error), cost_usd=cost)
    reasoning = completion.get("reasoning_tokens")
    return Spent(
        usage=tokens,
        reasoning=reasoning if type(reasoning) is int and reasoning >= 0 else None,
        cost_usd=cost,
    )


def _find_cost(usage: _Object) -> float | None:
    """Return the cost that the endpoint reports, including the provider's for BYOK requests."""
    cost = _find_amount(usage.get("cost"))
    if usage.get("is_byok") is not True or cost is None:
        return cost
    upstream = _find_amount(_object_in(usage, "cost_details").get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _find_amount(cost: object) -> float | None:
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return None
    return float(cost) if 0 <= cost <= _MOST_USD else None


def _object_in(usage: _Object, key: str) -> _Object:
    found = usage.get(key)
    return found if isinstance(found, dict) else {}
