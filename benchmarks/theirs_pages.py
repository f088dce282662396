"""Harbor's viewer as a server on loopback; prints its address as JSON, and answers until ended.

python -m benchmarks.theirs_pages JOBS
"""

import json
import socket
import sys
from pathlib import Path

import uvicorn
from harbor.viewer.server import create_app


def main(jobs: Path) -> None:
    """Answer as `harbor view` does."""
    app = create_app(jobs)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    port = listening.getsockname()[1]
    print(json.dumps({"address": f"http://127.0.0.1:{port}"}), flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
