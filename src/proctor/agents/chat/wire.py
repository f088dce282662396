"""Builds requests and parses answers. Does no I/O.

Requests use the keys that every OpenAI-compatible endpoint knows. Answers are parsed leniently,
because endpoints differ: content is text or a list of parts, reasoning has one of two names, a call
may lack its id, or carry data that must be sent back with it.
"""

import json
import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NoReturn

import msgspec

from proctor.errors import ModelAnswerError
from proctor.record.chat_usage import Spent, parse_spent

type Object = dict[str, Any]
"""A JSON object of a request or an answer."""

# Calls in one answer. A model that makes more is repeating itself.
_MOST_CALLS: Final = 1000
# Finish reason of an answer that broke off.
_BROKEN_OFF: Final = "error"
# Names of functions that OpenAI's API accepts.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Call(msgspec.Struct, frozen=True):
    """A tool call of the model."""

    id: str
    name: str
    arguments: str
    """Arguments as the model wrote them: usually JSON."""
    extra_content: Any = None
    """Signature that some endpoints attach to a call and require in the next request."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a model."""

    text: str = ""
    reasoning: str | None = None
    """Reasoning text, if the endpoint returns it."""
    reasoning_key: str = "reasoning_content"
    """Key under which the endpoint returned it."""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    """Name of the model, as the endpoint reports it."""
    spent: Spent = Spent()


class Function(msgspec.Struct, frozen=True):
    """The function of a call, or in a stream a piece of it."""

    name: str | None = None
    arguments: str | Object | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call, or in a stream a piece of one."""

    id: str | None = None
    index: int | None = None
    function: Function | None = None
    extra_content: Any = None


class Message(msgspec.Struct, frozen=True):
    """The message of the model, or in a stream a piece of it."""

    content: Any = None
    """Text, or a list of parts."""
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[ToolCall] | None = None

    @property
    def text(self) -> str:
        """Text of the message, or else of its refusal."""
        return _text_in(self.content) or _text_in(self.refusal)

    @property
    def thought(self) -> str:
        """Reasoning text."""
        return _text_in(self.reasoning_content) or _text_in(self.reasoning)

    @property
    def thought_key(self) -> str:
        """Key of its reasoning."""
        is_short = isinstance(self.reasoning, str) and not _text_in(self.reasoning_content)
        return "reasoning" if is_short else "reasoning_content"


class Choice(msgspec.Struct, frozen=True):
    """A choice, or in a stream a piece of it."""

    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None
    error: Any = None
    """Error that ended the answer early."""


class Completion(msgspec.Struct, frozen=True):
    """A chat completion, or in a stream a piece of one."""

    model: str | None = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    """Error that some endpoints send instead of an answer, with status 200."""

    @property
    def choice(self) -> Choice:
        """The first choice, or an empty one."""
        return self.choices[0] if self.choices else Choice()

    @property
    def fault(self) -> object:
        """Error instead of an answer or of its end, or None."""
        broken_off = "the answer was cut off" if self.choice.finish_reason == _BROKEN_OFF else ""
        return self.error or self.choice.error or broken_off or None


_DECODER: Final = msgspec.json.Decoder(Completion)


def parse_completion(data: bytes) -> Completion:
    """Parse a completion, or a piece of one.

    Raises:
        ModelAnswerError: it is not a completion.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ModelAnswerError(f"the answer is not a chat completion: {error}") from error


def make_answer(completion: Completion) -> Answer:
    """Return the answer in a completion.

    Raises:
        ModelAnswerError: it has no choice, or too many calls.
    """
    choice = completion.choice
    if choice.message is None:
        raise ModelAnswerError("the answer contains no choice with a message")
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
    """Return calls with unique ids: some endpoints give none, or the same id to all.

    Raises:
        ModelAnswerError: there are too many calls.
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


def _text_in(content: object) -> str:
    """Return the text of content, or the joined text of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


# Requests


def system_message(text: str) -> Object:
    """Make the message with the system prompt."""
    return {"role": "system", "content": text}


def user_message(text: str) -> Object:
    """Make a message of the user."""
    return {"role": "user", "content": text}


def assistant_message(answer: Answer, *, with_reasoning: bool) -> Object:
    """Make the message that repeats an answer of the model in the conversation.

    Some endpoints require the reasoning that led to a call, under the key that it came with.
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
    # Endpoints validate the names and arguments of earlier calls too, so a bad one would make
    # every later request fail.
    name = call.name if _NAME.fullmatch(call.name) else "unknown"
    function = {"name": name, "arguments": _sent_arguments(call.arguments)}
    sent: Object = {"id": call.id, "type": "function", "function": function}
    return sent if call.extra_content is None else {**sent, "extra_content": call.extra_content}


def _sent_arguments(text: str) -> str:
    return text if isinstance(parse_object(text), dict) else "{}"


def parse_object(text: str) -> Object | None:
    """Parse a JSON object; None if the text is not one."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def tool_message(call: Call, text: str) -> Object:
    """Make the message with the result of a call."""
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def render_request(request: Object) -> bytes:
    """Render a request's body as ASCII, which also escapes lone surrogates in command output."""
    return json.dumps(request, ensure_ascii=True, allow_nan=False).encode()
