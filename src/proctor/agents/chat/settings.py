"""The kwargs of `chat` as values, and where its endpoint is. Nothing here asks the endpoint."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from pydantic import Field, StringConstraints, model_validator

from proctor.agents.settings import Settings, load_text, parse_settings
from proctor.errors import AgentError
from proctor.harbor.agents import CHAT_KEY
from proctor.harbor.configs import AgentConfig
from proctor.harbor.env import is_sensitive, resolve_env

KEY_VARIABLE: Final = CHAT_KEY
URL_VARIABLE: Final = "OPENAI_BASE_URL"
PATH: Final = "/chat/completions"

_OURS: Final = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "n", "max_tokens"}
    | {"temperature", "top_p", "seed", "reasoning_effort"}
)
"""Keys of a request that extra_body may not have: they are the loop's, or kwargs."""
_KEY = re.compile(r"[\x21-\x7e]+")
"""What an HTTP header can hold. Of another key httpx would print every byte."""
_USER = re.compile(r"//[^/]*@")
"""User name and password in a URL."""

type Whole = Annotated[int, Field(strict=True, ge=1)]
type Amount = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
type Factor = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
type Text = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=r"\S")]


class ChatSettings(Settings):
    """kwargs of `chat`."""

    base_url: Text | None = None
    """URL of the endpoint without /chat/completions; else OPENAI_BASE_URL."""
    max_turns: Whole = 100
    """Answers of the model; what the last one calls is still run."""
    max_tokens: Whole | None = None
    """Input and output tokens of all answers together."""
    max_output_tokens: Whole | None = None
    """Tokens of one answer; sent to the endpoint as max_tokens."""
    max_cost_usd: Amount | None = None
    """US dollars of all answers together."""
    max_seconds: Amount | None = None
    """Wall time, besides the trial's own timeout."""
    max_malformed: Whole = 5
    """Answers in a row that hold neither a call that can be run nor any text."""
    command_timeout_sec: Whole = 120
    """Seconds for a command for which the model names none."""
    max_command_timeout_sec: Whole = 3600
    """Seconds that the model may ask for."""
    output_limit: Annotated[int, Field(strict=True, ge=200)] = 20_000
    """Characters of a command's output that the model is shown; of more, the middle is cut."""
    temperature: Factor | None = None
    top_p: Annotated[float, Field(strict=True, ge=0, le=1)] | None = None
    seed: Annotated[int, Field(strict=True)] | None = None
    reasoning_effort: Text | None = None
    send_reasoning: Annotated[bool, Field(strict=True)] = True
    """Whether the reasoning that led to a call is sent back with it."""
    extra_body: dict[str, Any] | None = None
    """Further keys of every request, as the endpoint knows them."""
    stream: Annotated[bool, Field(strict=True)] = False
    """Whether answers come in pieces."""
    system_prompt: Text | None = None
    system_prompt_file: Path | None = None
    """File on the host that holds it; its digest is the revision."""
    retries: Annotated[int, Field(strict=True, ge=0)] = 5
    """How often one request is tried again."""
    request_timeout_sec: Amount = 600
    """Seconds for one try, from the request to the last byte of the answer."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.system_prompt is not None and self.system_prompt_file is not None:
            raise ValueError("system_prompt and system_prompt_file are two system prompts")
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
    """Where the model is asked, and as whom."""

    url: str
    """Of the requests, whole."""
    key: str | None
    """Sent as a bearer token; None: nothing is sent."""

    @property
    def shown(self) -> str:
        """The URL without its query, for people."""
        return self.url.partition("?")[0]

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def check_chat(config: AgentConfig, host: Mapping[str, str]) -> None:
    """Look, before anything is created, whether `chat` can be run as it is asked for.

    Raises:
        AgentError: the model, the URL or a kwarg is missing or wrong.
    """
    settings = parse_settings(ChatSettings, config)
    if not config.model_name:
        raise AgentError("agent 'chat': no model is named; expected -m MODEL")
    if config.mcp_servers:
        raise AgentError("agent 'chat' has one tool, bash, and no MCP servers; leave them out")
    load_system_prompt(settings)
    find_address(settings, _resolve_known(config.env, host), host)


def _resolve_known(env: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """The variables of --ae whose values are known; of a missing one the job says so itself."""
    known: dict[str, str] = {}
    for name in (KEY_VARIABLE, URL_VARIABLE):
        if name in env:
            try:
                known |= resolve_env({name: env[name]}, host)
            except ValueError:
                continue
    return known


def find_address(
    settings: ChatSettings, env: Mapping[str, str], host: Mapping[str, str]
) -> Address:
    """The endpoint of the kwargs, else of the variables; --ae goes before the host's own.

    Raises:
        AgentError: there is no URL, or URL or key cannot be used. The key is not shown.
    """
    variables = {**host, **env}
    key = variables.get(KEY_VARIABLE, "").strip()
    if key and not _KEY.fullmatch(key):
        raise AgentError(
            f"{KEY_VARIABLE} holds blanks or characters beyond ASCII; expected a key as the "
            "endpoint gave it"
        )
    if settings.base_url is not None:
        return Address(_whole_url(settings.base_url, "base_url"), key or None)
    url = variables.get(URL_VARIABLE, "").strip()
    if not url:
        raise AgentError(
            "agent 'chat': it is not said where the model is; expected --ak "
            f"base_url=https://…/v1, or {URL_VARIABLE}"
        )
    return Address(_whole_url(url, URL_VARIABLE), key or None)


def _whole_url(text: str, where: str) -> str:
    parts = _split(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        shown = _USER.sub("//…@", text)
        raise AgentError(f"{where} is {shown!r}; expected a URL such as https://…/v1")
    if parts.username is not None or parts.password is not None:
        # It would be in config.json, and in every error.
        raise AgentError(
            f"{where} holds a user name or a password; expected a URL without them, and the key "
            f"in {KEY_VARIABLE}"
        )
    if secret := [name for name, _ in parse_qsl(parts.query) if is_sensitive(name)]:
        raise AgentError(f"{where} holds ?{secret[0]}=…; expected the key in {KEY_VARIABLE}")
    path = parts.path.rstrip("/")
    if not path.endswith(PATH):
        path += PATH
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        _ = parts.port  # a port that is none is found out only when it is asked for
    except ValueError:
        return None
    return parts if text.isascii() and text.isprintable() and " " not in text else None


def load_system_prompt(settings: ChatSettings) -> str | None:
    """The system prompt of the kwargs; None where they have none.

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
