"""An answer that comes in pieces: server-sent events, put together. Nothing here reads a socket.

An event that is no completion is an error, and so is a stream that ends before the model has said
why it stopped: what is there of such an answer may be half a command.
"""

import json
from collections.abc import Iterator
from typing import Final

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
        self._begun: list[bytes] = []

    def add(self, data: bytes) -> Iterator[bytes]:
        """The lines that are whole by now."""
        first, *rest = data.split(b"\n")
        self._begun.append(first)
        for line in rest:
            yield b"".join(self._begun).removesuffix(b"\r")
            self._begun = [line]


class Pieces:
    """The pieces of one answer."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought_key = Message().thought_key
        self._calls: dict[int, _CallPieces] = {}
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
            shown = line[:60].decode(errors="replace")
            raise ModelAnswerError(f"the stream has {shown!r}; expected an event")
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
        choice = piece.choices[0]
        self._finish_reason = choice.finish_reason or self._finish_reason
        said = choice.delta or choice.message or Message()
        self._texts.append(said.text)
        if said.thought:
            self._thoughts.append(said.thought)
            self._thought_key = said.thought_key
        for call in said.tool_calls or ():
            self._add_call(call)

    def _add_call(self, piece: ToolCall) -> None:
        last = max(self._calls, default=-1)
        # Without a number, a piece with an id begins a call and one without goes on with the last.
        begins = piece.id is not None or last < 0
        at = piece.index if piece.index is not None else last + 1 if begins else last
        self._calls.setdefault(at, _CallPieces()).add(piece)

    def finish(self) -> Answer:
        """The answer.

        Raises:
            ModelUnreachableError: the stream ended before it was whole.
        """
        if self._finish_reason is None:
            raise ModelUnreachableError("the stream ended before the answer did")
        return Answer(
            text="".join(self._texts),
            reasoning="".join(self._thoughts) or None,
            reasoning_key=self._thought_key,
            calls=make_calls((one.id, one.function) for _, one in sorted(self._calls.items())),
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

    def add(self, piece: ToolCall) -> None:
        self.id = self.id or piece.id
        function = piece.function or Function()
        self._name = self._name or function.name
        if isinstance(function.arguments, str):
            self._arguments.append(function.arguments)
        elif function.arguments:
            self._arguments.append(json.dumps(function.arguments))

    @property
    def function(self) -> Function:
        return Function(self._name, "".join(self._arguments))
