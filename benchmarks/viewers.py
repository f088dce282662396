"""Viewers as servers, each in a process of its own, on loopback."""

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.bench import ROOT, BenchmarkError, entry_point, environment


@dataclass(frozen=True, slots=True)
class Viewer:
    """A server that answers."""

    address: str
    pid: int

    def ask(self, path: str) -> bytes:
        """What it answers; a new connection each time, as a browser's first.

        Raises:
            BenchmarkError: it answers with an error.
        """
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=120)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise BenchmarkError(f"{self.address}{path}: {response.status}; expected 200")
        return body

    def seconds(self, path: str) -> float:
        """How long an answer takes, to its last byte."""
        start = time.perf_counter()
        self.ask(path)
        return time.perf_counter() - start

    def peak_megabytes(self) -> float:
        """Most memory that its process ever held."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
        raise BenchmarkError(f"/proc/{self.pid}/status: no VmHWM line; expected Linux")


@contextlib.contextmanager
def our_viewer(thing: Path) -> Iterator[Viewer]:
    """`proctor view`, of a job or of a ledger."""
    words = ("view", str(thing), "--port", "0", "--json")
    with _running(entry_point("proctor.cli.main", "main", *words)) as viewer:
        yield viewer


@contextlib.contextmanager
def their_viewer(jobs: Path) -> Iterator[Viewer]:
    """Harbor's viewer, of a directory of jobs."""
    with _running(["-m", "benchmarks.theirs_pages", str(jobs)]) as viewer:
        yield viewer


@contextlib.contextmanager
def static_server(directory: Path) -> Iterator[Viewer]:
    """Stored answers."""
    with _running(["-m", "benchmarks.floor_pages", str(directory)]) as viewer:
        yield viewer


@contextlib.contextmanager
def _running(arguments: Sequence[str]) -> Iterator[Viewer]:
    with running(arguments) as (said, pid):
        yield Viewer(str(said["address"]).rstrip("/"), pid)


@contextlib.contextmanager
def running(
    arguments: Sequence[str], variables: Mapping[str, str] | None = None
) -> Iterator[tuple[dict[str, object], int]]:
    """A server that prints one JSON object with its address once it takes connections."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**environment(), **(variables or {})},
    ) as process:
        try:
            if process.stdout is None:
                raise BenchmarkError("a process without an output")
            yield json.loads(_read_object(process.stdout.fileno())), process.pid
        finally:
            process.terminate()


def _read_object(fd: int) -> str:
    """What a process prints, up to the end of a JSON object."""
    text = ""
    with open(fd, encoding="utf-8", closefd=False) as stream:
        for line in stream:
            text += line
            with contextlib.suppress(ValueError):
                json.loads(text)
                return text
    raise BenchmarkError(f"a server ended before it answered; it said {text[:200]!r}")
