"""What is sent to an endpoint and what comes back, as values. Nothing here touches the network.

Requests have the keys that every OpenAI-compatible endpoint knows. Answers are read with patience,
because endpoints differ: content may be text or parts, reasoning has two names, a call may lack its
id or carry what has to come back with it. What is not JSON, or has no choice in it, is no answer.
"""

import json
import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NoReturn

import msgspec

from proctor.errors import ModelAnswerError, RecordError
from proctor.record.cost import Usage

type Object = dict[str, Any]
"""A JSON object as it goes over the wire."""

_MOST_USD: Final = 1e12
"""An amount beyond that is no price of an answer."""
_MOST_CALLS: Final = 1000
"""Calls in one answer; a model that makes more is caught in a circle."""
_BROKEN_OFF: Final = "error"
"""The finish reason of an answer that its model did not finish."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Call(msgspec.Struct, frozen=True):
    """A tool that the model calls."""

    id: str
    name: str
    arguments: str
    """Its arguments as the model wrote them: JSON, as a rule."""
    extra_content: Any = None
    """What some endpoints sign a call with, and want to see again."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint says that one answer took."""

    usage: Usage = Usage()
    """Tokens; what it does not say is null."""
    reasoning: int | None = None
    """Output tokens that were spent on reasoning; part of the output."""
    cost_usd: float | None = None
    """The endpoint's own amount."""
    problem: str | None = None
    """Why the figures were not taken, where they cannot be."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model."""

    text: str = ""
    reasoning: str | None = None
    """What it thought, where the endpoint shows that."""
    reasoning_key: str = "reasoning_content"
    """The key under which the endpoint shows it."""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    """The model as the endpoint names it."""
    spent: Spent = Spent()


class Function(msgspec.Struct, frozen=True):
    """The function of a call; in a stream a piece of it."""

    name: str | None = None
    arguments: str | Object | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call; in a stream a piece of one."""

    id: str | None = None
    index: int | None = None
    function: Function | None = None
    extra_content: Any = None


class Message(msgspec.Struct, frozen=True):
    """What the model says; in a stream a piece of it."""

    content: Any = None
    """Text, or a list of parts."""
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[ToolCall] | None = None

    @property
    def text(self) -> str:
        """Its words; those of a refusal where there are no others."""
        return _text_in(self.content) or _text_in(self.refusal)

    @property
    def thought(self) -> str:
        """Its reasoning."""
        return _text_in(self.reasoning_content) or _text_in(self.reasoning)

    @property
    def thought_key(self) -> str:
        """The key that its reasoning has."""
        is_short = isinstance(self.reasoning, str) and not _text_in(self.reasoning_content)
        return "reasoning" if is_short else "reasoning_content"


class Choice(msgspec.Struct, frozen=True):
    """The first of the choices, or a piece of it."""

    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None
    error: Any = None
    """Why the model did not finish."""


class Completion(msgspec.Struct, frozen=True):
    """A chat completion, or a piece of one."""

    model: str | None = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    """What some endpoints send in place of an answer, with status 200."""

    @property
    def choice(self) -> Choice:
        """The first choice; an empty one where there is none."""
        return self.choices[0] if self.choices else Choice()

    @property
    def fault(self) -> object:
        """The error in place of an answer, or of its end; None where there is none."""
        broken_off = "the answer was broken off" if self.choice.finish_reason == _BROKEN_OFF else ""
        return self.error or self.choice.error or broken_off or None


_DECODER: Final = msgspec.json.Decoder(Completion)


def parse_completion(data: bytes) -> Completion:
    """A completion, or a piece of one.

    Raises:
        ModelAnswerError: it is none.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ModelAnswerError(f"the answer is no chat completion: {error}") from error


def make_answer(completion: Completion) -> Answer:
    """The answer that a completion holds.

    Raises:
        ModelAnswerError: it has no choice in it, or more calls than are run.
    """
    choice = completion.choice
    if choice.message is None:
        raise ModelAnswerError("the answer has no choice with a message in it")
    said = choice.message
    return Answer(
        text=said.text,
        reasoning=said.thought or None,
        reasoning_key=said.thought_key,
        calls=make_calls(said.tool_calls or ()),
        finish_reason=choice.finish_reason,
        model=completion.model or None,
        spent=parse_spent(completion.usage),
    )


def make_calls(found: Sequence[ToolCall]) -> tuple[Call, ...]:
    """Calls with ids that differ: some endpoints give none, or the same to all.

    Raises:
        ModelAnswerError: there are more than are run.
    """
    if len(found) > _MOST_CALLS:
        raise ModelAnswerError(
            f"the answer has {len(found):,} calls; expected {_MOST_CALLS:,} at most"
        )
    given = {one.id for one in found}
    free = (name for number in count(1) if (name := f"call_{number}") not in given)
    calls: dict[str, Call] = {}
    for one in found:
        name = one.id if one.id and one.id not in calls else next(free)
        function = one.function or Function()
        arguments = function.arguments
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        calls[name] = Call(name, function.name or "", text, one.extra_content)
    return tuple(calls.values())


def parse_spent(usage: object) -> Spent:
    """What an endpoint says about tokens and money; figures that cannot be are not taken."""
    if not isinstance(usage, dict):
        return Spent()
    prompt = _object_in(usage, "prompt_tokens_details")
    completion = _object_in(usage, "completion_tokens_details")
    cached = prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    cost = _find_cost(usage)
    try:
        tokens = Usage.from_openai(
            prompt_tokens=usage.get("prompt_tokens"),
            cached_tokens=cached,
            completion_tokens=usage.get("completion_tokens"),
        )
    except RecordError as error:
        return Spent(problem=str(error), cost_usd=cost)
    reasoning = completion.get("reasoning_tokens")
    return Spent(
        usage=tokens,
        reasoning=reasoning if type(reasoning) is int and reasoning >= 0 else None,
        cost_usd=cost,
    )


def _find_cost(usage: Object) -> float | None:
    """The endpoint's own amount; with a key of one's own, what its provider charges as well."""
    cost = _find_amount(usage.get("cost"))
    if usage.get("is_byok") is not True or cost is None:
        return cost
    upstream = _find_amount(_object_in(usage, "cost_details").get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _find_amount(cost: object) -> float | None:
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return None
    return float(cost) if 0 <= cost <= _MOST_USD else None


def _object_in(usage: Object, key: str) -> Object:
    found = usage.get(key)
    return found if isinstance(found, dict) else {}


def _text_in(content: object) -> str:
    """The text of content, or of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


# What is sent


def system_message(text: str) -> Object:
    """What the model is told to be."""
    return {"role": "system", "content": text}


def user_message(text: str) -> Object:
    """What it is asked."""
    return {"role": "user", "content": text}


def assistant_message(answer: Answer, *, with_reasoning: bool) -> Object:
    """An answer as it is sent back, so that the model knows what it said.

    Some endpoints want the reasoning that led to a call back, under the key that it came with.
    """
    message: Object = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [_sent_call(call) for call in answer.calls]
        if with_reasoning and answer.reasoning:
            message[answer.reasoning_key] = answer.reasoning
    elif not answer.text:
        message["content"] = ""
    return message


def _sent_call(call: Call) -> Object:
    # Endpoints check the names and read the arguments of earlier calls too, and a bad one would end
    # the conversation for good.
    name = call.name if _NAME.fullmatch(call.name) else "unknown"
    function = {"name": name, "arguments": _sent_arguments(call.arguments)}
    sent: Object = {"id": call.id, "type": "function", "function": function}
    return sent if call.extra_content is None else {**sent, "extra_content": call.extra_content}


def _sent_arguments(text: str) -> str:
    return text if isinstance(parse_object(text), dict) else "{}"


def parse_object(text: str) -> Object | None:
    """The JSON object that a text is; None where it is none."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def tool_message(call: Call, text: str) -> Object:
    """What came of a call."""
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def render_request(request: Object) -> bytes:
    """A request's body: plain ASCII, whatever a command has printed."""
    return json.dumps(request, ensure_ascii=True, allow_nan=False).encode()
