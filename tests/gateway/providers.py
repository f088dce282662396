"""A model provider for tests: a real HTTP server that speaks all four protocols from a script.

It answers each request with the next reply of its script, and keeps its own log of what it was
asked and what it counted, against which a gateway's record is compared.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COUNT_TOKENS = "/messages/count_tokens"
KEY = "sk-real-key-of-the-host-0123456789"


@dataclass(frozen=True)
class Reply:
    """What the provider answers once."""

    text: str = ""
    command: str | None = None
    """A call of a tool with this command."""
    tool: str = "bash"
    input_tokens: int = 100
    output_tokens: int = 20
    cached_tokens: int = 0
    status: int = 200
    error: str = "overloaded"
    headers: tuple[tuple[str, str], ...] = ()
    wait_sec: float = 0.0
    cut_after: int | None = None
    """Bytes after which the connection is closed."""
    raw: bytes | None = None
    """A body instead of one made from the fields."""


@dataclass
class Asked:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    reply: Reply


@dataclass
class Provider:
    """A running provider."""

    script: Sequence[Reply] = ()
    side: Reply | None = None
    """What requests without tools get, outside of the script: titles and summaries."""
    model: str = "gpt-4o-2024-08-06"
    """The model that answers."""
    asked: list[Asked] = field(default_factory=list)
    scheme: str = "http"
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    _n_taken: int = 0

    @property
    def origin(self) -> str:
        """Its address."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def answered(self) -> list[Reply]:
        """The replies of successful requests."""
        known = [each for each in self.asked if COUNT_TOKENS not in each.path]
        return [each.reply for each in known if each.reply.status == 200]

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        """Return the next reply; the last one is repeated."""
        with self.lock:
            if COUNT_TOKENS in path:
                reply = Reply(raw=b'{"input_tokens": 100}')
            elif self.side is not None and not body.get("tools"):
                reply = self.side
            else:
                place = min(self._n_taken, len(self.script) - 1)
                reply = self.script[place] if self.script else Reply(text="done")
                self._n_taken += 1
            self.asked.append(Asked(path, headers, body, reply))
            return reply


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    provider: Provider


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        provider = self.server.provider
        provider.take(self.path, dict(self.headers), {})
        models = {"object": "list", "data": [{"id": provider.model, "object": "model"}]}
        self._send("application/json", json.dumps(models).encode(), Reply())

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            body = {"undecodable": data.decode("latin-1")}
        headers = {name.lower(): value for name, value in self.headers.items()}
        provider = self.server.provider
        reply = provider.take(self.path, headers, body)
        time.sleep(reply.wait_sec)
        kind, made = render(self.path, body, reply, provider.model)
        self._send(kind, made, reply)

    def _send(self, kind: str, data: bytes, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        if reply.cut_after is not None:
            data = data[: reply.cut_after]
            self.close_connection = True
        # In small pieces, as models answer; the client may be gone.
        with suppress(ConnectionError):
            for start in range(0, len(data), 64):
                self.wfile.write(data[start : start + 64])
                self.wfile.flush()


@contextmanager
def running(provider: Provider) -> Iterator[Provider]:
    """Run a provider on a port of the loopback address."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.provider = provider
    provider.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def render(path: str, body: dict[str, Any], reply: Reply, model: str) -> tuple[str, bytes]:
    """Return the content type and the body of an answer, in the protocol of the path."""
    path = path.partition("?")[0]
    if reply.raw is not None:
        return "application/json", reply.raw
    if reply.status != 200:
        error = {"message": reply.error, "type": "server_error", "code": None}
        return "application/json", json.dumps({"error": error}).encode()
    if path.endswith("/chat/completions"):
        return _chat(body, reply, model)
    if path.endswith("/responses"):
        return _responses(body, reply, model)
    if path.endswith("/messages"):
        return _anthropic(body, reply, model)
    return _gemini(path, reply, model)


def _events(events: Sequence[tuple[str | None, object]], *, done: bool = False) -> bytes:
    lines = [
        (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"
        for name, data in events
    ]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def _call(reply: Reply) -> list[dict[str, Any]]:
    if reply.command is None:
        return []
    arguments = json.dumps({"command": reply.command})
    function = {"name": reply.tool, "arguments": arguments}
    return [{"id": "call_00000001", "type": "function", "function": function}]


def _chat(body: dict[str, Any], reply: Reply, model: str) -> tuple[str, bytes]:
    usage = {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }
    base = {"id": "chatcmpl-000001", "created": 1, "model": model, "system_fingerprint": "fp_1"}
    calls, finish = _call(reply), "tool_calls" if reply.command else "stop"
    if not body.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    base["object"] = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in _pieces(reply.text)]
    deltas += [{"tool_calls": [{"index": 0, **call}]} for call in calls]
    chunks = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**base, "choices": [], "usage": usage})
    return "text/event-stream", _events([(None, chunk) for chunk in chunks], done=True)


def _responses(body: dict[str, Any], reply: Reply, model: str) -> tuple[str, bytes]:
    output = _responses_items(reply)
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }
    if not body.get("stream"):
        return "application/json", json.dumps(whole).encode()
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(output):
        place = {"output_index": index, "item": item}
        events.append({"type": "response.output_item.added", **place})
        events.append({"type": "response.output_item.done", **place})
    events.append({"type": "response.completed", "response": whole})
    numbered = [
        (str(event["type"]), {**event, "sequence_number": number})
        for number, event in enumerate(events)
    ]
    return "text/event-stream", _events(numbered)


def _responses_items(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    done = {"status": "completed"}
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [text]}
        items.append({**said, **done})
    for call in _call(reply):
        asked = {"type": "function_call", "id": "fc_1", "call_id": call["id"]}
        items.append({**asked, **call["function"], **done})
    return items


def _anthropic(body: dict[str, Any], reply: Reply, model: str) -> tuple[str, bytes]:
    usage = {
        "input_tokens": reply.input_tokens - reply.cached_tokens,
        "cache_read_input_tokens": reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": reply.output_tokens,
    }
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    if reply.command is not None:
        given = {"command": reply.command}
        content.append(
            {"type": "tool_use", "id": "toolu_000001", "name": reply.tool, "input": given}
        )
    stop = "tool_use" if reply.command else "end_turn"
    whole = {
        # harbor's claude-code takes answers of one id for one answer.
        "id": f"msg_{len(body.get('messages', ())):06}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    if not body.get("stream"):
        return "application/json", json.dumps(whole).encode()
    started = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[tuple[str | None, object]] = []
    events.append(("message_start", {"type": "message_start", "message": started}))
    for index, block in enumerate(content):
        events += _anthropic_block(index, block)
    delta = {"stop_reason": stop, "stop_sequence": None}
    last = {"output_tokens": reply.output_tokens}
    events.append(("message_delta", {"type": "message_delta", "delta": delta, "usage": last}))
    events.append(("message_stop", {"type": "message_stop"}))
    return "text/event-stream", _events(events)


def _anthropic_block(index: int, block: dict[str, Any]) -> Iterator[tuple[str | None, object]]:
    is_text = block["type"] == "text"
    empty = {**block, "text": ""} if is_text else {**block, "input": {}}
    begin = {"type": "content_block_start", "index": index, "content_block": empty}
    yield "content_block_start", begin
    text = block["text"] if is_text else json.dumps(block["input"])
    for piece in _pieces(text):
        delta = {"type": "text_delta", "text": piece}
        if not is_text:
            delta = {"type": "input_json_delta", "partial_json": piece}
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _gemini(path: str, reply: Reply, model: str) -> tuple[str, bytes]:
    parts: list[dict[str, Any]] = [{"text": reply.text}] if reply.text else []
    if reply.command is not None:
        parts.append({"functionCall": {"name": reply.tool, "args": {"command": reply.command}}})
    content = {"role": "model", "parts": parts}
    whole = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": reply.input_tokens,
            "cachedContentTokenCount": reply.cached_tokens,
            "candidatesTokenCount": reply.output_tokens,
            "totalTokenCount": reply.input_tokens + reply.output_tokens,
        },
        "modelVersion": model,
        "responseId": "gemini-1",
    }
    if ":stream" in path:
        return "text/event-stream", _events([(None, whole)])
    return "application/json", json.dumps(whole).encode()


def _pieces(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]
