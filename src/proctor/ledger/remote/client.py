"""Requests to a `proctor serve`, or to a web server with a published ledger, and their answers.

Nothing that a server answers is believed here: lines and evidence are checked by the caller, sizes
are limited on the way.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from proctor.backoff import find_retry_after
from proctor.errors import ConflictError, DamageError, LedgerError, NotSealedError
from proctor.files import read_head
from proctor.ledger.entry import LARGEST_ENTRY, Seq
from proctor.ledger.machines import sign_enrolment
from proctor.ledger.note import LARGEST_NOTE, Signer
from proctor.ledger.place import hide_secrets
from proctor.ledger.remote.connections import Connections, UnreachableError
from proctor.ledger.tiles import TILE, tile_path

PIECE = 2 << 20
"""Bytes of one request of an upload, at most: after an interruption, it is sent again."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LARGEST_ANSWER = 8 << 20
# Answers of a server or a proxy that may be different a moment later.
_PASSING = frozenset({429, 500, 502, 503, 504})
_TRIES = 4
_LONGEST_PAUSE = 10.0
_LARGEST_TOKEN = 4096
_LONGEST_MESSAGE = 2000


class PublishedError(LedgerError):
    """The ledger there is published: a copy in files, which takes nothing."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url}: published, read-only; seal into the ledger that it is published from"
        )


S3 = "s3://"
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_.=+@-]+)*/?")


def check_bucket_url(url: str) -> str:
    """The address of a bucket in the form that it is remembered by.

    Raises:
        LedgerError: it is not an address of a bucket.
    """
    parts = url.removeprefix(S3).split("/")
    if not _BUCKET.fullmatch(url) or {".", ".."} & set(parts):
        raise LedgerError(
            f"{hide_secrets(url)}: not the address of a bucket; expected s3://BUCKET/PREFIX"
        )
    return url.rstrip("/")


def check_url(url: str) -> str:
    """The address of a server in the form that it is remembered by.

    Raises:
        LedgerError: it is not an address, or one that is neither encrypted nor on this machine.
    """
    try:
        parts = urlsplit(url)
        # Not `username`, which is empty in https://:password@host.
        host, is_plain = parts.hostname or "", not (set("?#") & set(url) or "@" in parts.netloc)
        _ = parts.port
    except ValueError:
        host, is_plain, parts = "", False, urlsplit("")
    is_host = bool(host) and host.isprintable() and " " not in host
    if not is_host or not is_plain or parts.scheme not in ("http", "https"):
        raise LedgerError(
            f"{hide_secrets(url)}: not the address of a ledger; expected https://HOST[:PORT], and "
            "nothing secret in it: PROCTOR_TOKEN holds the token"
        )
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise LedgerError(
            f"{url}: tokens and evidence would cross the network unencrypted; expected https://"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def find_token(url: str, env: Mapping[str, str]) -> str | None:
    """The token for a server: PROCTOR_TOKEN, else the file proctor/tokens/HOST of the user.

    Raises:
        LedgerError: the file cannot be read, or others can read it.
    """
    if given := env.get("PROCTOR_TOKEN"):
        return given.strip()
    home = Path(env.get("HOME") or "~").expanduser()
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    path = config / "proctor" / "tokens" / urlsplit(url).netloc
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise LedgerError(
                f"{path}: others can read this token (mode {mode:04o}); chmod 600 {path}"
            )
        return read_head(str(path), _LARGEST_TOKEN).decode().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path}: the token cannot be read: {error}") from error


class Source(Protocol):
    """Where a copy is fetched from; nothing that it gives is believed."""

    @property
    def url(self) -> str:
        """Its address."""

    def close(self) -> None:
        """End the connection; the next request begins another."""

    def checkpoint(self) -> bytes:
        """The checkpoint that was signed last.

        Raises:
            UnreachableError: it cannot be reached.
            LedgerError: it refuses.
        """

    def lines(self, first: int, size: int) -> Iterator[bytes]:
        """The stored lines from `first` up to before `size`, without their newlines.

        `size` is that of the tree, or a multiple of 256: others need not be there.

        Raises:
            UnreachableError: it cannot be reached.
            DamageError: it sends something else.
            LedgerError: it refuses.
        """

    def save_artifact(self, sha256: str, target: BinaryIO, largest: int) -> None:
        """Write the compressed bytes of an artifact to a file.

        Raises:
            UnreachableError: it cannot be reached.
            DamageError: it does not have it, or sends more than `largest` bytes.
            LedgerError: it refuses.
        """

    def missing(self, digests: Sequence[str]) -> set[str]:
        """Which of these artifacts it does not have.

        Raises:
            UnreachableError: it cannot be reached.
            LedgerError: it refuses.
        """


def split_bundle(pieces: Iterable[bytes], width: int, where: str) -> Iterator[bytes]:
    """The lines of a bundle that arrives in pieces.

    Raises:
        DamageError: it has fewer or more lines, or one that is too long.
    """
    count, rest = 0, b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        count += len(whole)
        if count > width or len(rest) > LARGEST_ENTRY:
            break
        yield from whole
    if count != width or rest:
        raise DamageError(f"{where}: {count} lines and {len(rest)} bytes; expected {width} lines")


def save_pieces(pieces: Iterable[bytes], target: BinaryIO, largest: int, where: str) -> None:
    """Write what arrives in pieces to a file.

    Raises:
        DamageError: it is more than `largest` bytes.
    """
    n_bytes = 0
    for piece in pieces:
        n_bytes += len(piece)
        if n_bytes > largest:
            raise DamageError(f"{where}: more than {largest:,} bytes")
        target.write(piece)


class Acknowledged(msgspec.Struct, frozen=True):
    """What a server says of an entry that was submitted."""

    seq: Seq
    is_new: bool
    """False: the same trial, plan or supersession was there before."""


class _Submitted(msgspec.Struct, frozen=True):
    entries: list[Acknowledged]


class _Enrolled(msgspec.Struct, frozen=True):
    name: str


class _Missing(msgspec.Struct, frozen=True):
    missing: set[str]


class _Offset(msgspec.Struct, frozen=True):
    offset: Seq


class LedgerClient:
    """A connection to a server: a `Source`, and what takes submissions."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        if token and not (token.isascii() and token.isprintable()):
            raise LedgerError(f"{url}: its token has characters that no token has")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._connections = Connections(url, headers)

    def close(self) -> None:
        """End the connection; the next request begins another."""
        self._connections.close()

    def checkpoint(self) -> bytes:
        """The checkpoint that the server signed last."""
        return self._ask("GET", "/checkpoint", largest=LARGEST_NOTE)

    def lines(self, first: int, size: int) -> Iterator[bytes]:
        """The stored lines from `first` up to before `size`, without their newlines."""
        for number in range(first // TILE, -(-size // TILE)):
            begin, width = number * TILE, min(TILE, size - number * TILE)
            path = tile_path(None, number, width)
            with self._streaming(f"/{path}") as pieces:
                lines = split_bundle(pieces, width, f"{self.url}/{path}")
                for at, line in enumerate(lines, start=begin):
                    if at >= first:
                        yield line

    def save_artifact(self, sha256: str, target: BinaryIO, largest: int) -> None:
        """Write the compressed bytes of an artifact to a file: see `Source`."""
        path = f"/artifacts/sha256/{sha256}"
        with self._streaming(path) as pieces:
            save_pieces(pieces, target, largest, f"{self.url}{path}")

    @contextlib.contextmanager
    def _streaming(self, path: str) -> Iterator[Iterator[bytes]]:
        """The body of an answer, piece by piece."""
        with self._connections.ask("GET", path) as response:
            if response.status in _PASSING:
                raise UnreachableError(f"{self.url}: HTTP {response.status}")
            if response.status != HTTPStatus.OK:
                self._check(response, path, self._read(response, _LARGEST_ANSWER))
            yield self._connections.read(response)

    def enrol(self, name: str, key: Signer, origin: str) -> str:
        """Enrol this machine in a ledger; returns the name under which its key is known.

        Raises:
            UnreachableError: the server cannot be reached.
            LedgerError: it refuses.
        """
        asked = {
            "name": name,
            "key": str(key.verifier),
            "signature": sign_enrolment(origin, name, key),
        }
        return self._ask_json("/machines", asked, _Enrolled).name

    def missing(self, digests: Sequence[str]) -> set[str]:
        """Which of these artifacts the server does not have.

        Raises:
            UnreachableError: the server cannot be reached.
            LedgerError: it refuses.
        """
        try:
            asked = {"artifacts": list(digests)}
            found = self._ask_json("/artifacts/missing", asked, _Missing).missing
        except PublishedError:
            # A server of files answers for one at a time.
            found = set()
            for sha256 in digests:
                try:
                    self._ask("HEAD", f"/artifacts/sha256/{sha256}")
                except DamageError:
                    found.add(sha256)
        if not found <= set(digests):
            raise LedgerError(f"{self.url}: not an answer of proctor serve")
        return found

    def upload_small(self, bundle: bytes) -> None:
        """Upload artifacts that `pack_artifact` packed."""
        self._ask("POST", "/artifacts", content=bundle)

    def upload_large(self, sha256: str, size: int, total: int, source: BinaryIO) -> None:
        """Upload one artifact of `total` compressed bytes, from where an earlier upload ended.

        Raises:
            UnreachableError: the server cannot be reached.
            LedgerError: it refuses.
        """
        path, whole = f"/artifacts/sha256/{sha256}", {"total": str(total)}
        answer, left = self._ask("GET", f"{path}/upload", params=whole), _TRIES
        offset = self._read_offset(answer, total)
        while offset < total:
            source.seek(offset)
            given = {"offset": str(offset), "size": str(size), **whole}
            before = offset
            try:
                answer = self._ask("PUT", path, content=source.read(PIECE), params=given)
                offset = self._read_offset(answer, total)
            except NotSealedError:
                # Parts that an earlier version compressed otherwise do not fit: begin again.
                if before == 0 or left == 0:
                    raise
                offset = 0
            if offset <= before:
                left -= 1
            if left < 0:
                raise LedgerError(f"{self.url}: the upload of {sha256} does not advance")

    def submit(self, lines: Sequence[bytes], artifacts: bytes = b"") -> list[Acknowledged]:
        """Submit entries; returns where each is.

        `artifacts` are packed ones that the server stores first.

        Raises:
            UnreachableError: the server cannot be reached; it may have sealed them.
            NotSealedError: it refuses one, and has sealed none.
            ConflictError: a trial is sealed already with different bytes.
            LedgerError: it refuses to answer.
        """
        body = b"\n".join(lines) + b"\n"
        params = {"entries": str(len(body))} if artifacts else None
        found = self._ask("POST", "/submit", content=body + artifacts, params=params)
        places = self._parse(found, _Submitted).entries
        if len(places) != len(lines):
            raise LedgerError(f"{self.url}: not an answer of proctor serve")
        return places

    def _read_offset(self, body: bytes, total: int) -> int:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            if (offset := msgspec.json.decode(body, type=_Offset).offset) <= total:
                return offset
        raise LedgerError(f"{self.url}: the server does not say how far an upload is")

    def _ask_json[Answer](self, path: str, document: object, model: type[Answer]) -> Answer:
        answer = self._ask("POST", path, content=msgspec.json.encode(document))
        return self._parse(answer, model)

    def _parse[Answer](self, body: bytes, model: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(body, type=model)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise LedgerError(f"{self.url}: not an answer of proctor serve") from error

    def _ask(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: dict[str, str] | None = None,
        largest: int = _LARGEST_ANSWER,
    ) -> bytes:
        asked = f"{path}?{urlencode(params)}" if params else path
        why = ""
        for attempt in range(_TRIES):
            with self._connections.ask(method, asked, content) as response:
                body = self._read(response, largest)
            if response.status not in _PASSING:
                self._check(response, path, body)
                return body
            why = _read_message(body) or f"HTTP {response.status}"
            if attempt < _TRIES - 1:
                asked_sec = find_retry_after(response.headers, datetime.now(UTC))
                backoff_sec = 0.25 * 2**attempt
                time.sleep(backoff_sec if asked_sec is None else min(asked_sec, _LONGEST_PAUSE))
        raise UnreachableError(f"{self.url}: {why}")

    def _read(self, response: HTTPResponse, largest: int) -> bytes:
        found = bytearray()
        for piece in self._connections.read(response):
            found += piece
            if len(found) > largest:
                raise LedgerError(f"{self.url}: an answer of more than {largest:,} bytes")
        return bytes(found)

    def _check(self, response: HTTPResponse, path: str, body: bytes) -> None:
        url, status = self.url, response.status
        if status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            return
        said = _read_message(body)
        if status == HTTPStatus.CONFLICT:
            raise ConflictError(f"{url}: {said}")
        # After the machine was enrolled, a token may still not write to the experiment of an entry.
        is_forbidden = status == HTTPStatus.FORBIDDEN and path == "/submit" and bool(said)
        if status == HTTPStatus.UNPROCESSABLE_ENTITY or is_forbidden:
            raise NotSealedError(f"{url}: {said}")
        if status == HTTPStatus.NOT_FOUND:
            raise DamageError(f"{url}{path}: {said or 'not found'}")
        if status in (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED):
            raise PublishedError(url)
        if status == HTTPStatus.UNAUTHORIZED:
            raise LedgerError(
                f"{url}: {said or 'a token is needed'}; PROCTOR_TOKEN or the file "
                f"~/.config/proctor/tokens/{urlsplit(url).netloc} holds it"
            )
        raise LedgerError(f"{url}: {said or f'HTTP {status}: not an answer of proctor serve'}")


def pack_artifact(sha256: str, size: int, compressed: bytes) -> bytes:
    """An artifact in a body that carries several: digest, two sizes in hex, compressed bytes."""
    return b"%s%016x%016x%s" % (sha256.encode(), size, len(compressed), compressed)


def _read_message(body: bytes) -> str:
    """The sentence in a refusal; empty if there is none."""
    try:
        message = msgspec.json.decode(body, type=dict[str, Any]).get("message") or ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message = ""
    shown = str(message)[:_LONGEST_MESSAGE]
    return "".join(char if char.isprintable() else " " for char in shown)
