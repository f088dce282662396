"""The requests that a served ledger answers.

    GET  /checkpoint                        the checkpoint, with cosignatures
    GET  /tile/L/N[.p/W], /tile/entries/…   hashes and lines, as C2SP tlog-tiles names them
    GET  /artifacts/sha256/DIGEST           evidence, compressed with zstd
    POST /artifacts/missing                 which artifacts are not there
    POST /artifacts                         upload small artifacts in bulk
    GET  /artifacts/sha256/DIGEST/upload    how far the upload of a large one is
    PUT  /artifacts/sha256/DIGEST?…         upload a part of it
    POST /machines                          enrol a machine
    POST /submit                            seal entries
    GET  everything else                    the viewer

Every request needs a token: `Authorization: Bearer TOKEN`, or in a browser as the password. Reading
needs any, the rest one that may write. Requests of one token are limited, and each that writes, and
each that is refused, is a line in requests.jsonl.
"""

import base64
import binascii
import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from proctor.digest import is_digest
from proctor.errors import (
    AlteredArtifactError,
    ConflictError,
    DamageError,
    InputError,
    LedgerError,
    NotSealedError,
    ProctorError,
)
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import AnyEntry, now_text
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tiles import entry_bundle, parse_tile_path, tile_hashes
from proctor.serve.intake import (
    OutOfScopeError,
    Submitted,
    check_submission,
    decode_submission,
)
from proctor.serve.tokens import Token, Tokens
from proctor.serve.uploads import LARGEST_BODY, Uploads
from proctor.serve.writer import Writer
from proctor.web.writing import read_body

_API = ("/checkpoint", "/tile/", "/artifacts", "/machines", "/submit")
LARGEST_SUBMISSION = 32 << 20
"""Bytes of the entries in one request."""
_MOST_DIGESTS = 100_000
# Requests of one token that write at the same time.
_MOST_WRITING = 16
_BEARER = {"WWW-Authenticate": 'Basic realm="proctor", charset="UTF-8"'}
# Addresses whose failures are remembered.
_MOST_ADDRESSES = 10_000


@dataclass(slots=True)
class Rate:
    """A limit on requests: `burst` at once, and `each_sec` more a second."""

    each_sec: float
    burst: float
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, name: str, now: float) -> float:
        """Take one; returns the seconds to wait if there is none, else 0."""
        left, before = self._left.get(name, (self.burst, now))
        left = min(self.burst, left + (now - before) * self.each_sec)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.clear()
        self._left[name] = (max(left - 1, 0) if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self.each_sec


class AuditLog:
    """Lines about requests, appended to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, **facts: object) -> None:
        """Append a line; a full disk does not stop the server."""
        line = msgspec.json.encode({"at": now_text(), **facts}) + b"\n"
        with self._lock, contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)


@dataclass(slots=True)
class Served:
    """A ledger that is served."""

    directory: Path
    origin: str
    tokens: Tokens
    writer: Writer
    uploads: Uploads
    audit: AuditLog
    is_public: bool = False
    """Whether everybody may read."""
    rate: Rate = field(default_factory=lambda: Rate(200, 1000))
    """For each token."""
    failures: Rate = field(default_factory=lambda: Rate(1, 20))
    """For each address: requests without a valid token."""
    in_flight: Counter[str] = field(default_factory=Counter)
    """Requests that write, by token: their bodies are in memory."""
    _local: threading.local = field(default_factory=threading.local)

    @contextlib.contextmanager
    def counting(self, name: str | None) -> Iterator[None]:
        """Count a request that writes while it lasts.

        Raises:
            HTTPException: 429: its token has too many.
        """
        if name is None:
            yield
            return
        if self.in_flight[name] >= _MOST_WRITING:
            raise _too_often(0)
        self.in_flight[name] += 1
        try:
            yield
        finally:
            self.in_flight[name] -= 1

    def ledger(self) -> LedgerReader:
        """The ledger, opened for reading once in each thread."""
        found: LedgerReader | None = getattr(self._local, "ledger", None)
        if found is None:
            found = self._local.ledger = open_reader(self.directory)
        found.keep_up()
        return found


class Front:
    """Checks who asks, and passes the request on to the interface or the viewer."""

    def __init__(self, served: Served, viewer: ASGIApp) -> None:
        self._served = served
        self._viewer = viewer
        self._interface = Starlette(
            routes=_ROUTES,
            exception_handlers={HTTPException: _say_refusal, ProctorError: _say_error},
        )
        self._interface.state.served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._viewer(scope, receive, send)
            return
        request = Request(scope)
        is_writing = request.method not in ("GET", "HEAD")
        started = time.monotonic()
        status = 500
        token: Token | None = None

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            token = self._authorize(request)
            scope.setdefault("state", {})["token"] = token
            is_interface = request.url.path.startswith(_API)
            with self._served.counting(token.name if is_writing else None):
                await (self._interface if is_interface else self._viewer)(scope, receive, sending)
        except HTTPException as error:
            await _say_refusal(request, error)(scope, receive, sending)
        finally:
            if is_writing or status in (401, 403):
                self._served.audit.write(
                    token=token.name if token else None,
                    address=request.client.host if request.client else None,
                    method=request.method,
                    path=request.url.path[:200],
                    status=status,
                    seconds=round(time.monotonic() - started, 3),
                    **scope.get("state", {}).get("facts", {}),
                )

    def _authorize(self, request: Request) -> Token:
        """The token of a request.

        Raises:
            HTTPException: 401 without a valid one, 403 if it may not do that, 429 too often.
        """
        served, now = self._served, time.monotonic()
        given = _read_token(request)
        token = served.tokens.find(given) if given else None
        path = request.url.path
        is_reading = request.method in ("GET", "HEAD") or path == "/artifacts/missing"
        if token is None and served.is_public and is_reading and not given:
            token = Token(name="", sha256="")
        if token is None:
            address = request.client.host if request.client else ""
            if wait := served.failures.take(address, now):
                raise _too_often(wait)
            what = "this token is not valid" if given else "a token is needed"
            raise HTTPException(401, what, _BEARER)
        if wait := served.rate.take(token.name or str(request.client), now):
            raise _too_often(wait)
        if not token.may_write and not is_reading:
            raise HTTPException(403, f"the token {token.name!r} may only read")
        return token


def _too_often(wait: float) -> HTTPException:
    return HTTPException(429, "too many requests", {"Retry-After": str(int(wait) + 1)})


def _read_token(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError, binascii.Error):
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        return "invalid"
    return None


def _say_refusal(_: Request, error: Exception) -> Response:
    status, headers = 500, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
    message = getattr(error, "detail", str(error))
    return JSONResponse({"message": message}, status, dict(headers or {}))


def _say_error(request: Request, error: Exception) -> Response:
    match error:
        case ConflictError():
            status = 409
        case NotSealedError() | AlteredArtifactError():
            status = 422
        case DamageError() | LedgerError():
            # Not the client's fault: it may try again.
            status = 503
        case _:
            status = 400
    served: Served = request.app.state.served
    served.audit.write(path=request.url.path[:200], error=str(error)[:500])
    return JSONResponse({"message": str(error)}, status)


def _served(request: Request) -> Served:
    served: Served = request.app.state.served
    return served


def _token(request: Request) -> Token:
    token: Token = request.scope["state"]["token"]
    return token


def _note(request: Request, **facts: object) -> None:
    """Add facts to the line about a request."""
    request.scope["state"].setdefault("facts", {}).update(facts)


async def _checkpoint(request: Request) -> Response:
    served = _served(request)
    data = await run_sync(lambda: served.ledger().log.read_checkpoint())
    return Response(data, media_type="text/plain; charset=utf-8", headers=_FRESH)


_FRESH = {"Cache-Control": "no-store"}
# Full tiles never change; lines may be withheld.
_FOREVER = {"Cache-Control": "max-age=604800, immutable"}


async def _tile(request: Request) -> Response:
    served = _served(request)
    try:
        tile = parse_tile_path(request.url.path.removeprefix("/"))
    except InputError as error:
        raise HTTPException(404, str(error)) from error

    def read() -> bytes:
        ledger = served.ledger()
        if tile.level is None:
            return entry_bundle(ledger, tile.number, tile.width)
        return tile_hashes(ledger.index, tile.level, tile.number, tile.width)

    try:
        data = await run_sync(read)
    except LedgerError as error:
        raise HTTPException(404, str(error)) from error
    headers = _FRESH if tile.level is None else _FOREVER
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _artifact(request: Request) -> Response:
    served, sha256 = _served(request), _digest_of(request)
    store = FileArtifacts(served.directory)

    def find() -> Path:
        store.open(sha256).close()
        return store.path_of(sha256)

    try:
        path = await run_sync(find)
    except DamageError as error:
        raise HTTPException(404, str(error)) from error
    return FileResponse(path, media_type="application/zstd", headers=_FOREVER)


def _digest_of(request: Request) -> str:
    sha256: str = request.path_params["sha256"]
    if not is_digest(sha256):
        raise HTTPException(404, "not a SHA-256")
    return sha256


class _Missing(msgspec.Struct, frozen=True):
    artifacts: list[str]


async def _missing(request: Request) -> Response:
    body = await read_body(request, LARGEST_BODY)
    asked = _decode(body, _Missing).artifacts
    if len(asked) > _MOST_DIGESTS:
        raise HTTPException(413, f"{len(asked):,} digests; at most {_MOST_DIGESTS:,}")
    store = FileArtifacts(_served(request).directory)
    found = await run_sync(lambda: [each for each in asked if not store.holds(each)])
    return JSONResponse({"missing": found})


async def _upload_small(request: Request) -> Response:
    body = await read_body(request, LARGEST_BODY)
    count = await run_sync(_served(request).uploads.store_small, body)
    _note(request, artifacts=count, bytes=len(body))
    return JSONResponse({"stored": count})


async def _find_offset(request: Request) -> Response:
    uploads, sha256 = _served(request).uploads, _digest_of(request)
    offset = await run_sync(uploads.find_offset, _token(request).name, sha256)
    return JSONResponse({"offset": offset})


async def _upload_part(request: Request) -> Response:
    uploads, sha256 = _served(request).uploads, _digest_of(request)
    names = ("offset", "size", "total")
    try:
        offset, size, total = (int(request.query_params[name]) for name in names)
    except (KeyError, ValueError) as error:
        raise HTTPException(400, "expected ?offset=N&size=N&total=N") from error
    body = await read_body(request, LARGEST_BODY)
    name = _token(request).name
    at = await run_sync(
        lambda: uploads.store_part(name, sha256, body, offset=offset, size=size, total=total)
    )
    _note(request, bytes=len(body))
    return JSONResponse({"offset": at})


class _Machine(msgspec.Struct, frozen=True):
    name: str
    key: str


async def _enrol(request: Request) -> Response:
    asked = _decode(await read_body(request), _Machine)
    try:
        name = await _served(request).writer.enrol(asked.name, asked.key, _token(request).name)
    except LedgerError as error:
        raise HTTPException(403, str(error)) from error
    _note(request, machine=name)
    return JSONResponse({"name": name})


async def _submit(request: Request) -> Response:
    served, token = _served(request), _token(request)
    body = await read_body(request, LARGEST_SUBMISSION)
    n_bytes = _read_number(request, "entries", len(body))
    artifacts = FileArtifacts(served.directory)

    def check() -> tuple[list[AnyEntry], Submitted]:
        entries = decode_submission(body[:n_bytes])
        if n_bytes < len(body):
            served.uploads.store_small(body[n_bytes:])
        machines = served.writer.machines
        return entries, check_submission(
            entries, machines, served.origin, artifacts, token.may_submit
        )

    try:
        entries, submitted = await run_sync(check)
    except OutOfScopeError as error:
        raise HTTPException(403, str(error)) from error
    placed = await served.writer.submit(submitted)
    signed = {each.signed.machine for each in entries if each.signed is not msgspec.UNSET}
    new = [seq for seq, is_new in placed if is_new]
    _note(request, machine=",".join(sorted(signed)), entries=len(entries), new=len(new))
    return JSONResponse({"entries": [{"seq": seq, "is_new": is_new} for seq, is_new in placed]})


def _read_number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else default


def _decode[Asked](body: bytes, model: type[Asked]) -> Asked:
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"not the expected JSON: {error}") from error


_ROUTES = [
    Route("/checkpoint", _checkpoint),
    Route("/tile/{rest:path}", _tile),
    Route("/artifacts/missing", _missing, methods=["POST"]),
    Route("/artifacts", _upload_small, methods=["POST"]),
    Route("/artifacts/sha256/{sha256}", _artifact),
    Route("/artifacts/sha256/{sha256}", _upload_part, methods=["PUT"]),
    Route("/artifacts/sha256/{sha256}/upload", _find_offset),
    Route("/machines", _enrol, methods=["POST"]),
    Route("/submit", _submit, methods=["POST"]),
]
