"""Requests and answers of all protocols are read the same way, streamed or not."""

import json
from typing import Any

import pytest

from proctor.gateway.exchange import ModelAnswer, ModelRequest, Wire
from proctor.gateway.wire import (
    ask_for_usage,
    digest_answer,
    find_wire,
    is_usage_chunk,
    read_answer,
    read_request,
)
from proctor.record.cost import Usage
from proctor.traces.turn import ToolCall, ToolResult, Turn
from tests.gateway import bodies
from tests.gateway.bodies import encode, sse

REQUESTS: dict[Wire, tuple[str, Any]] = {
    Wire.OPENAI_CHAT: ("/v1/chat/completions", bodies.CHAT_REQUEST),
    Wire.OPENAI_RESPONSES: ("/v1/responses", bodies.RESPONSES_REQUEST),
    Wire.ANTHROPIC: ("/v1/messages", bodies.ANTHROPIC_REQUEST),
    Wire.GEMINI: (bodies.GEMINI_PATH, bodies.GEMINI_REQUEST),
}
ANSWERS: dict[Wire, Any] = {
    Wire.OPENAI_CHAT: bodies.CHAT_ANSWER,
    Wire.OPENAI_RESPONSES: bodies.RESPONSES_ANSWER,
    Wire.ANTHROPIC: bodies.ANTHROPIC_ANSWER,
    Wire.GEMINI: bodies.GEMINI_ANSWER,
}
STREAMS: list[tuple[Wire, bytes]] = [
    (Wire.OPENAI_CHAT, bodies.CHAT_STREAM),
    (Wire.OPENAI_RESPONSES, bodies.RESPONSES_STREAM),
    (Wire.ANTHROPIC, bodies.ANTHROPIC_STREAM),
    (Wire.GEMINI, bodies.GEMINI_STREAM),
    (Wire.GEMINI, bodies.GEMINI_ARRAY),
]

NAMES = ["chat", "responses", "anthropic", "gemini", "gemini-array"]


@pytest.mark.parametrize(
    ("path", "wire"),
    [
        ("/v1/chat/completions", Wire.OPENAI_CHAT),
        ("/chat/completions/", Wire.OPENAI_CHAT),
        ("/openai/deployments/gpt/chat/completions?api-version=1", Wire.OPENAI_CHAT),
        ("/v1/responses", Wire.OPENAI_RESPONSES),
        ("/v1/messages?beta=true", Wire.ANTHROPIC),
        ("/v1beta/models/gemini-2.5-pro:generateContent", Wire.GEMINI),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", Wire.GEMINI),
        ("/v1beta/models/gemini-2.5-pro%3AgenerateContent", Wire.GEMINI),
        ("/v1beta/models/gemini-2.5-pro:countTokens", None),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/v1/threads/thread_1/messages", None),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1/models", None),
        ("/v1/embeddings", None),
        ("", None),
    ],
)
def test_the_path_tells_the_protocol(path: str, wire: Wire | None) -> None:
    assert find_wire("POST", path) == wire
    assert find_wire("GET", path) is None


def _request(wire: Wire, body: Any = None, path: str | None = None) -> ModelRequest:
    known_path, known = REQUESTS[wire]
    return read_request(wire, path or known_path, encode(known if body is None else body))


@pytest.mark.parametrize("wire", Wire)
def test_a_request_is_its_conversation(wire: Wire) -> None:
    request = _request(wire)
    system, user, called, answered = request.turns
    assert request.problem is None
    assert request.is_stream
    assert len(request.tools) == 1
    assert (system.role, system.text) == ("system", "You are an engineer.")
    assert (user.role, user.text) == ("user", "List the files.\n[image: image/png, 48 bytes]")
    assert called.role == "assistant"
    assert [call.arguments for call in called.calls] == [bodies.ARGUMENTS]
    result = answered.results[0]
    assert (result.text, result.name) == (bodies.TOOL_RESULT, "bash")
    assert result.call_id == called.calls[0].call_id is not None
    assert [turn.line for turn in request.turns] == [1, 2, 3, 4]
    assert bodies.IMAGE not in repr(request)


@pytest.mark.parametrize(
    ("wire", "model"),
    [
        (Wire.OPENAI_CHAT, "gpt-4.1"),
        (Wire.OPENAI_RESPONSES, "gpt-5"),
        (Wire.ANTHROPIC, "claude-sonnet-4-5"),
        (Wire.GEMINI, "gemini-2.5-pro"),
    ],
)
def test_a_request_names_its_model(wire: Wire, model: str) -> None:
    assert _request(wire).model == model


def test_azure_names_the_model_in_the_path() -> None:
    path = "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
    assert _request(Wire.OPENAI_CHAT, {"messages": []}, path).model == "my-gpt"


def test_a_responses_request_may_have_a_text_and_an_earlier_answer() -> None:
    request = _request(Wire.OPENAI_RESPONSES, {"input": "Go on.", "previous_response_id": "resp_0"})
    assert request.previous_id == "resp_0"
    assert [(turn.role, turn.text) for turn in request.turns] == [("user", "Go on.")]


def test_items_of_one_answer_are_one_turn() -> None:
    items = [{"role": "user", "content": "Go."}, *bodies.RESPONSES_OUTPUT]
    turn = _request(Wire.OPENAI_RESPONSES, {"input": items}).turns[-1]
    answer = _answer(Wire.OPENAI_RESPONSES, bodies.RESPONSES_ANSWER).turn
    assert answer is not None
    assert digest_answer(turn) == digest_answer(answer)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "done"}, "done"),
        (
            {
                "type": "computer_call_output",
                "call_id": "c",
                "output": {
                    "type": "computer_screenshot",
                    "image_url": f"data:image/png;base64,{bodies.IMAGE}",
                },
            },
            "[image: image/png, 48 bytes]",
        ),
        (
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "a"}, {"type": "input_file"}],
            },
            "a\n[file]",
        ),
    ],
)
def test_outputs_of_all_kinds_are_results(item: object, text: str) -> None:
    turn = _request(Wire.OPENAI_RESPONSES, {"input": [item]}).turns[0]
    assert turn.results == (ToolResult(text=text, call_id="c"),)


def test_gemini_results_belong_to_the_first_open_call_of_their_name() -> None:
    calls: list[object] = [{"functionCall": {"name": name, "args": {}}} for name in ("a", "b", "a")]
    results = [
        {"functionResponse": {"name": name, "response": {"n": at, "of": 3}}}
        for at, name in enumerate(("b", "a", "a"))
    ]
    contents = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    called, answered = _request(Wire.GEMINI, {"contents": contents}).turns
    ids = [call.call_id for call in called.calls]
    assert [result.call_id for result in answered.results] == [ids[1], ids[0], ids[2]]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
            "[image: https://x/y]",
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
            },
            "[document: application/pdf, 3 bytes]",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "QUI=", "format": "wav"}},
            "[audio: wav, 2 bytes]",
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[file: file-1]"),
        ({"type": "search_result", "title": "A page"}, "[search_result: A page]"),
        ({"type": "novelty"}, "[novelty]"),
        ({"text": "no type"}, "no type"),
    ],
)
def test_media_are_short_markers(block: object, text: str) -> None:
    for wire in (Wire.ANTHROPIC, Wire.OPENAI_CHAT):
        body = {"messages": [{"role": "user", "content": [block]}]}
        assert _request(wire, body).turns[0].text == text


def _answer(wire: Wire, body: object, *, is_stream: bool = False) -> ModelAnswer:
    return read_answer(wire, body if isinstance(body, bytes) else encode(body), is_stream=is_stream)


def _check_answer(wire: Wire, answer: ModelAnswer) -> None:
    assert answer.problem is None
    assert answer.error is None
    assert answer.is_complete
    assert answer.turn is not None
    assert answer.turn.role == "assistant"
    assert answer.turn.text == "Two files."
    assert answer.turn.thinking == "Let me look."
    first, second = answer.turn.calls
    assert (first.name, first.arguments, first.unparsed) == ("bash", bodies.ARGUMENTS, None)
    assert (second.name, second.arguments, second.unparsed) == ("pwd", {}, None)
    if wire is not Wire.GEMINI:
        assert (first.call_id, second.call_id) == ("call_b", "call_c")
    written = 8 if wire is Wire.ANTHROPIC else None
    assert answer.usage == Usage(input=120, output=30, cache_read=100, cache_write=written)
    assert answer.reasoning_tokens == (None if wire is Wire.ANTHROPIC else 12)


@pytest.mark.parametrize("wire", Wire)
def test_an_answer_is_read(wire: Wire) -> None:
    _check_answer(wire, _answer(wire, ANSWERS[wire]))


@pytest.mark.parametrize(("wire", "stream"), STREAMS, ids=NAMES)
def test_a_streamed_answer_is_the_same(wire: Wire, stream: bytes) -> None:
    streamed = _answer(wire, stream, is_stream=True)
    _check_answer(wire, streamed)
    assert streamed == _answer(wire, ANSWERS[wire])


@pytest.mark.parametrize(
    ("wire", "facts"),
    [
        (
            Wire.OPENAI_CHAT,
            ("gpt-4.1-2025-04-14", "chatcmpl-1", "fp_44709d6fcb", "tool_calls"),
        ),
        (Wire.OPENAI_RESPONSES, ("gpt-5-2025-08-07", "resp_1", None, "completed")),
        (Wire.ANTHROPIC, ("claude-sonnet-4-5-20250929", "msg_1", None, "tool_use")),
        (Wire.GEMINI, ("gemini-2.5-pro", "resp-1", None, "STOP")),
    ],
)
def test_an_answer_names_its_model_and_id(wire: Wire, facts: tuple[str | None, ...]) -> None:
    answer = _answer(wire, ANSWERS[wire])
    found = (answer.model, answer.response_id, answer.fingerprint, answer.finish_reason)
    assert found == facts


@pytest.mark.parametrize(("wire", "stream"), STREAMS, ids=NAMES)
def test_the_form_of_a_stream_does_not_matter(wire: Wire, stream: bytes) -> None:
    expected = _answer(wire, stream, is_stream=True)
    variants = [stream.replace(b"\r\n", b"\n"), b"\xef\xbb\xbf" + stream, stream.rstrip()]
    if stream is not bodies.GEMINI_ARRAY:
        variants += [
            stream.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
            stream.replace(b"\r\n", b"\n").replace(b"\n", b"\r"),
            b": keep-alive\n\nretry: 100\nid: 7\n\n" + stream,
            # A JSON value over several lines of data.
            stream.replace(b'", "', b'",\ndata: "'),
        ]
    for variant in variants:
        assert _answer(wire, variant, is_stream=True) == expected


@pytest.mark.parametrize(("wire", "stream"), STREAMS, ids=NAMES)
def test_a_cut_stream_never_claims_to_be_complete(wire: Wire, stream: bytes) -> None:
    whole = len(stream.rstrip())
    for cut in range(whole):
        answer = _answer(wire, stream[:cut], is_stream=True)
        assert not answer.is_complete, stream[:cut][-40:]
        assert answer.error is None
        if answer.turn is not None and answer.turn.text:
            assert "Two files.".startswith(answer.turn.text)


@pytest.mark.parametrize("wire", Wire)
def test_a_cut_body_is_not_complete(wire: Wire) -> None:
    body = encode(ANSWERS[wire])
    for cut in range(0, len(body), 7):
        answer = _answer(wire, body[:cut])
        assert not answer.is_complete
        assert answer.problem


def test_cut_arguments_are_kept_as_they_came() -> None:
    cut = bodies.ANTHROPIC_EVENTS[:14]
    answer = _answer(Wire.ANTHROPIC, sse(*cut, named=True), is_stream=True)
    assert answer.turn is not None
    assert answer.turn.calls == (
        ToolCall(name="bash", arguments={}, unparsed='{"command": "ls', call_id="call_b"),
    )


ERRORS: list[tuple[Wire, bytes, bool]] = [
    (Wire.OPENAI_CHAT, encode({"error": {"message": "Too fast.", "type": "x"}}), False),
    (Wire.OPENAI_CHAT, sse({"error": {"message": "Too fast."}}), True),
    (Wire.OPENAI_CHAT, encode({"object": "error", "message": "Too fast."}), True),
    (Wire.OPENAI_RESPONSES, sse({"type": "error", "message": "Too fast."}, named=True), True),
    (
        Wire.OPENAI_RESPONSES,
        sse({"type": "response.failed", "response": {"error": {"message": "Too fast."}}}),
        True,
    ),
    (
        Wire.ANTHROPIC,
        encode({"type": "error", "error": {"type": "overloaded_error", "message": "Too fast."}}),
        False,
    ),
    (
        Wire.ANTHROPIC,
        sse(
            bodies.ANTHROPIC_EVENTS[0],
            {"type": "error", "error": {"type": "overloaded_error", "message": "Too fast."}},
            named=True,
        ),
        True,
    ),
    (Wire.GEMINI, encode({"error": {"code": 429, "message": "Too fast."}}), False),
    (Wire.GEMINI, encode([{"error": {"code": 429, "message": "Too fast."}}]), True),
    (Wire.GEMINI, sse({"error": {"code": 429, "message": "Too fast."}}), True),
]


@pytest.mark.parametrize(("wire", "body", "is_stream"), ERRORS, ids=range(len(ERRORS)))
def test_an_error_is_its_message(wire: Wire, body: bytes, is_stream: bool) -> None:
    assert _answer(wire, body, is_stream=is_stream).error == "Too fast."


UNREADABLE: list[tuple[bytes, str | None]] = [
    (b"", "the answer"),
    (b"<html>502 Bad Gateway</html>", "the answer"),
    (b"[]", None),
    (b"3", "expected a JSON object"),
    (b"{" * 5000, "the answer"),
    (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "the answer"),
    (b'{"a":[' + b"1," * 1_100_000 + b"1]}", "more than 1,000,000 JSON values"),
    (b'{"id": "\xff"}', "expected UTF-8"),
]


@pytest.mark.parametrize(("body", "problem"), UNREADABLE, ids=range(len(UNREADABLE)))
@pytest.mark.parametrize("wire", Wire)
def test_what_is_not_understood_is_said(wire: Wire, body: bytes, problem: str | None) -> None:
    answer = _answer(wire, body)
    assert answer.turn is None
    assert (problem is None) == (answer.problem is None)
    assert (problem or "") in (answer.problem or "")
    assert read_request(wire, "/x", body).turns == ()


def test_half_characters_are_replaced() -> None:
    body = b'{"choices": [{"message": {"content": "a\\ud800b"}}]}'
    answer = _answer(Wire.OPENAI_CHAT, body)
    assert answer.turn is not None
    assert answer.turn.text == "a�b"
    assert "half a surrogate pair" in (answer.problem or "")


def test_impossible_usage_is_refused() -> None:
    for wire, key in ((Wire.OPENAI_CHAT, "prompt_tokens"), (Wire.ANTHROPIC, "input_tokens")):
        answer = _answer(wire, {"usage": {key: -1}})
        assert answer.usage is None
        assert "expected a whole number" in (answer.problem or "")


def test_gemini_leaves_out_counts_of_0() -> None:
    counts = {"promptTokenCount": 7, "toolUsePromptTokenCount": 3, "totalTokenCount": 10}
    answer = _answer(Wire.GEMINI, {"usageMetadata": counts})
    assert answer.usage == Usage(input=10, output=0, cache_read=0)


def test_a_blocked_gemini_prompt_is_a_finish_reason() -> None:
    stream = sse({"promptFeedback": {"blockReason": "SAFETY"}})
    answer = _answer(Wire.GEMINI, stream, is_stream=True)
    assert (answer.finish_reason, answer.is_complete, answer.turn) == ("SAFETY", True, None)


def test_the_provider_may_report_its_own_amount_and_cache_writes() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
        "cost": 0.25,
    }
    answer = _answer(Wire.OPENAI_CHAT, {"usage": usage})
    assert answer.usage == Usage(input=10, output=1, cache_read=2, cache_write=3)


def test_the_first_of_many_choices_is_the_answer() -> None:
    choices = [{"index": at, "message": {"content": str(at)}} for at in (2, 0, 1)]
    answer = _answer(Wire.OPENAI_CHAT, {"choices": choices})
    assert answer.n_choices == 3
    assert answer.turn == Turn(line=1, role="assistant", text="0")
    pieces = [{"choices": [{"index": at, "delta": {"content": str(at)}}]} for at in (1, 0, 1)]
    streamed = _answer(Wire.OPENAI_CHAT, sse(*pieces, "[DONE]"), is_stream=True)
    assert (streamed.turn, streamed.n_choices) == (answer.turn, 2)


@pytest.mark.parametrize(
    "pieces",
    [
        # Calls that come whole, without an index or all with the same.
        [
            {"id": "a", "function": {"name": "x", "arguments": "{}"}},
            {"id": "b", "function": {"name": "y", "arguments": "{}"}},
        ],
        [
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}},
            {"index": 0, "id": "b", "function": {"name": "y", "arguments": {}}},
        ],
        # An id that is repeated with each piece.
        [
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{"}},
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": "}"}},
            {"index": 1, "id": "b", "function": {"name": "y"}},
        ],
    ],
)
def test_calls_of_compatible_endpoints_are_told_apart(pieces: list[object]) -> None:
    chunks = [{"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in pieces]
    answer = _answer(Wire.OPENAI_CHAT, sse(*chunks, "[DONE]"), is_stream=True)
    assert answer.turn is not None
    assert answer.turn.calls == (
        ToolCall(name="x", arguments={}, call_id="a"),
        ToolCall(name="y", arguments={}, call_id="b"),
    )


def test_a_responses_stream_without_items_in_its_last_event_is_assembled() -> None:
    last = {"type": "response.completed", "response": {"id": "resp_1", "output": []}}
    events = (*bodies.RESPONSES_EVENTS[:-1], last)
    answer = _answer(Wire.OPENAI_RESPONSES, sse(*events), is_stream=True)
    assert answer.is_complete
    assert answer.turn == _answer(Wire.OPENAI_RESPONSES, bodies.RESPONSES_ANSWER).turn


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({"stream": True}, {"include_usage": True}),
        ({"stream": True, "stream_options": None}, {"include_usage": True}),
        (
            {"stream": True, "stream_options": {"include_usage": False, "x": 1}},
            {"include_usage": True, "x": 1},
        ),
        ({"stream": True, "stream_options": {"include_usage": True}}, None),
        ({"stream": True, "stream_options": "x"}, None),
        ({"stream": False}, None),
        ({}, None),
        ([], None),
    ],
)
def test_a_chat_stream_is_asked_for_its_usage(body: Any, options: object) -> None:
    given = encode(body)
    edited = ask_for_usage(Wire.OPENAI_CHAT, given)
    if options is None:
        assert edited is None
    else:
        assert edited is not None
        assert json.loads(edited) == {**body, "stream_options": options}
    assert ask_for_usage(Wire.ANTHROPIC, given) is None


def test_the_rest_of_an_edited_request_keeps_its_bytes() -> None:
    values = b'"seed": 12345678901234567890123,"temperature":1.0e0, "stop": "\\u00e9\\n"'
    edited = ask_for_usage(Wire.OPENAI_CHAT, b'{"stream":true,' + values + b"}")
    assert edited is not None
    for value in (b"12345678901234567890123", b"1.0e0", b'"\\u00e9\\n"'):
        assert value in edited
    assert ask_for_usage(Wire.OPENAI_CHAT, b"\xff{}") is None


def test_only_the_event_that_was_asked_for_is_a_usage_chunk() -> None:
    chunk = bodies.CHAT_USAGE_CHUNK
    assert is_usage_chunk(encode(chunk))
    assert is_usage_chunk(sse(chunk))
    assert is_usage_chunk(sse(chunk, end="\r\n"))
    others = [event for event in bodies.CHAT_EVENTS if event is not chunk]
    assert not any(is_usage_chunk(sse(event)) for event in others)
    azure: object = {"choices": [], "prompt_filter_results": [], "usage": None}
    events: list[object] = [azure, {**chunk, "error": {}}, {"usage": {}}, [], "x"]
    for event in events:
        assert not is_usage_chunk(sse(event))


def test_a_digest_ignores_whitespace_ids_and_the_order_of_keys() -> None:
    call = ToolCall(name="bash", arguments={"a": 1, "b": "x y"}, call_id="1")
    same = ToolCall(name="bash", arguments={"b": "x  y", "a": 1}, call_id="2")
    one = Turn(line=1, role="assistant", text="Two files.\n", calls=(call,), thinking="hm")
    other = Turn(line=9, role="assistant", text="Two  files.", calls=(same,))
    assert digest_answer(one) == digest_answer(other)
    changed = Turn(line=1, role="assistant", text="Three files.", calls=(call,))
    assert digest_answer(one) != digest_answer(changed)
