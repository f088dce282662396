"""Registries on loopback: a small one that can be hostile, and Debian's docker-registry."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from proctor.digest import sha256_hex
from tests.environments.sandbox.saved import MANIFEST, Saved, layout_files

type Answer = Callable[["Request"], None]
PROGRAMS = ("docker-registry", "skopeo", "umoci", "htpasswd")
needs_programs = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
    reason="needs root, and docker-registry, skopeo, umoci and apache2-utils",
)


class Request(BaseHTTPRequestHandler):
    """One request to a small registry."""

    protocol_version = "HTTP/1.1"
    server: "_Server"
    body = b""

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        registry = self.server.registry
        registry.seen.append((self.path, dict(self.headers)))
        answer = registry.answers.get(urlsplit(self.path).path) or registry.answer
        answer(self)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def say(self, status: int, data: bytes = b"", **headers: str) -> None:
        """Send a whole answer; `_` in names of headers stands for `-`."""
        self.send_response(status)
        for name, value in {"Content_Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def hang_up(self) -> None:
        """End the connection without a word."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: "SmallRegistry"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that give up are expected."""


@dataclass
class SmallRegistry:
    """A registry of a few lines, whose every answer can be replaced."""

    documents: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """Contents and media type, by path."""
    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def put(self, name: str, *images: Saved, tag: str = "1", as_index: bool = False) -> str:
        """Publish an image, or an index of several; return the reference."""
        files = layout_files(*images)
        listed = json.loads(files["index.json"])
        for path, data in files.items():
            if path.startswith("blobs/"):
                digest = f"sha256:{sha256_hex(data)}"
                self.documents[f"/v2/{name}/blobs/{digest}"] = (data, "application/octet-stream")
        for one in listed["manifests"]:
            data = files[f"blobs/sha256/{one['digest'][7:]}"]
            self.documents[f"/v2/{name}/manifests/{one['digest']}"] = (data, MANIFEST)
        if as_index:
            index = "application/vnd.oci.image.index.v1+json"
            self.put_manifest(name, {**listed, "mediaType": index}, index, tag)
        else:
            first = listed["manifests"][0]["digest"]
            self.documents[f"/v2/{name}/manifests/{tag}"] = self.documents[
                f"/v2/{name}/manifests/{first}"
            ]
        return f"{self.host}/{name}:{tag}"

    def put_manifest(self, name: str, document: object, media_type: str, tag: str = "1") -> str:
        """Publish any manifest under a tag and its digest; return the digest."""
        data = json.dumps(document).encode()
        digest = f"sha256:{sha256_hex(data)}"
        for version in (tag, digest):
            self.documents[f"/v2/{name}/manifests/{version}"] = (data, media_type)
        return digest

    def answer(self, request: Request) -> None:
        found = self.documents.get(urlsplit(request.path).path)
        if found is None:
            request.say(404, b'{"errors": [{"code": "NAME_UNKNOWN", "message": "not here"}]}')
            return
        data, kind = found
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        if asked:
            first = int(asked[1])
            span = f"bytes {first}-{len(data) - 1}/{len(data)}"
            request.say(206, data[first:], Content_Type=kind, Content_Range=span)
        else:
            request.say(200, data, Content_Type=kind)

    def blob_path(self, name: str, data: bytes) -> str:
        """The path of a blob with these contents."""
        return f"/v2/{name}/blobs/sha256:{sha256_hex(data)}"


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    """Run a small registry."""
    registry = SmallRegistry()
    server = _Server(("127.0.0.1", 0), Request)
    server.registry = registry
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def docker_config(home: Path, host: str, login: str = "ada:secret") -> None:
    """Write a login of Docker's."""
    auth = base64.b64encode(login.encode()).decode()
    (home / ".docker").mkdir(exist_ok=True)
    text = json.dumps({"auths": {host: {"auth": auth}}})
    (home / ".docker" / "config.json").write_text(text, encoding="utf-8")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def real_registry(place: Path, auth: Mapping[str, object] | None = None) -> Iterator[str]:
    """Run Debian's docker-registry; yields its host."""
    port = free_port()
    place.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(place / "storage")}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "x"},
    }
    if auth:
        config["auth"] = auth
    path = place / "config.yml"
    # JSON is YAML.
    path.write_text(json.dumps(config), encoding="utf-8")
    with (place / "log").open("wb") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(path)], stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/v2/")
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str) -> None:
    for _ in range(200):
        try:
            httpx.get(url, trust_env=False)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{url} does not answer")


def basic_auth(place: Path, user: str, password: str) -> dict[str, object]:
    """Settings of docker-registry for a user with a password."""
    made = subprocess.run(
        ["htpasswd", "-Bbn", user, password], capture_output=True, text=True, check=True
    ).stdout
    place.mkdir(parents=True, exist_ok=True)
    (place / "htpasswd").write_text(made, encoding="utf-8")
    return {"htpasswd": {"realm": "test", "path": str(place / "htpasswd")}}


def push(layout: Path, tag: str, host: str, name: str, *options: str) -> str:
    """Push an image of an OCI layout with skopeo; return its reference."""
    reference = f"{host}/{name}"
    words = ["skopeo", "copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false", *options]
    subprocess.run(
        [*words, f"oci:{layout}:{tag}", f"docker://{reference}"], check=True, capture_output=True
    )
    return reference


def query_of(path: str) -> dict[str, list[str]]:
    """The parameters of a request."""
    return parse_qs(urlsplit(path).query)
