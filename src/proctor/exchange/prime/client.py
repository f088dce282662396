"""Prime's API: its address and key, requests with retries, and an evaluation with its samples.

    key    PRIME_API_KEY, else `api_key` of ~/.prime/config.json
    URL    --base-url, else PRIME_API_BASE_URL, PRIME_BASE_URL, `base_url` of the file, else Prime's

The key is never shown. Retried: no connection, a time-out, 408, 425, 429, 5xx, a truncated answer,
with the waits of `backoff`. A redirect is followed only within the same origin, so that the key is
not sent elsewhere. A response is read up to a limit and never decompressed: a few compressed bytes
can expand without bound.
"""

import os
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from proctor.agents.chat.endpoint import clean, find_reason, read_refusal
from proctor.backoff import find_retry_after, find_wait
from proctor.errors import PrimeError
from proctor.exchange.prime.listing import Evaluation, Listing, Page, parse_evaluation, parse_page
from proctor.exchange.prime.sample import parse_json
from proctor.files import read_small
from proctor.sentence import count_of, reason_of, render_duration, shown
from proctor.traces.entry import Object

KEY_VARIABLE: Final = "PRIME_API_KEY"
URL_VARIABLES: Final = ("PRIME_API_BASE_URL", "PRIME_BASE_URL")
DEFAULT_URL: Final = "https://api.primeintellect.ai"
_PATH: Final = "/api/v1"
# What an HTTP header can carry.
_KEY = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Access:
    """Address of the API, and the key for it."""

    url: str
    """Prefix of all paths of the API."""
    key: str = field(repr=False)
    key_from: str
    """The variable or file that the key was read from."""


class _Config(msgspec.Struct, frozen=True):
    """The fields we need of the file that `prime login` writes."""

    api_key: str | None = None
    base_url: str | None = None


def find_access(given_url: str | None, variables: Mapping[str, str], home: Path) -> Access:
    """Find the API's address and key.

    Raises:
        PrimeError: there is no key, or the key or URL is invalid.
    """
    file = home / ".prime" / "config.json"
    config = _load_config(file)
    key, key_from = variables.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
    if not key:
        key, key_from = (config.api_key or "").strip(), str(file)
    if not key:
        raise PrimeError(
            f"no key for Prime: {KEY_VARIABLE} is not set, and {file} has none; set the variable, "
            "or import saved files with --evaluation-json and --samples-json"
        )
    if not _KEY.fullmatch(key):
        raise PrimeError(
            f"{key_from}: the key has blanks or characters beyond ASCII; expected it as Prime "
            "gave it"
        )
    return Access(_find_url(given_url, variables, config), key, key_from)


def _find_url(given: str | None, variables: Mapping[str, str], config: _Config) -> str:
    named = [
        ("--base-url", given),
        *((name, variables.get(name)) for name in URL_VARIABLES),
        ("base_url", config.base_url),
    ]
    where, url = next(((name, text) for name, text in named if text), ("", DEFAULT_URL))
    url = url.strip().rstrip("/").removesuffix(_PATH)
    if not _is_base(url):
        shown = re.sub(r"//[^/]*@", "//…@", url)
        raise PrimeError(
            f"{where} is {shown!r}; expected a URL such as {DEFAULT_URL}, without a user, a "
            "password or a query"
        )
    return url + _PATH


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if the port is invalid
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    named = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_plain and named and "@" not in parts.netloc and not parts.query and not parts.fragment


def _load_config(file: Path) -> _Config:
    try:
        return msgspec.json.decode(read_small(os.fspath(file)), type=_Config)
    except (FileNotFoundError, NotADirectoryError):
        return _Config()
    except OSError as error:
        raise PrimeError(f"{file}: cannot be read: {reason_of(error)}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PrimeError(
            f"{file}: not in the format of `prime login`: {error}; repair or remove it"
        ) from error


LARGEST: Final = 256 << 20
"""Largest response in bytes."""
_LARGEST_REFUSAL: Final = 64 << 10
_MOST_REDIRECTS: Final = 5
_OK: Final = 200
_NOT_FOUND: Final = 404
# Temporary refusals, which are retried.
_PASSING: Final = frozenset({408, 425, 429})
_NO_ENTRY: Final = frozenset({401, 403})

type Params = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests."""

    timeout_sec: float = 60.0
    """Time limit of one attempt in seconds, including its response."""
    retries: int = 5
    """How often one request is repeated."""
    largest: int = LARGEST
    """Largest response in bytes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Time and randomness; tests replace them."""

    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    """Returns a number from 0 to 1."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ticks: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class _Failed:
    """An attempt without a usable response."""

    said: str
    is_passing: bool
    retry_after: float | None = None
    """Seconds to wait, as Prime requests."""
    is_nothing: bool = False
    """Whether the resource does not exist."""


@dataclass(frozen=True, slots=True)
class Client:
    """Client of the API."""

    http: httpx.Client
    access: Access
    limits: Limits
    pace: Pace
    log: Callable[[str], None]
    """Called with the reason for a delay."""

    def find(self, path: str, params: Params | None = None) -> Object | None:
        """Request an object; None if it does not exist.

        Raises:
            PrimeError: there is no response, or it is not an object.
        """
        shown = self.access.url + path
        for n_tries in count(1):
            came = self._try(shown, params)
            if not isinstance(came, _Failed):
                return came
            if came.is_nothing:
                return None
            if not came.is_passing or n_tries > self.limits.retries:
                often = f" (tried {count_of(n_tries, 'time')})" if n_tries > 1 else ""
                raise PrimeError(f"{shown}: {came.said}{often}")
            wait = find_wait(came.retry_after, n_tries, self.pace.chance())
            self.log(
                f"{shown}: {came.said}; trying again in {render_duration(wait)} "
                f"({n_tries} of {self.limits.retries})"
            )
            self.pace.sleep(wait)
        raise AssertionError  # count has no end

    def _try(self, url: str, params: Params | None) -> Object | _Failed:
        deadline = self.pace.ticks() + self.limits.timeout_sec
        target = httpx.URL(url, params=params)
        try:
            for _ in range(_MOST_REDIRECTS):
                with self.http.stream("GET", target) as response:
                    if response.next_request is None:
                        return self._judge(response, deadline)
                    there = response.next_request.url
                if _origin(there) != _origin(target):
                    return _sent_away(there)
                target = there
        except httpx.TimeoutException:
            return _Failed(_late(self.limits.timeout_sec), is_passing=True)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            return _judge_breakdown(error)
        return _Failed(f"it redirects more than {_MOST_REDIRECTS} times", is_passing=False)

    def _judge(self, response: httpx.Response, deadline: float) -> Object | _Failed:
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("", "identity"):
            said = f"the response is compressed ({clean(packed)}); expected it uncompressed"
            return _Failed(said, is_passing=False)
        is_answer = response.status_code == _OK
        most = self.limits.largest if is_answer else _LARGEST_REFUSAL
        data = self._read(response, most, deadline)
        if data is None:
            return _Failed(_late(self.limits.timeout_sec), is_passing=True)
        if not is_answer:
            return self._judge_refusal(response, data[:most])
        if len(data) > most:
            said = f"the response has more than {most:,} bytes; request fewer with --page-size"
            return _Failed(said, is_passing=False)
        return _parse(data)

    def _read(self, response: httpx.Response, most: int, deadline: float) -> bytes | None:
        """Read a body up to one byte more than allowed; None if the time is over."""
        data = bytearray()
        for piece in response.iter_raw():
            data += piece
            if len(data) > most:
                break
            if self.pace.ticks() > deadline:
                return None
        return bytes(data[: most + 1])

    def _judge_refusal(self, response: httpx.Response, body: bytes) -> _Failed:
        status = response.status_code
        # The service may echo the key in its error message.
        said = read_refusal(body.replace(self.access.key.encode(), b"[redacted]"))
        shown = f"HTTP {status}: {said or 'no reason given'}"
        if status in _NO_ENTRY:
            advice = (
                f"is the key of {self.access.key_from} still valid, and may it read this "
                f"evaluation? Set {KEY_VARIABLE} to one that may"
            )
            return _Failed(f"{shown}; {advice}", is_passing=False)
        waits = find_retry_after(response.headers, self.pace.now())
        is_passing = status in _PASSING or status >= 500
        return _Failed(shown, is_passing, waits, is_nothing=status == _NOT_FOUND)


@contextmanager
def open_client(
    access: Access, limits: Limits, log: Callable[[str], None], pace: Pace | None = None
) -> Iterator[Client]:
    """Yield a client, and close its connections afterwards.

    Raises:
        PrimeError: the variables for proxies or certificates cannot be used.
    """
    headers = {"authorization": f"Bearer {access.key}", "accept-encoding": "identity"}
    try:
        http = httpx.Client(timeout=limits.timeout_sec, headers=headers, follow_redirects=False)
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        raise PrimeError(
            f"{access.url}: cannot be requested: {clean(str(error))}; are the variables for "
            "proxies (such as ALL_PROXY) and certificates (such as SSL_CERT_FILE) right?"
        ) from error
    with http:
        yield Client(http, access, limits, pace or Pace(), log)


def _parse(data: bytes) -> Object | _Failed:
    begin = clean(data[:80].decode(errors="replace"))
    try:
        found = parse_json(data, "the response")
    except PrimeError as error:
        # A truncated response may be complete next time; an HTML page will not turn into JSON.
        is_torn = data.lstrip()[:1] in (b"{", b"[", b"")
        return _Failed(f"{error}; it begins with {begin!r}; is the URL right?", is_passing=is_torn)
    if not isinstance(found, dict):
        return _Failed(f"the response is {begin!r}; expected an object", is_passing=False)
    return found


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _sent_away(there: httpx.URL) -> _Failed:
    place = clean(f"{there.scheme}://{there.netloc.decode(errors='replace')}")
    said = f"it redirects to {place}, where the key is not sent; pass that as --base-url"
    return _Failed(f"{said}, if it is trusted", is_passing=False)


def _late(seconds: float) -> str:
    return f"no complete response after {seconds:g} s (--timeout)"


def _judge_breakdown(error: Exception) -> _Failed:
    """Judge a connection that failed or was cut off."""
    reason = clean(find_reason(error)) or type(error).__name__
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        return _Failed(f"cannot be requested: {reason}", is_passing=False)
    if isinstance(error, httpx.ConnectError):
        said = f"no connection: {reason}; is the network up, and the URL right?"
        # An untrusted certificate will not become trusted by retrying.
        return _Failed(said, "CERTIFICATE_VERIFY_FAILED" not in reason)
    return _Failed(f"the connection was cut off: {reason}", is_passing=True)


PAGE_SIZE: Final = 100
LARGEST_PAGE: Final = 1000
"""Most samples that Prime returns in one page."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def ask_evaluation(client: Client, evaluation_id: str) -> Evaluation:
    """Request an evaluation by id.

    Raises:
        PrimeError: it does not exist, or Prime does not respond.
    """
    if not _ID.fullmatch(evaluation_id):
        raise PrimeError(
            f"EVAL_ID is {shown(evaluation_id)}; expected the id of an evaluation, such as "
            "`prime eval list` shows: letters, digits, . _ -"
        )
    path = f"/evaluations/{evaluation_id}"
    found = client.find(path)
    if found is None:
        raise PrimeError(
            f"{client.access.url}{path}: there is no evaluation {evaluation_id!r}, or none "
            f"that the key of {client.access.key_from} may read; see `prime eval list`"
        )
    return parse_evaluation(found, client.access.url + path, evaluation_id)


def list_samples(
    client: Client, asked: str, evaluation: Evaluation, page_size: int = PAGE_SIZE
) -> Listing:
    """List the samples of an evaluation, requested under `asked`, page by page."""
    pages = _Pages(client, f"/evaluations/{asked}/samples", page_size)
    return Listing(pages.find, evaluation.n_samples)


@dataclass(frozen=True, slots=True)
class _Pages:
    client: Client
    path: str
    size: int

    def find(self, number: int) -> Page | None:
        found = self.client.find(self.path, {"page": number, "limit": self.size})
        where = f"{self.client.access.url}{self.path}: page {number}"
        if found is None and number == 1:
            raise PrimeError(f"{where}: it does not exist")
        # Some servers answer a page after the last one with 404, some with an empty page.
        return None if found is None else parse_page(found, where, self.size)
