"""The requests that a served ledger answers.

    GET  /checkpoint                        the checkpoint
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
needs any, the rest one that may write. Requests that write or are refused are noted: see audit.py.
"""

import base64
import binascii
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from anyio import CapacityLimiter
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
from proctor.ledger.entry import AnyEntry, Subject
from proctor.ledger.machines import is_enrolment
from proctor.ledger.note import parse_verifier_key
from proctor.ledger.place import open_reader
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tiles import entry_bundle, parse_tile_path, tile_hashes
from proctor.ledger.withhold import withheld_digests
from proctor.serve.audit import AuditLog
from proctor.serve.intake import (
    Intake,
    RefusedError,
    Submitted,
    check_submission,
    decode_submission,
)
from proctor.serve.tokens import Token, Tokens
from proctor.serve.uploads import LARGEST_BODY, Part, Uploads
from proctor.serve.writer import Writer, enrol
from proctor.web.reviews import read_body

_API = ("/checkpoint", "/tile/", "/artifacts", "/machines", "/submit")
LARGEST_SUBMISSION = 32 << 20
"""Bytes of the entries in one request."""
_MOST_DIGESTS = 100_000
# For those without a token: a reader asks for one at a time.
_MOST_DIGESTS_PUBLIC = 100
# Bytes of a digest in a question, with quotes, comma and space, and some to spare.
_DIGEST_BYTES = 80
_MOST_DIGITS = 16
# Requests that write at the same time: their bodies are in memory.
_MOST_WRITING = 64
# Those of them that do more than wait.
_THREADS = 4
_BEARER = {"WWW-Authenticate": 'Basic realm="proctor", charset="UTF-8"'}
# Reading requests are noted only if they are refused.
_REFUSED = frozenset({401, 403, 413, 429})


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
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_THREADS))
    """For requests that write: others are read meanwhile."""
    n_writing: int = 0
    """Requests that are being received or handled, of those that write."""
    _local: threading.local = field(default_factory=threading.local)
    # Positions of the entries that withhold, and what they withhold.
    _withheld: tuple[list[int], set[str]] = field(default_factory=lambda: ([], set()))

    def withheld(self) -> set[str]:
        """Digests of evidence that the owner has withheld by now."""
        ledger = self.ledger()
        places = ledger.index.places("withhold")
        if places != self._withheld[0]:
            self._withheld = places, withheld_digests(ledger)
        return self._withheld[1]

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
        started = time.monotonic()
        status = 500

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._authorize(request)
            is_interface = _path_of(request).startswith(_API)
            with contextlib.nullcontext() if _is_reading(request) else self._writing():
                await (self._interface if is_interface else self._viewer)(scope, receive, sending)
        except HTTPException as error:
            await _say_refusal(request, error)(scope, receive, sending)
        finally:
            self._note(request, status, started)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Count a request that writes while it lasts."""
        if self._served.n_writing >= _MOST_WRITING:
            raise HTTPException(429, "too many requests", {"Retry-After": "1"})
        self._served.n_writing += 1
        try:
            yield
        finally:
            self._served.n_writing -= 1

    def _note(self, request: Request, status: int, started: float) -> None:
        now, state = time.monotonic(), request.scope.get("state", {})
        token: Token | None = state.get("token")
        facts = {
            "token": token.name if token else None,
            "address": request.client.host if request.client else "",
            "status": status,
            "method": request.method,
            "path": _path_of(request)[:200],
            "seconds": round(now - started, 3),
            **state.get("facts", {}),
        }
        if status in _REFUSED:
            self._served.audit.refuse(now, facts)
        elif not _is_reading(request):
            self._served.audit.write(now, facts)

    def _authorize(self, request: Request) -> None:
        """Find the token of a request."""
        served, given = self._served, _read_token(request)
        token = served.tokens.find(given) if given else None
        if token is None and served.is_public and _is_reading(request) and not given:
            token = Token(name="", sha256="")
        if token is None:
            what = "this token is not valid" if given else "a token is needed"
            raise HTTPException(401, what, _BEARER)
        request.scope.setdefault("state", {})["token"] = token
        if not token.may_write and not _is_reading(request):
            raise HTTPException(403, f"the token {token.name!r} may only read")


def _path_of(request: Request) -> str:
    # Not of `request.url`, which is made of the Host header too.
    path: str = request.scope["path"]
    return path


def _is_reading(request: Request) -> bool:
    return request.method in ("GET", "HEAD") or _path_of(request) == "/artifacts/missing"


def _read_token(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError, binascii.Error):
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        return "invalid"
    return None


def _say_refusal(request: Request, error: Exception) -> Response:
    status, headers = 500, {}
    if isinstance(error, HTTPException):
        status, headers = error.status_code, dict(error.headers or {})
    message = getattr(error, "detail", str(error))
    length = request.headers.get("content-length", "0")
    is_sized = "transfer-encoding" not in request.headers and length.isdecimal()
    if status == 413 or not is_sized or int(length[:20]) > LARGEST_SUBMISSION:
        # Else the rest of the body would be read, for as long as the client sends it.
        headers["Connection"] = "close"
    return JSONResponse({"message": message}, status, headers)


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
    _note(request, error=str(error)[:500])
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
# Caches ask again each time: evidence may be withheld.
_CHECKED = {"Cache-Control": "no-cache"}
# Hashes never change; lines may be withheld.
_FOREVER = {"Cache-Control": "max-age=604800, immutable"}


async def _tile(request: Request) -> Response:
    served = _served(request)
    try:
        tile = parse_tile_path(_path_of(request).removeprefix("/"))
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
    return FileResponse(path, media_type="application/zstd", headers=_CHECKED)


def _digest_of(request: Request) -> str:
    sha256: str = request.path_params["sha256"]
    if not is_digest(sha256):
        raise HTTPException(404, "not a SHA-256")
    return sha256


class _Missing(msgspec.Struct, frozen=True):
    artifacts: list[str]


async def _missing(request: Request) -> Response:
    most = _MOST_DIGESTS if _token(request).name else _MOST_DIGESTS_PUBLIC
    asked = _decode(await read_body(request, most * _DIGEST_BYTES), _Missing).artifacts
    if len(asked) > most:
        raise HTTPException(413, f"{len(asked):,} digests; at most {most:,}")
    served = _served(request)
    store = FileArtifacts(served.directory)

    def find() -> list[str]:
        found = [each for each in asked if not store.holds(each)]
        served.uploads.unreferenced.renew(set(asked) - set(found), time.time())
        return found

    return JSONResponse({"missing": await run_sync(find)})


async def _upload_small(request: Request) -> Response:
    served, token = _served(request), _token(request)
    uploads, body = served.uploads, await read_body(request, LARGEST_BODY)
    _note(request, bytes=len(body))
    await _remove_old(served)

    def store() -> int:
        try:
            return uploads.store_small(token.name, body, time.time(), served.withheld())
        finally:
            uploads.note()

    count = await run_sync(store, limiter=served.threads)
    _note(request, artifacts=count)
    return JSONResponse({"stored": count})


async def _remove_old(served: Served) -> None:
    """Remove uploads that were never submitted, now and then."""
    now = time.time()
    if served.uploads.unreferenced.is_due(now):
        await served.writer.run(lambda ledger: served.uploads.remove_old(ledger, now))


async def _find_offset(request: Request) -> Response:
    served, token, sha256 = _served(request), _token(request), _digest_of(request)
    (total,) = _read_numbers(request, "total")
    find = partial(served.uploads.find_offset, token.name, sha256, total)
    return JSONResponse({"offset": await run_sync(find, limiter=served.threads)})


async def _upload_part(request: Request) -> Response:
    served, token, sha256 = _served(request), _token(request), _digest_of(request)
    offset, size, total = _read_numbers(request, "offset", "size", "total")
    body = await read_body(request, LARGEST_BODY)
    _note(request, offset=offset, bytes=len(body))
    await _remove_old(served)
    part = Part(sha256, offset, size, total)

    def store() -> int:
        # Looked up only when the artifact may become complete: most parts are in between.
        withheld = served.withheld() if offset + len(body) == total else ()
        return served.uploads.store_part(token.name, part, body, time.time(), withheld)

    return JSONResponse({"offset": await run_sync(store, limiter=served.threads)})


def _read_numbers(request: Request, *names: str) -> list[int]:
    found = [_find_number(request, name) for name in names]
    if None in found:
        raise HTTPException(400, f"expected ?{'=N&'.join(names)}=N")
    return [number for number in found if number is not None]


class _Machine(msgspec.Struct, frozen=True):
    name: str
    key: str
    signature: str = ""


async def _enrol(request: Request) -> Response:
    served, asked = _served(request), _decode(await read_body(request), _Machine)
    if not is_enrolment(served.origin, asked.name, parse_verifier_key(asked.key), asked.signature):
        raise HTTPException(
            403, f"the request is not signed with the key that it names, for {served.origin}"
        )
    author = _token(request).name
    try:
        name = await served.writer.run(lambda ledger: enrol(ledger, asked.name, asked.key, author))
    except RefusedError as error:
        raise HTTPException(403, str(error)) from error
    _note(request, machine=name)
    return JSONResponse({"name": name})


async def _submit(request: Request) -> Response:
    served, token = _served(request), _token(request)
    body = await read_body(request, LARGEST_SUBMISSION)
    given = _find_number(request, "entries")
    n_bytes = len(body) if given is None else given
    _note(request, bytes=len(body))
    if n_bytes < len(body):
        await _remove_old(served)

    def check() -> tuple[list[AnyEntry], Submitted]:
        served.uploads.check_disk(len(body))
        entries = decode_submission(body[:n_bytes])
        if n_bytes < len(body):
            artifacts, withheld = body[n_bytes:], served.withheld()
            served.uploads.store_small(token.name, artifacts, time.time(), withheld)
        return entries, check_submission(entries, _open_intake(served, token))

    try:
        entries, submitted = await run_sync(check, limiter=served.threads)
        placed = await served.writer.submit(submitted)
        # Not what a trial names that was sealed before: it may have been withheld since.
        served.uploads.unreferenced.remove(
            file.sha256
            for trial, (_, is_new) in zip(submitted.trials, placed, strict=False)
            if is_new
            for file in trial.entry.evidence
        )
    except RefusedError as error:
        raise HTTPException(403, str(error)) from error
    finally:
        # What cannot be written to the list now is written with the next request.
        with contextlib.suppress(LedgerError):
            await run_sync(served.uploads.note, limiter=served.threads)
    signed = {each.signed.machine for each in entries if each.signed is not msgspec.UNSET}
    new = [seq for seq, is_new in placed if is_new]
    _note(request, machine=",".join(sorted(signed)), entries=len(entries), new=len(new))
    return JSONResponse({"entries": [{"seq": seq, "is_new": is_new} for seq, is_new in placed]})


def _open_intake(served: Served, token: Token) -> Intake:
    def is_sealed(subject: Subject) -> bool:
        found = served.ledger().find_sealed(subject.experiment_id, subject.trial_id)
        return found is not None

    return Intake(
        origin=served.origin,
        machines=served.writer.machines,
        artifacts=FileArtifacts(served.directory),
        may_submit=token.may_submit,
        is_sealed=is_sealed,
        finish=lambda files: served.uploads.finish(token.name, files, time.time()),
    )


def _find_number(request: Request, name: str) -> int | None:
    """A parameter, if it is a number: not one of many digits, which may become a file's name."""
    given = request.query_params.get(name, "")
    is_number = given.isascii() and given.isdecimal() and len(given) <= _MOST_DIGITS
    return int(given) if is_number else None


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
