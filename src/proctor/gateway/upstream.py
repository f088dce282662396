"""The providers behind a job's gateway: where each is, its key, and what an environment is given.

    --model-endpoint openai=http://127.0.0.1:8000/v1      a server of this machine, or any other
    OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY     a provider's usual variables

Keys are the host's. They are sent to their provider and are in no file, and no environment.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from proctor.errors import AgentError
from proctor.harbor.env import is_sensitive
from proctor.traces.writer import Redactor

OPTION: Final = "--model-endpoint"
HOST: Final = "127.0.0.1"
# Characters allowed in an HTTP header.
_KEY = re.compile(r"[\x21-\x7e]+")
# Some give the whole URL of the requests as the base.
_SUFFIX: Final = "/chat/completions"
_USER = re.compile(r"//[^/]*@")
# Local servers take dummy keys such as "x"; redacting these would garble every text.
_SHORTEST_SECRET: Final = 8


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider whose protocols the gateway speaks."""

    name: str
    url: str
    """Its usual base URL, as its clients expect it."""
    urls: tuple[str, ...]
    """Variables in which its clients look for a base URL; the first one is the host's too."""
    keys: tuple[str, ...]
    """Variables in which its clients look for a key; on the host, the first that is set counts."""
    header: str
    """The header that carries the key."""

    def authorize(self, key: str) -> tuple[str, str]:
        """Return the header that carries this key."""
        return self.header, f"Bearer {key}" if self.header == "authorization" else key


OPENAI: Final = Provider(
    "openai",
    "https://api.openai.com/v1",
    ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ("OPENAI_API_KEY",),
    "authorization",
)
ANTHROPIC: Final = Provider(
    "anthropic",
    "https://api.anthropic.com",
    ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ("ANTHROPIC_API_KEY",),
    "x-api-key",
)
GEMINI: Final = Provider(
    "gemini",
    "https://generativelanguage.googleapis.com",
    ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "x-goog-api-key",
)
PROVIDERS: Final = {provider.name: provider for provider in (OPENAI, ANTHROPIC, GEMINI)}

REFUSED: Final = {
    "ANTHROPIC_AUTH_TOKEN": "a login of Claude, not a key",
    "CLAUDE_CODE_OAUTH_TOKEN": "a login of Claude Code, not a key",
    "CLAUDE_CODE_USE_BEDROCK": "requests to Amazon Bedrock are signed by the client",
    "AWS_BEARER_TOKEN_BEDROCK": "a key of Amazon Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "requests to Vertex AI are signed by the client",
    "GOOGLE_GENAI_USE_VERTEXAI": "requests to Vertex AI are signed by the client",
    "AZURE_OPENAI_API_KEY": "Azure's deployments have addresses of their own",
}
"""Variables of schemes that the gateway cannot hold, with the reason."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider at an address, with the host's key for it."""

    provider: Provider
    origin: str
    """Scheme and host, such as https://api.openai.com."""
    path: str
    """The path of its base URL, without a slash at its end."""
    query: str = ""
    """The query of its base URL, added to that of each request."""
    key: str | None = field(repr=False, default=None)
    """None: none is sent."""

    @property
    def shown(self) -> str:
        """Its base URL, for messages and records."""
        return f"{self.origin}{self.path}"

    def find_url(self, path: str, query: str) -> str | None:
        """Return the URL of a request below /NAME of the gateway; None if it leads elsewhere."""
        inside = path == self.path or path.startswith(f"{self.path}/")
        if not inside or not all(map(_is_plain, (path, unquote(path), unquote(unquote(path))))):
            return None
        queries = "&".join(filter(None, (query, self.query)))
        return f"{self.origin}{path}{f'?{queries}' if queries else ''}"


def find_upstreams(
    endpoints: Mapping[str, str], given: Mapping[str, str], host: Mapping[str, str]
) -> dict[str, Upstream]:
    """Return the providers that a job can reach, by name.

    `endpoints` are those of the option, `given` the variables of --ae; `host` is looked at last.
    """
    variables = {**host, **given}
    found: dict[str, Upstream] = {}
    for provider in PROVIDERS.values():
        key = _find_key(provider, variables)
        url = endpoints.get(provider.name) or variables.get(provider.urls[0], "").strip()
        where = OPTION if provider.name in endpoints else provider.urls[0]
        if url or key:
            parts = _parse(url or provider.url, where)
            origin = f"{parts.scheme}://{parts.netloc}"
            path = parts.path.rstrip("/").removesuffix(_SUFFIX)
            found[provider.name] = Upstream(provider, origin, path, parts.query, key)
    return found


def parse_endpoints(texts: Iterable[str]) -> dict[str, str]:
    """Parse PROVIDER=URL of the option.

    Raises:
        AgentError: a value has another form, or a provider is named twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or name not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise AgentError(
                f"{OPTION} {_USER.sub('//…@', text)}: expected PROVIDER=URL with one of {known}, "
                "such as openai=http://127.0.0.1:8000/v1"
            )
        if name in found:
            raise AgentError(f"{OPTION}: {name} is given twice")
        _parse(url, f"{OPTION} {name}")
        found[name] = url
    return found


def find_refused(names: Iterable[str]) -> str | None:
    """Return a sentence about the first variable whose scheme the gateway cannot hold."""
    for name in sorted(set(names) & REFUSED.keys()):
        return (
            f"{name} is set: {REFUSED[name]}, so the gateway cannot stand in for it; unset it and "
            "give a key (such as ANTHROPIC_API_KEY), or pass --no-gateway to let the agent reach "
            "its model by itself, unrecorded"
        )
    return None


def make_env(upstreams: Mapping[str, Upstream], base: str, token: str) -> dict[str, str]:
    """Return the variables by which clients inside find the gateway instead of their provider."""
    env: dict[str, str] = {}
    for name, upstream in upstreams.items():
        env |= dict.fromkeys(upstream.provider.urls, f"{base}/{name}{upstream.path}")
        env |= dict.fromkeys(upstream.provider.keys, token)
    return env


def make_redactor(upstreams: Iterable[Upstream]) -> Redactor:
    """Return what removes the keys from messages of providers."""
    keys = {each.provider.keys[0]: each.key for each in upstreams if each.key}
    return Redactor({name: key for name, key in keys.items() if len(key) >= _SHORTEST_SECRET})


def find_keys(upstreams: Iterable[Upstream]) -> tuple[bytes, ...]:
    """Return the keys that must not appear in what providers answer."""
    keys = (each.key.encode() for each in upstreams if each.key)
    return tuple(dict.fromkeys(key for key in keys if len(key) >= _SHORTEST_SECRET))


def find_hidden(host: Mapping[str, str]) -> Sequence[str]:
    """Return the variables of the host that hold credentials of providers."""
    keys = [name for provider in PROVIDERS.values() for name in provider.keys]
    return [name for name in (*keys, *REFUSED) if host.get(name)]


def _is_plain(path: str) -> bool:
    """Whether no server can take a path for one that leads upwards."""
    # Some servers cut parameters off: /..;x/
    names = [name.partition(";")[0].strip() for name in path.split("/")]
    return path.isprintable() and "\\" not in path and ".." not in names


def _find_key(provider: Provider, variables: Mapping[str, str]) -> str | None:
    for name in provider.keys:
        key = variables.get(name, "").strip()
        if key and not _KEY.fullmatch(key):
            raise AgentError(
                f"{name} contains blanks or non-ASCII characters; expected a key as the provider "
                "issued it"
            )
        if key:
            return key
    return None


def _parse(url: str, where: str) -> SplitResult:
    shown = _USER.sub("//…@", url)
    try:
        parts = urlsplit(url)
        _ = parts.port  # urlsplit checks the port only when it is read
    except ValueError as error:
        raise AgentError(f"{where} is {shown!r}: {error}; expected a URL") from error
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise AgentError(f"{where} is {shown!r}; expected a URL such as https://…/v1")
    secret = [name for name, _ in parse_qsl(parts.query) if is_sensitive(name)]
    if parts.username is not None or parts.fragment or secret:
        raise AgentError(
            f"{where} is {shown.partition('?')[0]!r}; expected a URL without user name, password, "
            "key and fragment, and the key in its own variable"
        )
    return parts
