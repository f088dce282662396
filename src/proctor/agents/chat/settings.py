"""Parses the kwargs of `chat` and finds its endpoint. Sends no request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pydantic import Field, StringConstraints, model_validator

from proctor.agents.settings import Settings, load_text, parse_settings
from proctor.errors import AgentError
from proctor.harbor.agents import CHAT_KEY
from proctor.harbor.configs import AgentConfig
from proctor.harbor.env import is_sensitive, resolve_env

KEY_VARIABLE: Final = CHAT_KEY
URL_VARIABLE: Final = "OPENAI_BASE_URL"
PATH: Final = "/chat/completions"

# Keys that extra_body may not contain: the loop sets them, or they have a kwarg.
_OURS: Final = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "n", "max_tokens"}
    | {"temperature", "top_p", "seed", "reasoning_effort"}
)
# Characters allowed in an HTTP header. For other keys, httpx would raise an error that prints them.
_KEY = re.compile(r"[\x21-\x7e]+")
# User name and password in a URL.
_USER = re.compile(r"//[^/]*@")

type Whole = Annotated[int, Field(strict=True, ge=1)]
type Amount = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
type Factor = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
type Text = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=r"\S")]


class ChatSettings(Settings):
    """kwargs of `chat`."""

    base_url: Text | None = None
    """URL of the endpoint without /chat/completions; default: OPENAI_BASE_URL."""
    max_turns: Whole = 100
    """Number of answers; the calls of the last one are still run."""
    max_tokens: Whole | None = None
    """Sum of input and output tokens of all answers."""
    max_output_tokens: Whole | None = None
    """Tokens of one answer; sent to the endpoint as max_tokens."""
    max_cost_usd: Amount | None = None
    """Cost of all answers, in US dollars."""
    max_seconds: Amount | None = None
    """Wall time of the run, in addition to the trial's timeout."""
    max_malformed: Whole = 5
    """Number of answers in a row with neither text nor a call that can be run."""
    command_timeout_sec: Whole = 120
    """Timeout of a command if the model gives none, in seconds."""
    max_command_timeout_sec: Whole = 3600
    """Longest timeout that the model can give, in seconds."""
    output_limit: Annotated[int, Field(strict=True, ge=200)] = 20_000
    """Characters of a command's output that the model sees; the middle of a longer one is cut."""
    temperature: Factor | None = None
    top_p: Annotated[float, Field(strict=True, ge=0, le=1)] | None = None
    seed: Annotated[int, Field(strict=True)] | None = None
    reasoning_effort: Text | None = None
    send_reasoning: Annotated[bool, Field(strict=True)] = True
    """Whether reasoning is sent back to the endpoint together with the call it led to."""
    extra_body: dict[str, Any] | None = None
    """Further keys for every request, such as options specific to the endpoint."""
    stream: Annotated[bool, Field(strict=True)] = False
    """Whether answers are streamed."""
    system_prompt: Text | None = None
    system_prompt_file: Path | None = None
    """File on the host with the system prompt; its digest is the agent's revision."""
    retries: Annotated[int, Field(strict=True, ge=0)] = 5
    """Number of retries per request."""
    request_timeout_sec: Amount = 600
    """Timeout of one try, from the request to the last byte of the answer, in seconds."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.system_prompt is not None and self.system_prompt_file is not None:
            raise ValueError("both system_prompt and system_prompt_file are given; expected one")
        if self.command_timeout_sec > self.max_command_timeout_sec:
            raise ValueError(
                f"command_timeout_sec {self.command_timeout_sec} is more than "
                f"max_command_timeout_sec {self.max_command_timeout_sec}"
            )
        if taken := sorted(_OURS.intersection(self.extra_body or ())):
            raise ValueError(f"extra_body has {', '.join(taken)}, which chat itself sends")
        return self


@dataclass(frozen=True, slots=True)
class Address:
    """URL and key of an endpoint."""

    url: str
    """Full URL of the requests."""
    key: str | None
    """Sent as a bearer token; None: no token is sent."""

    @property
    def shown(self) -> str:
        """URL without its query, for messages."""
        return self.url.partition("?")[0]

    # The generated repr would contain the key.
    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def check_chat(config: AgentConfig, host: Mapping[str, str]) -> None:
    """Check, before a job starts, that `chat` can be run with this config.

    Raises:
        AgentError: the model, the URL or a kwarg is missing or invalid.
    """
    settings = parse_settings(ChatSettings, config)
    if not config.model_name:
        raise AgentError("agent 'chat': no model given; pass -m MODEL")
    if config.mcp_servers:
        raise AgentError("agent 'chat' has one tool, bash, and does not support MCP servers")
    load_system_prompt(settings)
    # The job reports these.
    known: dict[str, str] = {}
    for name in (KEY_VARIABLE, URL_VARIABLE):
        if name in config.env:
            try:
                known |= resolve_env({name: config.env[name]}, host)
            except ValueError:
                continue
    find_address(settings, known, host)


def find_address(
    settings: ChatSettings, env: Mapping[str, str], host: Mapping[str, str]
) -> Address:
    """Return the endpoint of the kwargs, or else of the variables: --ae first, then the host's.

    Raises:
        AgentError: there is no URL, or the URL or the key is invalid. The key is never shown.
    """
    variables = {**host, **env}
    key = variables.get(KEY_VARIABLE, "").strip()
    if key and not _KEY.fullmatch(key):
        raise AgentError(
            f"{KEY_VARIABLE} contains blanks or non-ASCII characters; expected a key as the "
            "endpoint issued it"
        )
    if settings.base_url is not None:
        return Address(_whole_url(settings.base_url, "base_url"), key or None)
    url = variables.get(URL_VARIABLE, "").strip()
    if not url:
        raise AgentError(
            "agent 'chat': no endpoint given; pass --ak base_url=https://…/v1, or set "
            f"{URL_VARIABLE}"
        )
    return Address(_whole_url(url, URL_VARIABLE), key or None)


def _whole_url(text: str, where: str) -> str:
    try:
        parts = urlsplit(text)
        _ = parts.port  # urlsplit checks the port only when it is read
    except ValueError:
        parts = None
    else:
        parts = parts if text.isascii() and text.isprintable() and " " not in text else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        shown = _USER.sub("//…@", text)
        raise AgentError(f"{where} is {shown!r}; expected a URL such as https://…/v1")
    if parts.username is not None or parts.password is not None:
        # They would be written to config.json and shown in every error.
        raise AgentError(
            f"{where} contains a user name or a password; expected a URL without them, and the key "
            f"in {KEY_VARIABLE}"
        )
    if secret := [name for name, _ in parse_qsl(parts.query) if is_sensitive(name)]:
        raise AgentError(f"{where} contains ?{secret[0]}=…; expected the key in {KEY_VARIABLE}")
    path = parts.path.rstrip("/")
    if not path.endswith(PATH):
        path += PATH
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def load_system_prompt(settings: ChatSettings) -> str | None:
    """Return the system prompt of the kwargs, or None.

    Raises:
        AgentError: its file cannot be read, is not UTF-8, or is empty.
    """
    path = settings.system_prompt_file
    if path is None:
        return settings.system_prompt
    text = load_text(path)
    if not text.strip():
        raise AgentError(f"{path}: is empty; expected a system prompt")
    return text
