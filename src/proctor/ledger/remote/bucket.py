"""Buckets of S3-compatible stores: where ledgers are published, and read from.

obstore reads the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
AWS_REGION, AWS_ENDPOINT_URL, AWS_SKIP_SIGNATURE, and others. Without credentials, requests are not
signed: a public bucket can be read by anybody.

Loaded on use: obstore comes with the extra `s3`. Nothing that a bucket holds is believed here.
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from proctor.errors import DamageError, LedgerError
from proctor.ledger.note import LARGEST_NOTE
from proctor.ledger.publishing import ARTIFACTS, CHECKPOINT, THREADS, TILES, Stored
from proctor.ledger.remote.client import S3, check_bucket_url, save_pieces, split_bundle
from proctor.ledger.remote.connections import UnreachableError
from proctor.ledger.tiles import TILE, parse_tile_path, tile_path

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Any of these names credentials, or says that there are none.
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_SETTINGS = (*_CREDENTIALS, *_ENDPOINTS, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
# Bytes. Larger files are sent in parts of this size, two at a time.
_PART = 8 << 20
_CHUNK = 1 << 20
_PAGE = 1000
# A page of a list takes about as long as so many questions about single files.
_QUESTIONS = 20
_READ_AHEAD = 8
_LONGEST_REASON = 300
# Full tiles of hashes never change; everything else may, because lines are withheld.
_FOREVER = "max-age=604800, immutable"


def _open_store(url: str, env: Mapping[str, str]) -> S3Store:
    bucket, _, prefix = check_bucket_url(url).removeprefix(S3).partition("/")
    # obstore itself reads variables of the process only.
    config: Any = {name: env[name] for name in _SETTINGS if env.get(name)}
    if not any(env.get(name) for name in _CREDENTIALS):
        config["AWS_SKIP_SIGNATURE"] = "true"
    endpoint = next((env[name] for name in _ENDPOINTS if env.get(name)), "")
    is_local = urlsplit(endpoint).hostname in _LOOPBACK
    retry_timeout = timedelta(seconds=60)
    try:
        return S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={"allow_http": True} if is_local else {},
            retry_config={"max_retries": 4, "retry_timeout": retry_timeout},
        )
    except (BaseError, ValueError) as error:
        raise LedgerError(f"{url}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    # The rest of what obstore says repeats the address, and quotes what the store answered.
    text = " ".join(str(error).split("Debug source")[0].split())
    return "".join(char if char.isprintable() else " " for char in text)[:_LONGEST_REASON]


class Bucket:
    """A prefix of a bucket, to publish to: a `Target`."""

    def __init__(self, url: str, env: Mapping[str, str] = os.environ) -> None:
        self.url = check_bucket_url(url)
        self._store = _open_store(url, env)

    @contextlib.contextmanager
    def asking(self, path: str = "") -> Iterator[None]:
        """Translate errors of the store.

        Raises:
            DamageError: there is no such file.
            UnreachableError: the store cannot be reached.
            LedgerError: it refuses.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise DamageError(f"{self.url}/{path}: not found") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise LedgerError(
                f"{self.url}: access denied; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY hold the "
                f"credentials: {_reason(error)}"
            ) from error
        except NotSupportedError as error:
            raise LedgerError(f"{self.url}: {_reason(error)}") from error
        except (BaseError, OSError) as error:
            raise UnreachableError(f"{self.url}: {_reason(error)}") from error

    def check_conditions(self) -> None:
        """Try conditional writes: see `Target`."""
        path = f"probe/{os.urandom(8).hex()}"
        try:
            try:
                problem = self._find_ignored(path)
            finally:
                self.remove([path])
        except DamageError as error:
            raise LedgerError(f"{self.url}: there is no such bucket") from error
        if problem:
            raise LedgerError(
                f"{self.url}: this store ignores conditions ({problem}): two who publish at the "
                "same time could replace a newer ledger by an older one. Nothing was published; "
                "use a store with conditional writes, such as AWS S3 or SeaweedFS"
            )

    def _find_ignored(self, path: str) -> str | None:
        first = self._write_if(path, b"first", None)
        if first is None:
            return "a new file could not be created"
        if self._write_if(path, b"second", None) is not None:
            return "a file was created twice"
        second = self._write_if(path, b"third", first)
        if second is None:
            return "a file with the expected version was not replaced"
        if self._write_if(path, b"fourth", first) is not None:
            return "a file was replaced that had changed"
        return None

    def _write_if(self, path: str, data: bytes, version: str | None) -> str | None:
        """Write a file that has this version, or is new; returns its version, None if refused."""
        mode: Any = "create" if version is None else {"e_tag": version}
        with self.asking(path):
            try:
                found = obstore.put(
                    self._store,
                    path,
                    data,
                    attributes={"Content-Type": "text/plain", "Cache-Control": "no-store"},
                    mode=mode,
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError):
                return None
        if not found["e_tag"]:
            raise LedgerError(f"{self.url}: the store gives no ETag; conditional writes need it")
        return found["e_tag"]

    def swap(self, path: str, data: bytes, version: str | None) -> bool:
        """Replace a file if it has this version: see `Target`."""
        return self._write_if(path, data, version) is not None

    def read(self, path: str, largest: int) -> Stored | None:
        """A file: see `Target`."""
        data = bytearray()
        try:
            with self.asking(path):
                found = obstore.get(self._store, path)
                for piece in found.stream(_CHUNK):
                    data += bytes(piece)
                    if len(data) > largest:
                        raise LedgerError(f"{self.url}/{path}: more than {largest:,} bytes")
                return Stored(bytes(data), found.meta["e_tag"] or "")
        except DamageError:
            return None

    def stream(self, path: str) -> Iterator[bytes]:
        """The bytes of a file, piece by piece; a small one is read before this returns."""
        with self.asking(path):
            found = obstore.get(self._store, path)
            if found.meta["size"] <= _PART:
                return iter([bytes(found.bytes())])
        return self._pieces(path, found)

    def _pieces(self, path: str, found: Any) -> Iterator[bytes]:
        with self.asking(path):
            for piece in found.stream(_CHUNK):
                yield bytes(piece)

    def put(self, path: str, data: bytes | BinaryIO) -> int:
        """Write a file: see `Target`."""
        size = len(data) if isinstance(data, bytes) else data.seek(0, os.SEEK_END)
        if not isinstance(data, bytes):
            data.seek(0)
        is_large, is_tile = size > _PART, path.startswith(f"{TILES}/")
        is_fixed = is_tile and parse_tile_path(path).level is not None
        with self.asking(path):
            obstore.put(
                self._store,
                path,
                data if isinstance(data, bytes) or is_large else data.read(),
                attributes={
                    "Content-Type": f"application/{'octet-stream' if is_tile else 'zstd'}",
                    "Cache-Control": _FOREVER if is_fixed else "no-cache",
                },
                use_multipart=is_large,
                chunk_size=_PART,
                max_concurrency=2,
            )
        return size

    def list(self, folder: str) -> Iterator[str]:
        """The paths below a folder: see `Target`."""
        with self.asking(folder):
            for page in obstore.list(self._store, folder, chunk_size=_PAGE):
                yield from (each["path"] for each in page)

    def existing(self, folder: str, names: Sequence[str]) -> set[str]:
        """Which of these are there: see `Target`."""
        wanted, found = set(names), set[str]()
        for number, path in enumerate(self.list(folder) if names else (), start=1):
            found.add(path.rpartition("/")[2])
            # Of a large folder, a few files are asked for one by one.
            if number % _PAGE == 0 and number // _PAGE * _QUESTIONS >= len(wanted):
                return self.ask_each(folder, sorted(wanted - found)) | (wanted & found)
        return wanted & found

    def ask_each(self, folder: str, names: Sequence[str]) -> set[str]:
        """Like `existing`, without listing the folder, which readers may not be allowed to."""

        def has(name: str) -> bool:
            try:
                with self.asking(f"{folder}/{name}"):
                    obstore.head(self._store, f"{folder}/{name}")
            except DamageError:
                return False
            return True

        with ThreadPoolExecutor(THREADS) as pool:
            return {
                name for name, is_there in zip(names, pool.map(has, names), strict=True) if is_there
            }

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files: see `Target`."""
        if paths:
            with self.asking():
                obstore.delete(self._store, list(paths))


class BucketClient:
    """A published ledger in a bucket: a `Source`."""

    def __init__(self, url: str, env: Mapping[str, str] = os.environ) -> None:
        self.url = url
        self._bucket = Bucket(url, env)

    def close(self) -> None:
        """Nothing is kept open."""

    def checkpoint(self) -> bytes:
        """The published checkpoint: see `Source`."""
        found = self._bucket.read(CHECKPOINT, LARGEST_NOTE)
        if found is None:
            raise LedgerError(f"{self.url}: no ledger is published there")
        return found.data

    def lines(self, first: int, size: int) -> Iterator[bytes]:
        """The stored lines: see `Source`."""
        waiting: deque[tuple[int, int, Future[Iterator[bytes]]]] = deque()
        numbers = iter(range(first // TILE, -(-size // TILE)))
        with ThreadPoolExecutor(_READ_AHEAD) as pool:
            while True:
                while len(waiting) < _READ_AHEAD and (number := next(numbers, None)) is not None:
                    width = min(TILE, size - number * TILE)
                    path = tile_path(None, number, width)
                    waiting.append((number, width, pool.submit(self._bucket.stream, path)))
                if not waiting:
                    return
                number, width, future = waiting.popleft()
                where = f"{self.url}/{tile_path(None, number, width)}"
                lines = split_bundle(future.result(), width, where)
                for at, line in enumerate(lines, start=number * TILE):
                    if at >= first:
                        yield line

    def save_artifact(self, sha256: str, target: BinaryIO, largest: int) -> None:
        """Write an artifact to a file: see `Source`."""
        path = f"{ARTIFACTS}/{sha256}"
        save_pieces(self._bucket.stream(path), target, largest, f"{self.url}/{path}")

    def missing(self, digests: Sequence[str]) -> set[str]:
        """Which artifacts are not there: see `Source`."""
        return set(digests) - self._bucket.ask_each(ARTIFACTS, digests)
