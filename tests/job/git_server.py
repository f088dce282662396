"""A git server on this machine: `git http-backend` behind a small HTTP server, and a registry."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.job.git_repository import WHO


class GitServer:
    """Serves the bare repositories below a directory, and a registry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = b"[]"
        """Served as /registry.json."""
        self.n_fetches = 0
        """Packs that were asked for."""
        self.hold = threading.Event()
        """Packs are sent once it is set."""
        self.hold.set()
        self.asked = threading.Event()
        """Set when a pack is asked for."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request: the registry, or what git says."""
        parts = urlsplit(handler.path)
        if parts.path == "/registry.json":
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(self.registry)
            return
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if parts.path.endswith("/git-upload-pack"):
            self.asked.set()
            self.hold.wait(30)
            self.n_fetches += b"want " in body or "gzip" in str(handler.headers)
        self._send(handler, self._call(handler, parts.path, parts.query, body))

    def _call(self, handler: BaseHTTPRequestHandler, path: str, query: str, body: bytes) -> bytes:
        env = {
            **os.environ,
            **WHO,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command,
            "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], env=env, input=body, capture_output=True, check=True
        )
        return done.stdout

    def _send(self, handler: BaseHTTPRequestHandler, said: bytes) -> None:
        head, _, content = said.partition(b"\r\n\r\n")
        lines = [line.partition(": ") for line in head.decode().split("\r\n")]
        status = next((value for name, _, value in lines if name == "Status"), "200 OK")
        handler.send_response(int(status.split()[0]))
        for name, _, value in lines:
            if name != "Status":
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)


@contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    """A server of the bare repositories below a directory."""
    serving = GitServer(root)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            serving.answer(self)

        def do_POST(self) -> None:
            serving.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed is no fault of the server."""

    server = Server(("127.0.0.1", 0), Answer)
    serving.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield serving
    finally:
        serving.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
