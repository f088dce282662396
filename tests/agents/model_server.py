"""A model behind an OpenAI-compatible endpoint on loopback, with answers from a script.

The n-th answer of a conversation is the n-th of the script, whoever else asks meanwhile. It also
refuses, in the words of real providers.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-right-key-0123456789"
WRONG_KEY = {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 8 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


@dataclass
class Model:
    """What the endpoint answers, and what it was asked."""

    answers: Sequence[str]
    """Texts; the last is said again and again."""
    refusal: tuple[int, dict[str, Any]] | None = None
    """Status and body of every answer instead."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the requests."""
    url: str = ""
    """Base URL, once it is served."""

    def answer(self, key: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body."""
        self.asked.append(request)
        if key != f"Bearer {KEY}":
            return 401, WRONG_KEY
        if self.refusal:
            return self.refusal
        said = sum(message["role"] == "assistant" for message in request["messages"])
        text = self.answers[min(said, len(self.answers) - 1)]
        usage = {
            "prompt_tokens": 1000 + 100 * said,
            "completion_tokens": 10 + said,
            "total_tokens": 1010 + 101 * said,
            "prompt_tokens_details": {"cached_tokens": 900 * min(said, 1)},
        }
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        whole = {"id": f"chatcmpl-{said}", "object": "chat.completion", "created": 1700000000}
        return 200, {**whole, "model": request["model"], "choices": [choice], "usage": usage}


def terminal_turn(*keystrokes: str, done: bool = False) -> str:
    """What terminus-2 asks a model for: keys for the terminal, and whether that was all."""
    commands = [{"keystrokes": keys, "duration": 0.1} for keys in keystrokes]
    return json.dumps({"analysis": "", "plan": "", "commands": commands, "task_complete": done})


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, model: Model, *args: Any) -> None:
        self.model = model
        super().__init__(*args)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.model.answer(self.headers.get("Authorization", ""), request)
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(model: Model) -> Iterator[Model]:
    """The model behind its endpoint, for as long as it lasts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, model)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
