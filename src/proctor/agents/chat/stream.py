"""An answer that comes in pieces: server-sent events, put together. Nothing here reads a socket.

An event that is no completion is an error, and so is a stream that ends before the model has said
why it stopped: what is there of such an answer may be half a command.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from proctor.agents.chat.wire import (
    Answer,
    Completion,
    Function,
    Message,
    ToolCall,
    make_calls,
    parse_completion,
    parse_spent,
)
from proctor.errors import ModelAnswerError, ModelUnreachableError

DONE: Final = b"[DONE]"
_DATA: Final = b"data:"
_FIELDS: Final = (_DATA, b"event:", b"id:", b"retry:", b":")


class Lines:
    """Bytes as they come, to lines."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """The lines that are whole by now."""
        first, *rest = data.split(b"\n")
        self._begun += first
        for line in rest:
            yield bytes(self._begun).removesuffix(b"\r")
            self._begun = bytearray(line)


class Pieces:
    """The pieces of one answer."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought_key = Message().thought_key
        self._calls: list[_CallPieces] = []
        self._places: dict[int, _CallPieces] = {}
        """The call that each number stands for."""
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._usage: object = None
        self.is_done = False
        """Whether the endpoint has said that nothing more comes."""

    def add_line(self, line: bytes) -> Completion | None:
        """Take one line of the stream; gives the piece of the answer that was in it.

        Raises:
            ModelAnswerError: it is no line of such a stream, or no piece of an answer.
        """
        if not line.strip():
            return None
        if not line.startswith(_FIELDS):
            shown = line.decode(errors="replace")
            raise ModelAnswerError(f"the stream has no event, but {shown!r}")
        data = line.removeprefix(_DATA).strip()
        if not line.startswith(_DATA) or not data:
            return None
        if data == DONE:
            self.is_done = True
            return None
        piece = parse_completion(data)
        self._add(piece)
        return piece

    def _add(self, piece: Completion) -> None:
        self._model = piece.model or self._model
        self._usage = piece.usage or self._usage
        if not piece.choices:
            return
        choice = piece.choice
        self._finish_reason = choice.finish_reason or self._finish_reason
        said = choice.delta or choice.message or Message()
        self._texts.append(said.text)
        if said.thought:
            self._thoughts.append(said.thought)
            self._thought_key = said.thought_key
        for call in said.tool_calls or ():
            self._add_call(call)

    def _add_call(self, piece: ToolCall) -> None:
        call = self._find_begun(piece)
        if call is None:
            call = _CallPieces()
            self._calls.append(call)
        if piece.index is not None:
            self._places[piece.index] = call
        call.add(piece)

    def _find_begun(self, piece: ToolCall) -> "_CallPieces | None":
        """The call that a piece goes on with; None where it begins one."""
        if piece.index is None:
            # A piece with an id begins a call, one without goes on with the last.
            return self._calls[-1] if self._calls and piece.id is None else None
        call = self._places.get(piece.index)
        # Some endpoints number all calls 0; and some give each piece of a call another id.
        is_named = piece.function is not None and bool(piece.function.name)
        is_other = call is not None and bool(call.id and piece.id) and call.id != piece.id
        return None if is_other and is_named else call

    def finish(self) -> Answer:
        """The answer.

        Raises:
            ModelUnreachableError: the stream ended before it was whole.
            ModelAnswerError: it has more calls than are run.
        """
        if self._finish_reason is None:
            raise ModelUnreachableError("the stream ended before the answer did")
        return Answer(
            text="".join(self._texts),
            reasoning="".join(self._thoughts) or None,
            reasoning_key=self._thought_key,
            calls=make_calls([one.whole for one in self._calls]),
            finish_reason=self._finish_reason,
            model=self._model,
            spent=parse_spent(self._usage),
        )


class _CallPieces:
    """The pieces of one call."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._name: str | None = None
        self._arguments: list[str] = []
        self._extra_content: Any = None

    def add(self, piece: ToolCall) -> None:
        self.id = self.id or piece.id
        function = piece.function or Function()
        self._name = self._name or function.name
        self._extra_content = self._extra_content or piece.extra_content
        if isinstance(function.arguments, str):
            self._arguments.append(function.arguments)
        elif function.arguments:
            self._arguments.append(json.dumps(function.arguments))

    @property
    def whole(self) -> ToolCall:
        function = Function(self._name, "".join(self._arguments))
        return ToolCall(self.id, function=function, extra_content=self._extra_content)
