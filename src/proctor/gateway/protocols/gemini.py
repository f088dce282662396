"""Gemini's generateContent and streamGenerateContent.

Calls and results have no ids, or optional ones: a result belongs to the first open call of its
name. Keys are written in camelCase, and read in snake_case too, as Google's servers do.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.gateway.protocols import bodies
from proctor.gateway.protocols.blocks import (
    bound,
    call_block,
    make_turn,
    mark_media,
    normalise,
    result_block,
    text_block,
    thinking_block,
)
from proctor.gateway.protocols.bodies import Assembled, Notes, Protocol
from proctor.record.cost import Usage
from proctor.traces.entry import Object
from proctor.traces.turn import ToolCall, ToolResult, Turn

PATH: Final = re.compile(r"/(?:models|tunedModels)/([^/:]+):(generate|streamGenerate)Content$")
"""The model in a path, and whether the answer is streamed."""
_ROLES: Final = {"model": "assistant", "function": "tool"}


def read_request(body: Object, path: str, notes: Notes) -> ModelRequest:
    """Read a request; the model, and whether it streams, are in its path."""
    turns: list[Turn] = []
    if system := _read_parts(body.get("systemInstruction", body.get("system_instruction"))):
        turns.append(make_turn("system", system, 1))
    contents = body.get("contents")
    for content in contents if isinstance(contents, list) else [contents]:
        if isinstance(content, dict | str):
            role = bodies.text_in(content, "role") if isinstance(content, dict) else None
            blocks = _read_parts(content)
            turns.append(make_turn(_ROLES.get(role or "", role or "user"), blocks, len(turns) + 1))
        else:
            notes.add("a content is not a JSON object")
    asked = PATH.search(path)
    return ModelRequest(
        model=asked[1] if asked else bodies.text_in(body, "model"),
        is_stream=bool(asked and asked[2] == "streamGenerate"),
        turns=_pair_results(turns),
        tools=tuple(
            bound(tool) for tool in bodies.list_in(body, "tools") if isinstance(tool, dict)
        ),
    )


def _read_parts(content: Any) -> list[Object]:
    """The blocks of a content; neighbouring texts are one, as a stream cuts them anywhere."""
    if not isinstance(content, dict):
        return normalise(content)
    parts = content.get("parts")
    blocks: list[Object] = []
    for part in parts if isinstance(parts, list) else [parts]:
        if not isinstance(part, dict):
            continue
        block = _read_part(part)
        last = blocks[-1] if blocks else {}
        key = next((key for key in ("text", "thinking") if key in block and key in last), None)
        if key is not None and "text" in part:
            blocks[-1] = {**last, key: last[key] + block[key]}
        else:
            blocks.append(block)
    return blocks


def _read_part(part: Object) -> Object:
    if isinstance(text := part.get("text"), str):
        return thinking_block(text) if part.get("thought") is True else text_block(text)
    if called := bodies.object_in(part, "functionCall", "function_call"):
        return call_block(called.get("name"), called.get("args"), called.get("id"))
    if answered := bodies.object_in(part, "functionResponse", "function_response"):
        response = answered.get("response")
        return result_block(_find_output(response), answered.get("id"), answered.get("name"))
    if media := bodies.object_in(part, "inlineData", "inline_data", "fileData", "file_data"):
        kind = (bodies.text_in(media, "mimeType", "mime_type") or "file").partition("/")[0]
        return text_block(mark_media(kind, media))
    ran = bodies.object_in(part, "executableCode", "codeExecutionResult")
    if (text := bodies.text_in(ran, "code", "output")) is not None:
        return text_block(f"```\n{text}\n```")
    return text_block(f"[{', '.join(part)}]"[:200] if part else "")


def _find_output(response: Any) -> Any:
    """The text of a response that has nothing else, as client libraries wrap it."""
    if isinstance(response, dict) and len(response) == 1:
        text = bodies.text_in(response, "result", "output", "content", "error")
        return response if text is None else text
    return response


def _pair_results(turns: list[Turn]) -> tuple[Turn, ...]:
    """Give calls without ids some, and results the ids of the calls that they answer."""
    n_calls = 0
    waiting: list[tuple[str | None, str]] = []
    paired: list[Turn] = []
    for turn in turns:
        calls: list[ToolCall] = []
        for call in turn.calls:
            n_calls += 1
            call_id = call.call_id or f"call_{n_calls}"
            waiting.append((call_id, call.name))
            calls.append(msgspec.structs.replace(call, call_id=call_id))
        results = tuple(_answer(result, waiting) for result in turn.results)
        paired.append(msgspec.structs.replace(turn, calls=tuple(calls), results=results))
    return tuple(paired)


def _answer(result: ToolResult, waiting: list[tuple[str | None, str]]) -> ToolResult:
    for at, (call_id, name) in enumerate(waiting):
        if result.call_id == call_id or (result.call_id is None and result.name == name):
            del waiting[at]
            return msgspec.structs.replace(result, call_id=call_id, name=result.name or name)
    return result


def read_answer(body: Object, notes: Notes) -> ModelAnswer:
    """Read an answer."""
    candidates = [one for one in bodies.list_in(body, "candidates") if isinstance(one, dict)]
    first = min(candidates, key=bodies.index_in, default={})
    content = first.get("content")
    counts = bodies.object_in(body, "usageMetadata")
    blocked = bodies.text_in(bodies.object_in(body, "promptFeedback"), "blockReason")
    has_turn = isinstance(content, dict)
    return ModelAnswer(
        turn=make_turn("assistant", _read_parts(content), 1) if has_turn else None,
        model=bodies.text_in(body, "modelVersion"),
        response_id=bodies.text_in(body, "responseId"),
        finish_reason=bodies.text_in(first, "finishReason") or blocked,
        usage=_read_usage(counts, notes) if counts else None,
        reasoning_tokens=bodies.count_in(counts, "thoughtsTokenCount"),
        n_choices=max(len(candidates), 1),
        error=bodies.find_error(body),
    )


def _read_usage(counts: Object, notes: Notes) -> Usage | None:
    """Convert the counts: output excludes thoughts here, and a count of 0 is left out."""
    total = counts.get("totalTokenCount")
    tools, thoughts = counts.get("toolUsePromptTokenCount"), counts.get("thoughtsTokenCount")
    zero = 0 if type(total) is int else None
    return bodies.make_usage(
        notes,
        lambda: Usage(
            input=_add(counts.get("promptTokenCount", zero), tools),
            output=_add(counts.get("candidatesTokenCount", zero), thoughts),
            cache_read=counts.get("cachedContentTokenCount", zero),
        ),
    )


def _add(count: Any, further: Any) -> Any:
    """The sum of two counts; what is no number stays as it is, to be refused."""
    if type(further) is not int:
        return count if further is None else further
    return count + further if type(count) is int else further if count is None else count


def assemble(events: Iterator[tuple[str, Object]], _notes: Notes) -> Assembled:
    """Assemble the pieces of a stream, each of which has the form of an answer."""
    body: Object = {}
    candidates: dict[int, Object] = {}
    is_complete = False
    for _, piece in events:
        for key in ("modelVersion", "responseId", "promptFeedback", "usageMetadata", "error"):
            if piece.get(key):
                body[key] = piece[key]
        for candidate in bodies.list_in(piece, "candidates"):
            if isinstance(candidate, dict):
                known = candidates.setdefault(bodies.index_in(candidate), {"parts": []})
                known["parts"] += bodies.list_in(bodies.object_in(candidate, "content"), "parts")
                known["reason"] = bodies.text_in(candidate, "finishReason") or known.get("reason")
                is_complete = is_complete or known["reason"] is not None
    if bodies.text_in(bodies.object_in(body, "promptFeedback"), "blockReason"):
        is_complete = True
    body["candidates"] = [_finish(index, one) for index, one in sorted(candidates.items())]
    return Assembled(body, is_complete)


def _finish(index: int, known: Object) -> Object:
    content = {"role": "model", "parts": known["parts"]}
    return {"index": index, "content": content, "finishReason": known["reason"]}


PROTOCOL = Protocol(read_request, read_answer, assemble)
