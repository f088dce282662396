"""Answers of chat completions endpoints, whole or streamed: a whole one is a single piece.

Endpoints differ, so they are read leniently: content is text or a list of parts, reasoning has one
of two names, a call may lack its id, or carry data that must be sent back with it.
"""

import json
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import msgspec

from proctor.errors import ModelAnswerError
from proctor.record.cost import Spent, parse_spent

type Object = dict[str, Any]
"""A JSON object of a request or an answer."""

# Calls in one answer. A model that makes more is repeating itself.
_MOST_CALLS: Final = 1000


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


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | Object | None = None


class _ToolCall(msgspec.Struct, frozen=True):
    id: str | None = None
    index: int | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Message(msgspec.Struct, frozen=True):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    error: Any = None


class _Completion(msgspec.Struct, frozen=True):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    """Error that some endpoints send instead of an answer, with status 200."""


_DECODE: Final = msgspec.json.Decoder(_Completion).decode


@dataclass(slots=True)
class _CallPieces:
    id: str | None = None
    name: str = ""
    arguments: str = ""
    extra_content: Any = None


class Assembly:
    """Assembles one answer from its pieces."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought_key = "reasoning_content"
        self._calls: list[_CallPieces] = []
        # The call of each index.
        self._places: dict[int, _CallPieces] = {}
        self._model: str | None = None
        self._usage: object = None

    def add(self, data: bytes, *, is_whole: bool) -> object:
        """Add a piece, or a whole answer; return the error in it, if any.

        Raises:
            ModelAnswerError: it is not a completion.
        """
        try:
            piece = _DECODE(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ModelAnswerError(f"the answer is not a chat completion: {error}") from error
        choice = piece.choices[0] if piece.choices else _Choice()
        broken_off = "the answer was cut off" if choice.finish_reason == "error" else None
        if fault := piece.error or choice.error or broken_off:
            return fault
        if is_whole and choice.message is None:
            raise ModelAnswerError("the answer contains no choice with a message")
        self._model = piece.model or self._model
        self._usage = piece.usage or self._usage
        self.finish_reason = choice.finish_reason or self.finish_reason
        said = choice.delta or choice.message or _Message()
        self._texts.append(_text_in(said.content) or _text_in(said.refusal))
        for key in ("reasoning_content", "reasoning"):
            if thought := _text_in(getattr(said, key)):
                self._thoughts.append(thought)
                self._thought_key = key
                break
        for call in said.tool_calls or ():
            self._add_call(call, None if is_whole else self._find_begun(call))
        return None

    def _add_call(self, piece: _ToolCall, call: _CallPieces | None) -> None:
        if call is None:
            call = _CallPieces()
            self._calls.append(call)
        if piece.index is not None:
            self._places[piece.index] = call
        function = piece.function or _Function()
        call.id = call.id or piece.id
        call.name = call.name or function.name or ""
        call.extra_content = call.extra_content or piece.extra_content
        if text := function.arguments:
            call.arguments += text if isinstance(text, str) else json.dumps(text)

    def _find_begun(self, piece: _ToolCall) -> _CallPieces | None:
        """Return the call that a piece continues, or None if it begins one."""
        if piece.index is None:
            # Without an index, a piece with an id begins a call, and others continue the last one.
            return self._calls[-1] if self._calls and piece.id is None else None
        call = self._places.get(piece.index)
        # Some endpoints give all calls the index 0; others give each piece of a call a new id.
        # Only a piece with both a new id and a name begins a new call.
        is_named = piece.function is not None and bool(piece.function.name)
        is_other = call is not None and bool(call.id and piece.id) and call.id != piece.id
        return None if is_other and is_named else call

    def finish(self) -> Answer:
        """Return the answer; its calls have unique ids, though some endpoints give none.

        Raises:
            ModelAnswerError: it has too many calls.
        """
        if (n_calls := len(self._calls)) > _MOST_CALLS:
            raise ModelAnswerError(
                f"the answer has {n_calls:,} calls; expected {_MOST_CALLS:,} at most"
            )
        given = {one.id for one in self._calls}
        free = (name for number in count(1) if (name := f"call_{number}") not in given)
        calls: dict[str, Call] = {}
        for one in self._calls:
            name = one.id if one.id and one.id not in calls else next(free)
            calls[name] = Call(name, one.name, one.arguments or "{}", one.extra_content)
        return Answer(
            text="".join(self._texts),
            reasoning="".join(self._thoughts) or None,
            reasoning_key=self._thought_key,
            calls=tuple(calls.values()),
            finish_reason=self.finish_reason,
            model=self._model,
            spent=parse_spent(self._usage),
        )


def _text_in(content: object) -> str:
    """Return the text of content, or the joined text of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))
