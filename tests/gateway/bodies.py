"""Bodies of all protocols as the public API references show them, and streams made of events."""

import json
from typing import Any, Final

IMAGE: Final = "iVBORw0KGgo" + "A" * 53
"""48 bytes in base64."""
TOOL_RESULT: Final = "README.md\nsrc\n"
ARGUMENTS: Final = {"command": "ls -a", "timeout": 10}


def encode(body: object) -> bytes:
    """A body as bytes."""
    return json.dumps(body).encode()


def sse(*events: Any, named: bool = False, end: str = "\n") -> bytes:
    """A stream of events; a string stands for itself."""
    lines: list[str] = []
    for event in events:
        if named and isinstance(event, dict):
            lines.append(f"event: {event['type']}{end}")
        data = event if isinstance(event, str) else json.dumps(event)
        lines.append(f"data: {data}{end}{end}")
    return "".join(lines).encode()


CHAT_REQUEST: Final = {
    "model": "gpt-4.1",
    "stream": True,
    "max_completion_tokens": 512,
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
    "messages": [
        {"role": "system", "content": "You are an engineer."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "List the files."},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "bash", "arguments": json.dumps(ARGUMENTS)},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": TOOL_RESULT},
    ],
}
CHAT_USAGE: Final = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 12},
}
CHAT_ANSWER: Final = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1741569952,
    "model": "gpt-4.1-2025-04-14",
    "system_fingerprint": "fp_44709d6fcb",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Two files.",
                "reasoning_content": "Let me look.",
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {
                        "id": "call_b",
                        "type": "function",
                        "function": {"name": "bash", "arguments": json.dumps(ARGUMENTS)},
                    },
                    {
                        "id": "call_c",
                        "type": "function",
                        "function": {"name": "pwd", "arguments": "{}"},
                    },
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": CHAT_USAGE,
    "service_tier": "default",
}


def _chunk(delta: object, reason: str | None = None, **more: Any) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-4.1-2025-04-14"}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    fingerprint = {"system_fingerprint": "fp_44709d6fcb"}
    return {**head, **fingerprint, "choices": [choice], "usage": None, **more}


def _piece(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    name = {"name": first.pop("name")} if "name" in first else {}
    call = {"index": index, **first, "function": {**name, "arguments": arguments}}
    return {"tool_calls": [call]}


CHAT_USAGE_CHUNK: Final = _chunk({}, choices=[], usage=CHAT_USAGE)
CHAT_EVENTS: Final = (
    _chunk({"role": "assistant", "content": "", "refusal": None}),
    _chunk({"reasoning_content": "Let me "}),
    _chunk({"reasoning_content": "look."}),
    _chunk({"content": "Two "}),
    _chunk({"content": "files."}),
    _chunk(_piece(0, "", id="call_b", type="function", name="bash")),
    _chunk(_piece(0, '{"command": "ls')),
    _chunk(_piece(0, ' -a", "timeout": 10}')),
    _chunk(_piece(1, "", id="call_c", type="function", name="pwd")),
    _chunk(_piece(1, "{}")),
    _chunk({}, "tool_calls"),
    CHAT_USAGE_CHUNK,
    "[DONE]",
)
CHAT_STREAM: Final = sse(*CHAT_EVENTS)

RESPONSES_REQUEST: Final = {
    "model": "gpt-5",
    "instructions": "You are an engineer.",
    "stream": True,
    "max_output_tokens": 512,
    "tools": [{"type": "function", "name": "bash", "parameters": {}}],
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "List the files."},
                {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_a",
            "name": "bash",
            "arguments": json.dumps(ARGUMENTS),
        },
        {"type": "function_call_output", "call_id": "call_a", "output": TOOL_RESULT},
    ],
}
RESPONSES_OUTPUT: Final[list[dict[str, Any]]] = [
    {
        "id": "rs_2",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me look."}],
    },
    {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Two files.", "annotations": []}],
    },
    {
        "id": "fc_2",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_b",
        "name": "bash",
        "arguments": json.dumps(ARGUMENTS),
    },
    {
        "id": "fc_3",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_c",
        "name": "pwd",
        "arguments": "{}",
    },
]
RESPONSES_ANSWER: Final = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-5-2025-08-07",
    "output": RESPONSES_OUTPUT,
    "usage": {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 100},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 150,
    },
}
_BEGUN: Final = {**RESPONSES_ANSWER, "status": "in_progress", "output": [], "usage": None}


def _item(index: int, **emptied: Any) -> dict[str, Any]:
    item = {**RESPONSES_OUTPUT[index], **emptied}
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _delta(kind: str, index: int, delta: str) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": delta}


def _done(index: int) -> dict[str, Any]:
    item = RESPONSES_OUTPUT[index]
    return {"type": "response.output_item.done", "output_index": index, "item": item}


RESPONSES_EVENTS: Final = (
    {"type": "response.created", "sequence_number": 0, "response": _BEGUN},
    {"type": "response.in_progress", "sequence_number": 1, "response": _BEGUN},
    _item(0, summary=[]),
    _delta("reasoning_summary_text", 0, "Let me "),
    _delta("reasoning_summary_text", 0, "look."),
    _done(0),
    _item(1, content=[]),
    _delta("output_text", 1, "Two "),
    _delta("output_text", 1, "files."),
    _done(1),
    _item(2, arguments=""),
    _delta("function_call_arguments", 2, '{"command": "ls'),
    _delta("function_call_arguments", 2, ' -a", "timeout": 10}'),
    _done(2),
    _item(3, arguments=""),
    _delta("function_call_arguments", 3, "{}"),
    _done(3),
    {"type": "response.completed", "sequence_number": 17, "response": RESPONSES_ANSWER},
)
RESPONSES_STREAM: Final = sse(*RESPONSES_EVENTS, named=True)

ANTHROPIC_REQUEST: Final = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 512,
    "stream": True,
    "system": [
        {
            "type": "text",
            "text": "You are an engineer.",
            "cache_control": {"type": "ephemeral"},
        }
    ],
    "tools": [{"name": "bash", "input_schema": {}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "List the files."},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": IMAGE},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_a", "name": "bash", "input": ARGUMENTS}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_a",
                    "content": [{"type": "text", "text": TOOL_RESULT}],
                }
            ],
        },
    ],
}
_ANTHROPIC_USAGE: Final = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 8,
    "cache_read_input_tokens": 100,
    "output_tokens": 30,
}
ANTHROPIC_ANSWER: Final = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [
        {"type": "thinking", "thinking": "Let me look.", "signature": "EqQB"},
        {"type": "text", "text": "Two files."},
        {"type": "tool_use", "id": "call_b", "name": "bash", "input": ARGUMENTS},
        {"type": "tool_use", "id": "call_c", "name": "pwd", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": _ANTHROPIC_USAGE,
}
_STARTED: Final = {
    **ANTHROPIC_ANSWER,
    "content": [],
    "stop_reason": None,
    "usage": {**_ANTHROPIC_USAGE, "output_tokens": 1},
}


def _start(index: int, block: object) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _part(index: int, kind: str, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def _stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


ANTHROPIC_EVENTS: Final = (
    {"type": "message_start", "message": _STARTED},
    _start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    {"type": "ping"},
    _part(0, "thinking_delta", thinking="Let me "),
    _part(0, "thinking_delta", thinking="look."),
    _part(0, "signature_delta", signature="EqQB"),
    _stop(0),
    _start(1, {"type": "text", "text": ""}),
    _part(1, "text_delta", text="Two "),
    _part(1, "text_delta", text="files."),
    _stop(1),
    _start(2, {"type": "tool_use", "id": "call_b", "name": "bash", "input": {}}),
    _part(2, "input_json_delta", partial_json=""),
    _part(2, "input_json_delta", partial_json='{"command": "ls'),
    _part(2, "input_json_delta", partial_json=' -a", "timeout": 10}'),
    _stop(2),
    _start(3, {"type": "tool_use", "id": "call_c", "name": "pwd", "input": {}}),
    _stop(3),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 30},
    },
    {"type": "message_stop"},
)
ANTHROPIC_STREAM: Final = sse(*ANTHROPIC_EVENTS, named=True)

GEMINI_PATH: Final = "/v1beta/models/gemini-2.5-pro:streamGenerateContent"
GEMINI_REQUEST: Final = {
    "systemInstruction": {"parts": [{"text": "You are an engineer."}]},
    "generationConfig": {"maxOutputTokens": 512},
    "tools": [{"functionDeclarations": [{"name": "bash"}]}],
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "List the files."},
                {"inlineData": {"mimeType": "image/png", "data": IMAGE}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": ARGUMENTS}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "bash", "response": {"result": TOOL_RESULT}}}],
        },
    ],
}
_GEMINI_USAGE: Final = {
    "promptTokenCount": 120,
    "cachedContentTokenCount": 100,
    "candidatesTokenCount": 18,
    "thoughtsTokenCount": 12,
    "totalTokenCount": 150,
}
_CALLS: Final = (
    {"functionCall": {"name": "bash", "args": ARGUMENTS}, "thoughtSignature": "CpQB"},
    {"functionCall": {"name": "pwd", "args": {}}},
)


def _candidate(*parts: Any, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
    ids = {"modelVersion": "gemini-2.5-pro", "responseId": "resp-1"}
    return {"candidates": [candidate], "usageMetadata": _GEMINI_USAGE, **ids}


GEMINI_ANSWER: Final = _candidate(
    {"text": "Let me look.", "thought": True},
    {"text": "Two files."},
    *_CALLS,
    finishReason="STOP",
)
GEMINI_EVENTS: Final = (
    _candidate({"text": "Let me ", "thought": True}),
    _candidate({"text": "look.", "thought": True}),
    _candidate({"text": "Two "}),
    _candidate({"text": "files."}),
    _candidate(*_CALLS, finishReason="STOP"),
)
GEMINI_STREAM: Final = sse(*GEMINI_EVENTS, end="\r\n")
GEMINI_ARRAY: Final = json.dumps(list(GEMINI_EVENTS), indent=2).encode()
