"""Requests to a registry: authentication, redirects, retries and limits.

Credentials and tokens go to the registry and to the token server that it names, never to a host to
which it redirects. Only loopback is contacted over plain HTTP, and hosts that the user named in
registries.toml. Blocks; several threads may share a client, and another thread may stop it.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from weakref import WeakSet

import httpx
import msgspec

from proctor import __version__
from proctor.backoff import find_retry_after
from proctor.environments.sandbox.roots.registry.configuration import (
    Credentials,
    Endpoint,
    find_credentials,
    is_loopback,
)
from proctor.errors import RegistryError, UnreachableRegistryError
from proctor.sentence import printable, reason_of, render_limit, shown, without_number

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
# Answers that may be different a moment later.
_PASSING = frozenset({429, 500, 502, 503, 504})
_LONGEST_WAIT = 10.0
_LARGEST_ANSWER = 1 << 20
_LARGEST_REASON = 1 << 14
_PROXIES = frozenset({"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
_CERTIFICATES = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"})
_LOGIN = re.compile(r"(?<=//)[^/]*@")
# What is raised for an address: parts of a host's name may not be empty, or longer than 63 letters.
_NO_ADDRESS = (httpx.InvalidURL, ValueError)
_CHALLENGE = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a registry is waited for."""

    connect_seconds: float = 10.0
    piece_seconds: float = 30.0
    """Time between two pieces of an answer."""
    document_seconds: float = 120.0
    """Time until a whole document has arrived."""
    waits: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Seconds before each new try, if the one before failed in a way that may pass."""


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Problems(msgspec.Struct, frozen=True):
    errors: list[_Problem] = []


class StoppedError(Exception):
    """The pull was cancelled."""


class RegistryClient:
    """One repository of a registry."""

    def __init__(self, endpoint: Endpoint, env: Mapping[str, str], patience: Patience) -> None:
        """Connect to nothing yet."""
        self.endpoint = endpoint
        self._env = env
        self._patience = patience
        try:
            self._own = httpx.URL(endpoint.url)
            self._is_here = is_loopback(self._own.host)
        except _NO_ADDRESS as error:
            raise self._strange(f"is not the name of a host: {error}") from error
        self._authorization: str | None = None
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock_sockets = threading.Lock()
        # No proxy for this machine.
        self._http = self._make_http(trust_env=not self._is_here)

    def _make_http(self, *, trust_env: bool) -> httpx.Client:
        """Make the HTTP client, which reads the variables of proxies and certificates."""
        try:
            return httpx.Client(
                timeout=httpx.Timeout(
                    self._patience.piece_seconds, connect=self._patience.connect_seconds, pool=None
                ),
                follow_redirects=False,
                trust_env=trust_env,
                headers={"User-Agent": f"proctor/{__version__}", "Accept-Encoding": "identity"},
            )
        except ImportError as error:
            raise self._strange(
                f"{self._name_set(_PROXIES)}: a SOCKS proxy is not supported; expected "
                "http://HOST:PORT"
            ) from error
        except OSError as error:
            raise self._strange(
                f"{self._name_set(_CERTIFICATES)}: cannot be used: {reason_of(error)}"
            ) from error
        except _NO_ADDRESS as error:
            raise self._strange(
                f"{self._name_set(_PROXIES)}: cannot be used: {error}; expected http://HOST:PORT, "
                "and names of hosts in NO_PROXY"
            ) from error

    def _name_set(self, names: Iterable[str]) -> str:
        """The variables of these names that are set, without passwords in them."""
        found = [(name, value) for name, value in self._env.items() if name.upper() in names]
        return ", ".join(
            f"{name}={_LOGIN.sub('…@', printable(value))}" for name, value in sorted(found) if value
        )

    def __enter__(self) -> Self:
        """Use it in a `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self._http.close()

    def stop(self) -> None:
        """Make requests of other threads end now, and all later ones: they raise StoppedError."""
        self._is_stopped.set()
        with self._lock_sockets:
            for one in self._sockets:
                _cut(one)

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        """Remember a connection, to cut it if the client is stopped."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            found = info["return_value"].get_extra_info("socket")
            with self._lock_sockets:
                self._sockets.add(found)
            if self._is_stopped.is_set():
                _cut(found)

    def wait(self, seconds: float) -> None:
        """Wait, unless the client is stopped.

        Raises:
            StoppedError: it is.
        """
        if self._is_stopped.wait(seconds):
            raise StoppedError

    def read(self, path: str, headers: Mapping[str, str], largest: int) -> tuple[bytes, str]:
        """Read a small document; return also its media type.

        Raises:
            RegistryError: it does not exist, is too large, or cannot be read.
        """
        for wait in (*self._patience.waits, None):
            try:
                with self.get(path, headers) as response:
                    data = self._read_limited(response, largest)
                    kind = str(response.headers.get("content-type", ""))
                    return data, kind.partition(";")[0].strip()
            except httpx.TransportError as error:
                if wait is None:
                    raise self.unreachable(error) from error
                self.wait(wait)
        raise AssertionError("the last round returns or raises")

    @contextmanager
    def get(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Open `/v2/<repository>/<path>`, of which the caller reads the raw bytes.

        Raises:
            RegistryError: the registry refuses, or cannot be reached.
            httpx.TransportError: the connection broke while it was read.
        """
        url = f"{self.endpoint.url}/v2/{self.endpoint.repository}/{path}"
        used = self._authorization
        response = self._repeat(lambda: self._send(url, headers, used))
        # A host to which the registry redirects must not name a token server: it would get the
        # credentials.
        if response.status_code == 401 and _origin(response.url) == _origin(self._own):
            challenges = response.headers.get_list("www-authenticate")
            response.close()
            self._authorize(challenges, used)
            response = self._repeat(lambda: self._send(url, headers, self._authorization))
        try:
            if response.status_code not in (200, 206):
                raise self._refusal(response, path)
            yield response
        finally:
            response.close()

    def unreachable(self, error: Exception) -> UnreachableRegistryError:
        """Return the error for a registry with which nothing can be exchanged."""
        reason = printable(without_number(str(error)) or type(error).__name__)
        return UnreachableRegistryError(f"{self.endpoint.host}: cannot be reached: {reason}")

    def _repeat(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Send a request until it is answered otherwise than by a failure that may pass."""
        for wait in self._patience.waits:
            response = send()
            if response.status_code not in _PASSING:
                return response
            response.close()
            asked = find_retry_after(response.headers, datetime.now(UTC)) or 0.0
            self.wait(min(_LONGEST_WAIT, max(wait, asked)))
        return send()

    def _send(
        self, url: str, headers: Mapping[str, str], authorization: str | None
    ) -> httpx.Response:
        """Send a request, and follow redirects without credentials."""
        target = httpx.URL(url)
        for _ in range(_MOST_REDIRECTS + 1):
            sent = dict(headers)
            if authorization is not None and _origin(target) == _origin(self._own):
                sent["Authorization"] = authorization
            response = self._open(self._http.build_request("GET", target, headers=sent))
            if response.status_code not in _REDIRECTS:
                return response
            location = response.headers.get("location", "")
            response.close()
            try:
                target = target.join(location)
                self._check_address(target, "redirects to")
            except _NO_ADDRESS as error:
                raise self._strange(
                    f"redirects to {shown(location)}, which is no address"
                ) from error
        raise self._strange(f"redirects more than {_MOST_REDIRECTS} times")

    def _open(self, request: httpx.Request) -> httpx.Response:
        request.extensions["trace"] = self._note_socket
        for wait in (*self._patience.waits, None):
            self.wait(0)
            try:
                return self._http.send(request, stream=True)
            except httpx.TransportError as error:
                # A host that cannot be connected to is not there; others may have had enough.
                is_there = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if wait is None or not is_there:
                    raise self.unreachable(error) from error
                self.wait(wait)
            except _NO_ADDRESS as error:
                where = shown(request.url.netloc.decode("ascii", "replace"))
                raise self._strange(
                    f"a request to {where} cannot be made: {error}; expected the name of a host, "
                    "also of proxies and in redirects"
                ) from error
        raise AssertionError("the last round returns or raises")

    def _check_address(self, target: httpx.URL, what: str) -> None:
        """Check an address that the registry named."""
        where = f"{target.scheme}://{target.host}"
        is_own = _origin(target) == _origin(self._own)
        is_there_here = is_loopback(target.host)
        if target.userinfo or target.scheme not in ("http", "https") or not target.host:
            raise self._strange(f"{what} {shown(where)}; expected https://HOST/…; refused")
        if is_there_here and not self._is_here:
            raise self._strange(f"{what} {shown(where)}, which is this machine; refused")
        if target.scheme == "http" and not (is_own or is_there_here):
            raise self._strange(
                f"{what} {shown(where)}, which is not encrypted; expected https://; refused"
            )

    def _authorize(self, challenges: list[str], used: str | None) -> None:
        """Get what the registry asks for, unless another thread did meanwhile."""
        with self._lock:
            if self._authorization != used:
                return
            credentials = find_credentials(self.endpoint.host, self._env)
            for challenge in challenges:
                scheme, _, rest = challenge.strip().partition(" ")
                if scheme.lower() == "bearer":
                    self._authorization = self._fetch_token(rest, credentials)
                    return
                if scheme.lower() == "basic" and credentials is not None and credentials.user:
                    self._authorization = credentials.basic
                    return
            # Without credentials, the second request is refused, with the registry's reason.

    def _fetch_token(self, challenge: str, credentials: Credentials | None) -> str:
        said = dict(_CHALLENGE.findall(challenge))
        try:
            realm = httpx.URL(said.get("realm", ""))
            self._check_address(realm, "names the token server")
        except _NO_ADDRESS as error:
            raise self._strange("names a token server that is no address") from error
        # Only this right, whatever the registry proposes.
        asked = {
            "service": said.get("service", ""),
            "scope": f"repository:{self.endpoint.repository}:pull",
        }
        if credentials is not None and credentials.token:
            form = {
                **asked,
                "grant_type": "refresh_token",
                "client_id": "proctor",
                "refresh_token": credentials.token,
            }
            request = self._http.build_request("POST", realm, data=form)
        else:
            headers = {"Authorization": credentials.basic} if credentials is not None else {}
            address = realm.copy_merge_params(dict(asked))
            request = self._http.build_request("GET", address, headers=headers)
        response = self._repeat(lambda: self._open(request))
        try:
            if response.status_code != 200:
                raise self._refused_token(response, realm, credentials)
            data = self._read_limited(response, _LARGEST_ANSWER)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        finally:
            response.close()
        try:
            found = msgspec.json.decode(data, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._strange("has a token server whose answer is not JSON") from error
        token = found.token or found.access_token
        if not _TOKEN.fullmatch(token):
            raise self._strange("has a token server that sends no token")
        return f"Bearer {token}"

    def _refused_token(
        self, response: httpx.Response, realm: httpx.URL, credentials: Credentials | None
    ) -> RegistryError:
        who = "without a user"
        if credentials and credentials.token:
            who = "the identity token of the login"
        elif credentials and credentials.user:
            who = f"as {shown(credentials.user)}"
        return RegistryError(
            f"{self.endpoint.host}: its token server {realm.host} refuses {who}, with status "
            f"{response.status_code}; log in with `docker login {self.endpoint.host}`, or correct "
            "~/.docker/config.json"
        )

    @property
    def _is_logged_in(self) -> bool:
        """Whether a user and a password were sent."""
        return (self._authorization or "").startswith("Basic ")

    def _refusal(self, response: httpx.Response, path: str) -> RegistryError:
        host, repository = self.endpoint.host, self.endpoint.repository
        # Return what the registry says about a refusal, to end a sentence; empty if nothing.
        try:
            problems = msgspec.json.decode(
                self._read_limited(response, _LARGEST_REASON), type=_Problems
            )
        except (RegistryError, httpx.TransportError, msgspec.DecodeError, UnicodeDecodeError):
            said = ""
        else:
            said = next((one.message or one.code for one in problems.errors), "")
            said = f" ({shown(said)})" if said else ""
        if response.status_code == 404:
            kind, _, version = path.partition("/")
            what = "image" if kind == "manifests" else "layer"
            return RegistryError(f"{host}: has no {what} {version} in {repository}{said}")
        if response.status_code in (401, 403) and self._is_logged_in:
            return RegistryError(
                f"{host}: refuses access to {repository} with the login in ~/.docker/config.json"
                f"{said}; correct it with `docker login {host}`"
            )
        if response.status_code in (401, 403):
            return RegistryError(
                f"{host}: refuses access to {repository}{said}; if it exists, log in with "
                f"`docker login {host}`: proctor reads ~/.docker/config.json"
            )
        if response.status_code in _PASSING:
            return UnreachableRegistryError(
                f"{host}: answers with status {response.status_code}{said}; try again later"
            )
        return self._strange(f"answers with status {response.status_code}{said}")

    def _read_limited(self, response: httpx.Response, largest: int) -> bytes:
        data = bytearray()
        seconds = self._patience.document_seconds
        until = time.monotonic() + seconds
        for piece in response.iter_raw():
            data += piece
            if time.monotonic() > until:
                raise UnreachableRegistryError(
                    f"{response.url.host}: a document took more than {seconds:.0f} seconds; "
                    "try again later"
                )
            if len(data) > largest:
                raise RegistryError(
                    f"{response.url.host}: sends a document of more than {render_limit(largest)}; "
                    "refused"
                )
        return bytes(data)

    def _strange(self, what: str) -> RegistryError:
        return RegistryError(f"{self.endpoint.host}: {what}")


def _cut(connection: socket.socket) -> None:
    """End a connection; a thread that waits for it goes on, which closing does not do."""
    # It may be closed already. One of TLS has a method that would change it for its thread.
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host.lower(), url.port or default
