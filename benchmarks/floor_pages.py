"""Stored answers served by Python's own server; prints its address as JSON, until it is ended.

    python -m benchmarks.floor_pages DIRECTORY

    <directory>/answers.json     for each address, a file beside it and its media type

A floor for `proctor view`: the same bytes, and nothing to be read, chosen or rendered.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWERS = "answers.json"


def main(directory: Path) -> None:
    """Answer what is stored."""
    listed = json.loads((directory / ANSWERS).read_text(encoding="utf-8"))
    stored = {
        path: ((directory / name).read_bytes(), kind) for path, (name, kind) in listed.items()
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body, kind = stored.get(self.path, (b"", None))
            self.send_response(404 if kind is None else 200)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"address": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
