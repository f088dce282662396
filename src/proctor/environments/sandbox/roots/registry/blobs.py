"""Downloads of layers, several at once, each checked against its size and digest as it arrives.

A connection that breaks is resumed where it broke, also by the next pull: what has arrived stays in
a file until it is complete. A layer that is longer than its manifest says, or has another digest,
is deleted.
"""

import io
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

import httpx
import msgspec

from proctor.digest import Sha256, is_digest, sha256_hex
from proctor.environments.sandbox.roots.registry.client import RegistryClient, StoppedError
from proctor.environments.sandbox.roots.saved_files import INDEX, LARGEST_DOCUMENT
from proctor.errors import RegistryError, UnreachableRegistryError

AT_ONCE = 4
"""Number of layers that are downloaded at once."""
_WAITS = (0.5, 1.0, 2.0, 4.0)
_CHUNK = 1 << 20
# A connection must bring this much in this time, or it is given up.
_LEAST_BYTES = 1 << 16
_WINDOW_SECONDS = 60.0
# Downloads that were stopped end within this time, or while nobody waits: one that is connecting.
_LAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Blob:
    """A file in a registry."""

    digest: str
    """SHA-256, in hex."""
    size: int


class Meter:
    """Counts bytes of all downloads, and stops them."""

    def __init__(
        self, total: int, show: Callable[[int, int], None], stopped: threading.Event | None = None
    ) -> None:
        """`show` is called with the bytes that arrived, and the total; `stopped` ends all."""
        self._total = total
        self._show = show
        self._done = 0
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._is_interrupted = stopped or threading.Event()

    def add(self, n_bytes: int) -> None:
        """Count bytes."""
        if self._is_stopped.is_set() or self._is_interrupted.is_set():
            raise StoppedError
        with self._lock:
            self._done += n_bytes
            self._show(self._done, self._total)

    def stop(self) -> None:
        """Make all downloads end."""
        self._is_stopped.set()


class Downloads:
    """Downloads that run in threads; leaving the `with` stops them, and the client."""

    def __init__(self, client: RegistryClient, directory: Path, meter: Meter) -> None:
        self._client = client
        self._directory = directory
        self._meter = meter
        self._waiting: SimpleQueue[tuple[Future[Path], Blob]] = SimpleQueue()
        # Not an executor: the end of this process would wait for threads that are connecting.
        self._threads = [
            threading.Thread(target=self._work, name=f"pull-{n}", daemon=True)
            for n in range(AT_ONCE)
        ]

    def __enter__(self) -> "Downloads":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what still runs."""
        self._meter.stop()
        self._client.stop()
        until = time.monotonic() + _LAST_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def start(self, blobs: Sequence[Blob]) -> dict[str, Future[Path]]:
        """Start downloads; return the complete file of each digest, to be waited for."""
        found: dict[str, Future[Path]] = {}
        for blob in blobs:
            found[blob.digest] = Future()
            self._waiting.put((found[blob.digest], blob))
        for thread in self._threads:
            thread.start()
        return found

    def _work(self) -> None:
        with suppress(Empty):
            while True:
                future, blob = self._waiting.get_nowait()
                try:
                    future.set_result(download(self._client, blob, self._directory, self._meter))
                except BaseException as error:  # noqa: BLE001 - raised where the file is waited for
                    future.set_exception(error)


def download(client: RegistryClient, blob: Blob, directory: Path, meter: Meter) -> Path:
    """Download a blob into a directory, or the rest of one that has begun; return its file.

    Raises:
        RegistryError: it cannot be downloaded, or is not what its digest says.
        StoppedError: it was stopped.
        OSError: it cannot be written.
    """
    if not is_digest(blob.digest):
        raise RegistryError(f"{blob.digest[:80]!r}: expected 64 digits in hex")
    path = directory / f"{blob.digest}.part"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "r+b", buffering=_CHUNK) as file:
        try:
            _Download(client, blob, file, meter).run()
        except _SpoiltError as error:
            path.unlink()
            raise RegistryError(f"{client.endpoint.host}: {error}") from error
    return path


class _SpoiltError(Exception):
    """What arrived is not the blob."""


class _Download:
    def __init__(self, client: RegistryClient, blob: Blob, file: BinaryIO, meter: Meter) -> None:
        self._client = client
        self._blob = blob
        self._file = file
        self._meter = meter
        self._name = f"layer sha256:{blob.digest[:12]}…"
        self._hasher = Sha256()
        self._offset = 0

    def run(self) -> None:
        while chunk := self._file.read(_CHUNK):
            self._hasher.update(chunk)
            self._offset += len(chunk)
            self._meter.add(len(chunk))
        if self._offset > self._blob.size:
            self._begin_again()
        was_begun = self._offset > 0
        self._complete()
        if was_begun and self._hasher.digest != self._blob.digest:
            # What an earlier pull left may be what is wrong.
            self._begin_again()
            self._complete()
        self._file.flush()
        if (found := self._hasher.digest) != self._blob.digest:
            raise _SpoiltError(f"{self._name} has the digest {found}: it was altered or damaged")

    def _complete(self) -> None:
        """Receive what is missing, over as many connections as it takes."""
        waits = iter(_WAITS)
        # A registry that makes us begin again, or sends a few bytes each time, is given up.
        due = self._offset + _LEAST_BYTES
        while self._offset < self._blob.size:
            try:
                self._receive()
                reason = f"ended after {self._offset:,} bytes"
            except httpx.TransportError as error:
                reason = f"broke off: {str(error) or type(error).__name__}"
            except UnreachableRegistryError as error:
                reason = f"broke off: {error}"
            if self._offset >= due:
                waits, due = iter(_WAITS), self._offset + _LEAST_BYTES
            wait = next(waits, None)
            if self._offset < self._blob.size and wait is None:
                self._file.flush()
                raise UnreachableRegistryError(
                    f"{self._client.endpoint.host}: {self._name} of {self._blob.size:,} bytes "
                    f"{reason}; pull again to continue there"
                )
            if self._offset < self._blob.size:
                self._client.wait(wait or 0)

    def _begin_again(self) -> None:
        self._meter.add(-self._offset)
        self._file.seek(0)
        self._file.truncate()
        self._hasher, self._offset = Sha256(), 0

    def _receive(self) -> None:
        headers = {"Range": f"bytes={self._offset}-"} if self._offset else {}
        with self._client.get(f"blobs/sha256:{self._blob.digest}", headers) as response:
            if self._offset and not _continues(response, self._offset):
                self._begin_again()
                if response.status_code == 206:
                    return
            until, due = time.monotonic() + _WINDOW_SECONDS, self._offset + _LEAST_BYTES
            for piece in response.iter_raw():
                self._offset += len(piece)
                if self._offset > self._blob.size:
                    raise _SpoiltError(
                        f"{self._name} is longer than the {self._blob.size:,} bytes of its manifest"
                    )
                self._hasher.update(piece)
                self._file.write(piece)
                self._meter.add(len(piece))
                if time.monotonic() > until:
                    if self._offset < due:
                        raise httpx.ReadTimeout(
                            f"less than {_LEAST_BYTES:,} bytes in {_WINDOW_SECONDS:.0f} seconds"
                        )
                    until, due = time.monotonic() + _WINDOW_SECONDS, self._offset + _LEAST_BYTES


def _continues(response: httpx.Response, offset: int) -> bool:
    """Whether an answer begins where the last one ended."""
    said = str(response.headers.get("content-range", ""))
    return response.status_code == 206 and said.startswith(f"bytes {offset}-")


# Manifests and configurations of a registry, read as the files of a saved image
#
# The image is then selected as in an OCI image layout: `index.json` refers to what the name refers
# to in the registry, and every other document is fetched by its digest.


_BLOBS = "blobs/sha256/"
_ACCEPTED = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_OLD = "application/vnd.docker.distribution.manifest.v1+"
# Documents of one image: an index, its manifests without a platform and their configurations.
_MOST_DOCUMENTS = 60


class _Reference(msgspec.Struct, frozen=True):
    digest: str = ""


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What an index and a manifest have in common."""

    media_type: str = ""
    manifests: list[_Reference] = []


class RemoteFiles:
    """The documents of one image in a registry."""

    def __init__(self, client: RegistryClient, version: str) -> None:
        """`version` is a tag, or `sha256:` and a digest."""
        self._client = client
        self._version = version
        self._n_documents = 0
        self._documents: dict[str, bytes] = {}
        # Digests that an index names: the registry has them among its manifests, not its blobs.
        self._manifests: set[str] = set()

    def open(self, name: str) -> BinaryIO | None:
        """Open a document; None if a registry has none of that name."""
        if name == INDEX:
            expected = self._version if ":" in self._version else None
            digest, media_type = self._fetch(f"manifests/{self._version}", expected)
            if media_type.startswith(_OLD):
                raise RegistryError(
                    f"{self._client.endpoint.host}: has only a manifest of the first version of "
                    f"{self._client.endpoint.repository}, which has no digests of unpacked layers; "
                    "push the image again with a current tool"
                )
            size = len(self._documents[digest])
            root = {"digest": digest, "mediaType": media_type, "size": size}
            return io.BytesIO(msgspec.json.encode({"schemaVersion": 2, "manifests": [root]}))
        if not name.startswith(_BLOBS):
            return None
        digest = f"sha256:{name.removeprefix(_BLOBS)}"
        if digest not in self._documents:
            kind = "manifests" if digest in self._manifests else "blobs"
            self._fetch(f"{kind}/{digest}", digest)
        return io.BytesIO(self._documents[digest])

    def _fetch(self, path: str, expected: str | None) -> tuple[str, str]:
        """Fetch a document; return its digest and media type."""
        self._n_documents += 1
        if self._n_documents > _MOST_DOCUMENTS:
            raise RegistryError(
                f"{self._client.endpoint.host}: the image consists of more than {_MOST_DOCUMENTS} "
                "manifests and configurations; refused"
            )
        data, kind = self._client.read(path, {"Accept": _ACCEPTED}, LARGEST_DOCUMENT)
        digest = f"sha256:{sha256_hex(data)}"
        if expected is not None and digest != expected:
            raise RegistryError(
                f"{self._client.endpoint.host}: {path} has the digest {digest}; expected "
                f"{expected}: it was altered or damaged"
            )
        self._documents[digest] = data
        return digest, self._remember(data, kind)

    def _remember(self, data: bytes, kind: str) -> str:
        """Note the manifests that an index names; return the media type."""
        try:
            found = msgspec.json.decode(data, type=_Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return kind
        self._manifests.update(one.digest for one in found.manifests)
        return found.media_type or kind
