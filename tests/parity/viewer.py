"""The real `harbor view` on a loopback port, and what its API says."""

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.parity.theirs import variables

_PROGRAM = "import sys; from harbor.cli.main import app; sys.exit(app())"
_MOST_SECONDS = 60


class Viewer:
    """A viewer that serves a directory of jobs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def __call__(self, path: str, **query: object) -> Any:
        """What it answers; anything but success is an exception."""
        quoted = urllib.parse.quote(path)
        url = f"{self._url}/api/{quoted}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=_MOST_SECONDS) as answer:  # noqa: S310 - ours
            return json.load(answer)


@contextlib.contextmanager
def viewing(jobs: Path, log: Path, first: Path | None = None) -> Iterator[Viewer]:
    """`harbor view` of a directory of jobs, up and answering; `log` takes what it prints.

    `first` is the directory of another harbor than the installed one.
    """
    port = _find_port()
    command = [sys.executable, "-c", _PROGRAM, "view", str(jobs), "--port", str(port), "--no-build"]
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=variables(first), stdout=output, stderr=output) as process,
    ):
        try:
            viewer = Viewer(port)
            _wait(viewer, process)
            yield viewer
        finally:
            process.terminate()


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(viewer: Viewer, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _MOST_SECONDS
    while True:
        try:
            viewer("health")
        except urllib.error.URLError:
            assert process.poll() is None, "harbor view ended by itself"
            assert time.monotonic() < end, "harbor view does not answer"
            time.sleep(0.05)
        else:
            return
