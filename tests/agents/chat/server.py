"""An OpenAI-compatible endpoint on loopback that does what a script says, well or badly.

Each request is answered by the next reply of the script; the last one is given again for ever. A
reply is a function of the connection, so that it can say anything, slowly, or half of it.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "gpt-4o-2024-08-06"
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


class Connection(BaseHTTPRequestHandler):
    """One request and its reply."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet for a short reply
    server: "Server"

    def do_POST(self) -> None:
        """Answer as the script says."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.body: dict[str, Any] = json.loads(body)
        reply = self.server.take(self.path, dict(self.headers.items()), self.body)
        self.close_connection = True
        # Who asked may have gone away.
        with suppress(BrokenPipeError, ConnectionResetError):
            reply(self)

    def send(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, length: int = -1
    ) -> None:
        """A response; another length than the body's makes a promise that is not kept."""
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("connection", "close")
        if length != 0:
            self.send_header("content-length", str(len(body) if length < 0 else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


type Reply = Callable[[Connection], None]


@dataclass
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def last(self) -> dict[str, Any]:
        """The last of its messages."""
        message: dict[str, Any] = self.body["messages"][-1]
        return message


@dataclass
class Server(ThreadingHTTPServer):
    """The endpoint."""

    script: Sequence[Reply] = ()
    asked: list[Asked] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    """Set at the end: no reply waits any longer."""
    daemon_threads = True

    def __post_init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        with self._lock:
            self.asked.append(Asked(path, headers, body))
            return self.script[min(len(self.asked), len(self.script)) - 1]


@contextmanager
def serving(*script: Reply) -> Iterator[Server]:
    """An endpoint that is up for as long as the block."""
    server = Server(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


# Replies


def completion(message: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    whole = {
        "id": "x",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [
            {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        ],
        "usage": USAGE,
    }
    return {**whole, **changes}


def tool_call(arguments: object, name: str = "bash", call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def answers(document: object) -> Reply:
    """Any JSON document with status 200."""
    return lambda connection: connection.send(200, json.dumps(document).encode())


def says(text: str, **changes: Any) -> Reply:
    """An answer in words."""
    return answers(completion({"content": text}, **changes))


def runs(*commands: str, text: str | None = None, **changes: Any) -> Reply:
    """An answer that calls bash, once for each command."""
    calls = [
        tool_call({"command": command}, call_id=f"c{n}") for n, command in enumerate(commands, 1)
    ]
    return answers(completion({"content": text, "tool_calls": calls}, **changes))


def calls(arguments: object, name: str = "bash") -> Reply:
    """An answer that calls a tool with any arguments."""
    return answers(completion({"content": None, "tool_calls": [tool_call(arguments, name)]}))


def refuses(
    status: int, message: str = "no", headers: Mapping[str, str] | None = None, **error: Any
) -> Reply:
    """A status other than 200, in OpenAI's form."""
    body = json.dumps({"error": {"message": message, **error}}).encode()
    return lambda connection: connection.send(status, body, headers)


def sends(
    body: bytes, kind: str = "application/json", length: int = -1, status: int = 200
) -> Reply:
    """Any bytes; a length beyond them is a body that is cut off."""
    return lambda connection: connection.send(status, body, {"content-type": kind}, length)


def chunk(delta: Mapping[str, Any], reason: str | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        **changes,
    }


def streams(*events: object, ending: str = "data: [DONE]\n\n") -> Reply:
    """Server-sent events; what is text is sent as it is."""
    lines = [
        event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n" for event in events
    ]
    body = ("".join(lines) + ending).encode()
    return lambda connection: connection.send(
        200, body, {"content-type": "text/event-stream"}, length=0
    )


def floods(n_bytes: int, kind: str = "application/json") -> Reply:
    """More than anybody wants to read."""

    def reply(connection: Connection) -> None:
        connection.send(200, b'{"choices": "', {"content-type": kind}, length=0)
        piece = b"x" * (1 << 20)
        for _ in range(n_bytes // len(piece)):
            connection.wfile.write(piece)

    return reply


def waits() -> Reply:
    """Nothing at all, for as long as the server is up."""

    def reply(connection: Connection) -> None:
        connection.server.released.wait()

    return reply


def drips() -> Reply:
    """A blank now and then, so that there is always hope."""

    def reply(connection: Connection) -> None:
        connection.send(200, b" ", length=0)
        while not connection.server.released.wait(0.02):
            connection.wfile.write(b" ")
            connection.wfile.flush()

    return reply


def hangs_up() -> Reply:
    """The connection closed without a word."""
    return lambda connection: None


def babbles(text: str) -> Reply:
    """What is no HTTP at all."""

    def reply(connection: Connection) -> None:
        connection.wfile.write(f"{text}\r\n\r\n".encode())

    return reply
