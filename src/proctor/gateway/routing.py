"""Decides where a request to the gateway goes: whose it is, to which provider, with what headers.

A token names the account. It stands where clients put their key, or in the path for clients that
take only a base URL: /t/TOKEN/openai/v1/…. There is no way to any other host.

Tokens are looked up in a dict: 192 random bits cannot be guessed from the time that takes, because
only tokens with the same keyed hash are compared at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from proctor.gateway.account import Account
from proctor.gateway.exchange import Wire
from proctor.gateway.upstream import OPTION, Upstream
from proctor.gateway.wire import find_wire

METHODS: Final = frozenset({"GET", "POST", "DELETE"})
_IN_PATH: Final = "/t/"
_BEARER: Final = "bearer "
_KEYS: Final = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
# Headers of one connection, of the client's own way here, or with credentials.
_NOT_SENT: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "host", "content-length", "accept-encoding", "expect", "cookie", "forwarded"),
        *("via", "proxy-authorization", "x-goog-user-project", "x-http-method-override", *_KEYS),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"),
    }
)
_NOT_RETURNED: Final = frozenset(
    {
        *(
            "connection",
            "keep-alive",
            "proxy-connection",
            "transfer-encoding",
            "trailer",
            "upgrade",
        ),
        *("set-cookie", "alt-svc", "proxy-authenticate"),
    }
)
# Names by which providers take a credential from the query.
_KEY_NAMES: Final = frozenset(
    {"key", "$key", "api_key", "api-key", "apikey", "access_token", "oauth_token", "authorization"}
)


@dataclass(frozen=True, slots=True)
class Route:
    """A request that may be sent on."""

    account: Account
    upstream: Upstream
    method: str
    path: str
    """Path below the provider's origin, with the query."""
    url: str
    wire: Wire | None
    headers: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is not sent on."""

    status: int
    code: str
    message: str
    wire: Wire | None = None


def find_route(scope: Mapping[str, object], accounts: Mapping[str, Account]) -> Route | Refusal:
    """Find the account and the provider of a request."""
    raw, method = scope["raw_path"], str(scope["method"])
    path = (raw if isinstance(raw, bytes) else b"").decode("latin-1")
    wire = find_wire(method, path)
    if method not in METHODS or not path.startswith("/"):
        return Refusal(
            405,
            "not_a_proxy",
            "this is not a proxy: expected GET, POST or DELETE of a path of a provider",
            wire,
        )
    headers = _read_headers(scope["headers"])
    query = _read_query(scope["query_string"])
    token, path = _find_token(path, headers, query)
    account = accounts.get(token)
    if account is None or not account.is_open:
        why = "is not known" if account is None else "has ended: its phase is over"
        if account is not None:
            account.note_late()
        return Refusal(
            401,
            "invalid_token",
            f"the token of this request {why}; use the variables "
            "of the trial's environment as they are",
            wire,
        )
    name, _, rest = path[1:].partition("/")
    upstream = account.upstreams.get(name)
    if upstream is None:
        known = ", ".join(account.upstreams)
        return Refusal(
            404,
            "unknown_provider",
            f"no provider {name!r} behind this gateway (there is {known}); name it with {OPTION}",
            wire,
        )
    kept = "&".join(part for part in query if not _is_key(part))
    url = upstream.find_url(f"/{rest}", kept)
    if url is None:
        return Refusal(404, "unknown_path", f"/{rest} is not below {upstream.shown}", wire)
    below = url.removeprefix(upstream.origin)
    return Route(account, upstream, method, below, url, wire, tuple(_send(headers, upstream)))


def _read_headers(pairs: object) -> list[tuple[str, bytes]]:
    given = pairs if isinstance(pairs, Iterable) else ()
    return [(name.decode("latin-1").lower(), value) for name, value in given]


def _read_query(query: object) -> list[str]:
    text = query.decode("latin-1") if isinstance(query, bytes) else ""
    return [part for part in text.split("&") if part]


def _is_key(part: str) -> bool:
    return unquote_plus(part.partition("=")[0]).strip().lower() in _KEY_NAMES


def _find_token(path: str, headers: list[tuple[str, bytes]], query: list[str]) -> tuple[str, str]:
    """Return the token, and the path without it."""
    if path.startswith(_IN_PATH):
        token, _, rest = path.removeprefix(_IN_PATH).partition("/")
        return token, f"/{rest}"
    for name, raw in headers:
        if name in _KEYS:
            value = raw.decode("latin-1")
            is_bearer = value.lower().startswith(_BEARER)
            return (value[len(_BEARER) :] if is_bearer else value).strip(), path
    return next((part.partition("=")[2] for part in query if _is_key(part)), ""), path


def _send(
    headers: Iterable[tuple[str, bytes]], upstream: Upstream
) -> Iterable[tuple[bytes, bytes]]:
    given = list(headers)
    # Headers that the client says are for this connection only.
    named = (value.decode("latin-1").lower() for name, value in given if name == "connection")
    own = {name.strip() for value in named for name in value.split(",")}
    for name, value in given:
        if name not in _NOT_SENT and name not in own:
            yield name.encode("latin-1"), value
    # Plain text: what is recorded and counted has to be read.
    yield b"accept-encoding", b"identity"
    if upstream.key is not None:
        name, text = upstream.provider.authorize(upstream.key)
        yield name.encode(), text.encode()


def select_returned(
    headers: Iterable[tuple[bytes, bytes]], *, is_same_length: bool
) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer that the client gets."""
    named = [(name.decode("latin-1").lower(), (name, value)) for name, value in headers]
    left_out = set(_NOT_RETURNED)
    # With both, the length is not the one that counts.
    if not is_same_length or any(name == "transfer-encoding" for name, _ in named):
        left_out.add("content-length")
    return [pair for name, pair in named if name not in left_out]
