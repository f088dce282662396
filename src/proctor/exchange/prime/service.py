"""Prime's evaluations and their samples, from its API or from files that `prime` wrote.

    key    PRIME_API_KEY, else `api_key` of ~/.prime/config.json, which `prime login` writes
    URL    PRIME_API_BASE_URL, PRIME_BASE_URL, `base_url` of the file, else Prime's

The key is never shown. Retried: no connection, a time-out, 408, 425, 429 and 5xx, with the waits of
`backoff`. A list that changes while it is read shifts, so what came is compared with the total that
Prime gives.
"""

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from proctor.agents.chat.endpoint import clean, find_reason, read_refusal
from proctor.backoff import find_retry_after, find_wait
from proctor.errors import PrimeError
from proctor.sentence import count_of, reason_of, render_duration
from proctor.traces.entry import Object

KEY_VARIABLE: Final = "PRIME_API_KEY"
_PATH: Final = "/api/v1"
_PAGE_SIZE: Final = 100
_MOST_RETRIES: Final = 5


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation."""

    evaluation_id: str = ""
    id: str = ""
    name: str | None = None
    model_name: str | None = None
    inference_model: str | None = None
    metadata: Object | None = None
    viewer_url: str | None = None
    eval_config: Any = None
    created_at: str | None = None
    total_samples: int | None = None
    status: str | None = None

    @property
    def model(self) -> str:
        """The model that was evaluated."""
        stated = (self.metadata or {}).get("model")
        return str(self.model_name or self.inference_model or stated or "unknown")

    @property
    def configuration(self) -> Object:
        """What a record stores of it."""
        return {
            "source": "prime-eval-samples",
            "evaluation_id": self.evaluation_id,
            "evaluation_name": self.name,
            "viewer_url": self.viewer_url,
            "eval_config": self.eval_config,
        }


class _Page(msgspec.Struct, frozen=True):
    """One page of samples."""

    samples: list[Any]
    total: int | None = None
    """Samples on all pages."""


@dataclass(slots=True)
class Samples:
    """The samples of an evaluation as they arrive, each with its name."""

    pages: Iterable[_Page]
    total: int | None
    """Expected number of samples, as last reported."""
    names: set[str] = field(default_factory=set)
    """Names of the samples that arrived."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        numbers, seen = count(1), set[tuple[str, int]]()
        for page in self.pages:
            self.total = self.total if page.total is None else page.total
            before = len(seen)
            for value, number in zip(page.samples, numbers, strict=False):
                known = value if isinstance(value, dict) else {}
                name = str(known.get("sample_id") or known.get("id") or f"sample-{number}")
                # The same sample may be on two pages; another with its id is refused later.
                if (key := (name, hash(repr(value)))) not in seen:
                    seen.add(key)
                    self.names.add(name)
                    yield name, value
            # Without a total, the list ends at a page that is empty, or repeats another.
            if len(seen) == before or len(self.names) == self.total:
                return


@dataclass(frozen=True, slots=True)
class Client:
    """Client of the API."""

    http: httpx.Client
    url: str
    """Prefix of all paths."""
    key: str = field(repr=False)
    key_from: str
    """The variable or file that the key was read from."""
    log: Callable[[str], None]
    """Called with the reason for a delay."""

    def find(self, path: str, **params: int) -> bytes | None:
        """Request a document; None if it does not exist.

        Raises:
            PrimeError: there is no usable response.
        """
        url = self.url + path
        for n_tries in count(1):
            retry_after = None
            try:
                response = self.http.get(url, params=params)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                reason = clean(find_reason(error)) or type(error).__name__
                said = f"no response: {reason}; is the network up, and the URL right?"
                # Neither an untrusted certificate nor a URL gets better by retrying.
                may_pass = "CERTIFICATE" not in reason and isinstance(
                    error, httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError
                )
            else:
                status = response.status_code
                if response.is_success or status == 404:
                    return response.content if response.is_success else None
                # The service may echo the key in its error message.
                body = response.content.replace(self.key.encode(), b"[redacted]")
                said = f"HTTP {status}: {read_refusal(body) or 'no reason given'}"
                if status in (401, 403):
                    said += f"; may the key of {self.key_from} read this? Set {KEY_VARIABLE}"
                may_pass = status in (408, 425, 429) or status >= 500
                retry_after = find_retry_after(response.headers, datetime.now(UTC))
            if not may_pass or n_tries > _MOST_RETRIES:
                often = f" (tried {count_of(n_tries, 'time')})" if n_tries > 1 else ""
                raise PrimeError(f"{url}: {said}{often}")
            wait = find_wait(retry_after, n_tries, random.random())  # noqa: S311 - no secret
            again = f"trying again in {render_duration(wait)} ({n_tries} of {_MOST_RETRIES})"
            self.log(f"{url}: {said}; {again}")
            time.sleep(wait)
        raise AssertionError  # count has no end


@contextmanager
def open_client(
    variables: Mapping[str, str], home: Path, log: Callable[[str], None]
) -> Iterator[Client]:
    """Yield a client, and close its connections afterwards.

    Raises:
        PrimeError: there is no key, or the variables for proxies or certificates cannot be used.
    """
    file = home / ".prime" / "config.json"
    # It has other fields, of any type.
    config = _load(file, dict[str, Any]) if file.exists() else {}
    key, key_from = variables.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
    if not key:
        key, key_from = str(config.get("api_key") or "").strip(), str(file)
    if not (key.isascii() and key.isprintable() and key):
        raise PrimeError(
            f"no key for Prime: {KEY_VARIABLE} is not set, or not in ASCII, and {file} has none; "
            "set the variable, or import saved files with --evaluation-json and --samples-json"
        )
    urls = (variables.get("PRIME_API_BASE_URL"), variables.get("PRIME_BASE_URL"))
    known = (*urls, config.get("base_url"), "https://api.primeintellect.ai")
    url = next(filter(None, known))
    url = url.strip().rstrip("/").removesuffix(_PATH) + _PATH
    headers = {"authorization": f"Bearer {key}"}
    try:
        # To another place, httpx sends no key.
        http = httpx.Client(timeout=60.0, headers=headers, follow_redirects=True)
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        raise PrimeError(
            f"{url}: cannot be requested: {clean(str(error))}; are the variables for proxies "
            "(such as ALL_PROXY) and certificates (such as SSL_CERT_FILE) right?"
        ) from error
    with http:
        yield Client(http, url, key, key_from, log)


def ask_evaluation(client: Client, asked: str) -> tuple[Evaluation, Samples]:
    """Request an evaluation by id; its samples are requested as they are read.

    Raises:
        PrimeError: it does not exist, or Prime does not respond.
    """
    path = f"/evaluations/{quote(asked, safe='')}"
    where = client.url + path
    found = client.find(path)
    if found is None:
        raise PrimeError(
            f"{where}: there is no evaluation {asked!r}, or none that the key of "
            f"{client.key_from} may read; see `prime eval list`"
        )

    def read_pages() -> Iterator[_Page]:
        for number in count(1):
            data = client.find(f"{path}/samples", page=number, limit=_PAGE_SIZE)
            if data is None:
                # Some servers answer a page after the last one with 404.
                return
            yield _parse(data, _Page, f"{where}/samples: page {number}")

    evaluation = _name(_parse(found, Evaluation, where), asked, where)
    return evaluation, Samples(read_pages(), evaluation.total_samples)


def load_saved(
    evaluation: Path, samples: Sequence[Path], asked: str | None
) -> tuple[Evaluation, Samples]:
    """Load an evaluation from one file, and its samples from others, page by page.

    Raises:
        PrimeError: a file cannot be read or used, or belongs to another evaluation than `asked`.
    """
    found = _name(_load(evaluation, Evaluation), asked, str(evaluation))
    return found, Samples([_load(path, _Page) for path in samples], found.total_samples)


def _name(found: Evaluation, asked: str | None, where: str) -> Evaluation:
    """The evaluation with its id in one place."""
    name = found.evaluation_id or found.id or asked
    if not name or asked not in (None, name):
        expected = "expected an evaluation_id" if asked is None else f"EVAL_ID is {asked!r}"
        raise PrimeError(f"{where}: evaluation {name!r}; {expected}")
    return msgspec.structs.replace(found, evaluation_id=name)


def _load[T](path: Path, kind: type[T]) -> T:
    try:
        return _parse(path.read_bytes(), kind, str(path))
    except OSError as error:
        raise PrimeError(f"{path}: cannot be read: {reason_of(error)}") from error


def _parse[T](data: bytes, kind: type[T], where: str) -> T:
    """Parse JSON. NaN and lone surrogates pass, so that they refuse one sample, not its page."""
    try:
        return msgspec.convert(json.loads(data), kind)
    except msgspec.ValidationError as error:
        raise PrimeError(f"{where}: {error}") from error
    except (ValueError, RecursionError) as error:
        begin = clean(data[:80].decode(errors="replace"))
        raise PrimeError(f"{where}: not JSON: {error}; it begins with {begin!r}") from error
